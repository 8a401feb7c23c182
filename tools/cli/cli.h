// cli: what the commands of `mortarmq` share: global options, exit codes, the loop they run on, how errors are told.
// Shape:  each command is a function that runs as the only fiber of a fresh loop and returns the exit code.
// Source: contract 6.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/client/link.h"
#include "io-real/loop.h"

namespace mortar::cli {

inline constexpr int EXIT_DONE = 0;
inline constexpr int EXIT_ARGUMENTS = 2;
inline constexpr int EXIT_UNREACHABLE = 3;
inline constexpr int EXIT_REFUSED = 4;

struct GlobalOptions {
    std::vector<std::string> addresses = {"127.0.0.1:7188"};  // host:port, or several with commas
    std::string admin = "127.0.0.1:7190";
    bool admin_is_unknown =
        false;  // addresses were given, admin was not: that of another broker would answer
    std::string token_file;
    bool json = false;
    std::uint32_t connect_timeout_s = 10;
};

// The loop of a command.
struct Session {
    const GlobalOptions& options;
    client::ClientEnv env;
    RealScheduler& loop;
    std::string token;

    client::LinkOptions link_options() const;
    MonoTime connect_deadline() const;
};

using Command = std::function<int(Fiber&, Session&)>;
int run_command(const GlobalOptions& options, const Command& command);

// Says on stderr what happened, to what, and what to do next; returns the exit code that fits.
int report(const Error& error, const std::string& subject = {});
// For a broker that never answered.
int report_unreachable(const Session& session, const Error& error);

struct TopicsCreate {
    std::string name;
    std::uint16_t partition_count = 0;
};
int topics_create(Fiber& fiber, Session& session, const TopicsCreate& arguments);

struct TopicsDelete {
    std::string name;
    bool yes = false;
};
int topics_delete(Fiber& fiber, Session& session, const TopicsDelete& arguments);

struct TopicsList {
    bool all = false;  // also the topics of dead letters
};
int topics_list(Fiber& fiber, Session& session, const TopicsList& arguments);

// columns: leader_id leader_epoch quorum_state
int leader_get(Fiber& fiber, Session& session);
// columns: node_id uptime_s connections version
int broker_status(Fiber& fiber, Session& session);

struct Produce {
    std::string topic;
    std::vector<std::string> files;  // none, or "-": standard input
    std::string key_separator;
    std::string ack_log;
    std::uint32_t outstanding_max = 1024;
    std::uint32_t timeout_s = 120;
};
int produce(Fiber& fiber, Session& session, const Produce& arguments);

struct Consume {
    std::string topic;
    std::string group;
    std::string from = "earliest";
    std::string format = "%v\\n";
    std::uint64_t count = 0;      // 0 = no limit
    std::uint32_t timeout_s = 0;  // without a message; 0 = for ever
    bool no_ack = false;
};
int consume(Fiber& fiber, Session& session, const Consume& arguments);

}  // namespace mortar::cli
