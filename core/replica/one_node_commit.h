// one_node_commit: the commit rule of a cluster of one: the majority is this node, what it has synced is committed.
// Source: design 4.
#pragma once

#include "core/replica/replicated_log.h"

namespace mortar {

class OneNodeCommit final : public ReplicatedLogObserver {
  public:
    void on_appended(ReplicatedLog&) override {}
    void on_flushed(ReplicatedLog& log) override { log.advance_commit(log.flushed()); }
    void on_state_changed(ReplicatedLog&) override {}
    // What it was opened with is synced.
    void on_opened(ReplicatedLog& log) override { log.advance_commit(log.flushed()); }
    void on_retired(PartitionKey) override {}
};

}  // namespace mortar
