// Event, Mutex and Group on the smallest world.
#include <gtest/gtest.h>

#include <memory>
#include <string>

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
}

TEST(Event, may_die_before_a_killed_waiter) {
    ManualWorld world;
    auto event = std::make_unique<Event>();
    world.scheduler.spawn("waits", [&](Fiber& fiber) { (void)event->wait(fiber); });
    world.scheduler.run_all();
    event.reset();
    world.scheduler.kill_all();
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

TEST(Mutex, goes_to_the_fiber_that_waits_longest_whoever_is_runnable) {
    ManualWorld world;
    Mutex mutex;
    std::string order;
    // Each takes it three times in a row: the others must get their turn in between.
    for (const char name : {'a', 'b', 'c'}) {
        world.scheduler.spawn("locks", [&, name](Fiber& fiber) {
            for (int i = 0; i < 3; ++i) {
                const Result<Mutex::Guard> guard = mutex.lock(fiber);
                ASSERT_TRUE(guard.ok());
                order += name;
                fiber.scheduler().yield(fiber);
            }
        });
    }
    world.scheduler.run_all();
    EXPECT_EQ(order, "abcabcabc");
}

TEST(Mutex, passes_over_those_that_no_longer_wait) {
    ManualWorld world;
    Mutex mutex;
    std::string order;
    const auto waits = [&](char name, MonoTime deadline, ErrorCode expected) {
        return world.scheduler.spawn("waits", [&, name, deadline, expected](Fiber& fiber) {
            const Result<Mutex::Guard> guard = mutex.lock(fiber, deadline);
            if (guard.ok()) {
                order += name;
            } else {
                EXPECT_EQ(guard.error().code, expected);
            }
        });
    };
    world.scheduler.spawn("holds", [&](Fiber& fiber) {
        const Result<Mutex::Guard> guard = mutex.lock(fiber);
        ASSERT_TRUE(guard.ok());
        EXPECT_TRUE(fiber.scheduler().sleep_until(fiber, MonoTime{} + seconds(2)).ok());
    });
    const FiberId cancelled = waits('x', NEVER, ErrorCode::CANCELLED);
    waits('y', MonoTime{} + seconds(1), ErrorCode::TIMED_OUT);
    waits('z', NEVER, ErrorCode{});
    world.scheduler.spawn("cancels", [&](Fiber&) { world.scheduler.cancel(cancelled); });
    world.scheduler.run_all();
    EXPECT_EQ(order, "z");
}

TEST(Mutex, is_not_lost_by_a_fiber_that_is_cancelled_right_after_it_got_it) {
    ManualWorld world;
    Mutex mutex;
    std::string order;
    FiberId second;
    world.scheduler.spawn("holds", [&](Fiber& fiber) {
        {
            const Result<Mutex::Guard> guard = mutex.lock(fiber);
            fiber.scheduler().yield(fiber);
        }
        world.scheduler.cancel(second);  // it owns the mutex, and has not run since
    });
    second = world.scheduler.spawn("second", [&](Fiber& fiber) {
        const Result<Mutex::Guard> guard = mutex.lock(fiber);
        EXPECT_TRUE(guard.ok());
        EXPECT_TRUE(fiber.is_cancelled());
        order += '2';
    });
    world.scheduler.spawn("third", [&](Fiber& fiber) {
        const Result<Mutex::Guard> guard = mutex.lock(fiber);
        EXPECT_TRUE(guard.ok());
        order += '3';
    });
    world.scheduler.run_all();
    EXPECT_EQ(order, "23");
}

TEST(Group, joins_children_and_cancels_them) {
    ManualWorld world;
    int cancelled = 0;
    bool joined = false;
    world.scheduler.spawn("parent", [&](Fiber& fiber) {
        Group group(fiber.scheduler());
        for (int i = 0; i < 3; ++i) {
            group.spawn("child", [&](Fiber& child) {
                if (child.scheduler().sleep_until(child, NEVER).is(ErrorCode::CANCELLED))
                    ++cancelled;
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
