#include "core/produce/admission.h"

#include <algorithm>
#include <string>

#include "core/base/hash.h"
#include "core/fiber/deadline.h"

namespace mortar {
namespace {

Result<void> check_fields(const wire::Pub& pub) {
    if (pub.key.size() > wire::MAX_KEY_LEN || pub.value.size() > wire::MAX_VALUE_LEN) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          "PUB: key is over 255 or value over 16776192 bytes");
    }
    // A replay is checked by its envelope (contract L4), and this version knows no envelope that it
    // could accept: so every value is "not an MMDL envelope". Ignoring the bit would store the
    // envelope as an application's message.
    if ((pub.flags & wire::PUB_FLAG_REPLAY) != 0) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          "PUB flags: REPLAY is not supported by this broker version");
    }
    if ((pub.producer_id == ProducerId(0)) != (pub.producer_seq == ProducerSeq(0))) {
        return make_error(
            ErrorCode::PRODUCER_SEQ_INVALID,
            "PUB: producer_seq counts from 1 with a producer_id and is 0 without one");
    }
    return {};
}

}  // namespace

bool is_space_low(const DiskSpace& space) {
    const std::uint64_t share_bytes = space.total_bytes / 100 * FREE_SPACE_PERCENT_MIN;
    return space.free_bytes < std::max(share_bytes, FREE_SPACE_BYTES_MIN);
}

Result<Partition*> Admission::route(const wire::Pub& pub) {
    MORTAR_TRY(check_fields(pub));
    if (pub.partition != ANY_PARTITION) return find(pub, pub.partition);
    if (pub.producer_id != ProducerId(0)) {
        return make_error(ErrorCode::UNKNOWN_PARTITION,
                          "partition 0xFFFF needs producer_id 0: an idempotent producer names its "
                          "partition, so that a "
                          "retry meets the same window");
    }
    const std::uint16_t count = partitions_.partition_count(pub.topic_id);
    if (count == 0) return find(pub, PartitionIndex(0));
    if (pub.key.empty()) return find(pub, partitions_.next_round_robin(pub.topic_id));
    return find(pub, PartitionIndex(static_cast<std::uint16_t>(fnv1a32(pub.key) % count)));
}

Result<Partition*> Admission::find(const wire::Pub& pub, PartitionIndex index) {
    Partition* partition = partitions_.find({pub.topic_id, index});
    if (partition == nullptr) {
        // A topic that cannot be known must not look like one that does not exist.
        if (metadata_.is_quarantined()) return make_error(ErrorCode::METADATA_QUARANTINED);
        const Topic* topic = metadata_.catalog().find_topic(pub.topic_id);
        if (topic == nullptr) return make_error(ErrorCode::UNKNOWN_TOPIC);
        if (index.value >= topic->partition_count) {
            return make_error(ErrorCode::UNKNOWN_PARTITION,
                              "the topic has " + std::to_string(topic->partition_count) +
                                  " partitions, numbered from 0");
        }
        return make_error(ErrorCode::QUORUM_LOST, "the partition is being opened: retry");
    }
    if (pub.topic_id.value % 2 == 0) {
        return make_error(ErrorCode::INVALID_TOPIC,
                          "a .dlq topic takes dead letters only: publish to its source topic");
    }
    if (has_peers_ && partition->faulty_from())
        return make_error(ErrorCode::QUORUM_LOST,
                          "the partition is damaged here and is being repaired: retry");
    if (partition->is_quarantined()) return make_error(ErrorCode::DIVERGENT_COMMITTED);
    return partition;
}

Result<void> Admission::check_room(const Partition& partition, std::size_t record_bytes) const {
    if (partition.is_closed()) {
        return make_error(ErrorCode::QUORUM_LOST,
                          "the partition's log failed and is being opened again: retry");
    }
    if (disk_full_)
        return make_error(ErrorCode::STORAGE_HIGH_WATERMARK,
                          "the disk is full: retry when space is free");
    if (partitions_.unflushed_bytes() + record_bytes > UNFLUSHED_BYTES_MAX) {
        return make_error(ErrorCode::BACKPRESSURE, "too much waits for the disk: back off, retry");
    }
    return {};
}

void Admission::sample_space(Fiber& fiber) {
    while (true) {
        const Result<DiskSpace> space = env_.disk.space(fiber);
        if (space.ok() && is_space_low(*space) != disk_full_) {
            disk_full_ = !disk_full_;
            if (disk_full_) {
                env_.log.error("disk_full", {{"free_bytes", std::to_string(space->free_bytes)}});
            } else {
                env_.log.info("disk_has_space",
                              {{"free_bytes", std::to_string(space->free_bytes)}});
            }
            MORTAR_SOMETIMES(!disk_full_, "admission: space came back");
        }
        const MonoTime next = deadline_after(env_.clock, SPACE_SAMPLE_INTERVAL);
        if (!env_.scheduler.sleep_until(fiber, next).ok()) return;
    }
}

}  // namespace mortar
