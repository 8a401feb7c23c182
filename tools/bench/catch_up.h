// catch_up: a follower that was killed comes back after many writes: how soon is it in sync, and what do producers feel?
// Shape:    three brokers; producers in a closed loop all the time. Measured without faults first; then a follower is
//           killed (kill -9), size_mib are written without it, it is started again, and until the leader calls it in sync the
//           producers' rate is measured once more.
// Bars:     in sync within IN_SYNC_MS_MAX of its start; meanwhile producers keep PRODUCERS_PERCENT_MIN of the rate that they
//           had with all three.
// Errors:   those of its parts; TIMED_OUT when it is not in sync after IN_SYNC_PATIENCE.
// Source:   issue 3 (catch-up), design 4.
#pragma once

#include "tools/bench/report.h"
#include "tools/bench/workspace.h"

namespace mortar::bench {

inline constexpr std::uint64_t IN_SYNC_MS_MAX = 60'000;
inline constexpr std::uint64_t PRODUCERS_PERCENT_MIN = 70;
inline constexpr std::size_t CATCH_UP_MIB_MAX = 65'536;

struct CatchUpOptions {
    std::string broker_program;
    std::size_t size_mib = 1024;
    std::size_t value_bytes = 1024;
    std::size_t connections = 16;
    std::size_t outstanding = 16;
    std::uint16_t partitions = 16;
    Duration duration = seconds(5);  // how long the rate without faults is measured
};

Result<Report> catch_up(Workspace& workspace, const CatchUpOptions& options);

}  // namespace mortar::bench
