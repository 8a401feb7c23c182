#include "core/deliver/timers.h"

namespace mortar {

void TimerQueue::run(Fiber& fiber, const Clock& clock) {
    while (!fiber.is_cancelled()) {
        const MonoTime due = armed_.empty() ? NEVER : armed_.begin()->first.first;
        MonoTime now = clock.now();
        if (due > now) {
            const Result<void> waited = changed_.wait(fiber, due);
            if (waited.is(ErrorCode::CANCELLED)) return;
            continue;
        }
        if (now - due > STALL_MIN) {
            // The whole process stood still: an ACK that waits in a socket must not find its lease expired.
            MORTAR_SOMETIMES(true, "timers run late after a stall");
            if (!fiber.scheduler().sleep_until(fiber, now + STALL_GRACE).ok()) return;
            now = clock.now();
        }
        while (!armed_.empty() && armed_.begin()->first.first <= now) {
            Timer* timer = armed_.begin()->second;
            timer->cancel();
            // It may destroy the timer.
            const std::function<void()> on_due = timer->on_due_;
            on_due();
        }
    }
}

void Timer::arm(MonoTime at) {
    if (at >= key_.first) return;
    cancel();
    const bool is_first = queue_.armed_.empty() || at < queue_.armed_.begin()->first.first;
    key_ = {at, queue_.next_order_++};
    queue_.armed_.emplace(key_, this);
    if (is_first) queue_.changed_.notify_all();
}

void Timer::cancel() {
    if (!is_armed()) return;
    queue_.armed_.erase(key_);
    key_ = {NEVER, 0};
}

}  // namespace mortar
