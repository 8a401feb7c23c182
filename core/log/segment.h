// segment: one append-only file of records, named by its first sequence, and its index.
// Shape:     6-byte head (magic, format version, header version), then batches of records as layout.h says, then zeros. It ends
//            where the next segment's base_sequence begins: what stands behind that is of no account, whatever it looks like.
//            So nothing is ever cut in place: a torn tail is left behind by starting the next segment at its first sequence.
// Units:     file_offset and *_bytes in bytes; sequences count from 1.
// Owns:      its open file (shared with readers and the writer) and its index. Bytes handed out are owned by their batch.
// Errors:    IO_ERROR; CHECKSUM_MISMATCH with path and file_offset; UNSUPPORTED_FORMAT with path and version.
// Suspends:  all that take Fiber&.
// Durable:   create_segment: the file with its records and its name, once it returns OK.
// Invariant: every record r has base_sequence <= r.sequence < base_sequence of the next segment.
// Source:    contract 7 (MMQS, record, .idx), design 3, core-concepts 13.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/env/disk.h"
#include "core/log/index.h"
#include "core/log/layout.h"
#include "core/log/record.h"
#include "core/log/record_bytes.h"

namespace mortar {

inline constexpr std::string_view SEGMENT_MAGIC = "MMQS";
inline constexpr std::uint8_t SEGMENT_FORMAT_VERSION = 1;
inline constexpr std::uint8_t SEGMENT_HEADER_VERSION = 1;
inline constexpr std::uint64_t SEGMENT_HEAD_BYTES = 6;
inline constexpr std::size_t SCAN_BLOCK_BYTES_MIN = 64u << 10;
inline constexpr std::size_t SCAN_BLOCK_BYTES_MAX = 256u << 10;
// Files of this size and more do not fit the u32 offsets of index and checkpoint.
inline constexpr std::uint64_t SEGMENT_BYTES_MAX = UINT32_MAX;

std::string segment_file_name(Sequence base_sequence);
std::string index_file_name(Sequence base_sequence);
// The base sequence when name is 20 digits and the suffix.
std::optional<Sequence> parse_log_file_name(std::string_view name, std::string_view suffix);

std::array<std::byte, SEGMENT_HEAD_BYTES> segment_head();
// True for a head that this program reads, false when bytes are no head at all; path is for the error.
Result<bool> check_segment_head(ByteSpan bytes, const std::string& path);

// The first record of bytes, if it may stand behind previous in a log; else CHECKSUM_MISMATCH, whose text names the log.
Result<Record> parse_next_record(ByteSpan bytes, const LogEnd& previous,
                                 const std::string& log_name);

// Reads records one after the other.
class RecordScan {
  public:
    struct Found {
        Record record;
        std::uint64_t file_offset = 0;
        std::uint64_t end_offset = 0;
        ByteSpan bytes;
        std::shared_ptr<const void> owner;  // of the record's bytes
    };
    RecordScan(std::shared_ptr<File> file, std::uint64_t file_offset,
               std::size_t block_bytes = SCAN_BLOCK_BYTES_MAX)
        : file_(std::move(file)), place_(file_offset), block_bytes_(block_bytes) {}

    // The record at place(), or behind the gap there, when it is valid and has this sequence; else nothing, and place() stays.
    Result<std::optional<Found>> next(Fiber& fiber, Sequence expected);
    // The first valid record at or behind place() with low <= sequence <= high that the bytes before it leave room for, at any
    // byte or only where a batch may start; place() moves behind it, or stays when there is none before end_offset.
    Result<std::optional<Found>> search(Fiber& fiber, Sequence low, Sequence high,
                                        bool only_batch_starts, std::uint64_t end_offset);
    // Is there a byte other than zero at or behind place()?
    Result<bool> anything_behind(Fiber& fiber);
    std::uint64_t place() const { return place_; }
    void set_place(std::uint64_t file_offset) { place_ = file_offset; }
    std::uint64_t bytes_read() const { return bytes_read_; }

  private:
    // Up to size_bytes at file_offset, fewer at the end of the file; lives until the next call.
    Result<ByteSpan> view(Fiber& fiber, std::uint64_t file_offset, std::size_t size_bytes);
    Result<std::optional<Found>> record_at(Fiber& fiber, std::uint64_t file_offset);

    std::shared_ptr<File> file_;
    std::uint64_t place_;
    std::size_t block_bytes_;
    std::shared_ptr<ByteVector> block_;
    std::uint64_t block_offset_ = 0;
    std::uint64_t bytes_read_ = 0;
};

// Makes the file, with records (their bytes back to back, from base_sequence on) in it as one batch, over any file of that
// name. Returns it open, and where its records end.
struct NewSegment {
    std::shared_ptr<File> file;
    std::uint64_t end_offset = SEGMENT_HEAD_BYTES;
};
Result<NewSegment> create_segment(Fiber& fiber, Disk& disk, const std::string& folder,
                                  Sequence base_sequence, ByteSpan records);

// Records read together; the views borrow from owners.
struct RecordBatch {
    std::vector<Record> records;
    std::vector<std::shared_ptr<const void>> owners;
};

class Segment {
  public:
    Segment(Disk& disk, std::string folder, Sequence base_sequence)
        : disk_(disk), folder_(std::move(folder)), base_sequence_(base_sequence) {}

    Sequence base_sequence() const { return base_sequence_; }
    std::string path() const { return folder_ + "/" + segment_file_name(base_sequence_); }
    // Opens it for reading unless it is open.
    Result<std::shared_ptr<File>> file(Fiber& fiber);
    void set_file(std::shared_ptr<File> file) { file_ = std::move(file); }
    void close_file() { file_ = nullptr; }
    bool is_open() const { return file_ != nullptr; }

    void note_record(const Record& record, std::uint64_t file_offset);
    // from..last must be in the file; at least one record, about bytes_max.
    Result<RecordBatch> read(Fiber& fiber, Sequence from, Sequence last, std::uint64_t bytes_max);
    // The same records as they stand there.
    Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence last,
                                   std::uint64_t bytes_max);
    // The record that the latest CHECKSUM_MISMATCH was about.
    Sequence mismatched() const { return mismatched_; }
    struct Located {
        std::uint64_t end_offset = 0;
        LeaderEpoch leader_epoch;
    };
    // Where the record ends; nothing when it cannot be found.
    Result<std::optional<Located>> locate(Fiber& fiber, Sequence sequence);
    // The log was cut: the segment ends with this record.
    void forget_behind(Sequence last);
    // Writes the index to a new file and swaps it in, if it holds what the file does not.
    Result<void> save_index(Fiber& fiber);

  private:
    struct Position {
        Sequence sequence;
        std::uint64_t file_offset = 0;
    };
    static constexpr std::size_t RECENT_COUNT = 8;

    // take is called with each record in turn; at least one, or CHECKSUM_MISMATCH.
    template <class Take>
    Result<void> read_each(Fiber& fiber, Sequence from, Sequence last, std::uint64_t bytes_max,
                           const Take& take);
    // A scan that stands before the record from, and what it found while it looked for it.
    Result<RecordScan> scan_at(Fiber& fiber, Sequence from, std::size_t block_bytes);
    Result<void> load_index(Fiber& fiber);
    Error mismatch(Sequence sequence, std::uint64_t file_offset);

    Disk& disk_;
    std::string folder_;
    Sequence base_sequence_;
    std::shared_ptr<File> file_;
    SparseIndex index_;
    bool index_loaded_ = false;
    bool index_changed_ = false;                   // since it was loaded or saved
    std::array<Position, RECENT_COUNT> recent_{};  // ends of reads: a consumer goes on from there
    std::size_t next_recent_ = 0;
    Sequence mismatched_;
};

}  // namespace mortar
