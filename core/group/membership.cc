#include "core/group/membership.h"

#include "core/base/assert.h"

namespace mortar {

Membership::Membership(MemberId member_id, MembershipEpoch membership_epoch,
                       AssignmentEpoch assignment_epoch, MonoTime now)
    : member_id_(member_id),
      first_membership_(membership_epoch),
      first_assignment_(assignment_epoch),
      newest_membership_(membership_epoch),
      newest_assignment_(assignment_epoch),
      heard_at_(now) {}

Result<void> Membership::check_epochs(MembershipEpoch membership_epoch,
                                      AssignmentEpoch assignment_epoch) const {
    MORTAR_TRY(check_membership_epoch(membership_epoch));
    if (assignment_epoch < first_assignment_ || assignment_epoch > newest_assignment_)
        return make_error(ErrorCode::STALE_GENERATION,
                          "assignment_epoch was never sent to this member: use the one of SUB's OK "
                          "or of a NOTICE");
    return {};
}

Result<void> Membership::check_membership_epoch(MembershipEpoch membership_epoch) const {
    if (membership_epoch < first_membership_ || membership_epoch > newest_membership_)
        return make_error(ErrorCode::STALE_GENERATION,
                          "membership_epoch was never sent to this member: use the one of SUB's OK "
                          "or of a NOTICE");
    return {};
}

void Membership::on_pull_started(MonoTime now) {
    MORTAR_ASSERT(!has_waiting_pull_);
    has_waiting_pull_ = true;
    heard_at_ = now;
}

void Membership::on_pull_ended(MonoTime now) {
    MORTAR_ASSERT(has_waiting_pull_);
    has_waiting_pull_ = false;
    heard_at_ = now;
}

MonoTime Membership::expires_at() const {
    return has_waiting_pull_ ? NEVER : heard_at_ + MEMBER_SILENCE_MAX;
}

}  // namespace mortar
