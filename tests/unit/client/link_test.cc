// The connection that heals itself: backoff, leader hints, deadlines, order of answers.
#include <gtest/gtest.h>

#include "tests/unit/client/fake_broker.h"

namespace mortar {
namespace {
using client::Link;
using testing::ClientWorld;
using testing::FakeBroker;
using testing::Fault;

Fault fails(ErrorCode code, std::string text = "scripted") {
    return {Fault::Kind::ERROR_BEFORE, code, std::move(text)};
}

TEST(ClientLink, follows_the_leader_hint) {
    ClientWorld world;
    FakeBroker leader(world.world.scheduler, world.world.clock);
    leader.listen(world.net, "leader:2");
    leader.add_topic("orders", 3);
    world.broker.script = [](wire::Op op, std::uint64_t) {
        if (op != wire::Op::DECLARE) return Fault{};
        return fails(ErrorCode::STALE_LEADER_EPOCH, "leader node=2 addr=leader:2 epoch=7");
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        Result<client::TopicInfo> topic =
            client::lookup_topic(fiber, world.env(), link, "orders", NEVER);
        ASSERT_TRUE(topic.ok()) << topic.error().to_string();
        EXPECT_EQ(topic->partition_count, 3);
        link.close(fiber);
    }));
    ASSERT_EQ(world.net.attempts.size(), 2u);
    EXPECT_EQ(world.net.attempts[1].first, "leader:2");
    EXPECT_LE(world.net.attempts[1].second - world.net.attempts[0].second, milliseconds(110));
}

TEST(ClientLink, moves_to_the_next_address_when_the_leader_is_unknown_or_nobody_listens) {
    ClientWorld world;
    FakeBroker leader(world.world.scheduler, world.world.clock);
    leader.listen(world.net, "leader:2");
    leader.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t) {
        return op == wire::Op::DECLARE
                   ? fails(ErrorCode::STALE_LEADER_EPOCH, "leader unknown epoch=7")
                   : Fault{};
    };
    client::LinkOptions options = world.link_options();
    options.addresses = {"broker:1", "dead:9", "leader:2"};
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), options);
        link.start();
        EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders", NEVER).ok());
        link.close(fiber);
    }));
    ASSERT_EQ(world.net.attempts.size(), 3u);
    EXPECT_EQ(world.net.attempts[1].first, "dead:9");
    EXPECT_EQ(world.net.attempts[2].first, "leader:2");
}

TEST(ClientLink, brokers_that_point_at_each_other_are_not_asked_in_a_tight_loop) {
    ClientWorld world;
    world.broker.script = [](wire::Op op, std::uint64_t) {
        return op == wire::Op::DECLARE
                   ? fails(ErrorCode::STALE_LEADER_EPOCH, "leader node=1 addr=broker:1 epoch=1")
                   : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        Result<client::TopicInfo> topic = client::lookup_topic(
            fiber, world.env(), link, "orders", world.world.clock.now() + seconds(20));
        EXPECT_TRUE(topic.is(ErrorCode::TIMED_OUT));
        EXPECT_NE(topic.error().detail.find("STALE_LEADER_EPOCH"), std::string::npos);
        link.close(fiber);
    }));
    EXPECT_GE(world.net.attempts.size(), 5u);
    EXPECT_LE(world.net.attempts.size(), 12u);
}

TEST(Contract, client_reconnect_backs_off_from_100_ms_to_30_s) {
    ClientWorld world;
    client::LinkOptions options = world.link_options();
    options.addresses = {"dead:9"};
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), options);
        link.start();
        Result<void> up = link.wait_up(fiber, world.world.clock.now() + seconds(200));
        ASSERT_TRUE(up.is(ErrorCode::TIMED_OUT));
        EXPECT_NE(up.error().detail.find("dead:9"), std::string::npos);
        EXPECT_NE(up.error().detail.find("CONNECTION_REFUSED"), std::string::npos);
        link.close(fiber);
    }));
    const auto& attempts = world.net.attempts;
    ASSERT_GE(attempts.size(), 10u);
    EXPECT_LE(attempts[1].second - attempts[0].second, milliseconds(100));
    std::int64_t base_ms = 500;
    for (std::size_t i = 2; i < attempts.size(); ++i) {
        const Duration gap = attempts[i].second - attempts[i - 1].second;
        EXPECT_GE(gap, milliseconds(std::min<std::int64_t>(base_ms, 30'000))) << i;
        EXPECT_LE(gap, milliseconds(std::min<std::int64_t>(base_ms + base_ms / 2, 30'000))) << i;
        base_ms *= 2;
    }
}

// covers NET-01
TEST(ClientLink, gives_up_on_a_broker_that_does_not_answer_and_connects_again) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return op == wire::Op::DECLARE && number == 1 ? Fault{Fault::Kind::SILENCE} : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        ASSERT_TRUE(link.wait_up(fiber, NEVER).ok());
        const MonoTime began = world.world.clock.now();
        EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders", NEVER).ok());
        EXPECT_GE(world.world.clock.now() - began, client::SILENCE_MAX);
        EXPECT_LE(world.world.clock.now() - began, client::SILENCE_MAX + seconds(1));
        EXPECT_EQ(link.session(), 2u);
        link.close(fiber);
    }));
}

TEST(ClientLink, stops_for_good_when_the_token_is_wrong) {
    ClientWorld world;
    world.broker.token = "secret";
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        Result<void> up = link.wait_up(fiber, NEVER);
        EXPECT_TRUE(up.is(ErrorCode::AUTH_FAILED));
        world.sleep(fiber, seconds(60));
        EXPECT_TRUE(link.fatal_error().has_value());
        link.close(fiber);
    }));
    EXPECT_EQ(world.net.attempts.size(), 1u);
}

TEST(ClientLink, keeps_an_idle_session_alive_with_pings) {
    ClientWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        ASSERT_TRUE(link.wait_up(fiber, NEVER).ok());
        world.sleep(fiber, seconds(100));
        EXPECT_EQ(link.session(), 1u);
        link.close(fiber);
    }));
    EXPECT_EQ(world.broker.count(wire::Op::PING), 6u);
}

// What a broker must never send; each ends the session, and nothing worse.
void expect_session_ends(const std::function<void(ByteVector&)>& write) {
    ClientWorld world;
    int served = 0;
    world.net.acceptors["broker:1"] = [&](std::unique_ptr<Conn> conn) {
        ++served;
        auto shared = std::make_shared<std::unique_ptr<Conn>>(std::move(conn));
        world.world.scheduler.spawn("odd.broker", [&write, shared](Fiber& fiber) {
            std::byte sink[64];
            while ((*shared)->read(fiber, sink, NEVER).ok()) {
                ByteVector out;
                write(out);
                const ByteSpan parts[] = {out};
                if (!(*shared)->write(fiber, parts, NEVER).ok()) return;
            }
        });
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        world.sleep(fiber, milliseconds(200));
        link.close(fiber);
    }));
    EXPECT_GE(served, 2);
}

TEST(ClientLink, ends_a_session_whose_broker_breaks_the_protocol) {
    expect_session_ends([](ByteVector& out) { wire::encode_ok(out, wire::Op::ACK); });
    expect_session_ends([](ByteVector& out) { wire::encode(out, wire::Notice{}); });
    expect_session_ends([](ByteVector& out) { wire::encode(out, wire::Ping{}); });
    expect_session_ends([](ByteVector& out) { out.assign(8, std::byte{0}); });
    expect_session_ends([](ByteVector& out) {
        wire::encode_ok(out, wire::Op::CONNECT);
        wire::encode_ok(out, wire::Op::CONNECT);
    });
}

TEST(ClientLink, answers_come_in_order_and_each_once_when_the_session_ends) {
    ClientWorld world;
    std::string order;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Link link(world.env(), world.link_options());
        link.start();
        ASSERT_TRUE(link.wait_up(fiber, NEVER).ok());
        for (const char name : {'a', 'b', 'c'}) {
            ByteVector frame;
            wire::encode(frame, wire::Ping{});
            link.send(wire::Op::PING, std::move(frame), [&order, name](Result<ByteSpan> answer) {
                order += answer.ok() ? name : '!';
            });
        }
        EXPECT_EQ(order, "");
        world.sleep(fiber, milliseconds(5));
        EXPECT_EQ(order, "abc");
        ByteVector frame;
        wire::encode(frame, wire::Ping{});
        link.send(wire::Op::PING, std::move(frame), [&order](Result<ByteSpan> answer) {
            EXPECT_TRUE(answer.is(ErrorCode::CONNECTION_CLOSED));
            order += 'd';
        });
        link.close(fiber);
        EXPECT_EQ(order, "abcd");
    }));
}

}  // namespace
}  // namespace mortar
