// What producers are held to, second by second.
#include "core/replica/catch_up_pace.h"

#include <gtest/gtest.h>

namespace mortar {
namespace {

using Change = CatchUpPace::Change;

struct CatchUpPaceTest : ::testing::Test {
    CatchUpPaceTest() {
        behind.node_id = NodeId(1);
        behind.is_connected = behind.is_installed = true;
        behind.lag_records = 1'000'000;
        other = behind;
        other.node_id = NodeId(2);
        other.is_in_sync = true;
        other.lag_records = 0;
    }
    // A second in which so much was appended, and confirmed by the one that is behind.
    CatchUpPace::Verdict second(std::uint64_t appended_bytes, std::uint64_t confirmed_bytes) {
        now = now + seconds(1);
        appended += appended_bytes;
        behind.confirmed_bytes += confirmed_bytes;
        last = pace.on_sample(now, appended, {behind, other});
        return last;
    }
    void seconds_of(int count, std::uint64_t appended_bytes, std::uint64_t confirmed_bytes) {
        for (int i = 0; i < count; ++i)
            second(appended_bytes, confirmed_bytes);
    }
    void hold() {
        seconds_of(3, 1000, 1100);
        ASSERT_EQ(last.bytes_per_second, 700u);
    }

    CatchUpPace pace;
    MonoTime now{seconds(50).ns};
    std::uint64_t appended = 12'345;
    FollowerStatus behind;
    FollowerStatus other;
    CatchUpPace::Verdict last;
};

TEST_F(CatchUpPaceTest, holds_nobody_while_the_follower_gains_enough) {
    seconds_of(30, 1000, 1250);
    EXPECT_EQ(last.bytes_per_second, 0u);
}

TEST_F(CatchUpPaceTest, holds_producers_to_70_percent_until_it_is_in_sync) {
    EXPECT_EQ(second(1000, 1100).change, Change::NONE);  // a whole second must have been seen
    EXPECT_EQ(second(1000, 1100).change, Change::NONE);
    const auto verdict = second(1000, 1100);
    EXPECT_EQ(verdict.change, Change::HELD);
    EXPECT_EQ(verdict.node_id, NodeId(1));
    EXPECT_EQ(verdict.bytes_per_second, 700u);
    for (int i = 0; i < 40; ++i) {
        behind.lag_records -= 10;
        EXPECT_EQ(second(700, 1100).change, Change::NONE);
        EXPECT_EQ(last.bytes_per_second, 700u);
    }
    behind.is_in_sync = true;
    EXPECT_EQ(second(700, 700).change, Change::RELEASED);
    EXPECT_EQ(last.bytes_per_second, 0u);
    EXPECT_EQ(second(1000, 1000).change, Change::NONE);
}

TEST_F(CatchUpPaceTest, takes_the_rate_from_the_best_second_before) {
    other.is_installed = behind.is_installed = false;
    seconds_of(20, 9000, 0);
    seconds_of(4, 3000, 0);
    seconds_of(2, 100, 0);
    behind.is_installed = true;
    seconds_of(2, 500, 300);
    EXPECT_EQ(last.change, Change::HELD);
    EXPECT_EQ(last.bytes_per_second, 6300u);
}

TEST_F(CatchUpPaceTest, forgets_what_producers_did_long_ago) {
    behind.is_installed = false;
    seconds_of(20, 9000, 0);
    seconds_of(12, 3000, 0);
    behind.is_installed = true;
    seconds_of(2, 3000, 300);
    EXPECT_EQ(last.bytes_per_second, 2100u);
}

TEST_F(CatchUpPaceTest, never_holds_to_less_again_because_it_held_before) {
    hold();
    for (int phase = 0; phase < 5; ++phase) {
        behind.is_in_sync = true;
        second(700, 700);
        EXPECT_EQ(last.change, Change::RELEASED);
        behind.is_in_sync = false;
        seconds_of(2, 1000, 1100);
        EXPECT_EQ(last.bytes_per_second, 700u);
    }
}

TEST_F(CatchUpPaceTest, holds_nobody_for_a_follower_that_is_away_or_stalled) {
    seconds_of(30, 1000, 0);
    EXPECT_EQ(last.bytes_per_second, 0u);
    behind.is_installed = false;
    seconds_of(30, 1000, 100);
    EXPECT_EQ(last.bytes_per_second, 0u);
}

TEST_F(CatchUpPaceTest, lets_go_when_the_follower_goes) {
    hold();
    behind.is_installed = false;
    EXPECT_EQ(second(700, 0).change, Change::RELEASED);
    EXPECT_EQ(last.bytes_per_second, 0u);
}

TEST_F(CatchUpPaceTest, gives_up_on_one_that_falls_no_less_behind) {
    hold();
    int held_seconds = 0;
    while (second(700, 600).change == Change::NONE && held_seconds < 100) {
        behind.lag_records += 5;
        ++held_seconds;
    }
    EXPECT_EQ(last.change, Change::GIVEN_UP);
    EXPECT_EQ(last.bytes_per_second, 0u);
    EXPECT_LE(held_seconds, 15);
    seconds_of(100, 1000, 600);
    EXPECT_EQ(last.bytes_per_second, 0u);
    // Another time, another try.
    behind.is_in_sync = true;
    second(1000, 1000);
    behind.is_in_sync = false;
    seconds_of(2, 1000, 1100);
    EXPECT_EQ(last.change, Change::HELD);
}

TEST_F(CatchUpPaceTest, holds_on_while_the_other_follower_needs_it) {
    hold();
    other.is_in_sync = false;
    other.lag_records = 500;
    second(700, 1100);
    other.confirmed_bytes += 10;
    EXPECT_EQ(second(700, 1100).change, Change::NONE);
    behind.is_in_sync = true;
    EXPECT_EQ(second(700, 1100).change, Change::NONE);
    EXPECT_EQ(last.bytes_per_second, 700u);
    other.is_in_sync = true;
    EXPECT_EQ(second(700, 1100).change, Change::RELEASED);
}

}  // namespace
}  // namespace mortar
