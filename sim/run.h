// run: one seed from start to verdict: world, broker lives, workload, faults, checkers, drain.
// Shape:    parameters are drawn from the seed (swarm); a pin replaces one by name. Phases: faults on for duration_s, then
//           healing, then a drain in which every group must settle everything, then a graceful stop and a last look.
// Errors:   the verdict is the exit code of the program: 0 clean, 1 violation, 3 vacuous, 4 non-determinism, 5 harness fault.
// Source:   design 6 (swarm, results).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/env/fiber.h"
#include "nemesis/fault.h"
#include "sim/checker.h"

namespace mortar::sim {

inline constexpr int EXIT_CLEAN = 0;
inline constexpr int EXIT_VIOLATION = 1;
inline constexpr int EXIT_ARGUMENTS = 2;
inline constexpr int EXIT_VACUOUS = 3;
inline constexpr int EXIT_NON_DETERMINISM = 4;
inline constexpr int EXIT_HARNESS = 5;

// Rare events that a scenario may ask for.
inline constexpr const char* ELECTED_AGAIN = "run: a leader after the first";
inline constexpr const char* CAUGHT_UP = "catch_up: records were fetched";

// Stops the broker at one disk operation, and once more while it recovers.
struct CrashPlan {
    std::size_t broker = 0;          // which one, from 0
    std::uint64_t at_operation = 0;  // counts from 1 over the run; 0 = never
    bool after = false;              // after its effect, else before
    bool power = false;              // power loss, else kill -9
    std::uint64_t image =
        0;  // what unsynced survives: 0 nothing, 1 all, 2 names and sizes, 3 sectors, else drawn from this number, torn
    std::uint64_t again_after = 0;  // crash the next life too, at its n-th operation; 0 = no
};

struct RunOptions {
    std::uint64_t seed = 1;
    std::string nemesis = "swarm";              // "kill,power,torn", "swarm" or "none"
    std::map<std::string, std::uint64_t> pins;  // parameter name -> value
    bool log = false;                           // the broker's and clients' log lines to stderr
    std::vector<Fault> script;                  // besides what the nemeses plan
    CrashPlan crash;
    bool record_syncs = false;  // fill RunReport::sync_sites
    std::string drop_sync;      // a site from RunReport::sync_sites whose syncs do nothing
};

struct RunReport {
    std::uint64_t seed = 0;
    int exit_code = EXIT_CLEAN;
    std::uint64_t trace_hash = 0;
    std::uint64_t steps = 0;
    std::int64_t simulated_ms = 0;
    std::uint64_t acked_pubs = 0;
    std::uint64_t acked_messages = 0;
    std::map<std::string, std::uint64_t> faults;      // fired, by kind
    std::map<std::string, std::uint64_t> parameters;  // as drawn and pinned
    std::map<int, std::uint64_t> checks;              // judgements by checker
    std::map<std::string, std::uint64_t> rare;        // MORTAR_SOMETIMES names seen
    std::vector<Violation> violations;
    std::uint64_t disk_operations = 0;        // of the node that CrashPlan names
    std::uint64_t first_life_operations = 0;  // until the planned crash
    // "sync_data topics/#/#/#.seg by log.#/#.writer" -> its calls, as operation numbers that CrashPlan takes
    std::map<std::string, std::vector<std::uint64_t>> sync_sites;
    std::string story;  // the last events before the end, for people

    std::uint64_t fault_count() const;
    // One line without spaces in fields, for sweeps: parse(line()) == *this, violations shortened to the first.
    std::string line() const;
    static RunReport parse(const std::string& line);
};

// Never throws; the pool is reused over runs.
RunReport run_seed(const RunOptions& options, StackPool& stacks);

bool known_nemeses(const std::string& nemesis);
// Those that swarm may draw in such runs.
std::vector<std::string> swarm_families(const RunOptions& options);
std::vector<std::pair<std::string, std::string>> nemesis_help();
std::vector<std::pair<std::string, std::string>> checker_help();
// Names of all parameters with their meaning, for --list.
std::vector<std::pair<std::string, std::string>> parameter_help();
// "build/bin/sim --seed 7 --nemesis kill,power": the one line that repeats the run where program was started.
std::string reproduce_line(const std::string& program, const RunOptions& options);

}  // namespace mortar::sim
