// workspace: a folder for what a run writes, and the child process that writes it; both vanish with the run.
// Shape:    made below a base folder, so that all that is measured lies on that file system. A thread waits for SIGINT,
//           SIGTERM and SIGHUP, ends the child, removes the folder and leaves with 130: gigabytes never stay behind.
// Owns:     the folder and all in it. At most one child at a time.
// Errors:   create: IO_ERROR naming the folder.
// Invariant: create comes before any other thread is started: threads inherit the blocked signals.
#pragma once

#include <sys/types.h>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.h"

namespace mortar::bench {

class Workspace {
  public:
    static Result<std::unique_ptr<Workspace>> create(const std::string& base);
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    const std::string& path() const { return path_; }
    // The file system lives in memory: syncs there cost nothing, and mean nothing.
    bool is_in_memory() const;
    // Runs the program with these arguments, its output in log_path. It dies with this process.
    Result<pid_t> spawn(const std::vector<std::string>& command, const std::string& log_path);
    // Sends the signal and waits for the end; the wait status.
    int end_child(int signal);
    bool child_has_ended();

  private:
    explicit Workspace(std::string path);
    void watch_signals();

    std::string path_;
    std::mutex child_mutex_;
    pid_t child_ = 0;  // by child_mutex_; 0 = none
    std::atomic<bool> ending_ = false;
    std::thread signal_thread_;
};

}  // namespace mortar::bench
