#include "core/env/fiber.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/env/rng.h"
#include "tests/unit/env/manual_scheduler.h"

namespace mortar {
namespace {
using testing::ManualWorld;

struct CountOnDestroy {
    int& count;
    ~CountOnDestroy() { ++count; }
};

TEST(Fiber, sleeps_in_order_of_deadline_then_of_parking) {
    ManualWorld world;
    std::string order;
    const auto sleeper = [&](char name, int ms) {
        world.scheduler.spawn(std::string(1, name), [&, name, ms](Fiber& fiber) {
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, MonoTime{} + milliseconds(ms)).ok());
            order += name;
        });
    };
    sleeper('a', 30);
    sleeper('b', 10);
    sleeper('c', 10);
    sleeper('d', 20);
    world.scheduler.run_all();
    EXPECT_EQ(order, "bcda");
    EXPECT_EQ(world.clock.time, MonoTime{} + milliseconds(30));
    EXPECT_EQ(world.stacks.in_use, 0);
}

TEST(Fiber, a_woken_fiber_leaves_no_timer_behind) {
    ManualWorld world;
    Fiber* waiting = nullptr;
    WakeReason reason = WakeReason::DEADLINE;
    world.scheduler.spawn("waits", [&](Fiber& fiber) {
        waiting = &fiber;
        reason = fiber.scheduler().park(fiber, MonoTime{} + seconds(5));
    });
    world.scheduler.spawn("wakes", [&](Fiber& fiber) {
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, MonoTime{} + seconds(1)).ok());
        fiber.scheduler().wake(*waiting);
        fiber.scheduler().wake(*waiting);  // already runnable: no effect
    });
    world.scheduler.run_all();
    EXPECT_EQ(reason, WakeReason::WOKEN);
    EXPECT_EQ(world.clock.time, MonoTime{} + seconds(1));
}

TEST(Fiber, cancel_ends_every_wait_and_a_deferred_one_waits_on) {
    ManualWorld world;
    std::vector<WakeReason> reasons;
    const FiberId id = world.scheduler.spawn("cancelled", [&](Fiber& fiber) {
        Scheduler& scheduler = fiber.scheduler();
        reasons.push_back(scheduler.park(fiber, NEVER));
        reasons.push_back(scheduler.park(fiber, NEVER));
        reasons.push_back(scheduler.park(fiber, MonoTime{} + seconds(9), CancelMode::DEFERRED));
    });
    world.scheduler.spawn("cancels", [&](Fiber&) { world.scheduler.cancel(id); });
    world.scheduler.run_all();
    EXPECT_EQ(reasons,
              (std::vector{WakeReason::CANCELLED, WakeReason::CANCELLED, WakeReason::DEADLINE}));
}

TEST(Fiber, kill_runs_destructors_of_parked_fibers_latest_first) {
    int destroyed = 0;
    ManualWorld world;
    for (int i = 0; i < 100; ++i) {
        world.scheduler.spawn("parked", [&](Fiber& fiber) {
            const CountOnDestroy guard{destroyed};
            fiber.scheduler().park(fiber, NEVER, CancelMode::ALLOWED);
            ADD_FAILURE() << "a killed fiber went on";
        });
    }
    world.scheduler.run_all();
    EXPECT_EQ(world.scheduler.fiber_count(), 100u);
    world.scheduler.kill_all();
    EXPECT_EQ(destroyed, 100);
    EXPECT_EQ(world.stacks.in_use, 0);
}

TEST(Fiber, timers_agree_with_a_sorted_list_under_random_parking) {
    ManualWorld world;
    Rng rng(1);
    std::vector<std::int64_t> fired;
    std::vector<std::int64_t> asked;
    for (int i = 0; i < 500; ++i) {
        const std::int64_t ms = static_cast<std::int64_t>(rng.below(100));
        asked.push_back(ms);
        world.scheduler.spawn("timer", [&, ms](Fiber& fiber) {
            if (ms % 3 == 0) fiber.scheduler().yield(fiber);
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, MonoTime{} + milliseconds(ms)).ok());
            fired.push_back(ms);
        });
    }
    world.scheduler.run_all();
    std::sort(asked.begin(), asked.end());
    EXPECT_EQ(fired, asked);
}

}  // namespace
}  // namespace mortar
