// seed_file: a frozen failing run as a small text file: comment lines of story, then `key value` lines.
// Shape:  # what was seen, in one line
//         seed 4711
//         nemesis kill,power
//         pin segment_max_bytes 65536
// Errors: INVALID_ARGUMENT naming file and line: also for an unknown nemesis or parameter, a value out of range, a second
//         line of one kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "sim/run.h"

namespace mortar::sim {

struct SeedFile {
    std::string story;
    RunOptions options;
};

// Digits only, at most 2^64 - 1.
std::optional<std::uint64_t> parse_number(std::string_view text);
Result<SeedFile> parse_seed_file(const std::string& name, const std::string& text);
std::string format_seed_file(const SeedFile& file);

}  // namespace mortar::sim
