// membership: one member as its node sees it: which epochs it may name, and until when it counts as alive.
// Errors: check_epochs, check_membership_epoch: STALE_GENERATION.
// Source: contract G3 (expelled after 10 s of silence), G4 (epochs from SUB's OK to the newest sent).
#pragma once

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/env/clock.h"

namespace mortar {

inline constexpr Duration MEMBER_SILENCE_MAX = seconds(10);

class Membership {
  public:
    Membership(MemberId member_id, MembershipEpoch membership_epoch,
               AssignmentEpoch assignment_epoch, MonoTime now);

    MemberId member_id() const { return member_id_; }
    MembershipEpoch membership_epoch() const { return newest_membership_; }
    AssignmentEpoch assignment_epoch() const { return newest_assignment_; }
    Result<void> check_epochs(MembershipEpoch membership_epoch,
                              AssignmentEpoch assignment_epoch) const;
    Result<void> check_membership_epoch(MembershipEpoch membership_epoch) const;

    // PULL, ACK, NACK or HEARTBEAT arrived.
    void on_heard(MonoTime now) { heard_at_ = now; }
    void on_pull_started(MonoTime now);
    void on_pull_ended(MonoTime now);
    // NEVER while a PULL waits.
    MonoTime expires_at() const;

  private:
    MemberId member_id_;
    MembershipEpoch first_membership_;
    AssignmentEpoch first_assignment_;
    MembershipEpoch newest_membership_;
    AssignmentEpoch newest_assignment_;
    MonoTime heard_at_;
    bool has_waiting_pull_ = false;
};

}  // namespace mortar
