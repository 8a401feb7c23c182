// timing: the times that leases and elections keep, in one place: they only hold together.
// Shape:     a follower that heard the leader votes for nobody for LEASE by its clock. The leader counts only
//            LEASE_HELD from when it sent what was heard: its clock may run LEASE_DRIFT_PERCENT slower than the
//            follower's. Six heartbeats fit into a lease, so that five may get lost.
// Source:    contract 8 (Constants), design 4.
#pragma once

#include "core/env/clock.h"

namespace mortar {

inline constexpr Duration HEARTBEAT_INTERVAL = milliseconds(150);
inline constexpr Duration LEASE = milliseconds(1'000);
inline constexpr int LEASE_DRIFT_PERCENT = 5;
inline constexpr Duration LEASE_DRIFT_MARGIN = LEASE * LEASE_DRIFT_PERCENT / 100;
inline constexpr Duration LEASE_HELD = LEASE - LEASE_DRIFT_MARGIN;
// After the lease: so long a rank of leader_priority, and jitter on top, so that equals do not stand together.
inline constexpr Duration ELECTION_DELAY_PER_RANK = milliseconds(100);
inline constexpr Duration ELECTION_JITTER_MAX = milliseconds(100);

static_assert(HEARTBEAT_INTERVAL * 6 < LEASE_HELD);

}  // namespace mortar
