#include "tools/bench/cluster.h"

#include <fmt/format.h>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/fiber/deadline.h"
#include "io-real/real_env.h"
#include "tools/bench/http.h"

namespace mortar::bench {
namespace {

constexpr Duration CONNECT_PATIENCE = seconds(5);
// A busy disk may take long over a thousand partitions that come or go; until then the broker says "outcome unknown".
constexpr Duration PATIENCE = seconds(120);
constexpr int HTTP_OK = 200;

template <class T>
using Request = std::function<Result<T>(Fiber&, const client::ClientEnv&, client::Link&, MonoTime)>;

template <class T>
Result<T> ask(const Cluster& cluster, const Request<T>& request) {
    RealEnvOptions options;
    options.log_level = LogLevel::ERROR;
    const std::unique_ptr<RealEnv> real = MORTAR_TRY(RealEnv::create(options));
    const client::ClientEnv env = client::client_env(real->env());
    std::optional<Result<T>> answer;
    real->scheduler().spawn("bench.ask", [&](Fiber& fiber) {
        client::LinkOptions link_options;
        link_options.addresses = cluster.addresses;
        link_options.token = cluster.token;
        client::Link link(env, link_options);
        link.start();
        Result<void> up = link.wait_up(fiber, deadline_after(env.clock, CONNECT_PATIENCE));
        if (up.ok()) {
            answer.emplace(request(fiber, env, link, deadline_after(env.clock, PATIENCE)));
        } else {
            answer.emplace(std::move(up).error());
        }
        link.close(fiber);
        real->scheduler().stop();
    });
    real->run();
    real->shutdown();
    MORTAR_ASSERT(answer.has_value());
    return std::move(*answer);
}

std::string percent_encoded(const std::string& text) {
    std::string encoded;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        encoded += std::isalnum(byte) != 0 ? std::string(1, c) : fmt::format("%{:02x}", byte);
    }
    return encoded;
}

Result<nlohmann::json> get_json(const std::string& address, const std::string& target) {
    const cli::HttpAnswer answer = MORTAR_TRY(http_get(address, target));
    nlohmann::json parsed = nlohmann::json::parse(answer.body, nullptr, false);
    if (answer.status != HTTP_OK || !parsed.is_object()) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          fmt::format("{}{}: {} {}", address, target, answer.status, answer.body));
    }
    return parsed;
}

// Who leads, and what its admin server says of the node.
struct FoundLeader {
    std::string admin_address;
    nlohmann::json node;
};

Result<FoundLeader> find_leader(const Cluster& cluster) {
    for (const std::string& address : cluster.admin_addresses) {
        const Result<nlohmann::json> stats = get_json(address, "/stats?node=self");
        if (!stats.ok()) continue;
        nlohmann::json node = stats->value("node", nlohmann::json::object());
        const nlohmann::json leader_id = node.value("leader_id", nlohmann::json());
        if (leader_id.is_number() && node.value("node_id", nlohmann::json()) == leader_id)
            return FoundLeader{address, std::move(node)};
    }
    return make_error(ErrorCode::NOT_FOUND, "none of the admin servers belongs to the leader");
}

}  // namespace

Result<client::TopicInfo> find_topic(const Cluster& cluster, const std::string& name) {
    return ask<client::TopicInfo>(
        cluster, [&](Fiber& fiber, const auto& env, client::Link& link, MonoTime deadline) {
            return client::lookup_topic(fiber, env, link, name, deadline);
        });
}

Result<client::TopicInfo> declare_topic(const Cluster& cluster, const std::string& name,
                                        std::uint16_t partition_count) {
    return ask<client::TopicInfo>(
        cluster, [&](Fiber& fiber, const auto& env, client::Link& link, MonoTime deadline) {
            return client::create_topic(fiber, env, link, name, partition_count, deadline);
        });
}

Result<void> drop_topic(const Cluster& cluster, const std::string& name) {
    return ask<void>(
        cluster,
        [&](Fiber& fiber, const auto& env, client::Link& link, MonoTime deadline) -> Result<void> {
            MORTAR_TRY(client::delete_topic(fiber, env, link, name, deadline));
            return {};
        });
}

Result<void> drop_group(const Cluster& cluster, const std::string& name) {
    return ask<void>(cluster,
                     [&](Fiber& fiber, const auto& env, client::Link& link, MonoTime deadline) {
                         return client::delete_group(fiber, env, link, name, deadline);
                     });
}

Result<LeaderView> ask_leader(const Cluster& cluster) {
    const nlohmann::json node = MORTAR_TRY(find_leader(cluster)).node;
    LeaderView view;
    view.leader_id = NodeId(node.value("leader_id", std::uint16_t{0}));
    if (const auto held = node.find("producers_held_to_bytes_per_second");
        held != node.end() && held->is_number())
        view.producers_held_to = held->get<std::uint64_t>();
    for (const nlohmann::json& one : node.value("followers", nlohmann::json::array())) {
        LeaderView::Follower follower;
        follower.node_id = NodeId(one.value("node_id", std::uint16_t{0}));
        follower.is_in_sync = one.value("is_in_sync", false);
        follower.lag_records = one.value("lag_records", std::uint64_t{0});
        view.followers.push_back(follower);
    }
    return view;
}

Result<LogCounts> count_log(const Cluster& cluster, const std::string& topic) {
    const std::string address = MORTAR_TRY(find_leader(cluster)).admin_address;
    const nlohmann::json found =
        MORTAR_TRY(get_json(address, "/stats?topic=" + percent_encoded(topic)));
    LogCounts counts;
    for (const nlohmann::json& one : found.value("topics", nlohmann::json::array())) {
        for (const nlohmann::json& partition :
             one.value("partition_list", nlohmann::json::array())) {
            counts.writes += partition.value("write_count", std::uint64_t{0});
            counts.syncs += partition.value("sync_count", std::uint64_t{0});
        }
    }
    return counts;
}

}  // namespace mortar::bench
