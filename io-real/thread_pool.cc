#include "io-real/thread_pool.h"

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
        wake = asleep_ > 0;
        start = queue_.size() > asleep_ && threads_.size() < thread_count_;
    }
    if (wake) work_came_.notify_one();
    if (start) threads_.push_back(start_thread("disk", [this] { thread_main(); }));
}

void ThreadPool::thread_main() {
    while (Job* job = next_job()) {
        job->work();
        if (job->is_waited_for()) {
            loop_.inbox()->push(*job);
        } else {
            const std::unique_ptr<Job> done(job);
        }
    }
}

ThreadPool::Job* ThreadPool::next_job() {
    std::unique_lock lock(mutex_);
    while (queue_.empty() && !stopping_) {
        ++asleep_;
        work_came_.wait(lock);
        --asleep_;
    }
    if (queue_.empty()) return nullptr;
    Job* job = queue_.front();
    queue_.pop_front();
    return job;
}

}  // namespace mortar
