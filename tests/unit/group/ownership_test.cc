#include "core/group/ownership.h"

#include <gtest/gtest.h>

#include "core/group/membership.h"

namespace mortar {
namespace {

constexpr GroupId GROUP{3};

wire::ControlAck ack_of(NoticeId notice_id, OwnershipEpoch ownership_epoch,
                        wire::ControlResult result = wire::ControlResult::OK) {
    wire::ControlAck ack;
    ack.notice_id = notice_id;
    ack.group_id = GROUP;
    ack.ownership_epoch = ownership_epoch;
    ack.result = result;
    return ack;
}

struct TwoPartitions {
    MemberOwnership ownership;
    TwoPartitions() {
        ownership.assign(PartitionIndex(0), OwnershipEpoch(5), NoticeId(1), MonoTime{0});
        ownership.assign(PartitionIndex(4), OwnershipEpoch(9), NoticeId(2), MonoTime{10});
    }
    Result<void> pull(std::vector<OwnershipEpoch> epochs) {
        const ByteVector packed = wire::OwnershipEpochs::pack(epochs);
        return ownership.check_pull(wire::OwnershipEpochs(packed));
    }
};

TEST(Contract, C2_pull_names_the_confirmed_partitions) {
    TwoPartitions two;
    EXPECT_TRUE(two.pull({}).ok());
    EXPECT_TRUE(two.pull({OwnershipEpoch(5)}).is(ErrorCode::NOT_OWNER))
        << "nothing is confirmed yet";
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(2), OwnershipEpoch(9))).ok());
    EXPECT_TRUE(two.ownership.is_active(PartitionIndex(4)));
    EXPECT_FALSE(two.ownership.is_active(PartitionIndex(0)));
    EXPECT_TRUE(two.pull({OwnershipEpoch(9)}).ok());
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(1), OwnershipEpoch(5))).ok());
    EXPECT_TRUE(two.pull({OwnershipEpoch(5), OwnershipEpoch(9)}).ok());
    EXPECT_TRUE(two.pull({OwnershipEpoch(9)}).is(ErrorCode::STALE_GENERATION)) << "one is left out";
    EXPECT_TRUE(two.pull({OwnershipEpoch(4), OwnershipEpoch(9)}).is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(two.pull({OwnershipEpoch(5), OwnershipEpoch(10)}).is(ErrorCode::NOT_OWNER));
    EXPECT_TRUE(two.pull({OwnershipEpoch(5), OwnershipEpoch(9), OwnershipEpoch(9)})
                    .is(ErrorCode::NOT_OWNER));
}

TEST(Contract, G5_control_ack_counts_once_and_only_as_sent) {
    TwoPartitions two;
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(3), OwnershipEpoch(5)))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(1), OwnershipEpoch(6)))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(two.ownership.control_ack(GroupId(4), ack_of(NoticeId(1), OwnershipEpoch(5)))
                    .is(ErrorCode::STALE_GENERATION));
    wire::ControlAck revoke = ack_of(NoticeId(1), OwnershipEpoch(5));
    revoke.notice_kind = wire::NoticeKind::REVOKE;
    EXPECT_TRUE(two.ownership.control_ack(GROUP, revoke).is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(
        two.ownership
            .control_ack(GROUP, ack_of(NoticeId(1), OwnershipEpoch(5), wire::ControlResult::STALE))
            .ok());
    EXPECT_TRUE(two.ownership.is_active(PartitionIndex(0))) << "STALE counts as done";
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(1), OwnershipEpoch(5)))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(
        two.ownership
            .control_ack(GROUP, ack_of(NoticeId(2), OwnershipEpoch(9), wire::ControlResult::ERROR))
            .ok());
    EXPECT_FALSE(two.ownership.is_active(PartitionIndex(4)));
}

TEST(Contract, G4_settling_is_fenced_by_ownership_epoch) {
    TwoPartitions two;
    EXPECT_TRUE(two.ownership.check_settle(PartitionIndex(0), OwnershipEpoch(5)).ok());
    EXPECT_TRUE(two.ownership.check_settle(PartitionIndex(0), OwnershipEpoch(4))
                    .is(ErrorCode::STALE_OWNER));
    EXPECT_TRUE(two.ownership.check_settle(PartitionIndex(0), OwnershipEpoch(6))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(two.ownership.check_settle(PartitionIndex(1), OwnershipEpoch(5))
                    .is(ErrorCode::STALE_OWNER));
    EXPECT_TRUE(two.ownership.check_credit(OwnershipEpoch(0)).ok());
    EXPECT_TRUE(two.ownership.check_credit(OwnershipEpoch(9)).ok());
    EXPECT_TRUE(two.ownership.check_credit(OwnershipEpoch(8)).is(ErrorCode::STALE_GENERATION));
}

TEST(MemberOwnership, owes_the_oldest_control_ack_for_ten_seconds) {
    TwoPartitions two;
    EXPECT_EQ(two.ownership.notice_deadline(), MonoTime{0} + seconds(10));
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(1), OwnershipEpoch(5))).ok());
    EXPECT_EQ(two.ownership.notice_deadline(), MonoTime{10} + seconds(10));
    EXPECT_TRUE(two.ownership.control_ack(GROUP, ack_of(NoticeId(2), OwnershipEpoch(9))).ok());
    EXPECT_EQ(two.ownership.notice_deadline(), NEVER);
}

TEST(Contract, G4_epochs_outside_what_was_sent_are_stale) {
    const Membership member(MemberId(1), MembershipEpoch(4), AssignmentEpoch(7), MonoTime{});
    EXPECT_TRUE(member.check_epochs(MembershipEpoch(4), AssignmentEpoch(7)).ok());
    EXPECT_TRUE(member.check_epochs(MembershipEpoch(3), AssignmentEpoch(7))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(member.check_epochs(MembershipEpoch(5), AssignmentEpoch(7))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(member.check_epochs(MembershipEpoch(4), AssignmentEpoch(6))
                    .is(ErrorCode::STALE_GENERATION));
    EXPECT_TRUE(member.check_epochs(MembershipEpoch(4), AssignmentEpoch(8))
                    .is(ErrorCode::STALE_GENERATION));
}

TEST(Contract, G3_a_waiting_pull_counts_as_alive) {
    Membership member(MemberId(1), MembershipEpoch(1), AssignmentEpoch(1), MonoTime{});
    EXPECT_EQ(member.expires_at(), MonoTime{} + seconds(10));
    member.on_pull_started(MonoTime{} + seconds(3));
    EXPECT_EQ(member.expires_at(), NEVER);
    member.on_pull_ended(MonoTime{} + seconds(20));
    EXPECT_EQ(member.expires_at(), MonoTime{} + seconds(30));
    member.on_heard(MonoTime{} + seconds(21));
    EXPECT_EQ(member.expires_at(), MonoTime{} + seconds(31));
}

}  // namespace
}  // namespace mortar
