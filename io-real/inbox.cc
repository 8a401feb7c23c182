#include "io-real/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <cerrno>
#include <utility>

#include "io-real/os_error.h"

namespace mortar {
namespace {

class PostedCall final : public LoopTask {
  public:
    explicit PostedCall(std::function<void()> call) : call_(std::move(call)) {}
    void run() override {
        const std::unique_ptr<PostedCall> self(this);
        call_();
    }
    void drop() override { delete this; }

  private:
    std::function<void()> call_;
};

}  // namespace

Result<std::shared_ptr<Inbox>> Inbox::create() {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return make_error(ErrorCode::LIMIT_REACHED, "eventfd: " + os_reason(errno));
    return std::shared_ptr<Inbox>(new Inbox(fd));
}

Inbox::~Inbox() {
    drop_all();
    ::close(event_fd_);
}

void Inbox::push(LoopTask& task) {
    LoopTask* seen = newest_.load();
    do {
        task.next_ = seen;
    } while (!newest_.compare_exchange_weak(seen, &task));
    wake();
}

void Inbox::post(std::function<void()> call) {
    push(*std::make_unique<PostedCall>(std::move(call)).release());
}

void Inbox::wake() {
    if (!asleep_.load() || !asleep_.exchange(false)) return;
    const std::uint64_t one = 1;
    MORTAR_ASSERT(::write(event_fd_, &one, sizeof one) == sizeof one);
}

std::size_t Inbox::run_all() {
    std::size_t count = 0;
    for (LoopTask* task = take(); task != nullptr; ++count) {
        // A task may be gone after its run.
        std::exchange(task, task->next_)->run();
    }
    return count;
}

void Inbox::drop_all() {
    for (LoopTask* task = take(); task != nullptr;)
        std::exchange(task, task->next_)->drop();
}

LoopTask* Inbox::take() {
    LoopTask* newest = newest_.exchange(nullptr);
    LoopTask* oldest = nullptr;
    while (newest != nullptr) {
        LoopTask* next = newest->next_;
        newest->next_ = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

}  // namespace mortar
