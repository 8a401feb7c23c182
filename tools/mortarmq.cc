// mortarmq: the command line for people who operate and use a broker. The commands are in tools/cli.
// Source: contract 6.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/wire/messages.h"
#include "tools/cli/cli.h"

namespace {
using namespace mortar::cli;

constexpr const char* EXAMPLES =
    "\nExamples:\n"
    "  mortarmq topics create orders --partitions 4\n"
    "  mortarmq topics list\n"
    "  mortarmq produce orders < lines.txt\n"
    "  mortarmq produce orders --key-sep : users.txt      key and value of a line stand around the "
    "first ':'\n"
    "  mortarmq consume orders --group billing            until Ctrl-C, which acknowledges what "
    "was printed\n"
    "  mortarmq consume orders --group billing --count 10 --format '%p %s %k %v\\n'\n"
    "  mortarmq --addr a:7188 --addr b:7188 --token-file token topics create events\n"
    "\nOutput is tab-separated with fixed columns; --json gives JSON. Exit codes: 0 done, 2 bad "
    "arguments,\n"
    "3 broker unreachable, 4 refused by the broker.\n";

struct Arguments {
    GlobalOptions global;
    TopicsCreate create;
    TopicsDelete remove;
    Produce produce;
    Consume consume;
    Command command;
};

void add_global_options(CLI::App& app, GlobalOptions& global) {
    app.add_option("--addr", global.addresses,
                   "a broker's client address; may be given several times")
        ->envname("MORTARMQ_ADDR")
        ->allow_extra_args(false)
        ->take_all()
        ->capture_default_str();
    app.add_option("--admin", global.admin, "the admin server's address")->capture_default_str();
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

    CLI::App* remove = topics->add_subcommand("delete", "columns: deleted or not_found; topic_id");
    remove->add_option("NAME", arguments.remove.name)->required();
    remove->add_flag("--yes", arguments.remove.yes, "do not ask");
    remove->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return topics_delete(fiber, session, arguments.remove);
        };
    });

    CLI::App* list = topics->add_subcommand("list", "columns: name partitions state created_epoch");
    list->callback([&arguments] { arguments.command = topics_list; });
}

void add_produce(CLI::App& app, Arguments& arguments) {
    Produce& produce = arguments.produce;
    CLI::App* command = app.add_subcommand("produce", "publish lines; a summary goes to stderr");
    command->add_option("TOPIC", produce.topic)->required();
    command->add_option("FILE", produce.files, "files to read; none or - is the standard input");
    command->add_option("--key-sep", produce.key_separator,
                        "what stands between key and value of a line");
    command->add_option("--ack-log", produce.ack_log,
                        "write a line `partition sequence line_number` for each acknowledged line");
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
}

void add_consume(CLI::App& app, Arguments& arguments) {
    Consume& consume = arguments.consume;
    CLI::App* command = app.add_subcommand("consume", "print what a group gets");
    command->add_option("TOPIC", consume.topic)->required();
    command->add_option("--group", consume.group, "the group to join; made when it is new")
        ->required();
    command->add_option("--count", consume.count, "stop after so many messages");
    command->add_option("--timeout", consume.timeout_s,
                        "stop after so many seconds without a message");
    command->add_option("--from", consume.from, "where a new group starts")
        ->check(CLI::IsMember({"earliest", "latest"}))
        ->capture_default_str();
    command->add_flag("--no-ack", consume.no_ack,
                      "acknowledge nothing: all that was printed comes again");
    command
        ->add_option("--format", consume.format,
                     "%t topic, %p partition, %s sequence, %a attempt, %k key, %v value, \\n, \\t")
        ->capture_default_str();
    command->callback([&arguments] {
        arguments.command = [&](mortar::Fiber& fiber, Session& session) {
            return mortar::cli::consume(fiber, session, arguments.consume);
        };
    });
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("mortarmq: topics, publishing and consuming from the command line");
    app.footer(EXAMPLES);
    app.require_subcommand(1);
    app.fallthrough();
    add_global_options(app, arguments.global);
    add_topics(app, arguments);
    add_produce(app, arguments);
    add_consume(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? EXIT_DONE : EXIT_ARGUMENTS;
    }
    return run_command(arguments.global, arguments.command);
}
