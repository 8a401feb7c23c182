// topics: create, delete and list. Creating and deleting go over the wire, listing asks the admin server.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "core/client/admin.h"
#include "tools/cli/admin_stats.h"
#include "tools/cli/connection_notes.h"

namespace mortar::cli {

namespace {
using nlohmann::ordered_json;

constexpr int LIST_PAGE = 1000;
// Only topics of dead letters may end so.
constexpr std::string_view DEAD_LETTER_SUFFIX = ".dlq";

// A connected link, closed at the end of its scope's one call.
template <class Body>
int with_link(Fiber& fiber, Session& session, const Body& body) {
    client::Link link(session.env, session.link_options());
    ConnectionNotes notes(session, link);
    link.start();
    notes.start();
    const Result<void> up = link.wait_up(fiber, session.connect_deadline());
    const int exit_code = up.ok() ? body(link) : report_unreachable(session, up.error());
    notes.stop(fiber);
    link.close(fiber);
    return exit_code;
}

void print_result(const Session& session, const std::string& result, std::uint16_t topic_id) {
    if (session.options.json) {
        fmt::print("{}\n", ordered_json({{"result", result}, {"topic_id", topic_id}}).dump());
    } else {
        fmt::print("{}\t{}\n", result, topic_id);
    }
}

}  // namespace

int topics_create(Fiber& fiber, Session& session, const TopicsCreate& arguments) {
    return with_link(fiber, session, [&](client::Link& link) {
        const MonoTime deadline = session.connect_deadline();
        Result<client::TopicInfo> created = client::create_topic(
            fiber, session.env, link, arguments.name, arguments.partition_count, deadline);
        if (created.ok()) {
            print_result(session, created->existed ? "existed" : "created",
                         created->topic_id.value);
            return EXIT_DONE;
        }
        if (created.is(ErrorCode::TOPIC_EXISTS_MISMATCH)) {
            Result<client::TopicInfo> found =
                client::lookup_topic(fiber, session.env, link, arguments.name, deadline);
            if (found.ok()) print_result(session, "mismatch", found->topic_id.value);
        }
        return report(created.error());
    });
}

int topics_delete(Fiber& fiber, Session& session, const TopicsDelete& arguments) {
    if (!arguments.yes && isatty(STDIN_FILENO) != 1) {
        fmt::print(stderr,
                   "mortarmq: nothing was deleted: nobody can be asked, the standard input is not "
                   "a terminal: give --yes\n");
        return EXIT_ARGUMENTS;
    }
    fmt::print(stderr,
               "deletes {0} with all its messages, its dead letters ({0}.dlq) and its groups\n",
               arguments.name);
    if (!arguments.yes) {
        fmt::print(stderr, "type the name again to delete it: ");
        std::string typed;
        std::getline(std::cin, typed);
        if (typed != arguments.name) {
            fmt::print(stderr, "mortarmq: not deleted\n");
            return EXIT_ARGUMENTS;
        }
    }
    return with_link(fiber, session, [&](client::Link& link) {
        Result<client::TopicInfo> deleted = client::delete_topic(
            fiber, session.env, link, arguments.name, session.connect_deadline());
        if (deleted.ok()) {
            print_result(session, "deleted", deleted->topic_id.value);
            return EXIT_DONE;
        }
        if (!deleted.is(ErrorCode::UNKNOWN_TOPIC)) return report(deleted.error());
        print_result(session, "not_found", 0);
        return EXIT_REFUSED;
    });
}

int topics_list(Fiber& fiber, Session& session, const TopicsList& arguments) {
    ordered_json all = ordered_json::array();
    std::uint64_t after = 0;
    while (true) {
        const auto answer = admin_stats(
            fiber, session, fmt::format("topic=*&limit={}&after={}", LIST_PAGE, after), "topics");
        if (const int* exit_code = std::get_if<int>(&answer); exit_code != nullptr)
            return *exit_code;
        const ordered_json& page = std::get<ordered_json>(answer);
        for (const ordered_json& topic : page["topics"]) {
            const std::string name = topic.value("topic", "");
            if (name.ends_with(DEAD_LETTER_SUFFIX) && !arguments.all) continue;
            all.push_back({{"name", name},
                           {"partitions", topic.value("partitions", 0)},
                           {"state", topic.value("state", "")},
                           {"created_epoch", topic.value("created_epoch", std::uint64_t{0})}});
        }
        if (!page.contains("next_after")) break;
        after = page["next_after"].get<std::uint64_t>();
    }
    if (session.options.json) {
        fmt::print("{}\n", all.dump());
        return EXIT_DONE;
    }
    if (isatty(STDOUT_FILENO) == 1) fmt::print("name\tpartitions\tstate\tcreated_epoch\n");
    for (const ordered_json& topic : all) {
        fmt::print("{}\t{}\t{}\t{}\n", topic["name"].get<std::string>(),
                   topic["partitions"].get<int>(), topic["state"].get<std::string>(),
                   topic["created_epoch"].get<std::uint64_t>());
    }
    return EXIT_DONE;
}

}  // namespace mortar::cli
