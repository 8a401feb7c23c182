#include "core/deliver/redelivery.h"

#include <algorithm>
#include <limits>

#include "core/base/assert.h"

namespace mortar {
namespace {

template <class Number>
Number plus_one_saturating(Number value) {
    return value == std::numeric_limits<Number>::max() ? value : static_cast<Number>(value + 1);
}

}  // namespace

Duration backoff_after(std::uint32_t failures, std::uint32_t max_attempts, Rng& jitter) {
    MORTAR_ASSERT(failures > 0);
    if (failures >= max_attempts) return BACKOFF_MAX;
    constexpr std::uint32_t DOUBLINGS_MAX = 5;  // 32 s is over the limit already
    Duration delay = BACKOFF_FIRST;
    for (std::uint32_t i = 1; i < failures && i <= DOUBLINGS_MAX; ++i)
        delay = delay * 2;
    const std::int64_t extra_ns = jitter.between(0, delay.ns / 4);
    return std::min(delay + nanoseconds(extra_ns), BACKOFF_MAX);
}

Result<DeliveryBook> DeliveryBook::restore(Options options, SettledSet settled,
                                           const std::vector<UnsettledImage>& unsettled,
                                           MonoTime now, Rng& jitter) {
    DeliveryBook book(options, std::move(settled));
    Sequence highest = book.settled_.highest();
    for (const UnsettledImage& message : unsettled) {
        MORTAR_ASSERT(!book.settled_.contains(message.sequence));
        const auto [it, is_new] = book.entries_.emplace(message.sequence, Entry{});
        MORTAR_ASSERT(is_new);
        it->second.failures = message.failures;
        it->second.deliveries = message.deliveries;
        highest = std::max(highest, message.sequence);
        if (message.is_backing_off && message.failures > 0) {
            it->second.state = State::WAITING;
            it->second.is_backing_off = true;
            const Duration backoff = backoff_after(message.failures, options.max_attempts, jitter);
            it->second.deadline = now + backoff;
            book.timers_.emplace(it->second.deadline, message.sequence);
        } else {
            book.make_ready(it);
        }
    }
    const std::uint64_t span = sequence_distance(book.settled_.ack_floor(), highest);
    if (book.settled_.count_above_floor() + book.entries_.size() != span)
        return make_error(ErrorCode::DAMAGED,
                          "cursor and ledger leave out a message at or below sequence " +
                              std::to_string(highest.value));
    book.next_first_ = highest.next();
    return book;
}

DeliveryBook::Standing DeliveryBook::standing(Sequence sequence) const {
    if (sequence >= next_first_) return Standing::UNTOUCHED;
    const auto it = entries_.find(sequence);
    if (it == entries_.end()) return Standing::SETTLED;
    switch (it->second.state) {
        case State::LEASED:
            return Standing::LEASED;
        case State::READY:
            return Standing::READY;
        case State::WAITING:
            return Standing::WAITING;
        case State::FAILING:
            return Standing::FAILING;
        case State::SETTLING:
            return Standing::SETTLING;
    }
    MORTAR_UNREACHABLE();
}

std::optional<Sequence> DeliveryBook::next_ready() const {
    if (ready_.empty()) return std::nullopt;
    return *ready_.begin();
}

Sequence DeliveryBook::ready_run_end(Sequence first, std::uint64_t count_max) const {
    Sequence last = first;
    auto it = ready_.find(first);
    MORTAR_ASSERT(it != ready_.end());
    while (++it != ready_.end() && *it == last.next() && sequence_distance(first, *it) < count_max)
        last = *it;
    return last;
}

DeliveryBook::Sent DeliveryBook::deliver(Sequence sequence, DeliveryId delivery_id,
                                         std::uint32_t message_bytes, MonoTime now) {
    auto it = entries_.end();
    if (sequence == next_first_) {
        MORTAR_ASSERT(may_touch_more());
        it = entries_.emplace_hint(entries_.end(), sequence, Entry{});
        next_first_ = sequence.next();
    } else {
        it = entries_.find(sequence);
        MORTAR_ASSERT(it != entries_.end());
        MORTAR_ASSERT(it->second.state == State::READY);
        ready_.erase(sequence);
    }
    Entry& entry = it->second;
    entry.state = State::LEASED;
    entry.delivery_id = delivery_id;
    entry.message_bytes = message_bytes;
    entry.owner_count = owner_count_;
    entry.deliveries = plus_one_saturating(entry.deliveries);
    entry.is_in_handler = false;
    entry.is_backing_off = false;
    entry.deadline = now + options_.lease;
    timers_.emplace(entry.deadline, sequence);
    ++in_flight_count_;
    return Sent{entry.deliveries, entry.failures + 1u >= options_.max_attempts};
}

bool DeliveryBook::is_current_delivery(Sequence sequence, DeliveryId delivery_id) const {
    const auto it = entries_.find(sequence);
    return it != entries_.end() && it->second.state == State::LEASED &&
           it->second.delivery_id == delivery_id;
}

DeliveryBook::Freed DeliveryBook::settle(Sequence sequence) {
    const auto it = entries_.find(sequence);
    MORTAR_ASSERT(it != entries_.end());
    Entry& entry = it->second;
    MORTAR_ASSERT(entry.state != State::SETTLING);
    Freed freed;
    if (entry.state == State::LEASED) {
        end_lease(it);
        freed = entry.message_bytes;
    } else if (entry.state == State::WAITING) {
        timers_.erase({entry.deadline, sequence});
    } else if (entry.state == State::READY) {
        ready_.erase(sequence);
    }
    // A failure on its way to the disk is overtaken: acked wins over a retry limit (contract D1).
    entry.state = State::SETTLING;
    return freed;
}

void DeliveryBook::settle_flushed(Sequence sequence) {
    const auto it = entries_.find(sequence);
    MORTAR_ASSERT(it != entries_.end());
    MORTAR_ASSERT(it->second.state == State::SETTLING);
    entries_.erase(it);
    const bool is_new = settled_.add(sequence);
    MORTAR_ASSERT(is_new);
}

DeliveryBook::Failed DeliveryBook::fail(Sequence sequence, bool with_backoff, MonoTime now,
                                        Rng& jitter) {
    const auto it = entries_.find(sequence);
    MORTAR_ASSERT(it != entries_.end());
    return make_failing(it, with_backoff, now, jitter);
}

DeliveryBook::Failed DeliveryBook::make_failing(Entries::iterator it, bool with_backoff,
                                                MonoTime now, Rng& jitter) {
    Entry& entry = it->second;
    MORTAR_ASSERT(entry.state == State::LEASED);
    end_lease(it);
    entry.state = State::FAILING;
    entry.failures = plus_one_saturating(entry.failures);
    // Used-up attempts wait even after REQUEUE, else a poison message spins.
    entry.is_backing_off = with_backoff || entry.failures >= options_.max_attempts;
    if (entry.is_backing_off) {
        const Duration backoff = backoff_after(entry.failures, options_.max_attempts, jitter);
        entry.deadline = now + backoff;
    }
    return Failed{it->first, entry.failures, entry.is_backing_off, entry.message_bytes};
}

void DeliveryBook::fail_flushed(Sequence sequence, MonoTime now) {
    const auto it = entries_.find(sequence);
    // An ACK may have come in between.
    if (it == entries_.end() || it->second.state != State::FAILING) return;
    Entry& entry = it->second;
    if (entry.is_backing_off && entry.deadline > now) {
        entry.state = State::WAITING;
        timers_.emplace(entry.deadline, sequence);
    } else {
        make_ready(it);
    }
}

void DeliveryBook::progress(Sequence sequence, MonoTime now) {
    const auto it = entries_.find(sequence);
    MORTAR_ASSERT(it != entries_.end());
    Entry& entry = it->second;
    MORTAR_ASSERT(entry.state == State::LEASED);
    timers_.erase({entry.deadline, sequence});
    entry.deadline = now + options_.lease;
    timers_.emplace(entry.deadline, sequence);
    entry.is_in_handler = true;
}

DeliveryBook::Ended DeliveryBook::expire(MonoTime now, Rng& jitter) {
    Ended ended;
    std::vector<Sequence> expired;
    while (!timers_.empty() && timers_.begin()->first <= now) {
        const Sequence sequence = timers_.begin()->second;
        const auto it = entries_.find(sequence);
        MORTAR_ASSERT(it != entries_.end());
        if (it->second.state == State::WAITING) {
            timers_.erase(timers_.begin());
            make_ready(it);
            continue;
        }
        MORTAR_ASSERT(it->second.state == State::LEASED);
        // Out of the timers, so that the loop goes on; end_deliveries ends the lease.
        timers_.erase(timers_.begin());
        expired.push_back(sequence);
    }
    end_deliveries(expired, true, now, jitter, ended);
    return ended;
}

DeliveryBook::Ended DeliveryBook::release_owner(bool is_clean, MonoTime now, Rng& jitter) {
    Ended ended;
    std::vector<Sequence> leased;
    for (const auto& [deadline, sequence] : timers_) {
        if (entries_.at(sequence).state == State::LEASED) leased.push_back(sequence);
    }
    end_deliveries(leased, !is_clean, now, jitter, ended);
    ++owner_count_;
    return ended;
}

void DeliveryBook::end_deliveries(const std::vector<Sequence>& sequences, bool may_fail,
                                  MonoTime now, Rng& jitter, Ended& ended) {
    if (sequences.empty()) return;
    // Taken once, before any of these moves: one poison message must not drag its neighbours along (contract D3).
    const Sequence lowest = may_fail ? lowest_of_owner() : Sequence{};
    for (const Sequence sequence : sequences) {
        const auto it = entries_.find(sequence);
        Entry& entry = it->second;
        if (may_fail && (entry.is_in_handler || sequence == lowest)) {
            ended.failed.push_back(make_failing(it, true, now, jitter));
            continue;
        }
        end_lease(it);
        make_ready(it);
        ended.returned_bytes.push_back(entry.message_bytes);
    }
}

Sequence DeliveryBook::lowest_of_owner() const {
    for (const auto& [sequence, entry] : entries_) {
        if (entry.owner_count == owner_count_ && entry.state != State::SETTLING) return sequence;
    }
    return Sequence{};
}

void DeliveryBook::end_lease(Entries::iterator it) {
    timers_.erase({it->second.deadline, it->first});
    it->second.is_in_handler = false;
    MORTAR_ASSERT(in_flight_count_ > 0);
    --in_flight_count_;
}

void DeliveryBook::make_ready(Entries::iterator it) {
    it->second.state = State::READY;
    it->second.is_backing_off = false;
    ready_.insert(it->first);
}

std::vector<UnsettledImage> DeliveryBook::unsettled() const {
    std::vector<UnsettledImage> images;
    images.reserve(entries_.size());
    for (const auto& [sequence, entry] : entries_)
        images.push_back({sequence, entry.failures, entry.deliveries, entry.is_backing_off});
    return images;
}

void DeliveryBook::check() const {
    std::uint64_t leased = 0;
    std::uint64_t waiting = 0;
    std::uint64_t ready = 0;
    for (const auto& [sequence, entry] : entries_) {
        MORTAR_ASSERT(!settled_.contains(sequence));
        MORTAR_ASSERT(sequence < next_first_);
        const bool is_timed = timers_.contains({entry.deadline, sequence});
        MORTAR_ASSERT(ready_.contains(sequence) == (entry.state == State::READY));
        MORTAR_ASSERT(is_timed == (entry.state == State::LEASED || entry.state == State::WAITING));
        leased += entry.state == State::LEASED ? 1 : 0;
        waiting += entry.state == State::WAITING ? 1 : 0;
        ready += entry.state == State::READY ? 1 : 0;
    }
    MORTAR_ASSERT(leased == in_flight_count_);
    MORTAR_ASSERT(leased + waiting == timers_.size());
    MORTAR_ASSERT(ready == ready_.size());
    const std::uint64_t touched = sequence_distance(settled_.ack_floor(), next_first_) - 1;
    MORTAR_ASSERT(settled_.count_above_floor() + entries_.size() == touched);
}

}  // namespace mortar
