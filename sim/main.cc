// sim: the deterministic simulator's command line.
#include <fmt/format.h>

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "io-sim/stack_pool.h"
#include "sim/crashpoints.h"
#include "sim/params.h"
#include "sim/run.h"
#include "sim/say.h"
#include "sim/seed_file.h"
#include "sim/sweep.h"

namespace mortar::sim {
namespace {

constexpr const char* EXAMPLES = R"(
exit codes: 0 clean, 1 violation, 2 bad arguments, 3 vacuous, 4 non-determinism, 5 harness fault or lost output;
  a sweep that SIGINT or SIGTERM ends prints its summary and ends with 130 or 143, or with 1 when a seed had failed

examples:
  sim --seed 7 --nemesis kill,power,torn     one run
  sim --seed 7 --log                         the same with the log lines of broker and clients
  sim --seed 7 --set partitions=1            one drawn parameter pinned
  sim replay seeds/*.seed                    frozen seeds
  sim sweep --seeds 1..1000 --jobs 2         many seeds
  sim sweep --seeds 1..20000 --shard 1/4 --state sweep.txt
  sim crashpoints                            a scripted scenario, crashed at every disk operation
  sim crashpoints --nodes 3 --every 20       three brokers: with an election and a catch-up
  sim hashes --seeds 1..20                   a line "seed trace_hash" each, to compare builds
  sim list                                   nemeses, checkers, parameters
)";

constexpr std::size_t SEED_FILE_BYTES_MAX = 1 << 20;
constexpr int HEAP_KEPT_BYTES = 512 << 20;
constexpr int HEAP_GROWTH_BYTES = 16 << 20;

void print_counts(const char* title, const std::map<std::string, std::uint64_t>& counts) {
    say("{}:", title);
    for (const auto& [name, count] : counts)
        say(" {}={}", name, count);
    say("\n");
}

void print_report(const std::string& program, const RunOptions& options, const RunReport& report,
                  double real_seconds) {
    say("seed {}  build {}  trace {:016x}\n", report.seed, MORTAR_VERSION, report.trace_hash);
    print_counts("parameters", report.parameters);
    print_counts("faults", report.faults);
    print_counts("rare events", report.rare);
    say("checks:");
    for (const auto& [checker, count] : report.checks)
        say(" {}:{}", checker, count);
    say("\n{} PUBs acknowledged, {} messages settled, {} steps, {:.1f} simulated s in {:.3f} s "
        "({:.0f} x)\n",
        report.acked_pubs, report.acked_messages, report.steps,
        static_cast<double>(report.simulated_ms) / 1000, real_seconds,
        static_cast<double>(report.simulated_ms) / 1000 / real_seconds);
    for (const Violation& violation : report.violations) {
        say("VIOLATION  checker {} at {} us\n  promised: {}\n  seen:     {}\n", violation.checker,
            (violation.time - MonoTime{}).to_us(), violation.promise, violation.seen);
    }
    if (!report.violations.empty()) say("{}", report.story);
    static constexpr const char* VERDICTS[] = {"clean",
                                               "VIOLATION",
                                               "arguments",
                                               "vacuous: nothing was acknowledged or checked",
                                               "NOT DETERMINISTIC",
                                               "HARNESS FAULT"};
    say("{}\nrepeat: {}\n", VERDICTS[report.exit_code], reproduce_line(program, options));
}

int run_once(const std::string& program, const RunOptions& options, bool twice) {
    HeapStackPool stacks;
    const auto start = std::chrono::steady_clock::now();
    RunReport report = run_seed(options, stacks);
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (twice) {
        const RunReport again = run_seed(options, stacks);
        if (again.trace_hash != report.trace_hash) {
            report.exit_code = EXIT_NON_DETERMINISM;
            report.violations.push_back(
                {16,
                 "one seed gives one trace hash",
                 fmt::format("the second run gave {:016x}", again.trace_hash),
                 {}});
        }
    }
    print_report(program, options, report, elapsed);
    return report.exit_code;
}

Result<std::string> read_text(const std::string& path) {
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed)) {
        return make_error(ErrorCode::INVALID_ARGUMENT, path + " is a directory: give its files");
    }
    std::ifstream in(path);
    std::string text(SEED_FILE_BYTES_MAX + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!in.eof()) {
        return make_error(ErrorCode::INVALID_ARGUMENT,
                          in.fail() ? "cannot read " + path : path + " is no seed file: too long");
    }
    text.resize(static_cast<std::size_t>(in.gcount()));
    return text;
}

int replay(const std::string& program, const std::vector<std::string>& paths) {
    HeapStackPool stacks;
    int worst = EXIT_CLEAN;
    for (const std::string& path : paths) {
        const Result<std::string> text = read_text(path);
        if (!text.ok()) {
            fmt::print(stderr, "sim: {}\n", text.error().detail);
            return EXIT_ARGUMENTS;
        }
        const Result<SeedFile> file = parse_seed_file(path, *text);
        if (!file.ok()) {
            fmt::print(stderr, "sim: {}\n", file.error().detail);
            return EXIT_ARGUMENTS;
        }
        RunReport report = run_seed(file->options, stacks);
        const RunReport again = run_seed(file->options, stacks);
        if (again.trace_hash != report.trace_hash) report.exit_code = EXIT_NON_DETERMINISM;
        say("{} {:016x} exit {}\n", path, report.trace_hash, report.exit_code);
        if (report.exit_code != EXIT_CLEAN) {
            print_report(program, file->options, report, 1);
            worst = std::max(worst, report.exit_code);
        }
    }
    return worst;
}

// For scripts that compare runs of different processes and builds.
int hashes(const RunOptions& options, std::uint64_t first_seed, std::uint64_t last_seed) {
    HeapStackPool stacks;
    int worst = EXIT_CLEAN;
    for (std::uint64_t i = 0; i <= last_seed - first_seed; ++i) {
        RunOptions run = options;
        run.seed = first_seed + i;
        const RunReport report = run_seed(run, stacks);
        say("{} {:016x}\n", run.seed, report.trace_hash);
        worst = std::max(worst, report.exit_code);
    }
    return worst;
}

int list() {
    say("nemeses:\n");
    for (const auto& [name, meaning] : nemesis_help())
        say("  {:<24} {}\n", name, meaning);
    say("checkers:\n");
    for (const auto& [number, promise] : checker_help())
        say("  {:<24} {}\n", number, promise);
    say("parameters (pin one with --set name=value):\n");
    for (const auto& [name, meaning] : parameter_help())
        say("  {:<24} {}\n", name, meaning);
    return EXIT_CLEAN;
}

// "1..1000"
bool parse_range(const std::string& text, std::uint64_t& first, std::uint64_t& last) {
    const std::size_t dots = text.find("..");
    if (dots == std::string::npos) return false;
    const auto low = parse_number(std::string_view(text).substr(0, dots));
    const auto high = parse_number(std::string_view(text).substr(dots + 2));
    if (!low || !high || *low > *high || *high - *low >= SWEEP_SEEDS_MAX) return false;
    first = *low;
    last = *high;
    return true;
}

// "1/4": the first of four
bool parse_shard(const std::string& text, SweepOptions& options) {
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) return false;
    const auto index = parse_number(std::string_view(text).substr(0, slash));
    const auto count = parse_number(std::string_view(text).substr(slash + 1));
    if (!index || !count || *index < 1 || *index > *count) return false;
    options.shard_index = *index - 1;
    options.shard_count = *count;
    return true;
}

Result<void> parse_pins(const std::vector<std::string>& texts, RunOptions& options) {
    for (const std::string& text : texts) {
        const std::size_t equals = text.find('=');
        const auto value = equals == std::string::npos
                               ? std::nullopt
                               : parse_number(std::string_view(text).substr(equals + 1));
        if (!value) {
            return make_error(ErrorCode::INVALID_ARGUMENT,
                              "'" + text + "' is not name=number with a name from sim list");
        }
        MORTAR_TRY(Params::check_pin(text.substr(0, equals), *value));
        options.pins[text.substr(0, equals)] = *value;
    }
    return {};
}

// Each run builds a world and takes it down. Given back to the system every time, its pages would be faulted in again:
// half of the time of a run, measured.
void keep_memory() {
    ::mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_BYTES);
    ::mallopt(M_TOP_PAD, HEAP_GROWTH_BYTES);
}

int main_with(int argc, char** argv) {
    keep_memory();
    CLI::App app{
        "sim: seeded simulated brokers with kill -9, power loss, torn writes, resets and pauses"};
    app.footer(EXAMPLES);
    app.set_version_flag("--version", "sim " MORTAR_VERSION);
    RunOptions run;
    bool twice = false;
    std::vector<std::string> pins;
    // CLI11 reads -1 as the largest number.
    const auto check_number = [](const std::string& text) {
        return parse_number(text) ? std::string() : "not a number from 0 to 2^64 - 1: " + text;
    };
    std::string seed = "1";
    app.add_option("--seed", seed, "the seed that decides everything")
        ->check(check_number)
        ->capture_default_str();
    app.add_option("--nemesis", run.nemesis,
                   "families joined by commas (see sim list), all, swarm, or none");
    app.add_option("--set", pins, "pin a drawn parameter: name=value (see sim list)");
    app.add_flag("--log", run.log, "print the log lines of all nodes");
    app.add_flag("--twice", twice, "run twice and compare the trace hashes");

    SweepOptions sweeping;
    sweeping.jobs = std::max(1u, std::thread::hardware_concurrency());
    std::string seeds = "1..1000";
    std::string shard = "1/1";
    CLI::App* sweep_app = app.add_subcommand("sweep", "run many seeds");
    sweep_app->add_option("--seeds", seeds, "A..B, both included")->capture_default_str();
    sweep_app->add_option("--jobs", sweeping.jobs, "worker processes (default: all processors)")
        ->check(CLI::Range(1, 256));
    sweep_app->add_option("--shard", shard, "i/n: the i-th of n parts")->capture_default_str();
    sweep_app->add_option("--state", sweeping.state_file,
                          "file of finished seeds; given again, the sweep resumes");
    sweep_app->add_option("--save-failures", sweeping.save_failures,
                          "folder for a .seed file a failure, made if need be");
    sweep_app
        ->add_option("--stop-after", sweeping.stop_after_failures, "failures that end the sweep")
        ->check(check_number);
    sweep_app
        ->add_option("--twice-every", sweeping.check_twice_every,
                     "each n-th seed is run twice; 0 = never")
        ->check(check_number);
    sweep_app->add_option("--nemesis", run.nemesis, "as for one run");
    sweep_app->add_option("--set", pins, "as for one run");

    CrashpointOptions crash;
    CLI::App* crash_app =
        app.add_subcommand("crashpoints", "crash a scripted scenario at every disk operation");
    crash_app
        ->add_option(
            "--nodes", crash.nodes,
            "brokers of the scenario: 1, or 3 with an election and a follower that catches "
            "up, each of them crashed in turn")
        ->check(CLI::IsMember({1, 3}))
        ->capture_default_str();
    crash_app
        ->add_option("--images", crash.images_per_point,
                     "distinct power-loss images tried at a point")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    crash_app->add_option("--every", crash.every, "take only each n-th operation")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    crash_app->add_option(
        "--drop-sync", crash.drop_sync,
        "take out the sync calls of this site (see --list-syncs); must then fail");
    crash.jobs = sweeping.jobs;
    crash_app->add_option("--jobs", crash.jobs, "worker processes (default: all processors)")
        ->check(CLI::Range(1, 256));
    crash_app->add_flag("--list-syncs", crash.list_syncs, "print the sync sites of the scenario");
    crash_app->add_flag("--prove", crash.prove,
                        "take out each sync site in turn; each must make it fail");

    std::vector<std::string> paths;
    CLI::App* replay_app = app.add_subcommand("replay", "run frozen .seed files, each twice");
    replay_app->add_option("files", paths, ".seed files")->required();
    CLI::App* hashes_app = app.add_subcommand("hashes", "print the trace hash of each seed");
    hashes_app->add_option("--seeds", seeds, "A..B, both included")->capture_default_str();
    hashes_app->add_option("--nemesis", run.nemesis, "as for one run");
    hashes_app->add_option("--set", pins, "as for one run");
    CLI::App* list_app = app.add_subcommand("list", "explain nemeses, checkers and parameters");
    app.require_subcommand(0, 1);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? EXIT_CLEAN : EXIT_ARGUMENTS;
    }
    if (!known_nemeses(run.nemesis)) {
        fmt::print(stderr, "sim: unknown nemesis in '{}'; see sim list\n", run.nemesis);
        return EXIT_ARGUMENTS;
    }
    run.seed = parse_number(seed).value();
    const Result<void> pinned = parse_pins(pins, run);
    if (!pinned.ok()) {
        fmt::print(stderr, "sim: --set: {}\n", pinned.error().detail);
        return EXIT_ARGUMENTS;
    }
    if (*list_app) return list();
    if (*replay_app) return replay(argv[0], paths);
    if (*crash_app) return crashpoints(crash);
    if (*hashes_app) {
        std::uint64_t first_seed = 0;
        std::uint64_t last_seed = 0;
        if (!parse_range(seeds, first_seed, last_seed)) {
            fmt::print(stderr, "sim: --seeds takes A..B with A <= B, at most {} of them\n",
                       SWEEP_SEEDS_MAX);
            return EXIT_ARGUMENTS;
        }
        return hashes(run, first_seed, last_seed);
    }
    if (*sweep_app) {
        sweeping.run = run;
        sweeping.program = argv[0];
        if (!parse_range(seeds, sweeping.first_seed, sweeping.last_seed) ||
            !parse_shard(shard, sweeping)) {
            fmt::print(stderr,
                       "sim: --seeds takes A..B with A <= B, at most {} of them, --shard i/n with "
                       "1 <= i <= n\n",
                       SWEEP_SEEDS_MAX);
            return EXIT_ARGUMENTS;
        }
        std::error_code failed;
        if (!sweeping.save_failures.empty())
            std::filesystem::create_directories(sweeping.save_failures, failed);
        if (failed) {
            fmt::print(stderr, "sim: cannot make the folder {}: {}\n", sweeping.save_failures,
                       failed.message());
            return EXIT_ARGUMENTS;
        }
        return sweep(sweeping);
    }
    return run_once(argv[0], run, twice);
}

}  // namespace
}  // namespace mortar::sim

int main(int argc, char** argv) {
    const int exit_code = mortar::sim::main_with(argc, argv);
    const bool was_lost = std::ferror(stdout) != 0;
    if (std::fflush(stdout) == 0 && !was_lost) return exit_code;
    fmt::print(stderr, "sim: cannot write to the standard output\n");
    return mortar::sim::EXIT_HARNESS;
}
