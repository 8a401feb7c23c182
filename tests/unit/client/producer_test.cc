// Publishing once and in order, whatever happens on the way.
#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "tests/unit/client/fake_broker.h"

namespace mortar {
namespace {
using client::Producer;
using client::ProducerOptions;
using client::Published;
using testing::ClientWorld;
using testing::Fault;

std::vector<std::string> values(const testing::FakeBroker::Partition& partition) {
    std::vector<std::string> found;
    for (const auto& record : partition.log)
        found.push_back(record.value);
    return found;
}

Fault on_pub(wire::Op op, std::uint64_t number, std::uint64_t which, Fault fault) {
    return op == wire::Op::PUB && number == which ? fault : Fault{};
}

TEST(Producer, publishes_in_order_and_reports_the_sequence) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        for (std::uint64_t i = 1; i <= 5; ++i) {
            Result<Published> published = producer.publish(fiber, "orders", "k", std::to_string(i));
            ASSERT_TRUE(published.ok());
            EXPECT_EQ(published->sequence.value, i);
            EXPECT_FALSE(published->deduplicated);
        }
        producer.close(fiber);
    }));
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"1", "2", "3", "4", "5"}));
    EXPECT_EQ(world.broker.count(wire::Op::DECLARE), 1u);
}

TEST(Contract, P1_the_library_routes_by_fnv1a32_and_in_turn_without_a_key) {
    ClientWorld world;
    world.broker.add_topic("orders", 4);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        for (const std::string key : {"alpha", "beta", "gamma"}) {
            Result<Published> published = producer.publish(fiber, "orders", key, "v");
            ASSERT_TRUE(published.ok());
            EXPECT_EQ(published->partition.value, fnv1a32(as_byte_span(key)) % 4);
        }
        std::set<std::uint16_t> used;
        for (int i = 0; i < 4; ++i)
            used.insert(producer.publish(fiber, "orders", "", "v")->partition.value);
        EXPECT_EQ(used.size(), 4u);
        producer.close(fiber);
    }));
}

// covers SIZ-05
TEST(Contract, P5_too_large_a_key_or_value_is_refused_before_it_is_sent) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        Result<Published> key = producer.publish(fiber, "orders", std::string(256, 'k'), "v");
        ASSERT_TRUE(key.is(ErrorCode::INVALID_ARGUMENT));
        EXPECT_NE(key.error().detail.find("255"), std::string::npos);
        Result<Published> value =
            producer.publish(fiber, "orders", "", std::string(wire::MAX_VALUE_LEN + 1, 'v'));
        ASSERT_TRUE(value.is(ErrorCode::INVALID_ARGUMENT));
        EXPECT_NE(value.error().detail.find("split"), std::string::npos);
        EXPECT_TRUE(producer
                        .publish(fiber, "orders", std::string(255, 'k'),
                                 std::string(wire::MAX_VALUE_LEN, 'v'))
                        .ok());
        producer.close(fiber);
    }));
}

TEST(Producer, a_lost_answer_is_asked_again_and_stored_once) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return on_pub(op, number, 2, {Fault::Kind::DROP_AFTER});
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
        Result<Published> second = producer.publish(fiber, "orders", "", "b");
        ASSERT_TRUE(second.ok());
        EXPECT_EQ(second->sequence.value, 2u);
        EXPECT_TRUE(second->deduplicated);
        EXPECT_EQ(producer.stats().resent, 1u);
        producer.close(fiber);
    }));
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"a", "b"}));
}

// covers DUR-11
TEST(Producer, after_a_refusal_everything_behind_it_goes_again_in_order) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return on_pub(op, number, 3, {Fault::Kind::ERROR_BEFORE, ErrorCode::BACKPRESSURE});
    };
    std::vector<std::uint64_t> sequences;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        for (int i = 0; i < 8; ++i) {
            ASSERT_TRUE(producer
                            .publish_async(fiber, "orders", "", std::to_string(i),
                                           [&](Result<Published> result) {
                                               ASSERT_TRUE(result.ok());
                                               sequences.push_back(result->sequence.value);
                                           })
                            .ok());
        }
        ASSERT_TRUE(producer.flush(fiber).ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(sequences, (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7"}));
}

TEST(Producer, a_message_that_is_refused_for_good_does_not_block_those_behind_it) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return on_pub(op, number, 2, {Fault::Kind::ERROR_BEFORE, ErrorCode::QUOTA_EXCEEDED});
    };
    int refused = 0;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        for (int i = 0; i < 5; ++i) {
            ASSERT_TRUE(producer
                            .publish_async(fiber, "orders", "", std::to_string(i),
                                           [&, i](Result<Published> result) {
                                               if (result.ok()) return;
                                               EXPECT_TRUE(result.is(ErrorCode::QUOTA_EXCEEDED));
                                               EXPECT_EQ(i, 1);
                                               ++refused;
                                           })
                            .ok());
        }
        ASSERT_TRUE(producer.flush(fiber).ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"0", "2", "3", "4"}));
}

TEST(Contract, P2_seq_expired_is_final_and_the_next_message_begins_a_new_window) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
        world.broker.topics["orders"].partitions[0].window.clear();
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "b").is(ErrorCode::SEQ_EXPIRED));
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "c").ok());
        producer.close(fiber);
    }));
    const auto& log = world.broker.topics["orders"].partitions[0].log;
    ASSERT_EQ(log.size(), 2u);
    EXPECT_NE(log[0].producer_id, log[1].producer_id);
    EXPECT_EQ(log[1].producer_seq, 1u);
}

TEST(Contract, P3_no_more_than_the_window_is_outstanding_in_a_partition) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    std::size_t most = 0;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        for (int i = 0; i < 3000; ++i) {
            ASSERT_TRUE(
                producer.publish_async(fiber, "orders", "", std::to_string(i), nullptr).ok());
            most = std::max(most, producer.link().unanswered_count());
        }
        ASSERT_TRUE(producer.flush(fiber).ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(most, client::PARTITION_WINDOW_MAX);
    EXPECT_EQ(world.broker.topics["orders"].partitions[0].log.size(), 3000u);
}

TEST(Producer, holds_back_a_caller_that_is_faster_than_the_broker) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    ProducerOptions options;
    options.buffered_count_max = 10;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options(), options);
        producer.start();
        for (int i = 0; i < 100; ++i) {
            ASSERT_TRUE(
                producer.publish_async(fiber, "orders", "", std::to_string(i), nullptr).ok());
            EXPECT_LE(producer.link().unanswered_count(), 10u);
        }
        ASSERT_TRUE(producer.flush(fiber).ok());
        producer.close(fiber);
    }));
}

TEST(Producer, says_unreachable_after_its_timeout_and_never_stores_what_it_gave_up_unsent) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    ProducerOptions options;
    options.delivery_timeout = seconds(5);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options(), options);
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
        world.net.acceptors.clear();
        world.broker.drop_connections();
        world.sleep(fiber, milliseconds(500));
        Result<Published> lost = producer.publish(fiber, "orders", "", "b");
        ASSERT_TRUE(lost.is(ErrorCode::TIMED_OUT));
        EXPECT_NE(lost.error().detail.find("never sent"), std::string::npos) << lost.error().detail;
        world.broker.listen(world.net, "broker:1");
        world.sleep(fiber, seconds(31));
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "c").ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"a", "c"}));
}

TEST(Producer, goes_on_soon_after_a_long_refusal) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        ClientWorld world(seed);
        world.broker.add_topic("orders", 1);
        const MonoTime refused_until = world.env().clock.now() + seconds(8);
        world.broker.script = [&](wire::Op op, std::uint64_t) {
            if (op != wire::Op::PUB || world.env().clock.now() >= refused_until) return Fault{};
            return Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::QUORUM_LOST};
        };
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            Producer producer(world.env(), world.link_options());
            producer.start();
            EXPECT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
            EXPECT_LT((world.env().clock.now() - refused_until).ns, milliseconds(600).ns);
            producer.close(fiber);
        }));
    }
}

TEST(Producer, a_message_that_timed_out_under_way_is_still_stored_before_later_ones) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    ProducerOptions options;
    options.delivery_timeout = seconds(3);
    bool refuse = true;
    world.broker.script = [&](wire::Op op, std::uint64_t) {
        if (op != wire::Op::PUB || !refuse) return Fault{};
        return Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::QUORUM_LOST};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options(), options);
        producer.start();
        Result<Published> first = producer.publish(fiber, "orders", "", "a");
        ASSERT_TRUE(first.is(ErrorCode::TIMED_OUT));
        EXPECT_NE(first.error().detail.find("may be stored"), std::string::npos);
        refuse = false;
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "b").ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"a", "b"}));
}

TEST(Producer, without_idempotence_an_unknown_outcome_is_reported_and_not_sent_again) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return on_pub(op, number, 1, {Fault::Kind::DROP_AFTER});
    };
    ProducerOptions options;
    options.idempotent = false;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options(), options);
        producer.start();
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "a").is(ErrorCode::CONNECTION_CLOSED));
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "b").ok());
        producer.close(fiber);
    }));
    EXPECT_EQ(values(world.broker.topics["orders"].partitions[0]),
              (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(world.broker.topics["orders"].partitions[0].log[0].producer_id, 0u);
}

TEST(Producer, a_topic_that_was_deleted_and_created_anew_is_looked_up_again) {
    ClientWorld world;
    world.broker.add_topic("other", 1);
    world.broker.add_topic("orders", 1);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
        world.broker.topics.erase("orders");
        world.broker.add_topic("orders", 1);
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "b").is(ErrorCode::UNKNOWN_TOPIC));
        EXPECT_EQ(producer.stats().known_topics, 0u) << "nothing of the deleted topic stays";
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "c").ok());
        EXPECT_EQ(producer.stats().known_topics, 1u);
        EXPECT_TRUE(producer.publish(fiber, "missing", "", "x").is(ErrorCode::UNKNOWN_TOPIC));
        producer.close(fiber);
    }));
}

TEST(Producer, a_deleted_topic_stays_until_all_its_messages_are_answered) {
    ClientWorld world;
    world.broker.add_topic("orders", 4);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
        world.broker.topics.erase("orders");
        int refused = 0;
        for (int i = 0; i < 40; ++i) {
            ASSERT_TRUE(producer
                            .publish_async(fiber, "orders", "", "x",
                                           [&](Result<Published> result) {
                                               refused +=
                                                   result.is(ErrorCode::UNKNOWN_TOPIC) ? 1 : 0;
                                           })
                            .ok());
        }
        EXPECT_EQ(producer.stats().known_topics, 1u);
        ASSERT_TRUE(producer.flush(fiber).ok());
        world.sleep(fiber, milliseconds(10));
        EXPECT_EQ(refused, 40);
        EXPECT_EQ(producer.stats().known_topics, 0u);
        producer.close(fiber);
    }));
}

TEST(Producer, close_answers_what_is_left) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return op == wire::Op::PUB && number > 1 ? Fault{Fault::Kind::SILENCE} : Fault{};
    };
    int closed = 0;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        Producer producer(world.env(), world.link_options());
        producer.start();
        ASSERT_TRUE(producer.publish(fiber, "orders", "", "a").ok());
        for (int i = 0; i < 3; ++i) {
            ASSERT_TRUE(producer
                            .publish_async(fiber, "orders", "", "b",
                                           [&](Result<Published> result) {
                                               if (result.is(ErrorCode::CONNECTION_CLOSED))
                                                   ++closed;
                                           })
                            .ok());
        }
        producer.close(fiber);
        EXPECT_EQ(producer.unresolved_count(), 0u);
        EXPECT_TRUE(producer.publish(fiber, "orders", "", "c").is(ErrorCode::CONNECTION_CLOSED));
    }));
    EXPECT_EQ(closed, 3);
}

// Random faults at random requests. What was acknowledged is there, once, at its sequence; order is kept.
struct RandomFaults {
    Rng rng;
    bool with_final_errors;
    Fault operator()(wire::Op op, std::uint64_t) {
        if (op != wire::Op::PUB && op != wire::Op::DECLARE && op != wire::Op::CONNECT) return {};
        const std::uint64_t draw = rng.below(100);
        if (draw >= 12) return {};
        if (op == wire::Op::CONNECT) return draw < 6 ? Fault{Fault::Kind::DROP_BEFORE} : Fault{};
        if (draw < 2) return {Fault::Kind::DROP_BEFORE};
        if (draw < 4) return {Fault::Kind::DROP_AFTER};
        if (op == wire::Op::DECLARE)
            return {Fault::Kind::ERROR_BEFORE, ErrorCode::METADATA_READ_ONLY};
        if (draw < 6) return {Fault::Kind::ERROR_BEFORE, ErrorCode::BACKPRESSURE};
        if (draw < 7) return {Fault::Kind::ERROR_BEFORE, ErrorCode::READ_ONLY_DEGRADED};
        if (draw < 9) return {Fault::Kind::ERROR_AFTER, ErrorCode::READ_ONLY_DEGRADED};
        if (draw < 10) return {Fault::Kind::ERROR_AFTER, ErrorCode::PRODUCER_EPOCH_STALE};
        if (draw < 11)
            return {Fault::Kind::ERROR_BEFORE, ErrorCode::STALE_LEADER_EPOCH,
                    "leader node=1 addr=broker:1 epoch=2"};
        if (with_final_errors) return {Fault::Kind::ERROR_BEFORE, ErrorCode::QUOTA_EXCEEDED};
        return {Fault::Kind::ERROR_BEFORE, ErrorCode::STORAGE_HIGH_WATERMARK};
    }
};

void check_random_history(std::uint64_t seed, bool with_final_errors) {
    constexpr int MESSAGES = 150;
    constexpr std::uint16_t PARTITIONS = 3;
    ClientWorld world(seed);
    world.broker.add_topic("orders", PARTITIONS);
    Rng rng(seed);
    world.broker.script = RandomFaults{Rng(rng.next()), with_final_errors};
    std::map<std::string, Published> acked;
    int answered = 0;
    ProducerOptions options;
    options.partition_window = static_cast<std::size_t>(rng.between(1, 40));
    options.buffered_count_max = static_cast<std::size_t>(rng.between(1, 100));
    ASSERT_TRUE(world.run(
        [&](Fiber& fiber) {
            Producer producer(world.env(), world.link_options(), options);
            producer.start();
            for (int i = 0; i < MESSAGES; ++i) {
                const std::string value = std::to_string(i);
                ASSERT_TRUE(producer
                                .publish_async(fiber, "orders", "", value,
                                               [&, value](Result<Published> result) {
                                                   ++answered;
                                                   if (result.ok()) {
                                                       EXPECT_TRUE(
                                                           acked.emplace(value, *result).second);
                                                   } else {
                                                       EXPECT_TRUE(with_final_errors)
                                                           << result.error().to_string();
                                                   }
                                               })
                                .ok());
                if (rng.one_in(10)) world.sleep(fiber, milliseconds(rng.between(0, 300)));
                if (rng.one_in(40)) world.broker.drop_connections();
            }
            ASSERT_TRUE(producer.flush(fiber).ok());
            producer.close(fiber);
        },
        seconds(1200)))
        << "seed " << seed;
    EXPECT_EQ(answered, MESSAGES);
    EXPECT_TRUE(with_final_errors || acked.size() == static_cast<std::size_t>(MESSAGES));
    std::set<std::string> stored;
    for (std::uint16_t p = 0; p < PARTITIONS; ++p) {
        const auto& log = world.broker.topics["orders"].partitions[p].log;
        int last = -1;
        for (const auto& record : log) {
            EXPECT_TRUE(stored.insert(record.value).second)
                << "twice: " << record.value << " seed " << seed;
            EXPECT_LT(last, std::stoi(record.value)) << "order, seed " << seed;
            last = std::stoi(record.value);
        }
    }
    for (const auto& [value, published] : acked) {
        const auto& log = world.broker.topics["orders"].partitions[published.partition.value].log;
        ASSERT_LE(published.sequence.value, log.size());
        EXPECT_EQ(log[published.sequence.value - 1].value, value) << "seed " << seed;
    }
}

TEST(ProducerProperty, no_ack_is_lost_nothing_doubles_and_order_holds_under_random_faults) {
    for (std::uint64_t seed = 1; seed <= 80 && !::testing::Test::HasFailure(); ++seed)
        check_random_history(seed, false);
}

TEST(ProducerProperty, the_same_holds_when_some_messages_are_refused_for_good) {
    for (std::uint64_t seed = 1; seed <= 80 && !::testing::Test::HasFailure(); ++seed)
        check_random_history(seed, true);
}

}  // namespace
}  // namespace mortar
