// peer_channel: one authenticated connection to another node on one lane, as those who speak over it see it.
// Shape:    frames go out in the order of send; a gather write takes what is queued in one turn. The bytes of a frame stand
//           behind peer_codec. PING and the handshake never reach a handler.
// Owns:     PeerLinks owns the channels; one lives from on_channel_up until on_channel_down has returned.
// Errors:   send cannot fail: bytes sent to a channel that is closed, or lost with it, are gone, and on_channel_down tells.
// Suspends: on_frame only, which may hold up this channel and no other.
// Invariant: of a (peer, lane, direction) at most one channel is up, and on_channel_down of the older one comes before
//           on_channel_up of the newer one: on_frame of both never overlap.
// Source:   design 4.
#pragma once

#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/env/fiber.h"
#include "core/fiber/event.h"
#include "core/replica/peer_codec.h"

namespace mortar::peer {

class PeerChannel {
  public:
    virtual ~PeerChannel() = default;
    virtual NodeId peer() const = 0;
    virtual Lane lane() const = 0;
    // This node asks, the peer answers; else the other way round.
    virtual bool is_dialed() const = 0;
    virtual std::uint16_t version() const = 0;

    virtual void send(PeerFrame frame) = 0;
    void send(ByteVector frame) { send(PeerFrame{std::move(frame), {}, {}}); }
    template <class Message>
    void send_message(const Message& message) {
        send(encode(message));
    }
    // Not yet written to the socket.
    virtual std::size_t queued_bytes() const = 0;
    // Notified whenever queued_bytes has fallen, and when the channel has closed.
    virtual Event& drained() = 0;
    virtual bool is_closed() const = 0;
    // What is queued is dropped. on_channel_down comes later, from the channel's own fiber.
    virtual void close() = 0;
};

// The channels that this node dialed, and what the nodes at their ends told of themselves.
class PeerRoster {
  public:
    virtual ~PeerRoster() = default;
    // Nothing while it is down. Valid until the next suspension.
    virtual PeerChannel* channel(NodeId peer, Lane lane) const = 0;
    // The latest; nothing before the first handshake.
    virtual const Identity* identity_of(NodeId peer) const = 0;
};

class PeerHandler {
  public:
    virtual ~PeerHandler() = default;
    virtual void on_channel_up(PeerChannel& channel) = 0;
    virtual void on_channel_down(PeerChannel& channel) = 0;
    // payload is borrowed for the call. An error closes the channel, with a line in the log.
    virtual Result<void> on_frame(Fiber& fiber, PeerChannel& channel, Op op, ByteSpan payload) = 0;
};

}  // namespace mortar::peer
