#include "core/wire/codec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/wire/any_message.h"

namespace mortar::wire {
namespace {

ByteSpan payload_of(const ByteVector& frame) {
    return ByteSpan(frame).subspan(FRAME_HEAD_BYTES);
}

template <class Message>
ByteVector frame_of(const Message& message) {
    ByteVector frame;
    encode(frame, message);
    return frame;
}

TEST(Codec, payload_sizes_are_those_of_the_contract) {
    const ByteVector bytes(3);
    const auto payload_bytes = [](const auto& message) {
        return payload_of(frame_of(message)).size();
    };
    EXPECT_EQ(payload_bytes(Connect{WIRE_VERSION, 0, bytes}), 9u + 3);
    EXPECT_EQ(payload_bytes(Declare{"abc", 1, 0}), 6u + 3);
    Pub pub;
    pub.key = bytes;
    pub.value = bytes;
    EXPECT_EQ(payload_bytes(pub), 28u + 6);
    Sub sub;
    sub.group = "abc";
    EXPECT_EQ(payload_bytes(sub), 15u + 3);
    EXPECT_EQ(payload_bytes(Ack{}), 32u);
    EXPECT_EQ(payload_bytes(Nack{}), 33u);
    EXPECT_EQ(payload_bytes(Ping{}), 0u);
    EXPECT_EQ(payload_bytes(Err{1, 1, "abc"}), 5u + 3);
    EXPECT_EQ(payload_bytes(Ok{Op::PUB, bytes}), 5u + 3);
    Msg msg;
    msg.key = bytes;
    msg.value = bytes;
    EXPECT_EQ(payload_bytes(msg), 56u + 6);
    const ByteVector epochs(3 * 8);
    Pull pull;
    pull.ownership_epochs = OwnershipEpochs(epochs);
    EXPECT_EQ(payload_bytes(pull), 32u + 3 * 8);
    EXPECT_EQ(payload_bytes(Heartbeat{}), 19u);
    EXPECT_EQ(payload_bytes(Notice{}), 39u);
    EXPECT_EQ(payload_bytes(ControlAck{}), 28u);
    EXPECT_EQ(payload_bytes(Credit{}), 25u);
}

TEST(Contract, P5_key_and_value_have_limits) {
    const ByteVector big(MAX_MSG_VALUE_LEN + 1);
    const auto with = [&](Op op, std::size_t key_len, std::size_t value_len) {
        ByteVector payload(op == Op::PUB ? 22 : 50);
        ByteWriter to(payload);
        to.u16(static_cast<std::uint16_t>(key_len));
        to.bytes(ByteSpan(big).first(key_len));
        to.u32(static_cast<std::uint32_t>(value_len));
        to.bytes(ByteSpan(big).first(value_len));
        return op == Op::PUB ? decode_pub(payload).ok() : decode_msg(payload).ok();
    };
    EXPECT_TRUE(with(Op::PUB, 255, 0));
    EXPECT_FALSE(with(Op::PUB, 256, 0));
    EXPECT_TRUE(with(Op::PUB, 255, MAX_VALUE_LEN));
    EXPECT_FALSE(with(Op::PUB, 0, MAX_VALUE_LEN + 1));
    EXPECT_TRUE(with(Op::MSG, 255, 0));
    EXPECT_FALSE(with(Op::MSG, 256, 0));
    // Contract L1: a dead letter is larger than the message that died, by its envelope.
    EXPECT_TRUE(with(Op::MSG, 255, MAX_MSG_VALUE_LEN));
    EXPECT_FALSE(with(Op::MSG, 0, MAX_MSG_VALUE_LEN + 1));
}

TEST(Contract, S3_a_token_has_at_most_4096_bytes) {
    const ByteVector token(MAX_TOKEN_LEN);
    EXPECT_TRUE(decode_connect(payload_of(frame_of(Connect{WIRE_VERSION, 0, token}))).ok());
    ByteVector payload;
    ByteWriter to(payload);
    to.u8(WIRE_VERSION);
    to.u16(0);
    to.u16(MAX_TOKEN_LEN + 1);
    to.zeros(MAX_TOKEN_LEN + 1 + 4);
    EXPECT_TRUE(decode_connect(payload).is(ErrorCode::MALFORMED_PAYLOAD));
}

TEST(Contract, G1_a_long_name_is_left_to_the_handler) {
    const std::string name(0xFFFF, 'n');
    EXPECT_EQ(decode_declare(payload_of(frame_of(Declare{name, 1, 0}))).value().topic, name);
    Sub sub;
    sub.group = name;
    EXPECT_EQ(decode_sub(payload_of(frame_of(sub))).value().group, name);
}

TEST(Codec, a_pull_may_list_as_many_epochs_as_its_count_can_say) {
    std::vector<OwnershipEpoch> epochs;
    for (std::uint64_t i = 0; i < OwnershipEpochs::COUNT_MAX; ++i)
        epochs.push_back(OwnershipEpoch(i << 40));
    const ByteVector packed = OwnershipEpochs::pack(epochs);
    Pull pull;
    pull.ownership_epochs = OwnershipEpochs(packed);
    const ByteVector frame = frame_of(pull);
    const Pull decoded = decode_pull(payload_of(frame)).value();
    ASSERT_EQ(decoded.ownership_epochs.size(), epochs.size());
    for (std::size_t i = 0; i < epochs.size(); ++i)
        ASSERT_EQ(decoded.ownership_epochs[i], epochs[i]);
}

TEST(Contract, D2_nack_reason_3_is_malformed) {
    ByteVector frame = frame_of(Nack{});
    for (int reason = 0; reason < 256; ++reason) {
        frame[FRAME_HEAD_BYTES + 30] = static_cast<std::byte>(reason);
        EXPECT_EQ(decode_nack(payload_of(frame)).ok(), reason <= 2) << reason;
    }
}

TEST(Contract, S6_the_text_of_an_error_names_op_and_field) {
    const auto detail = [](const auto& result) { return result.error().detail; };
    ByteVector payload(28);
    store_be(payload.data() + 24, std::uint32_t{7});
    EXPECT_EQ(detail(decode_pub(payload)),
              "PUB value: its length says 7 bytes, the frame has 0 left");
    store_be(payload.data() + 22, std::uint16_t{300});
    EXPECT_EQ(detail(decode_pub(payload)), "PUB key_len: 300 is above the limit 255");
    payload.resize(3);
    EXPECT_EQ(detail(decode_pub(payload)), "PUB partition: the frame ends before it");
    EXPECT_EQ(detail(decode_ping(payload)), "PING tail: 3 bytes behind the last field");
    const ByteVector other_version(1, std::byte{2});
    EXPECT_EQ(detail(decode_connect(other_version)),
              "CONNECT protocol_version 2: this broker speaks 1");
    for (const ByteVector& bytes : {payload, ByteVector(200)}) {
        for (std::uint8_t op = FIRST_OP; op <= LAST_OP; ++op) {
            const Result<ByteVector> result = mortar::testing::reencode(op, bytes);
            ASSERT_FALSE(result.ok());
            EXPECT_LE(detail(result).size(), MAX_ERR_MESSAGE);
            EXPECT_EQ(detail(result).find(std::string(op_name(op)) + " "), 0u) << detail(result);
        }
    }
}

TEST(Contract, S6_the_text_of_an_ERR_is_cut_at_512_bytes_before_a_whole_character) {
    const auto cut = [](const std::string& text) {
        const ByteVector frame = frame_of(Err{1, 1, text});
        return std::string(decode_err(payload_of(frame)).value().message);
    };
    const std::string fits(512, 'a');
    EXPECT_EQ(cut(fits), fits);
    EXPECT_EQ(cut(fits + "b"), fits);
    EXPECT_EQ(cut(std::string(511, 'a') + "\u00e9"), std::string(511, 'a'));
    EXPECT_EQ(cut(std::string(510, 'a') + "\u00e9" + "z"), std::string(510, 'a') + "\u00e9");
    EXPECT_EQ(cut(std::string(509, 'a') + "\U0001F40C"), std::string(509, 'a'));
    // A longer one comes from somebody who does not keep to the limit.
    ByteVector payload;
    ByteWriter to(payload);
    to.u16(1);
    to.u8(1);
    to.u16(513);
    to.zeros(513);
    EXPECT_TRUE(decode_err(payload).is(ErrorCode::MALFORMED_PAYLOAD));
}

TEST(Codec, a_head_and_its_value_are_the_whole_frame) {
    const ByteVector value(100'000, std::byte{7});
    Pub pub;
    pub.topic_id = TopicId(1);
    pub.key = as_byte_span("key");
    pub.value = value;
    Msg msg;
    msg.sequence = Sequence(5);
    msg.key = pub.key;
    msg.value = value;
    const auto check = [&](const auto& message) {
        ByteVector split;
        encode_head(split, message);
        EXPECT_LT(split.size(), 100u);
        split.insert(split.end(), value.begin(), value.end());
        EXPECT_EQ(split, frame_of(message));
    };
    check(pub);
    check(msg);
}

TEST(Codec, frames_are_appended_behind_what_is_there) {
    ByteVector out;
    Pub pub;
    pub.value = as_byte_span("value");
    const ByteVector alone = frame_of(pub);
    std::size_t moves = 0;
    for (std::size_t i = 0; i < 10'000; ++i) {
        const std::byte* before = out.data();
        encode(out, pub);
        if (out.data() != before) ++moves;
        ASSERT_EQ(out.size(), (i + 1) * alone.size());
    }
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                           out.end() - static_cast<std::ptrdiff_t>(alone.size())));
    EXPECT_LT(moves, 20u);  // a batch is not copied once a frame
}

TEST(Codec, one_frame_takes_one_allocation_of_its_size) {
    const ByteVector value(50'000);
    Pub pub;
    pub.value = value;
    const ByteVector frame = frame_of(pub);
    EXPECT_EQ(frame.capacity(), frame.size());
}

TEST(Op, knows_15_of_256_numbers) {
    int known = 0;
    for (int op = 0; op < 256; ++op) {
        const auto number = static_cast<std::uint8_t>(op);
        if (op_known(number)) ++known;
        EXPECT_EQ(op_known(number), op_name(number) != "unknown");
    }
    EXPECT_EQ(known, 15);
    EXPECT_FALSE(op_known(0x00));
    EXPECT_FALSE(op_known(0xFF));
}

TEST(Op, has_a_direction) {
    std::string client;
    std::string server;
    std::string early;
    std::string requests;
    for (std::uint8_t op = FIRST_OP; op <= LAST_OP; ++op) {
        const Op known = static_cast<Op>(op);
        if (client_may_send(known)) client.append(op_name(known)).append(" ");
        if (server_may_send(known)) server.append(op_name(known)).append(" ");
        if (allowed_before_connect(known)) early.append(op_name(known)).append(" ");
        if (is_request(known)) requests.append(op_name(known)).append(" ");
    }
    EXPECT_EQ(client,
              "CONNECT DECLARE PUB SUB ACK NACK PING ERR PULL HEARTBEAT CONTROL_ACK CREDIT ");
    EXPECT_EQ(server, "ERR OK MSG NOTICE ");
    EXPECT_EQ(early, "CONNECT PING ERR ");
    EXPECT_EQ(requests, "CONNECT DECLARE PUB SUB ACK NACK PING PULL HEARTBEAT CONTROL_ACK CREDIT ");
}

TEST(WireLimits, are_those_of_the_specification) {
    EXPECT_EQ(MAX_FRAME_LEN, 16777216u);
    EXPECT_EQ(MAX_VALUE_LEN, 16776192u);
    EXPECT_EQ(MAX_OK_RESULT_LEN, 16777210u);
    EXPECT_EQ(MAX_KEY_LEN, 255u);
    EXPECT_EQ(MAX_TOPIC_LEN, 255u);
    EXPECT_EQ(MAX_ERR_MESSAGE, 512u);
    EXPECT_EQ(WIRE_VERSION, 1);
    EXPECT_EQ(KEEPALIVE, seconds(30));
    EXPECT_EQ(KEEPALIVE_LIMIT, KEEPALIVE + KEEPALIVE / 2);
    EXPECT_EQ(HALF_FRAME_TIMEOUT, seconds(10));
}

}  // namespace
}  // namespace mortar::wire
