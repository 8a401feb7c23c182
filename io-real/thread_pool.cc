#include "io-real/thread_pool.h"

#include <chrono>
#include <utility>

#include "io-real/threads.h"

namespace mortar {

class ThreadPool::DetachedJob final : public Job {
  public:
    explicit DetachedJob(std::function<void()> work) : work_(std::move(work)) {}
    void work() override { work_(); }
    bool is_waited_for() const override { return false; }
    void run() override {}
    void drop() override {}

  private:
    std::function<void()> work_;
};

ThreadPool::ThreadPool(RealScheduler& loop, std::size_t thread_count, Duration spin)
    : loop_(loop),
      thread_count_(thread_count),
      spin_(std::thread::hardware_concurrency() > 1 ? spin : Duration{}) {}

ThreadPool::~ThreadPool() {
    stop();
}

void ThreadPool::run_detached(std::function<void()> work) {
    if (stopped_) {
        work();
        return;
    }
    submit(*std::make_unique<DetachedJob>(std::move(work)).release());
}

void ThreadPool::stop() {
    if (std::exchange(stopped_, true)) return;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    work_came_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
    threads_.clear();
}

void ThreadPool::submit(Job& job) {
    MORTAR_ASSERT(!stopped_);
    bool start = false;
    bool wake = false;
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(&job);
        queued_.store(queue_.size());
        // The spinner takes one; it looks once more under the lock before it sleeps, so nothing is
        // forgotten.
        const std::size_t taken = spinner_.load() ? 1 : 0;
        wake = queue_.size() > taken && asleep_ > 0;
        start = queue_.size() > taken + asleep_ && threads_.size() < thread_count_;
    }
    if (wake) work_came_.notify_one();
    if (start) threads_.push_back(start_thread("disk", [this] { thread_main(); }));
}

void ThreadPool::thread_main() {
    bool spin = false;
    while (Job* job = next_job(spin)) {
        job->work();
        // Said before the answer leaves: the next job often follows within a microsecond and need
        // wake nobody then.
        spin = spin_ > Duration{} && !spinner_.exchange(true);
        if (job->is_waited_for()) {
            loop_.inbox()->push(*job);
        } else {
            const std::unique_ptr<Job> done(job);
        }
    }
}

ThreadPool::Job* ThreadPool::next_job(bool spin) {
    if (spin) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(spin_.ns);
        while (queued_.load() == 0 && std::chrono::steady_clock::now() < until)
            spin_step();
        spinner_.store(false);
    }
    std::unique_lock lock(mutex_);
    while (queue_.empty() && !stopping_) {
        ++asleep_;
        work_came_.wait(lock);
        --asleep_;
    }
    if (queue_.empty()) return nullptr;
    Job* job = queue_.front();
    queue_.pop_front();
    queued_.store(queue_.size());
    return job;
}

}  // namespace mortar
