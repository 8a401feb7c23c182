// declare: handles DECLARE: create, look up and delete topics, delete groups.
// Shape:    one function a flag combination; the check that decides is made again when the
//           mutation's turn comes.
// Errors:   MUTATION_NOT_PACKABLE, INVALID_TOPIC, QUOTA_EXCEEDED, TOPIC_EXISTS_MISMATCH, UNKNOWN_TOPIC,
//           GROUP_EXISTS_MISMATCH, METADATA_QUARANTINED, MALFORMED_PAYLOAD (flags that say nothing
//           together), what propose says.
// Suspends: handle.
// Durable:  what it answered OK; the topic's partitions are open then.
// Source:   contract T1-T5, E4.
#pragma once

#include <string>

#include "core/meta/metadata_log.h"
#include "core/produce/partition.h"
#include "core/session/topic_keeper.h"
#include "core/wire/messages.h"

namespace mortar {

// A Declare that owns its name: the frame is gone by the time it runs.
struct DeclareRequest {
    std::string name;
    std::uint16_t partition_count = 0;
    std::uint16_t flags = 0;
};

class DeclareHandler {
  public:
    DeclareHandler(MetadataLog& metadata, PartitionTable& partitions, TopicKeeper& keeper,
                   std::uint16_t partition_default_count)
        : metadata_(metadata),
          partitions_(partitions),
          keeper_(keeper),
          partition_default_count_(partition_default_count) {}

    Result<wire::DeclareResult> handle(Fiber& fiber, const DeclareRequest& request);

  private:
    Result<wire::DeclareResult> create(Fiber& fiber, const DeclareRequest& request);
    Result<wire::DeclareResult> look_up(Fiber& fiber, const DeclareRequest& request);
    Result<wire::DeclareResult> delete_topic(Fiber& fiber, const DeclareRequest& request);
    Result<wire::DeclareResult> delete_group(Fiber& fiber, const DeclareRequest& request);
    Result<wire::DeclareResult> existing(Fiber& fiber, TopicId topic_id,
                                         std::uint16_t wanted_count);

    MetadataLog& metadata_;
    PartitionTable& partitions_;
    TopicKeeper& keeper_;
    std::uint16_t partition_default_count_;
};

}  // namespace mortar
