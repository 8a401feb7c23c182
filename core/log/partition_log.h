// partition_log: the segments of one partition as one log: append, read, recover, cut.
// Shape:    sequences are dense from 1, leader_epochs do not fall. Segments roll at segment_max_bytes; a checkpoint (MMQC)
//           bounds recovery.
//           cut ends the log before a sequence: first the checkpoint is taken back, then the last segment is replaced by an
//           empty one, which takes the names of those before it, one after the other, until it has the one of the first
//           sequence that is gone. So at any moment an empty segment ends the log, and what stands behind the end of the one
//           before, which may be what an earlier cut took away, never comes back.
// Owns:     its folder topics/<topic_id>/<partition>/, its files and its fibers (writer, grower, checkpointer).
//           Bytes given to append are copied once; bytes handed out live as long as the batch that holds them.
// Errors:   open: UNSUPPORTED_FORMAT (path and version), IO_ERROR, NO_SPACE. Damage below what is known durable is not an
//           error of open: the log opens faulty_from() that sequence, refuses appends, and is served by nobody. Damage that a
//           read meets later has the same effect from then on.
//           append: LOG_CLOSED after a failed write or sync, NO_SPACE included: what is on disk is read again by the next
//           open; DAMAGED when faulty. append_bytes: these, and CHECKSUM_MISMATCH when the bytes are not the next records
//           of the log, whole and in order: then nothing was appended.
//           cut: DAMAGED when faulty at or below what it keeps; LOG_CLOSED, or IO_ERROR or NO_SPACE after which the log is
//           closed and holds what it held before, or a prefix of that with all that was to be kept.
// Suspends: all that take Fiber&. append and append_bytes never do.
// Durable:  every sequence <= flushed_sequence(). flushed_sequence moves only after a sync that began after the write.
//           The end of the log, once cut returned OK.
// Invariant: flushed_sequence() <= last_sequence(); it goes back only by cut.
// Source:   contract 7, design 3 and 4, core-concepts 13.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/log/segment.h"

namespace mortar {

inline constexpr std::uint64_t TAIL_CACHE_BYTES_DEFAULT = 4u << 20;
inline constexpr std::size_t LOG_OPEN_SEGMENTS_MAX =
    4;  // files a log keeps open for reading, the written one aside

struct LogOptions {
    std::uint64_t segment_max_bytes = 64u << 20;
    std::uint64_t checkpoint_every_bytes =
        16u << 20;  // of flushed records; recovery reads at most about this much
    std::uint64_t tail_cache_bytes =
        TAIL_CACHE_BYTES_DEFAULT;  // memory for the latest records: at most this, or one chunk
    // By open when the tail is torn, before anything on disk changes: its error is open's.
    std::function<Result<void>(Fiber&)> before_repair = {};
    // known_synced() of the same log when this process had it open before.
    KnownSynced known_synced = {};
};

class TailBudget;

struct LogStats {
    std::uint64_t segment_count = 0;
    std::uint64_t size_bytes =
        0;  // of the segments, from the files; zeros ahead of the writer aside
    std::uint64_t recovered_bytes = 0;  // read by open behind the checkpoint
    std::uint64_t sync_count = 0;
    std::uint64_t write_count = 0;
};

class PartitionLog {
  public:
    virtual ~PartitionLog() = default;

    // Opens or, when the folder is absent, stands ready to create it at the first append ("files appear at the first append").
    // name: for fiber names and log lines, e.g. "1/0". tail_budget: of all logs of the node.
    static Result<std::unique_ptr<PartitionLog>> open(Fiber& fiber, Env& env, std::string folder,
                                                      std::string name, LogOptions options,
                                                      std::shared_ptr<TailBudget> tail_budget);

    // Assigns last_sequence() + 1, queues the bytes for the writer. record.sequence is ignored.
    virtual Result<Sequence> append(const Record& record) = 0;
    // Records of a leader as they stand in its log. on_record: of each, after all were found good.
    virtual Result<void> append_bytes(ByteSpan records,
                                      const std::function<void(const Record&)>& on_record) = 0;
    virtual Sequence last_sequence() const = 0;
    // last_sequence() and its epoch; of a log that was opened faulty the last record that it once held for certain.
    virtual LogEnd end() const = 0;
    // Was when it was opened: it may have held more than is here now.
    virtual bool is_tail_torn() const = 0;
    // For the next open, once this one has ended: what was synced is not forgotten with the object.
    virtual KnownSynced known_synced() const { return {}; }
    virtual Sequence flushed_sequence() const = 0;
    virtual std::uint64_t unflushed_bytes() const = 0;
    // Called from the writer fiber each time flushed_sequence moved, and once with the error when the log closes; from a
    // reader's fiber when the log turned faulty.
    virtual void set_on_flushed(std::function<void()> on_flushed) = 0;
    // Called before each checkpoint with the sequence it will cover; saves what must not lag behind it (producer windows).
    // An error leaves the old checkpoint in place until the next occasion.
    virtual void set_before_checkpoint(
        std::function<Result<void>(Fiber&, Sequence through)> save) = 0;
    // Set when a write or sync failed: nothing more is appended or flushed.
    virtual const std::optional<Error>& failure() const = 0;
    // Set when records at or above this sequence are damaged though known durable.
    virtual std::optional<Sequence> faulty_from() const = 0;

    // Records from `from` on, at most through `through` (<= flushed_sequence()), about max_bytes (at least one record).
    // Verified by checksum and sequence. Served from the tail cache when it holds them, else from the page cache.
    // CHECKSUM_MISMATCH when bytes on disk are not those written: the log is faulty from then on. NOT_FOUND when the log was
    // cut meanwhile, wherever.
    virtual Result<RecordBatch> read(Fiber& fiber, Sequence from, Sequence through,
                                     std::uint64_t max_bytes) = 0;
    // The same as bytes, also of what is not flushed: through <= end().last. LOG_CLOSED when that cannot be had any more.
    virtual Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                           std::uint64_t max_bytes) = 0;
    // Of the record; errors as of read_bytes.
    virtual Result<LeaderEpoch> epoch_at(Fiber& fiber, Sequence sequence) = 0;
    virtual LogStats stats() const = 0;
    // While faulty_from() is set; what replaces it is written by segment_rewrite.h, after close.
    virtual std::optional<DamagedPart> damaged_part() const { return std::nullopt; }
    // What can be read from the damaged part's first record on. Only of a faulty log.
    virtual Result<std::vector<EpochRun>> runs_behind_damage(Fiber&) {
        return std::vector<EpochRun>{};
    }
    // Reads what is flushed from disk, also what memory holds, about max_bytes from `from` on; nothing at the end. Damage that
    // it meets, and a cut: as of read.
    virtual Result<Scrubbed> scrub(Fiber&, Sequence /*from*/, std::uint64_t /*max_bytes*/) {
        return Scrubbed{};
    }

    // Takes away what stands behind keep_through (<= last_sequence()). Nobody else appends meanwhile.
    virtual Result<void> cut(Fiber& fiber, Sequence keep_through) = 0;
    // Flushes all and writes a checkpoint: what turns out bad later is damage. LOG_CLOSED, DAMAGED, those of Disk.
    virtual Result<void> make_durable(Fiber& fiber) = 0;
    // Flushes, writes a checkpoint, ends the fibers. No append afterwards.
    virtual Result<void> close(Fiber& fiber) = 0;
    // After close: remove_log_files.
    virtual Result<void> remove_files(Fiber& fiber) = 0;
};

// Removes a log's files and its folder (topic deleted; the mutation is already committed). Files that are not of a log are left
// alone and reported, and the folder with them.
Result<void> remove_log_files(Fiber& fiber, Env& env, const std::string& folder);

}  // namespace mortar
