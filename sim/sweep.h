// sweep: many seeds on all cores, and a judgement whether they exercised enough.
// Shape:    worker processes take every jobs-th seed of the shard and report a line each; the parent prints progress (on a
//           terminal; else a line now and then on stderr), collects failures by checker and place, and ends with a summary.
// Resume:   finished seeds stand in the state file; a second start with the same file skips them.
// Gentle:   fails when the median seed has under 500 acknowledged PUBs or under 10 faults, a fault family fires in
//           under 20 % of the seeds, over 2 % are vacuous, or a checker judged nothing. Short sweeps (< 50 seeds) are not judged.
#pragma once

#include <cstdint>
#include <string>

#include "sim/run.h"

namespace mortar::sim {

// A sweep keeps a few numbers of each seed.
inline constexpr std::uint64_t SWEEP_SEEDS_MAX = 100'000'000;

struct SweepOptions {
    std::string program = "sim";  // for the lines that repeat a failure
    std::uint64_t first_seed = 1;
    std::uint64_t last_seed = 1000;
    unsigned jobs = 1;
    std::uint64_t shard_index = 0;  // this one of shard_count; --shard 1/4 is index 0
    std::uint64_t shard_count = 1;
    std::string state_file;     // empty = no resume
    std::string save_failures;  // folder for .seed files of failures; empty = none
    std::uint64_t stop_after_failures = 10;
    std::uint64_t check_twice_every =
        20;          // each n-th seed runs twice and must give one trace hash; 0 = never
    RunOptions run;  // seed is replaced
};

// 0 clean, 1 a seed failed, 3 too gentle, 4 non-determinism, 5 harness fault; 130 or 143 when SIGINT or SIGTERM ended it
// before a seed failed: the summary then tells of the seeds that were done.
int sweep(const SweepOptions& options);

}  // namespace mortar::sim
