#include "core/produce/pace.h"

#include <algorithm>

#include "core/base/assert.h"

namespace mortar {
namespace {

constexpr std::uint64_t NS_PER_SECOND = 1'000'000'000;

}  // namespace

void ProducePace::on_appended(std::size_t size_bytes) {
    appended_bytes_ += size_bytes;
    if (bytes_per_second_ == 0) return;
    const MonoTime now = clock_.now();
    const Duration cost{static_cast<std::int64_t>(size_bytes * NS_PER_SECOND / bytes_per_second_)};
    // A debt above HOLD_MAX is let off: one huge message must not hold up everybody else for long.
    next_at_ = std::min(std::max(next_at_, now - BURST) + cost, now + HOLD_MAX);
}

void ProducePace::hold_to(std::uint64_t bytes_per_second) {
    MORTAR_ASSERT(bytes_per_second > 0);
    if (bytes_per_second_ == 0) next_at_ = clock_.now();
    bytes_per_second_ = bytes_per_second;
}

void ProducePace::release() {
    bytes_per_second_ = 0;
    released_.notify_all();
}

MonoTime ProducePace::held_until() const {
    if (bytes_per_second_ == 0) return MonoTime{};
    return next_at_ <= clock_.now() + GRAIN ? MonoTime{} : next_at_;
}

}  // namespace mortar
