// peer_requests: reads from another node's logs: asks over the BULK channel that this node dialed, waits for the answer.
// Shape:    one question at a time a fiber; answers find their question by request_id.
// Owns:     what it is answered, until the caller lets go.
// Errors:   TIMED_OUT (no answer within PEER_REQUEST_TIMEOUT, or the snapshot kept changing), CONNECTION_CLOSED (no channel,
//           or it was lost), MALFORMED_PAYLOAD, STALE_LEADER_EPOCH (the peer, or this node meanwhile, has promised a higher
//           epoch), CANCELLED; what the peer said of its log: NOT_FOUND (no such log, or below its snapshot), DAMAGED,
//           IO_ERROR.
// Suspends: all that take Fiber&.
// Source:   design 4 (election: fetches what it lacks; repair).
#pragma once

#include <map>
#include <memory>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/replica/peer_channel.h"

namespace mortar {

inline constexpr Duration PEER_REQUEST_TIMEOUT = seconds(5);
inline constexpr std::uint32_t FETCH_BYTES_MAX = 1u << 20;  // one record more may be larger

struct FetchedRecords {
    ByteVector bytes;
    bool is_below_snapshot = false;  // the peer has them only as a metadata snapshot
};

class PeerRequests {
  public:
    PeerRequests(Env& env, peer::PeerRoster& peers) : env_(env), peers_(peers) {}

    Result<FetchedRecords> fetch(Fiber& fiber, NodeId node, LeaderEpoch leader_epoch,
                                 PartitionKey log, Sequence from, Sequence through);
    Result<LogEnd> epoch_end(Fiber& fiber, NodeId node, LeaderEpoch leader_epoch, PartitionKey log,
                             LeaderEpoch at_most);
    // The whole newest metadata snapshot.
    Result<MetadataSnapshot> snapshot(Fiber& fiber, NodeId node, LeaderEpoch leader_epoch);

    // FETCHED, EPOCH_END_REPLY, SNAPSHOT_REPLY of a dialed channel.
    Result<void> on_reply(NodeId node, peer::Op op, ByteSpan payload);
    void on_refused(NodeId node);
    void on_channel_down(NodeId node);
    // A higher leader_epoch than that of all requests under way: they fail.
    void on_promised();

  private:
    struct Waiting {
        NodeId node;
        peer::Op expected{};
        std::optional<Error> failure;
        bool is_answered = false;
        ByteVector payload;
        Event answered;
    };
    Result<ByteVector> ask(Fiber& fiber, NodeId node, peer::Op expected, std::uint32_t request_id,
                           ByteVector frame);
    void fail_all(NodeId node, const Error& error);
    static void fail(Waiting& waiting, const Error& error);

    Env& env_;
    peer::PeerRoster& peers_;
    std::uint32_t last_request_id_ = 0;
    std::map<std::uint32_t, std::shared_ptr<Waiting>> waiting_;
};

}  // namespace mortar
