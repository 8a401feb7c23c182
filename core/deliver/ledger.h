// ledger: what happened to the messages of one (group, partition): the MMLQ file behind a cursor checkpoint.
// Shape:     delivery.mql: one sector of head (magic, u8 version 1, zeros), then events placed as log/layout.h says, each: u32
//            event_len (of what follows), u32 crc32c of all after it, u8 type, then
//              FOLLOWS  u64 cursor_epoch             the first event of each file: it goes on where that checkpoint ends
//              DELIVER  u64 sequence, u16 deliveries, u64 delivery_id
//              ACK      u64 sequence
//              FAIL     u64 sequence, u16 failures, u8 flags (bit0 = waits for its backoff)
//            4 INTENT, 5 DEAD and 6 PARKED are numbers set aside for dead letters. Numbers in events are absolute and only
//            grow, so replaying an event twice, or behind a newer checkpoint, changes nothing.
//            At about LEDGER_BYTES_MIN a new cursor.mqc takes all of it in and a new file begins.
// Owns:      its folder groups/<group_id>/<partition>/ and its LogWriter.
// Errors:    recover: DAMAGED (bytes that a sync covered are bad, a file is larger than any that was written, or of ledger
//            and checkpoint the other one is gone),
//            UNSUPPORTED_FORMAT, IO_ERROR, NO_SPACE, LIMIT_REACHED. append: LOG_CLOSED after a failed write or sync: recover again.
// Suspends:  recover, close, remove_files.
// Durable:   what append returned a mark for, once flushed_mark() has reached it. What recover returned, all of it.
// Source:    contract 7 (MMLQ, MMCU), 8 (ledger timing), design 5.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/deliver/cursor.h"
#include "core/deliver/timers.h"
#include "core/log/writer.h"

namespace mortar {

inline constexpr std::string_view LEDGER_MAGIC = "MMLQ";
inline constexpr std::uint8_t LEDGER_VERSION = 1;
inline constexpr std::uint64_t LEDGER_HEAD_BYTES = SECTOR_BYTES;
inline constexpr std::uint64_t LEDGER_BYTES_MIN = 1u << 20;
// A file is not rotated before it is this many times its checkpoint, so that large checkpoints stay rare.
inline constexpr std::uint64_t LEDGER_PER_CURSOR_BYTES = 4;
// Events are small, and a node has a ledger for each group of each partition.
inline constexpr std::size_t LEDGER_CHUNK_BYTES_MAX = 16u << 10;
// What recover reads at most: far beyond what the largest number of unsettled messages makes of them.
inline constexpr std::uint64_t CURSOR_FILE_BYTES_MAX = 64u << 20;
inline constexpr std::uint64_t LEDGER_FILE_BYTES_MAX =
    LEDGER_PER_CURSOR_BYTES * CURSOR_FILE_BYTES_MAX + 4 * GROW_BYTES_MAX;
inline constexpr Duration LAZY_EVENT_WAIT_MAX = milliseconds(20);
inline constexpr std::size_t LAZY_EVENT_COUNT_MAX = 32;

enum class LedgerEventType : std::uint8_t {
    DELIVER = 1,
    ACK = 2,
    FAIL = 3,
    INTENT = 4,
    DEAD = 5,
    PARKED = 6,
    FOLLOWS = 7,
};

struct LedgerEvent {
    LedgerEventType type = LedgerEventType::ACK;
    Sequence sequence;
    std::uint16_t count = 0;  // DELIVER: deliveries, FAIL: failures
    DeliveryId delivery_id;
    bool is_backing_off = false;
    std::uint64_t cursor_epoch = 0;
    bool operator==(const LedgerEvent&) const = default;
};

void encode_ledger_event(ByteVector& into, const LedgerEvent& event);

struct ParsedLedger {
    std::uint64_t cursor_epoch = 0;      // that its first event follows
    std::vector<LedgerEvent> events;     // FOLLOWS left out
    std::vector<std::uint64_t> offsets;  // of events
    std::uint64_t end_offset = 0;        // of the last valid event
    bool is_torn = false;                // an unfinished write stands behind it
};
// The whole file. DAMAGED with file_offset; UNSUPPORTED_FORMAT.
Result<ParsedLedger> parse_ledger(ByteSpan file);

// Folds the events into the checkpoint that they follow.
void replay_ledger(CursorImage& image, const std::vector<LedgerEvent>& events);

class Ledger {
  public:
    // Reads checkpoint and ledger. What came from the ledger stands in a new, synced checkpoint before this returns: the
    // bytes read may never have been on the disk.
    static Result<CursorImage> recover(Fiber& fiber, Disk& disk, const std::string& folder,
                                       Sequence start_after);

    // bytes_min: LEDGER_BYTES_MIN, or less to rotate often. encode_cursor: appends the present state as a checkpoint of that cursor_epoch.
    Ledger(Env& env, TimerQueue& timers, std::string folder, std::string name,
           std::uint64_t cursor_epoch, std::uint64_t bytes_min,
           std::function<void(ByteVector& into, std::uint64_t cursor_epoch)> encode_cursor);

    // Nobody waits for it: written within LAZY_EVENT_WAIT_MAX or with the next awaited event, in order.
    void append_lazy(const LedgerEvent& event);
    // Written as soon as the writer is free. The mark at which it is durable.
    Result<std::uint64_t> append(const LedgerEvent& event);
    // The mark at which everything appended with a mark so far is durable.
    std::uint64_t appended_mark() const { return writer_.appended_mark(); }
    std::uint64_t flushed_mark() const { return writer_.flushed_mark(); }
    // As LogWriter: each time flushed_mark moved, and once after a failure.
    void set_on_flushed(std::function<void()> on_flushed) {
        writer_.set_on_flushed(std::move(on_flushed));
    }
    const std::optional<Error>& failure() const { return writer_.failure(); }

    // Flushes, writes a checkpoint when events came since the last one, ends the fibers.
    Result<void> close(Fiber& fiber);
    // Ends the fibers after a failure or before the files go; what is queued is lost.
    void abandon(Fiber& fiber);
    // Files that are not ours stay, and the folder with them.
    static Result<void> remove_files(Fiber& fiber, Env& env, const std::string& folder);

  private:
    void flush_lazy();
    void write_event(const LedgerEvent& event);
    void start_file();
    Result<std::shared_ptr<File>> open_next(Fiber& fiber, std::uint64_t cursor_epoch,
                                            bool write_cursor);

    Env& env_;
    std::string folder_;
    LogWriter writer_;
    Timer lazy_timer_;
    std::function<void(ByteVector&, std::uint64_t)> encode_cursor_;
    std::uint64_t cursor_epoch_;  // of the checkpoint that the present file follows
    std::uint64_t bytes_min_;
    std::uint64_t cursor_bytes_ = 0;  // size of that checkpoint
    bool has_file_ = false;
    std::vector<LedgerEvent> lazy_;
};

}  // namespace mortar
