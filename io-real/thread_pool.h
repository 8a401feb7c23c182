// thread_pool: blocking calls beside the loop; the fiber that asked waits for the answer.
// Shape:    at most thread_count threads, started when first needed; first come, first served.
// Owns:     its threads. Work is borrowed from the waiting fiber's stack.
// Suspends: run. A cancel does not end the wait: the thread uses the caller's memory.
// Source:   design 2 (real I/O).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "io-real/loop.h"

namespace mortar {

class ThreadPool {
  public:
    ThreadPool(RealScheduler& loop, std::size_t thread_count)
        : loop_(loop), thread_count_(thread_count) {}
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    template <class Work>
    void run(Fiber& fiber, Work&& work) {
        WaitedJob<Work> job(loop_, fiber, work);
        loop_.thread_work_began();
        submit(job);
        while (!job.done)
            loop_.park(fiber, NEVER, CancelMode::DEFERRED);
        loop_.thread_work_ended();
    }
    // Nobody waits. At once and here when the pool is stopped.
    void run_detached(std::function<void()> work);
    // Finishes what is queued, then ends the threads. Waiting fibers are woken only if the loop
    // runs on.
    void stop();

  private:
    class Job : public LoopTask {
      public:
        virtual void work() = 0;  // on a thread
        virtual bool is_waited_for() const = 0;
    };
    template <class Work>
    class WaitedJob final : public Job {
      public:
        WaitedJob(RealScheduler& loop, Fiber& fiber, Work& work)
            : loop_(loop), fiber_(fiber), work_(work) {}
        void work() override { work_(); }
        bool is_waited_for() const override { return true; }
        void run() override {
            done = true;
            loop_.wake(fiber_);
        }
        void drop() override {}
        bool done = false;

      private:
        RealScheduler& loop_;
        Fiber& fiber_;
        Work& work_;
    };
    class DetachedJob;

    void submit(Job& job);
    void thread_main();
    // Null when the pool stops.
    Job* next_job();

    RealScheduler& loop_;
    const std::size_t thread_count_;
    std::vector<std::thread> threads_;
    bool stopped_ = false;  // the loop's view

    std::mutex mutex_;
    std::condition_variable work_came_;
    std::deque<Job*> queue_;  // by mutex_
    std::size_t asleep_ = 0;  // by mutex_
    bool stopping_ = false;   // by mutex_
};

}  // namespace mortar
