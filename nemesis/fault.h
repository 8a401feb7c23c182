// fault: one thing that breaks, as data: when, what, where, for how long. A schedule prints,
// shrinks and replays.
// Shape:  as text one fault a line: `<at_us> <family> <node> <duration_us> <draw>`; blank lines and
//         # are skipped.
// Units:  microseconds of true time since the start of the run.
// Errors: INVALID_ARGUMENT with the line.
// Source: design 1 (faults as data), 6 (nemeses, results).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/env/clock.h"

namespace mortar::sim {

// Stands for the broker that leads when the fault comes; nothing happens when none does.
inline constexpr std::string_view LEADER_TARGET = "leader";

struct Fault {
    MonoTime at;
    std::string family;  // the name of a Nemesis
    std::string node;    // or LEADER_TARGET
    Duration duration;   // down, paused, broken for so long; 0 for a reset
    std::uint64_t draw =
        0;  // seeds what the fault leaves to chance: sectors that survive, connection, cut

    auto operator<=>(const Fault&) const = default;
};

std::string format_fault(const Fault& fault);
Result<Fault> parse_fault(std::string_view line);
std::string format_schedule(const std::vector<Fault>& schedule);
Result<std::vector<Fault>> parse_schedule(std::string_view text);

}  // namespace mortar::sim
