// threads: what every thread of ours has in common: a name, and that it takes no signals meant for
//          the process.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <csignal>
#include <thread>
#include <utility>

namespace mortar {

// One step of a spin. The processor goes to any other thread that could use it: on a busy machine a
// spinner that keeps it was measured to hold up the very thread it waits for by the whole length of
// the spin.
inline void spin_step() {
    sched_yield();
}

// Threads made while one of these lives block all signals but those of their own faults.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t set;
        sigfillset(&set);
        for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF})
            sigdelset(&set, own);
        pthread_sigmask(SIG_BLOCK, &set, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

// name: as `top -H` and debuggers show it, at most 15 bytes.
template <class Main>
std::thread start_thread(const char* name, Main&& main) {
    const SignalsBlocked blocked;
    return std::thread([name, main = std::forward<Main>(main)]() mutable {
        pthread_setname_np(pthread_self(), name);
        main();
    });
}

}  // namespace mortar
