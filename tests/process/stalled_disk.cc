#include "tests/process/stalled_disk.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace mortar::process {
namespace {

constexpr std::chrono::milliseconds LOOK_AGAIN(1);

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

}  // namespace

StalledDisk::StalledDisk(pid_t pid) : thread_([this, pid] { hold(pid); }) {
    while (!holding_ && allowed_)
        std::this_thread::sleep_for(LOOK_AGAIN);
}

StalledDisk::~StalledDisk() {
    ending_ = true;
    thread_.join();
}

void StalledDisk::hold(pid_t pid) {
    std::set<pid_t> held;
    while (!ending_) {
        for (const pid_t thread : disk_threads(pid)) {
            if (held.count(thread) > 0) continue;
            if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0 ||
                ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
                allowed_ = false;
                ending_ = true;
                break;
            }
            int status = 0;
            ::waitpid(thread, &status, __WALL);
            held.insert(thread);
        }
        holding_ = true;
        std::this_thread::sleep_for(LOOK_AGAIN);
    }
    for (const pid_t thread : held)
        ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
}

}  // namespace mortar::process
