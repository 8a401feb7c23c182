// stats: what /healthz and /stats say, as JSON, of the state that the broker shows.
// Shape:    AdminState is the broker's side: plain values, copied at the moment of the call. answer_admin is a pure
//           function of it and the request.
//           /stats takes exactly one filter: topic=NAME or *, group=NAME or *, partition=TOPIC/INDEX, node=self. Lists are
//           in order of ids; limit=1..1000 (default 100), after=ID of the page before; next_after is there when more follows.
// Source:   contract 5 (healthz, stats), contract 6 (columns of topics list, groups list, broker status, leader get).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace mortar {

inline constexpr std::size_t STATS_LIMIT_DEFAULT = 100;
inline constexpr std::size_t STATS_LIMIT_MAX = 1000;

enum class HealthStatus : std::uint8_t {
    HEALTHY,
    SOFT,
    READ_ONLY,
    ELECTING,
    RECOVERING,
    QUARANTINED
};

struct NodeStatus {
    NodeId node_id;
    std::uint64_t uptime_ms = 0;
    std::uint64_t connection_count = 0;
    std::string version;
    std::optional<NodeId> leader_id;  // nothing while none is known
    LeaderEpoch leader_epoch;
    std::uint8_t quorum_state = 0;  // contract 5
    std::string role;               // follower, candidate, leader
    std::optional<Error> trouble;   // why the latest election did not give a leader
    struct Follower {
        NodeId node_id;
        bool is_connected = false;
        bool is_installed = false;
        bool is_in_sync = false;
        std::uint64_t lag_records = 0;
    };
    std::vector<Follower> followers;  // of a leader
    // Producers are held to it while a follower catches up; 0: they are not.
    std::uint64_t producers_held_to = 0;
    // Read by the scrub in this life, and what any read found damaged: logs, and those that are whole again.
    std::uint64_t scrubbed_record_count = 0;
    std::uint64_t scrubbed_bytes = 0;
    std::uint64_t scrub_walk_count = 0;
    std::uint64_t damaged_count = 0;
    std::uint64_t repaired_count = 0;
    HealthStatus health = HealthStatus::HEALTHY;
    // While RECOVERING: partitions opened, of how many.
    std::uint64_t recovered_count = 0;
    std::uint64_t recovering_count = 0;
    // Partitions not served to some group, since its delivery ledger cannot be read or written.
    std::uint64_t unserved_count = 0;
};

struct PartitionStatus {
    PartitionIndex partition;
    Sequence last_seq;
    Sequence commit_seq;
    std::uint64_t depth = 0;
    // Of its log on this node, since it was opened: batches written, and those synced.
    std::uint64_t write_count = 0;
    std::uint64_t sync_count = 0;
    bool is_quarantined = false;
};

struct TopicStatus {
    TopicId topic_id;
    std::string name;
    std::uint16_t partition_count = 0;
    LeaderEpoch created_epoch;
    bool is_quarantined = false;              // any of its partitions
    std::vector<PartitionStatus> partitions;  // only when one topic was asked for
};

enum class GroupState : std::uint8_t { EMPTY, REBALANCING, STABLE };

struct GroupPartitionStatus {
    PartitionIndex partition;
    MemberId owner;  // 0 = nobody
    OwnershipEpoch ownership_epoch;
    Sequence ack_floor;
    std::uint64_t lag = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t parked = 0;
    bool is_served = true;  // else its delivery ledger cannot be read or written
};

struct GroupStatus {
    GroupId group_id;
    std::string name;
    std::string topic_name;
    GroupState state = GroupState::EMPTY;
    std::uint64_t lag = 0;  // of the partition with the largest
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
    std::vector<MemberId> members;
    std::vector<GroupPartitionStatus> partitions;  // only when one group was asked for
};

class AdminState {
  public:
    virtual ~AdminState() = default;
    virtual NodeStatus node_status() const = 0;
    // With partitions.
    virtual std::optional<TopicStatus> topic(const std::string& name) const = 0;
    // Those with a higher id than after, ascending, at most limit; twins too. Without partitions.
    virtual std::vector<TopicStatus> topics(TopicId after, std::size_t limit) const = 0;
    virtual std::optional<GroupStatus> group(const std::string& name) const = 0;
    virtual std::vector<GroupStatus> groups(GroupId after, std::size_t limit) const = 0;
};

struct AdminAnswer {
    int status = 200;
    std::string body;  // JSON
};
// method is GET or HEAD, or refused with 405; the body of a HEAD is for its length.
AdminAnswer answer_admin(const AdminState& state, const std::string& method,
                         const std::string& target);
// {"error": text}
std::string error_json(const std::string& text);

}  // namespace mortar
