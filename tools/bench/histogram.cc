#include "tools/bench/histogram.h"

#include <bit>

namespace mortar::bench {

void Histogram::add(const Histogram& other) {
    for (std::size_t bucket = 0; bucket < BUCKETS; ++bucket)
        counts_[bucket] += other.counts_[bucket];
    count_ += other.count_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
}

std::uint64_t Histogram::percentile_ns(std::uint64_t per_mille) const {
    if (count_ == 0) return 0;
    const std::uint64_t wanted = (count_ * per_mille + 999) / 1000;
    std::uint64_t seen = 0;
    std::size_t bucket = 0;
    while ((seen += counts_[bucket]) < wanted)
        ++bucket;
    return std::min(bucket_end(bucket), max_ns_);
}

std::size_t Histogram::bucket_of(std::uint64_t value) {
    if (value < SUB_BUCKETS) return static_cast<std::size_t>(value);
    const auto shift = static_cast<std::size_t>(std::bit_width(value) - 1 - SUB_BUCKET_BITS);
    return (shift + 1) * SUB_BUCKETS + static_cast<std::size_t>((value >> shift) - SUB_BUCKETS);
}

std::uint64_t Histogram::bucket_end(std::size_t bucket) {
    if (bucket < SUB_BUCKETS) return bucket;
    const std::size_t shift = bucket / SUB_BUCKETS - 1;
    const std::uint64_t first = (SUB_BUCKETS + bucket % SUB_BUCKETS) << shift;
    return first + ((std::uint64_t{1} << shift) - 1);
}

}  // namespace mortar::bench
