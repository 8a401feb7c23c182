#include "core/fiber/group.h"

#include <utility>
#include <vector>

namespace mortar {

struct Group::Membership {
    std::shared_ptr<State> state;
    FiberId id;
    ~Membership() {
        state->live.erase(id);
        state->ended.notify_all();
    }
};

FiberId Group::spawn(std::string name, FiberBody body) {
    const FiberId id =
        scheduler_.spawn(std::move(name), [state = state_, inner = std::move(body)](Fiber& fiber) {
            const Membership membership{state, fiber.id()};
            inner(fiber);
        });
    state_->live.insert(id);
    return id;
}

void Group::cancel_all() {
    const std::vector<FiberId> ids(state_->live.begin(), state_->live.end());
    for (const FiberId id : ids)
        scheduler_.cancel(id);
}

Result<void> Group::join(Fiber& fiber) {
    while (!state_->live.empty())
        MORTAR_TRY(state_->ended.wait(fiber));
    return {};
}

void Group::cancel_and_join(Fiber& fiber) {
    cancel_all();
    while (!state_->live.empty()) {
        const Result<void> ended = state_->ended.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(ended.ok());
    }
}

}  // namespace mortar
