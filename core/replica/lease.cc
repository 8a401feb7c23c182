#include "core/replica/lease.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/base/assert.h"
#include "core/replica/timing.h"

namespace mortar {
namespace {

// Leaves room below for what is taken off.
constexpr MonoTime LONG_AGO{std::numeric_limits<std::int64_t>::min() / 2};

}  // namespace

FollowerLease::FollowerLease(MonoTime started_at, std::optional<LeaderEpoch> promised_epoch)
    : leader_epoch_(promised_epoch.value_or(LeaderEpoch(0))),
      expires_at_(started_at + LEASE),
      not_released_before_(promised_epoch.has_value() ? started_at : expires_at_) {}

bool FollowerLease::on_heard(LeaderEpoch leader_epoch, MonoTime now) {
    if (leader_epoch <= released_epoch_ || leader_epoch < leader_epoch_) return false;
    leader_epoch_ = leader_epoch;
    expires_at_ = std::max(expires_at_, now + LEASE);
    return true;
}

void FollowerLease::on_release(LeaderEpoch leader_epoch, MonoTime now) {
    released_epoch_ = std::max(released_epoch_, leader_epoch);
    if (leader_epoch < leader_epoch_) return;
    expires_at_ = std::min(expires_at_, std::max(now, not_released_before_));
}

LeaderLease::LeaderLease(LeaderEpoch leader_epoch, std::span<const NodeId> peers)
    : leader_epoch_(leader_epoch), last_sent_at_(LONG_AGO), majority_sent_at_(LONG_AGO) {
    for (const NodeId node_id : peers)
        peers_.push_back({node_id, LONG_AGO});
}

MonoTime LeaderLease::on_sending(MonoTime now) {
    MORTAR_ASSERT(!is_released_);
    MORTAR_ASSERT(now >= last_sent_at_);
    last_sent_at_ = now;
    return now;
}

void LeaderLease::on_answer(NodeId peer, LeaderEpoch leader_epoch, MonoTime sent_at) {
    if (leader_epoch != leader_epoch_ || sent_at > last_sent_at_) return;
    for (Peer& each : peers_) {
        if (each.node_id != peer) continue;
        each.answered_sent_at = std::max(each.answered_sent_at, sent_at);
        count();
    }
}

MonoTime LeaderLease::held_until() const {
    if (is_released_) return LONG_AGO;
    return peers_.empty() ? NEVER : majority_sent_at_ + LEASE_HELD;
}

void LeaderLease::count() {
    const std::size_t others_needed = (peers_.size() + 1) / 2;  // with itself a majority
    std::vector<MonoTime> answered;
    for (const Peer& each : peers_)
        answered.push_back(each.answered_sent_at);
    std::ranges::nth_element(answered,
                             answered.begin() + static_cast<std::ptrdiff_t>(others_needed - 1),
                             std::greater<>());
    majority_sent_at_ = answered[others_needed - 1];
}

}  // namespace mortar
