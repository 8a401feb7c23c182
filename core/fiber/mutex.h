// mutex: one fiber at a time through a section that suspends. First come, first served.
// Errors:   TIMED_OUT, CANCELLED.
// Suspends: lock while another holds it.
#pragma once

#include <utility>

#include "core/fiber/event.h"

namespace mortar {

class Mutex {
  public:
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
        while (locked_) MORTAR_TRY(free_.wait(fiber, deadline));
        locked_ = true;
        return Guard(*this);
    }
    bool is_locked() const { return locked_; }

  private:
    void unlock() {
        locked_ = false;
        free_.notify_one();
    }
    bool locked_ = false;
    Event free_;
};

}  // namespace mortar
