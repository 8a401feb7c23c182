// any_peer_message: decode the payload of any peer op and encode what came out, for sweeps over all ops.
#pragma once

#include "core/replica/peer_codec.h"

namespace mortar::testing {

template <class... Messages>
struct PeerMessages {
    // The whole frame that the decoded message becomes. UNKNOWN_OP for an op that nobody knows.
    static Result<ByteVector> reencode(std::uint8_t op, ByteSpan payload) {
        Result<ByteVector> frame = make_error(ErrorCode::UNKNOWN_OP);
        (try_one<Messages>(op, payload, frame), ...);
        return frame;
    }

  private:
    template <class Message>
    static void try_one(std::uint8_t op, ByteSpan payload, Result<ByteVector>& frame) {
        if (op != static_cast<std::uint8_t>(peer::OP_OF<Message>)) return;
        Result<Message> message = peer::decode<Message>(payload);
        if (message.ok()) {
            frame = peer::encode(*message);
        } else {
            frame = message.error();
        }
    }
};

using AllPeerMessages =
    PeerMessages<peer::Hello, peer::Challenge, peer::Proof, peer::Welcome, peer::Identity,
                 peer::Ping, peer::Heartbeat, peer::HeartbeatOk, peer::Release, peer::PreVote,
                 peer::PreVoteReply, peer::Prepare, peer::PromiseGiven, peer::Install,
                 peer::Installed, peer::Refused, peer::Append, peer::Flushed, peer::LogGap,
                 peer::Fetch, peer::Fetched, peer::EpochEnd, peer::EpochEndReply, peer::Snapshot,
                 peer::SnapshotReply>;

}  // namespace mortar::testing
