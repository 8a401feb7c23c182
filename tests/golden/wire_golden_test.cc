// Frames written by hand from the specification: left of ';' the bytes, right of it the field. Each
// is decoded, its fields compared, and encoded again to the same bytes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/wire/codec.h"
#include "tests/unit/wire/any_message.h"

namespace mortar::wire {
namespace {
using testing::reencode;
using testing::reencode_result;

const char* const CONNECT_FRAME = R"(
    00 00 00 0F              ; length 15 = op + 9 + 5
    01                       ; CONNECT
    01                       ; protocol_version 1
    00 00                    ; client_flags
    00 05                    ; token_len
    74 6F 6B 65 6E           ; token "token"
    00 00 00 00              ; reserved
)";
const char* const CONNECT_EMPTY_TOKEN_FRAME = R"(
    00 00 00 0A              ; length 10 = op + 9
    01                       ; CONNECT
    01                       ; protocol_version 1
    00 00                    ; client_flags
    00 00                    ; token_len
    00 00 00 00              ; reserved
)";
const char* const DECLARE_FRAME = R"(
    00 00 00 0D              ; length 13 = op + 6 + 6
    02                       ; DECLARE
    00 06                    ; topic_len
    6F 72 64 65 72 73        ; topic "orders"
    00 04                    ; partition_count 4
    00 00                    ; flags
)";
const char* const DECLARE_DELETE_GROUP_FRAME = R"(
    00 00 00 08              ; length 8 = op + 6 + 1
    02                       ; DECLARE
    00 01                    ; topic_len
    67                       ; name of the group "g"
    01 02                    ; partition_count: the id meant, 258
    00 05                    ; flags DELETE + GROUP
)";
const char* const PUB_FRAME = R"(
    00 00 00 25              ; length 37 = op + 28 + 3 + 5
    03                       ; PUB
    00 01                    ; topic_id 1
    00 02                    ; partition 2
    01 02 03 04 05 06 07 08  ; producer_id
    00 00 00 00 00 00 00 2A  ; producer_seq 42
    00 01                    ; flags REPLAY
    00 03                    ; key_len
    6B 65 79                 ; key "key"
    00 00 00 05              ; value_len
    76 61 6C 75 65           ; value "value"
)";
const char* const PUB_EMPTY_FRAME = R"(
    00 00 00 1D              ; length 29 = op + 28
    03                       ; PUB
    FF FF                    ; topic_id 65535
    FF FF                    ; partition 0xFFFF: the broker chooses
    00 00 00 00 00 00 00 00  ; producer_id 0
    00 00 00 00 00 00 00 00  ; producer_seq 0
    00 00                    ; flags
    00 00                    ; key_len
    00 00 00 00              ; value_len
)";
const char* const SUB_FRAME = R"(
    00 00 00 17              ; length 23 = op + 15 + 7
    04                       ; SUB
    00 07                    ; group_len
    62 69 6C 6C 69 6E 67     ; group "billing"
    00 01                    ; topic_id 1
    FF FF                    ; partition 0xFFFF
    01                       ; start_policy LATEST
    01 00                    ; credit_count 256
    00 20 00 00              ; credit_bytes 2 MiB
    00 00                    ; flags
)";
const char* const ACK_FRAME = R"(
    00 00 00 21              ; length 33 = op + 32
    05                       ; ACK
    00 09                    ; subscription_id 9
    00 01                    ; topic_id 1
    00 03                    ; partition 3
    00 00 00 00 00 00 00 64  ; seq 100
    00 00 07 00 00 00 00 05  ; delivery_id
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    00 01                    ; flags PROGRESS
)";
const char* const NACK_FRAME = R"(
    00 00 00 22              ; length 34 = op + 33
    06                       ; NACK
    00 09                    ; subscription_id 9
    00 01                    ; topic_id 1
    00 03                    ; partition 3
    00 00 00 00 00 00 00 64  ; seq 100
    00 00 07 00 00 00 00 05  ; delivery_id
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    02                       ; reason REQUEUE
    00 00                    ; flags
)";
const char* const PING_FRAME = R"(
    00 00 00 01              ; length 1 = op
    07                       ; PING
)";
const char* const ERR_FROM_BROKER_FRAME = R"(
    00 00 00 13              ; length 19 = op + 5 + 13
    08                       ; ERR
    00 08                    ; code UNKNOWN_TOPIC
    04                       ; request_op SUB
    00 0D                    ; message_len
    44 45 43 4C 41 52 45 20 66 69 72 73 74  ; message "DECLARE first"
)";
const char* const ERR_NO_OP_FRAME = R"(
    00 00 00 06              ; length 6 = op + 5
    08                       ; ERR
    00 01                    ; code BAD_LENGTH
    00                       ; request_op: none was read
    00 00                    ; message_len
)";
const char* const ERR_FROM_CLIENT_FRAME = R"(
    00 00 00 09              ; length 9 = op + 5 + 3
    08                       ; ERR
    7F FF                    ; code that this version does not know
    0A                       ; request_op MSG
    00 03                    ; message_len
    62 75 67                 ; message "bug"
)";
const char* const OK_EMPTY_FRAME = R"(
    00 00 00 06              ; length 6 = op + 5
    09                       ; OK
    07                       ; request_op PING
    00 00 00 00              ; result_len
)";
const char* const OK_DECLARE_FRAME = R"(
    00 00 00 0B              ; length 11 = op + 5 + 5
    09                       ; OK
    02                       ; request_op DECLARE
    00 00 00 05              ; result_len
    00 03                    ; topic_id 3
    00 04                    ; partition_count 4
    01                       ; created IDEMPOTENT_OK
)";
const char* const OK_PUB_FRAME = R"(
    00 00 00 20              ; length 32 = op + 5 + 26
    09                       ; OK
    03                       ; request_op PUB
    00 00 00 1A              ; result_len 26
    00 00 00 00 00 00 00 07  ; sequence 7
    01                       ; durability QUORUM
    00 00 00 00 00 00 00 03  ; leader_epoch 3
    00 00 00 00 00 00 00 09  ; commit_seq 9
    01                       ; result_flags deduplicated
)";
const char* const OK_SUB_FRAME = R"(
    00 00 00 18              ; length 24 = op + 5 + 18
    09                       ; OK
    04                       ; request_op SUB
    00 00 00 12              ; result_len 18
    00 09                    ; subscription_id 9
    00 00 00 00 00 00 01 00  ; member_id 256
    00 00 00 05              ; membership_epoch 5
    00 00 00 06              ; assignment_epoch 6
)";
const char* const OK_CREDIT_FRAME = R"(
    00 00 00 1A              ; length 26 = op + 5 + 20
    09                       ; OK
    0F                       ; request_op CREDIT
    00 00 00 14              ; result_len 20
    01 00                    ; granted_count 256
    00 20 00 00              ; granted_bytes 2 MiB
    00 02                    ; outstanding_count 2
    00 00 08 00              ; outstanding_bytes 2048
    00 00 00 00 00 00 00 04  ; credit_epoch 4
)";
const char* const MSG_FRAME = R"(
    00 00 00 41              ; length 65 = op + 56 + 3 + 5
    0A                       ; MSG
    00 09                    ; subscription_id 9
    00 01                    ; topic_id 1
    00 03                    ; partition 3
    00 00 00 00 00 00 00 64  ; sequence 100
    00 00 07 00 00 00 00 05  ; delivery_id
    00 02                    ; attempt 2
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    01 02 03 04 05 06 07 08  ; producer_id
    00 00 00 00 00 00 00 2A  ; producer_seq 42
    00 03                    ; flags LAST + REPLAYED
    00 03                    ; key_len
    6B 65 79                 ; key "key"
    00 00 00 05              ; value_len
    76 61 6C 75 65           ; value "value"
)";
const char* const PULL_FRAME = R"(
    00 00 00 31              ; length 49 = op + 32 + 2 x 8
    0B                       ; PULL
    00 09                    ; subscription_id 9
    00 00 00 00 00 00 01 00  ; member_id 256
    00 00 00 05              ; membership_epoch 5
    00 00 00 06              ; assignment_epoch 6
    00 02                    ; ownership_epochs_len: 2 epochs
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    01 00 00 00 00 00 00 03  ; ownership_epoch 2^56 + 3
    00 40                    ; max_msgs 64
    00 10 00 00              ; max_bytes 1 MiB
    13 88                    ; wait_ms 5000
    00 00 00 01              ; min_bytes 1
)";
const char* const PULL_ALL_FRAME = R"(
    00 00 00 21              ; length 33 = op + 32
    0B                       ; PULL
    00 09                    ; subscription_id 9
    00 00 00 00 00 00 01 00  ; member_id 256
    00 00 00 05              ; membership_epoch 5
    00 00 00 06              ; assignment_epoch 6
    00 00                    ; ownership_epochs_len: all that are owned
    00 00                    ; max_msgs: credit alone
    00 00 00 00              ; max_bytes: credit alone
    00 00                    ; wait_ms
    00 00 00 00              ; min_bytes
)";
const char* const HEARTBEAT_FRAME = R"(
    00 00 00 14              ; length 20 = op + 19
    0C                       ; HEARTBEAT
    00 09                    ; subscription_id 9
    00 00 00 00 00 00 01 00  ; member_id 256
    00 00 00 05              ; membership_epoch 5
    00 00 00 06              ; assignment_epoch 6
    01                       ; state LEAVE
)";
const char* const NOTICE_FRAME = R"(
    00 00 00 28              ; length 40 = op + 39
    0D                       ; NOTICE
    00 00 00 00 00 00 00 0B  ; notice_id 11
    01                       ; kind REVOKE
    00 02                    ; group_id 2
    00 00 00 05              ; membership_epoch 5
    00 00 00 06              ; assignment_epoch 6
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    00 01                    ; topic_id 1
    00 03                    ; partition 3
    00 00 00 00 00 00 01 00  ; member_id 256
)";
const char* const CONTROL_ACK_FRAME = R"(
    00 00 00 1D              ; length 29 = op + 28
    0E                       ; CONTROL_ACK
    00 00 00 00 00 00 00 0B  ; notice_id 11
    01                       ; notice_kind REVOKE
    00 02                    ; group_id 2
    00 00 00 05              ; membership_epoch 5
    00 00 00 06              ; assignment_epoch 6
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    02                       ; result ERROR
)";
const char* const CREDIT_FRAME = R"(
    00 00 00 1A              ; length 26 = op + 25
    0F                       ; CREDIT
    00 09                    ; subscription_id 9
    00 00 00 05              ; membership_epoch 5
    00 00 00 00 00 00 00 02  ; ownership_epoch 2
    01                       ; mode ADD
    00 20                    ; credit_count 32
    00 04 00 00              ; credit_bytes 256 KiB
    00 00 00 00              ; reserved
)";

const std::vector<const char*> ALL_FRAMES = {CONNECT_FRAME,
                                             CONNECT_EMPTY_TOKEN_FRAME,
                                             DECLARE_FRAME,
                                             DECLARE_DELETE_GROUP_FRAME,
                                             PUB_FRAME,
                                             PUB_EMPTY_FRAME,
                                             SUB_FRAME,
                                             ACK_FRAME,
                                             NACK_FRAME,
                                             PING_FRAME,
                                             ERR_FROM_BROKER_FRAME,
                                             ERR_NO_OP_FRAME,
                                             OK_EMPTY_FRAME,
                                             OK_DECLARE_FRAME,
                                             OK_PUB_FRAME,
                                             OK_SUB_FRAME,
                                             OK_CREDIT_FRAME,
                                             MSG_FRAME,
                                             PULL_FRAME,
                                             PULL_ALL_FRAME,
                                             HEARTBEAT_FRAME,
                                             NOTICE_FRAME,
                                             CONTROL_ACK_FRAME,
                                             CREDIT_FRAME,
                                             ERR_FROM_CLIENT_FRAME};
const std::vector<const char*> FRAMES_WITH_RESULT = {OK_DECLARE_FRAME, OK_PUB_FRAME, OK_SUB_FRAME,
                                                     OK_CREDIT_FRAME};

ByteVector from_text(const char* text) {
    ByteVector bytes;
    int high = -1;
    bool in_comment = false;
    for (const char* at = text; *at != '\0'; ++at) {
        if (*at == ';') in_comment = true;
        if (*at == '\n') in_comment = false;
        const bool is_digit = (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'F');
        if (in_comment || !is_digit) continue;
        const int digit = *at <= '9' ? *at - '0' : *at - 'A' + 10;
        if (high >= 0) bytes.push_back(static_cast<std::byte>(high * 16 + digit));
        high = high >= 0 ? -1 : digit;
    }
    return bytes;
}

std::string to_text(ByteSpan bytes) {
    std::string text;
    for (const std::byte b : bytes) {
        static const char* const DIGITS = "0123456789ABCDEF";
        text += DIGITS[std::to_integer<int>(b) / 16];
        text += DIGITS[std::to_integer<int>(b) % 16];
        text += ' ';
    }
    return text;
}

struct Frame {
    explicit Frame(const char* text) : bytes(from_text(text)) {}
    Op op() const { return static_cast<Op>(bytes[LENGTH_BYTES]); }
    ByteSpan payload() const { return ByteSpan(bytes).subspan(FRAME_HEAD_BYTES); }
    ByteSpan result() const { return payload().subspan(OK_FIXED_BYTES); }
    ByteVector bytes;
};

ByteVector payload_of(const char* text) {
    const Frame frame(text);
    return ByteVector(frame.payload().begin(), frame.payload().end());
}

bool is_malformed(Op op, ByteSpan payload) {
    // A copy of exactly this size, so that a sanitizer sees a read past its end.
    const ByteVector exact(payload.begin(), payload.end());
    return reencode(static_cast<std::uint8_t>(op), exact).is(ErrorCode::MALFORMED_PAYLOAD);
}

TEST(WireGolden, every_frame_announces_its_length_and_comes_back_byte_for_byte) {
    for (const char* text : ALL_FRAMES) {
        const Frame frame(text);
        EXPECT_EQ(load_be<std::uint32_t>(frame.bytes.data()), frame.bytes.size() - LENGTH_BYTES)
            << text;
        const Result<ByteVector> again =
            reencode(static_cast<std::uint8_t>(frame.op()), frame.payload());
        ASSERT_TRUE(again.ok()) << again.error().to_string() << text;
        EXPECT_EQ(to_text(*again), to_text(frame.bytes)) << text;
    }
}

TEST(WireGolden, every_result_comes_back_byte_for_byte) {
    for (const char* text : FRAMES_WITH_RESULT) {
        const Frame frame(text);
        const Result<Ok> ok = decode_ok(frame.payload());
        ASSERT_TRUE(ok.ok()) << text;
        const Result<ByteVector> again = reencode_result(ok->request_op, ok->result);
        ASSERT_TRUE(again.ok()) << again.error().to_string() << text;
        EXPECT_EQ(to_text(*again), to_text(frame.bytes)) << text;
    }
    ByteVector ok_ping;
    encode_ok(ok_ping, Op::PING);
    EXPECT_EQ(to_text(ok_ping), to_text(from_text(OK_EMPTY_FRAME)));
}

TEST(WireGolden, the_vectors_cover_every_op) {
    std::vector<bool> seen(LAST_OP + 1);
    for (const char* text : ALL_FRAMES)
        seen[static_cast<std::size_t>(Frame(text).op())] = true;
    for (std::size_t op = FIRST_OP; op <= LAST_OP; ++op)
        EXPECT_TRUE(seen[op]) << op;
}

TEST(WireGolden, every_proper_prefix_of_a_payload_is_malformed) {
    for (const char* text : ALL_FRAMES) {
        const Frame frame(text);
        for (std::size_t size = 0; size < frame.payload().size(); ++size)
            EXPECT_TRUE(is_malformed(frame.op(), frame.payload().first(size))) << size << text;
    }
}

TEST(WireGolden, every_proper_prefix_of_a_result_is_malformed_and_a_tail_is_ignored) {
    for (const char* text : FRAMES_WITH_RESULT) {
        const Frame frame(text);
        const Op request_op = static_cast<Op>(frame.payload()[0]);
        for (std::size_t size = 0; size < frame.result().size(); ++size) {
            const ByteVector exact(frame.result().begin(),
                                   frame.result().begin() + static_cast<int>(size));
            EXPECT_TRUE(reencode_result(request_op, exact).is(ErrorCode::MALFORMED_PAYLOAD))
                << size << text;
        }
        ByteVector longer(frame.result().begin(), frame.result().end());
        longer.resize(longer.size() + 7, std::byte{0xEE});
        const Result<ByteVector> again = reencode_result(request_op, longer);
        ASSERT_TRUE(again.ok()) << text;
        EXPECT_EQ(to_text(*again), to_text(frame.bytes)) << text;
    }
}

TEST(WireGolden, every_single_trailing_byte_is_malformed) {
    for (const char* text : ALL_FRAMES) {
        const Frame frame(text);
        ByteVector longer(frame.payload().begin(), frame.payload().end());
        longer.push_back({});
        for (int value = 0; value < 256; ++value) {
            longer.back() = static_cast<std::byte>(value);
            EXPECT_TRUE(is_malformed(frame.op(), longer)) << value << text;
        }
    }
}

struct FlagField {
    const char* text;
    std::size_t offset;  // of flags in the payload
    std::uint16_t defined;
};
const std::vector<FlagField> FLAG_FIELDS = {
    {CONNECT_FRAME, 1, 0}, {DECLARE_FRAME, 10, 7}, {PUB_FRAME, 20, 1}, {SUB_FRAME, 20, 0},
    {ACK_FRAME, 30, 1},    {NACK_FRAME, 31, 0},    {MSG_FRAME, 48, 3}};

TEST(Contract, S2_an_undefined_flag_is_ignored_and_permits_a_tail) {
    for (const FlagField& field : FLAG_FIELDS) {
        for (int bit = 0; bit < 16; ++bit) {
            const std::uint16_t flag = static_cast<std::uint16_t>(1 << bit);
            Frame frame(field.text);
            store_be(frame.bytes.data() + FRAME_HEAD_BYTES + field.offset, flag);
            const auto op = static_cast<std::uint8_t>(frame.op());
            const Result<ByteVector> plain = reencode(op, frame.payload());
            ASSERT_TRUE(plain.ok()) << bit << field.text;
            EXPECT_EQ(to_text(*plain), to_text(frame.bytes)) << bit << field.text;

            ByteVector longer(frame.payload().begin(), frame.payload().end());
            longer.resize(longer.size() + 3, std::byte{0xAB});
            const bool is_defined = (field.defined & flag) != 0;
            const Result<ByteVector> with_tail = reencode(op, longer);
            ASSERT_EQ(with_tail.ok(), !is_defined) << bit << field.text;
            if (is_defined) continue;
            EXPECT_EQ(to_text(*with_tail), to_text(frame.bytes));
        }
    }
}

TEST(Contract, S2_a_tail_does_not_excuse_missing_fields) {
    for (const FlagField& field : FLAG_FIELDS) {
        Frame frame(field.text);
        store_be(frame.bytes.data() + FRAME_HEAD_BYTES + field.offset, std::uint16_t{0x8000});
        for (std::size_t size = 0; size < frame.payload().size(); ++size)
            EXPECT_TRUE(is_malformed(frame.op(), frame.payload().first(size)))
                << size << field.text;
    }
}

struct EnumField {
    const char* text;
    std::size_t offset;
    int last;
};

TEST(Contract, S1_an_enum_out_of_range_is_malformed) {
    const std::vector<EnumField> fields = {{SUB_FRAME, 13, 1},        {NACK_FRAME, 30, 2},
                                           {HEARTBEAT_FRAME, 18, 1},  {NOTICE_FRAME, 8, 1},
                                           {CONTROL_ACK_FRAME, 8, 1}, {CONTROL_ACK_FRAME, 27, 2},
                                           {CREDIT_FRAME, 14, 1}};
    for (const EnumField& field : fields) {
        Frame frame(field.text);
        for (int value = 0; value < 256; ++value) {
            frame.bytes[FRAME_HEAD_BYTES + field.offset] = static_cast<std::byte>(value);
            EXPECT_EQ(is_malformed(frame.op(), frame.payload()), value > field.last)
                << value << field.text;
        }
    }
}

TEST(Contract, S1_an_enum_out_of_range_in_a_result_is_malformed) {
    const std::vector<EnumField> fields = {{OK_DECLARE_FRAME, 4, 1}, {OK_PUB_FRAME, 8, 2}};
    for (const EnumField& field : fields) {
        const Frame frame(field.text);
        ByteVector result(frame.result().begin(), frame.result().end());
        for (int value = 0; value < 256; ++value) {
            result[field.offset] = static_cast<std::byte>(value);
            EXPECT_EQ(reencode_result(static_cast<Op>(frame.payload()[0]), result).ok(),
                      value <= field.last)
                << value << field.text;
        }
    }
}

TEST(Contract, S1_an_OK_answers_a_request_only) {
    Frame frame(OK_EMPTY_FRAME);
    for (int value = 0; value < 256; ++value) {
        frame.bytes[FRAME_HEAD_BYTES] = static_cast<std::byte>(value);
        const bool answered = value >= 0x01 && value <= 0x0F && value != 0x08 && value != 0x09 &&
                              value != 0x0A && value != 0x0D;
        EXPECT_EQ(is_malformed(Op::OK, frame.payload()), !answered) << value;
    }
}

TEST(Contract, S1_a_reserved_byte_that_is_not_zero_is_malformed) {
    for (const char* text : {CONNECT_FRAME, CREDIT_FRAME}) {
        const ByteVector payload = payload_of(text);
        for (std::size_t back = 1; back <= 4; ++back) {
            ByteVector changed = payload;
            changed[changed.size() - back] = std::byte{1};
            EXPECT_TRUE(is_malformed(Frame(text).op(), changed)) << back << text;
        }
    }
}

TEST(Contract, S3_another_version_is_told_by_its_first_byte_alone) {
    for (int version = 0; version < 256; ++version) {
        if (version == WIRE_VERSION) continue;
        ByteVector payload = payload_of(CONNECT_FRAME);
        payload[0] = static_cast<std::byte>(version);
        EXPECT_TRUE(decode_connect(payload).is(ErrorCode::UNSUPPORTED_VERSION)) << version;
        payload.resize(1);
        EXPECT_TRUE(decode_connect(payload).is(ErrorCode::UNSUPPORTED_VERSION)) << version;
    }
}

TEST(WireGolden, connect_fields) {
    const ByteVector payload = payload_of(CONNECT_FRAME);
    const Connect connect = decode_connect(payload).value();
    EXPECT_EQ(connect.protocol_version, 1);
    EXPECT_EQ(connect.client_flags, 0);
    EXPECT_EQ(as_string_view(connect.token), "token");
    const ByteVector empty = payload_of(CONNECT_EMPTY_TOKEN_FRAME);
    EXPECT_TRUE(decode_connect(empty).value().token.empty());
}

TEST(WireGolden, declare_fields) {
    const ByteVector payload = payload_of(DECLARE_FRAME);
    const Declare declare = decode_declare(payload).value();
    EXPECT_EQ(declare.topic, "orders");
    EXPECT_EQ(declare.partition_count, 4);
    EXPECT_EQ(declare.flags, 0);
    const ByteVector deleting = payload_of(DECLARE_DELETE_GROUP_FRAME);
    const Declare removal = decode_declare(deleting).value();
    EXPECT_EQ(removal.topic, "g");
    EXPECT_EQ(removal.partition_count, 258);
    EXPECT_EQ(removal.flags, DECLARE_FLAG_DELETE | DECLARE_FLAG_GROUP);
}

TEST(WireGolden, pub_fields) {
    const ByteVector payload = payload_of(PUB_FRAME);
    const Pub pub = decode_pub(payload).value();
    EXPECT_EQ(pub.topic_id, TopicId(1));
    EXPECT_EQ(pub.partition, PartitionIndex(2));
    EXPECT_EQ(pub.producer_id, ProducerId(0x0102030405060708));
    EXPECT_EQ(pub.producer_seq, ProducerSeq(42));
    EXPECT_EQ(pub.flags, PUB_FLAG_REPLAY);
    EXPECT_EQ(as_string_view(pub.key), "key");
    EXPECT_EQ(as_string_view(pub.value), "value");
    // Decoding borrows.
    EXPECT_EQ(pub.key.data(), payload.data() + 24);
    EXPECT_EQ(pub.value.data(), payload.data() + 31);
    const ByteVector empty = payload_of(PUB_EMPTY_FRAME);
    EXPECT_EQ(decode_pub(empty).value().partition, ANY_PARTITION);
}

TEST(WireGolden, sub_fields) {
    const ByteVector payload = payload_of(SUB_FRAME);
    const Sub sub = decode_sub(payload).value();
    EXPECT_EQ(sub.group, "billing");
    EXPECT_EQ(sub.topic_id, TopicId(1));
    EXPECT_EQ(sub.partition, ANY_PARTITION);
    EXPECT_EQ(sub.start_policy, StartPolicy::LATEST);
    EXPECT_EQ(sub.credit_count, 256);
    EXPECT_EQ(sub.credit_bytes, 2u * 1024 * 1024);
    EXPECT_EQ(sub.flags, 0);
}

TEST(WireGolden, ack_fields) {
    const ByteVector payload = payload_of(ACK_FRAME);
    const Ack ack = decode_ack(payload).value();
    EXPECT_EQ(ack.subscription_id, SubscriptionId(9));
    EXPECT_EQ(ack.topic_id, TopicId(1));
    EXPECT_EQ(ack.partition, PartitionIndex(3));
    EXPECT_EQ(ack.seq, Sequence(100));
    EXPECT_EQ(ack.delivery_id, DeliveryId(0x0000070000000005));
    EXPECT_EQ(ack.ownership_epoch, OwnershipEpoch(2));
    EXPECT_EQ(ack.flags, ACK_FLAG_PROGRESS);
}

TEST(WireGolden, nack_fields) {
    const ByteVector payload = payload_of(NACK_FRAME);
    const Nack nack = decode_nack(payload).value();
    EXPECT_EQ(nack.subscription_id, SubscriptionId(9));
    EXPECT_EQ(nack.topic_id, TopicId(1));
    EXPECT_EQ(nack.partition, PartitionIndex(3));
    EXPECT_EQ(nack.seq, Sequence(100));
    EXPECT_EQ(nack.delivery_id, DeliveryId(0x0000070000000005));
    EXPECT_EQ(nack.ownership_epoch, OwnershipEpoch(2));
    EXPECT_EQ(nack.reason, NackReason::REQUEUE);
    EXPECT_EQ(nack.flags, 0);
}

TEST(WireGolden, err_fields) {
    const ByteVector payload = payload_of(ERR_FROM_BROKER_FRAME);
    const Err err = decode_err(payload).value();
    EXPECT_EQ(err.code, static_cast<std::uint16_t>(ErrorCode::UNKNOWN_TOPIC));
    EXPECT_EQ(err.request_op, static_cast<std::uint8_t>(Op::SUB));
    EXPECT_EQ(err.message, "DECLARE first");
    ByteVector frame;
    encode_err(frame, ErrorCode::UNKNOWN_TOPIC, err.request_op, "DECLARE first");
    EXPECT_EQ(to_text(frame), to_text(from_text(ERR_FROM_BROKER_FRAME)));
    const ByteVector unread = payload_of(ERR_NO_OP_FRAME);
    EXPECT_EQ(decode_err(unread).value().request_op, NO_OP);
    const ByteVector from_client = payload_of(ERR_FROM_CLIENT_FRAME);
    EXPECT_EQ(decode_err(from_client).value().code, 0x7FFF);
}

TEST(WireGolden, result_fields) {
    const Frame declared(OK_DECLARE_FRAME);
    const DeclareResult declare = decode_declare_result(declared.result()).value();
    EXPECT_EQ(declare.topic_id, TopicId(3));
    EXPECT_EQ(declare.partition_count, 4);
    EXPECT_EQ(declare.created, DeclareOutcome::IDEMPOTENT_OK);

    const Frame published(OK_PUB_FRAME);
    const PubResult pub = decode_pub_result(published.result()).value();
    EXPECT_EQ(pub.sequence, Sequence(7));
    EXPECT_EQ(pub.durability, Durability::QUORUM);
    EXPECT_EQ(pub.leader_epoch, LeaderEpoch(3));
    EXPECT_EQ(pub.commit_seq, Sequence(9));
    EXPECT_EQ(pub.result_flags, RESULT_FLAG_DEDUPLICATED);

    const Frame subscribed(OK_SUB_FRAME);
    const SubResult sub = decode_sub_result(subscribed.result()).value();
    EXPECT_EQ(sub.subscription_id, SubscriptionId(9));
    EXPECT_EQ(sub.member_id, MemberId(256));
    EXPECT_EQ(sub.membership_epoch, MembershipEpoch(5));
    EXPECT_EQ(sub.assignment_epoch, AssignmentEpoch(6));

    const Frame credited(OK_CREDIT_FRAME);
    const CreditResult credit = decode_credit_result(credited.result()).value();
    EXPECT_EQ(credit.granted_count, 256);
    EXPECT_EQ(credit.granted_bytes, 2u * 1024 * 1024);
    EXPECT_EQ(credit.outstanding_count, 2);
    EXPECT_EQ(credit.outstanding_bytes, 2048u);
    EXPECT_EQ(credit.credit_epoch, 4u);
}

TEST(WireGolden, msg_fields) {
    const ByteVector payload = payload_of(MSG_FRAME);
    const Msg msg = decode_msg(payload).value();
    EXPECT_EQ(msg.subscription_id, SubscriptionId(9));
    EXPECT_EQ(msg.topic_id, TopicId(1));
    EXPECT_EQ(msg.partition, PartitionIndex(3));
    EXPECT_EQ(msg.sequence, Sequence(100));
    EXPECT_EQ(msg.delivery_id, DeliveryId(0x0000070000000005));
    EXPECT_EQ(msg.attempt, 2);
    EXPECT_EQ(msg.ownership_epoch, OwnershipEpoch(2));
    EXPECT_EQ(msg.producer_id, ProducerId(0x0102030405060708));
    EXPECT_EQ(msg.producer_seq, ProducerSeq(42));
    EXPECT_EQ(msg.flags, MSG_FLAG_LAST | MSG_FLAG_REPLAYED);
    EXPECT_EQ(as_string_view(msg.key), "key");
    EXPECT_EQ(as_string_view(msg.value), "value");
    EXPECT_EQ(msg.key.data(), payload.data() + 52);
}

TEST(WireGolden, pull_fields) {
    const ByteVector payload = payload_of(PULL_FRAME);
    const Pull pull = decode_pull(payload).value();
    EXPECT_EQ(pull.subscription_id, SubscriptionId(9));
    EXPECT_EQ(pull.member_id, MemberId(256));
    EXPECT_EQ(pull.membership_epoch, MembershipEpoch(5));
    EXPECT_EQ(pull.assignment_epoch, AssignmentEpoch(6));
    ASSERT_EQ(pull.ownership_epochs.size(), 2u);
    EXPECT_EQ(pull.ownership_epochs[0], OwnershipEpoch(2));
    EXPECT_EQ(pull.ownership_epochs[1], OwnershipEpoch((std::uint64_t{1} << 56) + 3));
    EXPECT_EQ(pull.max_msgs, 64);
    EXPECT_EQ(pull.max_bytes, 1024u * 1024);
    EXPECT_EQ(pull.wait_ms, 5000);
    EXPECT_EQ(pull.min_bytes, 1u);
    const ByteVector all = payload_of(PULL_ALL_FRAME);
    EXPECT_TRUE(decode_pull(all).value().ownership_epochs.empty());
}

TEST(WireGolden, heartbeat_fields) {
    const ByteVector payload = payload_of(HEARTBEAT_FRAME);
    const Heartbeat heartbeat = decode_heartbeat(payload).value();
    EXPECT_EQ(heartbeat.subscription_id, SubscriptionId(9));
    EXPECT_EQ(heartbeat.member_id, MemberId(256));
    EXPECT_EQ(heartbeat.membership_epoch, MembershipEpoch(5));
    EXPECT_EQ(heartbeat.assignment_epoch, AssignmentEpoch(6));
    EXPECT_EQ(heartbeat.state, HeartbeatState::LEAVE);
}

TEST(WireGolden, notice_fields) {
    const ByteVector payload = payload_of(NOTICE_FRAME);
    const Notice notice = decode_notice(payload).value();
    EXPECT_EQ(notice.notice_id, NoticeId(11));
    EXPECT_EQ(notice.kind, NoticeKind::REVOKE);
    EXPECT_EQ(notice.group_id, GroupId(2));
    EXPECT_EQ(notice.membership_epoch, MembershipEpoch(5));
    EXPECT_EQ(notice.assignment_epoch, AssignmentEpoch(6));
    EXPECT_EQ(notice.ownership_epoch, OwnershipEpoch(2));
    EXPECT_EQ(notice.topic_id, TopicId(1));
    EXPECT_EQ(notice.partition, PartitionIndex(3));
    EXPECT_EQ(notice.member_id, MemberId(256));
}

TEST(WireGolden, control_ack_fields) {
    const ByteVector payload = payload_of(CONTROL_ACK_FRAME);
    const ControlAck control_ack = decode_control_ack(payload).value();
    EXPECT_EQ(control_ack.notice_id, NoticeId(11));
    EXPECT_EQ(control_ack.notice_kind, NoticeKind::REVOKE);
    EXPECT_EQ(control_ack.group_id, GroupId(2));
    EXPECT_EQ(control_ack.membership_epoch, MembershipEpoch(5));
    EXPECT_EQ(control_ack.assignment_epoch, AssignmentEpoch(6));
    EXPECT_EQ(control_ack.ownership_epoch, OwnershipEpoch(2));
    EXPECT_EQ(control_ack.result, ControlResult::ERROR);
}

TEST(WireGolden, credit_fields) {
    const ByteVector payload = payload_of(CREDIT_FRAME);
    const Credit credit = decode_credit(payload).value();
    EXPECT_EQ(credit.subscription_id, SubscriptionId(9));
    EXPECT_EQ(credit.membership_epoch, MembershipEpoch(5));
    EXPECT_EQ(credit.ownership_epoch, OwnershipEpoch(2));
    EXPECT_EQ(credit.mode, CreditMode::ADD);
    EXPECT_EQ(credit.credit_count, 32);
    EXPECT_EQ(credit.credit_bytes, 256u * 1024);
}

}  // namespace
}  // namespace mortar::wire
