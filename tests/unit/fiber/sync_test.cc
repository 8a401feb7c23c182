// Event, Channel, Mutex and Group on the smallest world.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/fiber/channel.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/fiber/mutex.h"
#include "tests/unit/env/manual_scheduler.h"

namespace mortar {
namespace {
using testing::ManualWorld;

TEST(Event, wakes_the_longest_waiting_first_and_times_out) {
    ManualWorld world;
    Event event;
    std::string order;
    for (const char name : {'a', 'b'}) {
        world.scheduler.spawn("waits", [&, name](Fiber& fiber) {
            if (event.wait(fiber, MonoTime{} + seconds(1)).ok()) order += name;
        });
    }
    world.scheduler.spawn("late", [&](Fiber& fiber) {
        fiber.scheduler().yield(fiber);
        EXPECT_TRUE(event.wait(fiber, MonoTime{} + milliseconds(1)).is(ErrorCode::TIMED_OUT));
        event.notify_one();
        event.notify_one();
    });
    world.scheduler.run_all();
    EXPECT_EQ(order, "ab");
    EXPECT_FALSE(event.has_waiters());
}

TEST(Event, may_die_before_a_killed_waiter) {
    ManualWorld world;
    auto event = std::make_unique<Event>();
    world.scheduler.spawn("waits", [&](Fiber& fiber) { (void)event->wait(fiber); });
    world.scheduler.run_all();
    event.reset();
    world.scheduler.kill_all();
}

TEST(Channel, keeps_order_blocks_when_full_and_drains_after_close) {
    ManualWorld world;
    Channel<int> channel(2);
    std::string seen;
    world.scheduler.spawn("pushes", [&](Fiber& fiber) {
        for (int i = 0; i < 5; ++i) ASSERT_TRUE(channel.push(fiber, i).ok());
        EXPECT_LE(channel.size(), 2u);
        channel.close();
        EXPECT_TRUE(channel.push(fiber, 9).is(ErrorCode::CONNECTION_CLOSED));
    });
    world.scheduler.spawn("pops", [&](Fiber& fiber) {
        while (true) {
            Result<int> item = channel.pop(fiber);
            if (!item.ok()) {
                EXPECT_TRUE(item.is(ErrorCode::CONNECTION_CLOSED));
                return;
            }
            seen += std::to_string(*item);
        }
    });
    world.scheduler.run_all();
    EXPECT_EQ(seen, "01234");
}

TEST(Mutex, lets_one_fiber_in_at_a_time_in_order) {
    ManualWorld world;
    Mutex mutex;
    std::string order;
    int inside = 0;
    for (const char name : {'a', 'b', 'c'}) {
        world.scheduler.spawn("locks", [&, name](Fiber& fiber) {
            Result<Mutex::Guard> guard = mutex.lock(fiber);
            ASSERT_TRUE(guard.ok());
            EXPECT_EQ(++inside, 1);
            fiber.scheduler().yield(fiber);
            --inside;
            order += name;
        });
    }
    world.scheduler.run_all();
    EXPECT_EQ(order, "abc");
}

TEST(Group, joins_children_and_cancels_them) {
    ManualWorld world;
    int cancelled = 0;
    bool joined = false;
    world.scheduler.spawn("parent", [&](Fiber& fiber) {
        Group group(fiber.scheduler());
        for (int i = 0; i < 3; ++i) {
            group.spawn("child", [&](Fiber& child) {
                if (child.scheduler().sleep_until(child, NEVER).is(ErrorCode::CANCELLED)) ++cancelled;
            });
        }
        fiber.scheduler().yield(fiber);
        EXPECT_EQ(group.size(), 3u);
        group.cancel_and_join(fiber);
        EXPECT_EQ(group.size(), 0u);
        EXPECT_TRUE(group.join(fiber).ok());
        joined = true;
    });
    world.scheduler.run_all();
    EXPECT_EQ(cancelled, 3);
    EXPECT_TRUE(joined);
}

TEST(Group, a_cancelled_parent_still_waits_for_its_children) {
    ManualWorld world;
    bool child_done = false;
    const FiberId parent = world.scheduler.spawn("parent", [&](Fiber& fiber) {
        Group group(fiber.scheduler());
        group.spawn("disk", [&](Fiber& child) {
            child.scheduler().park(child, MonoTime{} + seconds(2), CancelMode::DEFERRED);
            child_done = true;
        });
        EXPECT_TRUE(group.join(fiber).is(ErrorCode::CANCELLED));
        group.cancel_and_join(fiber);
        EXPECT_TRUE(child_done);
    });
    world.scheduler.spawn("cancels", [&](Fiber& fiber) {
        fiber.scheduler().yield(fiber);
        world.scheduler.cancel(parent);
    });
    world.scheduler.run_all();
    EXPECT_TRUE(child_done);
}

}  // namespace
}  // namespace mortar
