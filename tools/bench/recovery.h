// recovery: does the time to come back after a kill depend on the size of the log? It must not.
// Shape:    for a small and a large log: fill a partition by PUBs, kill -9, take its files out of the page cache, start again
//           and watch /healthz and what the process reads; several restarts, the median counts. The next PUB must get the
//           sequence after the last one acknowledged.
// Bars:     the large log takes, and reads, at most RATIO_MAX times what the small one does, plus a slack: what lies after the
//           last checkpoint differs from kill to kill by up to a checkpoint interval.
// Errors:   those of its parts; NO_SPACE comes from the broker. The folder is removed in any case.
// Source:   issue 2 (Storage), design 3.
#pragma once

#include "tools/bench/report.h"
#include "tools/bench/workspace.h"

namespace mortar::bench {

inline constexpr std::uint64_t RECOVERY_RATIO_MAX = 2;

struct RecoveryOptions {
    std::string broker_program;
    std::uint64_t small_mib = 64;
    std::uint64_t large_mib = 2048;
    std::size_t value_bytes = 256u << 10;
    std::size_t outstanding = 32;
    std::size_t restarts = 3;
    std::uint64_t slack_mib = 24;
    std::uint64_t slack_ms = 300;
};

Result<Report> compare_recovery(Workspace& workspace, const RecoveryOptions& options);

}  // namespace mortar::bench
