#include "core/group/ownership.h"

#include <algorithm>

#include "core/base/assert.h"

namespace mortar {

void MemberOwnership::assign(PartitionIndex partition, OwnershipEpoch ownership_epoch,
                             NoticeId notice_id, MonoTime now) {
    MORTAR_ASSERT(!owned_.contains(partition));
    MORTAR_ASSERT(pending_.empty() || pending_.rbegin()->first < notice_id);
    owned_.emplace(partition, Owned{ownership_epoch});
    pending_.emplace(notice_id, Pending{partition, ownership_epoch, now});
}

Result<PartitionIndex> MemberOwnership::control_ack(GroupId group_id,
                                                    const wire::ControlAck& control_ack) {
    const auto it = pending_.find(control_ack.notice_id);
    if (it == pending_.end() || control_ack.notice_kind != wire::NoticeKind::ASSIGN ||
        control_ack.group_id != group_id ||
        control_ack.ownership_epoch != it->second.ownership_epoch)
        return make_error(ErrorCode::STALE_GENERATION,
                          "no such NOTICE waits for this CONTROL_ACK: echo its fields");
    const PartitionIndex partition = it->second.partition;
    pending_.erase(it);
    if (control_ack.result != wire::ControlResult::ERROR) {
        owned_.at(partition).is_active = true;
        ++active_count_;
    }
    return partition;
}

Result<void> MemberOwnership::check_pull(const wire::OwnershipEpochs& ownership_epochs) const {
    if (ownership_epochs.empty()) return {};
    if (ownership_epochs.size() > active_count_)
        return make_error(ErrorCode::NOT_OWNER,
                          "ownership_epochs lists more partitions than this member owns");
    if (ownership_epochs.size() < active_count_)
        return make_error(ErrorCode::STALE_GENERATION,
                          "ownership_epochs leaves out a partition of this member");
    std::size_t index = 0;
    for (const auto& [partition, owned] : owned_) {
        if (!owned.is_active) continue;
        const OwnershipEpoch named = ownership_epochs[index++];
        if (named < owned.ownership_epoch)
            return make_error(ErrorCode::STALE_GENERATION,
                              "an ownership_epoch is old: use those of the NOTICEs");
        if (named > owned.ownership_epoch)
            return make_error(ErrorCode::NOT_OWNER,
                              "an ownership_epoch was never given to this member");
    }
    return {};
}

Result<void> MemberOwnership::check_settle(PartitionIndex partition,
                                           OwnershipEpoch ownership_epoch) const {
    const auto it = owned_.find(partition);
    if (it == owned_.end())
        return make_error(ErrorCode::STALE_OWNER, "this member does not own the partition");
    if (ownership_epoch < it->second.ownership_epoch)
        return make_error(ErrorCode::STALE_OWNER,
                          "the ownership_epoch is old: the message comes again");
    if (ownership_epoch > it->second.ownership_epoch)
        return make_error(ErrorCode::STALE_GENERATION,
                          "the ownership_epoch was never given to this member");
    return {};
}

Result<void> MemberOwnership::check_credit(OwnershipEpoch ownership_epoch) const {
    if (ownership_epoch == OwnershipEpoch{}) return {};
    const bool is_ours = std::any_of(owned_.begin(), owned_.end(), [&](const auto& entry) {
        return entry.second.ownership_epoch == ownership_epoch;
    });
    if (!is_ours)
        return make_error(ErrorCode::STALE_GENERATION,
                          "no partition is owned under this ownership_epoch");
    return {};
}

bool MemberOwnership::is_active(PartitionIndex partition) const {
    const auto it = owned_.find(partition);
    return it != owned_.end() && it->second.is_active;
}

OwnershipEpoch MemberOwnership::ownership_epoch(PartitionIndex partition) const {
    const auto it = owned_.find(partition);
    return it != owned_.end() ? it->second.ownership_epoch : OwnershipEpoch{};
}

MonoTime MemberOwnership::notice_deadline() const {
    return pending_.empty() ? NEVER : pending_.begin()->second.sent_at + CONTROL_ACK_WAIT_MAX;
}

}  // namespace mortar
