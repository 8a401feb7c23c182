#include "tests/process/stalled_disk.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <csignal>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace mortar::process {
namespace {

constexpr std::chrono::microseconds LOOK_AGAIN(1000);

std::set<pid_t> disk_threads(pid_t pid) {
    std::set<pid_t> found;
    std::error_code error;
    const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
    for (std::filesystem::directory_iterator at(tasks, error), end; at != end;
         at.increment(error)) {
        std::ifstream file(at->path() / "comm");
        std::string name;
        std::getline(file, name);
        if (name == "disk") found.insert(std::stoi(at->path().filename().string()));
    }
    return found;
}

// Calls that a disk which does not answer would keep. A thread held at the entry of one owns no lock of the process; held just
// anywhere, even in its wait for work, it could make the loop wait for it too.
bool goes_to_the_disk(std::uint64_t call) {
    return call == SYS_fdatasync || call == SYS_fsync || call == SYS_pwritev ||
           call == SYS_pwritev2 || call == SYS_pwrite64;
}

void let_go_on(pid_t thread) {
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, nullptr);
}

// After a stop of the thread: true when it stands before a call to the disk; else it is let go on.
bool is_caught(pid_t thread, int status) {
    constexpr int CALL_STOP = SIGTRAP | 0x80;
    if (WIFSTOPPED(status) && WSTOPSIG(status) == CALL_STOP) {
        __ptrace_syscall_info info{};
        const auto size = reinterpret_cast<void*>(sizeof info);
        const bool known = ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, size, &info) > 0;
        if (known && info.op == PTRACE_SYSCALL_INFO_ENTRY && goes_to_the_disk(info.entry.nr))
            return true;
    }
    let_go_on(thread);
    return false;
}

}  // namespace

std::size_t disk_thread_count(pid_t pid) {
    return disk_threads(pid).size();
}

bool is_tracing_allowed() {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    const bool is_allowed = child > 0 && ::ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0;
    if (child > 0) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
    }
    return is_allowed;
}

StalledDisk::StalledDisk(pid_t pid) : thread_([this, pid] { hold(pid); }) {
    while (!holding_ && allowed_)
        std::this_thread::sleep_for(LOOK_AGAIN);
}

StalledDisk::~StalledDisk() {
    ending_ = true;
    thread_.join();
}

void StalledDisk::hold(pid_t pid) {
    std::set<pid_t> watched;
    std::set<pid_t> caught;
    while (!ending_) {
        const std::set<pid_t> threads = disk_threads(pid);
        for (const pid_t thread : threads) {
            if (watched.count(thread) > 0) continue;
            const auto options = reinterpret_cast<void*>(std::intptr_t{PTRACE_O_TRACESYSGOOD});
            if (::ptrace(PTRACE_SEIZE, thread, nullptr, options) != 0 ||
                ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
                allowed_ = false;
                ending_ = true;
                break;
            }
            int status = 0;
            ::waitpid(thread, &status, __WALL);
            let_go_on(thread);
            watched.insert(thread);
        }
        for (const pid_t thread : watched) {
            int status = 0;
            while (caught.count(thread) == 0 &&
                   ::waitpid(thread, &status, __WALL | WNOHANG) == thread) {
                if (is_caught(thread, status)) caught.insert(thread);
            }
        }
        holding_ = watched.size() == threads.size();
        std::this_thread::sleep_for(LOOK_AGAIN / 10);
    }
    for (const pid_t thread : watched) {
        if (caught.count(thread) == 0) {
            int status = 0;
            ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
            ::waitpid(thread, &status, __WALL);
        }
        ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
    }
}

}  // namespace mortar::process
