#include "core/admin/stats.h"

#include <string_view>

#include "core/admin/http_request.h"
#include "core/base/json.h"
#include "core/meta/metadata_format.h"

namespace mortar {
namespace {
constexpr int OK = 200;
constexpr int BAD_REQUEST = 400;
constexpr int NOT_FOUND = 404;
constexpr int METHOD_NOT_ALLOWED = 405;
constexpr int UNAVAILABLE = 503;

AdminAnswer refuse(int status, const std::string& text) {
    return {status, error_json(text)};
}

std::string_view health_name(HealthStatus health) {
    switch (health) {
        case HealthStatus::HEALTHY:
            return "healthy";
        case HealthStatus::SOFT:
            return "soft";
        case HealthStatus::READ_ONLY:
            return "read_only";
        case HealthStatus::ELECTING:
            return "electing";
        case HealthStatus::RECOVERING:
            return "recovering";
        case HealthStatus::QUARANTINED:
            return "quarantined";
    }
    MORTAR_UNREACHABLE();
}

std::string_view group_state_name(GroupState state) {
    switch (state) {
        case GroupState::EMPTY:
            return "empty";
        case GroupState::REBALANCING:
            return "rebalancing";
        case GroupState::STABLE:
            return "stable";
    }
    MORTAR_UNREACHABLE();
}

std::string_view state_name(bool is_quarantined) {
    return is_quarantined ? "quarantined" : "active";
}

// --- healthz

AdminAnswer answer_health(const AdminState& state, const HttpTarget& target) {
    bool is_live_probe = false;
    for (const auto& [name, value] : target.query) {
        if (name != "probe" || value != "live") return refuse(BAD_REQUEST, "only probe=live");
        is_live_probe = true;
    }
    const NodeStatus node = state.node_status();
    AdminAnswer answer;
    JsonWriter writer(answer.body);
    writer.begin_object().key("status").string(health_name(node.health));
    if (node.health == HealthStatus::RECOVERING) {
        writer.key("recovered")
            .number(node.recovered_count)
            .key("total")
            .number(node.recovering_count);
    }
    writer.end_object();
    const bool serves = node.health == HealthStatus::HEALTHY || node.health == HealthStatus::SOFT;
    answer.status = serves || is_live_probe ? OK : UNAVAILABLE;
    return answer;
}

// --- stats

struct Query {
    std::string filter;
    std::string value;
    std::size_t limit = STATS_LIMIT_DEFAULT;
    std::uint64_t after = 0;
};

// The reason when it is no good.
std::optional<std::string> read_query(const HttpTarget& target, Query& query) {
    for (const auto& [name, value] : target.query) {
        if (name == "limit") {
            const auto number = parse_number_between(value, "", "");
            if (!number.has_value() || *number == 0 || *number > STATS_LIMIT_MAX)
                return "limit is 1..1000";
            query.limit = static_cast<std::size_t>(*number);
        } else if (name == "after") {
            const auto number = parse_number_between(value, "", "");
            if (!number.has_value() || *number > 0xFFFF) return "after is an id, 0..65535";
            query.after = *number;
        } else if (name == "topic" || name == "group" || name == "partition" || name == "node") {
            if (!query.filter.empty()) return "only one of topic, group, partition, node";
            if (value.empty()) return name + " is empty";
            query.filter = name;
            query.value = value;
        } else {
            return "unknown parameter: " + name.substr(0, 64);
        }
    }
    if (query.filter.empty())
        return "a filter is needed: topic=NAME, group=NAME, partition=TOPIC/INDEX or node=self";
    return std::nullopt;
}

void write_partition(JsonWriter& writer, const PartitionStatus& partition) {
    writer.begin_object();
    writer.key("partition").number(partition.partition.value);
    writer.key("last_seq").number(partition.last_seq.value);
    writer.key("commit_seq").number(partition.commit_seq.value);
    writer.key("depth").number(partition.depth);
    writer.key("write_count").number(partition.write_count);
    writer.key("sync_count").number(partition.sync_count);
    writer.key("state").string(state_name(partition.is_quarantined));
    writer.end_object();
}

// Fields of the topic into an open object.
void write_topic(JsonWriter& writer, const TopicStatus& topic) {
    writer.key("topic").string(topic.name);
    writer.key("topic_id").number(topic.topic_id.value);
    writer.key("partitions").number(topic.partition_count);
    writer.key("state").string(state_name(topic.is_quarantined));
    writer.key("created_epoch").number(topic.created_epoch.value);
}

void write_group(JsonWriter& writer, const GroupStatus& group) {
    writer.key("group").string(group.name);
    writer.key("group_id").number(group.group_id.value);
    writer.key("topic").string(group.topic_name);
    writer.key("lag").number(group.lag);
    writer.key("state").string(group_state_name(group.state));
    writer.key("membership_epoch").number(group.membership_epoch.value);
    writer.key("assignment_epoch").number(group.assignment_epoch.value);
    writer.key("members").begin_array();
    for (const MemberId member_id : group.members)
        writer.number(member_id.value);
    writer.end_array();
}

void write_group_partition(JsonWriter& writer, const GroupPartitionStatus& partition) {
    writer.begin_object();
    writer.key("partition").number(partition.partition.value);
    writer.key("owner").number(partition.owner.value);
    writer.key("ownership_epoch").number(partition.ownership_epoch.value);
    writer.key("ack_floor").number(partition.ack_floor.value);
    writer.key("lag").number(partition.lag);
    writer.key("in_flight").number(partition.in_flight);
    writer.key("parked").number(partition.parked);
    writer.key("state").string(partition.is_served ? "active" : "unserved");
    writer.end_object();
}

AdminAnswer answer_topics(const AdminState& state, const Query& query) {
    AdminAnswer answer;
    JsonWriter writer(answer.body);
    writer.begin_object().key("topics").begin_array();
    if (query.value != "*") {
        const std::optional<TopicStatus> topic = state.topic(query.value);
        if (!topic.has_value()) return refuse(NOT_FOUND, "no topic of that name");
        writer.begin_object();
        write_topic(writer, *topic);
        writer.key("partition_list").begin_array();
        for (const PartitionStatus& partition : topic->partitions)
            write_partition(writer, partition);
        writer.end_array().end_object().end_array().end_object();
        return answer;
    }
    // One more than asked for tells whether there is a next page.
    const TopicId after(static_cast<std::uint16_t>(query.after));
    std::vector<TopicStatus> topics = state.topics(after, query.limit + 1);
    const bool has_more = topics.size() > query.limit;
    if (has_more) topics.resize(query.limit);
    for (const TopicStatus& topic : topics) {
        writer.begin_object();
        write_topic(writer, topic);
        writer.end_object();
    }
    writer.end_array();
    if (has_more) writer.key("next_after").number(topics.back().topic_id.value);
    writer.end_object();
    return answer;
}

AdminAnswer answer_groups(const AdminState& state, const Query& query) {
    AdminAnswer answer;
    JsonWriter writer(answer.body);
    writer.begin_object().key("groups").begin_array();
    if (query.value != "*") {
        const std::optional<GroupStatus> group = state.group(query.value);
        if (!group.has_value()) return refuse(NOT_FOUND, "no group of that name");
        writer.begin_object();
        write_group(writer, *group);
        writer.key("partition_list").begin_array();
        for (const GroupPartitionStatus& partition : group->partitions) {
            write_group_partition(writer, partition);
        }
        writer.end_array().end_object().end_array().end_object();
        return answer;
    }
    const GroupId after(static_cast<std::uint16_t>(query.after));
    std::vector<GroupStatus> groups = state.groups(after, query.limit + 1);
    const bool has_more = groups.size() > query.limit;
    if (has_more) groups.resize(query.limit);
    for (const GroupStatus& group : groups) {
        writer.begin_object();
        write_group(writer, group);
        writer.end_object();
    }
    writer.end_array();
    if (has_more) writer.key("next_after").number(groups.back().group_id.value);
    writer.end_object();
    return answer;
}

AdminAnswer answer_partition(const AdminState& state, const Query& query) {
    const std::size_t slash = query.value.rfind('/');
    const auto index =
        slash == std::string::npos
            ? std::nullopt
            : parse_number_between(std::string_view(query.value).substr(slash + 1), "", "");
    if (!index.has_value()) return refuse(BAD_REQUEST, "partition is TOPIC/INDEX");
    const std::optional<TopicStatus> topic = state.topic(query.value.substr(0, slash));
    if (!topic.has_value()) return refuse(NOT_FOUND, "no topic of that name");
    for (const PartitionStatus& partition : topic->partitions) {
        if (partition.partition.value != *index) continue;
        AdminAnswer answer;
        JsonWriter writer(answer.body);
        writer.begin_object();
        write_topic(writer, *topic);
        writer.key("partition_list").begin_array();
        write_partition(writer, partition);
        writer.end_array().end_object();
        return answer;
    }
    return refuse(NOT_FOUND,
                  "the topic has " + std::to_string(topic->partition_count) + " partitions");
}

AdminAnswer answer_node(const AdminState& state, const Query& query) {
    const NodeStatus node = state.node_status();
    if (query.value != "self" && query.value != std::to_string(node.node_id.value)) {
        return refuse(NOT_FOUND, "this is node " + std::to_string(node.node_id.value) +
                                     "; ask that node itself");
    }
    constexpr std::uint64_t MS_PER_S = 1000;
    AdminAnswer answer;
    JsonWriter writer(answer.body);
    writer.begin_object().key("node").begin_object();
    writer.key("node_id").number(node.node_id.value);
    writer.key("uptime_s").number(node.uptime_ms / MS_PER_S);
    writer.key("connections").number(node.connection_count);
    writer.key("version").string(node.version);
    writer.key("leader_id");
    if (node.leader_id) {
        writer.number(node.leader_id->value);
    } else {
        writer.value(JsonValue{});
    }
    writer.key("leader_epoch").number(node.leader_epoch.value);
    writer.key("quorum_state").number(node.quorum_state);
    writer.key("status").string(health_name(node.health));
    writer.key("unserved_group_partitions").number(node.unserved_count);
    writer.key("role").string(node.role);
    writer.key("trouble").string(node.trouble ? node.trouble->to_string() : std::string());
    writer.key("trouble_code");
    if (node.trouble) {
        writer.number(static_cast<std::uint16_t>(node.trouble->code));
    } else {
        writer.value(JsonValue{});
    }
    writer.key("followers").begin_array();
    for (const NodeStatus::Follower& follower : node.followers) {
        writer.begin_object().key("node_id").number(follower.node_id.value);
        writer.key("is_connected").boolean(follower.is_connected);
        writer.key("is_installed").boolean(follower.is_installed);
        writer.key("is_in_sync").boolean(follower.is_in_sync);
        writer.key("lag_records").number(follower.lag_records).end_object();
    }
    writer.end_array();
    writer.key("producers_held_to_bytes_per_second");
    if (node.producers_held_to > 0) {
        writer.number(node.producers_held_to);
    } else {
        writer.value(JsonValue{});
    }
    writer.key("scrub").begin_object();
    writer.key("records").number(node.scrubbed_record_count);
    writer.key("bytes").number(node.scrubbed_bytes);
    writer.key("walks").number(node.scrub_walk_count);
    writer.key("damaged_logs").number(node.damaged_count);
    writer.key("repaired_logs").number(node.repaired_count).end_object();
    writer.end_object().end_object();
    return answer;
}

AdminAnswer answer_stats(const AdminState& state, const HttpTarget& target) {
    Query query;
    if (const auto problem = read_query(target, query)) return refuse(BAD_REQUEST, *problem);
    if (query.filter == "topic") return answer_topics(state, query);
    if (query.filter == "group") return answer_groups(state, query);
    if (query.filter == "partition") return answer_partition(state, query);
    return answer_node(state, query);
}
}  // namespace

std::string error_json(const std::string& text) {
    std::string body;
    JsonWriter(body).begin_object().key("error").string(text).end_object();
    return body;
}

AdminAnswer answer_admin(const AdminState& state, const std::string& method,
                         const std::string& target) {
    if (method != "GET" && method != "HEAD") return refuse(METHOD_NOT_ALLOWED, "only GET and HEAD");
    const std::optional<HttpTarget> parsed = parse_http_target(target);
    if (!parsed.has_value()) return refuse(BAD_REQUEST, "the target is not a path");
    if (parsed->path == "/healthz") return answer_health(state, *parsed);
    if (parsed->path == "/stats") return answer_stats(state, *parsed);
    return refuse(NOT_FOUND, "there is /healthz and /stats");
}

}  // namespace mortar
