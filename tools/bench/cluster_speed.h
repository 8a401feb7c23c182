// cluster_speed: the bars on the speed of a cluster on loopback: three brokers (or one), the disk, and many idle partitions.
// Shape:    phases without and with the idle partitions by turns, A B A B; in each phase the shapes and the probes by turns
//           in short rounds, so that noise hits all. Each idle partition got one message, so that its files exist. Figures
//           are ratios to the probe of the same round, and their medians over the rounds: what machine and disk do otherwise
//           meanwhile cancels out.
// Bars:     p50 of 1x1 at most SINGLE_OVER_PROBE_PERCENT_MAX of the probe's with as many writers at once as nodes; 1x256
//           and 16x16 at least CLUSTER_BATCH_OVER_PROBE_MIN messages for each sync of a single writer; none of the three worse by
//           more than IDLE_EFFECT_PERCENT_MAX with the idle partitions.
// Errors:   those of its parts.
// Source:   issue 3 (Speed).
#pragma once

#include "tools/bench/report.h"
#include "tools/bench/workspace.h"

namespace mortar::bench {

inline constexpr std::uint64_t SINGLE_OVER_PROBE_PERCENT_MAX = 140;
inline constexpr std::uint64_t CLUSTER_BATCH_OVER_PROBE_MIN = 12;
inline constexpr std::uint64_t IDLE_EFFECT_PERCENT_MAX = 10;
inline constexpr std::size_t IDLE_PARTITIONS_MAX = 1024;  // of a topic, contract T2

struct ClusterSpeedOptions {
    std::string broker_program;
    std::size_t node_count = 3;
    std::size_t value_bytes = 1024;
    std::size_t rounds = 10;  // in each of the four phases
    Duration round = milliseconds(300);
    std::size_t idle_partitions = 1000;  // 0: without these phases
};

Result<Report> cluster_speed(Workspace& workspace, const ClusterSpeedOptions& options);

}  // namespace mortar::bench
