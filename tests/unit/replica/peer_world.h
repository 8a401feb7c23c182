// peer_world: simulated nodes that are linked as peers, and what each of them saw.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/replica/peer_handshake.h"
#include "core/replica/peer_link.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"

namespace mortar::testing {

inline SecretKey peer_key(int fill = 7) {
    SecretKey key;
    key.fill(static_cast<std::byte>(fill));
    return key;
}

class PeerWorld {
  public:
    struct Seen {
        std::string peer_lane;  // "1/bulk<" accepted, "1/bulk>" dialed
        peer::Op op;
        ByteVector payload;
    };
    // One node: its links and a handler that writes down what comes.
    class Node : public peer::PeerHandler {
      public:
        Node(PeerWorld& owner, std::uint16_t id)
            : world_(owner),
              sim(owner.world.add_node(std::string(1, static_cast<char>('a' + id)))) {
            options.key = peer_key();
            options.identity.node_id = NodeId(id);
            options.identity.listen_client = sim.name() + ":7188";
            options.identity.listen_admin = sim.name() + ":7190";
        }
        void start() {
            links.reset();
            up.clear();
            options.peers = addresses;
            links = std::make_unique<peer::PeerLinks>(sim.env(), options);
            links->start(sim.net().listen("0.0.0.0:7189").value(), *this);
        }
        void kill(bool power = false) {
            if (power) {
                sim.power_loss(sim::PowerImage{sim::PowerImage::Kind::NONE});
            } else {
                sim.kill();
            }
            links.reset();
            up.clear();
        }
        void stop(Fiber& fiber) { links->stop(fiber); }

        void on_channel_up(peer::PeerChannel& channel) override {
            EXPECT_TRUE(up.emplace(name_of(channel), &channel).second) << name_of(channel);
            ++up_count;
            if (hook_up) hook_up(channel);
        }
        void on_channel_down(peer::PeerChannel& channel) override {
            EXPECT_EQ(up.erase(name_of(channel)), 1u) << name_of(channel);
            EXPECT_TRUE(channel.is_closed());
            ++down_count;
        }
        Result<void> on_frame(Fiber& fiber, peer::PeerChannel& channel, peer::Op op,
                              ByteSpan payload) override {
            EXPECT_EQ(up.at(name_of(channel)), &channel);
            seen.push_back({name_of(channel), op, ByteVector(payload.begin(), payload.end())});
            if (hook_frame) return hook_frame(fiber, channel, op, payload);
            return {};
        }
        static std::string name_of(const peer::PeerChannel& channel) {
            return std::to_string(channel.peer().value) + "/" +
                   std::string(peer::lane_name(channel.lane())) + (channel.is_dialed() ? ">" : "<");
        }
        bool is_linked() const { return up.size() == 4 * (world_.nodes.size() - 1); }
        peer::PeerChannel& channel(std::uint16_t peer, peer::Lane lane) {
            peer::PeerChannel* found = links->channel(NodeId(peer), lane);
            EXPECT_NE(found, nullptr);
            return *found;
        }
        std::size_t log_count(std::string_view text) const {
            const auto has = [&](const std::string& line) {
                return line.find(text) != std::string::npos;
            };
            return static_cast<std::size_t>(std::count_if(log.begin(), log.end(), has));
        }
        std::string log_text() const {
            std::string all;
            for (const std::string& line : log)
                all += line + "\n";
            return all;
        }

      private:
        PeerWorld& world_;

      public:
        sim::SimNode& sim;
        peer::PeerLinksOptions options;
        std::vector<peer::PeerAddress> addresses;
        std::unique_ptr<peer::PeerLinks> links;
        std::map<std::string, peer::PeerChannel*> up;
        std::vector<Seen> seen;
        std::vector<std::string> log;
        int up_count = 0;
        int down_count = 0;
        std::function<void(peer::PeerChannel&)> hook_up;
        std::function<Result<void>(Fiber&, peer::PeerChannel&, peer::Op, ByteSpan)> hook_frame;
    };

    explicit PeerWorld(std::size_t node_count = 3, std::uint64_t seed = 1) : world(seed, stacks) {
        for (std::size_t i = 0; i < node_count; ++i)
            nodes.push_back(std::make_unique<Node>(*this, static_cast<std::uint16_t>(i)));
        for (const auto& node : nodes) {
            for (const auto& other : nodes) {
                node->addresses.push_back(
                    {other->options.identity.node_id, other->sim.name() + ":7189"});
            }
        }
        world.set_log_sink([this](const sim::SimNode& node, LogLevel, std::string_view line) {
            if (node.index() < nodes.size()) nodes[node.index()]->log.emplace_back(line);
        });
    }
    ~PeerWorld() {
        for (const auto& node : nodes) {
            if (node->sim.alive()) node->sim.kill();
        }
    }
    PeerWorld(const PeerWorld&) = delete;
    PeerWorld& operator=(const PeerWorld&) = delete;

    Node& operator[](std::size_t index) { return *nodes[index]; }
    void start_all() {
        for (const auto& node : nodes)
            node->start();
    }
    bool all_linked() const {
        return std::all_of(nodes.begin(), nodes.end(),
                           [](const auto& node) { return node->is_linked(); });
    }
    bool run_until_linked(Duration limit = seconds(5)) {
        return run_until([this] { return all_linked(); }, limit);
    }
    template <class Condition>
    bool run_until(Condition condition, Duration limit = seconds(5)) {
        const MonoTime end = world.now() + limit;
        while (!condition() && world.now() < end)
            world.run_for(milliseconds(1));
        return condition();
    }
    // Runs body as a fiber of the node until it has ended.
    void run_on(sim::SimNode& node, FiberBody body) {
        bool ended = false;
        node.scheduler().spawn("test.body", [&ended, inner = std::move(body)](Fiber& fiber) {
            inner(fiber);
            ended = true;
        });
        while (!ended && world.step(world.now() + seconds(1000))) {
        }
        ASSERT_TRUE(ended);
    }

    sim::HeapStackPool stacks;
    sim::SimWorld world;
    std::vector<std::unique_ptr<Node>> nodes;
};

}  // namespace mortar::testing
