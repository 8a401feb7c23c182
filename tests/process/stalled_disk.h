// stalled_disk: a disk that has stopped answering: each disk thread of a running broker is held by the
// debugging interface of the kernel where it next writes or syncs, until the end of this object.
// Shape: one thread of ours attaches to each thread named "disk" as it appears; ptrace wants every
//        call from the thread that attached.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <thread>

namespace mortar::process {

// The pool starts its threads as it needs them; one that starts later would go round the held ones.
std::size_t disk_thread_count(pid_t pid);

// Where the kernel or a container forbids it, nothing below works.
bool is_tracing_allowed();

class StalledDisk {
  public:
    // Returns when no disk thread can write or sync any more, or when it cannot be done.
    explicit StalledDisk(pid_t pid);
    // Lets them go on.
    ~StalledDisk();
    StalledDisk(const StalledDisk&) = delete;
    StalledDisk& operator=(const StalledDisk&) = delete;
    // False where the kernel or a container forbids it.
    bool is_allowed() const { return allowed_; }

  private:
    void hold(pid_t pid);

    std::atomic<bool> allowed_ = true;
    std::atomic<bool> holding_ = false;
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace mortar::process
