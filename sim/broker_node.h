// broker_node: one broker of a run over all its lives: what an operator installs, its configuration, start and orderly end,
// and the god's view of its disk.
// Shape:    one of one is called "broker", of several broker1, broker2, ...
// Owns:     the Broker of the present life. The node is the world's and outlives it.
// Source:   design 6 (world), contract 4.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/broker.h"
#include "io-sim/node.h"
#include "sim/checker.h"
#include "sim/params.h"

namespace mortar::sim {

inline constexpr const char* CLIENT_TOKEN = "simulated";
inline constexpr std::uint16_t CLIENT_PORT = 7188;
inline constexpr std::uint16_t PEER_PORT = 7189;

std::string broker_name(std::size_t index, std::size_t count);
// host:port, in order of the brokers.
std::vector<std::string> client_addresses(std::size_t broker_count);

class BrokerNode {
  public:
    // on_end: run ended by itself or after stop(); not when the node died.
    using OnEnd = std::function<void(BrokerNode&, const Result<void>&)>;
    BrokerNode(SimNode& node, std::size_t index, const Params& params, OnEnd on_end)
        : node_(node), index_(index), params_(params), on_end_(std::move(on_end)) {}

    SimNode& node() { return node_; }
    std::size_t index() const { return index_; }
    const std::string& name() const { return node_.name(); }
    Broker* broker() { return broker_.get(); }  // nullptr while the node is down

    // What an operator does before the first start.
    void install();
    // Its disk is empty: the next start begins with install.
    void on_wiped() { is_bare_ = true; }
    void start();
    // SIGTERM.
    void stop();
    // The node has died.
    void on_down();
    // Drops the broker: files close with the objects that hold them.
    void drop_broker() { broker_.reset(); }

    bool is_ready() const { return broker_ != nullptr && broker_->is_ready(); }
    ReplicaView replica_view() const;
    Image durable_image();
    Image cached_image();
    std::string fiber_names() const;

    // As the run has seen it; ends with the life.
    bool serving = false;
    bool stopping = false;
    bool restart_asked = false;
    std::optional<Result<void>> stopped;

  private:
    BrokerOptions options() const;
    Result<void> install_secrets(Fiber& fiber);

    SimNode& node_;
    std::size_t index_;
    const Params& params_;
    OnEnd on_end_;
    std::unique_ptr<Broker> broker_;
    bool is_bare_ = false;
};

}  // namespace mortar::sim
