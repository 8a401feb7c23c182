// event: wait until somebody notifies. A condition variable for fibers: check the condition, wait, check again.
// Errors:   TIMED_OUT at the deadline; CANCELLED (never with CancelMode::DEFERRED).
// Suspends: wait.
// Invariant: notify wakes only fibers that wait now; nothing is remembered.
#pragma once

#include "core/env/fiber.h"

namespace mortar {

class Event {
  public:
    Event() = default;
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    Result<void> wait(Fiber& fiber, MonoTime deadline = NEVER,
                      CancelMode mode = CancelMode::ALLOWED);
    void notify_one();  // the one that waits longest
    void notify_all();

  private:
    // Lives on the waiting fiber's stack; unlinks itself, also when the fiber is killed.
    struct Waiter {
        Waiter(Event& event, Fiber& fiber);
        ~Waiter();
        void unlink();
        Event* event;
        Fiber& fiber;
        Waiter* previous = nullptr;
        Waiter* next = nullptr;
        bool notified = false;
    };

    Waiter* first_ = nullptr;
    Waiter* last_ = nullptr;
};

}  // namespace mortar
