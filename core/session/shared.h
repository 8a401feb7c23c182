// shared: what all connections of a server draw on, and may not use up.
// Owns: nothing of a connection's; it outlives them all.
#pragma once

#include <cstddef>

#include "core/deliver/timers.h"
#include "core/wire/outbox.h"

namespace mortar {

struct SessionShared {
    TimerQueue timers;
    OutboxBudget outbox_budget;
    std::size_t request_fibers_max = 0;
    std::size_t request_fiber_count = 0;
    bool is_refusing_requests = false;  // told in the log once, until there is room again
};

}  // namespace mortar
