#include "tools/bench/histogram.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace mortar::bench {
namespace {

TEST(Histogram, a_bucket_holds_its_end_and_the_next_value_lies_in_the_next_one) {
    for (std::size_t bucket = 0; bucket + 1 < Histogram::BUCKETS; ++bucket) {
        const std::uint64_t end = Histogram::bucket_end(bucket);
        ASSERT_EQ(Histogram::bucket_of(end), bucket);
        ASSERT_EQ(Histogram::bucket_of(end + 1), bucket + 1);
    }
    EXPECT_EQ(Histogram::bucket_of(UINT64_MAX), Histogram::BUCKETS - 1);
}

TEST(Histogram, percentiles_of_a_hundred_values_are_off_by_less_than_one_percent) {
    Histogram histogram;
    EXPECT_EQ(histogram.percentile_ns(500), 0u);
    for (std::uint64_t i = 1; i <= 100; ++i)
        histogram.add(i * 10'000);
    for (const std::uint64_t percent : {1u, 50u, 99u, 100u}) {
        const std::uint64_t exact = percent * 10'000;
        EXPECT_GE(histogram.percentile_ns(percent * 10), exact);
        EXPECT_LE(histogram.percentile_ns(percent * 10), exact + exact / 100);
    }
}

TEST(Histogram, the_largest_value_is_exact_and_no_percentile_is_above_it) {
    Histogram histogram;
    histogram.add(1'000'003);
    EXPECT_EQ(histogram.max_ns(), 1'000'003u);
    EXPECT_EQ(histogram.percentile_ns(500), 1'000'003u);
    EXPECT_EQ(histogram.percentile_ns(1000), 1'000'003u);
}

TEST(Histogram, one_in_a_thousand_shows_above_the_share_that_excludes_it) {
    Histogram histogram;
    for (int i = 0; i < 1998; ++i)
        histogram.add(100);
    histogram.add(5'000'000);
    histogram.add(5'000'000);
    EXPECT_EQ(histogram.percentile_ns(999), 100u);
    EXPECT_EQ(histogram.percentile_ns(1000), 5'000'000u);
    histogram.add(5'000'000);
    EXPECT_GE(histogram.percentile_ns(999), 5'000'000u - 5'000'000u / 100);
}

TEST(Histogram, adding_another_is_adding_its_values) {
    Histogram one;
    Histogram other;
    Histogram both;
    for (std::uint64_t i = 1; i <= 1000; ++i) {
        (i % 3 == 0 ? one : other).add(i * i * 1000);
        both.add(i * i * 1000);
    }
    one.add(other);
    EXPECT_EQ(one.count(), 1000u);
    EXPECT_EQ(one.max_ns(), both.max_ns());
    for (std::uint64_t per_mille = 0; per_mille <= 1000; per_mille += 50)
        EXPECT_EQ(one.percentile_ns(per_mille), both.percentile_ns(per_mille));
}

}  // namespace
}  // namespace mortar::bench
