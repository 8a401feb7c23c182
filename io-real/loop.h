// loop: the scheduler of a real node: one thread that runs fibers and sleeps in epoll.
// Shape:     a turn runs what is runnable (first come, first served, at most RUN_BATCH), polls the
// sockets, takes what
//            other threads handed in, then fires the timers that are due.
// Owns:      the epoll descriptor; watchers are borrowed until unwatch.
// Invariant: only post, stop and the inbox may be used from other threads.
// Stall:     when the last turn lies over STALL back (the machine slept, the process was stopped),
// bytes that arrived
//            meanwhile are worked off before any timer fires. Naps are shorter than that, so only a
//            stall is so long.
// Spin:      while a thread works for us (thread_work_began), the loop looks for its answer for
// spin before it sleeps, as long as that was of use of late (spin.h).
//            Measured on two busy cores, echo of 1 KiB with one synced write, p50: 355 us without,
//            250 us with 50 us, 197 us with 200 us (the sync itself takes about 160 us). An idle
//            loop never spins.
// Source:    design 2, contract 8 (timing).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>

#include "core/env/fiber.h"
#include "io-real/inbox.h"
#include "io-real/spin.h"

namespace mortar {

class Watcher {
  public:
    virtual ~Watcher() = default;
    // epoll's event bits. Only wakes fibers: it neither adds nor removes watchers.
    virtual void on_ready(std::uint32_t events) = 0;
};

class RealScheduler final : public FiberScheduler {
  public:
    static constexpr Duration STALL = seconds(1);
    static constexpr Duration NAP_MAX = milliseconds(500);
    static constexpr Duration SPIN_BEFORE_SLEEP = microseconds(200);
    static constexpr std::size_t RUN_BATCH = 256;
    static constexpr int POLL_BATCH = 256;
    static constexpr int CATCH_UP_ROUNDS_MAX = 256;
    // Socket and file calls that a fiber may make without a wait before the others get their turn.
    static constexpr std::size_t CALLS_BEFORE_YIELD = 32;
    // So many bytes that the kernel copies cost about as much as a call.
    static constexpr std::size_t BYTES_OF_A_CALL = 16 * 1024;

    static Result<std::unique_ptr<RealScheduler>> create(Clock& clock, StackPool& stacks,
                                                         Duration spin = SPIN_BEFORE_SLEEP);
    ~RealScheduler() override;

    // Until stop. May be called again.
    void run();
    // Any thread, and signal callbacks: the turn under way ends, then run returns.
    void stop();
    // Unwinds all fibers and forgets what other threads handed in. Their work must have ended
    // (ThreadPool::stop).
    void shutdown();
    // Any thread: call runs on the loop between fibers.
    void post(std::function<void()> call) { inbox_->post(std::move(call)); }
    // From now on these signals do not interrupt; call runs on the loop. Once a loop, before
    // threads that do not block them exist (ours all do).
    Result<void> catch_signals(std::initializer_list<int> signals, std::function<void(int)> call);

    // For the other parts of io-real.
    const std::shared_ptr<Inbox>& inbox() const { return inbox_; }
    Result<void> watch(int fd, std::uint32_t events, Watcher& watcher);
    void unwatch(int fd);
    void thread_work_began() { ++thread_work_; }
    void thread_work_ended() { --thread_work_; }
    // Called at each socket or file call, so that one that never has to wait does not starve the
    // rest.
    void count_call(Fiber& fiber) {
        if (++calls_since_resume_ >= CALLS_BEFORE_YIELD) yield(fiber);
    }
    // What the call turned out to copy, for the next one to yield sooner.
    void count_bytes(std::size_t bytes) { calls_since_resume_ += bytes / BYTES_OF_A_CALL; }
    const Clock& clock() const { return clock_; }

  protected:
    void make_runnable(FiberId id) override { runnable_.push_back(id); }

  private:
    class SignalWatcher;

    RealScheduler(Clock& clock, StackPool& stacks, Duration spin, int epoll_fd,
                  std::shared_ptr<Inbox> inbox);
    void turn();
    void run_ready(std::size_t limit);
    void catch_up();
    bool spin_for_thread(MonoTime now);
    // Events handled.
    int poll(Duration timeout);

    Clock& clock_;
    Duration spin_;
    int epoll_fd_;
    std::shared_ptr<Inbox> inbox_;
    std::deque<FiberId> runnable_;
    std::atomic<bool> stop_requested_ = false;
    MonoTime last_turn_;
    int thread_work_ = 0;
    SpinCredit spin_credit_;
    std::size_t calls_since_resume_ = 0;
    std::unique_ptr<SignalWatcher> signals_;
};

}  // namespace mortar
