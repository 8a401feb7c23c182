// mortarmq-bench: how fast is it, and compared to what? Arguments and exit codes; each command is a file of its own.
// Source: contract 1, issue 2 (Speed).
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/bench/broker_process.h"
#include "tools/bench/compare.h"
#include "tools/bench/echo_server.h"
#include "tools/bench/load.h"
#include "tools/bench/recovery.h"
#include "tools/bench/workspace.h"
#include "tools/common/program.h"

namespace {

using namespace mortar;
using namespace mortar::bench;

constexpr int EXIT_OK = 0;
constexpr int EXIT_BAR_MISSED = 1;
constexpr int EXIT_ARGUMENTS = 2;
constexpr int EXIT_FAILED = 3;
constexpr Duration START_PATIENCE = seconds(30);

constexpr const char* EXAMPLES =
    "\nExamples:\n"
    "  mortarmq-bench compare --check               the bars: what the broker adds to the disk\n"
    "  mortarmq-bench pub --outstanding 256         a broker of its own, 1 KiB messages\n"
    "  mortarmq-bench pub --addr 127.0.0.1:7188 --connections 8 --json\n"
    "  mortarmq-bench probe --folder /var/lib       the bare disk there\n"
    "  mortarmq-bench recovery --check              does recovery depend on the size of the log?\n"
    "\nExit codes: 0 done, 1 a bar was missed (--check), 2 arguments, 3 it could not be "
    "measured.\n";

struct Arguments {
    std::string folder = ".";
    std::string broker_program = default_broker_program();
    bool json = false;
    bool check = false;
    std::uint64_t seconds = 5;
    std::uint64_t warm_up_ms = 500;
    LoadPlan load;
    CompareOptions compare;
    RecoveryOptions recovery;
};

Result<Report> measure_probe(Workspace& workspace, const Arguments& arguments) {
    const auto probe =
        MORTAR_TRY(DiskProbe::create(workspace.path() + "/probe", arguments.load.value_bytes));
    Measured measured{"probe", {}, {}};
    Histogram ignored;
    MORTAR_TRY(probe->run(milliseconds(static_cast<std::int64_t>(arguments.warm_up_ms)), ignored));
    measured.add(MORTAR_TRY(
        probe->run(seconds(static_cast<std::int64_t>(arguments.seconds)), measured.latency)));
    Report report;
    report.measured.push_back(std::move(measured));
    return report;
}

Result<Report> measure_load(const LoadPlan& plan, const char* name, const Arguments& arguments) {
    const auto load = MORTAR_TRY(Load::open(plan));
    Measured measured{fmt::format("{} {}x{}", name, plan.connections, plan.outstanding), {}, {}};
    Histogram ignored;
    Progress progress;
    progress.show("warming up");
    MORTAR_TRY(load->run(milliseconds(static_cast<std::int64_t>(arguments.warm_up_ms)), ignored));
    for (std::uint64_t second = 1; second <= arguments.seconds; ++second) {
        progress.show(fmt::format("second {} of {}", second, arguments.seconds));
        measured.add(MORTAR_TRY(load->run(seconds(1), measured.latency)));
    }
    Report report;
    report.measured.push_back(std::move(measured));
    return report;
}

Result<Report> measure_echo(Workspace& workspace, const Arguments& arguments) {
    const auto server = MORTAR_TRY(EchoServer::start(workspace.path()));
    LoadPlan plan = arguments.load;
    plan.address = server->address();
    plan.topic.clear();
    return measure_load(plan, "echo", arguments);
}

Result<Report> measure_pub(Workspace& workspace, const Arguments& arguments) {
    if (!arguments.load.address.empty()) return measure_load(arguments.load, "pub", arguments);
    const auto broker =
        MORTAR_TRY(BrokerProcess::start(workspace, arguments.broker_program, "broker"));
    MORTAR_TRY(broker->wait_healthy(START_PATIENCE));
    LoadPlan plan = arguments.load;
    plan.address = broker->client_address();
    return measure_load(plan, "pub", arguments);
}

int print(const Result<Report>& measured, const Arguments& arguments) {
    if (!measured.ok()) {
        std::fprintf(stderr, "mortarmq-bench: %s\n", measured.error().to_string().c_str());
        return EXIT_FAILED;
    }
    const std::string text = arguments.json ? measured->json() : measured->table();
    std::fputs(text.c_str(), stdout);
    return arguments.check && !measured->holds() ? EXIT_BAR_MISSED : EXIT_OK;
}

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

void add_load_options(CLI::App* command, Arguments& arguments) {
    command->add_option("--seconds", arguments.seconds, "how long to measure")
        ->check(CLI::Range(1, 86'400))
        ->capture_default_str();
    command->add_option("--warm-up-ms", arguments.warm_up_ms, "before that, not counted")
        ->check(CLI::Range(0, 60'000))
        ->capture_default_str();
    command->add_option("--value-bytes", arguments.load.value_bytes, "size of a value")
        ->check(CLI::Range(1, 1'048'576))
        ->capture_default_str();
}

void add_shape_options(CLI::App* command, Arguments& arguments) {
    command->add_option("--connections", arguments.load.connections, "connections")
        ->check(CLI::Range(std::size_t{1}, CONNECTIONS_MAX))
        ->capture_default_str();
    command->add_option("--outstanding", arguments.load.outstanding, "PUBs under way on each")
        ->check(CLI::Range(std::size_t{1}, OUTSTANDING_MAX))
        ->capture_default_str();
}

int run(int argc, char** argv) {
    Arguments arguments;
    arguments.load.topic = "bench";
    CLI::App app("mortarmq-bench: load generator and latency report");
    app.footer(EXAMPLES);
    app.set_version_flag("--version", "mortarmq-bench " MORTAR_VERSION);
    app.require_subcommand(1);

    CLI::App* probe = add_command(app, arguments, "probe", "the bare disk: write, fdatasync");
    add_load_options(probe, arguments);
    CLI::App* echo = add_command(app, arguments, "echo", "one synced write an answer, no broker");
    add_load_options(echo, arguments);
    add_shape_options(echo, arguments);
    CLI::App* pub = add_command(app, arguments, "pub", "PUBs to a broker, in a closed loop");
    add_load_options(pub, arguments);
    add_shape_options(pub, arguments);
    add_broker_option(pub, arguments);
    pub->add_option("--addr", arguments.load.address, "a running broker instead of one of our own");
    pub->add_option("--topic", arguments.load.topic, "made with one partition when absent")
        ->capture_default_str();
    pub->add_option("--token", arguments.load.token, "for --addr");

    CLI::App* compare_command =
        add_command(app, arguments, "compare", "echo, pub and probe by turns; the bars");
    add_broker_option(compare_command, arguments);
    compare_command->add_flag("--check", arguments.check, "exit 1 when a bar is missed");
    compare_command->add_option("--rounds", arguments.compare.rounds, "of each kind")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    CLI::App* recovery =
        add_command(app, arguments, "recovery", "kill -9 with a small and a large log");
    add_broker_option(recovery, arguments);
    recovery->add_flag("--check", arguments.check, "exit 1 when a bar is missed");
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
    arguments.compare.broker_program = arguments.broker_program;
    arguments.recovery.broker_program = arguments.broker_program;

    Result<std::unique_ptr<Workspace>> created = Workspace::create(arguments.folder);
    if (!created.ok()) return print(created.error(), arguments);
    Workspace& workspace = **created;
    if (workspace.is_in_memory()) {
        std::fprintf(stderr,
                     "mortarmq-bench: %s lies in memory, syncs cost nothing there: use --folder\n",
                     workspace.path().c_str());
    }
    if (*probe) return print(measure_probe(workspace, arguments), arguments);
    if (*echo) return print(measure_echo(workspace, arguments), arguments);
    if (*pub) return print(measure_pub(workspace, arguments), arguments);
    if (*compare_command) return print(compare(workspace, arguments.compare), arguments);
    return print(compare_recovery(workspace, arguments.recovery), arguments);
}

}  // namespace

int main(int argc, char** argv) {
    mortar::open_standard_files();
    return mortar::finish_output("mortarmq-bench", run(argc, argv), EXIT_FAILED);
}
