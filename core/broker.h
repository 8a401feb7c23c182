// broker: one node: builds every part from options and environment, starts the fibers, ends them in
// order.
// Shape:    run() opens the listeners, recovers (admin answers meanwhile), serves until stop(),
//           then answers what was read, closes and syncs everything. All wiring is in broker.cc.
// Owns:     every part of the node. The Env outlives it.
// Errors:   run: ADDRESS_IN_USE, ADDRESS_INVALID, PERMISSION_DENIED, LOCKED, IO_ERROR, NO_SPACE
//           (environment); INVALID_CONFIG; UNSUPPORTED_FORMAT, DAMAGED (data refused). Until the
//           listeners and the lock are held nothing on disk is changed, and no epoch is taken
//           before all data was read.
// Suspends: run, for the life of the node.
// Durable:  everything that was answered; after an orderly end also checkpoints, so that the next
//           start reads little.
// Source:   style (core/broker), contract 1, 4, 5, 8; cases COR-16.
#pragma once

#include <memory>
#include <string>

#include "core/admin/config.h"
#include "core/admin/stats.h"
#include "core/deliver/delivery.h"
#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/log/partition_log.h"
#include "core/meta/catalog.h"
#include "core/replica/node.h"

namespace mortar {

struct BrokerOptions {
    Config config;
    bool is_dev = false;
    // Not configuration; the simulator makes them small to reach what is rare.
    std::uint64_t checkpoint_every_bytes = LogOptions{}.checkpoint_every_bytes;
    std::uint64_t ledger_bytes_min = LEDGER_BYTES_MIN;
    CareOptions care{};
};

struct BrokerParts;

class Broker : public AdminState {
  public:
    Broker(Env env, BrokerOptions options);
    ~Broker() override;
    Broker(const Broker&) = delete;
    Broker& operator=(const Broker&) = delete;

    Result<void> run(Fiber& fiber);
    // Ends run in good order. Does not suspend.
    void stop();
    bool is_ready() const { return ready_; }
    // Once ready; the ports are those really bound.
    const std::string& client_address() const { return client_address_; }
    // What is committed and how far groups are, for checkers; once ready.
    const Catalog& catalog() const;
    // Nothing while this node does not lead.
    const Delivery* delivery() const;
    ReplicaStatus replica_status() const;

    NodeStatus node_status() const override;
    std::optional<TopicStatus> topic(const std::string& name) const override;
    std::vector<TopicStatus> topics(TopicId after, std::size_t limit) const override;
    std::optional<GroupStatus> group(const std::string& name) const override;
    std::vector<GroupStatus> groups(GroupId after, std::size_t limit) const override;

  private:
    Result<void> start(Fiber& fiber);
    Result<void> listen();
    Result<void> recover(Fiber& fiber);
    void build_replica();
    Result<void> serve(Fiber& fiber);
    void stop_playing(Fiber& fiber);
    bool is_cluster() const { return options_.config.peers.size() > 1; }
    Result<void> shut_down(Fiber& fiber);

    Env env_;
    BrokerOptions options_;
    MonoTime started_at_;
    bool ready_ = false;
    bool stopping_ = false;
    Event stop_asked_;
    std::string client_address_;
    std::string admin_address_;
    std::unique_ptr<BrokerParts> parts_;
};

}  // namespace mortar
