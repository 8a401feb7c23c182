#include "tools/bench/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tools/bench/histogram.h"

namespace mortar::bench {
namespace {

constexpr std::int64_t MS = 1'000'000;

TEST(Schedule, times_are_counted_from_the_start_so_that_no_rounding_adds_up) {
    const Schedule thirds(1000, 3);
    EXPECT_EQ(thirds.intended_ns(0), 1000);
    EXPECT_EQ(thirds.intended_ns(1), 1000 + 333'333'333);
    EXPECT_EQ(thirds.intended_ns(3), 1000 + 1'000'000'000);
    EXPECT_EQ(thirds.intended_ns(3 * 86'400), 1000 + 86'400 * 1000 * MS);
    EXPECT_EQ(Schedule(0, RATE_MAX).intended_ns(RATE_MAX * 1'000'000), 1'000'000'000'000 * 1000);
}

// A server that answers one message after the other, each in 0.1 ms, but does nothing from 500 to 1,000 ms.
class StallingServer {
  public:
    std::int64_t answer(std::int64_t sent_ns) {
        std::int64_t began = std::max(sent_ns, free_at_ns_);
        if (began >= 500 * MS && began < 1000 * MS) began = 1000 * MS;
        return free_at_ns_ = began + MS / 10;
    }

  private:
    std::int64_t free_at_ns_ = 0;
};

TEST(Schedule, a_stall_shows_in_the_percentiles_where_a_closed_loop_hides_it) {
    const Schedule schedule(0, 1000);
    StallingServer server;
    Histogram open_loop;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::int64_t intended = schedule.intended_ns(i);
        open_loop.add(static_cast<std::uint64_t>(server.answer(intended) - intended));
    }
    StallingServer same;
    Histogram closed_loop;
    for (std::int64_t now = 0; now < 2000 * MS;) {
        const std::int64_t answered = same.answer(now);
        closed_loop.add(static_cast<std::uint64_t>(answered - now));
        now = answered;
    }
    // A quarter of all were meant to leave while nothing was answered.
    EXPECT_GE(open_loop.percentile_ns(800), static_cast<std::uint64_t>(50 * MS));
    EXPECT_GE(open_loop.percentile_ns(990), static_cast<std::uint64_t>(450 * MS));
    EXPECT_LE(closed_loop.percentile_ns(999), static_cast<std::uint64_t>(MS));
}

}  // namespace
}  // namespace mortar::bench
