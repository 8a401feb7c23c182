// node_logs: all logs of this node that replication keeps equal to those of its peers: the metadata log and every partition.
// Owns:     nothing: metadata, partitions and keeper outlive it.
// Errors, Suspends: as ReplicatedLogs says.
// Source:   design 4.
#pragma once

#include "core/meta/metadata_log.h"
#include "core/produce/partition.h"
#include "core/replica/replicated_log.h"
#include "core/session/topic_keeper.h"

namespace mortar {

class NodeLogs final : public ReplicatedLogs {
  public:
    NodeLogs(MetadataLog& metadata, PartitionTable& partitions, TopicKeeper& keeper)
        : metadata_(metadata), partitions_(partitions), keeper_(keeper) {}

    ReplicatedLog* find(PartitionKey key) override {
        if (key == METADATA_LOG) return &metadata_;
        return partitions_.find(key);
    }
    std::vector<PartitionKey> keys() const override {
        std::vector<PartitionKey> keys = partitions_.keys();
        keys.insert(keys.begin(), METADATA_LOG);
        return keys;
    }
    Result<void> wait_for_catalog(Fiber& fiber) override {
        MORTAR_TRY(keeper_.wait_done(fiber, metadata_.catalog().last_mutation()));
        return keeper_.open_tail(fiber);
    }
    Result<MetadataSnapshot> metadata_snapshot(Fiber&) override { return metadata_.snapshot(); }
    Result<void> install_metadata_snapshot(Fiber& fiber, ByteSpan snapshot) override {
        return metadata_.install_snapshot(fiber, snapshot);
    }

  private:
    MetadataLog& metadata_;
    PartitionTable& partitions_;
    TopicKeeper& keeper_;
};

}  // namespace mortar
