// scheduler: fibers of one node, all on one thread. The only way to wait.
// Shape:    spawn starts a named fiber; park suspends the calling fiber until wake, deadline or cancel.
//           Everything that waits (fiber/event.h, sockets, files) is built on park and wake.
// Suspends: what takes Fiber& first. After such a call re-read every epoch, role, lease and pointer.
// Errors:   a cancelled fiber gets CANCELLED from every wait, at once and for ever; it goes up as it is.
// Invariant: wake of a fiber that is not parked does nothing, so a waiter checks its condition before it parks.
// Source:   design 2.
#pragma once

#include <functional>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/env/clock.h"

namespace mortar {

class Fiber;  // env/fiber.h
using FiberId = StrongId<struct FiberIdTag, std::uint64_t>;
using FiberBody = std::function<void(Fiber&)>;

enum class WakeReason : std::uint8_t { WOKEN, DEADLINE, CANCELLED };
// DEFERRED: a cancel does not end this wait (a disk thread still uses the caller's bytes).
enum class CancelMode : std::uint8_t { ALLOWED, DEFERRED };

class Scheduler {
  public:
    virtual ~Scheduler() = default;
    // The body starts later, never inside spawn. Name: for traces and debuggers, "area.what".
    virtual FiberId spawn(std::string name, FiberBody body) = 0;
    // There are stacks for so many more fibers, and some to spare for the node's own. Ask before a
    // fiber is spawned for a stranger: spawn itself cannot fail.
    virtual bool has_room(std::size_t fiber_count) = 0;
    virtual WakeReason park(Fiber& fiber, MonoTime deadline,
                            CancelMode mode = CancelMode::ALLOWED) = 0;
    virtual void wake(Fiber& fiber) = 0;
    // Asks the fiber to stop; no effect when it is gone.
    virtual void cancel(FiberId id) = 0;
    // Lets every other runnable fiber go first.
    virtual void yield(Fiber& fiber) = 0;

    // OK when the time has come, else CANCELLED.
    Result<void> sleep_until(Fiber& fiber, MonoTime deadline);
};

}  // namespace mortar
