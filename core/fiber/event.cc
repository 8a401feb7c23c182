#include "core/fiber/event.h"

namespace mortar {

Event::Waiter::Waiter(Event& e, Fiber& f) : event(&e), fiber(f), previous(e.last_) {
    (previous != nullptr ? previous->next : e.first_) = this;
    e.last_ = this;
}

Event::Waiter::~Waiter() {
    unlink();
}

void Event::Waiter::unlink() {
    if (event == nullptr) return;
    (previous != nullptr ? previous->next : event->first_) = next;
    (next != nullptr ? next->previous : event->last_) = previous;
    event = nullptr;
    previous = next = nullptr;
}

Event::~Event() {
    while (first_ != nullptr)
        first_->unlink();
}

Result<void> Event::wait(Fiber& fiber, MonoTime deadline, CancelMode mode) {
    Waiter waiter(*this, fiber);
    const WakeReason reason = fiber.scheduler().park(fiber, deadline, mode);
    if (waiter.notified) return {};
    if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
    if (reason == WakeReason::DEADLINE) return make_error(ErrorCode::TIMED_OUT);
    return {};
}

void Event::notify_one() {
    Waiter* waiter = first_;
    if (waiter == nullptr) return;
    waiter->unlink();
    waiter->notified = true;
    waiter->fiber.scheduler().wake(waiter->fiber);
}

void Event::notify_all() {
    // Only those that wait now: a woken fiber runs later and may wait again.
    while (first_ != nullptr)
        notify_one();
}

}  // namespace mortar
