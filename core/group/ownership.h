// ownership: what one member owns, the NOTICEs it was sent and has not confirmed, and the fence of ownership_epoch.
// Shape:     a partition is *assigned* when its ASSIGN was sent and *active* once that was CONTROL_ACKed; only active ones
//            are served.
// Errors:    control_ack: STALE_GENERATION (unknown, foreign or doubled notice). check_pull: NOT_OWNER, STALE_GENERATION.
//            check_settle: STALE_OWNER (older epoch, or not the owner), STALE_GENERATION (newer epoch).
// Invariant: one ownership_epoch a partition for as long as this member owns it.
// Source:    contract G4, G5, C2, core-concepts 8.
#pragma once

#include <map>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/env/clock.h"
#include "core/wire/messages.h"

namespace mortar {

inline constexpr Duration CONTROL_ACK_WAIT_MAX = seconds(10);

class MemberOwnership {
  public:
    // An ASSIGN with this notice_id goes out now.
    void assign(PartitionIndex partition, OwnershipEpoch ownership_epoch, NoticeId notice_id,
                MonoTime now);
    // The partition whose ASSIGN this confirms; it is active from now on when the result is not ERROR.
    Result<PartitionIndex> control_ack(GroupId group_id, const wire::ControlAck& control_ack);

    Result<void> check_pull(const wire::OwnershipEpochs& ownership_epochs) const;
    Result<void> check_settle(PartitionIndex partition, OwnershipEpoch ownership_epoch) const;
    // Of CREDIT: 0, or one that this member owns a partition under.
    Result<void> check_credit(OwnershipEpoch ownership_epoch) const;

    bool is_active(PartitionIndex partition) const;
    // 0 when not assigned.
    OwnershipEpoch ownership_epoch(PartitionIndex partition) const;
    // When the oldest unconfirmed NOTICE makes the member leave; NEVER without one.
    MonoTime notice_deadline() const;

    struct Owned {
        OwnershipEpoch ownership_epoch;
        bool is_active = false;
    };
    const std::map<PartitionIndex, Owned>& partitions() const { return owned_; }

  private:
    struct Pending {
        PartitionIndex partition;
        OwnershipEpoch ownership_epoch;
        MonoTime sent_at;
    };
    std::map<PartitionIndex, Owned> owned_;
    std::map<NoticeId, Pending> pending_;  // ids and send times grow together
    std::size_t active_count_ = 0;
};

}  // namespace mortar
