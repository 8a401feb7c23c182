// sole_node: commits of a node that is its own majority: what it has synced is committed.
// Source:   design 4 (majority of nodes that are installed; here one of one).
#pragma once

#include "core/replica/replicated_log.h"

namespace mortar {

class SoleNode final : public ReplicatedLogObserver {
  public:
    void on_appended(ReplicatedLog&) override {}
    void on_flushed(ReplicatedLog& log) override { log.advance_commit(log.flushed()); }
    void on_state_changed(ReplicatedLog& log) override { log.advance_commit(log.flushed()); }
    void on_opened(ReplicatedLog& log) override { log.advance_commit(log.flushed()); }
    void on_retired(PartitionKey) override {}
};

}  // namespace mortar
