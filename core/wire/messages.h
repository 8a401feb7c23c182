// messages: the 15 ops as plain structs in byte order, their flag bits, enums and every limit.
// Shape:  reserved fields are no members: written as 0, checked to be 0. Byte fields are views.
// Units:  `*_bytes` in bytes, `*_ms` in milliseconds; ownership_epochs_len on the wire is a count.
// Owns:   nothing. A decoded message borrows the payload it was decoded from.
// Source: wire protocol v0 sections 1 and 2, contract 2 (S1, S2, S3, D2, P4, L1).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/env/clock.h"

namespace mortar::wire {

inline constexpr std::uint8_t WIRE_VERSION = 1;
inline constexpr std::uint32_t MAX_FRAME_LEN = 16 * 1024 * 1024;  // op byte + payload
inline constexpr std::uint32_t MAX_VALUE_LEN = MAX_FRAME_LEN - 1024;
inline constexpr std::uint32_t MAX_KEY_LEN = 255;
inline constexpr std::uint32_t MAX_TOPIC_LEN = 255;
inline constexpr std::uint32_t MAX_ERR_MESSAGE = 512;
inline constexpr std::uint32_t MAX_OK_RESULT_LEN = MAX_FRAME_LEN - 6;
inline constexpr std::uint32_t MAX_TOKEN_LEN = 4096;
// A dead letter's value carries an envelope head of at most this size in front of the original
// (contract L1).
inline constexpr std::uint32_t MAX_ENVELOPE_HEAD_LEN = 512;
inline constexpr std::uint32_t MAX_MSG_VALUE_LEN = MAX_VALUE_LEN + MAX_ENVELOPE_HEAD_LEN;

inline constexpr std::size_t LENGTH_BYTES = 4;                     // the u32 in front of each frame
inline constexpr std::size_t FRAME_HEAD_BYTES = LENGTH_BYTES + 1;  // length and op
inline constexpr std::uint32_t PRE_CONNECT_FRAME_LEN_MAX = 8 * 1024;

inline constexpr Duration KEEPALIVE = seconds(30);
inline constexpr Duration KEEPALIVE_LIMIT = seconds(45);  // without a complete frame
inline constexpr Duration HALF_FRAME_TIMEOUT = seconds(10);
inline constexpr std::size_t HALF_FRAME_RENEW_BYTES = 64 * 1024;
inline constexpr Duration CONNECT_TIMEOUT = seconds(10);
inline constexpr std::size_t UNFINISHED_FRAME_BYTES_MAX = 256 * 1024 * 1024;  // a node

enum class Op : std::uint8_t {
    CONNECT = 0x01,
    DECLARE = 0x02,
    PUB = 0x03,
    SUB = 0x04,
    ACK = 0x05,
    NACK = 0x06,
    PING = 0x07,
    ERR = 0x08,
    OK = 0x09,
    MSG = 0x0A,
    PULL = 0x0B,
    HEARTBEAT = 0x0C,
    NOTICE = 0x0D,
    CONTROL_ACK = 0x0E,
    CREDIT = 0x0F,
};
inline constexpr std::uint8_t FIRST_OP = 0x01;
inline constexpr std::uint8_t LAST_OP = 0x0F;
// request_op of an ERR for bytes of which no op was read.
inline constexpr std::uint8_t NO_OP = 0x00;

// False: the peer gets UNKNOWN_OP and the connection ends.
constexpr bool op_known(std::uint8_t op) {
    return op >= FIRST_OP && op <= LAST_OP;
}
// False for a known op: MALFORMED_PAYLOAD (contract S1).
constexpr bool client_may_send(Op op) {
    return op != Op::OK && op != Op::MSG && op != Op::NOTICE;
}
constexpr bool server_may_send(Op op) {
    return op == Op::OK || op == Op::ERR || op == Op::MSG || op == Op::NOTICE;
}
// The rest is NOT_AUTHENTICATED until CONNECT was answered with OK.
constexpr bool allowed_before_connect(Op op) {
    return op == Op::CONNECT || op == Op::PING || op == Op::ERR;
}
// Ops that get exactly one OK or ERR in their turn.
constexpr bool is_request(Op op) {
    return client_may_send(op) && op != Op::ERR;
}
// "PUB"; "op 0x42" needs formatting and is the caller's: unknown numbers give "unknown".
std::string_view op_name(std::uint8_t op);
inline std::string_view op_name(Op op) {
    return op_name(static_cast<std::uint8_t>(op));
}

// Bits of the u16 flags. A bit outside *_FLAGS_DEFINED is ignored and permits a tail (contract S2).
inline constexpr std::uint16_t CONNECT_FLAGS_DEFINED = 0;
inline constexpr std::uint16_t DECLARE_FLAG_DELETE = 1 << 0;
inline constexpr std::uint16_t DECLARE_FLAG_LOOKUP = 1 << 1;
inline constexpr std::uint16_t DECLARE_FLAG_GROUP = 1 << 2;
inline constexpr std::uint16_t DECLARE_FLAGS_DEFINED =
    DECLARE_FLAG_DELETE | DECLARE_FLAG_LOOKUP | DECLARE_FLAG_GROUP;
inline constexpr std::uint16_t PUB_FLAG_REPLAY = 1 << 0;
inline constexpr std::uint16_t PUB_FLAGS_DEFINED = PUB_FLAG_REPLAY;
inline constexpr std::uint16_t SUB_FLAGS_DEFINED = 0;
inline constexpr std::uint16_t ACK_FLAG_PROGRESS = 1 << 0;
inline constexpr std::uint16_t ACK_FLAGS_DEFINED = ACK_FLAG_PROGRESS;
inline constexpr std::uint16_t NACK_FLAGS_DEFINED = 0;
inline constexpr std::uint16_t MSG_FLAG_LAST = 1 << 0;
inline constexpr std::uint16_t MSG_FLAG_REPLAYED = 1 << 1;
inline constexpr std::uint16_t MSG_FLAGS_DEFINED = MSG_FLAG_LAST | MSG_FLAG_REPLAYED;
inline constexpr std::uint8_t RESULT_FLAG_DEDUPLICATED = 1 << 0;

enum class StartPolicy : std::uint8_t { EARLIEST = 0, LATEST = 1 };
enum class NackReason : std::uint8_t { RETRY = 0, REJECT = 1, REQUEUE = 2 };
enum class HeartbeatState : std::uint8_t { ACTIVE = 0, LEAVE = 1 };
enum class NoticeKind : std::uint8_t { ASSIGN = 0, REVOKE = 1 };
enum class ControlResult : std::uint8_t { OK = 0, STALE = 1, ERROR = 2 };
enum class CreditMode : std::uint8_t { SET = 0, ADD = 1 };
enum class Durability : std::uint8_t { LOCAL = 0, QUORUM = 1, MIN_ISR = 2 };
enum class DeclareOutcome : std::uint8_t { CREATED = 0, IDEMPOTENT_OK = 1 };

// The u64 list of PULL as it lies in the payload; an empty list means every owned partition.
class OwnershipEpochs {
  public:
    OwnershipEpochs() = default;
    // packed: big-endian u64s, borrowed; a whole number of them.
    explicit OwnershipEpochs(ByteSpan packed) : packed_(packed) {}

    std::size_t size() const { return packed_.size() / EPOCH_BYTES; }
    bool empty() const { return packed_.empty(); }
    OwnershipEpoch operator[](std::size_t index) const {
        return OwnershipEpoch(load_be<std::uint64_t>(packed_.data() + index * EPOCH_BYTES));
    }
    ByteSpan packed() const { return packed_; }
    // The bytes that a list of epochs becomes; for senders, who keep them while they encode.
    static ByteVector pack(std::span<const OwnershipEpoch> epochs);

    static constexpr std::size_t EPOCH_BYTES = 8;
    static constexpr std::size_t COUNT_MAX = 0xFFFF;

  private:
    ByteSpan packed_;
};

struct Connect {
    std::uint8_t protocol_version = WIRE_VERSION;
    std::uint16_t client_flags = 0;
    ByteSpan token;
};

// Name length and characters are judged by the handler (INVALID_TOPIC), not by the decoder.
struct Declare {
    std::string_view topic;
    std::uint16_t partition_count = 0;  // with DECLARE_FLAG_DELETE: the topic_id meant, 0 = any
    std::uint16_t flags = 0;
};

struct Pub {
    TopicId topic_id;
    PartitionIndex partition;
    ProducerId producer_id;
    ProducerSeq producer_seq;
    std::uint16_t flags = 0;
    ByteSpan key;
    ByteSpan value;
};

struct Sub {
    std::string_view group;
    TopicId topic_id;
    PartitionIndex partition = ANY_PARTITION;
    StartPolicy start_policy = StartPolicy::EARLIEST;
    std::uint16_t credit_count = 0;
    std::uint32_t credit_bytes = 0;
    std::uint16_t flags = 0;
};

struct Ack {
    SubscriptionId subscription_id;
    TopicId topic_id;
    PartitionIndex partition;
    Sequence seq;
    DeliveryId delivery_id;
    OwnershipEpoch ownership_epoch;
    std::uint16_t flags = 0;
};

struct Nack {
    SubscriptionId subscription_id;
    TopicId topic_id;
    PartitionIndex partition;
    Sequence seq;
    DeliveryId delivery_id;
    OwnershipEpoch ownership_epoch;
    NackReason reason = NackReason::RETRY;
    std::uint16_t flags = 0;
};

struct Ping {};

struct Err {
    std::uint16_t code = 0;           // a number: newer peers may know more than our ErrorCode
    std::uint8_t request_op = NO_OP;  // a number: it may echo an op that nobody knows
    std::string_view message;
};

struct Ok {
    Op request_op = Op::PING;  // a request
    ByteSpan result;
};

struct Msg {
    SubscriptionId subscription_id;
    TopicId topic_id;
    PartitionIndex partition;
    Sequence sequence;
    DeliveryId delivery_id;
    std::uint16_t attempt = 1;
    OwnershipEpoch ownership_epoch;
    ProducerId producer_id;
    ProducerSeq producer_seq;
    std::uint16_t flags = 0;
    ByteSpan key;
    ByteSpan value;
};

struct Pull {
    SubscriptionId subscription_id;
    MemberId member_id;
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
    OwnershipEpochs ownership_epochs;
    std::uint16_t max_msgs = 0;
    std::uint32_t max_bytes = 0;
    std::uint16_t wait_ms = 0;
    std::uint32_t min_bytes = 0;
};

struct Heartbeat {
    SubscriptionId subscription_id;
    MemberId member_id;
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
    HeartbeatState state = HeartbeatState::ACTIVE;
};

struct Notice {
    NoticeId notice_id;
    NoticeKind kind = NoticeKind::ASSIGN;
    GroupId group_id;
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
    OwnershipEpoch ownership_epoch;
    TopicId topic_id;
    PartitionIndex partition;
    MemberId member_id;
};

struct ControlAck {
    NoticeId notice_id;
    NoticeKind notice_kind = NoticeKind::ASSIGN;
    GroupId group_id;
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
    OwnershipEpoch ownership_epoch;
    ControlResult result = ControlResult::OK;
};

struct Credit {
    SubscriptionId subscription_id;
    MembershipEpoch membership_epoch;
    OwnershipEpoch ownership_epoch;
    CreditMode mode = CreditMode::SET;
    std::uint16_t credit_count = 0;
    std::uint32_t credit_bytes = 0;
};

// OK.result by request_op; every other request has an empty one.
struct DeclareResult {
    TopicId topic_id;
    std::uint16_t partition_count = 0;
    DeclareOutcome created = DeclareOutcome::CREATED;
};

struct PubResult {
    Sequence sequence;
    Durability durability = Durability::LOCAL;
    LeaderEpoch leader_epoch;
    Sequence commit_seq;
    std::uint8_t result_flags = 0;
};

struct SubResult {
    SubscriptionId subscription_id;
    MemberId member_id;
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
};

struct CreditResult {
    std::uint16_t granted_count = 0;
    std::uint32_t granted_bytes = 0;
    std::uint16_t outstanding_count = 0;
    std::uint32_t outstanding_bytes = 0;
    std::uint64_t credit_epoch = 0;
};

// Payload bytes without the variable parts (contract 2).
inline constexpr std::size_t CONNECT_FIXED_BYTES = 9;
inline constexpr std::size_t DECLARE_FIXED_BYTES = 6;
inline constexpr std::size_t PUB_FIXED_BYTES = 28;
inline constexpr std::size_t SUB_FIXED_BYTES = 15;
inline constexpr std::size_t ACK_BYTES = 32;
inline constexpr std::size_t NACK_BYTES = 33;
inline constexpr std::size_t ERR_FIXED_BYTES = 5;
inline constexpr std::size_t OK_FIXED_BYTES = 5;
inline constexpr std::size_t MSG_FIXED_BYTES = 56;
inline constexpr std::size_t PULL_FIXED_BYTES = 32;
inline constexpr std::size_t HEARTBEAT_BYTES = 19;
inline constexpr std::size_t NOTICE_BYTES = 39;
inline constexpr std::size_t CONTROL_ACK_BYTES = 28;
inline constexpr std::size_t CREDIT_BYTES = 25;
inline constexpr std::size_t DECLARE_RESULT_BYTES = 5;
inline constexpr std::size_t PUB_RESULT_BYTES = 26;
inline constexpr std::size_t SUB_RESULT_BYTES = 18;
inline constexpr std::size_t CREDIT_RESULT_BYTES = 20;

// covers SIZ-04: what may be published can be delivered, as a dead letter too.
static_assert(1 + PUB_FIXED_BYTES + MAX_KEY_LEN + MAX_VALUE_LEN <= MAX_FRAME_LEN);
static_assert(1 + MSG_FIXED_BYTES + MAX_KEY_LEN + MAX_MSG_VALUE_LEN <= MAX_FRAME_LEN);
static_assert(1 + OK_FIXED_BYTES + MAX_OK_RESULT_LEN == MAX_FRAME_LEN);
static_assert(1 + CONNECT_FIXED_BYTES + MAX_TOKEN_LEN <= PRE_CONNECT_FRAME_LEN_MAX);

}  // namespace mortar::wire
