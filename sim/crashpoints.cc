#include "sim/crashpoints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "io-sim/stack_pool.h"
#include "sim/run.h"

namespace mortar::sim {
namespace {

// Small enough to be crashed everywhere, rich enough to reach every sync: segments roll, checkpoints and snapshots are
// written, ledgers rotate, members come and go.
RunOptions scenario() {
    RunOptions options;
    options.seed = 1;
    options.nemesis = "none";
    options.pins = {{"duration_s", 2},          {"topics", 1},
                    {"partitions", 1},          {"producers", 1},
                    {"groups", 1},              {"hostile", 0},
                    {"pubs_per_s", 40},         {"burst", 2},
                    {"value_bytes_max", 1000},  {"plain_per_mille", 0},
                    {"window", 8},              {"nack_per_mille", 30},
                    {"die_per_mille", 0},       {"handler_ms_max", 0},
                    {"graceful_restarts", 1},
                    {"leave_per_mille", 80},    {"segment_max_bytes", 16384},
                    {"checkpoint_every_bytes", 8192}, {"metadata_snapshot_records", 4},
                    {"ledger_max_bytes", 4096}, {"lease_ms", 2000},
                    {"max_attempts", 5}};
    return options;
}

class Explorer {
  public:
    explicit Explorer(const CrashpointOptions& options) : options_(options) {}

    int run() {
        const RunReport calm = run_seed(scenario(), stacks_);
        if (calm.exit_code != EXIT_CLEAN) {
            describe(scenario(), calm);
            return calm.exit_code;
        }
        operations_ = calm.disk_operations;
        if (options_.list_syncs) {
            for (const auto& [site, calls] : calm.sync_sites) fmt::print("{:>5} x {}\n", calls, site);
            return EXIT_CLEAN;
        }
        if (options_.prove) return prove(calm);
        const bool failed = explore(options_.drop_sync, false);
        fmt::print("{} disk operations, {} crashes explored, {} of them twice, {} before anything was acknowledged; {}\n",
                   operations_, explored_, explored_twice_, vacuous_, failed ? "a promise was broken" : "every promise kept");
        if (explored_ == 0 || vacuous_ * 20 > explored_) return EXIT_VACUOUS;
        return failed ? EXIT_VIOLATION : EXIT_CLEAN;
    }

  private:
    // Stops at the first broken promise.
    bool explore(const std::string& drop_sync, bool quiet) {
        RunOptions calm = scenario();
        calm.drop_sync = drop_sync;
        if (broken(calm, quiet)) return true;
        for (std::uint64_t at = 1; at <= operations_; at += options_.every) {
            for (const bool after : {false, true}) {
                RunOptions run = calm;
                run.crash = {.at_operation = at, .after = after};
                if (broken(run, quiet)) return true;
                run.crash.power = true;
                for (std::uint64_t image = 0; image < options_.images_per_point; ++image) {
                    run.crash.image = image < 4 ? image : at * 64 + image * 2 + (after ? 1 : 0);
                    if (broken(run, quiet)) return true;
                }
                // And again while it recovers, early and late.
                run.crash.again_after = 1 + (at * 7 + (after ? 3 : 0)) % RECOVERY_OPERATIONS_TRIED;
                ++explored_twice_;
                if (broken(run, quiet)) return true;
            }
            progress(at);
        }
        return false;
    }

    bool broken(const RunOptions& run, bool quiet) {
        ++explored_;
        const RunReport report = run_seed(run, stacks_);
        // A crash before anything was promised cannot break a promise.
        if (report.exit_code == EXIT_VACUOUS) ++vacuous_;
        if (report.exit_code == EXIT_CLEAN || report.exit_code == EXIT_VACUOUS) return false;
        if (!quiet) describe(run, report);
        return true;
    }

    int prove(const RunReport& calm) {
        bool all = true;
        for (const auto& [site, calls] : calm.sync_sites) {
            explored_ = 0;
            const bool fails = explore(site, true);
            fmt::print("{}  {} ({} crashes)\n", fails ? "needed    " : "NOT NEEDED", site, explored_);
            std::fflush(stdout);
            all = all && fails;
        }
        return all ? EXIT_CLEAN : EXIT_VIOLATION;
    }

    void describe(const RunOptions& run, const RunReport& report) {
        fmt::print("crash {} operation {} ({}, image {}, again after {}): exit {}\n", run.crash.after ? "after" : "before",
                   run.crash.at_operation, run.crash.power ? "power" : "kill", run.crash.image,
                   run.crash.again_after, report.exit_code);
        for (const Violation& violation : report.violations) {
            fmt::print("  checker {}\n  promised: {}\n  seen:     {}\n", violation.checker, violation.promise,
                       violation.seen);
        }
        fmt::print("{}", report.story);
    }

    void progress(std::uint64_t at) const {
        if (::isatty(STDERR_FILENO) == 0) return;
        fmt::print(stderr, "\roperation {}/{}, {} crashes\033[K", at, operations_, explored_);
        if (at + options_.every > operations_) fmt::print(stderr, "\r\033[K");
    }

    static constexpr std::uint64_t RECOVERY_OPERATIONS_TRIED = 160;
    const CrashpointOptions& options_;
    HeapStackPool stacks_;
    std::uint64_t operations_ = 0;
    std::uint64_t explored_ = 0;
    std::uint64_t explored_twice_ = 0;
    std::uint64_t vacuous_ = 0;
};

}  // namespace

int crashpoints(const CrashpointOptions& options) {
    return Explorer(options).run();
}

}  // namespace mortar::sim
