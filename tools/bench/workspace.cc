#include "tools/bench/workspace.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "io-real/os_error.h"

namespace mortar::bench {
namespace {

constexpr int EXIT_INTERRUPTED = 130;
constexpr int EXIT_EXEC_FAILED = 127;
constexpr long SIGNAL_WAIT_NS = 50'000'000;
// timeout(1) and shells signal a process and its group: the same wish arrives twice.
constexpr std::chrono::milliseconds ECHO_OF_A_SIGNAL(500);

sigset_t ending_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        sigaddset(&set, number);
    return set;
}

// In the child, between fork and exec: only what POSIX allows there.
[[noreturn]] void become(char* const* arguments, int log_fd, pid_t parent) {
    const sigset_t set = ending_signals();
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_EXEC_FAILED);  // it died before prctl
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    execv(arguments[0], arguments);
    _exit(EXIT_EXEC_FAILED);
}

}  // namespace

Result<std::unique_ptr<Workspace>> Workspace::create(const std::string& base) {
    std::string pattern = base + "/mortarmq-bench.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
        return make_error(ErrorCode::IO_ERROR, "cannot make a folder in " + base + ": " +
                                                   os_reason(errno) +
                                                   "; name another with --folder");
    }
    std::error_code ignored;
    const std::filesystem::path absolute = std::filesystem::absolute(pattern, ignored);
    return std::unique_ptr<Workspace>(new Workspace(absolute.string()));
}

Workspace::Workspace(std::string path) : path_(std::move(path)) {
    const sigset_t set = ending_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    signal_thread_ = std::thread([this] { watch_signals(); });
}

Workspace::~Workspace() {
    ending_ = true;
    signal_thread_.join();
    end_children();
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

bool Workspace::is_in_memory() const {
    struct statfs status {};
    return statfs(path_.c_str(), &status) == 0 &&
           (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

Result<pid_t> Workspace::spawn(const std::vector<std::string>& command,
                               const std::string& log_path) {
    const int log_fd = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) {
        return make_error(ErrorCode::IO_ERROR, "cannot open " + log_path + ": " + os_reason(errno));
    }
    std::vector<char*> arguments;
    for (const std::string& argument : command)
        arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    const std::lock_guard lock(child_mutex_);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) become(arguments.data(), log_fd, parent);
    ::close(log_fd);
    if (pid < 0) return make_error(ErrorCode::IO_ERROR, "cannot fork: " + os_reason(errno));
    children_.insert(pid);
    return pid;
}

int Workspace::end_child(pid_t child, int signal) {
    const std::lock_guard lock(child_mutex_);
    if (children_.erase(child) == 0) return 0;
    ::kill(child, signal);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

void Workspace::end_children() {
    const std::lock_guard lock(child_mutex_);
    for (const pid_t child : children_)
        ::kill(child, SIGKILL);
    for (const pid_t child : children_) {
        while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    children_.clear();
}

bool Workspace::child_has_ended(pid_t child) {
    const std::lock_guard lock(child_mutex_);
    int status = 0;
    if (children_.contains(child) && waitpid(child, &status, WNOHANG) == child)
        children_.erase(child);
    return !children_.contains(child);
}

const std::atomic<bool>& Workspace::flag_interrupt() {
    flags_interrupt_ = true;
    return interrupted_;
}

void Workspace::watch_signals() {
    const sigset_t set = ending_signals();
    std::chrono::steady_clock::time_point flagged_at;
    const timespec wait{.tv_sec = 0, .tv_nsec = SIGNAL_WAIT_NS};
    while (!ending_) {
        if (sigtimedwait(&set, nullptr, &wait) < 0) continue;
        const auto now = std::chrono::steady_clock::now();
        if (flags_interrupt_ && !interrupted_) {
            interrupted_ = true;
            flagged_at = now;
            continue;
        }
        if (interrupted_ && now - flagged_at < ECHO_OF_A_SIGNAL) continue;
        end_children();
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
        _exit(EXIT_INTERRUPTED);
    }
}

}  // namespace mortar::bench
