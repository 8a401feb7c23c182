// manual_scheduler: the smallest world for unit tests of fibers: a clock that the test moves, first come first served.
#pragma once

#include <deque>
#include <new>

#include "core/env/fiber.h"

namespace mortar::testing {

class ManualClock : public Clock {
  public:
    MonoTime now() const override { return time; }
    std::uint64_t wall_unix_ms() const override { return 1; }
    MonoTime time;
};

class HeapStacks : public StackPool {
  public:
    FiberStack acquire() override {
        const std::size_t size = MORTAR_FIBER_STACK_BYTES;
        ++in_use;
        return {static_cast<std::byte*>(::operator new(size, std::align_val_t(4096))), size};
    }
    bool reserve(std::size_t) override { return true; }
    void release(FiberStack stack) override {
        --in_use;
        ::operator delete(stack.base, std::align_val_t(4096));
    }
    int in_use = 0;
};

class ManualScheduler : public FiberScheduler {
  public:
    ManualScheduler(ManualClock& clock, HeapStacks& stacks)
        : FiberScheduler(stacks), clock_(clock) {}
    ~ManualScheduler() override { kill_all(); }
    // Runs until nothing is runnable; then jumps to the next timer, until none is left or limit.
    void run_all(MonoTime limit = NEVER) {
        while (true) {
            while (!queue_.empty()) {
                const FiberId id = queue_.front();
                queue_.pop_front();
                run(id);
            }
            const MonoTime next = next_deadline();
            if (next == NEVER || next > limit) return;
            clock_.time = next;
            fire_timers(next);
        }
    }

  protected:
    void make_runnable(FiberId id) override { queue_.push_back(id); }

  private:
    ManualClock& clock_;
    std::deque<FiberId> queue_;
};

struct ManualWorld {
    ManualClock clock;
    HeapStacks stacks;
    ManualScheduler scheduler{clock, stacks};
};

}  // namespace mortar::testing
