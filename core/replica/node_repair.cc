// Damaged logs of a node that leads or follows: the third part of node.h.
#include <utility>
#include <vector>

#include "core/replica/node.h"

namespace mortar {
namespace {

// Says nothing of the copies: the reconciling as a whole is tried again.
bool is_of_the_moment(ErrorCode code) {
    return code == ErrorCode::CANCELLED || code == ErrorCode::STALE_LEADER_EPOCH ||
           code == ErrorCode::CONNECTION_CLOSED || code == ErrorCode::TIMED_OUT ||
           code == ErrorCode::LOG_CLOSED;
}

}  // namespace

// By the caretaker, again and again until it succeeds.
Result<void> ReplicaNode::repair_log(Fiber& fiber, PartitionKey key) {
    if (leader_ != nullptr) return repair_as_leader(fiber, key);
    if (!follower_.follows(store_.promised_epoch()))
        return make_error(ErrorCode::STALE_LEADER_EPOCH, "no leader to have it from");
    if (aside_.contains(key)) return make_aside_level(fiber, key);
    // What this node holds of it it held when it was installed, and got since: the leader's copy has all of it.
    MORTAR_TRY(repair_from(fiber, key, store_.promised_to(), store_.promised_epoch()));
    return caretaker_.note_whole(fiber, key);
}

// A follower that is installed in this term holds a beginning of this node's log.
Result<void> ReplicaNode::repair_as_leader(Fiber& fiber, PartitionKey key) {
    const LeaderEpoch leader_epoch = leader_->term().leader_epoch;
    std::vector<NodeId> holders;
    for (const FollowerStatus& follower : leader_->followers()) {
        if (follower.is_installed) holders.push_back(follower.node_id);
    }
    Result<void> made =
        make_error(ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH, "no follower is installed");
    for (const NodeId node : holders) {
        made = repair_from(fiber, key, node, leader_epoch);
        if (made.ok() || made.is(ErrorCode::CANCELLED)) break;
    }
    MORTAR_TRY(made);
    return caretaker_.note_whole(fiber, key);
}

Result<void> ReplicaNode::repair_from(Fiber& fiber, PartitionKey key, NodeId node,
                                      LeaderEpoch leader_epoch) {
    const LogEnd end =
        MORTAR_TRY(requests_->epoch_end(fiber, node, leader_epoch, key, leader_epoch));
    MORTAR_TRY(caretaker_.look_again(fiber, key));
    return catch_up_.repair_in_place(fiber, key, {node, leader_epoch, end});
}

// This node said that it had synced the base, and holds less: an APPEND does not begin there. It is fetched, and counts for
// nothing meanwhile.
void ReplicaNode::check_base(const ReplicatedLog& log) {
    const PartitionKey key = log.key();
    const auto found = base_.find(key);
    if (key == METADATA_LOG || found == base_.end() || log.is_closed()) return;
    if (log.faulty_from() || aside_.contains(key) || log.end().last >= found->second.last) return;
    env_.log.error("log_lost_records", {{"log", log_name(key)},
                                        {"end", std::to_string(log.end().last.value)},
                                        {"base", std::to_string(found->second.last.value)}});
    MORTAR_SOMETIMES(true, "node: a log lost what it had installed");
    aside_.insert(key);
    follower_.leave_aside(key);
    caretaker_.on_lost(key, log.end().last.next());
}

// A log that was left aside when this node was installed, or before it was restarted.
Result<void> ReplicaNode::make_aside_level(Fiber& fiber, PartitionKey key) {
    const auto guard = MORTAR_TRY(reconciling_.lock(fiber));
    const LeaderEpoch leader_epoch = store_.promised_epoch();
    const NodeId leader = store_.promised_to();
    if (!aside_.contains(key) || !follower_.follows(leader_epoch)) return {};
    const LogEnd end =
        MORTAR_TRY(requests_->epoch_end(fiber, leader, leader_epoch, key, leader_epoch));
    MORTAR_TRY(caretaker_.make_level(fiber, key, {leader, leader_epoch, end}));
    // It holds what the leader holds, whatever it may have lost.
    const ReplicatedLog* log = logs_.find(key);
    if (log != nullptr && !log->faulty_from()) MORTAR_TRY(store_.forget(fiber, key));
    aside_.erase(key);
    follower_.take_again(key);
    return {};
}

// Those that cannot be made equal to the leader's copy, while the others can: they are marked, so that no election takes them
// for what their node has installed.
Result<void> ReplicaNode::leave_aside(Fiber& fiber, PartitionKey key, const Error& error) {
    const ReplicatedLog* log = logs_.find(key);
    if (log == nullptr) return {};
    const bool is_divergent = error.code == ErrorCode::DIVERGENT_COMMITTED;
    const bool is_unrepaired = log->faulty_from() && !is_of_the_moment(error.code);
    if (error.code == ErrorCode::DAMAGED && !log->faulty_from()) {
        // Left aside it would be marked faulty in the new installed_epoch, and with the leader's that makes two: no election
        // could go on, though the whole copy of an older epoch is only away.
        return make_error(ErrorCode::DAMAGED,
                          log_name(key) + ": node " + std::to_string(store_.promised_to().value) +
                              " leads, but its copy is damaged: start another node that holds it "
                              "whole (" +
                              error.detail + ")");
    }
    if (!is_divergent && !is_unrepaired) return error;
    const LogMark mark{key, false, log->faulty_from() ? *log->faulty_from() : log->commit_seq()};
    env_.log.error(
        "log_left_aside",
        {{"log", log_name(key)},
         {"reason", error.to_string()},
         {"advice", is_divergent ? "the copies of this log differ in what was committed: keep "
                                   "this node's folder, decide which is right (level -2)"
                                 : "it is tried again; see that the other nodes are up (RB-1)"}});
    MORTAR_TRY(store_.mark(fiber, {mark}));
    caretaker_.on_damaged(key);
    MORTAR_SOMETIMES(true, "node: a log was left aside");
    return {};
}

}  // namespace mortar
