#include "io-real/real_clock.h"

#include <ctime>

#include "core/base/assert.h"

namespace mortar {

MonoTime RealClock::now() const {
    timespec time{};
    MORTAR_ASSERT(clock_gettime(CLOCK_BOOTTIME, &time) == 0);
    return MonoTime{std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

std::uint64_t RealClock::wall_unix_ms() const {
    timespec time{};
    MORTAR_ASSERT(clock_gettime(CLOCK_REALTIME, &time) == 0);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000 +
           static_cast<std::uint64_t>(time.tv_nsec) / 1'000'000;
}

}  // namespace mortar
