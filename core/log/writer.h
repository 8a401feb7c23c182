// writer: gathers appends to a file, makes each batch durable with one write and one sync, wakes those who wait.
// Shape:    append copies into the open batch; one fiber takes it, writes and syncs it while the next one gathers (group
//           commit). Batches lie in the file as layout.h says. A second fiber grows the file ahead by written zeros, so that
//           a data sync has no metadata to write. switch_file ends the batch: what is appended after it goes to the next file.
// Units:    file_offset in bytes; a mark counts all bytes appended through this writer, over all its files.
// Owns:     its fibers, the bytes of batches (shared with who keeps a WriteChunk), the file until it is switched.
// Errors:   failure() is set once by a failed open, write or sync and stays: no write and sync of a batch begins afterwards,
//           and what one under way says counts no more, since after a failed sync nobody knows what the disk holds. append
//           answers LOG_CLOSED then.
//           A full disk is no failure while growing ahead, only when a batch does not fit.
// Suspends: flush, release_file, close.   Durable: all up to flushed_mark().
// Invariant: flushed_mark() <= appended_mark(); both only grow. At most one batch is written and not yet synced.
// Source:   design 3 and 7, contract 7 (files grow ahead), style (log/writer).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/log/layout.h"

namespace mortar {

inline constexpr std::size_t WRITE_CHUNK_BYTES_MIN = 4u << 10;
inline constexpr std::size_t WRITE_CHUNK_BYTES_MAX = 256u << 10;
inline constexpr std::size_t WRITE_BATCH_BYTES_MAX =
    4u << 20;  // a larger single append is a batch of its own
inline constexpr std::uint64_t GROW_BYTES_MIN = 64u << 10;
inline constexpr std::uint64_t GROW_BYTES_MAX = 4u << 20;
inline constexpr std::uint64_t GROW_STEP_BYTES = 1024u << 10;  // written and synced at a time

// Memory that appends are copied into. Its bytes never move, and those appended never change.
struct WriteChunk {
    explicit WriteChunk(std::size_t capacity_bytes)
        : bytes(new std::byte[capacity_bytes]), capacity(capacity_bytes) {}
    std::unique_ptr<std::byte[]> bytes;
    std::size_t capacity;
    std::size_t used = 0;
};

struct WriterStats {
    std::uint64_t write_count = 0;  // of batches
    std::uint64_t sync_count = 0;   // of batches
};

class LogWriter {
  public:
    struct NextFile {
        // Runs in the writer's fiber once all before it is flushed. What it returns must have a durable name.
        std::function<Result<std::shared_ptr<File>>(Fiber&)> open;
        // Where the first batch starts: the head's size in a new file, else batch_start_after(end of records).
        // From here on the file holds nothing but zeros.
        std::uint64_t first_offset = 0;
        std::uint64_t grow_bytes_max = UINT64_MAX;  // the file is not grown ahead beyond this size
    };
    struct Appended {
        std::uint64_t file_offset =
            0;                   // where the bytes stand in the file of the latest switch_file
        std::uint64_t mark = 0;  // flushed once flushed_mark() >= mark
        std::shared_ptr<WriteChunk> chunk;
        MutableByteSpan bytes;  // in chunk; to be filled before the caller suspends
    };

    // name: for fiber names, e.g. "log.1/0". chunk_bytes_max: what it keeps of memory while nothing is queued.
    LogWriter(Env& env, std::string name, std::size_t chunk_bytes_max = WRITE_CHUNK_BYTES_MAX);
    LogWriter(const LogWriter&) = delete;
    LogWriter& operator=(const LogWriter&) = delete;

    // Must come before the first append, and before the one after release_file.
    void switch_file(NextFile next);
    Result<Appended> append(ByteSpan bytes);
    // Like append, but the caller fills Appended::bytes before it suspends.
    Result<Appended> append_space(std::size_t size_bytes);
    // Nothing more is copied into this chunk: what others hold of it may be its last.
    void let_go(const WriteChunk& chunk);
    // Where an append of this size would be put if it were made now.
    std::uint64_t next_offset(std::size_t size_bytes = 1) const;

    std::uint64_t appended_mark() const { return appended_mark_; }
    std::uint64_t flushed_mark() const { return flushed_mark_; }
    std::uint64_t unflushed_bytes() const { return appended_mark_ - flushed_mark_; }
    // Called from the writer's fiber each time flushed_mark moved, and once after a failure.
    void set_on_flushed(std::function<void()> on_flushed) { on_flushed_ = std::move(on_flushed); }
    const std::optional<Error>& failure() const { return failure_; }
    // For an owner whose own part failed: ends writing as a failed sync would.
    void fail(Error error);
    const WriterStats& stats() const { return stats_; }

    // Until all that is appended now is flushed. LOG_CLOSED, CANCELLED.
    Result<void> flush(Fiber& fiber);
    // The same, and from then on nothing of this writer touches the file. Nobody appends meanwhile.
    Result<void> release_file(Fiber& fiber);
    // Flushes what is queued (unless failed) and ends the fibers; no append afterwards. Not ended by a cancel.
    // The failure, if any.
    Result<void> close(Fiber& fiber);

  private:
    struct Step {  // either a switch of files or a batch
        std::optional<NextFile> next_file;
        std::uint64_t file_offset = 0;
        std::uint64_t size_bytes = 0;  // with gaps between records
        std::uint64_t mark = 0;        // of its end
        std::vector<ByteSpan> parts;
        std::vector<std::shared_ptr<WriteChunk>> owners;
    };

    bool fits_batch(std::size_t size_bytes) const;
    void open_batch();
    void seal_batch();
    MutableByteSpan place(Step& batch, std::size_t size_bytes);
    void start_fibers();
    void run_writer(Fiber& fiber);
    Result<void> run_switch(Fiber& fiber, NextFile next);
    Result<void> run_batch(Fiber& fiber, Step batch);
    void run_grower(Fiber& fiber);
    bool wants_growth() const;
    void grow(Fiber& fiber);
    Error closed_error() const;

    std::string name_;
    Scheduler& scheduler_;
    Group fibers_;
    std::deque<Step> steps_;  // the last one is the open batch when batch_is_open_
    bool batch_is_open_ = false;
    bool has_file_ = false;
    std::uint64_t place_offset_ = 0;  // end of what was appended, in the file of the latest switch
    std::size_t chunk_bytes_max_;
    std::shared_ptr<WriteChunk> chunk_;
    std::uint64_t appended_mark_ = 0;
    std::uint64_t flushed_mark_ = 0;
    std::optional<Error> failure_;
    std::function<void()> on_flushed_;
    WriterStats stats_;
    bool closing_ = false;
    bool writer_idle_ = true;
    Event work_;     // steps_ or closing_ changed
    Event flushed_;  // flushed_mark_ or failure_ changed

    std::shared_ptr<File> file_;
    std::uint64_t grow_bytes_max_ = 0;
    std::uint64_t write_end_ = 0;  // end of what is written or being written to file_
    std::uint64_t grown_end_ = 0;  // the file's size: zeros from write_end_ to here
    std::uint64_t grow_bytes_ = GROW_BYTES_MIN;
    bool growing_ = false;      // zeros are being written behind grown_end_
    bool cannot_grow_ = false;  // until the next file
    Event grow_changed_;
};

}  // namespace mortar
