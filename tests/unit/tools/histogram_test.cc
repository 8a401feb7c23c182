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

}  // namespace
}  // namespace mortar::bench
