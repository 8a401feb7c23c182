// cluster: what a run does with a cluster besides its load: topics come and go, the leader's logs are counted.
// Shape:    each call connects anew, by the client library, which finds the leader.
// Errors:   the client library's, the broker's; TIMED_OUT: after 5 s without a connection, two minutes without an answer.
// Source:   contract T1..T4, 5 (stats).
#pragma once

#include <string>
#include <vector>

#include "core/client/admin.h"

namespace mortar::bench {

struct Cluster {
    std::vector<std::string> addresses;
    std::vector<std::string> admin_addresses;  // may be empty: then nothing can be counted
    std::string token;
};

Result<client::TopicInfo> find_topic(const Cluster& cluster, const std::string& name);
Result<client::TopicInfo> declare_topic(const Cluster& cluster, const std::string& name,
                                        std::uint16_t partition_count);
Result<void> drop_topic(const Cluster& cluster, const std::string& name);
Result<void> drop_group(const Cluster& cluster, const std::string& name);

// Of the logs of a topic's partitions on the node that leads: batches written and synced since they were opened.
struct LogCounts {
    std::uint64_t writes = 0;
    std::uint64_t syncs = 0;
};
// What the leader says of itself and its followers.
struct LeaderView {
    struct Follower {
        NodeId node_id;
        bool is_in_sync = false;
        std::uint64_t lag_records = 0;
    };
    NodeId leader_id;
    std::vector<Follower> followers;
    std::uint64_t producers_held_to = 0;  // bytes a second; 0: not held back
};
// NOT_FOUND when none of the admin servers belongs to the leader.
Result<LeaderView> ask_leader(const Cluster& cluster);
// The same.
Result<LogCounts> count_log(const Cluster& cluster, const std::string& topic);

}  // namespace mortar::bench
