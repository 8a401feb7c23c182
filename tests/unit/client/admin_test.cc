// Topics over the wire: one DECLARE each, sent until it is decided.
#include <gtest/gtest.h>

#include "tests/unit/client/fake_broker.h"

namespace mortar {
namespace {
using client::TopicInfo;
using testing::ClientWorld;
using testing::Fault;

TEST(ClientAdmin, creates_looks_up_and_deletes) {
    ClientWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        client::Link link(world.env(), world.link_options());
        link.start();
        Result<TopicInfo> created =
            client::create_topic(fiber, world.env(), link, "orders", 4, NEVER);
        ASSERT_TRUE(created.ok());
        EXPECT_FALSE(created->existed);
        EXPECT_TRUE(client::create_topic(fiber, world.env(), link, "orders", 4, NEVER)->existed);
        EXPECT_EQ(client::lookup_topic(fiber, world.env(), link, "orders", NEVER)->topic_id,
                  created->topic_id);
        EXPECT_TRUE(client::delete_topic(fiber, world.env(), link, "orders", NEVER).ok());
        EXPECT_TRUE(client::lookup_topic(fiber, world.env(), link, "orders", NEVER)
                        .is(ErrorCode::UNKNOWN_TOPIC));
        EXPECT_TRUE(client::delete_topic(fiber, world.env(), link, "orders", NEVER)
                        .is(ErrorCode::UNKNOWN_TOPIC));
        EXPECT_TRUE(client::create_topic(fiber, world.env(), link, std::string(256, 'x'), 1, NEVER)
                        .is(ErrorCode::INVALID_ARGUMENT));
        EXPECT_TRUE(client::create_topic(fiber, world.env(), link, "", 1, NEVER)
                        .is(ErrorCode::INVALID_ARGUMENT));
        link.close(fiber);
    }));
}

TEST(ClientAdmin, a_delete_whose_answer_was_lost_still_counts_as_done) {
    ClientWorld world;
    world.broker.add_topic("orders", 1);
    world.broker.script = [](wire::Op op, std::uint64_t number) {
        return op == wire::Op::DECLARE && number == 2 ? Fault{Fault::Kind::DROP_AFTER} : Fault{};
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        client::Link link(world.env(), world.link_options());
        link.start();
        EXPECT_TRUE(client::delete_topic(fiber, world.env(), link, "orders", NEVER).ok());
        link.close(fiber);
    }));
    EXPECT_EQ(world.broker.count(wire::Op::DECLARE), 3u);
}

}  // namespace
}  // namespace mortar
