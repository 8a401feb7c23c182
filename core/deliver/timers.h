// timers: many deadlines, one fiber.
// Shape:     a Timer belongs to whoever waits; arm() keeps the earlier of two times, so moving a deadline back costs nothing:
//            the callback looks at the real one and arms again. Callbacks run in the queue's fiber and never suspend.
// Owns:      nothing; a Timer leaves its queue when destroyed.
// Suspends:  run.
// Invariant: same deadline = first armed, first called. After a stall of the loop received bytes go first.
// Source:    contract 8 (scheduling), style (order never by address).
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "core/env/env.h"
#include "core/fiber/event.h"

namespace mortar {

inline constexpr Duration STALL_MIN = seconds(1);
inline constexpr Duration STALL_GRACE = milliseconds(20);

class Timer;

class TimerQueue {
  public:
    // Serves the timers until cancelled.
    void run(Fiber& fiber, const Clock& clock);

  private:
    friend class Timer;
    using Key = std::pair<MonoTime, std::uint64_t>;
    std::map<Key, Timer*> armed_;
    std::uint64_t next_order_ = 1;
    Event changed_;
};

class Timer {
  public:
    Timer(TimerQueue& queue, std::function<void()> on_due)
        : queue_(queue), on_due_(std::move(on_due)) {}
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() { cancel(); }

    // Calls at `at`, or earlier when it is armed for earlier already. NEVER does nothing.
    void arm(MonoTime at);
    void cancel();
    bool is_armed() const { return key_.first != NEVER; }

  private:
    friend class TimerQueue;
    TimerQueue& queue_;
    std::function<void()> on_due_;
    TimerQueue::Key key_{NEVER, 0};
};

}  // namespace mortar
