// histogram: how often which latency occurred, at a bounded relative error.
// Shape:  buckets of equal width inside each power of two (SUB_BUCKETS of them), so a bucket is at most 1/SUB_BUCKETS of its
//         value wide; values below SUB_BUCKETS are exact, and so is the largest.
// Units:  nanoseconds.
// Source: issue 2 (percentiles), the usual log-linear layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mortar::bench {

class Histogram {
  public:
    static constexpr int SUB_BUCKET_BITS = 7;
    static constexpr std::uint64_t SUB_BUCKETS = 1u << SUB_BUCKET_BITS;
    static constexpr std::size_t BUCKETS = (64 - SUB_BUCKET_BITS + 1) * SUB_BUCKETS;

    Histogram() : counts_(BUCKETS) {}
    void add(std::uint64_t value_ns) {
        ++counts_[bucket_of(value_ns)];
        ++count_;
        max_ns_ = std::max(max_ns_, value_ns);
    }
    void add(const Histogram& other);
    std::uint64_t count() const { return count_; }
    std::uint64_t max_ns() const { return max_ns_; }
    // No value of that share of all is above it: the upper end of the bucket where the share ends, or the largest value
    // where that is lower; 0 when empty.
    std::uint64_t percentile_ns(std::uint64_t per_mille) const;

    static std::size_t bucket_of(std::uint64_t value);
    static std::uint64_t bucket_end(std::size_t bucket);

  private:
    std::vector<std::uint64_t> counts_;
    std::uint64_t count_ = 0;
    std::uint64_t max_ns_ = 0;
};

}  // namespace mortar::bench
