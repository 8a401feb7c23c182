// fiber: stack, switch and kill: the mechanism under both schedulers.
// Shape:    Fiber is the running fiber's handle; FiberScheduler implements spawn, park, wake, cancel, timers and kill, and
//           leaves to its child which runnable fiber goes next and how idle time passes.
// Owns:     its fibers; their stacks come from the StackPool, which must outlive it.
// Suspends: park, yield.
// Kill:     kill_all unwinds every fiber (latest first) by a private exception thrown out of park: destructors on fiber
//           stacks run and must only free memory. Nothing else in core throws or catches.
// Source:   design 2; style (dependencies 4).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/env/scheduler.h"

namespace mortar {

struct FiberStack {
    std::byte* base = nullptr;  // lowest address
    std::size_t size_bytes = 0;
};

// Where stacks come from; both worlds pool them.
class StackPool {
  public:
    virtual ~StackPool() = default;
    virtual FiberStack acquire() = 0;
    // The next count calls of acquire find a stack; false when the system gives no more.
    virtual bool reserve(std::size_t count) = 0;
    virtual void release(FiberStack stack) = 0;
};

class FiberScheduler;

class Fiber {
  public:
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    Scheduler& scheduler() const;
    FiberId id() const { return id_; }
    const std::string& name() const { return name_; }
    bool is_cancelled() const { return cancelled_; }

  private:
    friend class FiberScheduler;
    struct Context;  // fiber.cc: the machine state

    enum class State : std::uint8_t { NEW, RUNNABLE, RUNNING, PARKED, DONE };

    Fiber(FiberScheduler& scheduler, FiberId id, std::string name, FiberBody body);

    FiberScheduler& scheduler_;
    FiberId id_;
    std::string name_;
    FiberBody body_;
    State state_ = State::NEW;
    WakeReason reason_ = WakeReason::WOKEN;
    bool cancelled_ = false;
    bool cancel_deferred_ = false;
    bool queued_ = false;
    MonoTime deadline_ = NEVER;
    std::uint64_t timer_order_ = 0;
    std::size_t timer_index_ = NO_TIMER;
    std::unique_ptr<Context> context_;
    static constexpr std::size_t NO_TIMER = static_cast<std::size_t>(-1);
};

class FiberScheduler : public Scheduler {
  public:
    explicit FiberScheduler(StackPool& stacks);
    ~FiberScheduler() override;

    // What the node needs for itself while strangers are refused already.
    static constexpr std::size_t SPARE_STACKS = 1024;

    FiberId spawn(std::string name, FiberBody body) override;
    bool has_room(std::size_t fiber_count) override {
        return stacks_.reserve(unstarted_count_ + fiber_count + SPARE_STACKS);
    }
    WakeReason park(Fiber& fiber, MonoTime deadline, CancelMode mode) override;
    void wake(Fiber& fiber) override;
    void cancel(FiberId id) override;
    void yield(Fiber& fiber) override;

    // Unwinds all fibers, latest first, and forgets them. Not callable from a fiber of this scheduler.
    void kill_all();
    std::size_t fiber_count() const { return fibers_.size(); }
    // Names of live fibers in order of their start, for leak checks and debuggers.
    std::vector<std::string> fiber_names() const;
    Fiber* current() const { return current_; }

  protected:
    // The child queues it; each fiber is queued at most once until it is run.
    virtual void make_runnable(FiberId id) = 0;
    // Switches to the fiber until it parks or ends. Unknown ids (ended fibers) are ignored.
    void run(FiberId id);
    MonoTime next_deadline() const;  // NEVER without timers
    // Wakes all whose deadline is at or before now, in order of (deadline, park order).
    void fire_timers(MonoTime now);

  private:
    void enqueue(Fiber& fiber);
    void resume(Fiber& fiber);
    WakeReason suspend(Fiber& fiber);
    void arm_timer(Fiber& fiber, MonoTime deadline);
    void disarm_timer(Fiber& fiber);
    bool timer_before(const Fiber& a, const Fiber& b) const;
    void sift_up(std::size_t index);
    void sift_down(std::size_t index);
    void place(std::size_t index, Fiber* fiber);

    StackPool& stacks_;
    std::unordered_map<FiberId, std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> timers_;       // binary heap by (deadline, timer_order)
    std::size_t unstarted_count_ = 0;  // spawned, but without a stack yet
    std::uint64_t next_id_ = 1;
    std::uint64_t next_timer_order_ = 1;
    Fiber* current_ = nullptr;
    bool killing_ = false;
};

}  // namespace mortar
