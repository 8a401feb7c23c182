// admission: may a PUB enter: is it well formed, where does it go, and is there room for it.
// Shape:    route judges the request alone; check_room judges the node and the partition at this
//           moment, so that a duplicate of a committed record is answered although nothing new may
//           be appended.
// Owns:     the latest sample of free disk space; a fiber takes one a second, the path of a PUB
//           never asks the disk.
// Errors:   route: UNKNOWN_TOPIC, UNKNOWN_PARTITION, INVALID_TOPIC, PRODUCER_SEQ_INVALID,
//           MALFORMED_PAYLOAD, METADATA_QUARANTINED, QUORUM_LOST, DIVERGENT_COMMITTED. check_room:
//           QUORUM_LOST, BACKPRESSURE, STORAGE_HIGH_WATERMARK.
// Suspends: sample_space only.
// Source:   contract P1, P5, R1, L1, L4, 8 (full disk).
#pragma once

#include "core/env/env.h"
#include "core/meta/metadata_log.h"
#include "core/produce/partition.h"
#include "core/wire/messages.h"

namespace mortar {

inline constexpr std::uint64_t UNFLUSHED_BYTES_MAX = 64u << 20;  // a node
inline constexpr std::uint64_t FREE_SPACE_BYTES_MIN = 256u << 20;
inline constexpr std::uint64_t FREE_SPACE_PERCENT_MIN = 5;
inline constexpr Duration SPACE_SAMPLE_INTERVAL = seconds(1);

bool is_space_low(const DiskSpace& space);

class Admission {
  public:
    // has_peers: from whom a damaged log is repaired.
    Admission(Env& env, const MetadataLog& metadata, PartitionTable& partitions, bool has_peers)
        : env_(env), metadata_(metadata), partitions_(partitions), has_peers_(has_peers) {}

    Result<Partition*> route(const wire::Pub& pub);
    Result<void> check_room(const Partition& partition, std::size_t record_bytes) const;

    // Until cancelled.
    void sample_space(Fiber& fiber);
    bool is_disk_full() const { return disk_full_; }

  private:
    Result<Partition*> find(const wire::Pub& pub, PartitionIndex index);

    Env& env_;
    const MetadataLog& metadata_;
    PartitionTable& partitions_;
    bool has_peers_;
    bool disk_full_ = false;
};

}  // namespace mortar
