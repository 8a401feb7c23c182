// mutex: one fiber at a time through a section that suspends. First come, first served.
// Shape:    unlock hands the mutex to the fiber that waits longest, so that nobody who comes later,
//           runnable or not, gets in between.
// Errors:   TIMED_OUT, CANCELLED; not for a fiber that was handed the mutex before either came.
// Suspends: lock while another holds it.
#pragma once

#include <deque>
#include <utility>

#include "core/env/fiber.h"

namespace mortar {

class Mutex {
  public:
    Mutex() = default;
    ~Mutex() {
        for (Waiter* waiter : waiters_)
            waiter->mutex = nullptr;
    }
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    // Unlocks when destroyed; the Mutex must still live then, except when its node is killed.
    class Guard {
      public:
        explicit Guard(Mutex& mutex) : mutex_(&mutex) {}
        Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
        Guard& operator=(Guard&&) = delete;
        ~Guard() {
            if (mutex_ != nullptr) mutex_->unlock();
        }

      private:
        Mutex* mutex_;
    };

    Result<Guard> lock(Fiber& fiber, MonoTime deadline = NEVER) {
        if (!locked_) {
            locked_ = true;
            return Guard(*this);
        }
        const Waiter waiter(*this, fiber);
        while (!waiter.is_owner) {
            const WakeReason reason = fiber.scheduler().park(fiber, deadline);
            if (waiter.is_owner) break;
            if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
            if (reason == WakeReason::DEADLINE) return make_error(ErrorCode::TIMED_OUT);
        }
        return Guard(*this);
    }

  private:
    // Lives on the waiting fiber's stack; leaves the queue also when the fiber is killed.
    struct Waiter {
        Waiter(Mutex& m, Fiber& f) : mutex(&m), fiber(f) { m.waiters_.push_back(this); }
        ~Waiter() {
            if (!is_owner && mutex != nullptr) std::erase(mutex->waiters_, this);
        }
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        Mutex* mutex;
        Fiber& fiber;
        bool is_owner = false;
    };

    void unlock() {
        if (waiters_.empty()) {
            locked_ = false;
            return;
        }
        Waiter* next = waiters_.front();
        waiters_.pop_front();
        next->is_owner = true;  // and locked_ stays
        next->fiber.scheduler().wake(next->fiber);
    }
    bool locked_ = false;
    std::deque<Waiter*> waiters_;  // in order of arrival
};

}  // namespace mortar
