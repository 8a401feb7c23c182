// mortarmq: the command line for people who operate and use a broker. The commands are in tools/cli.
// Source: contract 6.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/wire/messages.h"
#include "tools/cli/cli.h"
#include "tools/cli/format.h"
#include "tools/common/program.h"

namespace {
using namespace mortar::cli;

constexpr const char* EXAMPLES =
    "\nExamples:\n"
    "  mortarmq topics create orders --partitions 4\n"
    "  mortarmq produce orders < lines.txt\n"
    "  mortarmq consume orders --group billing            until Ctrl-C, which acknowledges what "
    "was printed\n"
    "  mortarmq --addr a:7188,b:7188,c:7188 --token-file token topics create events\n"
    "  mortarmq leader get\n"
    "\nEach command has its own --help. Output is tab-separated with fixed columns; --json gives "
    "JSON.\n"
    "Exit codes: 0 done, 2 bad arguments or a file or output that fails, 3 broker unreachable, "
    "4 refused by the broker.\n";

// Behind the examples of every command.
constexpr const char* GLOBAL_OPTIONS_NOTE =
    "\nThe options of mortarmq itself may stand here too: --addr, --admin, --token-file, "
    "--connect-timeout, --json;\n"
    "`mortarmq --help` explains them and the exit codes.\n";

struct Arguments {
    GlobalOptions global;
    TopicsCreate create;
    TopicsDelete remove;
    TopicsList list;
    Produce produce;
    Consume consume;
    Command command;
};

void set_examples(CLI::App* command, const std::string& examples) {
    command->footer("\nExamples:\n" + examples + GLOBAL_OPTIONS_NOTE);
}

// CLI11 reads -1 as the largest number.
std::string check_digits(const std::string& text) {
    const bool is_number =
        !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    return is_number ? std::string() : "not a whole number: " + text;
}

void add_global_options(CLI::App& app, GlobalOptions& global) {
    app.add_option("--addr", global.addresses,
                   "client addresses of brokers of one cluster, HOST:PORT,HOST:PORT; may be given "
                   "several times")
        ->envname("MORTARMQ_ADDR")
        ->allow_extra_args(false)
        ->take_all()
        ->capture_default_str();
    app.add_option("--admin", global.admin,
                   "the admin server of the node that topics list, leader and broker ask; needed "
                   "with --addr")
        ->envname("MORTARMQ_ADMIN")
        ->capture_default_str();
    app.add_option("--token-file", global.token_file, "a file with the client token");
    app.add_option("--connect-timeout", global.connect_timeout_s,
                   "seconds until a broker counts as unreachable")
        ->check(CLI::Range(1u, 3600u))
        ->capture_default_str();
    app.add_flag("--json", global.json, "JSON instead of tab-separated columns");
    app.add_flag_function(
        "--api-version",
        [](std::int64_t) {
            std::printf("%d\n", int{mortar::wire::WIRE_VERSION});
            throw CLI::Success();
        },
        "print the version of the wire protocol and of these columns, exit");
    app.set_version_flag("--version", "mortarmq " MORTAR_VERSION);
}

void add_topics(CLI::App& app, Arguments& arguments) {
    CLI::App* topics = app.add_subcommand("topics", "create, delete and list topics");
    topics->require_subcommand(1);
    set_examples(topics,
                 "  mortarmq topics create orders --partitions 4\n"
                 "  mortarmq topics list\n"
                 "  mortarmq topics delete orders\n");

    CLI::App* create =
        topics->add_subcommand("create", "columns: created, existed or mismatch; topic_id");
    create->add_option("NAME", arguments.create.name, "tokens separated by dots, at most 251 bytes")
        ->required();
    create
        ->add_option("--partitions", arguments.create.partition_count,
                     "1 to 1024; without it the broker's default")
        ->check(CLI::Range(1, 1024));
    create->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return topics_create(fiber, session, arguments.create);
        };
    });
    set_examples(create,
                 "  mortarmq topics create orders\n"
                 "  mortarmq topics create eu.orders --partitions 16\n");

    CLI::App* remove = topics->add_subcommand("delete", "columns: deleted or not_found; topic_id");
    remove
        ->add_option("NAME", arguments.remove.name,
                     "the topic; its messages, dead letters and groups go with it")
        ->required();
    remove->add_flag("--yes", arguments.remove.yes,
                     "do not ask; needed where the standard input is not a terminal");
    remove->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return topics_delete(fiber, session, arguments.remove);
        };
    });
    set_examples(remove,
                 "  mortarmq topics delete orders            asks for the name again\n"
                 "  mortarmq topics delete orders --yes\n");

    CLI::App* list = topics->add_subcommand("list", "columns: name partitions state created_epoch");
    list->add_flag("--all", arguments.list.all, "also the topics of dead letters, NAME.dlq");
    list->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return topics_list(fiber, session, arguments.list);
        };
    });
    set_examples(
        list,
        "  mortarmq topics list                     with a line of headings on a terminal\n"
        "  mortarmq topics list --all --json\n"
        "  mortarmq --admin host:7190 topics list   it is the admin server that is asked\n");
}

void add_produce(CLI::App& app, Arguments& arguments) {
    Produce& produce = arguments.produce;
    CLI::App* command = app.add_subcommand("produce", "publish lines; a summary goes to stderr");
    command->add_option("TOPIC", produce.topic, "an existing topic: see `topics create`")
        ->required();
    command->add_option("FILE", produce.files, "files to read; none or - is the standard input");
    command->add_option("--key-sep", produce.key_separator,
                        "what stands between key and value of a line; a line without it is "
                        "published without a key, and counted");
    command->add_option(
        "--ack-log", produce.ack_log,
        "write a line `partition sequence line_number leader_epoch unix_ms` for each "
        "acknowledged line: who answered it, and when");
    command->add_option("--outstanding", produce.outstanding_max, "messages under way at most")
        ->check(CLI::Range(1u, 65536u))
        ->capture_default_str();
    command
        ->add_option("--timeout", produce.timeout_s,
                     "seconds after which a message counts as failed")
        ->check(CLI::Range(1u, 86400u))
        ->capture_default_str();
    command->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return mortar::cli::produce(fiber, session, arguments.produce);
        };
    });
    set_examples(command,
                 "  mortarmq produce orders < lines.txt\n"
                 "  mortarmq produce users --key-sep : users.txt   key and value of a line stand "
                 "around the first ':'\n"
                 "  tail -F app.log | mortarmq produce logs --ack-log acked\n");
}

void add_consume(CLI::App& app, Arguments& arguments) {
    Consume& consume = arguments.consume;
    CLI::App* command = app.add_subcommand("consume", "print what a group gets");
    command->add_option("TOPIC", consume.topic, "an existing topic: see `topics create`")
        ->required();
    command->add_option("--group", consume.group, "the group to join; made when it is new")
        ->required();
    command->add_option("--count", consume.count, "stop after so many messages; 0 = never")
        ->check(check_digits);
    command
        ->add_option("--timeout", consume.timeout_s,
                     "stop after so many seconds without a message; 0 = never")
        ->check(check_digits);
    command->add_option("--from", consume.from, "where a new group starts")
        ->check(CLI::IsMember({"earliest", "latest"}))
        ->capture_default_str();
    command->add_flag("--no-ack", consume.no_ack,
                      "acknowledge nothing: all that was printed comes again");
    command->add_option("--format", consume.format, std::string(FORMAT_HELP))
        ->capture_default_str();
    command->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return mortar::cli::consume(fiber, session, arguments.consume);
        };
    });
    set_examples(command,
                 "  mortarmq consume orders --group billing\n"
                 "  mortarmq consume orders --group billing --count 10 --format '%p %s %k %v\\n'\n"
                 "  mortarmq consume orders --group audit --timeout 5 --json\n"
                 "\nA message is acknowledged when the standard output has taken it. Ctrl-C "
                 "acknowledges what was printed,\nthen leaves the group.\n");
}

void add_node(CLI::App& app, Arguments& arguments) {
    CLI::App* leader = app.add_subcommand("leader", "who leads the cluster");
    leader->require_subcommand(1);
    CLI::App* get = leader->add_subcommand("get", "columns: leader_id leader_epoch quorum_state");
    get->callback([&arguments] { arguments.command = mortar::cli::leader_get; });
    CLI::App* broker = app.add_subcommand("broker", "how a node is");
    broker->require_subcommand(1);
    CLI::App* status =
        broker->add_subcommand("status", "columns: node_id uptime_s connections version");
    status->callback([&arguments] { arguments.command = mortar::cli::broker_status; });
    for (CLI::App* command : {leader, get}) {
        set_examples(
            command,
            "  mortarmq leader get                      leader_id is - during an election\n"
            "  mortarmq --admin host:7190 leader get    as that node sees it\n"
            "\nquorum_state: 0 healthy, 1 a follower is behind, 2 read-only.\n");
    }
    for (CLI::App* command : {broker, status}) {
        set_examples(command,
                     "  mortarmq broker status\n"
                     "  mortarmq --admin host:7190 broker status --json\n");
    }
}

// The command that the words led to so far.
const CLI::App* deepest_command(const CLI::App& app) {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty())
        command = command->get_subcommands().front();
    return command;
}

// Of the words that belong to nothing the first, with what could stand there; CLI11 names what it misses instead.
std::string explain_word(const CLI::App& app, const std::string& word) {
    const CLI::App* command = deepest_command(app);
    if (word.starts_with("-")) return fmt::format("unknown option {}", word);
    std::string known;
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; })) {
        known += (known.empty() ? "" : ", ") + sub->get_name();
    }
    if (known.empty()) return fmt::format("{} takes no '{}'", command->get_name(), word);
    const std::string owner = command == &app ? "mortarmq" : "mortarmq " + command->get_name();
    return fmt::format("unknown command '{}'; {} knows: {}", word, owner, known);
}

int refuse(const std::string& why) {
    fmt::print(stderr, "mortarmq: {}; --help shows examples\n", why);
    return EXIT_ARGUMENTS;
}

}  // namespace

int main(int argc, char** argv) {
    mortar::open_standard_files();
    Arguments arguments;
    CLI::App app("mortarmq: topics, publishing and consuming from the command line");
    app.footer(EXAMPLES);
    app.require_subcommand(1);
    app.fallthrough();
    add_global_options(app, arguments.global);
    add_topics(app, arguments);
    add_produce(app, arguments);
    add_consume(app, arguments);
    add_node(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const std::vector<std::string> unknown = app.remaining(true);
        if (!unknown.empty()) return refuse(explain_word(app, unknown.front()));
        if (error.get_exit_code() != 0) return refuse(error.what());
        app.exit(error);
        return mortar::finish_output("mortarmq", EXIT_DONE, EXIT_ARGUMENTS);
    }
    arguments.global.admin_is_unknown =
        app.get_option("--addr")->count() > 0 && app.get_option("--admin")->count() == 0;
    return run_command(arguments.global, arguments.command);
}
