// peer_codec: strict encode and decode of every message between nodes.
// Shape:    encode makes one whole frame; decode takes the payload of one. A decoded message borrows its payload. What
//           carries records (APPEND, FETCHED) can also be encoded as a head and the records' own bytes, never copied:
//           an APPEND is all heads of sections, then all records, so that its head is one piece.
// Owns:     a PeerFrame shares what it borrows.
// Errors:   MALFORMED_PAYLOAD, detail "OP field: what is wrong". open_frame: BAD_LENGTH, UNKNOWN_OP, CHECKSUM_MISMATCH.
//           encode stops the process on a message that breaks a limit or an order: that is our mistake.
// Source:   design 4, peer_messages.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/replica/peer_messages.h"

namespace mortar::peer {

inline constexpr std::size_t PEER_LENGTH_BYTES = 4;
inline constexpr std::size_t PEER_HEAD_BYTES = PEER_LENGTH_BYTES + 1 + 4;  // length, op, crc32c
inline constexpr std::uint32_t PEER_FRAME_LEN_MIN = 1 + 4;
// host:port of a listener.
inline constexpr std::size_t PEER_ADDRESS_BYTES_MAX = 512;
// What APPEND and FETCHED cost besides their records.
inline constexpr std::size_t APPEND_SECTION_BYTES = 4 + 8 + 8 + 8 + 4;
inline constexpr std::size_t APPEND_FIXED_BYTES = PEER_HEAD_BYTES + 8 + 8 + 4;
inline constexpr std::size_t FETCHED_FIXED_BYTES = PEER_HEAD_BYTES + 4 + 1 + 8 + 4;

template <class Message>
inline constexpr Op OP_OF{};
template <>
inline constexpr Op OP_OF<Hello> = Op::HELLO;
template <>
inline constexpr Op OP_OF<Challenge> = Op::CHALLENGE;
template <>
inline constexpr Op OP_OF<Proof> = Op::PROOF;
template <>
inline constexpr Op OP_OF<Welcome> = Op::WELCOME;
template <>
inline constexpr Op OP_OF<Identity> = Op::IDENTITY;
template <>
inline constexpr Op OP_OF<Ping> = Op::PING;
template <>
inline constexpr Op OP_OF<Heartbeat> = Op::HEARTBEAT;
template <>
inline constexpr Op OP_OF<HeartbeatOk> = Op::HEARTBEAT_OK;
template <>
inline constexpr Op OP_OF<Release> = Op::RELEASE;
template <>
inline constexpr Op OP_OF<PreVote> = Op::PRE_VOTE;
template <>
inline constexpr Op OP_OF<PreVoteReply> = Op::PRE_VOTE_REPLY;
template <>
inline constexpr Op OP_OF<Prepare> = Op::PREPARE;
template <>
inline constexpr Op OP_OF<PromiseGiven> = Op::PROMISE;
template <>
inline constexpr Op OP_OF<Install> = Op::INSTALL;
template <>
inline constexpr Op OP_OF<Installed> = Op::INSTALLED;
template <>
inline constexpr Op OP_OF<Refused> = Op::REFUSED;
template <>
inline constexpr Op OP_OF<Append> = Op::APPEND;
template <>
inline constexpr Op OP_OF<Flushed> = Op::FLUSHED;
template <>
inline constexpr Op OP_OF<LogGap> = Op::LOG_GAP;
template <>
inline constexpr Op OP_OF<Fetch> = Op::FETCH;
template <>
inline constexpr Op OP_OF<Fetched> = Op::FETCHED;
template <>
inline constexpr Op OP_OF<EpochEnd> = Op::EPOCH_END;
template <>
inline constexpr Op OP_OF<EpochEndReply> = Op::EPOCH_END_REPLY;
template <>
inline constexpr Op OP_OF<Snapshot> = Op::SNAPSHOT;
template <>
inline constexpr Op OP_OF<SnapshotReply> = Op::SNAPSHOT_REPLY;

bool is_known_op(std::uint8_t op);
std::string_view op_name(Op op);
inline constexpr std::string_view lane_name(Lane lane) {
    return lane == Lane::CONTROL ? "control" : "bulk";
}

template <class Message>
ByteVector encode(const Message& message);
template <class Message>
Result<Message> decode(ByteSpan payload);
// version: that the channel speaks; v1 has exactly one section.
Result<Append> decode_append(ByteSpan payload, std::uint16_t version);

// A whole frame: head, then parts, which stay as they are until the owners are let go.
struct PeerFrame {
    ByteVector head;
    std::vector<ByteSpan> parts;
    std::vector<std::shared_ptr<const void>> owners;
    std::size_t size_bytes() const {
        std::size_t sum = head.size();
        for (const ByteSpan part : parts)
            sum += part.size();
        return sum;
    }
};

struct OutSection {
    PartitionKey log;
    LogEnd previous;
    Sequence commit_seq;
    RecordBytes records;  // none: only commit_seq is news
};
struct OutAppend {
    LeaderEpoch leader_epoch;
    Sequence metadata_commit_seq;
    std::vector<OutSection> sections;
};
PeerFrame encode_append(OutAppend append, std::uint16_t version);
PeerFrame encode_fetched(std::uint32_t request_id, RecordBytes records);

struct FrameView {
    Op op{};
    ByteSpan payload;
};
// The frame that begins with these bytes has a length that may be: called as soon as four bytes are there.
Result<std::size_t> frame_bytes(ByteSpan length_bytes, std::uint32_t frame_len_max);
// frame: exactly one.
Result<FrameView> open_frame(ByteSpan frame);

}  // namespace mortar::peer
