// schedule: when each message of an open loop is meant to leave. The answers have no say in it: a server that stalls makes
//           messages late, not rare, and a latency counts from the intended time (no coordinated omission).
// Shape:    message i is meant to leave i / rate after the start.
// Units:    nanoseconds of the clock that start_ns was read from.
// Source:   issue 3 (mortarmq-bench).
#pragma once

#include <cstdint>
#include <limits>

#include "core/base/assert.h"

namespace mortar::bench {

inline constexpr std::uint64_t RATE_MAX = 10'000'000;  // messages a second

class Schedule {
  public:
    Schedule(std::int64_t start_ns, std::uint64_t per_second)
        : start_ns_(start_ns), per_second_(per_second) {
        MORTAR_ASSERT(per_second > 0 && per_second <= RATE_MAX);
    }

    // Of message index, from 0. Rounded per message from the start, so that nothing adds up.
    std::int64_t intended_ns(std::uint64_t index) const {
        const std::uint64_t whole_seconds = index / per_second_;
        const std::uint64_t rest_ns = index % per_second_ * NS_PER_S / per_second_;
        return start_ns_ + static_cast<std::int64_t>(whole_seconds * NS_PER_S + rest_ns);
    }

  private:
    static constexpr std::uint64_t NS_PER_S = 1'000'000'000;
    static_assert(RATE_MAX <= std::numeric_limits<std::uint64_t>::max() / NS_PER_S);

    std::int64_t start_ns_;
    std::uint64_t per_second_;
};

}  // namespace mortar::bench
