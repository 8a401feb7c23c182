// inbox: how other threads hand work to the loop.
// Shape:     a lock-free list of tasks, newest in front, that the loop takes whole; and an eventfd
// that is written only
//            while the loop sleeps, so a burst of completions costs one wake-up.
// Owns:      a task while it is in the list; what no loop took is dropped with the inbox. Threads
// that may outlive the
//            loop hold the inbox by shared_ptr.
// Invariant: a task pushed before the loop falls asleep keeps it awake; one pushed after wakes it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/base/result.h"

namespace mortar {

class LoopTask {
  public:
    virtual ~LoopTask() = default;
    virtual void run() = 0;   // on the loop, once; a task that owns itself ends with its run
    virtual void drop() = 0;  // instead of run, when no loop is left

  private:
    friend class Inbox;
    LoopTask* next_ = nullptr;
};

class Inbox {
  public:
    static Result<std::shared_ptr<Inbox>> create();
    ~Inbox();
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;

    // Any thread.
    void push(LoopTask& task);
    void post(std::function<void()> call);
    void wake();

    // The loop's thread.
    bool is_empty() const { return newest_.load() == nullptr; }
    // Runs all that is there, oldest first; returns how many.
    std::size_t run_all();
    void drop_all();
    // Between the two, push writes the eventfd. The loop looks at is_empty() once more after going
    // to sleep.
    void fall_asleep() { asleep_.store(true); }
    void wake_up() { asleep_.store(false); }
    // Becomes readable (edge) at each wake-up; never read, an eventfd's counter is wide enough.
    int event_fd() const { return event_fd_; }

  private:
    explicit Inbox(int event_fd) : event_fd_(event_fd) {}
    LoopTask* take();

    int event_fd_;
    std::atomic<LoopTask*> newest_ = nullptr;
    std::atomic<bool> asleep_ = false;
};

}  // namespace mortar
