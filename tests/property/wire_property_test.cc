// Random messages come back as they were; random bytes are decoded or refused, and never crash.
#include <gtest/gtest.h>
// After gtest, for it builds on its macros.
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "core/wire/codec.h"
#include "core/wire/frame.h"
#include "tests/unit/wire/any_message.h"
#include "tests/unit/wire/scripted_conn.h"

namespace mortar::wire {
namespace {
using testing::reencode;
using testing::reencode_result;

using Bytes = std::vector<std::uint8_t>;

ByteSpan view(const Bytes& bytes) {
    return std::as_bytes(std::span(bytes));
}

Bytes bytes_up_to(std::size_t size_max) {
    const auto size = *rc::gen::inRange<std::size_t>(0, size_max + 1);
    return *rc::gen::container<Bytes>(size, rc::gen::arbitrary<std::uint8_t>());
}

template <class Id>
Id any_id() {
    return Id(*rc::gen::arbitrary<typename Id::rep>());
}
template <class Number>
Number any() {
    return *rc::gen::arbitrary<Number>();
}
template <class Enum>
Enum any_of(Enum last) {
    return static_cast<Enum>(*rc::gen::inRange(0, static_cast<int>(last) + 1));
}

// What the struct holds is what the bytes hold: the fields are compared one by one by the caller.
template <class Message>
ByteVector payload_of(const Message& message) {
    ByteVector frame;
    encode(frame, message);
    RC_ASSERT(load_be<std::uint32_t>(frame.data()) == frame.size() - LENGTH_BYTES);
    return ByteVector(frame.begin() + FRAME_HEAD_BYTES, frame.end());
}
bool same(ByteSpan a, ByteSpan b) {
    return as_string_view(a) == as_string_view(b);
}

RC_GTEST_PROP(WireProperty, connect_comes_back, ()) {
    const Bytes token = bytes_up_to(MAX_TOKEN_LEN);
    const Connect sent{WIRE_VERSION, any<std::uint16_t>(), view(token)};
    const ByteVector payload = payload_of(sent);
    const Connect got = decode_connect(payload).value();
    RC_ASSERT(got.client_flags == sent.client_flags);
    RC_ASSERT(same(got.token, sent.token));
}

RC_GTEST_PROP(WireProperty, declare_comes_back, (const std::string& topic)) {
    Declare sent{topic, any<std::uint16_t>(), 0};
    sent.flags = any<std::uint16_t>();
    const ByteVector payload = payload_of(sent);
    const Declare got = decode_declare(payload).value();
    RC_ASSERT(got.topic == sent.topic);
    RC_ASSERT(got.partition_count == sent.partition_count);
    RC_ASSERT(got.flags == sent.flags);
}

RC_GTEST_PROP(WireProperty, pub_comes_back, ()) {
    const Bytes key = bytes_up_to(MAX_KEY_LEN);
    const Bytes value = bytes_up_to(2000);
    Pub sent;
    sent.topic_id = any_id<TopicId>();
    sent.partition = any_id<PartitionIndex>();
    sent.producer_id = any_id<ProducerId>();
    sent.producer_seq = any_id<ProducerSeq>();
    sent.flags = any<std::uint16_t>();
    sent.key = view(key);
    sent.value = view(value);
    const ByteVector payload = payload_of(sent);
    const Pub got = decode_pub(payload).value();
    RC_ASSERT(got.topic_id == sent.topic_id);
    RC_ASSERT(got.partition == sent.partition);
    RC_ASSERT(got.producer_id == sent.producer_id);
    RC_ASSERT(got.producer_seq == sent.producer_seq);
    RC_ASSERT(got.flags == sent.flags);
    RC_ASSERT(same(got.key, sent.key));
    RC_ASSERT(same(got.value, sent.value));
}

RC_GTEST_PROP(WireProperty, sub_comes_back, (const std::string& group)) {
    Sub sent;
    sent.group = group;
    sent.topic_id = any_id<TopicId>();
    sent.partition = any_id<PartitionIndex>();
    sent.start_policy = any_of(StartPolicy::LATEST);
    sent.credit_count = any<std::uint16_t>();
    sent.credit_bytes = any<std::uint32_t>();
    sent.flags = any<std::uint16_t>();
    const ByteVector payload = payload_of(sent);
    const Sub got = decode_sub(payload).value();
    RC_ASSERT(got.group == sent.group);
    RC_ASSERT(got.topic_id == sent.topic_id);
    RC_ASSERT(got.partition == sent.partition);
    RC_ASSERT(got.start_policy == sent.start_policy);
    RC_ASSERT(got.credit_count == sent.credit_count);
    RC_ASSERT(got.credit_bytes == sent.credit_bytes);
    RC_ASSERT(got.flags == sent.flags);
}

RC_GTEST_PROP(WireProperty, ack_and_nack_come_back, ()) {
    Nack sent;
    sent.subscription_id = any_id<SubscriptionId>();
    sent.topic_id = any_id<TopicId>();
    sent.partition = any_id<PartitionIndex>();
    sent.seq = any_id<Sequence>();
    sent.delivery_id = any_id<DeliveryId>();
    sent.ownership_epoch = any_id<OwnershipEpoch>();
    sent.reason = any_of(NackReason::REQUEUE);
    sent.flags = any<std::uint16_t>();
    const Ack sent_ack{sent.subscription_id, sent.topic_id,        sent.partition, sent.seq,
                       sent.delivery_id,     sent.ownership_epoch, sent.flags};
    const auto check = [&](const auto& got) {
        RC_ASSERT(got.subscription_id == sent.subscription_id);
        RC_ASSERT(got.topic_id == sent.topic_id);
        RC_ASSERT(got.partition == sent.partition);
        RC_ASSERT(got.seq == sent.seq);
        RC_ASSERT(got.delivery_id == sent.delivery_id);
        RC_ASSERT(got.ownership_epoch == sent.ownership_epoch);
        RC_ASSERT(got.flags == sent.flags);
    };
    check(decode_ack(payload_of(sent_ack)).value());
    const Nack got = decode_nack(payload_of(sent)).value();
    check(got);
    RC_ASSERT(got.reason == sent.reason);
}

RC_GTEST_PROP(WireProperty, err_and_ok_come_back, ()) {
    const Bytes text = bytes_up_to(MAX_ERR_MESSAGE);
    const Err sent{any<std::uint16_t>(), any<std::uint8_t>(), as_string_view(view(text))};
    const ByteVector payload = payload_of(sent);
    const Err got = decode_err(payload).value();
    RC_ASSERT(got.code == sent.code);
    RC_ASSERT(got.request_op == sent.request_op);
    RC_ASSERT(got.message == sent.message);

    const Op request_op =
        *rc::gen::suchThat(rc::gen::map(rc::gen::inRange<int>(FIRST_OP, LAST_OP + 1),
                                        [](int op) { return static_cast<Op>(op); }),
                           is_request);
    const Ok sent_ok{request_op, view(text)};
    const ByteVector ok_payload = payload_of(sent_ok);
    const Ok got_ok = decode_ok(ok_payload).value();
    RC_ASSERT(got_ok.request_op == request_op);
    RC_ASSERT(same(got_ok.result, sent_ok.result));
}

RC_GTEST_PROP(WireProperty, msg_comes_back, ()) {
    const Bytes key = bytes_up_to(MAX_KEY_LEN);
    const Bytes value = bytes_up_to(2000);
    Msg sent;
    sent.subscription_id = any_id<SubscriptionId>();
    sent.topic_id = any_id<TopicId>();
    sent.partition = any_id<PartitionIndex>();
    sent.sequence = any_id<Sequence>();
    sent.delivery_id = any_id<DeliveryId>();
    sent.attempt = any<std::uint16_t>();
    sent.ownership_epoch = any_id<OwnershipEpoch>();
    sent.producer_id = any_id<ProducerId>();
    sent.producer_seq = any_id<ProducerSeq>();
    sent.flags = any<std::uint16_t>();
    sent.key = view(key);
    sent.value = view(value);
    const ByteVector payload = payload_of(sent);
    const Msg got = decode_msg(payload).value();
    RC_ASSERT(got.subscription_id == sent.subscription_id);
    RC_ASSERT(got.topic_id == sent.topic_id);
    RC_ASSERT(got.partition == sent.partition);
    RC_ASSERT(got.sequence == sent.sequence);
    RC_ASSERT(got.delivery_id == sent.delivery_id);
    RC_ASSERT(got.attempt == sent.attempt);
    RC_ASSERT(got.ownership_epoch == sent.ownership_epoch);
    RC_ASSERT(got.producer_id == sent.producer_id);
    RC_ASSERT(got.producer_seq == sent.producer_seq);
    RC_ASSERT(got.flags == sent.flags);
    RC_ASSERT(same(got.key, sent.key));
    RC_ASSERT(same(got.value, sent.value));
}

RC_GTEST_PROP(WireProperty, pull_and_heartbeat_come_back,
              (const std::vector<std::uint64_t>& list)) {
    std::vector<OwnershipEpoch> epochs;
    for (const std::uint64_t number : list)
        epochs.push_back(OwnershipEpoch(number));
    const ByteVector packed = OwnershipEpochs::pack(epochs);
    Pull sent;
    sent.subscription_id = any_id<SubscriptionId>();
    sent.member_id = any_id<MemberId>();
    sent.membership_epoch = any_id<MembershipEpoch>();
    sent.assignment_epoch = any_id<AssignmentEpoch>();
    sent.ownership_epochs = OwnershipEpochs(packed);
    sent.max_msgs = any<std::uint16_t>();
    sent.max_bytes = any<std::uint32_t>();
    sent.wait_ms = any<std::uint16_t>();
    sent.min_bytes = any<std::uint32_t>();
    const ByteVector payload = payload_of(sent);
    const Pull got = decode_pull(payload).value();
    RC_ASSERT(got.subscription_id == sent.subscription_id);
    RC_ASSERT(got.member_id == sent.member_id);
    RC_ASSERT(got.membership_epoch == sent.membership_epoch);
    RC_ASSERT(got.assignment_epoch == sent.assignment_epoch);
    RC_ASSERT(got.ownership_epochs.size() == epochs.size());
    for (std::size_t i = 0; i < epochs.size(); ++i)
        RC_ASSERT(got.ownership_epochs[i] == epochs[i]);
    RC_ASSERT(got.max_msgs == sent.max_msgs);
    RC_ASSERT(got.max_bytes == sent.max_bytes);
    RC_ASSERT(got.wait_ms == sent.wait_ms);
    RC_ASSERT(got.min_bytes == sent.min_bytes);

    const Heartbeat beat{sent.subscription_id, sent.member_id, sent.membership_epoch,
                         sent.assignment_epoch, any_of(HeartbeatState::LEAVE)};
    const Heartbeat got_beat = decode_heartbeat(payload_of(beat)).value();
    RC_ASSERT(got_beat.subscription_id == beat.subscription_id);
    RC_ASSERT(got_beat.member_id == beat.member_id);
    RC_ASSERT(got_beat.membership_epoch == beat.membership_epoch);
    RC_ASSERT(got_beat.assignment_epoch == beat.assignment_epoch);
    RC_ASSERT(got_beat.state == beat.state);
}

RC_GTEST_PROP(WireProperty, notice_and_control_ack_come_back, ()) {
    Notice sent;
    sent.notice_id = any_id<NoticeId>();
    sent.kind = any_of(NoticeKind::REVOKE);
    sent.group_id = any_id<GroupId>();
    sent.membership_epoch = any_id<MembershipEpoch>();
    sent.assignment_epoch = any_id<AssignmentEpoch>();
    sent.ownership_epoch = any_id<OwnershipEpoch>();
    sent.topic_id = any_id<TopicId>();
    sent.partition = any_id<PartitionIndex>();
    sent.member_id = any_id<MemberId>();
    const Notice got = decode_notice(payload_of(sent)).value();
    RC_ASSERT(got.notice_id == sent.notice_id);
    RC_ASSERT(got.kind == sent.kind);
    RC_ASSERT(got.group_id == sent.group_id);
    RC_ASSERT(got.membership_epoch == sent.membership_epoch);
    RC_ASSERT(got.assignment_epoch == sent.assignment_epoch);
    RC_ASSERT(got.ownership_epoch == sent.ownership_epoch);
    RC_ASSERT(got.topic_id == sent.topic_id);
    RC_ASSERT(got.partition == sent.partition);
    RC_ASSERT(got.member_id == sent.member_id);

    const ControlAck ack{sent.notice_id,
                         sent.kind,
                         sent.group_id,
                         sent.membership_epoch,
                         sent.assignment_epoch,
                         sent.ownership_epoch,
                         any_of(ControlResult::ERROR)};
    const ControlAck got_ack = decode_control_ack(payload_of(ack)).value();
    RC_ASSERT(got_ack.notice_id == ack.notice_id);
    RC_ASSERT(got_ack.notice_kind == ack.notice_kind);
    RC_ASSERT(got_ack.group_id == ack.group_id);
    RC_ASSERT(got_ack.membership_epoch == ack.membership_epoch);
    RC_ASSERT(got_ack.assignment_epoch == ack.assignment_epoch);
    RC_ASSERT(got_ack.ownership_epoch == ack.ownership_epoch);
    RC_ASSERT(got_ack.result == ack.result);
}

RC_GTEST_PROP(WireProperty, credit_comes_back, ()) {
    Credit sent;
    sent.subscription_id = any_id<SubscriptionId>();
    sent.membership_epoch = any_id<MembershipEpoch>();
    sent.ownership_epoch = any_id<OwnershipEpoch>();
    sent.mode = any_of(CreditMode::ADD);
    sent.credit_count = any<std::uint16_t>();
    sent.credit_bytes = any<std::uint32_t>();
    const Credit got = decode_credit(payload_of(sent)).value();
    RC_ASSERT(got.subscription_id == sent.subscription_id);
    RC_ASSERT(got.membership_epoch == sent.membership_epoch);
    RC_ASSERT(got.ownership_epoch == sent.ownership_epoch);
    RC_ASSERT(got.mode == sent.mode);
    RC_ASSERT(got.credit_count == sent.credit_count);
    RC_ASSERT(got.credit_bytes == sent.credit_bytes);
}

RC_GTEST_PROP(WireProperty, results_come_back, ()) {
    const auto result_of = [](const auto& result) {
        ByteVector frame;
        encode_ok(frame, result);
        return ByteVector(frame.begin() + FRAME_HEAD_BYTES + OK_FIXED_BYTES, frame.end());
    };
    const DeclareResult declare{any_id<TopicId>(), any<std::uint16_t>(),
                                any_of(DeclareOutcome::IDEMPOTENT_OK)};
    const DeclareResult got_declare = decode_declare_result(result_of(declare)).value();
    RC_ASSERT(got_declare.topic_id == declare.topic_id);
    RC_ASSERT(got_declare.partition_count == declare.partition_count);
    RC_ASSERT(got_declare.created == declare.created);

    PubResult pub;
    pub.sequence = any_id<Sequence>();
    pub.durability = any_of(Durability::MIN_ISR);
    pub.leader_epoch = any_id<LeaderEpoch>();
    pub.commit_seq = any_id<Sequence>();
    pub.result_flags = any<std::uint8_t>();
    const PubResult got_pub = decode_pub_result(result_of(pub)).value();
    RC_ASSERT(got_pub.sequence == pub.sequence);
    RC_ASSERT(got_pub.durability == pub.durability);
    RC_ASSERT(got_pub.leader_epoch == pub.leader_epoch);
    RC_ASSERT(got_pub.commit_seq == pub.commit_seq);
    RC_ASSERT(got_pub.result_flags == pub.result_flags);

    SubResult sub;
    sub.subscription_id = any_id<SubscriptionId>();
    sub.member_id = any_id<MemberId>();
    sub.membership_epoch = any_id<MembershipEpoch>();
    sub.assignment_epoch = any_id<AssignmentEpoch>();
    const SubResult got_sub = decode_sub_result(result_of(sub)).value();
    RC_ASSERT(got_sub.subscription_id == sub.subscription_id);
    RC_ASSERT(got_sub.member_id == sub.member_id);
    RC_ASSERT(got_sub.membership_epoch == sub.membership_epoch);
    RC_ASSERT(got_sub.assignment_epoch == sub.assignment_epoch);

    CreditResult credit;
    credit.granted_count = any<std::uint16_t>();
    credit.granted_bytes = any<std::uint32_t>();
    credit.outstanding_count = any<std::uint16_t>();
    credit.outstanding_bytes = any<std::uint32_t>();
    credit.credit_epoch = any<std::uint64_t>();
    const CreditResult got_credit = decode_credit_result(result_of(credit)).value();
    RC_ASSERT(got_credit.granted_count == credit.granted_count);
    RC_ASSERT(got_credit.granted_bytes == credit.granted_bytes);
    RC_ASSERT(got_credit.outstanding_count == credit.outstanding_count);
    RC_ASSERT(got_credit.outstanding_bytes == credit.outstanding_bytes);
    RC_ASSERT(got_credit.credit_epoch == credit.credit_epoch);
}

RC_GTEST_PROP(WireProperty, random_bytes_are_decoded_or_malformed, ()) {
    const Bytes bytes = bytes_up_to(100);
    for (std::uint8_t op = FIRST_OP; op <= LAST_OP; ++op) {
        const Result<ByteVector> frame = reencode(op, view(bytes));
        if (!frame.ok()) {
            const bool is_other_version = op == static_cast<std::uint8_t>(Op::CONNECT) &&
                                          frame.is(ErrorCode::UNSUPPORTED_VERSION);
            RC_ASSERT((is_other_version || frame.is(ErrorCode::MALFORMED_PAYLOAD)));
            continue;
        }
        const ByteSpan payload = ByteSpan(*frame).subspan(FRAME_HEAD_BYTES);
        RC_ASSERT(payload.size() <= bytes.size());
        RC_ASSERT(same(payload, view(bytes).first(payload.size())));
    }
    for (const Op op : {Op::DECLARE, Op::PUB, Op::SUB, Op::CREDIT}) {
        const Result<ByteVector> frame = reencode_result(op, view(bytes));
        RC_ASSERT((frame.ok() || frame.is(ErrorCode::MALFORMED_PAYLOAD)));
    }
}

// However a stream is cut into segments and socket reads, the same frames come out of it.
RC_GTEST_PROP(WireProperty, frames_survive_any_segmentation, ()) {
    const auto lengths = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(
        rc::gen::inRange<std::uint32_t>(1, 50), rc::gen::inRange<std::uint32_t>(1, 5000),
        rc::gen::inRange<std::uint32_t>(1, 200'000)));
    ByteVector stream;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        ByteWriter to(stream);
        to.u32(lengths[i]);
        to.u8(static_cast<std::uint8_t>(i));
        stream.resize(stream.size() + lengths[i] - 1, static_cast<std::byte>(i * 7));
    }
    testing::ManualWorld world;
    testing::ScriptedConn conn(world);
    conn.read_bytes_max = *rc::gen::inRange<std::size_t>(500, 200'000);
    for (std::size_t sent = 0; sent < stream.size();) {
        const auto count =
            std::min(*rc::gen::inRange<std::size_t>(1, 100'000), stream.size() - sent);
        conn.send_at({}, ByteSpan(stream).subspan(sent, count));
        sent += count;
    }
    conn.close_at({});
    FrameBudget budget;
    FrameReader reader(conn, world.clock, budget);
    std::size_t right = 0;
    bool clean_end = false;
    const bool done = testing::run_fiber(world, [&](Fiber& fiber) {
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            const Result<FrameView> frame = reader.read(fiber, {});
            if (!frame.ok() || frame->op != static_cast<std::uint8_t>(i)) return;
            if (frame->payload.size() != lengths[i] - 1) return;
            for (const std::byte b : frame->payload)
                if (b != static_cast<std::byte>(i * 7)) return;
            ++right;
        }
        clean_end =
            reader.read(fiber, {}).is(ErrorCode::CONNECTION_CLOSED) && !reader.in_mid_frame();
    });
    RC_ASSERT(done);
    RC_ASSERT(right == lengths.size());
    RC_ASSERT(clean_end);
    RC_ASSERT(budget.used_bytes() == 0u);
}

}  // namespace
}  // namespace mortar::wire
