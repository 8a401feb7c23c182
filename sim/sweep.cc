#include "sim/sweep.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "io-sim/stack_pool.h"
#include "sim/seed_file.h"

namespace mortar::sim {
namespace {

constexpr std::uint64_t MEDIAN_ACKED_PUBS_MIN = 500;
constexpr std::uint64_t MEDIAN_FAULTS_MIN = 10;
constexpr std::uint64_t FAMILY_PERCENT_MIN = 20;
constexpr std::uint64_t VACUOUS_PERCENT_MAX = 2;
constexpr std::size_t JUDGED_SEEDS_MIN = 50;
constexpr int CHECKERS[] = {1, 2, 3, 4, 5, 6, 8, 11, 12, 13, 14, 15, 16};
// Ledgers are local to a node, so nobody consumes from several: 4, 5, 6 and 11 have nothing to judge there.
constexpr int CLUSTER_CHECKERS[] = {1, 2, 3, 7, 8, 9, 12, 13, 14, 15, 16};

constexpr std::chrono::seconds TELL_EVERY{30};
constexpr int SIGNAL_EXIT_BASE = 128;

volatile std::sig_atomic_t g_signal = 0;
void on_signal(int number) {
    g_signal = number;
}
// An interrupted poll must return: no SA_RESTART.
void catch_signal(int number) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    ::sigaction(number, &action, nullptr);
}

struct Worker {
    pid_t pid = 0;
    int pipe = -1;
    std::string unread;
    std::uint64_t running_seed = 0;
    std::vector<std::uint64_t> seeds;  // not done yet, in order
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void write_all(int fd, const std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(EXIT_HARNESS);
        done += static_cast<std::size_t>(n);
    }
}

// Runs in the child: each seed announces itself first, so that a crash is known by its seed.
[[noreturn]] void work(const SweepOptions& options, const std::vector<std::uint64_t>& seeds,
                       int out) {
    HeapStackPool stacks;
    for (const std::uint64_t seed : seeds) {
        write_all(out, fmt::format("> {}\n", seed));
        RunOptions run = options.run;
        run.seed = seed;
        RunReport report = run_seed(run, stacks);
        const bool twice = options.check_twice_every != 0 && seed % options.check_twice_every == 0;
        if (twice && report.exit_code != EXIT_HARNESS) {
            const RunReport again = run_seed(run, stacks);
            ++report.checks[16];
            if (again.trace_hash != report.trace_hash) {
                report.exit_code = EXIT_NON_DETERMINISM;
                report.violations.insert(report.violations.begin(),
                                         Violation{16,
                                                   "one seed gives one trace hash",
                                                   fmt::format("{:016x} and {:016x}",
                                                               report.trace_hash, again.trace_hash),
                                                   {}});
            }
        }
        write_all(out, report.line() + "\n");
    }
    _exit(0);
}

class Sweep {
  public:
    explicit Sweep(const SweepOptions& options) : options_(options) {}

    int run() {
        load_state();
        std::vector<std::uint64_t> seeds;
        // Counted from the first, because the last may be the largest number that there is.
        for (std::uint64_t i = 0; i <= options_.last_seed - options_.first_seed; ++i) {
            if (i % options_.shard_count != options_.shard_index) continue;
            ++total_;
            if (!done_.contains(options_.first_seed + i)) seeds.push_back(options_.first_seed + i);
        }
        if (!options_.state_file.empty()) {
            state_.open(options_.state_file, std::ios::app);
            if (!state_) {
                fmt::print(stderr, "sim: cannot write {}: {}\n", options_.state_file,
                           std::strerror(errno));
                return EXIT_ARGUMENTS;
            }
        }
        catch_signal(SIGINT);
        catch_signal(SIGTERM);
        start_workers(seeds);
        while (std::any_of(workers_.begin(), workers_.end(),
                           [](const Worker& w) { return w.pipe >= 0; })) {
            pump();
            if (failures_ >= options_.stop_after_failures || g_signal != 0) stop_workers();
        }
        return summary();
    }

  private:
    void load_state() {
        if (options_.state_file.empty()) return;
        std::ifstream in(options_.state_file);
        for (std::string line; std::getline(in, line);) {
            const RunReport report = RunReport::parse(line);
            const bool in_range =
                report.seed >= options_.first_seed && report.seed <= options_.last_seed &&
                (report.seed - options_.first_seed) % options_.shard_count == options_.shard_index;
            if (report.exit_code == EXIT_HARNESS || !in_range || !done_.insert(report.seed).second)
                continue;
            count(report);
        }
    }

    void start_workers(const std::vector<std::uint64_t>& seeds) {
        for (unsigned j = 0; j < options_.jobs; ++j) {
            std::vector<std::uint64_t> own;
            for (std::size_t i = j; i < seeds.size(); i += options_.jobs)
                own.push_back(seeds[i]);
            if (own.empty()) continue;
            workers_.emplace_back();
            workers_.back().seeds = std::move(own);
            start(workers_.back());
        }
    }

    void start(Worker& worker) {
        std::fflush(nullptr);
        int ends[2];
        if (::pipe(ends) != 0) std::abort();
        const pid_t pid = ::fork();
        if (pid < 0) std::abort();
        if (pid == 0) {
            // A Ctrl-C goes to the whole group: the parent decides.
            std::signal(SIGINT, SIG_IGN);
            std::signal(SIGTERM, SIG_DFL);
            ::close(ends[0]);
            for (const Worker& other : workers_) {
                if (other.pipe >= 0) ::close(other.pipe);
            }
            work(options_, worker.seeds, ends[1]);
        }
        ::close(ends[1]);
        worker.pid = pid;
        worker.pipe = ends[0];
        worker.unread.clear();
        worker.running_seed = 0;
    }

    void stop_workers() {
        for (Worker& worker : workers_) {
            if (worker.pipe >= 0) ::kill(worker.pid, SIGTERM);
        }
        stopped_ = true;
    }

    void pump() {
        std::vector<pollfd> polls;
        std::vector<Worker*> polled;
        for (Worker& worker : workers_) {
            if (worker.pipe < 0) continue;
            polls.push_back({worker.pipe, POLLIN, 0});
            polled.push_back(&worker);
        }
        if (::poll(polls.data(), polls.size(), 1000) < 0) {
            if (errno != EINTR) std::abort();
            return;  // revents were not filled in
        }
        for (std::size_t i = 0; i < polls.size(); ++i) {
            if (polls[i].revents != 0) read_from(*polled[i]);
        }
        show_progress();
    }

    void read_from(Worker& worker) {
        char buffer[2048];
        const ssize_t n = ::read(worker.pipe, buffer, sizeof buffer);
        if (n < 0) return;
        if (n == 0) return ended(worker);
        worker.unread.append(buffer, static_cast<std::size_t>(n));
        std::size_t end = 0;
        while ((end = worker.unread.find('\n')) != std::string::npos) {
            const std::string line = worker.unread.substr(0, end);
            worker.unread.erase(0, end + 1);
            if (line.starts_with("> ")) {
                worker.running_seed = std::strtoull(line.c_str() + 2, nullptr, 10);
                continue;
            }
            worker.running_seed = 0;
            const RunReport report = RunReport::parse(line);
            std::erase(worker.seeds, report.seed);
            finished(report);
        }
    }

    void ended(Worker& worker) {
        ::close(worker.pipe);
        worker.pipe = -1;
        int status = 0;
        ::waitpid(worker.pid, &status, 0);
        const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (clean || stopped_) return;
        RunReport report;
        report.seed = worker.running_seed;
        report.exit_code = EXIT_VIOLATION;
        report.violations.push_back({0,
                                     "a broken promise of our own stops the process",
                                     WIFSIGNALED(status)
                                         ? fmt::format("signal {}", WTERMSIG(status))
                                         : fmt::format("status {}", WEXITSTATUS(status)),
                                     {}});
        finished(report);
        // It died of this seed: another one goes on with the rest.
        if (std::erase(worker.seeds, report.seed) == 0) {
            lost_worker_ = true;
        } else if (!worker.seeds.empty() && failures_ < options_.stop_after_failures) {
            start(worker);
        }
    }

    void finished(const RunReport& report) {
        if (state_.is_open()) state_ << report.line() << '\n' << std::flush;
        count(report);
        ++finished_now_;
        if (report.exit_code == EXIT_CLEAN || report.exit_code == EXIT_VACUOUS) return;
        ++failures_;
        RunOptions run = options_.run;
        run.seed = report.seed;
        const Violation first = report.violations.empty() ? Violation{} : report.violations.front();
        fmt::print("{}seed {}: checker {}: {}: {}\n  {}\n", terminal() ? "\r\033[K" : "",
                   report.seed, first.checker, first.promise, first.seen,
                   reproduce_line(options_.program, run));
        std::fflush(stdout);
        if (!options_.save_failures.empty()) {
            const std::string path = fmt::format("{}/{}.seed", options_.save_failures, report.seed);
            std::ofstream(path) << format_seed_file({first.promise + ": " + first.seen, run});
        }
    }

    void count(const RunReport& report) {
        ++judged_;
        if (report.exit_code == EXIT_VACUOUS) ++vacuous_;
        if (report.exit_code != EXIT_CLEAN && report.exit_code != EXIT_VACUOUS) {
            worst_ = std::max(worst_, report.exit_code);
            const Violation first =
                report.violations.empty() ? Violation{} : report.violations.front();
            ++failures_by_place_[fmt::format("checker {}: {}", first.checker, first.promise)];
        }
        acked_.push_back(report.acked_pubs);
        faults_.push_back(report.fault_count());
        for (const auto& [kind, n] : report.faults) {
            if (n != 0) ++seeds_with_[kind];
            fired_[kind] += n;
        }
        for (const auto& [checker, n] : report.checks)
            checks_[checker] += n;
        for (const auto& [name, n] : report.rare)
            rare_[name] += n;
        simulated_ms_ += report.simulated_ms;
    }

    static bool terminal() { return ::isatty(STDOUT_FILENO) != 0; }

    void show_progress() {
        const auto now = std::chrono::steady_clock::now();
        if (!terminal() && now < next_told_) return;
        next_told_ = now + TELL_EVERY;
        const double elapsed = seconds_since(start_);
        const double rate = elapsed > 0 ? static_cast<double>(finished_now_) / elapsed : 0;
        const double left = rate > 0 ? static_cast<double>(total_ - judged_) / rate : 0;
        const std::string line = fmt::format("{}/{} seeds, {:.1f}/s, {:.0f} s left, {} failed",
                                             judged_, total_, rate, left, failures_);
        if (!terminal()) {
            fmt::print(stderr, "sim: {}\n", line);
            return;
        }
        fmt::print("\r\033[K{}", line);
        std::fflush(stdout);
    }

    static std::uint64_t median(std::vector<std::uint64_t> values) {
        if (values.empty()) return 0;
        std::nth_element(values.begin(),
                         values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                         values.end());
        return values[values.size() / 2];
    }

    int summary() {
        const double elapsed = seconds_since(start_);
        if (terminal()) fmt::print("\r\033[K");
        if (g_signal != 0)
            fmt::print("interrupted: {} of {} seeds were not run\n", total_ - judged_, total_);
        fmt::print("seeds {} in {:.1f} s ({:.1f} a minute, {:.0f} simulated s a s)\n", judged_,
                   elapsed, elapsed > 0 ? 60.0 * static_cast<double>(finished_now_) / elapsed : 0,
                   elapsed > 0 ? static_cast<double>(simulated_ms_) / 1000 / elapsed : 0);
        fmt::print("median acknowledged PUBs {}, median faults {}, vacuous {}\n", median(acked_),
                   median(faults_), vacuous_);
        fmt::print("faults:");
        for (const auto& [kind, n] : fired_) {
            fmt::print(" {} {} (in {:.0f} % of seeds)", kind, n, percent(seeds_with_[kind]));
        }
        fmt::print("\nchecks:");
        for (const auto& [checker, n] : checks_)
            fmt::print(" {}:{}", checker, n);
        fmt::print("\nrare events:");
        for (const auto& [name, n] : rare_)
            fmt::print(" {}:{}", name, n);
        fmt::print("\n");
        for (const auto& [place, n] : failures_by_place_)
            fmt::print("failed {} x {}\n", n, place);
        if (worst_ != EXIT_CLEAN) return worst_;
        if (lost_worker_) return EXIT_HARNESS;
        if (g_signal != 0) return SIGNAL_EXIT_BASE + g_signal;
        const std::vector<std::string> gentle = too_gentle();
        for (const std::string& reason : gentle)
            fmt::print("too gentle: {}\n", reason);
        if (!gentle.empty()) return EXIT_VACUOUS;
        fmt::print("clean\n");
        return EXIT_CLEAN;
    }

    double percent(std::uint64_t n) const {
        return judged_ == 0 ? 0 : 100.0 * static_cast<double>(n) / static_cast<double>(judged_);
    }

    bool is_cluster() const {
        const auto nodes = options_.run.pins.find("nodes");
        return nodes != options_.run.pins.end() && nodes->second > 1;
    }

    std::vector<std::string> too_gentle() {
        std::vector<std::string> reasons;
        if (judged_ < JUDGED_SEEDS_MIN) return reasons;
        if (percent(vacuous_) > (is_cluster() ? 0 : VACUOUS_PERCENT_MAX))
            reasons.push_back(fmt::format("{} vacuous seeds", vacuous_));
        if (median(acked_) < MEDIAN_ACKED_PUBS_MIN)
            reasons.push_back("the median seed acknowledges too few PUBs");
        if (options_.run.nemesis != "none" && median(faults_) < MEDIAN_FAULTS_MIN) {
            reasons.push_back("the median seed has too few faults");
        }
        if (options_.run.nemesis == "swarm") {
            for (const std::string& kind : swarm_families(options_.run)) {
                if (percent(seeds_with_[kind]) < FAMILY_PERCENT_MIN) {
                    reasons.push_back(fmt::format("{} fires in {:.0f} % of the seeds", kind,
                                                  percent(seeds_with_[kind])));
                }
            }
        }
        std::vector<int> expected(std::begin(CHECKERS), std::end(CHECKERS));
        if (is_cluster()) expected.assign(std::begin(CLUSTER_CHECKERS), std::end(CLUSTER_CHECKERS));
        for (const int checker : expected) {
            const bool off = checker == 16 && options_.check_twice_every == 0;
            if (checks_[checker] == 0 && !off)
                reasons.push_back(fmt::format("checker {} judged nothing", checker));
        }
        return reasons;
    }

    const SweepOptions& options_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point next_told_ = start_ + TELL_EVERY;
    std::vector<Worker> workers_;
    std::ofstream state_;
    std::set<std::uint64_t> done_;
    std::uint64_t total_ = 0;
    std::uint64_t judged_ = 0;
    std::uint64_t finished_now_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t vacuous_ = 0;
    std::int64_t simulated_ms_ = 0;
    int worst_ = EXIT_CLEAN;
    bool stopped_ = false;
    bool lost_worker_ = false;
    std::vector<std::uint64_t> acked_;
    std::vector<std::uint64_t> faults_;
    std::map<std::string, std::uint64_t> seeds_with_;
    std::map<std::string, std::uint64_t> fired_;
    std::map<int, std::uint64_t> checks_;
    std::map<std::string, std::uint64_t> rare_;
    std::map<std::string, std::uint64_t> failures_by_place_;
};

}  // namespace

int sweep(const SweepOptions& options) {
    return Sweep(options).run();
}

}  // namespace mortar::sim
