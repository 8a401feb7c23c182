// disk_watch: what a run sees and does at each operation of one broker's disk: the planned crash, checker 17, sync sites.
// Shape:    hooks into the disk when it starts; operations count from there.
// Owns:     nothing; node, options, report and violations outlive it.
// Source:   design 6 (crashpoints, checkers).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "io-sim/node.h"
#include "sim/run.h"

namespace mortar::sim {

struct DiskWatchEvents {
    std::function<void(const std::string& event)> tell;
    // The planned crash has happened: the node is dead.
    std::function<void(SimNode&)> on_crashed;
    // What stands in a file is no longer a continuation of what stood there: in the cache, and told again when that lasts.
    std::function<void(const std::string& path)> on_rewritten;
};

class DiskWatch {
  public:
    DiskWatch(SimNode& node, const RunOptions& options, RunReport& report, Violations& violations,
              DiskWatchEvents events)
        : node_(node),
          options_(options),
          report_(report),
          violations_(violations),
          events_(std::move(events)) {}

    // Only one broker of a run has the planned crash and fills the sync sites.
    void start(bool has_plan);
    void on_down() {
        replaced_.clear();
        rewritten_.clear();
    }
    // Since start.
    std::uint64_t operation_count() const {
        return node_.disk().operation_count() - first_operation_;
    }

  private:
    void on_operation(OperationPoint point, const DiskOperation& operation);
    void crash_if_planned(OperationPoint point, const DiskOperation& operation);
    void tell_rewritten(const DiskOperation& operation);
    void judge_replacement(const DiskOperation& operation);
    PowerImage power_image() const;

    SimNode& node_;
    const RunOptions& options_;
    RunReport& report_;
    Violations& violations_;
    DiskWatchEvents events_;
    bool has_plan_ = false;
    std::uint64_t first_operation_ = 0;
    // By fiber: what it renamed last, its folder not synced yet.
    std::map<std::string, std::string> replaced_;
    // By what is not synced yet, file or folder: files that are cut, or others by name.
    std::map<std::string, std::set<std::string>> rewritten_;
    int crashes_ = 0;
    std::uint64_t crashed_at_operation_ = 0;
};

}  // namespace mortar::sim
