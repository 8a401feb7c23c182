// redelivery: where each touched message of one (group, partition) stands: leases, failures, backoff, attempts.
// Shape:     a message is *untouched* (at or above next_first), *settled*, or in exactly one of these states:
//            LEASED (in flight), READY (goes again now), WAITING (backoff), FAILING (its failure is not flushed yet),
//            SETTLING (its ACK is not flushed yet). Pure: no clock, no disk; the caller writes the events and says when
//            they are durable.
// Units:     message_bytes = key + value.
// Invariant: every sequence in (ack_floor, next_first) is settled or has one entry; failures and deliveries never go down.
// Source:    contract D1-D6, C7, design 5 (ledger).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/deliver/cursor.h"
#include "core/env/clock.h"
#include "core/env/rng.h"

namespace mortar {

inline constexpr std::size_t UNSETTLED_COUNT_MAX = 1'048'576;
inline constexpr Duration BACKOFF_FIRST = seconds(1);
inline constexpr Duration BACKOFF_MAX = seconds(30);

// 1 s x 2^(failures-1) and up to a quarter more, at most 30 s. Once failures reach the limit the message would be dead
// but its twin takes no letters yet: it is tried again every 30 s (contract L2).
Duration backoff_after(std::uint32_t failures, std::uint32_t max_attempts, Rng& jitter);

class DeliveryBook {
  public:
    struct Options {
        std::uint32_t max_attempts = 5;
        Duration lease = seconds(30);
        std::size_t unsettled_count_max = UNSETTLED_COUNT_MAX;
    };
    enum class State : std::uint8_t { LEASED, READY, WAITING, FAILING, SETTLING };
    enum class Standing : std::uint8_t {
        UNTOUCHED,
        SETTLED,
        LEASED,
        READY,
        WAITING,
        FAILING,
        SETTLING
    };

    // After a restart: what was in flight is ready at once, what was in backoff waits all of it again.
    // DAMAGED when the parts leave a message out: it would never be delivered.
    static Result<DeliveryBook> restore(Options options, SettledSet settled,
                                        const std::vector<UnsettledImage>& unsettled, MonoTime now,
                                        Rng& jitter);

    Standing standing(Sequence sequence) const;
    // The lowest message to send again.
    std::optional<Sequence> next_ready() const;
    // The last of the run of ready messages that begins at first, at most count_max long.
    Sequence ready_run_end(Sequence first, std::uint64_t count_max) const;
    Sequence next_first() const { return next_first_; }
    // Contract C7: else only redeliveries flow.
    bool may_touch_more() const { return entries_.size() < options_.unsettled_count_max; }

    struct Sent {
        std::uint16_t attempt = 1;
        bool is_last = false;  // failing this one uses up the attempts
    };
    // sequence is READY or next_first.
    Sent deliver(Sequence sequence, DeliveryId delivery_id, std::uint32_t message_bytes,
                 MonoTime now);
    bool is_current_delivery(Sequence sequence, DeliveryId delivery_id) const;

    // What a state change set free; nullopt when the message was not in flight.
    using Freed = std::optional<std::uint32_t>;
    // Not settled, settling or untouched -> SETTLING. settle_flushed follows once the event is durable.
    Freed settle(Sequence sequence);
    void settle_flushed(Sequence sequence);

    struct Failed {
        Sequence sequence;
        std::uint16_t failures = 0;
        bool is_backing_off = false;
        std::uint32_t message_bytes = 0;
    };
    // LEASED -> FAILING; fail_flushed follows once the event is durable.
    Failed fail(Sequence sequence, bool with_backoff, MonoTime now, Rng& jitter);
    void fail_flushed(Sequence sequence, MonoTime now);

    // Renews the lease; sequence is LEASED. It counts as being in a handler from now on.
    void progress(Sequence sequence, MonoTime now);

    // What a lease expiry or the end of a member did. The failed ones are FAILING, the rest READY.
    struct Ended {
        std::vector<Failed> failed;
        std::vector<std::uint32_t> returned_bytes;  // one an uncounted return
    };
    // Leases and backoffs that are over.
    Ended expire(MonoTime now, Rng& jitter);
    // Ends all deliveries of the present owner. Clean: nothing fails.
    Ended release_owner(bool is_clean, MonoTime now, Rng& jitter);

    // The next lease or backoff that ends; NEVER without one.
    MonoTime next_deadline() const { return timers_.empty() ? NEVER : timers_.begin()->first; }
    bool has_ready() const { return !ready_.empty(); }

    const SettledSet& settled() const { return settled_; }
    std::uint64_t in_flight_count() const { return in_flight_count_; }
    std::uint64_t waiting_count() const { return timers_.size() - in_flight_count_; }
    std::uint64_t ready_count() const { return ready_.size(); }
    std::size_t unsettled_count() const { return entries_.size(); }
    std::vector<UnsettledImage> unsettled() const;
    // Adds everything up and stops the process when it does not fit; for tests.
    void check() const;

  private:
    struct Entry {
        MonoTime deadline;  // of the lease or the backoff
        DeliveryId delivery_id;
        std::uint32_t message_bytes = 0;
        std::uint32_t owner_count = 0;  // which owner it was delivered to last, see owner_count_
        std::uint16_t failures = 0;
        std::uint16_t deliveries = 0;
        State state = State::READY;
        bool is_in_handler = false;
        bool is_backing_off = false;
    };
    using Entries = std::map<Sequence, Entry>;

    DeliveryBook(Options options, SettledSet settled)
        : options_(options),
          settled_(std::move(settled)),
          next_first_(settled_.ack_floor().next()) {}
    void end_lease(Entries::iterator it);
    void make_ready(Entries::iterator it);
    Failed make_failing(Entries::iterator it, bool with_backoff, MonoTime now, Rng& jitter);
    void end_deliveries(const std::vector<Sequence>& sequences, bool may_fail, MonoTime now,
                        Rng& jitter, Ended& ended);
    Sequence lowest_of_owner() const;

    Options options_;
    SettledSet settled_;
    Entries entries_;
    std::set<Sequence> ready_;
    std::set<std::pair<MonoTime, Sequence>> timers_;  // LEASED and WAITING
    Sequence next_first_;
    std::uint64_t in_flight_count_ = 0;
    std::uint32_t owner_count_ = 1;
};

}  // namespace mortar
