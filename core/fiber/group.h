// group: structured concurrency. A group owns its fibers: it joins them, or cancels and then joins.
// Owns:     the fibers spawned through it; what their bodies borrow must live until join returned.
// Errors:   join: CANCELLED when the joining fiber is cancelled first (its children run on: cancel_all them).
// Suspends: join, cancel_and_join.
// Invariant: a group is empty when destroyed, except when its node is killed (then children were unwound before it).
#pragma once

#include <memory>
#include <set>
#include <string>

#include "core/fiber/event.h"

namespace mortar {

class Group {
  public:
    explicit Group(Scheduler& scheduler)
        : scheduler_(scheduler), state_(std::make_shared<State>()) {}
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    FiberId spawn(std::string name, FiberBody body);
    void cancel_all();
    Result<void> join(Fiber& fiber);
    // Waits for the children even when the caller is cancelled.
    void cancel_and_join(Fiber& fiber);
    std::size_t size() const { return state_->live.size(); }

  private:
    struct State {
        std::set<FiberId> live;
        Event ended;
    };
    // Marks a child as gone when its body returns or is unwound.
    struct Membership;

    Scheduler& scheduler_;
    std::shared_ptr<State> state_;
};

}  // namespace mortar
