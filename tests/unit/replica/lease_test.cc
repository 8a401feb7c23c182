#include "core/replica/lease.h"

#include <gtest/gtest.h>

#include "core/replica/timing.h"

namespace mortar {
namespace {

constexpr MonoTime START{seconds(100).ns};
constexpr LeaderEpoch OLD{6};
constexpr LeaderEpoch CURRENT{7};
constexpr Duration TICK = nanoseconds(1);
constexpr MonoTime LATER = START + seconds(10);  // nothing from before the restart matters

std::vector<NodeId> peers(std::uint16_t count) {
    std::vector<NodeId> nodes;
    for (std::uint16_t id = 2; id < 2 + count; ++id)
        nodes.push_back(NodeId(id));
    return nodes;
}

// covers the contract's "nor within one lease after a restart"
TEST(FollowerLease, votes_for_nobody_for_a_whole_lease_after_a_restart) {
    const FollowerLease lease(START, CURRENT);
    EXPECT_FALSE(lease.may_vote(START));
    EXPECT_FALSE(lease.may_vote(START + LEASE - TICK));
    EXPECT_TRUE(lease.may_vote(START + LEASE));
    EXPECT_EQ(lease.expires_at(), START + LEASE);
}

TEST(FollowerLease, lasts_from_the_last_heartbeat_that_was_accepted) {
    FollowerLease lease(START, CURRENT);
    EXPECT_TRUE(lease.may_vote(LATER));
    EXPECT_TRUE(lease.on_heard(CURRENT, LATER));
    EXPECT_TRUE(lease.on_heard(CURRENT, LATER + HEARTBEAT_INTERVAL));
    EXPECT_FALSE(lease.may_vote(LATER + LEASE));
    EXPECT_FALSE(lease.may_vote(LATER + HEARTBEAT_INTERVAL + LEASE - TICK));
    EXPECT_TRUE(lease.may_vote(LATER + HEARTBEAT_INTERVAL + LEASE));
}

TEST(FollowerLease, does_not_listen_to_an_older_leader) {
    FollowerLease lease(START, CURRENT);
    EXPECT_FALSE(lease.on_heard(OLD, LATER));
    EXPECT_TRUE(lease.may_vote(LATER));
}

TEST(FollowerLease, is_over_at_once_when_its_leader_releases_it) {
    FollowerLease lease(START, OLD);
    ASSERT_TRUE(lease.on_heard(CURRENT, LATER));
    lease.on_release(CURRENT, LATER + TICK);
    EXPECT_TRUE(lease.may_vote(LATER + TICK));
}

TEST(FollowerLease, is_not_released_by_a_leader_of_another_epoch) {
    FollowerLease lease(START, OLD);
    ASSERT_TRUE(lease.on_heard(CURRENT, LATER));
    lease.on_release(OLD, LATER + TICK);
    EXPECT_FALSE(lease.may_vote(LATER + TICK));
}

// A heartbeat that comes behind the release must neither renew the lease nor let the leader count on it.
TEST(FollowerLease, refuses_heartbeats_of_an_epoch_that_was_released) {
    FollowerLease lease(START, CURRENT);
    lease.on_release(CURRENT, LATER);
    EXPECT_FALSE(lease.on_heard(CURRENT, LATER + TICK));
    EXPECT_TRUE(lease.may_vote(LATER + TICK));
    EXPECT_TRUE(lease.on_heard(CURRENT.next(), LATER + TICK));
    EXPECT_FALSE(lease.may_vote(LATER + TICK));
}

TEST(FollowerLease, of_before_the_restart_can_be_released_by_the_leader_that_was_promised) {
    FollowerLease lease(START, CURRENT);
    lease.on_release(OLD, START + TICK);
    EXPECT_FALSE(lease.may_vote(START + TICK));
    lease.on_release(CURRENT, START + TICK);
    EXPECT_TRUE(lease.may_vote(START + TICK));
}

// It may have promised a later leader than the one that releases.
TEST(FollowerLease, of_a_node_that_lost_its_state_runs_its_full_time_after_the_restart) {
    FollowerLease lease(START, std::nullopt);
    ASSERT_TRUE(lease.on_heard(CURRENT, START + milliseconds(500)));
    lease.on_release(CURRENT, START + milliseconds(600));
    EXPECT_FALSE(lease.may_vote(START + LEASE - TICK));
    EXPECT_TRUE(lease.may_vote(START + LEASE));
    ASSERT_TRUE(lease.on_heard(CURRENT.next(), START + LEASE));
    lease.on_release(CURRENT.next(), START + LEASE + TICK);
    EXPECT_TRUE(lease.may_vote(START + LEASE + TICK));
}

TEST(LeaderLease, of_a_cluster_of_one_is_always_held) {
    const LeaderLease lease(CURRENT, {});
    EXPECT_TRUE(lease.is_held(START));
    EXPECT_TRUE(lease.is_held(START + seconds(1'000'000)));
    EXPECT_EQ(lease.held_until(), NEVER);
}

TEST(LeaderLease, is_not_held_before_a_majority_answered) {
    LeaderLease lease(CURRENT, peers(2));
    EXPECT_FALSE(lease.is_held(START));
    EXPECT_FALSE(lease.is_held(MonoTime{}));
    const MonoTime sent_at = lease.on_sending(START);
    EXPECT_FALSE(lease.is_held(START));
    lease.on_answer(NodeId(3), CURRENT, sent_at);
    EXPECT_TRUE(lease.is_held(START));
}

TEST(LeaderLease, counts_from_the_sending_not_from_the_answer) {
    LeaderLease lease(CURRENT, peers(2));
    lease.on_sending(START);
    lease.on_sending(START + HEARTBEAT_INTERVAL);
    lease.on_answer(NodeId(2), CURRENT, START);
    EXPECT_EQ(lease.held_until(), START + milliseconds(950));
    EXPECT_TRUE(lease.is_held(START + milliseconds(950) - TICK));
    EXPECT_FALSE(lease.is_held(START + milliseconds(950)));
}

TEST(LeaderLease, takes_the_latest_heartbeat_that_a_majority_answered) {
    LeaderLease of_five(CURRENT, peers(4));
    for (int count = 0; count < 4; ++count)
        of_five.on_sending(START + HEARTBEAT_INTERVAL * count);
    of_five.on_answer(NodeId(2), CURRENT, START + HEARTBEAT_INTERVAL * 3);
    EXPECT_FALSE(of_five.is_held(START));
    of_five.on_answer(NodeId(4), CURRENT, START + HEARTBEAT_INTERVAL);
    EXPECT_EQ(of_five.held_until(), START + HEARTBEAT_INTERVAL + LEASE_HELD);
    of_five.on_answer(NodeId(5), CURRENT, START + HEARTBEAT_INTERVAL * 2);
    EXPECT_EQ(of_five.held_until(), START + HEARTBEAT_INTERVAL * 2 + LEASE_HELD);
    // An answer that was late takes nothing back.
    of_five.on_answer(NodeId(5), CURRENT, START);
    EXPECT_EQ(of_five.held_until(), START + HEARTBEAT_INTERVAL * 2 + LEASE_HELD);
}

TEST(LeaderLease, counts_a_peer_once) {
    LeaderLease of_five(CURRENT, peers(4));
    of_five.on_sending(START);
    of_five.on_answer(NodeId(2), CURRENT, START);
    of_five.on_answer(NodeId(2), CURRENT, START);
    EXPECT_FALSE(of_five.is_held(START));
}

TEST(LeaderLease, believes_no_answer_to_what_it_did_not_send) {
    LeaderLease lease(CURRENT, peers(2));
    lease.on_answer(NodeId(2), CURRENT, START);
    EXPECT_FALSE(lease.is_held(START));
    lease.on_sending(START);
    lease.on_answer(NodeId(2), CURRENT, START + TICK);
    lease.on_answer(NodeId(2), OLD, START);
    lease.on_answer(NodeId(9), CURRENT, START);
    EXPECT_FALSE(lease.is_held(START));
}

TEST(LeaderLease, that_was_released_is_never_held_again) {
    LeaderLease lease(CURRENT, peers(2));
    lease.on_sending(START);
    lease.on_answer(NodeId(2), CURRENT, START);
    ASSERT_TRUE(lease.is_held(START));
    lease.release();
    EXPECT_FALSE(lease.is_held(START));
    lease.on_answer(NodeId(3), CURRENT, START);
    EXPECT_FALSE(lease.is_held(START));
    LeaderLease alone(CURRENT, {});
    alone.release();
    EXPECT_FALSE(alone.is_held(START));
}

// True time against two clocks that drift apart: the leader must be out of its lease before the follower may vote.
class DriftingClock {
  public:
    explicit DriftingClock(std::int64_t rate_per_mille) : rate_per_mille_(rate_per_mille) {}
    MonoTime at(Duration true_time) const {
        return START + Duration{true_time.ns / 1'000 * rate_per_mille_};
    }

  private:
    std::int64_t rate_per_mille_;
};

// How long both hold: the leader its lease, and the follower is free to vote.
Duration overlap(std::int64_t leader_rate_per_mille, std::int64_t follower_rate_per_mille) {
    const DriftingClock leader_clock(leader_rate_per_mille);
    const DriftingClock follower_clock(follower_rate_per_mille);
    LeaderLease leader(CURRENT, peers(2));
    FollowerLease follower(START - seconds(10), CURRENT);
    const MonoTime sent_at = leader.on_sending(leader_clock.at({}));
    EXPECT_TRUE(follower.on_heard(CURRENT, follower_clock.at({})));  // no slower than light
    leader.on_answer(NodeId(2), CURRENT, sent_at);
    Duration both{};
    const Duration step = microseconds(100);
    for (Duration time{}; time < seconds(2); time = time + step) {
        if (leader.is_held(leader_clock.at(time)) && follower.may_vote(follower_clock.at(time)))
            both = both + step;
    }
    return both;
}

TEST(LeaderLease, ends_before_the_followers_promise_with_clocks_that_drift_up_to_the_margin) {
    EXPECT_EQ(overlap(1'000, 1'000), Duration{});
    EXPECT_EQ(overlap(950, 1'000), Duration{});
    EXPECT_EQ(overlap(1'000, 1'052), Duration{});
    EXPECT_EQ(overlap(976, 1'025), Duration{});
    EXPECT_EQ(overlap(1'050, 1'000), Duration{});
    // Past the margin nothing can hold: the margin is what the lease stands on.
    EXPECT_GT(overlap(940, 1'000), Duration{});
    EXPECT_GT(overlap(1'000, 1'060), Duration{});
}

}  // namespace
}  // namespace mortar
