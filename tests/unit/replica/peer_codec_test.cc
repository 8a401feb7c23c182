// peer_codec: bytes of every message, what is refused, and that both directions agree.
#include "core/replica/peer_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/base/hash.h"
#include "core/env/rng.h"
#include "tests/unit/replica/any_peer_message.h"

namespace mortar::peer {
namespace {
using mortar::testing::AllPeerMessages;

// Hex digits; what stands behind ';' up to the end of the line is prose.
ByteVector bytes_of(std::string_view text) {
    ByteVector bytes;
    std::string digits;
    bool prose = false;
    for (const char c : text) {
        if (c == ';') prose = true;
        if (c == '\n') prose = false;
        if (prose || c == ' ' || c == '\n') continue;
        digits += c;
        if (digits.size() < 2) continue;
        bytes.resize(bytes.size() + 1);
        EXPECT_TRUE(from_hex(digits, MutableByteSpan(bytes).last(1))) << digits;
        digits.clear();
    }
    EXPECT_TRUE(digits.empty());
    return bytes;
}

// Length and checksum are those of the bytes behind.
ByteVector frame_of(Op op, ByteSpan payload) {
    ByteVector frame;
    ByteWriter writer(frame);
    writer.u32(static_cast<std::uint32_t>(payload.size() + 5));
    writer.u8(static_cast<std::uint8_t>(op));
    writer.u32(crc32c(payload, crc32c(ByteSpan(frame).last(1))));
    writer.bytes(payload);
    return frame;
}

template <std::size_t COUNT>
std::array<std::byte, COUNT> filled(int value) {
    std::array<std::byte, COUNT> array;
    array.fill(static_cast<std::byte>(value));
    return array;
}
std::string repeated(std::string_view hex, int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
        text += hex;
    return text;
}

template <class Message>
void expect_bytes(const Message& message, const std::string& payload_text) {
    const std::string name(op_name(OP_OF<Message>));
    const ByteVector payload = bytes_of(payload_text);
    EXPECT_EQ(to_hex(encode(message)), to_hex(frame_of(OP_OF<Message>, payload))) << name;
    const Result<Message> decoded = decode<Message>(payload);
    ASSERT_TRUE(decoded.ok()) << decoded.error().to_string();
    EXPECT_EQ(to_hex(encode(*decoded)), to_hex(encode(message))) << name;
}

TEST(PeerCodec, a_whole_frame_byte_for_byte) {
    EXPECT_EQ(to_hex(encode(Prepare{LeaderEpoch(7)})), to_hex(bytes_of(R"(
        00 00 00 0D              ; length 13 = op + crc32c + 8
        15                       ; PREPARE
        30 D5 8B EC              ; crc32c of op and payload
        00 00 00 00 00 00 00 07  ; leader_epoch
    )")));
    EXPECT_EQ(to_hex(encode(Ping{})), to_hex(bytes_of("00000005 06 74DCB4B9")));
}

TEST(PeerCodec, handshake_byte_for_byte) {
    expect_bytes(Hello{1, 2, filled<32>(0xAB)}, "0001 0002" + repeated("AB", 32));
    expect_bytes(Challenge{2, filled<32>(0xCD)}, "0002" + repeated("CD", 32));
    expect_bytes(Proof{NodeId(3), NodeId(1), Lane::BULK, filled<32>(0xEF)},
                 "0003 0001 01" + repeated("EF", 32));
    const Identity identity{NodeId(2), 0x99, filled<16>(0x11), 2, "a:1", ""};
    const std::string identity_text =
        "0002 0000000000000099" + repeated("11", 16) + "0002 0003 613A31 0000";
    expect_bytes(identity, identity_text);
    expect_bytes(Welcome{filled<32>(0x22), identity}, repeated("22", 32) + identity_text);
}

TEST(PeerCodec, control_lane_byte_for_byte) {
    expect_bytes(Heartbeat{LeaderEpoch(1), MonoTime{2}, true, Sequence(3)},
                 "0000000000000001 0000000000000002 01 0000000000000003");
    expect_bytes(HeartbeatOk{LeaderEpoch(1), MonoTime{-1}, LeaderEpoch(3)},
                 "0000000000000001 FFFFFFFFFFFFFFFF 0000000000000003");
    expect_bytes(Release{LeaderEpoch(5), NodeId(2)}, "0000000000000005 0002");
    expect_bytes(PreVote{LeaderEpoch(6)}, "0000000000000006");
    expect_bytes(PreVoteReply{LeaderEpoch(6), true, false, LeaderEpoch(5)},
                 "0000000000000006 01 00 0000000000000005");
    expect_bytes(Refused{Op::APPEND, LeaderEpoch(9)}, "20 0000000000000009");
    PromiseGiven promise{LeaderEpoch(8), LeaderEpoch(7), filled<16>(0x33), true, {}};
    const std::string head = "0000000000000008 0000000000000007" + repeated("33", 16) + "01";
    expect_bytes(promise, head + "00000000");
    promise.copies.push_back({METADATA_LOG,
                              {Sequence(4), LeaderEpoch(2)},
                              Sequence(3),
                              CopyState::UNCERTAIN,
                              Sequence()});
    promise.copies.push_back({{TopicId(1), PartitionIndex(2)},
                              {Sequence(6), LeaderEpoch(2)},
                              Sequence(5),
                              CopyState::FAULTY,
                              Sequence(6)});
    expect_bytes(promise, head + R"(00000002
        0000 0000 0000000000000004 0000000000000002 0000000000000003 01 0000000000000000
        0001 0002 0000000000000006 0000000000000002 0000000000000005 02 0000000000000006)");
    const InstallBase base{METADATA_LOG, {Sequence(4), LeaderEpoch(2)}};
    const std::string base_text = "00000001 00000000 0000000000000004 0000000000000002";
    expect_bytes(Install{LeaderEpoch(8), filled<16>(0x33), Sequence(3), {0xAA}, {base}},
                 "0000000000000008" + repeated("33", 16) +
                     "0000000000000003 00000001 00000000000000AA" + base_text);
    expect_bytes(Installed{LeaderEpoch(8), {base}}, "0000000000000008" + base_text);
}

TEST(PeerCodec, bulk_lane_byte_for_byte) {
    const PartitionKey log{TopicId(1), PartitionIndex(2)};
    const LogEnd end{Sequence(4), LeaderEpoch(3)};
    const std::string end_text = "0000000000000004 0000000000000003";
    const Append append{LeaderEpoch(9),
                        Sequence(8),
                        {{METADATA_LOG, {}, Sequence(1), as_byte_span("ab")},
                         {log, end, Sequence(2), {}},
                         {log, end, Sequence(7), as_byte_span("c")}}};
    expect_bytes(append, R"(0000000000000009 0000000000000008 00000003
        00000000 0000000000000000 0000000000000000 0000000000000001 00000002
        00010002 0000000000000004 0000000000000003 0000000000000002 00000000
        00010002 0000000000000004 0000000000000003 0000000000000007 00000001
        6162 63)");
    expect_bytes(Flushed{LeaderEpoch(9), {{log, Sequence(5)}}},
                 "0000000000000009 00000001 00010002 0000000000000005");
    expect_bytes(LogGap{LeaderEpoch(9), log, end}, "0000000000000009 00010002" + end_text);
    expect_bytes(Fetch{1, LeaderEpoch(9), log, Sequence(2), Sequence(3), 4},
                 "00000001 0000000000000009 00010002 0000000000000002 0000000000000003 00000004");
    expect_bytes(Fetched{1, FetchOutcome::OK, Sequence(3), as_byte_span("xyz")},
                 "00000001 00 0000000000000003 00000003 78797A");
    expect_bytes(EpochEnd{1, LeaderEpoch(9), log, LeaderEpoch(4)},
                 "00000001 0000000000000009 00010002 0000000000000004");
    expect_bytes(EpochEndReply{1, FetchOutcome::NO_SUCH_LOG, end}, "00000001 01" + end_text);
    expect_bytes(Snapshot{1, LeaderEpoch(9), 16, Sequence(3)},
                 "00000001 0000000000000009 0000000000000010 0000000000000003");
    expect_bytes(SnapshotReply{1, FetchOutcome::OK, Sequence(3), 17, as_byte_span("q")},
                 "00000001 00 0000000000000003 0000000000000011 00000001 71");
}

// --- any message at random

class Draw {
  public:
    explicit Draw(std::uint64_t seed) : rng_(seed) {}
    std::uint64_t u64() {
        const std::uint64_t bits = rng_.below(65);
        return bits == 0 ? 0 : rng_.next() >> (64 - bits);
    }
    // That may be led in.
    LeaderEpoch epoch() { return LeaderEpoch(1 + below(LEADER_EPOCH_MAX)); }
    template <class Id>
    Id id() {
        return Id(static_cast<typename Id::rep>(u64()));
    }
    template <std::size_t COUNT>
    std::array<std::byte, COUNT> array() {
        std::array<std::byte, COUNT> bytes;
        for (std::byte& b : bytes)
            b = static_cast<std::byte>(rng_.next());
        return bytes;
    }
    std::size_t below(std::size_t bound) { return rng_.below(bound); }
    std::string address() {
        std::string text(rng_.below(20), ' ');
        for (char& c : text)
            c = static_cast<char>(rng_.between('!', '~'));
        return text;
    }
    ByteSpan bytes() {
        texts_.push_back(ByteVector(rng_.below(30)));
        for (std::byte& b : texts_.back())
            b = static_cast<std::byte>(rng_.next());
        return texts_.back();
    }
    LogEnd end() {
        LogEnd end;
        end.last = id<Sequence>();
        end.leader_epoch = id<LeaderEpoch>();
        return end;
    }
    // Ascending keys.
    std::vector<PartitionKey> logs(std::size_t count_max) {
        std::vector<PartitionKey> keys(rng_.below(count_max + 1));
        std::uint32_t last = 0;
        for (PartitionKey& key : keys) {
            last += 1 + static_cast<std::uint32_t>(rng_.below(70'000));
            key = {TopicId(static_cast<std::uint16_t>(last >> 16)),
                   PartitionIndex(static_cast<std::uint16_t>(last))};
        }
        return keys;
    }
    Identity identity() {
        Identity identity;
        identity.node_id = id<NodeId>();
        identity.incarnation = u64();
        identity.cluster_id = array<16>();
        identity.version_max = static_cast<std::uint16_t>(1 + below(9));
        identity.listen_client = address();
        identity.listen_admin = address();
        return identity;
    }

  private:
    Rng rng_;
    std::vector<ByteVector> texts_;
};

template <class Visit>
void each_message(Draw& draw, Visit visit) {
    const PartitionKey key{draw.id<TopicId>(), draw.id<PartitionIndex>()};
    const LeaderEpoch epoch = draw.epoch();
    const auto sequence = draw.id<Sequence>();
    const auto request_id = static_cast<std::uint32_t>(draw.u64());
    const auto outcome = static_cast<FetchOutcome>(draw.below(5));
    visit(Hello{1, static_cast<std::uint16_t>(1 + draw.below(9)), draw.array<32>()});
    visit(Challenge{static_cast<std::uint16_t>(1 + draw.below(9)), draw.array<32>()});
    visit(Proof{draw.id<NodeId>(), NodeId(7), static_cast<Lane>(draw.below(2)), draw.array<32>()});
    visit(draw.identity());
    visit(Welcome{filled<32>(7), draw.identity()});
    visit(Ping{});
    visit(Heartbeat{epoch, MonoTime{static_cast<std::int64_t>(draw.u64())}, true, sequence});
    visit(HeartbeatOk{epoch, MonoTime{static_cast<std::int64_t>(draw.u64())}, LeaderEpoch(3)});
    visit(Release{epoch, draw.id<NodeId>()});
    visit(PreVote{epoch});
    visit(PreVoteReply{epoch, draw.below(2) == 1, draw.below(2) == 1, LeaderEpoch(2)});
    visit(Prepare{epoch});
    PromiseGiven promise{epoch, LeaderEpoch(1), draw.array<16>(), false, {}};
    Install install{epoch, draw.array<16>(), sequence, {draw.u64()}, {}};
    Installed installed{epoch, {}};
    Append append{epoch, sequence, {{key, draw.end(), sequence, draw.bytes()}}};
    Flushed flushed{epoch, {}};
    for (const PartitionKey log : draw.logs(6)) {
        const auto state = static_cast<CopyState>(draw.below(4));
        const Sequence faulty_from(is_faulty(state) ? 1 + draw.below(9) : 0);
        promise.copies.push_back({log, draw.end(), sequence, state, faulty_from});
        install.base.push_back({log, draw.end()});
        installed.positions.push_back({log, draw.end()});
        append.sections.push_back({log, draw.end(), sequence, {}});
        append.sections.back().records = draw.bytes();
        flushed.logs.push_back({log, sequence});
    }
    visit(promise);
    visit(install);
    visit(installed);
    visit(Refused{Op::FETCH, epoch});
    visit(append);
    visit(flushed);
    visit(LogGap{epoch, key, draw.end()});
    visit(Fetch{request_id, epoch, key, sequence, Sequence(1), 5});
    visit(Fetched{request_id, outcome, sequence, draw.bytes()});
    visit(EpochEnd{request_id, epoch, key, LeaderEpoch(4)});
    visit(EpochEndReply{request_id, outcome, draw.end()});
    visit(Snapshot{request_id, epoch, draw.u64(), sequence});
    visit(SnapshotReply{request_id, outcome, sequence, draw.u64(), draw.bytes()});
}

TEST(PeerCodec, what_was_encoded_decodes_to_the_same) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        Draw draw(seed);
        int count = 0;
        each_message(draw, [&](const auto& message) {
            ++count;
            const ByteVector frame = encode(message);
            const Result<FrameView> opened = open_frame(frame);
            ASSERT_TRUE(opened.ok());
            const auto again =
                AllPeerMessages::reencode(static_cast<std::uint8_t>(opened->op), opened->payload);
            ASSERT_TRUE(again.ok()) << again.error().to_string();
            EXPECT_EQ(to_hex(*again), to_hex(frame));
        });
        EXPECT_EQ(count, 25);
    }
}

TEST(PeerCodec, a_message_cut_at_any_byte_or_with_one_more_is_refused) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Draw draw(seed);
        each_message(draw, [&](const auto& message) {
            ByteVector frame = encode(message);
            const auto op = std::to_integer<std::uint8_t>(frame[PEER_LENGTH_BYTES]);
            const ByteSpan payload = ByteSpan(frame).subspan(PEER_HEAD_BYTES);
            for (std::size_t size = 0; size < payload.size(); ++size) {
                EXPECT_TRUE(AllPeerMessages::reencode(op, payload.first(size))
                                .is(ErrorCode::MALFORMED_PAYLOAD))
                    << op_name(static_cast<Op>(op)) << " cut to " << size;
                EXPECT_TRUE(open_frame(ByteSpan(frame).first(PEER_HEAD_BYTES + size))
                                .is(ErrorCode::BAD_LENGTH));
            }
            frame.push_back(std::byte{0});
            EXPECT_TRUE(AllPeerMessages::reencode(op, ByteSpan(frame).subspan(PEER_HEAD_BYTES))
                            .is(ErrorCode::MALFORMED_PAYLOAD));
        });
    }
}

TEST(PeerCodec, random_payloads_decode_to_what_encodes_to_them_or_not_at_all) {
    Rng rng(5);
    int decoded = 0;
    for (int i = 0; i < 100'000; ++i) {
        ByteVector payload(rng.below(80));
        const bool sparse = rng.one_in(2);
        for (std::byte& b : payload)
            b = static_cast<std::byte>(sparse && !rng.one_in(8) ? 0 : rng.next());
        const auto op = static_cast<std::uint8_t>(rng.below(48));
        const auto frame = AllPeerMessages::reencode(op, payload);
        if (!frame.ok()) {
            EXPECT_EQ(frame.is(ErrorCode::UNKNOWN_OP), !is_known_op(op));
            continue;
        }
        ++decoded;
        EXPECT_EQ(to_hex(ByteSpan(*frame).subspan(PEER_HEAD_BYTES)), to_hex(payload));
    }
    EXPECT_GT(decoded, 100);
}

template <class Message>
std::string refusal(const std::string& payload_text) {
    const Result<Message> decoded = decode<Message>(bytes_of(payload_text));
    return decoded.ok() ? "decoded" : decoded.error().detail;
}

TEST(PeerCodec, refusals_name_the_field) {
    EXPECT_EQ(refusal<Hello>("0000 0002" + repeated("00", 32)), "HELLO version_min: no such range");
    EXPECT_EQ(refusal<Hello>("0003 0002" + repeated("00", 32)), "HELLO version_min: no such range");
    EXPECT_EQ(refusal<Challenge>("0000" + repeated("00", 32)), "CHALLENGE version: must not be 0");
    EXPECT_EQ(refusal<Proof>("0001 0002 02" + repeated("00", 32)),
              "PROOF lane: not a defined value");
    EXPECT_EQ(refusal<Identity>("0001 0000000000000000" + repeated("00", 16) + "0002 0001 20 0000"),
              "IDENTITY listen_client: not printable ASCII");
    EXPECT_EQ(refusal<Identity>("0001 0000000000000000" + repeated("00", 16) + "0002 0201" +
                                repeated("41", 515)),
              "IDENTITY listen_client: longer than an address may be");
    EXPECT_EQ(refusal<PreVoteReply>("0000000000000001 02 00 0000000000000001"),
              "PRE_VOTE_REPLY is_yes: neither 0 nor 1");
    EXPECT_EQ(refusal<Refused>("1F 0000000000000001"), "REFUSED op: not a known op");
    const std::string head = repeated("00", 32) + "00";
    const std::string copy = repeated("00", 4 + 16 + 8);
    EXPECT_EQ(refusal<PromiseGiven>(head + "00000001" + copy + "04 0000000000000000"),
              "PROMISE copies.state: not a defined value");
    EXPECT_EQ(refusal<PromiseGiven>(head + "00000001" + copy + "02 0000000000000000"),
              "PROMISE copies.faulty_from: does not go with the state");
    EXPECT_EQ(refusal<PromiseGiven>(head + "00000001" + copy + "01 0000000000000009"),
              "PROMISE copies.faulty_from: does not go with the state");
    EXPECT_EQ(refusal<PromiseGiven>(head + "00000002" + copy + repeated("00", 9) + copy +
                                    repeated("00", 9)),
              "PROMISE copies: not ascending by log");
    EXPECT_EQ(refusal<PromiseGiven>(head + "FFFFFFFF"),
              "PROMISE copies: says more than the frame holds");
    EXPECT_EQ(refusal<Append>(repeated("00", 16) + "00000000"), "APPEND sections: there is none");
    EXPECT_EQ(refusal<Append>(repeated("00", 16) + "00000001" + repeated("00", 28) + "FFFFFFFF"),
              "APPEND sections.records: the frame ends before it");
    EXPECT_EQ(refusal<Fetched>("00000001 05 0000000000000000 00000000"),
              "FETCHED outcome: not a defined value");
    EXPECT_EQ(refusal<Ping>("00"), "PING tail: bytes behind the last field");
}

TEST(PeerCodec, an_epoch_that_cannot_be_is_refused) {
    const std::string rest = repeated("00", 17);
    EXPECT_EQ(refusal<Heartbeat>("0000000000FFFFFF" + rest), "decoded");
    EXPECT_EQ(refusal<Heartbeat>("0000000001000000" + rest),
              "HEARTBEAT leader_epoch: above all leader epochs");
    EXPECT_EQ(refusal<Heartbeat>("4000000000000000" + rest),
              "HEARTBEAT leader_epoch: above all leader epochs");
    EXPECT_EQ(refusal<Heartbeat>("0000000000000000" + rest),
              "HEARTBEAT leader_epoch: must not be 0");
    EXPECT_EQ(refusal<PreVote>("0000000000000000"), "PRE_VOTE candidate_epoch: must not be 0");
    EXPECT_EQ(refusal<PreVote>("FFFFFFFFFFFFFFFF"),
              "PRE_VOTE candidate_epoch: above all leader epochs");
    EXPECT_EQ(refusal<PreVoteReply>("0000000000000001 01 00 0000000001000000"),
              "PRE_VOTE_REPLY promised_epoch: above all leader epochs");
    EXPECT_EQ(refusal<Prepare>("0000000001000000"),
              "PREPARE leader_epoch: above all leader epochs");
    EXPECT_EQ(refusal<Install>("0000000001000000" + repeated("00", 16 + 8 + 4 + 4)),
              "INSTALL leader_epoch: above all leader epochs");
    EXPECT_EQ(refusal<Refused>("10 0000000001000000"),
              "REFUSED promised_epoch: above all leader epochs");
}

TEST(PeerCodec, an_append_of_several_logs_is_refused_in_v1) {
    Append append{LeaderEpoch(1), Sequence(), {{METADATA_LOG, {}, Sequence(), {}}}};
    const auto payload = [&append] {
        const ByteVector frame = encode(append);
        return ByteVector(frame.begin() + PEER_HEAD_BYTES, frame.end());
    };
    EXPECT_TRUE(decode_append(payload(), 1).ok());
    append.sections.push_back(append.sections.front());
    EXPECT_TRUE(decode_append(payload(), 1).is(ErrorCode::MALFORMED_PAYLOAD));
    EXPECT_EQ(decode_append(payload(), 2)->sections.size(), 2u);
}

TEST(PeerCodec, records_are_sent_as_they_stand_in_memory) {
    const auto chunk = std::make_shared<std::string>("onetwothree");
    const auto records = [&chunk](std::size_t at, std::size_t first, std::size_t second) {
        const ByteSpan all = as_byte_span(*chunk);
        return RecordBytes{Sequence(1),
                           Sequence(2),
                           {all.subspan(at, first), all.subspan(at + first, second)},
                           {chunk},
                           first + second};
    };
    const auto joined = [](const PeerFrame& frame) {
        ByteVector all = frame.head;
        for (const ByteSpan part : frame.parts)
            all.insert(all.end(), part.begin(), part.end());
        EXPECT_EQ(all.size(), frame.size_bytes());
        return to_hex(all);
    };
    const PartitionKey log{TopicId(1), PartitionIndex(0)};
    const LogEnd end{Sequence(1), LeaderEpoch(1)};
    const PeerFrame append = encode_append({LeaderEpoch(3),
                                            Sequence(2),
                                            {{METADATA_LOG, {}, Sequence(1), records(0, 3, 3)},
                                             {log, end, Sequence(4), {}},
                                             {log, end, Sequence(5), records(6, 2, 3)}}},
                                           2);
    EXPECT_EQ(append.head.size(), APPEND_FIXED_BYTES + 3 * APPEND_SECTION_BYTES);
    EXPECT_EQ(append.parts[0].data(), as_byte_span(*chunk).data());
    EXPECT_EQ(append.owners.size(), 2u);
    EXPECT_EQ(chunk.use_count(), 3);
    EXPECT_EQ(joined(append),
              to_hex(encode(Append{LeaderEpoch(3),
                                   Sequence(2),
                                   {{METADATA_LOG, {}, Sequence(1), as_byte_span("onetwo")},
                                    {log, end, Sequence(4), {}},
                                    {log, end, Sequence(5), as_byte_span("three")}}})));
    const PeerFrame fetched = encode_fetched(8, records(3, 3, 5));
    EXPECT_EQ(fetched.head.size(), FETCHED_FIXED_BYTES);
    EXPECT_EQ(joined(fetched),
              to_hex(encode(Fetched{8, FetchOutcome::OK, Sequence(2), as_byte_span("twothree")})));
}

TEST(PeerCodec, a_changed_bit_anywhere_is_noticed) {
    const ByteVector frame = encode(Release{LeaderEpoch(5), NodeId(2)});
    for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
        ByteVector changed = frame;
        changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
        const Result<FrameView> opened = open_frame(changed);
        EXPECT_TRUE(opened.is(bit / 8 < PEER_LENGTH_BYTES ? ErrorCode::BAD_LENGTH
                                                          : ErrorCode::CHECKSUM_MISMATCH))
            << bit;
    }
    EXPECT_TRUE(open_frame(frame_of(static_cast<Op>(7), {})).is(ErrorCode::UNKNOWN_OP));
    EXPECT_TRUE(open_frame(frame_of(static_cast<Op>(0), {})).is(ErrorCode::UNKNOWN_OP));
}

TEST(PeerCodec, lengths_are_judged_before_their_bytes_come) {
    const auto judged = [](std::uint32_t length) {
        ByteVector bytes(PEER_LENGTH_BYTES);
        store_be(bytes.data(), length);
        return frame_bytes(bytes, PEER_FRAME_LEN_MAX);
    };
    EXPECT_TRUE(judged(0).is(ErrorCode::BAD_LENGTH));
    EXPECT_TRUE(judged(PEER_FRAME_LEN_MIN - 1).is(ErrorCode::BAD_LENGTH));
    EXPECT_EQ(*judged(PEER_FRAME_LEN_MIN), 9u);
    EXPECT_EQ(*judged(PEER_FRAME_LEN_MAX), PEER_FRAME_LEN_MAX + std::size_t{4});
    EXPECT_TRUE(judged(PEER_FRAME_LEN_MAX + 1).is(ErrorCode::BAD_LENGTH));
    EXPECT_TRUE(judged(0xFFFFFFFF).is(ErrorCode::BAD_LENGTH));
}

}  // namespace
}  // namespace mortar::peer
