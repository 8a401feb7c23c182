// real_clock: the clocks of the OS.
// Units:  now() counts from boot and runs on in suspend (CLOCK_BOOTTIME); the wall clock may jump.
// Source: design 2, contract 8 (timing).
#pragma once

#include "core/env/clock.h"

namespace mortar {

class RealClock final : public Clock {
  public:
    MonoTime now() const override;
    std::uint64_t wall_unix_ms() const override;
};

}  // namespace mortar
