#include "core/wire/codec.h"

#include <algorithm>
#include <array>
#include <string>

namespace mortar::wire {
namespace {

// Walks a payload and remembers the first field that is wrong; later fields then read as zero.
class FieldReader {
  public:
    FieldReader(std::string_view message, ByteSpan payload)
        : message_(message), at_(payload.data()), left_(payload.size()) {}

    std::uint8_t u8(const char* field) { return number<std::uint8_t>(field); }
    std::uint16_t u16(const char* field) { return number<std::uint16_t>(field); }
    std::uint32_t u32(const char* field) { return number<std::uint32_t>(field); }
    std::uint64_t u64(const char* field) { return number<std::uint64_t>(field); }
    template <class Id>
    Id id(const char* field) {
        return Id(number<typename Id::rep>(field));
    }
    template <class Enum>
    Enum one_of(const char* field, Enum last) {
        const std::uint8_t value = u8(field);
        if (value > static_cast<std::uint8_t>(last)) [[unlikely]] {
            fail(field, std::to_string(value) + " is not a defined value");
            return Enum{};
        }
        return static_cast<Enum>(value);
    }
    void zero32(const char* field) {
        if (u32(field) != 0) [[unlikely]]
            fail(field, "must be 0");
    }
    template <class Length>
    std::size_t length(const char* field, std::size_t length_max) {
        const std::size_t value = number<Length>(field);
        if (value > length_max) [[unlikely]] {
            fail(field,
                 std::to_string(value) + " is above the limit " + std::to_string(length_max));
            return 0;
        }
        return value;
    }
    ByteSpan bytes(const char* field, std::size_t count) {
        if (count > left_) [[unlikely]] {
            fail(field, "its length says " + std::to_string(count) + " bytes, the frame has " +
                            std::to_string(left_) + " left");
            return {};
        }
        const ByteSpan view(at_, count);
        at_ += count;
        left_ -= count;
        return view;
    }
    std::string_view text(const char* field, std::size_t count) {
        return as_string_view(bytes(field, count));
    }

    // For ops without flags, and behind known flags only: nothing may follow.
    template <class Message>
    Result<Message> finish(const Message& message) {
        if (field_ == nullptr && left_ > 0) [[unlikely]]
            fail("tail", std::to_string(left_) + " bytes behind the last field");
        return finish_with_tail(message);
    }
    template <class Message>
    Result<Message> finish_flagged(const Message& message, std::uint16_t flags,
                                   std::uint16_t flags_defined) {
        const bool has_unknown_flag = (flags & ~flags_defined) != 0;
        return has_unknown_flag ? finish_with_tail(message) : finish(message);
    }
    template <class Message>
    Result<Message> finish_with_tail(const Message& message) {
        if (field_ != nullptr) [[unlikely]]
            return malformed();
        return message;
    }

    void fail(const char* field, std::string what) {
        if (field_ != nullptr) return;
        field_ = field;
        what_ = std::move(what);
        left_ = 0;
    }

  private:
    template <class T>
    T number(const char* field) {
        if (left_ < sizeof(T)) [[unlikely]] {
            fail(field, "the frame ends before it");
            return 0;
        }
        const T value = load_be<T>(at_);
        at_ += sizeof(T);
        left_ -= sizeof(T);
        return value;
    }
    Error malformed() const {
        std::string detail(message_);
        detail.append(" ").append(field_).append(": ").append(what_);
        return make_error(ErrorCode::MALFORMED_PAYLOAD, std::move(detail));
    }

    std::string_view message_;
    const std::byte* at_;
    std::size_t left_;
    const char* field_ = nullptr;  // the first wrong one
    std::string what_;
};

// Appends one frame: grows out once, then writes fields by place. The body stands behind them,
// written by finish_with_body or by the gather write of the caller.
class FrameWriter {
  public:
    enum class Body : bool { FOLLOWS_HERE, WRITTEN_BY_CALLER };

    FrameWriter(ByteVector& out, Op op, std::size_t field_bytes, std::size_t body_bytes = 0,
                Body body = Body::FOLLOWS_HERE)
        : out_(out) {
        const std::size_t frame_len = 1 + field_bytes + body_bytes;
        MORTAR_ASSERT(frame_len <= MAX_FRAME_LEN);
        const std::size_t start = out.size();
        const std::size_t head_end = start + LENGTH_BYTES + 1 + field_bytes;
        const std::size_t total = head_end + (body == Body::FOLLOWS_HERE ? body_bytes : 0);
        // An exact reserve each time would copy a batch once a frame.
        if (total > out.capacity())
            out.reserve(start == 0 ? total : std::max(total, out.capacity() * 2));
        out.resize(head_end);
        at_ = out.data() + start;
        end_ = out.data() + head_end;
        u32(static_cast<std::uint32_t>(frame_len));
        u8(static_cast<std::uint8_t>(op));
    }

    FrameWriter& u8(std::uint8_t value) { return number(value); }
    FrameWriter& u16(std::uint16_t value) { return number(value); }
    FrameWriter& u32(std::uint32_t value) { return number(value); }
    FrameWriter& u64(std::uint64_t value) { return number(value); }
    template <class Tag, class Rep>
    FrameWriter& id(StrongId<Tag, Rep> value) {
        return number(value.value);
    }
    template <class Enum>
    FrameWriter& code(Enum value) {
        return number(static_cast<std::uint8_t>(value));
    }
    FrameWriter& bytes(ByteSpan view) {
        if (!view.empty()) std::memcpy(at_, view.data(), view.size());
        at_ += view.size();
        return *this;
    }
    FrameWriter& text(std::string_view view) { return bytes(as_byte_span(view)); }
    // The field bytes promised are all written.
    void finish() const { MORTAR_ASSERT(at_ == end_); }
    void finish_with_body(ByteSpan view) {
        finish();
        out_.insert(out_.end(), view.begin(), view.end());
    }

  private:
    template <class T>
    FrameWriter& number(T value) {
        store_be(at_, value);
        at_ += sizeof(T);
        return *this;
    }

    ByteVector& out_;
    std::byte* at_ = nullptr;
    std::byte* end_ = nullptr;
};

std::uint16_t length16(std::size_t size, std::size_t size_max) {
    MORTAR_ASSERT(size <= size_max);
    return static_cast<std::uint16_t>(size);
}
std::uint32_t length32(std::size_t size, std::size_t size_max) {
    MORTAR_ASSERT(size <= size_max);
    return static_cast<std::uint32_t>(size);
}

constexpr std::size_t NAME_LEN_MAX = 0xFFFF;  // of the u16 in front of it

FrameWriter write_fields(ByteVector& out, const Pub& pub, FrameWriter::Body body) {
    FrameWriter to(out, Op::PUB, PUB_FIXED_BYTES + pub.key.size(), pub.value.size(), body);
    to.id(pub.topic_id).id(pub.partition).id(pub.producer_id).id(pub.producer_seq).u16(pub.flags);
    to.u16(length16(pub.key.size(), MAX_KEY_LEN)).bytes(pub.key);
    to.u32(length32(pub.value.size(), MAX_VALUE_LEN));
    return to;
}

FrameWriter write_fields(ByteVector& out, const Msg& msg, FrameWriter::Body body) {
    FrameWriter to(out, Op::MSG, MSG_FIXED_BYTES + msg.key.size(), msg.value.size(), body);
    to.id(msg.subscription_id).id(msg.topic_id).id(msg.partition).id(msg.sequence);
    to.id(msg.delivery_id).u16(msg.attempt).id(msg.ownership_epoch);
    to.id(msg.producer_id).id(msg.producer_seq).u16(msg.flags);
    to.u16(length16(msg.key.size(), MAX_KEY_LEN)).bytes(msg.key);
    to.u32(length32(msg.value.size(), MAX_MSG_VALUE_LEN));
    return to;
}

// text of at most size_max bytes that does not end inside a UTF-8 character.
std::string_view cut_text(std::string_view text, std::size_t size_max) {
    if (text.size() <= size_max) return text;
    std::size_t end = size_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;
    return text.substr(0, end);
}

FrameWriter start_ok(ByteVector& out, Op request_op, std::size_t result_bytes) {
    MORTAR_ASSERT(is_request(request_op));
    FrameWriter to(out, Op::OK, OK_FIXED_BYTES + result_bytes);
    to.code(request_op).u32(static_cast<std::uint32_t>(result_bytes));
    return to;
}

}  // namespace

std::string_view op_name(std::uint8_t op) {
    static constexpr std::array<std::string_view, LAST_OP + 1> NAMES = {
        "unknown", "CONNECT", "DECLARE", "PUB",  "SUB",       "ACK",    "NACK",        "PING",
        "ERR",     "OK",      "MSG",     "PULL", "HEARTBEAT", "NOTICE", "CONTROL_ACK", "CREDIT"};
    return op_known(op) ? NAMES[op] : NAMES[NO_OP];
}

ByteVector OwnershipEpochs::pack(std::span<const OwnershipEpoch> epochs) {
    ByteVector packed(epochs.size() * EPOCH_BYTES);
    for (std::size_t i = 0; i < epochs.size(); ++i)
        store_be(packed.data() + i * EPOCH_BYTES, epochs[i].value);
    return packed;
}

Result<Connect> decode_connect(ByteSpan payload) {
    FieldReader in("CONNECT", payload);
    Connect connect;
    connect.protocol_version = in.u8("protocol_version");
    if (!payload.empty() && connect.protocol_version != WIRE_VERSION)
        return make_error(ErrorCode::UNSUPPORTED_VERSION,
                          "CONNECT protocol_version " + std::to_string(connect.protocol_version) +
                              ": this broker speaks " + std::to_string(WIRE_VERSION));
    connect.client_flags = in.u16("client_flags");
    connect.token = in.bytes("token", in.length<std::uint16_t>("token_len", MAX_TOKEN_LEN));
    in.zero32("reserved");
    return in.finish_flagged(connect, connect.client_flags, CONNECT_FLAGS_DEFINED);
}

Result<Declare> decode_declare(ByteSpan payload) {
    FieldReader in("DECLARE", payload);
    Declare declare;
    declare.topic = in.text("topic", in.u16("topic_len"));
    declare.partition_count = in.u16("partition_count");
    declare.flags = in.u16("flags");
    return in.finish_flagged(declare, declare.flags, DECLARE_FLAGS_DEFINED);
}

Result<Pub> decode_pub(ByteSpan payload) {
    FieldReader in("PUB", payload);
    Pub pub;
    pub.topic_id = in.id<TopicId>("topic_id");
    pub.partition = in.id<PartitionIndex>("partition");
    pub.producer_id = in.id<ProducerId>("producer_id");
    pub.producer_seq = in.id<ProducerSeq>("producer_seq");
    pub.flags = in.u16("flags");
    pub.key = in.bytes("key", in.length<std::uint16_t>("key_len", MAX_KEY_LEN));
    pub.value = in.bytes("value", in.length<std::uint32_t>("value_len", MAX_VALUE_LEN));
    return in.finish_flagged(pub, pub.flags, PUB_FLAGS_DEFINED);
}

Result<Sub> decode_sub(ByteSpan payload) {
    FieldReader in("SUB", payload);
    Sub sub;
    sub.group = in.text("group", in.u16("group_len"));
    sub.topic_id = in.id<TopicId>("topic_id");
    sub.partition = in.id<PartitionIndex>("partition");
    sub.start_policy = in.one_of("start_policy", StartPolicy::LATEST);
    sub.credit_count = in.u16("credit_count");
    sub.credit_bytes = in.u32("credit_bytes");
    sub.flags = in.u16("flags");
    return in.finish_flagged(sub, sub.flags, SUB_FLAGS_DEFINED);
}

Result<Ack> decode_ack(ByteSpan payload) {
    FieldReader in("ACK", payload);
    Ack ack;
    ack.subscription_id = in.id<SubscriptionId>("subscription_id");
    ack.topic_id = in.id<TopicId>("topic_id");
    ack.partition = in.id<PartitionIndex>("partition");
    ack.seq = in.id<Sequence>("seq");
    ack.delivery_id = in.id<DeliveryId>("delivery_id");
    ack.ownership_epoch = in.id<OwnershipEpoch>("ownership_epoch");
    ack.flags = in.u16("flags");
    return in.finish_flagged(ack, ack.flags, ACK_FLAGS_DEFINED);
}

Result<Nack> decode_nack(ByteSpan payload) {
    FieldReader in("NACK", payload);
    Nack nack;
    nack.subscription_id = in.id<SubscriptionId>("subscription_id");
    nack.topic_id = in.id<TopicId>("topic_id");
    nack.partition = in.id<PartitionIndex>("partition");
    nack.seq = in.id<Sequence>("seq");
    nack.delivery_id = in.id<DeliveryId>("delivery_id");
    nack.ownership_epoch = in.id<OwnershipEpoch>("ownership_epoch");
    nack.reason = in.one_of("reason", NackReason::REQUEUE);
    nack.flags = in.u16("flags");
    return in.finish_flagged(nack, nack.flags, NACK_FLAGS_DEFINED);
}

Result<Ping> decode_ping(ByteSpan payload) {
    return FieldReader("PING", payload).finish(Ping{});
}

Result<Err> decode_err(ByteSpan payload) {
    FieldReader in("ERR", payload);
    Err err;
    err.code = in.u16("code");
    err.request_op = in.u8("request_op");
    err.message = in.text("message", in.length<std::uint16_t>("message_len", MAX_ERR_MESSAGE));
    return in.finish(err);
}

Result<Ok> decode_ok(ByteSpan payload) {
    FieldReader in("OK", payload);
    Ok ok;
    ok.request_op = in.one_of("request_op", Op::CREDIT);
    if (!op_known(static_cast<std::uint8_t>(ok.request_op)) || !is_request(ok.request_op))
        in.fail("request_op", "is not an op that is answered by OK");
    ok.result = in.bytes("result", in.length<std::uint32_t>("result_len", MAX_OK_RESULT_LEN));
    return in.finish(ok);
}

Result<Msg> decode_msg(ByteSpan payload) {
    FieldReader in("MSG", payload);
    Msg msg;
    msg.subscription_id = in.id<SubscriptionId>("subscription_id");
    msg.topic_id = in.id<TopicId>("topic_id");
    msg.partition = in.id<PartitionIndex>("partition");
    msg.sequence = in.id<Sequence>("sequence");
    msg.delivery_id = in.id<DeliveryId>("delivery_id");
    msg.attempt = in.u16("attempt");
    msg.ownership_epoch = in.id<OwnershipEpoch>("ownership_epoch");
    msg.producer_id = in.id<ProducerId>("producer_id");
    msg.producer_seq = in.id<ProducerSeq>("producer_seq");
    msg.flags = in.u16("flags");
    msg.key = in.bytes("key", in.length<std::uint16_t>("key_len", MAX_KEY_LEN));
    msg.value = in.bytes("value", in.length<std::uint32_t>("value_len", MAX_MSG_VALUE_LEN));
    return in.finish_flagged(msg, msg.flags, MSG_FLAGS_DEFINED);
}

Result<Pull> decode_pull(ByteSpan payload) {
    FieldReader in("PULL", payload);
    Pull pull;
    pull.subscription_id = in.id<SubscriptionId>("subscription_id");
    pull.member_id = in.id<MemberId>("member_id");
    pull.membership_epoch = in.id<MembershipEpoch>("membership_epoch");
    pull.assignment_epoch = in.id<AssignmentEpoch>("assignment_epoch");
    const std::size_t epoch_count = in.u16("ownership_epochs_len");
    pull.ownership_epochs =
        OwnershipEpochs(in.bytes("ownership_epochs", epoch_count * OwnershipEpochs::EPOCH_BYTES));
    pull.max_msgs = in.u16("max_msgs");
    pull.max_bytes = in.u32("max_bytes");
    pull.wait_ms = in.u16("wait_ms");
    pull.min_bytes = in.u32("min_bytes");
    return in.finish(pull);
}

Result<Heartbeat> decode_heartbeat(ByteSpan payload) {
    FieldReader in("HEARTBEAT", payload);
    Heartbeat heartbeat;
    heartbeat.subscription_id = in.id<SubscriptionId>("subscription_id");
    heartbeat.member_id = in.id<MemberId>("member_id");
    heartbeat.membership_epoch = in.id<MembershipEpoch>("membership_epoch");
    heartbeat.assignment_epoch = in.id<AssignmentEpoch>("assignment_epoch");
    heartbeat.state = in.one_of("state", HeartbeatState::LEAVE);
    return in.finish(heartbeat);
}

Result<Notice> decode_notice(ByteSpan payload) {
    FieldReader in("NOTICE", payload);
    Notice notice;
    notice.notice_id = in.id<NoticeId>("notice_id");
    notice.kind = in.one_of("kind", NoticeKind::REVOKE);
    notice.group_id = in.id<GroupId>("group_id");
    notice.membership_epoch = in.id<MembershipEpoch>("membership_epoch");
    notice.assignment_epoch = in.id<AssignmentEpoch>("assignment_epoch");
    notice.ownership_epoch = in.id<OwnershipEpoch>("ownership_epoch");
    notice.topic_id = in.id<TopicId>("topic_id");
    notice.partition = in.id<PartitionIndex>("partition");
    notice.member_id = in.id<MemberId>("member_id");
    return in.finish(notice);
}

Result<ControlAck> decode_control_ack(ByteSpan payload) {
    FieldReader in("CONTROL_ACK", payload);
    ControlAck control_ack;
    control_ack.notice_id = in.id<NoticeId>("notice_id");
    control_ack.notice_kind = in.one_of("notice_kind", NoticeKind::REVOKE);
    control_ack.group_id = in.id<GroupId>("group_id");
    control_ack.membership_epoch = in.id<MembershipEpoch>("membership_epoch");
    control_ack.assignment_epoch = in.id<AssignmentEpoch>("assignment_epoch");
    control_ack.ownership_epoch = in.id<OwnershipEpoch>("ownership_epoch");
    control_ack.result = in.one_of("result", ControlResult::ERROR);
    return in.finish(control_ack);
}

Result<Credit> decode_credit(ByteSpan payload) {
    FieldReader in("CREDIT", payload);
    Credit credit;
    credit.subscription_id = in.id<SubscriptionId>("subscription_id");
    credit.membership_epoch = in.id<MembershipEpoch>("membership_epoch");
    credit.ownership_epoch = in.id<OwnershipEpoch>("ownership_epoch");
    credit.mode = in.one_of("mode", CreditMode::ADD);
    credit.credit_count = in.u16("credit_count");
    credit.credit_bytes = in.u32("credit_bytes");
    in.zero32("reserved");
    return in.finish(credit);
}

Result<DeclareResult> decode_declare_result(ByteSpan result) {
    FieldReader in("DECLARE result", result);
    DeclareResult declare;
    declare.topic_id = in.id<TopicId>("topic_id");
    declare.partition_count = in.u16("partition_count");
    declare.created = in.one_of("created", DeclareOutcome::IDEMPOTENT_OK);
    return in.finish_with_tail(declare);
}

Result<PubResult> decode_pub_result(ByteSpan result) {
    FieldReader in("PUB result", result);
    PubResult pub;
    pub.sequence = in.id<Sequence>("sequence");
    pub.durability = in.one_of("durability", Durability::MIN_ISR);
    pub.leader_epoch = in.id<LeaderEpoch>("leader_epoch");
    pub.commit_seq = in.id<Sequence>("commit_seq");
    pub.result_flags = in.u8("result_flags");
    return in.finish_with_tail(pub);
}

Result<SubResult> decode_sub_result(ByteSpan result) {
    FieldReader in("SUB result", result);
    SubResult sub;
    sub.subscription_id = in.id<SubscriptionId>("subscription_id");
    sub.member_id = in.id<MemberId>("member_id");
    sub.membership_epoch = in.id<MembershipEpoch>("membership_epoch");
    sub.assignment_epoch = in.id<AssignmentEpoch>("assignment_epoch");
    return in.finish_with_tail(sub);
}

Result<CreditResult> decode_credit_result(ByteSpan result) {
    FieldReader in("CREDIT result", result);
    CreditResult credit;
    credit.granted_count = in.u16("granted_count");
    credit.granted_bytes = in.u32("granted_bytes");
    credit.outstanding_count = in.u16("outstanding_count");
    credit.outstanding_bytes = in.u32("outstanding_bytes");
    credit.credit_epoch = in.u64("credit_epoch");
    return in.finish_with_tail(credit);
}

void encode(ByteVector& out, const Connect& connect) {
    FrameWriter to(out, Op::CONNECT, CONNECT_FIXED_BYTES + connect.token.size());
    to.u8(connect.protocol_version).u16(connect.client_flags);
    to.u16(length16(connect.token.size(), MAX_TOKEN_LEN)).bytes(connect.token).u32(0).finish();
}

void encode(ByteVector& out, const Declare& declare) {
    FrameWriter to(out, Op::DECLARE, DECLARE_FIXED_BYTES + declare.topic.size());
    to.u16(length16(declare.topic.size(), NAME_LEN_MAX)).text(declare.topic);
    to.u16(declare.partition_count).u16(declare.flags).finish();
}

void encode(ByteVector& out, const Pub& pub) {
    write_fields(out, pub, FrameWriter::Body::FOLLOWS_HERE).finish_with_body(pub.value);
}

void encode(ByteVector& out, const Sub& sub) {
    FrameWriter to(out, Op::SUB, SUB_FIXED_BYTES + sub.group.size());
    to.u16(length16(sub.group.size(), NAME_LEN_MAX)).text(sub.group);
    to.id(sub.topic_id).id(sub.partition).code(sub.start_policy);
    to.u16(sub.credit_count).u32(sub.credit_bytes).u16(sub.flags).finish();
}

void encode(ByteVector& out, const Ack& ack) {
    FrameWriter to(out, Op::ACK, ACK_BYTES);
    to.id(ack.subscription_id).id(ack.topic_id).id(ack.partition).id(ack.seq);
    to.id(ack.delivery_id).id(ack.ownership_epoch).u16(ack.flags).finish();
}

void encode(ByteVector& out, const Nack& nack) {
    FrameWriter to(out, Op::NACK, NACK_BYTES);
    to.id(nack.subscription_id).id(nack.topic_id).id(nack.partition).id(nack.seq);
    to.id(nack.delivery_id).id(nack.ownership_epoch).code(nack.reason).u16(nack.flags).finish();
}

void encode(ByteVector& out, const Ping&) {
    FrameWriter(out, Op::PING, 0).finish();
}

void encode(ByteVector& out, const Err& err) {
    const std::string_view message = cut_text(err.message, MAX_ERR_MESSAGE);
    FrameWriter to(out, Op::ERR, ERR_FIXED_BYTES + message.size());
    to.u16(err.code).u8(err.request_op);
    to.u16(length16(message.size(), MAX_ERR_MESSAGE)).text(message).finish();
}

void encode(ByteVector& out, const Ok& ok) {
    MORTAR_ASSERT(is_request(ok.request_op));
    FrameWriter to(out, Op::OK, OK_FIXED_BYTES, ok.result.size());
    to.code(ok.request_op).u32(length32(ok.result.size(), MAX_OK_RESULT_LEN));
    to.finish_with_body(ok.result);
}

void encode(ByteVector& out, const Msg& msg) {
    write_fields(out, msg, FrameWriter::Body::FOLLOWS_HERE).finish_with_body(msg.value);
}

void encode(ByteVector& out, const Pull& pull) {
    const ByteSpan packed = pull.ownership_epochs.packed();
    MORTAR_ASSERT(packed.size() % OwnershipEpochs::EPOCH_BYTES == 0);
    FrameWriter to(out, Op::PULL, PULL_FIXED_BYTES + packed.size());
    to.id(pull.subscription_id).id(pull.member_id);
    to.id(pull.membership_epoch).id(pull.assignment_epoch);
    to.u16(length16(pull.ownership_epochs.size(), OwnershipEpochs::COUNT_MAX)).bytes(packed);
    to.u16(pull.max_msgs).u32(pull.max_bytes).u16(pull.wait_ms).u32(pull.min_bytes).finish();
}

void encode(ByteVector& out, const Heartbeat& heartbeat) {
    FrameWriter to(out, Op::HEARTBEAT, HEARTBEAT_BYTES);
    to.id(heartbeat.subscription_id).id(heartbeat.member_id);
    to.id(heartbeat.membership_epoch).id(heartbeat.assignment_epoch).code(heartbeat.state).finish();
}

void encode(ByteVector& out, const Notice& notice) {
    FrameWriter to(out, Op::NOTICE, NOTICE_BYTES);
    to.id(notice.notice_id).code(notice.kind).id(notice.group_id);
    to.id(notice.membership_epoch).id(notice.assignment_epoch).id(notice.ownership_epoch);
    to.id(notice.topic_id).id(notice.partition).id(notice.member_id).finish();
}

void encode(ByteVector& out, const ControlAck& control_ack) {
    FrameWriter to(out, Op::CONTROL_ACK, CONTROL_ACK_BYTES);
    to.id(control_ack.notice_id).code(control_ack.notice_kind).id(control_ack.group_id);
    to.id(control_ack.membership_epoch).id(control_ack.assignment_epoch);
    to.id(control_ack.ownership_epoch).code(control_ack.result).finish();
}

void encode(ByteVector& out, const Credit& credit) {
    FrameWriter to(out, Op::CREDIT, CREDIT_BYTES);
    to.id(credit.subscription_id).id(credit.membership_epoch).id(credit.ownership_epoch);
    to.code(credit.mode).u16(credit.credit_count).u32(credit.credit_bytes).u32(0).finish();
}

void encode_head(ByteVector& out, const Pub& pub) {
    write_fields(out, pub, FrameWriter::Body::WRITTEN_BY_CALLER).finish();
}

void encode_head(ByteVector& out, const Msg& msg) {
    write_fields(out, msg, FrameWriter::Body::WRITTEN_BY_CALLER).finish();
}

void encode_err(ByteVector& out, ErrorCode code, std::uint8_t request_op,
                std::string_view message) {
    MORTAR_ASSERT(!is_local(code));
    encode(out, Err{static_cast<std::uint16_t>(code), request_op, message});
}

void encode_ok(ByteVector& out, const DeclareResult& result) {
    FrameWriter to = start_ok(out, Op::DECLARE, DECLARE_RESULT_BYTES);
    to.id(result.topic_id).u16(result.partition_count).code(result.created).finish();
}

void encode_ok(ByteVector& out, const PubResult& result) {
    FrameWriter to = start_ok(out, Op::PUB, PUB_RESULT_BYTES);
    to.id(result.sequence).code(result.durability).id(result.leader_epoch);
    to.id(result.commit_seq).u8(result.result_flags).finish();
}

void encode_ok(ByteVector& out, const SubResult& result) {
    FrameWriter to = start_ok(out, Op::SUB, SUB_RESULT_BYTES);
    to.id(result.subscription_id).id(result.member_id);
    to.id(result.membership_epoch).id(result.assignment_epoch).finish();
}

void encode_ok(ByteVector& out, const CreditResult& result) {
    FrameWriter to = start_ok(out, Op::CREDIT, CREDIT_RESULT_BYTES);
    to.u16(result.granted_count).u32(result.granted_bytes);
    to.u16(result.outstanding_count).u32(result.outstanding_bytes);
    to.u64(result.credit_epoch).finish();
}

void encode_ok(ByteVector& out, Op request_op) {
    start_ok(out, request_op, 0).finish();
}

}  // namespace mortar::wire
