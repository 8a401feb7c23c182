// peer_link: the connections between this node and its peers: listens, dials, authenticates, notices what is dead.
// Shape:    every peer is dialed on both lanes and dials us likewise. A dialed connection that is lost is dialed again after
//           BACKOFF_MIN..BACKOFF_MAX and up to half as much at random, at once when that peer has just come to us. Both sides
//           send PING when they have said nothing else for PING_EVERY; a lane on which nothing came for its silence is closed.
//           Strangers: at most UNAUTHENTICATED_COUNT_MAX at once (the oldest goes), HANDSHAKE_TIMEOUT each, and they learn
//           nothing but a nonce and a version.
// Owns:     all channels; PeerLinks must live until stop has returned (or its node is killed).
// Errors:   none to callers: what goes wrong with a connection is in the log and ends that connection.
// Suspends: stop.
// Source:   design 2 (gathered writes), 4; contract 4 (peer.key), F6.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/env/env.h"
#include "core/fiber/group.h"
#include "core/replica/peer_channel.h"

namespace mortar::peer {

inline constexpr Duration CONNECT_TIMEOUT = seconds(1);
inline constexpr Duration BACKOFF_MIN = milliseconds(50);
inline constexpr Duration BACKOFF_MAX = seconds(1);
inline constexpr Duration PING_EVERY = milliseconds(300);
inline constexpr Duration CONTROL_SILENCE_MAX = seconds(1);
inline constexpr Duration BULK_SILENCE_MAX = seconds(3);
inline constexpr std::size_t UNAUTHENTICATED_COUNT_MAX = 64;
// More that a peer does not take, and the channel is closed.
inline constexpr std::size_t PEER_QUEUE_BYTES_MAX = 64u << 20;

struct PeerAddress {
    NodeId node_id;
    std::string addr;
};

struct PeerLinksOptions {
    SecretKey key{};
    Identity identity;               // what this node tells of itself; version_max: that it speaks
    std::vector<PeerAddress> peers;  // this node may be among them
    std::uint16_t version_min = PEER_VERSION_MIN;
};

class Channel;

class PeerLinks : public PeerRoster {
  public:
    PeerLinks(Env env, PeerLinksOptions options);
    ~PeerLinks() override;
    PeerLinks(const PeerLinks&) = delete;
    PeerLinks& operator=(const PeerLinks&) = delete;

    // handler outlives stop. Does not suspend.
    void start(std::unique_ptr<Listener> listener, PeerHandler& handler);
    // Closes all; on_channel_down comes for each that was up.
    void stop(Fiber& fiber);

    PeerChannel* channel(NodeId peer, Lane lane) const override;
    const Identity* identity_of(NodeId peer) const override;
    // A node that was blank has joined a cluster. For handshakes from now on.
    void set_cluster_id(const ClusterId& cluster_id);

  private:
    enum class Direction : std::uint8_t { DIALED, ACCEPTED };
    struct Slot {
        Channel* channel = nullptr;  // up
        std::uint64_t newest = 0;    // counts who came for it
        Event freed;
    };
    struct Peer {
        std::string addr;
        std::unique_ptr<Identity> identity;
        std::uint16_t warned_version = 0;  // version_max of the peer when it was warned of
        Slot slots[2][2];                  // by lane, direction
        std::array<Event, 2> came;         // by lane: the peer has dialed us
        std::array<std::uint64_t, 2> visits{};
    };

    void accept_all(Fiber& fiber);
    void take(std::unique_ptr<Conn> conn);
    void evict_oldest();
    void serve_accepted(Fiber& fiber, const std::shared_ptr<Conn>& conn, std::uint64_t number);
    void dial_forever(Fiber& fiber, NodeId node_id, Lane lane);
    // When it was up, since when.
    Result<void> dial_once(Fiber& fiber, NodeId node_id, Lane lane, MonoTime& up_since);
    Result<void> serve(Fiber& fiber, Channel& channel, const Identity& identity);
    Result<void> take_slot(Fiber& fiber, Slot& slot, Channel& channel);
    Result<void> read_frames(Fiber& fiber, Channel& channel);
    void write_frames(Fiber& fiber, Channel& channel);
    void learn(Peer& peer, const Channel& channel, const Identity& identity);
    Nonce draw_nonce();

    Env env_;
    PeerLinksOptions options_;
    PeerHandler* handler_ = nullptr;
    std::unique_ptr<Listener> listener_;
    std::map<NodeId, Peer> peers_;  // without this node
    Rng nonce_rng_;
    Rng backoff_rng_;
    std::map<std::uint64_t, Conn*> unauthenticated_;  // oldest first
    std::uint64_t next_number_ = 1;
    MonoTime eviction_told_until_;
    bool eviction_told_ = false;
    Group fibers_;
};

}  // namespace mortar::peer
