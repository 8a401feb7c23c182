// mortarmq-bench: how fast is it, and compared to what? Arguments and exit codes; each command is a file of its own.
// Source: contract 1, issue 2 (Speed), issue 3 (mortarmq-bench).
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "io-real/address.h"
#include "tools/bench/broker_process.h"
#include "tools/bench/catch_up.h"
#include "tools/bench/cluster_speed.h"
#include "tools/bench/compare.h"
#include "tools/bench/consumption.h"
#include "tools/bench/drive.h"
#include "tools/bench/echo_server.h"
#include "tools/bench/load.h"
#include "tools/bench/recovery.h"
#include "tools/bench/schedule.h"
#include "tools/bench/stamp.h"
#include "tools/bench/workspace.h"
#include "tools/common/program.h"

namespace {

using namespace mortar;
using namespace mortar::bench;

constexpr int EXIT_OK = 0;
constexpr int EXIT_BAR_MISSED = 1;
constexpr int EXIT_ARGUMENTS = 2;
constexpr int EXIT_FAILED = 3;
constexpr int EXIT_INTERRUPTED = 130;
constexpr Duration DURATION_MAX = seconds(86'400);

constexpr const char* EXAMPLES =
    "\nExamples:\n"
    "  mortarmq-bench produce --shape 1x256         a broker of its own, 1 KiB messages\n"
    "  mortarmq-bench produce --shape 16x16 --addr 10.0.0.1:7188,10.0.0.2:7188,10.0.0.3:7188 \\\n"
    "                 --admin 127.0.0.1:7190 --duration 30s --json\n"
    "  mortarmq-bench produce --rate 5000 --outstanding 256 --addr 127.0.0.1:7188\n"
    "                                               open loop: latency counts from the schedule\n"
    "  mortarmq-bench produce --nodes 3 --probe 3   three brokers, and the bare disk by turns\n"
    "  mortarmq-bench consume --count 100000 --outstanding 64\n"
    "  mortarmq-bench end-to-end --rate 1000 --outstanding 64 --partitions 4\n"
    "  mortarmq-bench probe --probe 3 --folder /var/lib   the bare disk there, three writers\n"
    "  mortarmq-bench cluster-speed --check         the bars on a cluster, 1,000 idle partitions\n"
    "  mortarmq-bench catch-up --check --size 1024  a follower comes back after 1 GiB of writes\n"
    "  mortarmq-bench compare --check               the bars on one node: what it adds to the "
    "disk\n"
    "  mortarmq-bench recovery --check              does recovery depend on the size of the log?\n"
    "\nDurations: 500ms, 30s, 5m; a bare number is seconds.\n"
    "Exit codes: 0 done, 1 a bar was missed (--check), 2 arguments, 3 it could not be "
    "measured.\n";

struct Arguments {
    std::string folder = ".";
    std::string broker_program = default_broker_program();
    bool json = false;
    bool check = false;
    std::string duration = "5s";
    std::string warm_up = "500ms";
    std::string shape;
    std::string token_file;
    DriveOptions drive;
    CompareOptions compare;
    RecoveryOptions recovery;
    ClusterSpeedOptions cluster_speed;
    CatchUpOptions catch_up;
};

// Empty when it is none.
std::optional<Duration> parse_duration(const std::string& text) {
    std::int64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0 || number > DURATION_MAX.to_ms()) return std::nullopt;
    const std::string unit(rest, text.data() + text.size());
    Duration duration;
    if (unit == "ms") {
        duration = milliseconds(number);
    } else if (unit.empty() || unit == "s") {
        duration = seconds(number);
    } else if (unit == "m") {
        duration = seconds(number * 60);
    } else {
        return std::nullopt;
    }
    return duration <= DURATION_MAX ? std::optional(duration) : std::nullopt;
}

CLI::Validator is_duration(Duration min) {
    return CLI::Validator(
        [min](const std::string& text) {
            const std::optional<Duration> duration = parse_duration(text);
            if (!duration.has_value())
                return "not a duration of at most a day: " + text + " (such as 500ms, 30s, 5m)";
            return *duration < min ? "too short: " + text : std::string();
        },
        "DURATION");
}

// --- the small commands

Result<Report> measure_probe(Workspace& workspace, const DriveOptions& options) {
    const auto probe = MORTAR_TRY(
        DiskProbes::create(workspace.path() + "/probe",
                           std::max<std::size_t>(options.probe_writers, 1), options.value_bytes));
    Measured measured{fmt::format("probe, {} writers", probe->count()), {}, {}};
    if (probe->count() == 1) measured.name = "probe";
    Histogram ignored;
    Progress progress;
    progress.show("probing the disk");
    MORTAR_TRY(probe->run(options.warm_up, ignored));
    measured.add(MORTAR_TRY(probe->run(options.duration, measured.latency)));
    Report report;
    report.measured.push_back(std::move(measured));
    return report;
}

Result<Report> measure_echo(Workspace& workspace, const DriveOptions& options) {
    const auto server = MORTAR_TRY(EchoServer::start(workspace.path()));
    LoadPlan plan;
    plan.addresses = {server->address()};
    plan.connections = options.connections;
    plan.outstanding = options.outstanding;
    plan.value_bytes = options.value_bytes;
    const auto load = MORTAR_TRY(Load::open(plan));
    Measured measured{fmt::format("echo {}x{}", plan.connections, plan.outstanding), {}, {}};
    Histogram ignored;
    Progress progress;
    progress.show("asking the echo server");
    MORTAR_TRY(load->run(options.warm_up, ignored));
    measured.add(MORTAR_TRY(load->run(options.duration, measured.latency)));
    Report report;
    report.measured.push_back(std::move(measured));
    return report;
}

int print(const Result<Report>& measured, const Arguments& arguments) {
    if (!measured.ok()) {
        std::fprintf(stderr, "mortarmq-bench: %s\n", measured.error().to_string().c_str());
        return measured.is(ErrorCode::CANCELLED) ? EXIT_INTERRUPTED : EXIT_FAILED;
    }
    const std::string text = arguments.json ? measured->json() : measured->table();
    std::fputs(text.c_str(), stdout);
    return arguments.check && !measured->holds() ? EXIT_BAR_MISSED : EXIT_OK;
}

// --- arguments

CLI::App* add_command(CLI::App& app, Arguments& arguments, const char* name, const char* what) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_flag("--json", arguments.json, "JSON instead of a table");
    command
        ->add_option("--folder", arguments.folder,
                     "where a temporary folder is made: this file system is measured")
        ->capture_default_str();
    return command;
}

void add_broker_option(CLI::App* command, Arguments& arguments) {
    command->add_option("--broker", arguments.broker_program, "the mortarmqd to start")
        ->capture_default_str();
}

void add_check_option(CLI::App* command, Arguments& arguments) {
    command->add_flag("--check", arguments.check, "exit 1 when a bar is missed");
}

void add_size_option(CLI::App* command, Arguments& arguments) {
    command->add_option("--size", arguments.drive.value_bytes, "bytes of a value")
        ->check(CLI::Range(1, 1'048'576))
        ->capture_default_str();
}

void add_time_options(CLI::App* command, Arguments& arguments) {
    command->add_option("--duration", arguments.duration, "how long to measure")
        ->check(is_duration(milliseconds(1)))
        ->capture_default_str();
    command->add_option("--warm-up", arguments.warm_up, "before that, not counted")
        ->check(is_duration({}))
        ->capture_default_str();
}

void add_connections_option(CLI::App* command, Arguments& arguments) {
    command->add_option("--connections", arguments.drive.connections, "connections that produce")
        ->check(CLI::Range(std::size_t{1}, CONNECTIONS_MAX))
        ->capture_default_str();
}

void add_outstanding_option(CLI::App* command, Arguments& arguments) {
    command
        ->add_option("--outstanding", arguments.drive.outstanding, "under way on each connection")
        ->check(CLI::Range(std::size_t{1}, OUTSTANDING_MAX))
        ->capture_default_str();
}

void add_probe_option(CLI::App* command, Arguments& arguments, const char* what) {
    command->add_option("--probe", arguments.drive.probe_writers, what)
        ->check(CLI::Range(std::size_t{1}, PROBE_WRITERS_MAX));
}

void add_cluster_options(CLI::App* command, Arguments& arguments) {
    CLI::Option* addresses =
        command
            ->add_option("--addr", arguments.drive.cluster.addresses,
                         "a running cluster, HOST:PORT of one or more nodes; else a broker of our "
                         "own is started")
            ->delimiter(',');
    command
        ->add_option("--admin", arguments.drive.cluster.admin_addresses,
                     "its admin servers, by number: tells syncs a second")
        ->delimiter(',')
        ->needs(addresses);
    command->add_option("--token-file", arguments.token_file, "for --addr")->needs(addresses);
    command->add_option("--nodes", arguments.drive.node_count, "brokers of our own: 1 or 3")
        ->check(CLI::IsMember({1, 3}))
        ->excludes(addresses)
        ->capture_default_str();
    command
        ->add_option("--topic", arguments.drive.topic,
                     "made when absent, and then deleted at the end")
        ->capture_default_str();
    command->add_flag("--keep", arguments.drive.keep, "leave a topic that was made");
    command->add_option("--count", arguments.drive.count, "end after so many messages");
    add_broker_option(command, arguments);
}

void add_partitions_option(CLI::App* command, Arguments& arguments) {
    command->add_option("--partitions", arguments.drive.partitions, "of the topic")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
}

void add_produce_options(CLI::App* command, Arguments& arguments) {
    add_connections_option(command, arguments);
    add_outstanding_option(command, arguments);
    add_partitions_option(command, arguments);
    add_size_option(command, arguments);
    command
        ->add_option("--rate", arguments.drive.per_second,
                     "messages a second on a fixed schedule, of all connections together; each "
                     "latency counts from it; without: a closed loop")
        ->check(CLI::Range(std::uint64_t{1}, RATE_MAX));
    command
        ->add_option("--shape", arguments.shape,
                     "1x1, 1x256 (on one partition) or 16x16 (on sixteen) instead of "
                     "--connections, --outstanding and --partitions")
        ->check(CLI::IsMember({SHAPES[0].name, SHAPES[1].name, SHAPES[2].name}))
        ->excludes("--connections")
        ->excludes("--outstanding")
        ->excludes("--partitions");
}

void add_consumers_option(CLI::App* command, Arguments& arguments, const char* name) {
    command->add_option(name, arguments.drive.consumers, "members of the group that consumes")
        ->check(CLI::Range(std::size_t{1}, CONSUMERS_MAX))
        ->capture_default_str();
}

void apply_shape(Arguments& arguments) {
    for (const Shape& shape : SHAPES) {
        if (arguments.shape != shape.name) continue;
        arguments.drive.connections = shape.connections;
        arguments.drive.outstanding = shape.outstanding;
        arguments.drive.partitions = shape.partitions;
    }
}

// The reason when what was given does not go together.
std::string apply(Arguments& arguments) {
    arguments.drive.duration = *parse_duration(arguments.duration);
    arguments.catch_up.duration = arguments.drive.duration;
    arguments.drive.warm_up = *parse_duration(arguments.warm_up);
    apply_shape(arguments);
    if (arguments.drive.mode == DriveMode::END_TO_END &&
        arguments.drive.value_bytes < STAMP_BYTES) {
        return fmt::format("--size: at least {}, each message carries its time", STAMP_BYTES);
    }
    for (const std::string& address : arguments.drive.cluster.addresses) {
        const Result<HostPort> parsed = parse_host_port(address);
        if (!parsed.ok()) return "--addr " + address + ": " + parsed.error().detail;
    }
    if (!arguments.token_file.empty()) {
        constexpr std::size_t LINE_END_BYTES = 2;
        Result<std::string> token =
            read_text_file(arguments.token_file, wire::MAX_TOKEN_LEN + LINE_END_BYTES);
        if (!token.ok()) return "--token-file: " + token.error().detail;
        while (!token->empty() && (token->back() == '\n' || token->back() == '\r'))
            token->pop_back();
        arguments.drive.cluster.token = std::move(*token);
    }
    arguments.drive.broker_program = arguments.broker_program;
    arguments.compare.broker_program = arguments.broker_program;
    arguments.recovery.broker_program = arguments.broker_program;
    arguments.cluster_speed.broker_program = arguments.broker_program;
    arguments.catch_up.broker_program = arguments.broker_program;
    arguments.cluster_speed.value_bytes = arguments.drive.value_bytes;
    return {};
}

int run(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("mortarmq-bench: load generator and latency report");
    app.footer(EXAMPLES);
    app.set_version_flag("--version", "mortarmq-bench " MORTAR_VERSION);
    app.require_subcommand(1);

    CLI::App* produce = add_command(app, arguments, "produce", "PUBs, one after the other or many");
    add_produce_options(produce, arguments);
    add_time_options(produce, arguments);
    add_cluster_options(produce, arguments);
    add_probe_option(produce, arguments,
                     "so many writers of the bare disk by turns with the load, for their ratio");
    CLI::App* consume = add_command(app, arguments, "consume",
                                    "a group that takes messages and acknowledges each; a topic "
                                    "that is absent is filled first");
    add_consumers_option(consume, arguments, "--connections");
    add_outstanding_option(consume, arguments);
    add_partitions_option(consume, arguments);
    add_size_option(consume, arguments);
    add_time_options(consume, arguments);
    add_cluster_options(consume, arguments);
    CLI::App* end_to_end = add_command(app, arguments, "end-to-end", "produce and consume at once");
    add_consumers_option(end_to_end, arguments, "--consumers");
    add_produce_options(end_to_end, arguments);
    add_time_options(end_to_end, arguments);
    add_cluster_options(end_to_end, arguments);

    CLI::App* probe = add_command(app, arguments, "probe", "the bare disk: write, fdatasync");
    add_size_option(probe, arguments);
    add_time_options(probe, arguments);
    add_probe_option(probe, arguments, "writers at once, each with a file of its own");
    CLI::App* echo = add_command(app, arguments, "echo", "one synced write an answer, no broker");
    add_connections_option(echo, arguments);
    add_outstanding_option(echo, arguments);
    add_size_option(echo, arguments);
    add_time_options(echo, arguments);

    CLI::App* speed = add_command(app, arguments, "cluster-speed",
                                  "brokers of our own and the disk by turns; the bars");
    add_broker_option(speed, arguments);
    add_check_option(speed, arguments);
    add_size_option(speed, arguments);
    speed->add_option("--nodes", arguments.cluster_speed.node_count, "1 or 3")
        ->check(CLI::IsMember({1, 3}))
        ->capture_default_str();
    speed->add_option("--rounds", arguments.cluster_speed.rounds, "in each of four phases")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    speed
        ->add_option("--idle-partitions", arguments.cluster_speed.idle_partitions,
                     "in every other phase; 0: no such phases")
        ->check(CLI::Range(std::size_t{0}, IDLE_PARTITIONS_MAX))
        ->capture_default_str();
    CLI::App* catch_up_command = add_command(
        app, arguments, "catch-up", "kill -9 a follower, write on, start it again; the bars");
    add_broker_option(catch_up_command, arguments);
    add_check_option(catch_up_command, arguments);
    catch_up_command
        ->add_option("--size", arguments.catch_up.size_mib, "MiB written while it is away")
        ->check(CLI::Range(std::size_t{1}, CATCH_UP_MIB_MAX))
        ->capture_default_str();
    catch_up_command
        ->add_option("--duration", arguments.duration,
                     "how long the rate without faults is measured")
        ->check(is_duration(milliseconds(1)))
        ->capture_default_str();
    CLI::App* compare_command =
        add_command(app, arguments, "compare", "echo, pub and probe by turns; the bars");
    add_broker_option(compare_command, arguments);
    add_check_option(compare_command, arguments);
    compare_command->add_option("--rounds", arguments.compare.rounds, "of each kind")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    CLI::App* recovery =
        add_command(app, arguments, "recovery", "kill -9 with a small and a large log");
    add_broker_option(recovery, arguments);
    add_check_option(recovery, arguments);
    recovery->add_option("--small-mib", arguments.recovery.small_mib, "size of the small log")
        ->check(CLI::Range(1, 1'048'576))
        ->capture_default_str();
    recovery->add_option("--large-mib", arguments.recovery.large_mib, "size of the large log")
        ->check(CLI::Range(1, 1'048'576))
        ->capture_default_str();
    recovery->add_option("--restarts", arguments.recovery.restarts, "of each; the median counts")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? EXIT_OK : EXIT_ARGUMENTS;
    }
    if (*consume) arguments.drive.mode = DriveMode::CONSUME;
    if (*end_to_end) arguments.drive.mode = DriveMode::END_TO_END;
    if (const std::string problem = apply(arguments); !problem.empty()) {
        std::fprintf(stderr, "mortarmq-bench: %s\n", problem.c_str());
        return EXIT_ARGUMENTS;
    }

    Result<std::unique_ptr<Workspace>> created = Workspace::create(arguments.folder);
    if (!created.ok()) return print(created.error(), arguments);
    Workspace& workspace = **created;
    const bool uses_disk = arguments.drive.cluster.addresses.empty();
    if (uses_disk && workspace.is_in_memory()) {
        std::fprintf(stderr,
                     "mortarmq-bench: %s lies in memory, syncs cost nothing there: use --folder\n",
                     workspace.path().c_str());
    }
    if (*produce || *consume || *end_to_end)
        return print(drive(workspace, arguments.drive), arguments);
    if (*probe) return print(measure_probe(workspace, arguments.drive), arguments);
    if (*echo) return print(measure_echo(workspace, arguments.drive), arguments);
    if (*speed) return print(cluster_speed(workspace, arguments.cluster_speed), arguments);
    if (*catch_up_command) return print(catch_up(workspace, arguments.catch_up), arguments);
    if (*compare_command) return print(compare(workspace, arguments.compare), arguments);
    return print(compare_recovery(workspace, arguments.recovery), arguments);
}

}  // namespace

int main(int argc, char** argv) {
    mortar::open_standard_files();
    return mortar::finish_output("mortarmq-bench", run(argc, argv), EXIT_FAILED);
}
