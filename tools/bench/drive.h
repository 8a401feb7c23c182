// drive: load on a running cluster or on brokers of our own: produce, consume, or both at once; alternating with the bare
//        disk if asked for, so that their ratio is of one run.
// Shape:    the topic is made when it is absent, and deleted again unless it is to be kept; groups go in any case.
//           Of an open loop every latency counts from the intended time. Alternating with the probe the load runs in
//           rounds, each with a schedule of its own; the probe's time is not the load's.
// Errors:   those of its parts. An interrupted run tidies up, then says CANCELLED.
// Source:   issue 3 (mortarmq-bench).
#pragma once

#include "tools/bench/cluster.h"
#include "tools/bench/load.h"
#include "tools/bench/report.h"
#include "tools/bench/workspace.h"

namespace mortar::bench {

enum class DriveMode : std::uint8_t { PRODUCE, CONSUME, END_TO_END };

// Shapes that results are compared by. Outstanding is of each connection.
struct Shape {
    const char* name;
    std::size_t connections;
    std::size_t outstanding;
    std::uint16_t partitions;
};
inline constexpr std::array<Shape, 3> SHAPES{
    {{"1x1", 1, 1, 1}, {"1x256", 1, 256, 1}, {"16x16", 16, 16, 16}}};

inline constexpr std::size_t PROBE_WRITERS_MAX = 64;

struct DriveOptions {
    DriveMode mode = DriveMode::PRODUCE;
    Cluster cluster;  // no addresses: brokers of our own
    std::string broker_program;
    std::size_t node_count = 1;
    std::string topic = "bench";
    bool keep = false;
    std::uint16_t partitions = 1;
    std::size_t connections = 1;
    std::size_t outstanding = 1;
    std::size_t consumers = 1;
    std::size_t value_bytes = 1024;
    std::uint64_t per_second = 0;  // 0 = closed loop
    Duration warm_up = milliseconds(500);
    Duration duration = seconds(5);
    std::uint64_t count = 0;  // 0 = until the time is over
    std::size_t probe_writers = 0;
};

Result<Report> drive(Workspace& workspace, const DriveOptions& options);

}  // namespace mortar::bench
