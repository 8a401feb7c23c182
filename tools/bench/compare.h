// compare: what the broker adds to the disk: echo, PUB and the bare probe by turns in one run, so that noise hits all three.
// Shape:    first one PUB at a time against echo and probe; then many outstanding against the probe; then the idle broker.
//           Each in short rounds, A B C A B C; percentiles are over all rounds of a kind.
// Bars:     p50 of PUB at most PUB_OVER_ECHO_MAX above echo's; with BATCH_OUTSTANDING outstanding at least
//           BATCH_OVER_PROBE_MIN times the probe's syncs a second in messages, p99 at most TAIL_OVER_MEDIAN_MAX times the
//           p50; an idle broker below IDLE_PER_MILLE_MAX of a processor.
// Errors:   those of its parts.
// Source:   issue 2 (Speed).
#pragma once

#include "tools/bench/report.h"
#include "tools/bench/workspace.h"

namespace mortar::bench {

inline constexpr Duration PUB_OVER_ECHO_MAX = microseconds(40);
inline constexpr std::size_t BATCH_OUTSTANDING = 256;
inline constexpr std::uint64_t BATCH_OVER_PROBE_MIN = 20;
inline constexpr std::uint64_t TAIL_OVER_MEDIAN_MAX = 10;
inline constexpr std::uint64_t IDLE_PER_MILLE_MAX = 10;

struct CompareOptions {
    std::string broker_program;
    std::size_t value_bytes = 1024;
    std::size_t rounds = 20;
    Duration round = milliseconds(300);
    Duration idle = seconds(5);
};

Result<Report> compare(Workspace& workspace, const CompareOptions& options);

}  // namespace mortar::bench
