// peer_messages: what nodes say to each other, as structs in byte order, and where each goes.
// Shape:    frame: u32 length (of all after it), u8 op, u32 crc32c of op and payload, payload; at most PEER_FRAME_LEN_MAX.
//           Every node dials every other node twice: lane CONTROL (heartbeats, elections) and lane BULK (records), so that a
//           heartbeat never queues behind data. Who dialed asks, who accepted answers, on the same connection.
//           Handshake (peer_link): HELLO >, < CHALLENGE, PROOF >, < WELCOME, IDENTITY >. Nothing of this node is told before
//           the other side has proved that it knows auth/peer.key.
// Owns:     nothing: byte spans borrow the frame.
// Errors:   decode is strict: MALFORMED_PAYLOAD; for an epoch that is led, asked for or promised and above LEADER_EPOCH_MAX too.
// Source:   design 4, contract 8 (F6: peer protocol v1 has one log an APPEND, v2 many).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/env/clock.h"
#include "core/replica/replicated_log.h"

namespace mortar {

// delivery_id holds 24 bits of it (contract D8).
inline constexpr std::uint64_t LEADER_EPOCH_MAX = (1u << 24) - 1;

}  // namespace mortar

namespace mortar::peer {

inline constexpr std::uint32_t PEER_FRAME_LEN_MAX = 20u << 20;
inline constexpr std::uint16_t PEER_VERSION_MIN = 1;
inline constexpr std::uint16_t PEER_VERSION_MAX = 2;

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;
using ClusterId = std::array<std::byte, 16>;  // zero: this node belongs to no cluster yet (blank)

enum class Lane : std::uint8_t { CONTROL = 0, BULK = 1 };

enum class Op : std::uint8_t {
    HELLO = 1,
    CHALLENGE = 2,
    PROOF = 3,
    WELCOME = 4,
    IDENTITY = 5,
    PING = 6,  // empty; by both sides of a connection that has nothing else to say, needs no answer
    HEARTBEAT = 16,
    HEARTBEAT_OK = 17,
    RELEASE = 18,
    PRE_VOTE = 19,
    PRE_VOTE_REPLY = 20,
    PREPARE = 21,
    PROMISE = 22,
    INSTALL = 23,
    INSTALLED = 24,
    REFUSED = 25,
    APPEND = 32,
    FLUSHED = 33,
    LOG_GAP = 34,
    FETCH = 35,
    FETCHED = 36,
    EPOCH_END = 37,
    EPOCH_END_REPLY = 38,
    SNAPSHOT = 39,
    SNAPSHOT_REPLY = 40,
};

// --- handshake
struct Hello {
    std::uint16_t version_min = PEER_VERSION_MIN;
    std::uint16_t version_max = PEER_VERSION_MAX;
    Nonce nonce{};
};
struct Challenge {
    std::uint16_t version = PEER_VERSION_MAX;  // that is spoken from here on: min of both maxima
    Nonce nonce{};
};
// mac: of role, HELLO, CHALLENGE, lane and both node ids, keyed by peer.key.
struct Proof {
    NodeId node_id;
    NodeId dialed_node_id;  // whom it means to reach
    Lane lane = Lane::CONTROL;
    Mac mac{};
};
struct Identity {
    NodeId node_id;
    // Drawn at each start. An election that names it began after this start (design 4, blank nodes).
    std::uint64_t incarnation = 0;
    ClusterId cluster_id{};
    std::uint16_t version_max = PEER_VERSION_MAX;
    std::string listen_client;
    std::string listen_admin;
};
struct Welcome {
    Mac mac{};  // the accepting side's proof; of identity too
    Identity identity;
};
struct Ping {};

// --- lane CONTROL
// By the leader, every heartbeat interval. sent_at: its own clock, comes back unread.
struct Heartbeat {
    LeaderEpoch leader_epoch;
    MonoTime sent_at;
    bool is_in_office = false;  // a majority is installed: clients may be sent to it
    Sequence metadata_commit_seq;
};
struct HeartbeatOk {
    LeaderEpoch leader_epoch;  // of the heartbeat
    MonoTime sent_at;
    LeaderEpoch installed_epoch;
};
// The leader hands over: promises not to vote are void for its epoch; successor may stand at once.
struct Release {
    LeaderEpoch leader_epoch;
    NodeId successor;
};
// Promises nothing.
struct PreVote {
    LeaderEpoch candidate_epoch;
};
struct PreVoteReply {
    LeaderEpoch candidate_epoch;
    bool is_yes = false;
    bool is_blank = false;  // counts in no majority
    LeaderEpoch promised_epoch;
};
struct Prepare {
    LeaderEpoch leader_epoch;
};
// FAULTY_UNCERTAIN: damaged, and of an end that is lost besides: what it claims is no bound for what it held.
enum class CopyState : std::uint8_t { INTACT = 0, UNCERTAIN = 1, FAULTY = 2, FAULTY_UNCERTAIN = 3 };
constexpr bool is_faulty(CopyState state) {
    return state == CopyState::FAULTY || state == CopyState::FAULTY_UNCERTAIN;
}
constexpr bool is_uncertain(CopyState state) {
    return state == CopyState::UNCERTAIN || state == CopyState::FAULTY_UNCERTAIN;
}
struct CopyReport {
    PartitionKey log;
    LogEnd end;  // what it claims: for a faulty copy too
    Sequence commit_seq;
    CopyState state = CopyState::INTACT;
    Sequence faulty_from;  // 0 unless it is faulty
};
struct PromiseGiven {
    LeaderEpoch leader_epoch;
    LeaderEpoch installed_epoch;
    ClusterId cluster_id{};
    bool is_blank = false;           // counts in no majority
    std::vector<CopyReport> copies;  // ascending by log; without an entry: empty and intact
};
// In INSTALLED and LOG_GAP, where a log ends: it is damaged, or not equal to the leader's. It counts for nothing and nothing
// more of it is sent, until a LOG_GAP says where it ends.
inline constexpr LogEnd TAKES_NOTHING{Sequence(0), LeaderEpoch(UINT64_MAX)};
// base: every log as it was when the leader took office.
struct InstallBase {
    PartitionKey log;
    LogEnd end;
};
// On lane BULK, so that nothing that it confirms is overtaken.
struct Install {
    LeaderEpoch leader_epoch;
    ClusterId cluster_id{};
    Sequence metadata_commit_seq;
    std::vector<std::uint64_t> heard;  // incarnations that were connected when the election began
    std::vector<InstallBase> base;     // ascending by log; METADATA_LOG first
};
struct Installed {
    LeaderEpoch leader_epoch;
    // Where the follower's logs end now; only those that do not end as in base. TAKES_NOTHING too.
    std::vector<InstallBase> positions;
};
// Whatever was asked belongs to an older epoch than this node has promised (STALE_LEADER_EPOCH).
struct Refused {
    Op op = Op::HEARTBEAT;
    LeaderEpoch promised_epoch;
};

// --- lane BULK
struct AppendSection {
    PartitionKey log;
    LogEnd previous;  // the record before the first one
    Sequence commit_seq;
    ByteSpan records;
};
struct Append {
    LeaderEpoch leader_epoch;
    Sequence metadata_commit_seq;
    std::vector<AppendSection> sections;  // protocol v1: exactly one
};
struct FlushedLog {
    PartitionKey log;
    Sequence flushed;
};
struct Flushed {
    LeaderEpoch leader_epoch;
    std::vector<FlushedLog> logs;
};
struct LogGap {
    LeaderEpoch leader_epoch;
    PartitionKey log;
    LogEnd end;
};
// Reads: request_id comes back. leader_epoch: the one the asker has promised; an older asker is REFUSED.
struct Fetch {
    std::uint32_t request_id = 0;
    LeaderEpoch leader_epoch;
    PartitionKey log;
    Sequence from;
    Sequence through;
    std::uint32_t bytes_max = 0;
};
enum class FetchOutcome : std::uint8_t {
    OK = 0,
    NO_SUCH_LOG = 1,
    BELOW_SNAPSHOT = 2,
    DAMAGED = 3,
    FAILED = 4
};
struct Fetched {
    std::uint32_t request_id = 0;
    FetchOutcome outcome = FetchOutcome::OK;
    Sequence last;  // of the records below
    ByteSpan records;
};
// The last record of the log whose leader_epoch is at most this.
struct EpochEnd {
    std::uint32_t request_id = 0;
    LeaderEpoch leader_epoch;
    PartitionKey log;
    LeaderEpoch at_most;
};
struct EpochEndReply {
    std::uint32_t request_id = 0;
    FetchOutcome outcome = FetchOutcome::OK;
    LogEnd end;
};
// The newest metadata snapshot, in pieces.
struct Snapshot {
    std::uint32_t request_id = 0;
    LeaderEpoch leader_epoch;
    std::uint64_t file_offset = 0;
    Sequence through;  // which one; 0 = the newest
};
struct SnapshotReply {
    std::uint32_t request_id = 0;
    FetchOutcome outcome = FetchOutcome::OK;
    Sequence through;
    std::uint64_t total_bytes = 0;
    ByteSpan bytes;
};

}  // namespace mortar::peer
