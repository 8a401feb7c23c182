// hostile: a client that breaks the rules: random bytes, wrong lengths, ops out of order, half frames, truncated ops.
// Shape:    one fiber; each round connects, does one bad thing, reads what comes until the broker closes or a second passed.
// Suspends: run, until cancelled with its node.
// Source:   issue (bad input), design 6 (checker 15), contract S1-S4.
#pragma once

#include <string>

#include "core/env/env.h"

namespace mortar::sim {

// Ends at the deadline.
void run_hostile(Fiber& fiber, Env& env, const std::string& address, MonoTime until);

}  // namespace mortar::sim
