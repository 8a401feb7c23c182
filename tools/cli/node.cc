// node: who leads, and how the node at --admin is. Both ask its admin server.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

#include "tools/cli/admin_stats.h"

namespace mortar::cli {

namespace {
using nlohmann::ordered_json;

// What a node does not know, as the leader during an election, is null in JSON and - in a column.
std::string as_column(const ordered_json& value) {
    if (value.is_null()) return "-";
    return value.is_string() ? value.get<std::string>() : value.dump();
}

int print_node(Fiber& fiber, Session& session, std::initializer_list<const char*> columns) {
    const auto answer = admin_stats(fiber, session, "node=self", "node");
    if (const int* exit_code = std::get_if<int>(&answer); exit_code != nullptr) return *exit_code;
    const ordered_json& node = std::get<ordered_json>(answer).at("node");
    ordered_json row;
    std::string heading;
    std::string line;
    for (const char* column : columns) {
        row[column] = node.contains(column) ? node.at(column) : ordered_json();
        if (!line.empty()) {
            heading += '\t';
            line += '\t';
        }
        heading += column;
        line += as_column(row[column]);
    }
    // Not a column: those are frozen. Why there is no leader, with its number in the registry (0x600b, 0x600c).
    const bool has_leader = node.contains("leader_id") && !node.at("leader_id").is_null();
    const std::string trouble = has_leader ? std::string() : node.value("trouble", std::string());
    if (!trouble.empty()) {
        const int code = node.value("trouble_code", ordered_json(0)).get<int>();
        fmt::print(stderr, "mortarmq: no leader was elected: {:#06x} {}\n", code, trouble);
    }
    if (session.options.json) {
        if (!trouble.empty()) row["trouble"] = trouble;
        if (!trouble.empty()) row["trouble_code"] = node.at("trouble_code");
        fmt::print("{}\n", row.dump());
        return EXIT_DONE;
    }
    if (isatty(STDOUT_FILENO) == 1) fmt::print("{}\n", heading);
    fmt::print("{}\n", line);
    return EXIT_DONE;
}

}  // namespace

int leader_get(Fiber& fiber, Session& session) {
    return print_node(fiber, session, {"leader_id", "leader_epoch", "quorum_state"});
}

int broker_status(Fiber& fiber, Session& session) {
    return print_node(fiber, session, {"node_id", "uptime_s", "connections", "version"});
}

}  // namespace mortar::cli
