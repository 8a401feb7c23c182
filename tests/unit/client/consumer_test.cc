// A member of a group: pulling, settling, giving partitions back, coming back after a lost connection.
#include <gtest/gtest.h>

#include "tests/unit/client/fake_broker.h"

namespace mortar {
namespace {
using client::Consumer;
using client::ConsumerOptions;
using client::Message;
using testing::ClientWorld;
using testing::Fault;

ConsumerOptions orders() {
    ConsumerOptions options;
    options.topic = "orders";
    options.group = "g";
    return options;
}

struct ConsumerWorld : ClientWorld {
    explicit ConsumerWorld(int messages, std::uint64_t seed = 1, std::uint16_t partitions = 1)
        : ClientWorld(seed) {
        broker.add_topic("orders", partitions);
        for (int i = 0; i < messages; ++i) {
            broker.append("orders", static_cast<std::size_t>(i) % partitions, std::to_string(i));
        }
    }
    testing::FakeBroker::Partition& partition(std::size_t index = 0) {
        return broker.topics["orders"].partitions[index];
    }
};

TEST(Consumer, delivers_in_order_acks_and_leaves) {
    ConsumerWorld world(100);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        for (int i = 0; i < 100; ++i) {
            Result<Message> message = consumer.next(fiber);
            ASSERT_TRUE(message.ok());
            EXPECT_EQ(message->value, std::to_string(i));
            EXPECT_EQ(message->attempt, 1);
            consumer.ack(*message);
        }
        EXPECT_TRUE(
            consumer.next(fiber, world.world.clock.now() + seconds(1)).is(ErrorCode::TIMED_OUT));
        consumer.close(fiber);
        EXPECT_EQ(consumer.stats().acked, 100u);
        EXPECT_TRUE(consumer.next(fiber).is(ErrorCode::CONNECTION_CLOSED));
    }));
    EXPECT_EQ(world.partition().settled.size(), 100u);
    EXPECT_EQ(world.broker.leave_count, 1u);
}

TEST(Contract, C6_acks_leave_in_batches_or_after_20_ms_or_at_once_when_the_application_waits) {
    ConsumerWorld world(64);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        std::vector<Message> messages;
        for (int i = 0; i < 64; ++i)
            messages.push_back(*consumer.next(fiber));
        for (std::size_t i = 0; i < 31; ++i)
            consumer.ack(messages[i]);
        world.sleep(fiber, milliseconds(15));
        EXPECT_EQ(world.broker.count(wire::Op::ACK), 0u);
        world.sleep(fiber, milliseconds(10));
        EXPECT_EQ(world.broker.count(wire::Op::ACK), 31u);
        for (std::size_t i = 31; i < 63; ++i)
            consumer.ack(messages[i]);
        world.sleep(fiber, milliseconds(3));
        EXPECT_EQ(world.broker.count(wire::Op::ACK), 63u);
        consumer.ack(messages[63]);
        const MonoTime began = world.world.clock.now();
        EXPECT_FALSE(consumer.next(fiber, began + milliseconds(5)).ok());
        EXPECT_EQ(world.broker.count(wire::Op::ACK), 64u);
        consumer.close(fiber);
    }));
}

TEST(Consumer, ack_and_wait_returns_the_promise_of_the_broker) {
    ConsumerWorld world(2);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        if (op != wire::Op::ACK) return Fault{};
        if (number == 1) return Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::QUORUM_LOST};
        return number == 3 ? Fault{Fault::Kind::DROP_BEFORE} : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        Result<Message> first = consumer.next(fiber);
        EXPECT_TRUE(consumer.ack_and_wait(fiber, *first).ok());
        EXPECT_EQ(world.partition().settled.size(), 1u);
        EXPECT_TRUE(consumer.ack_and_wait(fiber, *first).is(ErrorCode::CONNECTION_CLOSED));
        Result<Message> second = consumer.next(fiber);
        EXPECT_TRUE(consumer.ack_and_wait(fiber, *second).is(ErrorCode::CONNECTION_CLOSED));
        world.sleep(fiber, seconds(2));
        EXPECT_EQ(consumer.stats().settled_again, 1u);
        consumer.close(fiber);
    }));
    EXPECT_EQ(world.partition().settled.size(), 2u);
}

TEST(Consumer, nack_goes_out_at_once_with_its_reason) {
    ConsumerWorld world(1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        Result<Message> first = consumer.next(fiber);
        consumer.nack(*first, wire::NackReason::REQUEUE);
        Result<Message> again = consumer.next(fiber);
        ASSERT_TRUE(again.ok());
        EXPECT_EQ(again->sequence, first->sequence);
        EXPECT_EQ(again->attempt, 2);
        consumer.nack(*again, wire::NackReason::REJECT);
        world.sleep(fiber, milliseconds(10));
        consumer.close(fiber);
    }));
    EXPECT_EQ(world.broker.nacks,
              (std::vector<wire::NackReason>{wire::NackReason::REQUEUE, wire::NackReason::REJECT}));
}

// covers REB-08
TEST(Contract, C6_a_member_whose_credit_is_used_up_sends_heartbeats_and_progress) {
    ConsumerWorld world(10);
    ConsumerOptions options = orders();
    options.credit_count = 4;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), options);
        consumer.start();
        std::vector<Message> held;
        for (int i = 0; i < 4; ++i)
            held.push_back(*consumer.next(fiber));
        const std::size_t pulls = world.broker.count(wire::Op::PULL);
        world.sleep(fiber, milliseconds(9500));
        EXPECT_EQ(world.broker.count(wire::Op::HEARTBEAT), 3u);
        EXPECT_EQ(world.broker.progress_count, 0u);
        world.sleep(fiber, seconds(2));
        EXPECT_EQ(world.broker.progress_count, 4u);
        EXPECT_EQ(world.broker.count(wire::Op::PULL), pulls);
        for (const Message& message : held)
            consumer.ack(message);
        EXPECT_TRUE(consumer.next(fiber).ok());
        consumer.close(fiber);
    }));
}

TEST(Contract, C6_no_heartbeat_while_a_pull_waits) {
    ConsumerWorld world(0);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        EXPECT_TRUE(
            consumer.next(fiber, world.world.clock.now() + seconds(40)).is(ErrorCode::TIMED_OUT));
        EXPECT_EQ(world.broker.count(wire::Op::HEARTBEAT), 0u);
        EXPECT_GE(world.broker.count(wire::Op::PULL), 8u);
        EXPECT_LE(world.broker.count(wire::Op::PULL), 11u);
        consumer.close(fiber);
    }));
}

// covers TIM-09
TEST(Contract, D7_a_queued_message_whose_lease_is_over_is_dropped_unseen) {
    ConsumerWorld world(3);
    ConsumerOptions options = orders();
    options.lease = seconds(2);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), options);
        consumer.start();
        ASSERT_TRUE(consumer.next(fiber).ok());
        world.sleep(fiber, seconds(3));
        EXPECT_FALSE(consumer.next(fiber, world.world.clock.now() + milliseconds(1)).ok());
        EXPECT_EQ(consumer.stats().dropped_expired, 2u);
        EXPECT_GE(world.broker.progress_count, 3u);
        consumer.close(fiber);
    }));
}

// covers REB-13
TEST(Contract, G5_a_revoked_partition_is_given_back_when_its_messages_in_hand_are_settled) {
    ConsumerWorld world(4, 1, 2);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        Result<Message> in_hand = consumer.next(fiber);
        ASSERT_EQ(in_hand->partition.value, 0);
        world.broker.revoke(0);
        world.sleep(fiber, milliseconds(500));
        EXPECT_FALSE(world.broker.revoke_done);
        consumer.ack(*in_hand);
        world.sleep(fiber, milliseconds(100));
        EXPECT_TRUE(world.broker.revoke_done);
        EXPECT_EQ(world.partition(0).settled.size(), 1u);
        for (int i = 0; i < 2; ++i)
            EXPECT_EQ(consumer.next(fiber)->partition.value, 1);
        EXPECT_FALSE(consumer.next(fiber, world.world.clock.now() + seconds(1)).ok());
        consumer.close(fiber);
    }));
}

TEST(Contract, G5_a_revoked_partition_is_given_back_after_the_grace_at_the_latest) {
    ConsumerWorld world(1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        Result<Message> in_hand = consumer.next(fiber);
        world.broker.revoke(0);
        world.sleep(fiber, milliseconds(2900));
        EXPECT_FALSE(world.broker.revoke_done);
        world.sleep(fiber, milliseconds(200));
        EXPECT_TRUE(world.broker.revoke_done);
        consumer.ack(*in_hand);
        consumer.close(fiber);
    }));
    EXPECT_TRUE(world.partition().settled.empty());
}

TEST(Consumer, negotiates_anew_after_a_lost_connection_and_hands_out_no_acked_message_again) {
    ConsumerWorld world(3);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return op == wire::Op::ACK && number == 1 ? Fault{Fault::Kind::DROP_BEFORE} : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        Result<Message> first = consumer.next(fiber);
        consumer.ack(*first);
        world.sleep(fiber, seconds(1));
        EXPECT_EQ(consumer.next(fiber)->value, "1");
        EXPECT_EQ(consumer.next(fiber)->value, "2");
        EXPECT_EQ(consumer.stats().subscriptions, 2u);
        EXPECT_EQ(consumer.stats().settled_again, 1u);
        consumer.close(fiber);
    }));
    EXPECT_EQ(world.partition().settled, (std::set<std::uint64_t>{1}));
}

TEST(Consumer, subscribes_again_when_the_broker_no_longer_knows_the_member) {
    ConsumerWorld world(1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return op == wire::Op::PULL && number == 1
                   ? Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::UNKNOWN_MEMBER}
                   : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        EXPECT_TRUE(consumer.next(fiber).ok());
        EXPECT_EQ(consumer.stats().subscriptions, 2u);
        consumer.close(fiber);
    }));
}

// The broker keeps the member of a connection that died unnoticed until it was silent for 10 s.
TEST(Consumer, waits_for_the_end_of_its_own_lost_member) {
    ConsumerWorld world(2);
    MonoTime expelled_at;
    world.broker.script = [&](wire::Op op, std::uint64_t number) {
        const bool has_member = number > 1 && world.world.clock.now() < expelled_at;
        return op == wire::Op::SUB && has_member
                   ? Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::GROUP_MEMBER_LIMIT}
                   : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        EXPECT_TRUE(consumer.ack_and_wait(fiber, *consumer.next(fiber)).ok());
        expelled_at = world.world.clock.now() + seconds(12);
        world.broker.drop_connections();
        world.sleep(fiber, milliseconds(100));
        // It was delivered to the lost member, and comes to the new one.
        const Result<Message> second = consumer.next(fiber, expelled_at + seconds(4));
        ASSERT_TRUE(second.ok());
        EXPECT_EQ(second->value, "1");
        EXPECT_GE(world.world.clock.now(), expelled_at);
        EXPECT_EQ(consumer.stats().subscriptions, 2u);
        consumer.close(fiber);
    }));
    EXPECT_GE(world.broker.count(wire::Op::SUB), 4u);
    EXPECT_LE(world.broker.count(wire::Op::SUB), 14u) << "with pauses that grow";
}

TEST(Consumer, a_full_group_is_told_to_who_never_was_in_it) {
    ConsumerWorld world(1);
    world.broker.script = [](wire::Op op, std::uint64_t) {
        return op == wire::Op::SUB ? Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::GROUP_MEMBER_LIMIT}
                                   : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        EXPECT_TRUE(consumer.next(fiber).is(ErrorCode::GROUP_MEMBER_LIMIT));
        consumer.close(fiber);
    }));
    EXPECT_EQ(world.broker.count(wire::Op::SUB), 1u);
}

// A damaged ledger refuses for hours. Messages of other partitions do not wait behind the refused ones.
TEST(Consumer, refused_acks_are_sent_again_with_growing_pauses) {
    ConsumerWorld world(3);
    bool is_refusing = true;
    world.broker.script = [&](wire::Op op, std::uint64_t number) {
        return op == wire::Op::ACK && is_refusing && number != 2
                   ? Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::QUORUM_LOST}
                   : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        std::vector<Message> messages;
        for (int i = 0; i < 3; ++i)
            messages.push_back(*consumer.next(fiber));
        consumer.ack(messages[0]);
        world.sleep(fiber, milliseconds(40));
        EXPECT_EQ(world.broker.count(wire::Op::ACK), 1u);
        EXPECT_TRUE(consumer.ack_and_wait(fiber, messages[1]).ok());
        EXPECT_EQ(world.broker.count(wire::Op::ACK), 2u) << "the refused one waits its pause";
        world.sleep(fiber, seconds(20));
        EXPECT_GE(world.broker.count(wire::Op::ACK), 10u);
        EXPECT_LE(world.broker.count(wire::Op::ACK), 18u);
        is_refusing = false;
        world.sleep(fiber, seconds(3));
        EXPECT_EQ(consumer.stats().acked, 2u);
        consumer.close(fiber);
    }));
    EXPECT_EQ(world.partition().settled, (std::set<std::uint64_t>{1, 2}));
}

// covers SIZ-03
TEST(Contract, C5_a_message_larger_than_the_window_widens_it) {
    ConsumerWorld world(1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return op == wire::Op::PULL && number == 1
                   ? Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::MESSAGE_EXCEEDS_CREDIT}
                   : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        EXPECT_TRUE(consumer.next(fiber).ok());
        consumer.close(fiber);
    }));
    EXPECT_EQ(world.broker.count(wire::Op::CREDIT), 1u);
}

TEST(Consumer, a_missing_topic_is_told_at_each_call) {
    ClientWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Consumer consumer(world.env(), world.link_options(), orders());
        consumer.start();
        EXPECT_TRUE(consumer.next(fiber).is(ErrorCode::UNKNOWN_TOPIC));
        EXPECT_TRUE(consumer.next(fiber).is(ErrorCode::UNKNOWN_TOPIC));
        consumer.close(fiber);
    }));
}

TEST(ConsumerProperty, every_message_is_settled_and_none_comes_after_its_ack_under_random_faults) {
    for (std::uint64_t seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
        ConsumerWorld world(60, seed, 3);
        Rng rng(seed);
        Rng faults(rng.next());
        bool calm = false;
        world.broker.script = [&](wire::Op op, std::uint64_t) -> Fault {
            const std::uint64_t draw = faults.below(100);
            if (calm || draw >= 8) return {};
            if (draw < 2) return {Fault::Kind::DROP_BEFORE};
            if (draw < 4) return {Fault::Kind::DROP_AFTER};
            if (draw < 6 && op == wire::Op::ACK)
                return {Fault::Kind::ERROR_BEFORE, ErrorCode::QUORUM_LOST};
            if (draw < 6 && op == wire::Op::SUB)
                return {Fault::Kind::ERROR_BEFORE, ErrorCode::METADATA_READ_ONLY};
            if (draw < 6 && op == wire::Op::PULL)
                return {Fault::Kind::ERROR_BEFORE, ErrorCode::STALE_GENERATION};
            return {};
        };
        std::set<std::string> acked;
        ASSERT_TRUE(world.run(
            [&](Fiber& fiber) {
                ConsumerOptions options = orders();
                options.credit_count = static_cast<std::uint16_t>(rng.between(1, 20));
                Consumer consumer(world.env(), world.link_options(), options);
                consumer.start();
                while (acked.size() < 60) {
                    Result<Message> message =
                        consumer.next(fiber, world.world.clock.now() + seconds(120));
                    ASSERT_TRUE(message.ok()) << "seed " << seed << " after " << acked.size();
                    EXPECT_FALSE(acked.contains(message->value)) << "seed " << seed;
                    if (rng.one_in(8)) world.sleep(fiber, milliseconds(rng.between(0, 50)));
                    if (rng.one_in(20)) {
                        consumer.nack(*message, wire::NackReason::RETRY);
                        continue;
                    }
                    acked.insert(message->value);
                    consumer.ack(*message);
                }
                calm = true;
                world.sleep(fiber, seconds(20));
                consumer.close(fiber);
            },
            seconds(3000)))
            << "seed " << seed;
        std::size_t settled = 0;
        for (std::size_t p = 0; p < 3; ++p)
            settled += world.partition(p).settled.size();
        EXPECT_EQ(settled, 60u) << "seed " << seed;
    }
}

}  // namespace
}  // namespace mortar
