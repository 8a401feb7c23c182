#include "core/produce/pace.h"

#include <gtest/gtest.h>

namespace mortar {
namespace {

struct HandClock : Clock {
    MonoTime now() const override { return time; }
    std::uint64_t wall_unix_ms() const override { return 0; }
    MonoTime time{seconds(100).ns};
};

struct ProducePaceTest : ::testing::Test {
    bool is_held() const { return pace.held_until() > clock.time; }
    HandClock clock;
    ProducePace pace{clock};
};

TEST_F(ProducePaceTest, counts_and_holds_nobody_without_a_rate) {
    pace.on_appended(1'000'000);
    pace.on_appended(24);
    EXPECT_EQ(pace.appended_bytes(), 1'000'024u);
    EXPECT_EQ(pace.held_to(), 0u);
    EXPECT_FALSE(is_held());
}

TEST_F(ProducePaceTest, lets_through_what_the_rate_allows) {
    pace.hold_to(10'000);
    std::uint64_t appended = 0;
    const MonoTime began = clock.time;
    for (; clock.time < began + seconds(20); clock.time = clock.time + milliseconds(1)) {
        while (!is_held()) {
            pace.on_appended(100);
            appended += 100;
        }
    }
    EXPECT_NEAR(static_cast<double>(appended), 200'000.0, 1'000.0);
}

TEST_F(ProducePaceTest, saves_up_for_producers_that_write_in_bursts) {
    pace.hold_to(10'000);
    std::uint64_t held_count = 0;
    for (int second = 0; second < 20; ++second) {
        clock.time = clock.time + seconds(1);
        for (int i = 0; i < 100; ++i) {
            if (is_held()) ++held_count;
            pace.on_appended(100);
        }
    }
    EXPECT_EQ(held_count, 0u);
    // But not for longer than a burst.
    clock.time = clock.time + seconds(60);
    std::uint64_t appended = 0;
    for (; !is_held(); appended += 100)
        pace.on_appended(100);
    EXPECT_NEAR(static_cast<double>(appended), 10'000.0, 300.0);
}

TEST_F(ProducePaceTest, one_huge_message_holds_the_others_no_longer_than_the_bound) {
    pace.hold_to(1);
    pace.on_appended(16u << 20);
    EXPECT_TRUE(is_held());
    EXPECT_LE(pace.held_until().ns, (clock.time + ProducePace::HOLD_MAX).ns);
    pace.on_appended(16u << 20);
    EXPECT_LE(pace.held_until().ns, (clock.time + ProducePace::HOLD_MAX).ns);
}

TEST_F(ProducePaceTest, owes_nothing_from_before_it_was_released) {
    pace.hold_to(1'000);
    pace.on_appended(900);
    EXPECT_TRUE(is_held());
    pace.release();
    EXPECT_FALSE(is_held());
    EXPECT_EQ(pace.held_to(), 0u);
    pace.on_appended(1'000'000);
    pace.hold_to(1'000);
    EXPECT_FALSE(is_held());
}

}  // namespace
}  // namespace mortar
