// sim_net: TCP between simulated nodes: bytes in order, late, in pieces, through a bounded window.
// Shape:  SimNetwork is the wire of the world, SimNet a node's door to it. A node's name is its
//         host name; localhost and 127.0.0.1 are the node itself. Connections are numbered from 1
//         in order of connect.
// Owns:   the network keeps a link while an end holds it or an event is on its way.
// Faults: reset (also in mid-frame), silent half-open links, death of a node, connect refused; paths
//         from one node to another that are blocked, slow or gray (PathFault).
// Source: design 6 (net model).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/env/net.h"
#include "core/env/rng.h"
#include "io-sim/world.h"

namespace mortar::sim {

struct NetSpeed {
    Duration latency_min = microseconds(30);
    Duration latency_max = microseconds(300);
    // Once in this many pieces a retransmission delays the piece and all behind it.
    std::uint64_t delay_one_in = 500;
    Duration delay_max = milliseconds(40);
    std::int64_t bytes_per_ms = 100'000;
    // Sent and not yet read by the peer: socket buffers of both sides and what is on the wire.
    std::size_t window_bytes = 256 * 1024;
    // A write travels in several pieces, cut at any byte, once in this many writes; 0 = never.
    std::uint64_t split_one_in = 8;
    // A read gets fewer bytes than have arrived, once in this many reads; 0 = never.
    std::uint64_t short_read_one_in = 8;
};

enum class Death : std::uint8_t {
    KILL,  // the kernel lives: it closes or resets the connections, or (drawn) its packets are lost
    POWER,  // silence; after the restart what peers still send is answered by a reset
};

// What is wrong with the way from one node to another (not with the way back): a cut cable, a wrong
// filter rule, a congested or flapping switch port. It is there for the connections that exist and
// for new ones.
struct PathFault {
    // No packet gets through. What was sent waits for its retransmission, which comes some time after the
    // healing; a sender that nobody acknowledges anything gives its connection up after a while.
    bool is_blocked = false;
    Duration latency;               // each packet takes half of this to all of it longer
    std::int64_t bytes_per_ms = 0;  // a bottleneck; 0 = none
    // A gray link, as one that loses full-sized packets: a write of more than so many bytes crawls at
    // GRAY_BYTES_PER_MS, and what is sent behind it on the same connection waits for it. 0 = none.
    std::size_t crawls_above_bytes = 0;
};
using PathFaultId = std::uint64_t;
inline constexpr std::int64_t GRAY_BYTES_PER_MS = 1;

// What enters the send path of one end, in order, before any of it can arrive.
struct SendInfo {
    std::uint64_t conn_id;
    SimNode* node;
    const std::string& local_address;
    const std::string& peer_address;
};
using SendHook = std::function<void(const SendInfo&, ByteSpan bytes)>;

class SimLink;
class SimListener;

class SimNetwork {
  public:
    explicit SimNetwork(SimWorld& world) : world_(world) {}
    ~SimNetwork();

    // For links made from now on.
    void set_speed(const NetSpeed& speed) { speed_ = speed; }
    const NetSpeed& speed() const { return speed_; }
    void set_send_hook(SendHook hook) { send_hook_ = std::move(hook); }

    // Established connections that end at the node, by id; with an empty name all.
    std::vector<std::uint64_t> connections(std::string_view node = {}) const;
    // What is on the wire is cut at any byte, both ends get CONNECTION_CLOSED. No effect on an
    // unknown id.
    void reset(std::uint64_t conn_id, Rng& rng);
    // From now on nothing sent on it arrives, and nobody is told.
    void silence(std::uint64_t conn_id);
    // Faults of one path add up, until each is healed. No effect on an unknown id.
    PathFaultId break_path(const SimNode& from, const SimNode& to, const PathFault& fault);
    void heal_path(PathFaultId id);
    bool is_blocked(const SimNode& from, const SimNode& to) const;
    // Descriptors the node holds: connections (also not yet accepted) and listeners.
    std::size_t open_handles(const SimNode& node) const;

  private:
    friend class SimLink;
    friend class SimNet;
    friend class SimNode;
    friend class SimConn;
    friend class SimListener;

    std::shared_ptr<SimLink> add_link(SimNode& from, SimNode& to, std::uint16_t from_port,
                                      std::uint16_t to_port);
    std::shared_ptr<SimLink> find(std::uint64_t conn_id) const;
    // Forgets the link once nothing needs it.
    void reap(const SimLink& link);
    void on_node_down(SimNode& node, Death death);

    struct BrokenPath {
        const SimNode* from;
        const SimNode* to;
        PathFault fault;
    };
    // All faults of the path in one.
    PathFault path(const SimNode& from, const SimNode& to) const;

    SimWorld& world_;
    NetSpeed speed_;
    SendHook send_hook_;
    std::vector<std::shared_ptr<SimLink>> links_;  // by id
    std::uint64_t next_link_id_ = 1;
    std::map<PathFaultId, BrokenPath> broken_paths_;
    PathFaultId next_fault_id_ = 1;
};

class SimNet : public Net {
  public:
    SimNet(SimNetwork& network, SimNode& node) : network_(network), node_(node) {}

    Result<std::unique_ptr<Listener>> listen(const std::string& address) override;
    Result<std::unique_ptr<Conn>> connect(Fiber& fiber, const std::string& address,
                                          MonoTime deadline) override;

  private:
    friend class SimNetwork;
    friend class SimListener;
    friend class SimLink;

    std::uint16_t next_port();

    SimNetwork& network_;
    SimNode& node_;
    std::map<std::uint16_t, SimListener*> listeners_;
    std::uint16_t last_port_ = 0;  // drawn last, for port 0 and for connect
};

}  // namespace mortar::sim
