#include "sim/crashpoints.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/assert.h"
#include "io-sim/stack_pool.h"
#include "nemesis/fault.h"
#include "sim/broker_node.h"
#include "sim/run.h"

namespace mortar::sim {
namespace {

// Small enough to be crashed everywhere, rich enough to reach every sync: segments roll, checkpoints and snapshots are
// written, ledgers rotate, members come and go.
RunOptions scenario() {
    RunOptions options;
    options.seed = 1;
    options.nemesis = "none";
    options.pins = {{"duration_s", 2},
                    {"topics", 1},
                    {"partitions", 1},
                    {"producers", 1},
                    {"groups", 1},
                    {"hostile", 0},
                    {"latest_groups", 0},
                    {"churn", 0},
                    {"wall_jumps", 0},
                    {"pubs_per_s", 40},
                    {"burst", 2},
                    {"value_bytes_max", 1000},
                    {"plain_per_mille", 0},
                    {"window", 8},
                    {"nack_per_mille", 30},
                    {"die_per_mille", 0},
                    {"handler_ms_max", 0},
                    {"graceful_restarts", 1},
                    {"leave_per_mille", 80},
                    {"segment_max_bytes", 16384},
                    {"checkpoint_every_bytes", 8192},
                    {"metadata_snapshot_records", 4},
                    {"ledger_max_bytes", 4096},
                    {"lease_ms", 2000},
                    {"max_attempts", 5},
                    {"scrub_pause_ms", 3600000}};
    return options;
}

// Three brokers: the third goes away and misses records; then the leader dies, and one of the other two is elected; the third
// comes back into a term whose base it does not have, and catches up.
RunOptions cluster_scenario() {
    RunOptions options = scenario();
    options.pins["nodes"] = 3;
    options.pins["duration_s"] = 8;
    options.pins["churn"] = 1;
    options.pins["partitions"] = 2;
    const auto at_ms = [](std::int64_t ms) { return MonoTime{} + milliseconds(ms); };
    options.script = {
        {at_ms(4'200), "kill", broker_name(2, 3), milliseconds(3'200), 0},
        {at_ms(5'000), "kill", std::string(LEADER_TARGET), milliseconds(600), 0},
    };
    return options;
}

// What some crashes showed; sums up over processes.
struct Tally {
    std::uint64_t explored = 0;
    std::uint64_t explored_twice = 0;
    std::uint64_t vacuous = 0;
    std::uint64_t broken = 0;
    std::uint64_t harness_faults = 0;

    void add(const Tally& other) {
        explored += other.explored;
        explored_twice += other.explored_twice;
        vacuous += other.vacuous;
        broken += other.broken;
        harness_faults += other.harness_faults;
    }
};

class Explorer {
  public:
    explicit Explorer(const CrashpointOptions& options) : options_(options) {}

    int run() {
        if (options_.nodes > 1) return run_cluster();
        RunOptions options = scenario();
        options.record_syncs = true;
        const RunReport calm = run_seed(options, stacks_);
        if (calm.exit_code != EXIT_CLEAN) {
            describe(options, calm);
            return calm.exit_code;
        }
        operations_ = calm.disk_operations;
        if (options_.list_syncs) {
            for (const auto& [site, calls] : calm.sync_sites)
                fmt::print("{:>5} x {}\n", calls.size(), site);
            return EXIT_CLEAN;
        }
        std::vector<std::string> sites;
        for (const auto& [site, calls] : calm.sync_sites)
            sites.push_back(site);
        if (!options_.drop_sync.empty() && !calm.sync_sites.contains(options_.drop_sync)) {
            fmt::print(stderr,
                       "sim: the scenario has no sync '{}'; see sim crashpoints --list-syncs\n",
                       options_.drop_sync);
            return EXIT_ARGUMENTS;
        }
        std::fflush(stdout);
        if (options_.prove) {
            const Tally tally = in_processes([&](unsigned job) {
                Tally sum;
                for (std::size_t i = job; i < sites.size(); i += options_.jobs) {
                    sum.add(prove(sites[i], calm.sync_sites.at(sites[i])));
                }
                return sum;
            });
            fmt::print("{} sync sites, {} needed, {} crashes\n", sites.size(), tally.broken,
                       tally.explored);
            if (tally.harness_faults != 0) return EXIT_HARNESS;
            return tally.broken == sites.size() ? EXIT_CLEAN : EXIT_VIOLATION;
        }
        options.record_syncs = false;
        options.drop_sync = options_.drop_sync;
        return judge(explore_all(options), "");
    }

  private:
    int run_cluster() {
        if (options_.list_syncs || options_.prove || !options_.drop_sync.empty()) {
            fmt::print(stderr,
                       "sim: syncs are proved with one broker: what one of three loses the "
                       "others have\n");
            return EXIT_ARGUMENTS;
        }
        for (std::size_t broker = 0; broker < options_.nodes; ++broker) {
            RunOptions options = cluster_scenario();
            options.crash.broker = broker;
            const RunReport calm = run_seed(options, stacks_);
            if (calm.exit_code != EXIT_CLEAN) {
                describe(options, calm);
                return calm.exit_code;
            }
            for (const char* part : {ELECTED_AGAIN, CAUGHT_UP}) {
                if (calm.rare.contains(part)) continue;
                fmt::print(stderr, "sim: the scenario lacks '{}'\n", part);
                return EXIT_VACUOUS;
            }
            operations_ = calm.disk_operations;
            std::fflush(stdout);
            const int ended =
                judge(explore_all(options), broker_name(broker, options_.nodes) + ": ");
            if (ended != EXIT_CLEAN) return ended;
        }
        return EXIT_CLEAN;
    }

    Tally explore_all(const RunOptions& calm) {
        return in_processes([&](unsigned job) {
            std::vector<std::uint64_t> share;
            for (std::uint64_t at = 1 + job * options_.every; at <= operations_;
                 at += options_.every * options_.jobs) {
                share.push_back(at);
            }
            return explore(calm, share, false);
        });
    }

    int judge(const Tally& tally, const std::string& whose) const {
        const bool failed = tally.broken != 0;
        fmt::print(
            "{}{} disk operations, {} crashes explored, {} of them twice, {} before anything was "
            "acknowledged; {}\n",
            whose, operations_, tally.explored, tally.explored_twice, tally.vacuous,
            failed ? "a promise was broken" : "every promise kept");
        if (tally.harness_faults != 0) return EXIT_HARNESS;
        if (failed) return EXIT_VIOLATION;
        return tally.explored == 0 || tally.vacuous * 20 > tally.explored ? EXIT_VACUOUS
                                                                          : EXIT_CLEAN;
    }

    // Runs work(0) .. work(jobs - 1), each in a process of its own. One that dies counts as a harness fault.
    template <class Work>
    Tally in_processes(const Work& work) {
        std::vector<int> ends;
        for (unsigned job = 0; job < options_.jobs; ++job) {
            int pipe_ends[2];
            MORTAR_ASSERT(::pipe(pipe_ends) == 0);
            const pid_t pid = ::fork();
            MORTAR_ASSERT(pid >= 0);
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGTERM);
                is_telling_ = job == 0;
                const Tally tally = work(job);
                std::fflush(stdout);
                const bool told = ::write(pipe_ends[1], &tally, sizeof tally) == sizeof tally;
                std::_Exit(told ? EXIT_CLEAN : EXIT_HARNESS);
            }
            ::close(pipe_ends[1]);
            ends.push_back(pipe_ends[0]);
        }
        Tally sum;
        for (const int end : ends) {
            Tally tally;
            if (::read(end, &tally, sizeof tally) != sizeof tally) {
                tally = {};
                tally.harness_faults = 1;
            }
            sum.add(tally);
            ::close(end);
        }
        while (::wait(nullptr) > 0) {
        }
        return sum;
    }

    // Stops at the first broken promise.
    Tally explore(const RunOptions& calm, const std::vector<std::uint64_t>& operations,
                  bool quiet) {
        Tally tally;
        if (broken(calm, quiet, tally)) return tally;
        for (const std::uint64_t at : operations) {
            for (const bool after : {false, true}) {
                RunOptions run = calm;
                run.crash = {.broker = calm.crash.broker, .at_operation = at, .after = after};
                if (broken(run, quiet, tally)) return tally;
                run.crash.power = true;
                for (std::uint64_t image = 0; image < options_.images_per_point; ++image) {
                    run.crash.image = image < 4 ? image : at * 64 + image * 2 + (after ? 1 : 0);
                    if (broken(run, quiet, tally)) return tally;
                }
                // And again while it recovers, early and late.
                run.crash.again_after = 1 + (at * 7 + (after ? 3 : 0)) % RECOVERY_OPERATIONS_TRIED;
                ++tally.explored_twice;
                if (broken(run, quiet, tally)) return tally;
            }
            progress(at, tally);
        }
        return tally;
    }

    bool broken(const RunOptions& run, bool quiet, Tally& tally) {
        ++tally.explored;
        const RunReport report = run_seed(run, stacks_);
        // A crash before anything was promised cannot break a promise.
        if (report.exit_code == EXIT_VACUOUS) ++tally.vacuous;
        if (report.exit_code == EXIT_CLEAN || report.exit_code == EXIT_VACUOUS) return false;
        (report.exit_code == EXIT_HARNESS ? tally.harness_faults : tally.broken) += 1;
        if (!quiet) describe(run, report);
        return true;
    }

    // Crashes right behind a call that did nothing show it first, so they are tried first.
    Tally prove(const std::string& site, const std::vector<std::uint64_t>& calls) {
        std::vector<std::uint64_t> order;
        std::vector<bool> taken(operations_ + 1);
        const auto take = [&](std::uint64_t at) {
            if (at > operations_ || taken[at]) return;
            taken[at] = true;
            order.push_back(at);
        };
        for (const std::uint64_t call : calls) {
            for (std::uint64_t at = call + 1; at <= call + OPERATIONS_BEHIND_SYNC; ++at)
                take(at);
        }
        for (std::uint64_t at = 1; at <= operations_; at += options_.every)
            take(at);
        RunOptions without = scenario();
        without.drop_sync = site;
        const Tally tally = explore(without, order, true);
        fmt::print("{}  {} ({} crashes)\n", tally.broken != 0 ? "needed    " : "NOT NEEDED", site,
                   tally.explored);
        std::fflush(stdout);
        return tally;
    }

    void describe(const RunOptions& run, const RunReport& report) {
        fmt::print("crash of broker {} {} operation {} ({}, image {}, again after {}): exit {}\n",
                   run.crash.broker + 1, run.crash.after ? "after" : "before",
                   run.crash.at_operation, run.crash.power ? "power" : "kill", run.crash.image,
                   run.crash.again_after, report.exit_code);
        for (const Violation& violation : report.violations) {
            fmt::print("  checker {}\n  promised: {}\n  seen:     {}\n", violation.checker,
                       violation.promise, violation.seen);
        }
        fmt::print("{}", report.story);
    }

    void progress(std::uint64_t at, const Tally& tally) {
        if (::isatty(STDERR_FILENO) == 0) {
            const auto now = std::chrono::steady_clock::now();
            if (!is_telling_ || now < next_told_) return;
            next_told_ = now + TELL_EVERY;
            fmt::print(stderr, "sim: operation {}/{}, {} crashes in one of {} processes\n", at,
                       operations_, tally.explored, options_.jobs);
            return;
        }
        fmt::print(stderr, "\roperation {}/{}, {} crashes\033[K", at, operations_, tally.explored);
        if (at + options_.every * options_.jobs > operations_) fmt::print(stderr, "\r\033[K");
    }

    static constexpr std::uint64_t RECOVERY_OPERATIONS_TRIED = 160;
    static constexpr std::uint64_t OPERATIONS_BEHIND_SYNC = 3;
    static constexpr std::chrono::seconds TELL_EVERY{30};  // where no terminal is
    const CrashpointOptions& options_;
    HeapStackPool stacks_;
    std::uint64_t operations_ = 0;
    bool is_telling_ = false;  // this process tells how far it is
    std::chrono::steady_clock::time_point next_told_ =
        std::chrono::steady_clock::now() + TELL_EVERY;
};

}  // namespace

int crashpoints(const CrashpointOptions& options) {
    return Explorer(options).run();
}

}  // namespace mortar::sim
