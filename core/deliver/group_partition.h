// group_partition: one partition as one group consumes it: the book in memory, the ledger on disk, and what waits for it.
// Shape:     serving, or not (its ledger failed and is read again in the background, or is damaged and stays aside).
// Owns:      its ledger, its fibers and timer, the answers that wait for a sync. The owner is borrowed while it owns.
// Errors:    ack, nack, progress answer through Reply: UNKNOWN_DELIVERY; DLQ_UNAVAILABLE for REJECT; QUORUM_LOST while the
//            ledger takes nothing: not executed. READ_ONLY_DEGRADED when the event is not durable in time, INTERNAL when
//            the ledger fails before it is: outcome unknown, the event stays queued or may be on the disk.
// Suspends:  open, close, remove.
// Durable:   an ACK or NACK answered OK.
// Invariant: one owner at a time; life() changes whenever what a fiber saw before a suspension may be void.
// Source:    contract D1-D5, R2, design 5 (ledger).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "core/deliver/ledger.h"
#include "core/deliver/redelivery.h"
#include "core/fiber/group.h"
#include "core/wire/outbox.h"

namespace mortar {

inline constexpr Duration LEDGER_REOPEN_DELAY = seconds(1);
inline constexpr Duration SETTLE_TIMEOUT = milliseconds(2000);  // quorum_timeout of ACK and NACK

// The member that a partition is delivered to.
class PartitionOwner {
  public:
    virtual ~PartitionOwner() = default;
    // A delivery of this size ended.
    virtual void on_freed(std::uint32_t message_bytes) = 0;
    // Something may be deliverable that was not before.
    virtual void on_ready(PartitionIndex partition) = 0;
};

class GroupPartition {
  public:
    struct Parts {
        Env& env;
        TimerQueue& timers;
        Rng& jitter;
        DeliveryBook::Options options;
        std::uint64_t ledger_bytes_min = LEDGER_BYTES_MIN;
    };
    GroupPartition(const Parts& parts, std::string folder, PartitionIndex partition,
                   Sequence start_after);

    // Called whenever the ledger was read, with the highest sequence that it knows: that one was committed once.
    void set_on_loaded(std::function<void(Sequence known)> on_loaded) {
        on_loaded_ = std::move(on_loaded);
    }
    // A ledger that cannot be read does not stop the node: the partition is not served to this group, see is_serving.
    // Only CANCELLED is returned.
    Result<void> open(Fiber& fiber);
    // Flushes and writes a checkpoint.
    Result<void> close(Fiber& fiber);
    // The group is gone: ends everything, whatever is returned, and removes the files.
    Result<void> remove(Fiber& fiber);

    // After close or remove: nothing runs that would use it any more.
    bool is_ended() const { return ledger_ == nullptr && fibers_.size() == 0; }
    bool is_serving() const { return ledger_ != nullptr && !ledger_failed_; }
    std::uint64_t life() const { return life_; }
    const DeliveryBook* book() const { return book_ ? &*book_ : nullptr; }

    void set_owner(PartitionOwner* owner);
    // Clean = by LEAVE: nothing fails. The owner hears of what this frees.
    void release_owner(bool is_clean);

    // Only while serving.
    DeliveryBook::Sent deliver(Sequence sequence, DeliveryId delivery_id,
                               std::uint32_t message_bytes);
    void ack(Sequence sequence, Reply reply);
    void nack(Sequence sequence, DeliveryId delivery_id, wire::NackReason reason, Reply reply);
    void progress(Sequence sequence, DeliveryId delivery_id, Reply reply);

  private:
    enum class Pending : std::uint8_t { SETTLE, FAIL, ALREADY_SETTLED };
    struct Waiting {
        std::uint64_t mark = 0;
        Pending what = Pending::SETTLE;
        Sequence sequence;
        MonoTime deadline;
        Reply reply;  // not pending when nobody asked (a lease ran out), or when time ran out
    };

    Result<void> load(Fiber& fiber);
    void start_reopening();
    void on_flushed();
    void on_ledger_failed();
    void on_timer();
    void wait_for_flush(std::uint64_t mark, Pending what, Sequence sequence, Reply reply);
    void answer_overdue();
    void answer_all(const Error& error);
    // Contract 8, level 0: a disk that did not answer in time takes nothing more until it does.
    bool is_read_only() const { return overdue_count_ > 0; }
    void apply(const DeliveryBook::Ended& ended);
    void write_failure(const DeliveryBook::Failed& failed, Reply reply);
    void free_credit(std::uint32_t message_bytes);
    void tell_ready();
    void arm_timer();

    Env& env_;
    TimerQueue& timers_;
    Rng& jitter_;
    DeliveryBook::Options options_;
    std::uint64_t ledger_bytes_min_;
    std::string folder_;
    PartitionIndex partition_;
    Sequence start_after_;
    std::function<void(Sequence)> on_loaded_;
    Group fibers_;
    Timer timer_;
    std::optional<DeliveryBook> book_;
    std::unique_ptr<Ledger> ledger_;
    bool ledger_failed_ = false;
    bool closing_ = false;
    std::deque<Waiting> waiting_;    // marks and deadlines ascending
    std::size_t overdue_count_ = 0;  // of waiting_, at its front: past their deadline
    Timer overdue_timer_;
    PartitionOwner* owner_ = nullptr;
    std::uint64_t life_ = 1;
};

}  // namespace mortar
