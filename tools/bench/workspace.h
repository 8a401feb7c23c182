// workspace: a folder for what a run writes, and the child processes that write it; all vanish with the run.
// Shape:    made below a base folder, so that all that is measured lies on that file system. A thread waits for SIGINT,
//           SIGTERM and SIGHUP, ends the children, removes the folder and leaves with 130: gigabytes never stay behind.
//           A run that has more to tidy up asks for the first signal as a flag; a second one, unless it comes at once,
//           then ends it.
// Owns:     the folder and all in it, and the children.
// Errors:   create: IO_ERROR naming the folder.
// Invariant: create comes before any other thread is started: threads inherit the blocked signals.
#pragma once

#include <sys/types.h>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
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
    // Sends the signal and waits for the end; the wait status, 0 for one that had ended already.
    int end_child(pid_t child, int signal);
    bool child_has_ended(pid_t child);

    // From now on the first signal only sets the flag.
    const std::atomic<bool>& flag_interrupt();

  private:
    explicit Workspace(std::string path);
    void watch_signals();
    void end_children();

    std::string path_;
    std::mutex child_mutex_;
    std::set<pid_t> children_;  // by child_mutex_; alive, or not waited for
    std::atomic<bool> ending_ = false;
    std::atomic<bool> flags_interrupt_ = false;
    std::atomic<bool> interrupted_ = false;
    std::thread signal_thread_;
};

}  // namespace mortar::bench
