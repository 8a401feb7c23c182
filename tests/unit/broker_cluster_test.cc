// Three whole brokers in a simulated world: a follower whose disk cannot keep up, and what producers feel of it; metadata
// that rots.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "core/admin/config.h"
#include "core/broker.h"
#include "core/fiber/deadline.h"
#include "core/log/whole_file.h"
#include "core/wire/codec.h"
#include "core/wire/frame.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/produce/fakes.h"

namespace mortar {
namespace {

using testing::Answer;
using testing::NO_ERROR;

constexpr std::size_t NODES = 3;
constexpr std::size_t VALUE_BYTES = 10'000;
constexpr Duration PUB_EVERY = milliseconds(10);  // a megabyte a second

class BrokerCluster : public ::testing::Test {
  protected:
    BrokerCluster() {
        world.network().set_speed({});
        world.set_log_sink([this](const sim::SimNode&, LogLevel, std::string_view line) {
            lines.emplace_back(line);
        });
        for (std::size_t i = 0; i < NODES; ++i)
            nodes[i] = &world.add_node(name(i));
        for (std::size_t i = 0; i < NODES; ++i)
            start(i);
    }
    ~BrokerCluster() override {
        for (sim::SimNode* node : nodes) {
            if (node->alive()) node->kill();
        }
    }

    static std::string name(std::size_t i) { return "n" + std::to_string(i); }
    void start(std::size_t i) {
        BrokerOptions options;
        options.config = dev_config();
        options.config.node_id = NodeId(static_cast<std::uint16_t>(i));
        options.config.listen_peer = "0.0.0.0:7189";
        options.config.peers.clear();
        options.config.leader_priority.clear();
        for (std::size_t peer = 0; peer < NODES; ++peer) {
            const NodeId id(static_cast<std::uint16_t>(peer));
            options.config.peers.push_back({id, name(peer) + ":7189", name(peer) + ":7188"});
            options.config.leader_priority.push_back(id);
        }
        brokers[i] = std::make_unique<Broker>(nodes[i]->env(), std::move(options));
        nodes[i]->scheduler().spawn("test.broker", [this, i](Fiber& fiber) {
            Disk& disk = nodes[i]->disk();
            const std::string key(64, 'a');
            EXPECT_TRUE(make_folders_durably(fiber, disk, "auth").ok());
            EXPECT_TRUE(write_new_file(fiber, disk, "auth/peer.key.tmp", as_byte_span(key)).ok());
            EXPECT_TRUE(publish_file(fiber, disk, "auth", "peer.key.tmp", "peer.key").ok());
            (void)brokers[i]->run(fiber);
        });
    }
    void kill(std::size_t i) {
        nodes[i]->kill();
        brokers[i].reset();
    }
    void restart(std::size_t i) {
        nodes[i]->restart();
        start(i);
    }
    // A topic; on the leader's machine.
    void declare(const std::string& topic) {
        bool is_declared = false;
        nodes[0]->scheduler().spawn("test.declare", [&](Fiber& fiber) {
            conn = nodes[0]->net().connect(fiber, "127.0.0.1:7188", NEVER).value();
            reader = std::make_unique<wire::FrameReader>(*conn, nodes[0]->clock(), budget);
            EXPECT_EQ(ask(fiber, wire::Connect{}).code, NO_ERROR);
            is_declared = ask(fiber, wire::Declare{topic, 1, 0}).code == NO_ERROR;
            reader.reset();
            conn.reset();
        });
        ASSERT_TRUE(run_until([&] { return is_declared; }, seconds(5)));
    }
    std::optional<NodeId> leader_of(std::size_t i) const {
        return brokers[i]->node_status().leader_id;
    }
    // The last record of its newest metadata log.
    void rot_metadata(std::size_t i) {
        std::string newest;
        std::uint64_t last = 0;
        for (const std::string& path : nodes[i]->disk().durable_files("metadata")) {
            if (path.find("/log-") == std::string::npos) continue;
            const ByteVector bytes = nodes[i]->disk().durable_read(path).value_or(ByteVector());
            const auto end = std::find_if(bytes.rbegin(), bytes.rend(),
                                          [](std::byte byte) { return byte != std::byte{0}; });
            newest = path;
            last = static_cast<std::uint64_t>(bytes.rend() - end) - 1;
        }
        ASSERT_GT(last, 512u) << newest;
        ASSERT_TRUE(nodes[i]->disk().flip_bit(newest, last, 0));
    }
    bool run_until(const std::function<bool()>& done, Duration limit) {
        const MonoTime end = world.now() + limit;
        while (!done() && world.now() < end)
            world.run_for(milliseconds(10));
        return done();
    }
    NodeStatus leader() const { return brokers[0]->node_status(); }
    const NodeStatus::Follower& slow_one(const NodeStatus& status) const {
        return status.followers.at(1);
    }
    bool all_in_sync() const {
        const NodeStatus status = leader();
        return status.leader_id == NodeId(0) && status.followers.size() == NODES - 1 &&
               std::all_of(status.followers.begin(), status.followers.end(),
                           [](const auto& follower) { return follower.is_in_sync; });
    }
    std::size_t count_lines(const std::string& event) const {
        return static_cast<std::size_t>(std::count_if(
            lines.begin(), lines.end(),
            [&event](const std::string& line) { return line.find(event) != std::string::npos; }));
    }
    // On the leader's machine: PUBs at an even pace, as far as they are taken; their answers are counted.
    void start_producer() {
        nodes[0]->scheduler().spawn("test.producer", [this](Fiber& fiber) {
            conn = nodes[0]->net().connect(fiber, "127.0.0.1:7188", NEVER).value();
            reader = std::make_unique<wire::FrameReader>(*conn, nodes[0]->clock(), budget);
            EXPECT_EQ(ask(fiber, wire::Connect{}).code, NO_ERROR);
            const Answer declared = ask(fiber, wire::Declare{"orders", 1, 0});
            EXPECT_EQ(declared.code, NO_ERROR);
            nodes[0]->scheduler().spawn("test.answers", [this](Fiber& own) {
                while (read(own).code == NO_ERROR)
                    ++answered;
                ++refused;
            });
            const std::string value(VALUE_BYTES, 'v');
            for (std::uint64_t seq = 1;; ++seq) {
                wire::Pub pub;
                pub.topic_id = declared.declare.topic_id;
                pub.producer_id = ProducerId(7);
                pub.producer_seq = ProducerSeq(seq);
                pub.value = as_byte_span(value);
                const MonoTime next = nodes[0]->clock().now() + PUB_EVERY;
                send(fiber, pub);
                if (!nodes[0]->scheduler().sleep_until(fiber, next).ok()) return;
            }
        });
    }
    void send(Fiber& fiber, const auto& message) {
        ByteVector frame;
        wire::encode(frame, message);
        const ByteSpan parts[] = {frame};
        EXPECT_TRUE(conn->write(fiber, parts, NEVER).ok());
    }
    Answer read(Fiber& fiber) {
        const auto frame = reader->read(
            fiber, {wire::MAX_FRAME_LEN, deadline_after(nodes[0]->clock(), seconds(30))});
        if (frame.ok()) return testing::decode_answer(frame->op, frame->payload);
        Answer lost;
        lost.code = frame.error().code;
        return lost;
    }
    Answer ask(Fiber& fiber, const auto& message) {
        send(fiber, message);
        return read(fiber);
    }
    std::uint64_t answered_in(Duration time) {
        const std::uint64_t before = answered;
        world.run_for(time);
        return answered - before;
    }

    sim::HeapStackPool stacks;
    sim::SimWorld world{1, stacks};
    std::array<sim::SimNode*, NODES> nodes{};
    std::array<std::unique_ptr<Broker>, NODES> brokers;
    std::vector<std::string> lines;
    std::unique_ptr<Conn> conn;
    wire::FrameBudget budget;
    std::unique_ptr<wire::FrameReader> reader;
    std::uint64_t answered = 0;
    std::uint64_t refused = 0;
};

TEST_F(BrokerCluster, holds_producers_to_70_percent_until_a_slow_follower_is_in_sync) {
    ASSERT_TRUE(run_until([&] { return all_in_sync(); }, seconds(20)));
    start_producer();
    world.run_for(seconds(5));
    const std::uint64_t free_count = answered_in(seconds(5));
    EXPECT_NEAR(static_cast<double>(free_count), 490, 20);
    EXPECT_EQ(count_lines("producers_held"), 0u);
    EXPECT_EQ(leader().producers_held_to, 0u);

    // Its disk takes half of what comes; then it takes twice as much as comes.
    sim::DiskSpeed slow;
    slow.sync_bytes_per_ms = 500;
    nodes[2]->disk().set_speed(slow);
    ASSERT_TRUE(run_until([&] { return leader().producers_held_to > 0; }, seconds(60)));
    EXPECT_FALSE(slow_one(leader()).is_in_sync);
    EXPECT_NEAR(static_cast<double>(leader().producers_held_to), 0.7 * 1e6, 0.03e6);
    const std::uint64_t held_count = answered_in(seconds(5));
    EXPECT_GE(held_count, free_count * 66 / 100);
    EXPECT_LE(held_count, free_count * 76 / 100);

    slow.sync_bytes_per_ms = 2'000;
    nodes[2]->disk().set_speed(slow);
    ASSERT_TRUE(run_until([&] { return leader().producers_held_to == 0; }, seconds(60)));
    EXPECT_TRUE(slow_one(leader()).is_in_sync);
    nodes[2]->disk().set_speed({});
    world.run_for(seconds(2));
    EXPECT_NEAR(static_cast<double>(answered_in(seconds(5))), static_cast<double>(free_count), 20);
    EXPECT_EQ(count_lines("producers_held"), 1u);
    EXPECT_EQ(count_lines("producers_released"), 1u);
    EXPECT_EQ(refused, 0u);
}

TEST_F(BrokerCluster, holds_nobody_for_ever_when_a_follower_cannot_catch_up) {
    ASSERT_TRUE(run_until([&] { return all_in_sync(); }, seconds(20)));
    start_producer();
    world.run_for(seconds(5));
    sim::DiskSpeed slow;
    slow.sync_bytes_per_ms = 400;
    nodes[2]->disk().set_speed(slow);
    ASSERT_TRUE(run_until([&] { return leader().producers_held_to > 0; }, seconds(60)));
    ASSERT_TRUE(run_until([&] { return leader().producers_held_to == 0; }, seconds(20)));
    EXPECT_FALSE(slow_one(leader()).is_in_sync);
    EXPECT_EQ(count_lines("does not catch up in spite of it"), 1u);
    world.run_for(seconds(20));
    EXPECT_EQ(leader().producers_held_to, 0u);
    EXPECT_EQ(refused, 0u);
}

// Node 2 never had the topic, node 0 is away, and node 1 cannot tell whether what is rotten was ever finished.
TEST_F(BrokerCluster, metadata_that_lost_its_last_record_elects_nobody_without_the_other_copy) {
    ASSERT_TRUE(run_until([&] { return all_in_sync(); }, seconds(20)));
    kill(2);
    declare("orders");
    world.run_for(seconds(1));
    ASSERT_NE(brokers[1]->catalog().find_topic("orders"), nullptr);
    kill(0);
    kill(1);
    rot_metadata(1);
    restart(1);
    restart(2);
    world.run_for(seconds(10));
    EXPECT_EQ(leader_of(1), std::nullopt);
    EXPECT_EQ(leader_of(2), std::nullopt);
    // Nor after another start, by which the end looks sound again.
    kill(1);
    restart(1);
    world.run_for(seconds(10));
    EXPECT_EQ(leader_of(1), std::nullopt);
    EXPECT_EQ(leader_of(2), std::nullopt);
    restart(0);
    ASSERT_TRUE(run_until(
        [&] {
            return std::all_of(brokers.begin(), brokers.end(), [](const auto& broker) {
                return broker->node_status().leader_id.has_value() &&
                       broker->catalog().find_topic("orders") != nullptr;
            });
        },
        seconds(20)));
    world.run_for(seconds(2));
    // Installed: whole again, and good for a majority.
    kill(0);
    ASSERT_TRUE(run_until([&] { return leader_of(1) && leader_of(2); }, seconds(20)));
    EXPECT_NE(brokers[1]->catalog().find_topic("orders"), nullptr);
}

}  // namespace
}  // namespace mortar
