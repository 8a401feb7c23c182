// lease: when a follower may vote, and until when a leader is the only one. Pure: the caller's clock comes in.
// Shape:     A FollowerLease is a promise to a leader not to vote for another one for LEASE by this node's clock. It is not on
//            disk: a node that restarts takes it that it had just heard the leader of the epoch that it has promised.
//            A LeaderLease counts from when the leader SENT the heartbeat that a majority (itself included) answered: each
//            of them heard it later, so their promises end later, if its clock is at most LEASE_DRIFT_PERCENT slower than
//            theirs.
// Units:     MonoTime of this node only; nothing compares clocks of two nodes.
// Invariant: while is_held, a majority of the nodes may not vote. One that was released is never held again.
// Source:    design 4 (Lease), contract 8.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/env/clock.h"

namespace mortar {

class FollowerLease {
  public:
    // promised_epoch: as on disk. What was promised before the restart and is not over can only be to the leader of that
    // epoch, who may release it. A node without replica/state does not know that epoch, so nobody can.
    FollowerLease(MonoTime started_at, std::optional<LeaderEpoch> promised_epoch);

    // A heartbeat of the epoch that this node has promised. False, and not to be answered: that leader has released its
    // lease, or is older than one that was heard.
    [[nodiscard]] bool on_heard(LeaderEpoch leader_epoch, MonoTime now);
    // By the leader itself.
    void on_release(LeaderEpoch leader_epoch, MonoTime now);

    bool may_vote(MonoTime now) const { return now >= expires_at_; }
    MonoTime expires_at() const { return expires_at_; }

  private:
    LeaderEpoch leader_epoch_;  // to whose leader the promise is
    LeaderEpoch released_epoch_;
    MonoTime expires_at_;
    MonoTime not_released_before_;
};

// Of one term of office: a new leader_epoch gets a new one.
class LeaderLease {
  public:
    // peers: the other configured nodes.
    LeaderLease(LeaderEpoch leader_epoch, std::span<const NodeId> peers);

    // Before the heartbeat leaves. Returns what to put in it.
    MonoTime on_sending(MonoTime now);
    // What a HEARTBEAT_OK says. One of another epoch, or about a heartbeat that was never sent, says nothing.
    void on_answer(NodeId peer, LeaderEpoch leader_epoch, MonoTime sent_at);
    // Orderly: before RELEASE leaves.
    void release() { is_released_ = true; }

    // NEVER with one node; long ago without a majority.
    MonoTime held_until() const;
    bool is_held(MonoTime now) const { return now < held_until(); }
    bool is_released() const { return is_released_; }

  private:
    struct Peer {
        NodeId node_id;
        MonoTime answered_sent_at;  // the latest heartbeat that it answered
    };

    void count();

    LeaderEpoch leader_epoch_;
    std::vector<Peer> peers_;
    MonoTime last_sent_at_;
    MonoTime majority_sent_at_;  // the latest heartbeat that a majority answered, itself included
    bool is_released_ = false;
};

}  // namespace mortar
