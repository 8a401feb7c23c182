// stamp: the first bytes of a value, by which a consumer knows the run that sent it, and when it was meant to leave.
// Units:  nanoseconds of the monotonic clock, which all processes of one machine share.
// Source: issue 3 (mortarmq-bench).
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace mortar::bench {

inline constexpr std::size_t STAMP_BYTES = 16;

struct Stamp {
    std::uint64_t run_id = 0;
    std::int64_t intended_ns = 0;
};

inline void write_stamp(const Stamp& stamp, std::byte* at) {
    store_be(at, stamp.run_id);
    store_be(at + sizeof stamp.run_id, static_cast<std::uint64_t>(stamp.intended_ns));
}

inline Stamp read_stamp(ByteSpan value) {
    if (value.size() < STAMP_BYTES) return {};
    return {.run_id = load_be<std::uint64_t>(value.data()),
            .intended_ns = static_cast<std::int64_t>(
                load_be<std::uint64_t>(value.data() + sizeof(std::uint64_t)))};
}

}  // namespace mortar::bench
