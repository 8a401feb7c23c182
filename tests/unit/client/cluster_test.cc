// The client library against a scripted cluster of three nodes: the leader moves, dies, hangs, comes back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/client/fake_broker.h"

namespace mortar {
namespace {
using client::Consumer;
using client::Link;
using client::Message;
using client::Producer;
using client::Published;
using testing::ClientWorld;
using testing::FakeBroker;
using testing::Fault;

// One FakeBroker holds what a majority stored; each node is a door to it. Only the leader's door lets requests in.
class FakeCluster {
  public:
    static constexpr std::size_t NODES = 3;
    enum class Node : std::uint8_t { UP, DOWN, HUNG };

    explicit FakeCluster(ClientWorld& world) : world_(world) {
        for (std::size_t i = 0; i < NODES; ++i) {
            world_.net.acceptors[address(i)] = [this, i](std::unique_ptr<Conn> conn) {
                accept(i, std::move(conn));
            };
        }
        world_.net.acceptors.erase("broker:1");
        world_.broker.script = [this](wire::Op op, std::uint64_t number) {
            return judge(op, number);
        };
    }

    static std::string address(std::size_t node) { return fmt::format("node{}:7188", node); }
    static std::string addresses() {
        return fmt::format("{},{},{}", address(0), address(1), address(2));
    }
    client::LinkOptions link_options() const {
        client::LinkOptions options;
        options.addresses = {addresses()};
        return options;
    }
    // The old leader ends all subscriptions and keeps its connections (contract R4).
    void elect(std::size_t node) {
        leader_ = node;
        ++leader_epoch_;
        for (std::size_t i = 0; i < NODES; ++i)
            told_[i] = hint();
    }
    void elect_nobody() {
        leader_.reset();
        for (std::size_t i = 0; i < NODES; ++i)
            told_[i] = fmt::format("leader unknown epoch={}", leader_epoch_);
    }
    // Still thinks that it leads, and has no quorum, while another one was elected.
    void cut_off(std::size_t node, std::size_t leader) {
        cut_off_ = node;
        elect(leader);
    }
    // What this node says whatever is true.
    void tell(std::size_t node, std::string text) { told_[node] = std::move(text); }
    std::string hint() const {
        return fmt::format("leader node={} addr={} epoch={}", *leader_, address(*leader_),
                           leader_epoch_);
    }
    void kill(std::size_t node) {
        state_[node] = Node::DOWN;
        world_.net.acceptors.erase(address(node));
        drop(node);
    }
    // Accepts, reads nothing, answers nothing.
    void hang(std::size_t node) { state_[node] = Node::HUNG; }
    void start(std::size_t node) {
        state_[node] = Node::UP;
        world_.net.acceptors[address(node)] = [this, node](std::unique_ptr<Conn> conn) {
            accept(node, std::move(conn));
        };
    }
    void at(MonoTime when, std::function<void()> act) {
        world_.world.scheduler.spawn("cluster.script", [this, when, act](Fiber& fiber) {
            if (world_.world.scheduler.sleep_until(fiber, when).ok()) act();
        });
    }
    std::size_t attempts_between(MonoTime from, MonoTime to) const {
        std::size_t count = 0;
        for (const auto& [address, when] : world_.net.attempts)
            if (when >= from && when < to) ++count;
        return count;
    }

    std::function<Fault(wire::Op, std::uint64_t)> leader_script = [](wire::Op, std::uint64_t) {
        return Fault{};
    };
    // Requests that a node that does not lead was sent.
    std::uint64_t misled_count = 0;
    std::uint64_t misled_pub_count = 0;

  private:
    // Between the client and the FakeBroker, so that a node can hang or die with its connections.
    struct Door {
        std::size_t node = 0;
        std::shared_ptr<Conn> outside;
        bool ended = false;
    };

    void accept(std::size_t node, std::unique_ptr<Conn> conn) {
        auto door = std::make_shared<Door>();
        door->node = node;
        door->outside = std::move(conn);
        doors_.push_back(door);
        world_.world.scheduler.spawn("cluster.door",
                                     [this, door](Fiber& fiber) { serve(fiber, *door); });
    }

    // Frames one by one to the broker behind the door, which sees who they came through.
    void serve(Fiber& fiber, Door& door) {
        std::unique_ptr<Conn> inside = connect_inside(door);
        Scheduler& scheduler = world_.world.scheduler;
        Conn& in = *inside;
        const auto pump = [this, &door](Fiber& pumping, Conn& from, Conn& to) {
            std::byte buffer[4096];
            while (!door.ended) {
                const Result<std::size_t> count =
                    from.read(pumping, buffer, world_.world.clock.now() + milliseconds(1));
                while (state_[door.node] == Node::HUNG && !door.ended) {
                    if (!world_.world.scheduler
                             .sleep_until(pumping, world_.world.clock.now() + milliseconds(1))
                             .ok())
                        return;
                }
                if (count.is(ErrorCode::TIMED_OUT)) continue;
                if (!count.ok() || *count == 0) break;
                const ByteSpan parts[] = {ByteSpan(buffer).first(*count)};
                if (!to.write(pumping, parts, NEVER).ok()) break;
            }
            door.ended = true;
        };
        Group group(scheduler);
        group.spawn("cluster.door.in", [&](Fiber& pumping) { pump(pumping, *door.outside, in); });
        pump(fiber, in, *door.outside);
        group.cancel_and_join(fiber);
        door.outside->close();
        in.close();
    }

    std::unique_ptr<Conn> connect_inside(const Door& door) {
        auto to_server = std::make_shared<testing::Pipe>();
        auto to_client = std::make_shared<testing::Pipe>();
        auto server = std::make_unique<testing::FakeConn>(to_server, to_client, "door");
        world_.broker.serve_connection(std::move(server), door.node);
        return std::make_unique<testing::FakeConn>(to_client, to_server, "broker");
    }

    void drop(std::size_t node) {
        for (const std::shared_ptr<Door>& door : doors_) {
            if (door->node == node) door->ended = true;
        }
        std::erase_if(doors_, [](const auto& door) { return door->ended; });
    }

    Fault judge(wire::Op op, std::uint64_t number) {
        const std::size_t node = world_.broker.present_door;
        if (op == wire::Op::CONNECT || op == wire::Op::PING) return {};
        if (cut_off_ == node)
            return {Fault::Kind::ERROR_BEFORE, ErrorCode::QUORUM_LOST, "read-only"};
        if (leader_ == node) return leader_script(op, number);
        ++misled_count;
        if (op == wire::Op::PUB) ++misled_pub_count;
        return {Fault::Kind::ERROR_BEFORE, ErrorCode::STALE_LEADER_EPOCH, told_[node]};
    }

    ClientWorld& world_;
    std::optional<std::size_t> leader_;
    std::optional<std::size_t> cut_off_;
    std::uint64_t leader_epoch_ = 0;
    std::array<std::string, NODES> told_;
    std::array<Node, NODES> state_{};
    std::vector<std::shared_ptr<Door>> doors_;
};

void expect_once_in_order(const FakeBroker& broker, std::size_t count) {
    const auto& log = broker.topics.find("orders")->second.partitions[0].log;
    ASSERT_EQ(log.size(), count);
    for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(log[i].value, std::to_string(i));
}

struct Publishing {
    std::uint64_t ok_count = 0;
    std::uint64_t failed_count = 0;
    std::uint64_t last_sequence = 0;
    MonoTime last_ok;
    Duration longest_gap;
};

// One message after the other, until end. The fakes take no time of their own.
void publish_until(Fiber& fiber, ClientWorld& world, Producer& producer, MonoTime end,
                   Publishing& seen) {
    std::uint64_t number = 0;
    seen.last_ok = world.world.clock.now();
    while (world.world.clock.now() < end) {
        const Result<Published> published =
            producer.publish(fiber, "orders", "", std::to_string(number));
        world.sleep(fiber, milliseconds(1));
        if (!published.ok()) {
            ++seen.failed_count;
            continue;
        }
        ++number;
        ++seen.ok_count;
        // covers SPL-10: what is answered is a place in the one log, whoever led.
        EXPECT_EQ(published->sequence.value, seen.last_sequence + 1);
        seen.last_sequence = published->sequence.value;
        const MonoTime now = world.world.clock.now();
        seen.longest_gap = std::max(seen.longest_gap, now - seen.last_ok);
        seen.last_ok = now;
    }
}

TEST(ClientCluster, finds_the_leader_from_any_address) {
    for (std::size_t leader = 0; leader < FakeCluster::NODES; ++leader) {
        ClientWorld world;
        world.broker.add_topic("orders", 1);
        FakeCluster cluster(world);
        cluster.elect(leader);
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            Link link(world.env(), cluster.link_options());
            link.start();
            EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders",
                                             world.world.clock.now() + milliseconds(50))
                            .ok());
            link.close(fiber);
        }));
        EXPECT_EQ(world.net.attempts.size(), leader == 0 ? 1u : 2u);
    }
}

// covers NET-04
TEST(ClientCluster, a_producer_is_at_the_new_leader_soon_after_the_election) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        ClientWorld world(seed);
        world.broker.add_topic("orders", 1);
        FakeCluster cluster(world);
        cluster.elect(0);
        // The followers still name the dead leader until its lease is over, then nobody, then the new one.
        cluster.at(MonoTime{seconds(1).ns}, [&] { cluster.kill(0); });
        cluster.at(MonoTime{milliseconds(2000).ns}, [&] { cluster.elect_nobody(); });
        cluster.at(MonoTime{milliseconds(2300).ns}, [&] { cluster.elect(2); });
        Publishing seen;
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            Producer producer(world.env(), cluster.link_options());
            producer.start();
            publish_until(fiber, world, producer, MonoTime{seconds(4).ns}, seen);
            producer.close(fiber);
        }));
        EXPECT_EQ(seen.failed_count, 0u);
        EXPECT_GE(seen.longest_gap, milliseconds(1300));
        EXPECT_LE(seen.longest_gap, milliseconds(2100)) << seed;
        expect_once_in_order(world.broker, seen.ok_count);
    }
}

TEST(ClientCluster, a_hand_over_costs_a_producer_little_and_doubles_nothing) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(0);
    for (int i = 1; i <= 6; ++i) {
        cluster.at(MonoTime{milliseconds(500 * i).ns},
                   [&cluster, i] { cluster.elect(static_cast<std::size_t>(i) % 3); });
    }
    std::uint64_t answered = 0;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), cluster.link_options());
        producer.start();
        std::uint64_t number = 0;
        std::uint64_t last = 0;
        MonoTime last_at = world.world.clock.now();
        Duration longest;
        while (world.world.clock.now() < MonoTime{milliseconds(4000).ns}) {
            for (int i = 0; i < 10; ++i) {
                ASSERT_TRUE(producer
                                .publish_async(fiber, "orders", "", std::to_string(number++),
                                               [&](Result<Published> published) {
                                                   ASSERT_TRUE(published.ok());
                                                   EXPECT_EQ(published->sequence.value, ++last);
                                                   const MonoTime now = world.world.clock.now();
                                                   longest = std::max(longest, now - last_at);
                                                   last_at = now;
                                               })
                                .ok());
            }
            world.sleep(fiber, milliseconds(5));
        }
        ASSERT_TRUE(producer.flush(fiber).ok());
        answered = last;
        EXPECT_EQ(answered, number);
        EXPECT_LE(longest, milliseconds(800));
        producer.close(fiber);
    }));
    expect_once_in_order(world.broker, answered);
    EXPECT_GT(answered, 1000u);
}

// A follower would refuse all that a producer holds, one by one.
TEST(ClientCluster, a_single_request_asks_a_broker_whether_it_leads) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(0);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), cluster.link_options());
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "0").ok());
        cluster.kill(0);
        world.sleep(fiber, milliseconds(3));
        cluster.elect(2);
        for (int i = 1; i <= 500; ++i) {
            ASSERT_TRUE(
                producer.publish_async(fiber, "orders", "", std::to_string(i), nullptr).ok());
        }
        ASSERT_TRUE(producer.flush(fiber).ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(cluster.misled_pub_count, 1u);
    expect_once_in_order(world.broker, 501);
}

// covers REB-07
TEST(ClientCluster, a_leader_that_hangs_is_left_after_a_bounded_silence) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(0);
    cluster.at(MonoTime{seconds(1).ns}, [&] { cluster.hang(0); });
    cluster.at(MonoTime{milliseconds(2300).ns}, [&] { cluster.elect(1); });
    Publishing seen;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), cluster.link_options());
        producer.start();
        publish_until(fiber, world, producer, MonoTime{seconds(8).ns}, seen);
        producer.close(fiber);
    }));
    EXPECT_EQ(seen.failed_count, 0u);
    EXPECT_LE(seen.longest_gap, client::SILENCE_MAX + milliseconds(300));
    expect_once_in_order(world.broker, seen.ok_count);
}

// covers REB-07, NET-04
TEST(ClientCluster, an_idle_consumer_notices_a_hung_leader_and_subscribes_at_the_new_one) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(0);
    MonoTime hung_at;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), cluster.link_options(), {.topic = "orders", .group = "g"});
        consumer.start();
        world.broker.append("orders", 0, "first");
        const Result<Message> first = consumer.next(fiber);
        ASSERT_TRUE(first.ok());
        EXPECT_EQ(first->value, "first");
        ASSERT_TRUE(consumer.ack_and_wait(fiber, *first).ok());
        world.sleep(fiber, seconds(20));
        EXPECT_EQ(consumer.stats().subscriptions, 1u);
        cluster.hang(0);
        cluster.elect(1);
        hung_at = world.world.clock.now();
        world.broker.append("orders", 0, "second");
        const Result<Message> second = consumer.next(fiber);
        ASSERT_TRUE(second.ok());
        EXPECT_EQ(second->value, "second");
        EXPECT_EQ(second->sequence, Sequence(2));
        EXPECT_LE(world.world.clock.now() - hung_at,
                  client::PING_BEHIND_PULL_AFTER + client::SILENCE_BEHIND_PULL_MAX + seconds(1));
        EXPECT_EQ(consumer.stats().subscriptions, 2u);
        consumer.close(fiber);
    }));
}

// covers NET-04, SPL-10
TEST(Contract, R4_a_subscription_that_ended_with_the_leadership_is_negotiated_anew) {
    for (const ErrorCode code :
         {ErrorCode::STALE_LEADER_EPOCH, ErrorCode::LEASE_EXPIRED, ErrorCode::UNKNOWN_MEMBER}) {
        ClientWorld world;
        world.broker.add_topic("orders", 1);
        for (int i = 0; i < 20; ++i)
            world.broker.append("orders", 0, std::to_string(i));
        FakeCluster cluster(world);
        cluster.elect(0);
        bool has_failed = false;
        cluster.leader_script = [&](wire::Op op, std::uint64_t) {
            // In the middle, and only once: the old leader knows it first.
            if (op != wire::Op::ACK || has_failed || cluster.misled_count > 0) return Fault{};
            has_failed = true;
            if (code != ErrorCode::UNKNOWN_MEMBER) cluster.elect(1);
            return Fault{
                Fault::Kind::ERROR_BEFORE, code,
                code == ErrorCode::STALE_LEADER_EPOCH ? cluster.hint() : "outcome unknown"};
        };
        std::vector<std::string> values;
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            Consumer consumer(world.env(), cluster.link_options(),
                              {.topic = "orders", .group = "g", .credit_count = 4});
            consumer.start();
            while (values.size() < 20) {
                const Result<Message> message =
                    consumer.next(fiber, world.world.clock.now() + seconds(5));
                ASSERT_TRUE(message.ok()) << message.error().to_string();
                if (values.empty() || values.back() != message->value)
                    values.push_back(message->value);
                consumer.ack(*message);
            }
            EXPECT_EQ(consumer.stats().subscriptions, 2u);
            consumer.close(fiber);
        }));
        ASSERT_EQ(values.size(), 20u);
        for (std::size_t i = 0; i < values.size(); ++i)
            EXPECT_EQ(values[i], std::to_string(i));
        EXPECT_TRUE(has_failed);
    }
}

TEST(Contract, R2_after_lost_leadership_the_same_pubs_go_again_in_order_and_none_is_doubled) {
    struct Case {
        ErrorCode code;
        Fault::Kind kind;
    };
    for (const Case& fails :
         {Case{ErrorCode::PRODUCER_EPOCH_STALE, Fault::Kind::ERROR_AFTER},
          Case{ErrorCode::PRODUCER_EPOCH_STALE, Fault::Kind::ERROR_BEFORE},
          Case{ErrorCode::READ_ONLY_DEGRADED, Fault::Kind::ERROR_AFTER},
          Case{ErrorCode::LEASE_EXPIRED, Fault::Kind::ERROR_BEFORE},
          Case{ErrorCode::QUORUM_LOST, Fault::Kind::ERROR_BEFORE},
          Case{ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH, Fault::Kind::ERROR_BEFORE}}) {
        ClientWorld world;
        world.broker.add_topic("orders", 1);
        FakeCluster cluster(world);
        cluster.elect(0);
        std::set<std::uint64_t> failed;
        cluster.leader_script = [&](wire::Op op, std::uint64_t number) {
            if (op != wire::Op::PUB || number % 7 != 0 || !failed.insert(number).second)
                return Fault{};
            return Fault{fails.kind, fails.code, "outcome unknown"};
        };
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            Producer producer(world.env(), cluster.link_options());
            producer.start();
            for (int i = 0; i < 60; ++i) {
                ASSERT_TRUE(producer
                                .publish_async(fiber, "orders", "", std::to_string(i),
                                               [](Result<Published> published) {
                                                   EXPECT_TRUE(published.ok());
                                               })
                                .ok());
                if (i % 10 == 0) world.sleep(fiber, milliseconds(20));
            }
            ASSERT_TRUE(producer.flush(fiber, world.world.clock.now() + seconds(100)).ok());
            producer.close(fiber);
        }));
        EXPECT_FALSE(failed.empty());
        expect_once_in_order(world.broker, 60);
    }
}

TEST(ClientCluster, a_leader_that_refuses_everything_for_long_is_not_the_only_one_asked) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.cut_off(0, 1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), cluster.link_options());
        link.start();
        EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders",
                                         world.world.clock.now() + seconds(8))
                        .ok());
        link.close(fiber);
    }));
    EXPECT_EQ(world.net.attempts.size(), 2u);
}

// covers REB-15
TEST(ClientCluster, all_down_for_long_then_back_is_found_without_a_restart_and_without_a_hot_loop) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(0);
    const MonoTime down{seconds(1).ns};
    const MonoTime back{seconds(200).ns};
    cluster.at(down, [&] {
        for (std::size_t i = 0; i < FakeCluster::NODES; ++i)
            cluster.kill(i);
    });
    cluster.at(back, [&] {
        cluster.elect(1);
        for (std::size_t i = 0; i < FakeCluster::NODES; ++i)
            cluster.start(i);
    });
    MonoTime served;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), cluster.link_options(), {.delivery_timeout = seconds(1000)});
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "0").ok());
        world.sleep(fiber, seconds(2));
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "1").ok());
        served = world.world.clock.now();
        producer.close(fiber);
    }));
    EXPECT_LE(served, back + client::RECONNECT_MAX + seconds(1));
    // Rounds at 0.1, 0.6, 1.6 .. 31.6, then every 30 s: about a dozen, of three attempts each.
    EXPECT_LE(cluster.attempts_between(down, back), 3u * 16);
    EXPECT_GE(cluster.attempts_between(down, back), 3u * 8);
    expect_once_in_order(world.broker, 2);
}

TEST(ClientCluster, hints_in_circles_and_a_cluster_without_a_leader_make_no_hot_loop) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect_nobody();
    for (std::size_t i = 0; i < FakeCluster::NODES; ++i) {
        cluster.tell(i, fmt::format("leader node={0} addr={1} epoch={0}", (i + 1) % 3,
                                    FakeCluster::address((i + 1) % 3)));
    }
    const MonoTime end{seconds(60).ns};
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), cluster.link_options());
        link.start();
        const Result<client::TopicInfo> topic =
            client::lookup_topic(fiber, world.env(), link, "orders", end);
        ASSERT_TRUE(topic.is(ErrorCode::TIMED_OUT));
        for (std::size_t i = 0; i < FakeCluster::NODES; ++i)
            EXPECT_NE(topic.error().detail.find(FakeCluster::address(i)), std::string::npos);
        link.close(fiber);
    }));
    // At most seven attempts between two pauses; about a dozen pauses.
    EXPECT_LE(cluster.attempts_between(MonoTime{}, end), 90u);
    EXPECT_GE(cluster.attempts_between(MonoTime{}, end), 20u);
}

TEST(ClientCluster, a_node_that_accepts_and_never_answers_holds_nobody_up_for_long) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(2);
    cluster.hang(0);
    cluster.hang(1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), cluster.link_options());
        link.start();
        EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders",
                                         world.world.clock.now() + client::HURRIED_CONNECT_MAX * 2 +
                                             milliseconds(50))
                        .ok());
        link.close(fiber);
    }));
    EXPECT_EQ(world.net.attempts.size(), 3u);
}

TEST(ClientCluster, one_node_that_does_not_know_the_token_yet_is_not_the_end) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    FakeCluster cluster(world);
    cluster.elect(1);
    FakeBroker stranger(world.world.scheduler, world.world.clock);
    stranger.token = "another";
    stranger.listen(world.net, FakeCluster::address(0));
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), cluster.link_options());
        link.start();
        EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders",
                                         world.world.clock.now() + seconds(1))
                        .ok());
        link.close(fiber);
        // When all that can be reached refuse it, it is.
        cluster.kill(1);
        cluster.kill(2);
        Link hopeless(world.env(), cluster.link_options());
        hopeless.start();
        EXPECT_TRUE(hopeless.wait_up(fiber, NEVER).is(ErrorCode::AUTH_FAILED));
        hopeless.close(fiber);
    }));
}

TEST(ClientCluster, the_error_names_every_address_and_why_it_failed) {
    ClientWorld world;
    FakeCluster cluster(world);
    cluster.elect_nobody();
    cluster.kill(0);
    cluster.kill(1);
    cluster.hang(2);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), cluster.link_options());
        link.start();
        const Result<void> up = link.wait_up(fiber, world.world.clock.now() + seconds(4));
        ASSERT_TRUE(up.is(ErrorCode::TIMED_OUT));
        EXPECT_EQ(up.error().detail,
                  "no broker accepted a connection; tried node0:7188 (CONNECTION_REFUSED: nobody "
                  "there), node1:7188 (CONNECTION_REFUSED: nobody there), node2:7188 (TIMED_OUT: "
                  "no answer to CONNECT in time)");
        link.close(fiber);
    }));
}

}  // namespace
}  // namespace mortar
