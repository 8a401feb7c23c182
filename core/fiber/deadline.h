// deadline: points in time from "now + d", saturating at NEVER.
#pragma once

#include "core/env/clock.h"

namespace mortar {

inline MonoTime deadline_after(const Clock& clock, Duration duration) {
    const MonoTime now = clock.now();
    if (duration.ns > NEVER.ns - now.ns) return NEVER;
    return now + duration;
}

}  // namespace mortar
