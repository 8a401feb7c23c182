#include "io-real/stack_pool.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <vector>

#include "tests/unit/io-real/real_world.h"

namespace mortar {
namespace {
using testing::RealWorld;

TEST(GuardedStackPool, hands_out_the_stack_given_back_last) {
    GuardedStackPool pool;
    const FiberStack first = pool.acquire();
    const FiberStack second = pool.acquire();
    EXPECT_NE(first.base, second.base);
    EXPECT_EQ(pool.in_use(), 2u);
    pool.release(first);
    pool.release(second);
    EXPECT_EQ(pool.acquire().base, second.base);
    EXPECT_EQ(pool.acquire().base, first.base);
    pool.release(first);
    pool.release(second);
    EXPECT_EQ(pool.in_use(), 0u);
}

TEST(GuardedStackPool, stacks_do_not_overlap_and_are_writable_to_the_last_byte) {
    GuardedStackPool pool;
    std::vector<FiberStack> stacks;
    std::set<std::byte*> bases;
    for (std::size_t i = 0; i < 3 * GuardedStackPool::STACKS_PER_SLAB; ++i)
        stacks.push_back(pool.acquire());
    for (const FiberStack& stack : stacks) {
        stack.base[0] = std::byte{1};
        stack.base[stack.size_bytes - 1] = std::byte{2};
        bases.insert(stack.base);
    }
    std::byte* before = nullptr;
    for (std::byte* base : bases) {
        if (before != nullptr) {
            EXPECT_GE(base - before, static_cast<long>(GuardedStackPool::STACK_BYTES));
        }
        before = base;
    }
    EXPECT_EQ(bases.size(), stacks.size());
    for (const FiberStack& stack : stacks)
        pool.release(stack);
}

TEST(GuardedStackPoolDeathTest, the_byte_below_a_stack_cannot_be_touched) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            GuardedStackPool pool;
            // The second slot: below it lies the first stack's memory, were there no guard.
            pool.acquire();
            volatile std::byte* below = pool.acquire().base - 1;
            *below = std::byte{1};
        },
        "");
}

// In a process of its own: the limit stays.
void meet_the_limit_of_the_system() {
    GuardedStackPool pool;
    bool is_right = pool.reserve(10) && pool.in_use() == 0;
    std::ifstream statm("/proc/self/statm");
    rlim_t used_pages = 0;
    statm >> used_pages;
    const rlim_t room_bytes = 64u << 20;
    rlimit limit{};
    limit.rlim_cur = used_pages * 4096 + room_bytes;
    limit.rlim_max = RLIM_INFINITY;
    is_right = is_right && setrlimit(RLIMIT_AS, &limit) == 0;
    is_right = is_right && !pool.reserve(4 * room_bytes / GuardedStackPool::STACK_BYTES);
    // What it has, it gives.
    is_right = is_right && pool.reserve(10);
    pool.release(pool.acquire());
    std::_Exit(is_right ? 0 : 1);
}

TEST(GuardedStackPoolDeathTest, says_when_the_system_gives_no_more) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(meet_the_limit_of_the_system(), ::testing::ExitedWithCode(0), "");
}

// Each frame takes a page; the compiler must not turn it into a loop.
__attribute__((noinline)) std::size_t dig(std::size_t depth, volatile const char* above) {
    volatile char frame[4096];
    frame[0] = above != nullptr ? above[0] : '\1';
    if (depth == 0) return static_cast<std::size_t>(frame[0]);
    return dig(depth - 1, frame) + static_cast<std::size_t>(frame[0]);
}

TEST(GuardedStackPoolDeathTest, a_fiber_that_overflows_its_stack_faults) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            RealWorld world;
            world.run_fiber([](Fiber&) { dig(GuardedStackPool::STACK_BYTES / 4096 + 4, nullptr); });
        },
        "");
}

TEST(GuardedStackPool, carries_two_thousand_parked_fibers) {
    RealWorld world;
    int ended = 0;
    world.run_fiber([&](Fiber& fiber) {
        const MonoTime wake_at = world.in(milliseconds(50));
        for (int i = 0; i < 2000; ++i) {
            world.loop().spawn("parked", [&, wake_at](Fiber& parked) {
                if (parked.scheduler().sleep_until(parked, wake_at).ok()) ++ended;
            });
        }
        while (world.loop().fiber_count() > 1) {
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(10))).ok());
        }
    });
    EXPECT_EQ(ended, 2000);
}

}  // namespace
}  // namespace mortar
