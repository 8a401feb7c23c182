#include "core/env/fiber.h"

#include <cxxabi.h>
#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define MORTAR_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MORTAR_FIBER_ASAN 1
#endif
#endif
#ifdef MORTAR_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace mortar {
namespace {

// Thrown out of park to unwind a killed fiber; caught at the bottom of its stack only.
struct FiberKilled {};

// Each fiber has its own state of exceptions in flight; the ABI keeps one a thread.
struct ExceptionState {
    std::byte bytes[16] = {};
    void swap_with_thread() {
        void* globals = abi::__cxa_get_globals();
        std::byte held[sizeof bytes];
        std::memcpy(held, globals, sizeof bytes);
        std::memcpy(globals, bytes, sizeof bytes);
        std::memcpy(bytes, held, sizeof bytes);
    }
};

// Boost frees a stack through its allocator when the fiber ends; ours goes back to the pool with the Context.
struct BorrowedStack {
    boost::context::stack_context allocate() { return {}; }
    void deallocate(boost::context::stack_context&) {}
};

}  // namespace

struct Fiber::Context {
    explicit Context(StackPool& pool) : stacks(pool), stack(pool.acquire()) {
#ifdef MORTAR_FIBER_ASAN
        __asan_unpoison_memory_region(stack.base, stack.size_bytes);
        __lsan_register_root_region(stack.base, stack.size_bytes);
#endif
    }
    ~Context() {
#ifdef MORTAR_FIBER_ASAN
        __lsan_unregister_root_region(stack.base, stack.size_bytes);
        __asan_unpoison_memory_region(stack.base, stack.size_bytes);
#endif
        stacks.release(stack);
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    // First statement after arriving on the fiber, last before leaving it.
    void entered([[maybe_unused]] bool first) {
#ifdef MORTAR_FIBER_ASAN
        __sanitizer_finish_switch_fiber(first ? nullptr : fiber_fake_stack, &caller_base,
                                        &caller_size);
#endif
    }
    void leaving([[maybe_unused]] bool last) {
#ifdef MORTAR_FIBER_ASAN
        __sanitizer_start_switch_fiber(last ? nullptr : &fiber_fake_stack, caller_base,
                                       caller_size);
#endif
    }

    StackPool& stacks;
    FiberStack stack;
    boost::context::fiber self;    // where the fiber stands while it does not run
    boost::context::fiber caller;  // where its scheduler stands while it runs
    ExceptionState exceptions;
    bool kill = false;
#ifdef MORTAR_FIBER_ASAN
    void* fiber_fake_stack = nullptr;
    void* caller_fake_stack = nullptr;
    const void* caller_base = nullptr;
    std::size_t caller_size = 0;
#endif
};

Fiber::Fiber(FiberScheduler& scheduler, FiberId id, std::string name, FiberBody body)
    : scheduler_(scheduler), id_(id), name_(std::move(name)), body_(std::move(body)) {}
Fiber::~Fiber() = default;

Scheduler& Fiber::scheduler() const {
    return scheduler_;
}

Result<void> Scheduler::sleep_until(Fiber& fiber, MonoTime deadline) {
    if (park(fiber, deadline) == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
    return {};
}

FiberScheduler::FiberScheduler(StackPool& stacks) : stacks_(stacks) {}

FiberScheduler::~FiberScheduler() {
    MORTAR_ASSERT(fibers_.empty());
}

FiberId FiberScheduler::spawn(std::string name, FiberBody body) {
    const FiberId id(next_id_++);
    if (killing_) return id;  // a dying node starts nothing
    auto fiber = std::unique_ptr<Fiber>(new Fiber(*this, id, std::move(name), std::move(body)));
    Fiber& started = *fiber;
    fibers_.emplace(id, std::move(fiber));
    ++unstarted_count_;
    enqueue(started);
    return id;
}

WakeReason FiberScheduler::park(Fiber& fiber, MonoTime deadline, CancelMode mode) {
    MORTAR_ASSERT(current_ == &fiber);
    if (mode == CancelMode::ALLOWED && fiber.cancelled_) return WakeReason::CANCELLED;
    fiber.cancel_deferred_ = mode == CancelMode::DEFERRED;
    if (deadline != NEVER) arm_timer(fiber, deadline);
    fiber.state_ = Fiber::State::PARKED;
    return suspend(fiber);
}

void FiberScheduler::wake(Fiber& fiber) {
    if (killing_ || fiber.state_ != Fiber::State::PARKED) return;
    fiber.reason_ = WakeReason::WOKEN;
    enqueue(fiber);
}

void FiberScheduler::cancel(FiberId id) {
    const auto found = fibers_.find(id);
    if (killing_ || found == fibers_.end()) return;
    Fiber& fiber = *found->second;
    fiber.cancelled_ = true;
    if (fiber.state_ != Fiber::State::PARKED || fiber.cancel_deferred_) return;
    fiber.reason_ = WakeReason::CANCELLED;
    enqueue(fiber);
}

void FiberScheduler::yield(Fiber& fiber) {
    MORTAR_ASSERT(current_ == &fiber);
    fiber.reason_ = WakeReason::WOKEN;
    enqueue(fiber);
    suspend(fiber);
}

void FiberScheduler::enqueue(Fiber& fiber) {
    disarm_timer(fiber);
    fiber.state_ = Fiber::State::RUNNABLE;
    MORTAR_ASSERT(!fiber.queued_);
    fiber.queued_ = true;
    make_runnable(fiber.id_);
}

void FiberScheduler::run(FiberId id) {
    const auto found = fibers_.find(id);
    if (found == fibers_.end()) return;
    Fiber& fiber = *found->second;
    MORTAR_ASSERT(fiber.state_ == Fiber::State::RUNNABLE);
    fiber.queued_ = false;
    resume(fiber);
    if (fiber.state_ == Fiber::State::DONE) fibers_.erase(id);
}

void FiberScheduler::resume(Fiber& fiber) {
    MORTAR_ASSERT(current_ == nullptr);
    const bool first = fiber.context_ == nullptr;
    if (first) {
        fiber.context_ = std::make_unique<Fiber::Context>(stacks_);
        --unstarted_count_;
    }
    Fiber::Context& context = *fiber.context_;
    if (first) {
        boost::context::stack_context where;
        where.size = context.stack.size_bytes;
        where.sp = context.stack.base + context.stack.size_bytes;
        const boost::context::preallocated prepared(where.sp, where.size, where);
        context.self = boost::context::fiber(std::allocator_arg, prepared, BorrowedStack{},
                                             [&fiber](boost::context::fiber&& caller) {
                                                 Fiber::Context& own = *fiber.context_;
                                                 own.caller = std::move(caller);
                                                 own.entered(true);
                                                 try {
                                                     fiber.body_(fiber);
                                                 } catch (const FiberKilled&) {
                                                 }
                                                 fiber.state_ = Fiber::State::DONE;
                                                 own.leaving(true);
                                                 return std::move(own.caller);
                                             });
    }
    fiber.state_ = Fiber::State::RUNNING;
    current_ = &fiber;
#ifdef MORTAR_FIBER_ASAN
    __sanitizer_start_switch_fiber(&context.caller_fake_stack, context.stack.base,
                                   context.stack.size_bytes);
#endif
    context.self = std::move(context.self).resume();
#ifdef MORTAR_FIBER_ASAN
    __sanitizer_finish_switch_fiber(context.caller_fake_stack, nullptr, nullptr);
#endif
    current_ = nullptr;
}

WakeReason FiberScheduler::suspend(Fiber& fiber) {
    Fiber::Context& context = *fiber.context_;
    context.exceptions.swap_with_thread();
    context.leaving(false);
    context.caller = std::move(context.caller).resume();
    context.entered(false);
    context.exceptions.swap_with_thread();
    if (context.kill) throw FiberKilled{};
    return fiber.reason_;
}

void FiberScheduler::kill_all() {
    MORTAR_ASSERT(current_ == nullptr);
    killing_ = true;
    std::vector<FiberId> ids;
    ids.reserve(fibers_.size());
    for (const auto& [id, fiber] : fibers_)
        ids.push_back(id);
    // Children live shorter than the stack frames that they borrow from.
    std::sort(ids.begin(), ids.end(), std::greater<>());
    for (const FiberId id : ids) {
        Fiber& fiber = *fibers_.at(id);
        disarm_timer(fiber);
        if (fiber.context_ != nullptr) {
            fiber.context_->kill = true;
            resume(fiber);
            MORTAR_ASSERT(fiber.state_ == Fiber::State::DONE);
        } else {
            --unstarted_count_;
        }
        fibers_.erase(id);
    }
    MORTAR_ASSERT(fibers_.empty() && timers_.empty());
    killing_ = false;
}

std::vector<std::string> FiberScheduler::fiber_names() const {
    std::vector<const Fiber*> live;
    for (const auto& [id, fiber] : fibers_)
        live.push_back(fiber.get());
    std::sort(live.begin(), live.end(),
              [](const Fiber* a, const Fiber* b) { return a->id() < b->id(); });
    std::vector<std::string> names;
    for (const Fiber* fiber : live)
        names.push_back(fiber->name());
    return names;
}

MonoTime FiberScheduler::next_deadline() const {
    return timers_.empty() ? NEVER : timers_.front()->deadline_;
}

void FiberScheduler::fire_timers(MonoTime now) {
    while (!timers_.empty() && timers_.front()->deadline_ <= now) {
        Fiber& fiber = *timers_.front();
        fiber.reason_ = WakeReason::DEADLINE;
        enqueue(fiber);
    }
}

void FiberScheduler::arm_timer(Fiber& fiber, MonoTime deadline) {
    fiber.deadline_ = deadline;
    fiber.timer_order_ = next_timer_order_++;
    timers_.push_back(&fiber);
    fiber.timer_index_ = timers_.size() - 1;
    sift_up(fiber.timer_index_);
}

void FiberScheduler::disarm_timer(Fiber& fiber) {
    const std::size_t index = fiber.timer_index_;
    if (index == Fiber::NO_TIMER) return;
    fiber.timer_index_ = Fiber::NO_TIMER;
    Fiber* last = timers_.back();
    timers_.pop_back();
    if (last == &fiber) return;
    place(index, last);
    sift_up(index);
    sift_down(last->timer_index_);
}

bool FiberScheduler::timer_before(const Fiber& a, const Fiber& b) const {
    return std::pair(a.deadline_, a.timer_order_) < std::pair(b.deadline_, b.timer_order_);
}

void FiberScheduler::place(std::size_t index, Fiber* fiber) {
    timers_[index] = fiber;
    fiber->timer_index_ = index;
}

void FiberScheduler::sift_up(std::size_t index) {
    Fiber* moving = timers_[index];
    while (index > 0) {
        const std::size_t parent = (index - 1) / 2;
        if (!timer_before(*moving, *timers_[parent])) break;
        place(index, timers_[parent]);
        index = parent;
    }
    place(index, moving);
}

void FiberScheduler::sift_down(std::size_t index) {
    Fiber* moving = timers_[index];
    while (true) {
        std::size_t child = 2 * index + 1;
        if (child >= timers_.size()) break;
        if (child + 1 < timers_.size() && timer_before(*timers_[child + 1], *timers_[child]))
            ++child;
        if (!timer_before(*timers_[child], *moving)) break;
        place(index, timers_[child]);
        index = child;
    }
    place(index, moving);
}

}  // namespace mortar
