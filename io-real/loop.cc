#include "io-real/loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>

#include "io-real/os_error.h"
#include "io-real/threads.h"

namespace mortar {
namespace {

// Looks at the inbox this often between two polls of the sockets while spinning.
constexpr int SPINS_PER_POLL = 8;

// A spin pays only when the thread it waits for runs elsewhere.
Duration useful_spin(Duration asked) {
    return std::thread::hardware_concurrency() > 1 ? asked : Duration{};
}

}  // namespace

class RealScheduler::SignalWatcher final : public Watcher {
  public:
    SignalWatcher(int fd, sigset_t before, Inbox& inbox, std::function<void(int)> call)
        : fd_(fd), before_(before), inbox_(inbox), call_(std::move(call)) {}
    ~SignalWatcher() override {
        ::close(fd_);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    int fd() const { return fd_; }
    void on_ready(std::uint32_t) override {
        signalfd_siginfo info{};
        while (::read(fd_, &info, sizeof info) == sizeof info) {
            inbox_.post(
                [call = call_, number = static_cast<int>(info.ssi_signo)] { call(number); });
        }
    }

  private:
    int fd_;
    sigset_t before_;
    Inbox& inbox_;
    std::function<void(int)> call_;
};

Result<std::unique_ptr<RealScheduler>> RealScheduler::create(Clock& clock, StackPool& stacks,
                                                             Duration spin) {
    std::shared_ptr<Inbox> inbox = MORTAR_TRY(Inbox::create());
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return make_error(ErrorCode::LIMIT_REACHED, "epoll_create1: " + os_reason(errno));
    std::unique_ptr<RealScheduler> made(
        new RealScheduler(clock, stacks, useful_spin(spin), epoll_fd, std::move(inbox)));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, made->inbox_->event_fd(), &event) != 0) {
        return make_error(ErrorCode::LIMIT_REACHED, "epoll_ctl: " + os_reason(errno));
    }
    return made;
}

RealScheduler::RealScheduler(Clock& clock, StackPool& stacks, Duration spin, int epoll_fd,
                             std::shared_ptr<Inbox> inbox)
    : FiberScheduler(stacks),
      clock_(clock),
      spin_(spin),
      epoll_fd_(epoll_fd),
      inbox_(std::move(inbox)) {}

RealScheduler::~RealScheduler() {
    shutdown();
    ::close(epoll_fd_);
}

void RealScheduler::run() {
    last_turn_ = clock_.now();
    while (!stop_requested_.exchange(false))
        turn();
}

void RealScheduler::shutdown() {
    // Answers for waiting fibers lie on the stacks that kill_all gives back.
    inbox_->drop_all();
    kill_all();
}

void RealScheduler::stop() {
    stop_requested_.store(true);
    inbox_->wake();
}

Result<void> RealScheduler::catch_signals(std::initializer_list<int> signals,
                                          std::function<void(int)> call) {
    MORTAR_ASSERT(signals_ == nullptr);
    sigset_t set;
    sigset_t before;
    sigemptyset(&set);
    for (const int number : signals)
        sigaddset(&set, number);
    MORTAR_ASSERT(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) return make_error(ErrorCode::LIMIT_REACHED, "signalfd: " + os_reason(errno));
    signals_ = std::make_unique<SignalWatcher>(fd, before, *inbox_, std::move(call));
    return watch(fd, EPOLLIN | EPOLLET, *signals_);
}

Result<void> RealScheduler::watch(int fd, std::uint32_t events, Watcher& watcher) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &watcher;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
        return make_error(ErrorCode::LIMIT_REACHED, "epoll_ctl: " + os_reason(errno));
    }
    return {};
}

void RealScheduler::unwatch(int fd) {
    // Explicit, although close would do: a child process made by fork would keep the registration
    // alive.
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void RealScheduler::turn() {
    run_ready(RUN_BATCH);
    const MonoTime now = clock_.now();
    if (!runnable_.empty() || !inbox_->is_empty()) {
        poll(Duration{});
    } else if (!spin_for_thread(now)) {
        const MonoTime wake_at = std::min(next_deadline(), now + NAP_MAX);
        poll(std::max(wake_at - now, Duration{}));
    }
    inbox_->run_all();
    if (clock_.now() - last_turn_ > STALL) catch_up();
    last_turn_ = clock_.now();
    fire_timers(last_turn_);
}

void RealScheduler::run_ready(std::size_t limit) {
    for (std::size_t count = 0; count < limit; ++count) {
        if (runnable_.empty() && inbox_->run_all() == 0) return;
        if (runnable_.empty()) continue;
        const FiberId id = runnable_.front();
        runnable_.pop_front();
        calls_since_resume_ = 0;
        FiberScheduler::run(id);
    }
}

void RealScheduler::catch_up() {
    for (int round = 0; round < CATCH_UP_ROUNDS_MAX; ++round) {
        run_ready(RUN_BATCH);
        if (poll(Duration{}) == 0 && inbox_->run_all() == 0 && runnable_.empty()) return;
    }
}

bool RealScheduler::spin_for_thread(MonoTime now) {
    if (thread_work_ == 0 || spin_ == Duration{} || !spin_credit_.may_spin()) return false;
    const MonoTime deadline = next_deadline();
    const MonoTime until = std::min(deadline, now + spin_);
    MonoTime round_began = now;
    while (round_began < until) {
        bool is_answered = false;
        for (int i = 0; i < SPINS_PER_POLL && !is_answered; ++i) {
            is_answered = !inbox_->is_empty();
            if (!is_answered) spin_step();
        }
        if (is_answered || poll(Duration{}) > 0) {
            spin_credit_.on_end(true);
            return true;
        }
        const MonoTime round_ended = clock_.now();
        if (round_ended - round_began > SpinCredit::ROUND_MAX) break;
        round_began = round_ended;
    }
    // Cut short by a timer it was neither of use nor in vain.
    if (round_began < deadline) spin_credit_.on_end(false);
    return false;
}

int RealScheduler::poll(Duration timeout) {
    const bool may_sleep = timeout > Duration{};
    if (may_sleep) {
        inbox_->fall_asleep();
        if (!inbox_->is_empty() || stop_requested_.load()) timeout = Duration{};
    }
    epoll_event events[POLL_BATCH];
    const timespec wait{.tv_sec = timeout.ns / 1'000'000'000,
                        .tv_nsec = timeout.ns % 1'000'000'000};
    const int count = epoll_pwait2(epoll_fd_, events, POLL_BATCH, &wait, nullptr);
    if (may_sleep) inbox_->wake_up();
    MORTAR_ASSERT(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; ++i) {
        auto* watcher = static_cast<Watcher*>(events[i].data.ptr);
        if (watcher != nullptr) watcher->on_ready(events[i].events);
    }
    return std::max(count, 0);
}

}  // namespace mortar
