// replicated_log: what replication needs of a log, be it the metadata log or a partition's.
// Shape:    records are dense from 1; each keeps the leader_epoch in which it was first appended, and epochs do not fall
//           along the log. Two logs that hold the same (sequence, leader_epoch) are equal up to there.
// Units:    METADATA_LOG counts mutation ids as sequences. Bytes of records are as they stand in the log, back to back,
//           without the gaps between batches.
// Owns:     the log owns its records; RecordBytes share them.
// Errors:   append_bytes: LOG_CLOSED, DAMAGED (faulty), CHECKSUM_MISMATCH (not records, or not the next ones: nothing was
//           appended). read_bytes: CHECKSUM_MISMATCH (the log is faulty from then on), LOG_CLOSED, NOT_FOUND (below what a
//           snapshot covers; METADATA_LOG only; or a cut took it away meanwhile), CANCELLED. cut, make_durable: IO_ERROR, NO_SPACE, LOG_CLOSED,
//           DAMAGED (cut: at or below what it keeps).
// Suspends: what takes Fiber&.
// Durable:  every sequence <= flushed(). After cut: that it is gone, before anything is appended.
// Invariant: commit_seq() <= end().last, and never goes back. flushed() goes back only by cut.
// Source:   design 4.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/env/fiber.h"
#include "core/log/record_bytes.h"

namespace mortar {

// Topic ids of sources count from 1.
inline constexpr PartitionKey METADATA_LOG{};

// "metadata", or "<topic_id>/<partition>".
std::string log_name(PartitionKey key);

struct MetadataSnapshot {
    Sequence through;
    std::shared_ptr<const ByteVector> bytes;
};

// Gives records of a peer's copy, whole and in order, from the first on and none behind through; at least one.
using FetchRecords =
    std::function<Result<ByteVector>(Fiber& fiber, Sequence from, Sequence through)>;

class ReplicatedLog {
  public:
    virtual ~ReplicatedLog() = default;
    virtual PartitionKey key() const = 0;

    // Of a faulty copy what it claims: the last record of which there is evidence, held or not.
    virtual LogEnd end() const = 0;
    virtual Sequence flushed() const = 0;
    virtual Sequence commit_seq() const = 0;
    // Known bad from there on; it holds what is below.
    virtual std::optional<Sequence> faulty_from() const = 0;
    // It is good for what it holds, but ends before what is known to have been synced here. A torn tail, behind which it may
    // have held more too, is not told here but marked as it is found (LogOptions::before_repair).
    virtual bool is_uncertain() const { return false; }
    // A write or sync failed; it is about to be opened again, until then it takes nothing.
    virtual bool is_closed() const = 0;

    // At least one record, about max_bytes; from <= end().last.
    virtual Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                           std::uint64_t max_bytes) = 0;
    // 0 < sequence <= end().last. For a sequence that a metadata snapshot covers: of its last mutation.
    virtual Result<LeaderEpoch> epoch_at(Fiber& fiber, Sequence sequence) = 0;

    // From a leader: whole records, the first one end().last + 1. Written and synced like any append.
    virtual Result<void> append_bytes(ByteSpan records) = 0;
    // Takes away what stands behind keep_through, durably. keep_through >= commit_seq(), nobody else appends meanwhile.
    virtual Result<void> cut(Fiber& fiber, Sequence keep_through) = 0;
    // Flushes all, and writes down that it was durable (a checkpoint): what turns out bad later is damage.
    virtual Result<void> make_durable(Fiber& fiber) = 0;
    // What repair replaces, while faulty_from() is set. Nothing of a log that is made whole in another way (METADATA_LOG).
    virtual std::optional<DamagedPart> damaged_part() const { return std::nullopt; }
    // What can be read from the damaged part's first record on, ascending.
    virtual Result<std::vector<EpochRun>> runs_behind_damage(Fiber&) {
        return std::vector<EpochRun>{};
    }
    // Puts fetched records in the place of the damaged part, from its first one to through, durably and at once: a crash
    // leaves the old ones or the new ones. Then the log is opened again: faulty still, at the next bad record, or behind
    // through when it claims more than that. LOG_CLOSED: it changed meanwhile. DIVERGENT_COMMITTED: a sound record here is
    // another one there. Errors of fetch and of Disk.
    virtual Result<void> repair(Fiber&, Sequence /*through*/, const FetchRecords& /*fetch*/) {
        return make_error(ErrorCode::DAMAGED, "this log is not repaired in place");
    }
    // Reads records from disk and verifies them; nothing at the end. Damage that it meets: as of read_bytes.
    virtual Result<Scrubbed> scrub(Fiber&, Sequence /*from*/, std::uint64_t /*max_bytes*/) {
        return Scrubbed{};
    }
    // A majority has synced everything up to here; above end().last it counts up to that only.
    virtual void advance_commit(Sequence committed) = 0;
};

// All replicated logs of a node, the metadata log included.
class ReplicatedLogs {
  public:
    virtual ~ReplicatedLogs() = default;
    // Nothing when there is no such log here, or not yet. Valid until the next suspension.
    virtual ReplicatedLog* find(PartitionKey key) = 0;
    // Ascending by key: METADATA_LOG first.
    virtual std::vector<PartitionKey> keys() const = 0;
    // Until every partition is there that the metadata names, the part included that is not known to be committed.
    virtual Result<void> wait_for_catalog(Fiber& fiber) = 0;
    // The newest metadata snapshot, encoded, and what it covers; and to go on from one of a peer.
    virtual Result<MetadataSnapshot> metadata_snapshot(Fiber& fiber) = 0;
    virtual Result<void> install_metadata_snapshot(Fiber& fiber, ByteSpan snapshot) = 0;
};

// Called from the logs' fibers or in the middle of an append; never suspends.
class ReplicatedLogObserver {
  public:
    virtual ~ReplicatedLogObserver() = default;
    // By the leader's own append, not by append_bytes.
    virtual void on_appended(ReplicatedLog& log) = 0;
    virtual void on_flushed(ReplicatedLog& log) = 0;
    // It closed, came back, or turned out to be damaged.
    virtual void on_state_changed(ReplicatedLog& log) = 0;
    // It was not there before (a topic was created) or will soon be gone (deleted).
    virtual void on_opened(ReplicatedLog& log) = 0;
    virtual void on_retired(PartitionKey key) = 0;
};

}  // namespace mortar
