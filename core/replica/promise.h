// promise: what a node must remember of elections, on disk before anyone hears of it:
// `replica/state`.
// Shape:    MMRS: magic, u8 version, u32 crc32c of all after it, u16 node_id, 16 bytes cluster_id,
//           u64 promised_epoch, u16 promised_to, u64 installed_epoch, u16 member_count, u32 count of marks, and for each,
//           ascending by log: u16 topic_id, u16 partition, u8 flags (bit0 uncertain, bit1 faulty), u64 faulty_from (0 unless faulty).
//           Version 1, of one-node folders, ends with a u64 leader_epoch: promised to itself and installed; of one member.
//           A node without the file is blank: it promises in memory only, and is not blank any more once it installed.
// Errors:   load: DAMAGED (a lost epoch cannot be guessed), UNSUPPORTED_FORMAT, those of Disk.
//           save: those of Disk.
// Suspends: what takes Fiber&.
// Durable:  the promise, once save returned OK. After an error either content may be on disk; PromiseStore then says the
//           more careful: what was promised or marked holds, what was installed or lifted does not.
// Invariant: promised_epoch never goes back, installed_epoch neither, and installed_epoch <= promised_epoch.
// Source:   design 4 (`replica/state`, Damage, Blank nodes), contract D8.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/env/disk.h"
#include "core/fiber/mutex.h"
#include "core/replica/peer_messages.h"

namespace mortar {

inline constexpr std::string_view PROMISE_MAGIC = "MMRS";
inline constexpr std::uint8_t PROMISE_VERSION = 2;
// Keeps the file, which each promise writes whole, within a millisecond or so of writing.
inline constexpr std::size_t LOG_MARK_COUNT_MAX = 65'536;

// What is wrong with a copy; it is both when the damage and the torn end are two places.
struct LogMark {
    PartitionKey log;
    bool is_uncertain = false;
    Sequence faulty_from;  // 0: not faulty
    bool operator==(const LogMark&) const = default;
};
// What to say of the copy in a promise. end: of the log, as far as it can tell. A damage above it went with the end.
constexpr peer::CopyState copy_state(const LogMark& mark, Sequence end) {
    if (mark.faulty_from > Sequence(0) && mark.faulty_from <= end) {
        return mark.is_uncertain ? peer::CopyState::FAULTY_UNCERTAIN : peer::CopyState::FAULTY;
    }
    return mark.is_uncertain || mark.faulty_from > Sequence(0) ? peer::CopyState::UNCERTAIN
                                                               : peer::CopyState::INTACT;
}

struct Promise {
    NodeId node_id;
    peer::ClusterId cluster_id{};
    LeaderEpoch promised_epoch;
    NodeId promised_to;
    LeaderEpoch installed_epoch;
    std::uint16_t member_count = 1;  // nodes of its cluster
    std::vector<LogMark> marks;      // ascending by log
    bool operator==(const Promise&) const = default;
};

ByteVector encode_promise(const Promise& promise);
Result<Promise> decode_promise(ByteSpan file);

// Nothing when the node never had one.
Result<std::optional<Promise>> load_promise(Fiber& fiber, Disk& disk);
Result<void> save_promise(Fiber& fiber, Disk& disk, const Promise& promise);

// The one in memory, for all fibers of the node: saves one after the other. It must outlive those who wait in it.
class PromiseStore {
  public:
    // INVALID_CONFIG: the file is of another node, or of a cluster of another size: alone, a member of three would go on without
    // what the others acknowledge.
    static Result<std::unique_ptr<PromiseStore>> open(Fiber& fiber, Disk& disk, NodeId node_id,
                                                      std::uint16_t member_count);
    PromiseStore(const PromiseStore&) = delete;
    PromiseStore& operator=(const PromiseStore&) = delete;

    bool is_blank() const { return is_blank_; }
    LeaderEpoch promised_epoch() const { return promise_.promised_epoch; }
    NodeId promised_to() const { return promise_.promised_to; }
    LeaderEpoch installed_epoch() const { return promise_.installed_epoch; }
    const peer::ClusterId& cluster_id() const { return promise_.cluster_id; }
    const std::vector<LogMark>& marks() const { return promise_.marks; }
    // INTACT for a log without a mark.
    LogMark mark_of(PartitionKey log) const;

    // Once for each leader_epoch, and only above the last. promised_epoch() tells it from before the save on, so that older
    // leaders are refused at once; the candidate may hear of it after OK.
    // still_may: asked when the saves before this one are over, right before promised_epoch() changes, and with it what the
    // node is: a lease may have been renewed meanwhile, the node may have been elected.
    // STALE_LEADER_EPOCH: as much was promised already, or still_may says no. LIMIT_REACHED above LEADER_EPOCH_MAX.
    Result<void> promise(Fiber& fiber, LeaderEpoch leader_epoch, NodeId candidate,
                         const std::function<bool()>& still_may = nullptr);
    // All logs are as that leader has them, durably, and checkpointed. Takes the uncertain marks away; a record that is
    // still damaged keeps its mark. Nothing happens when it is installed already. installed_epoch() tells it after the save.
    // STALE_LEADER_EPOCH: not what is promised (any more). INVALID_ARGUMENT: of another cluster.
    Result<void> install(Fiber& fiber, LeaderEpoch leader_epoch, const peer::ClusterId& cluster_id);
    // Adds to what is marked already; of two damages the lower one counts. LIMIT_REACHED: too many marks.
    Result<void> mark(Fiber& fiber, const std::vector<LogMark>& marks);
    // Its damaged record was fetched again, or cut.
    Result<void> clear_faulty(Fiber& fiber, PartitionKey log);
    // It was deleted.
    Result<void> forget(Fiber& fiber, PartitionKey log);

  private:
    PromiseStore(Disk& disk, NodeId node_id, std::uint16_t member_count,
                 std::optional<Promise> promise);
    Result<void> save(Fiber& fiber, const Promise& next);
    // With saving_ held.
    Result<void> lift_marks(Fiber& fiber, std::vector<LogMark> left);

    Disk& disk_;
    Promise promise_;
    bool is_blank_;
    Mutex saving_;
};

}  // namespace mortar
