// env: the six doors to the world, handed to each part of a node together.
// Owns:   nothing; the world that made them outlives the node.
#pragma once

#include "core/env/clock.h"
#include "core/env/disk.h"
#include "core/env/fiber.h"
#include "core/env/log.h"
#include "core/env/net.h"
#include "core/env/rng.h"
#include "core/env/scheduler.h"

namespace mortar {

struct Env {
    Clock& clock;
    Scheduler& scheduler;
    Net& net;
    Disk& disk;
    RngSource& rng;
    Log& log;
};

}  // namespace mortar
