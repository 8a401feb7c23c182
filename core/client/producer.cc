#include "core/client/producer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/hash.h"
#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar::client {

namespace {

// Refusals that every message to this partition meets.
bool is_about_partition(ErrorCode code) {
    return code == ErrorCode::UNKNOWN_TOPIC || code == ErrorCode::UNKNOWN_PARTITION ||
           code == ErrorCode::INVALID_TOPIC || code == ErrorCode::METADATA_QUARANTINED ||
           code == ErrorCode::DIVERGENT_COMMITTED;
}

}  // namespace

Producer::Producer(const ClientEnv& env, LinkOptions link, ProducerOptions options)
    : env_(env),
      options_(options),
      rng_(env.rng.stream(link.rng_name + ".producer")),
      link_(env, std::move(link), this),
      group_(env.scheduler) {
    MORTAR_ASSERT(options_.partition_window > 0);
    MORTAR_ASSERT(options_.partition_window <= PARTITION_WINDOW_MAX);
}

Producer::~Producer() = default;

void Producer::start() {
    MORTAR_ASSERT(!started_);
    started_ = true;
    link_.start();
    group_.spawn("client.producer.tend", [this](Fiber& fiber) { tend(fiber); });
}

Result<Published> Producer::publish(Fiber& fiber, std::string_view topic, std::string key,
                                    std::string value) {
    struct Waiting {
        Event answered;
        std::optional<Result<Published>> result;
    };
    auto waiting = std::make_shared<Waiting>();
    MORTAR_TRY(publish_async(fiber, topic, std::move(key), std::move(value),
                             [waiting](Result<Published> result) {
                                 waiting->result = std::move(result);
                                 waiting->answered.notify_all();
                             }));
    while (!waiting->result)
        MORTAR_TRY(waiting->answered.wait(fiber));
    return std::move(*waiting->result);
}

Result<void> Producer::publish_async(Fiber& fiber, std::string_view topic_name, std::string key,
                                     std::string value, Callback callback) {
    MORTAR_TRY(check_sizes(key, value));
    const MonoTime deadline = deadline_after(env_.clock, options_.delivery_timeout);
    MORTAR_TRY(wait_for_space(fiber, key.size() + value.size(), deadline));
    Topic* topic = MORTAR_TRY(resolve(fiber, topic_name, deadline));
    if (closed_) return make_error(ErrorCode::CONNECTION_CLOSED, "the producer was closed");
    Partition& partition = topic->partitions[choose_partition(*topic, key)];
    enqueue(partition, std::move(key), std::move(value), deadline, std::move(callback));
    pump(partition);
    return {};
}

// contract P5; covers SIZ-05.
Result<void> Producer::check_sizes(std::string_view key, std::string_view value) const {
    if (key.size() > wire::MAX_KEY_LEN) {
        return make_error(
            ErrorCode::INVALID_ARGUMENT,
            fmt::format(
                "the key has {} bytes, at most {} are possible: shorten it, or put it in the "
                "value and use its hash as the key",
                key.size(), wire::MAX_KEY_LEN));
    }
    if (value.size() > wire::MAX_VALUE_LEN) {
        return make_error(
            ErrorCode::INVALID_ARGUMENT,
            fmt::format("the value has {} bytes, at most {} are possible: split it, or store it "
                        "elsewhere and publish its address",
                        value.size(), wire::MAX_VALUE_LEN));
    }
    return {};
}

Result<Producer::Topic*> Producer::resolve(Fiber& fiber, std::string_view name, MonoTime deadline) {
    if (const auto known = topic_by_name_.find(name); known != topic_by_name_.end())
        return known->second;
    const TopicInfo info = MORTAR_TRY(lookup_topic(fiber, env_, link_, name, deadline));
    if (info.partition_count == 0) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          "the broker answered with a topic of no partitions");
    }
    // Another fiber may have asked at the same time; one of the two answers is enough.
    if (const auto known = topic_by_name_.find(name); known != topic_by_name_.end())
        return known->second;
    return add_topic(name, info);
}

Producer::Topic* Producer::add_topic(std::string_view name, const TopicInfo& info) {
    auto topic = std::make_unique<Topic>();
    topic->name = name;
    topic->info = info;
    topic->partitions.resize(info.partition_count);
    // Elsewhere than partition 0 first: many short-lived producers must not all begin there.
    topic->next_partition = static_cast<std::uint16_t>(rng_.below(info.partition_count));
    const ProducerId producer_id = new_producer_id();
    for (std::uint16_t index = 0; index < info.partition_count; ++index) {
        topic->partitions[index].key = {info.topic_id, PartitionIndex(index)};
        topic->partitions[index].producer_id = producer_id;
    }
    topics_.push_back(std::move(topic));
    topic_by_name_[std::string(name)] = topics_.back().get();
    return topics_.back().get();
}

ProducerId Producer::new_producer_id() {
    if (!options_.idempotent) return ProducerId(0);
    ProducerId id(rng_.next());
    while (id.value == 0)
        id = ProducerId(rng_.next());
    return id;
}

Result<void> Producer::wait_for_space(Fiber& fiber, std::size_t bytes, MonoTime deadline) {
    // One message always fits, however large.
    while (!closed_ && buffered_count_ > 0 &&
           (buffered_count_ >= options_.buffered_count_max ||
            buffered_bytes_ + bytes > options_.buffered_bytes_max)) {
        Result<void> waited = space_.wait(fiber, deadline);
        if (waited.is(ErrorCode::TIMED_OUT)) {
            return make_error(
                ErrorCode::TIMED_OUT,
                fmt::format("{} messages wait for the broker already; {}", buffered_count_,
                            link_.is_up() ? "it is too slow" : "it cannot be reached"));
        }
        MORTAR_TRY(std::move(waited));
    }
    if (closed_) return make_error(ErrorCode::CONNECTION_CLOSED, "the producer was closed");
    return {};
}

// contract P1
std::size_t Producer::choose_partition(Topic& topic, std::string_view key) {
    if (!key.empty()) return fnv1a32(as_byte_span(key)) % topic.partitions.size();
    const std::size_t chosen = topic.next_partition;
    topic.next_partition = static_cast<std::uint16_t>((chosen + 1) % topic.partitions.size());
    return chosen;
}

void Producer::enqueue(Partition& partition, std::string key, std::string value, MonoTime deadline,
                       Callback callback) {
    Entry entry;
    entry.number = partition.entries.empty() ? 1 : partition.entries.back().number + 1;
    entry.key = std::move(key);
    entry.value = std::make_shared<const std::string>(std::move(value));
    entry.callback = std::move(callback);
    entry.deadline = deadline;
    ++buffered_count_;
    buffered_bytes_ += entry.bytes();
    ++unresolved_count_;
    const bool was_empty = partition.entries.empty();
    partition.entries.push_back(std::move(entry));
    if (was_empty) wake_tender_at(deadline);
}

// Sends what may go: in order, while the window has room.
void Producer::pump(Partition& partition) {
    if (!link_.is_up() || partition.draining || env_.clock.now() < partition.retry_at) return;
    while (partition.next_index < partition.entries.size()) {
        Entry& entry = partition.entries[partition.next_index];
        if (entry.number - partition.entries.front().number >= options_.partition_window) return;
        if (entry.state == State::QUEUED) send_entry(partition, entry);
        ++partition.next_index;
    }
}

void Producer::send_entry(Partition& partition, Entry& entry) {
    if (entry.ever_sent) {
        ++stats_.resent;
    } else {
        entry.ever_sent = true;
        if (options_.idempotent) {
            entry.seq = partition.next_seq;
            partition.next_seq = partition.next_seq.next();
        }
    }
    wire::Pub pub;
    pub.topic_id = partition.key.topic_id;
    pub.partition = partition.key.partition;
    pub.producer_id = partition.producer_id;
    pub.producer_seq = entry.seq;
    pub.key = as_byte_span(entry.key);
    pub.value = as_byte_span(*entry.value);
    ByteVector head;
    wire::encode_head(head, pub);
    entry.state = State::SENT;
    ++partition.unanswered;
    const std::uint64_t number = entry.number;
    link_.send(wire::Op::PUB, std::move(head),
               [this, &partition, number](Result<ByteSpan> answer) {
                   on_answer(partition, number, std::move(answer));
               },
               {entry.value, pub.value});
}

void Producer::on_answer(Partition& partition, std::uint64_t number, Result<ByteSpan> answer) {
    MORTAR_ASSERT(partition.unanswered > 0);
    --partition.unanswered;
    // Only settled entries leave the queue, and this one was under way.
    MORTAR_ASSERT(!partition.entries.empty() && number >= partition.entries.front().number);
    Entry& entry = partition.entries[number - partition.entries.front().number];
    MORTAR_ASSERT(entry.state == State::SENT);
    if (answer.ok()) {
        Result<wire::PubResult> result = wire::decode_pub_result(*answer);
        if (result.ok()) {
            const bool deduplicated = (result->result_flags & wire::RESULT_FLAG_DEDUPLICATED) != 0;
            partition.failure_count = 0;
            settle(entry,
                   Published{partition.key.topic_id, partition.key.partition, result->sequence,
                             result->durability, result->leader_epoch, deduplicated});
        } else {
            // Nothing that this broker says can be trusted; a new session asks again.
            link_.restart(result.error());
            on_failure(partition, entry,
                       make_error(ErrorCode::CONNECTION_CLOSED, "unreadable answer"));
        }
    } else {
        on_failure(partition, entry, std::move(answer).error());
    }
    pop_done(partition);
    if (!partition.draining) {
        pump(partition);
    } else if (partition.unanswered == 0) {
        recover(partition);
    }
    drop_forgotten();
}

void Producer::on_failure(Partition& partition, Entry& entry, Error error) {
    // What ended the session has the link's backoff: at the next leader nothing waits.
    const bool session_goes_on = !is_local(error.code) && link_.is_up();
    if (session_goes_on && partition.reset == Reset::NONE) partition.back_off = true;
    partition.draining = true;
    if (should_retry(partition, entry, error)) {
        if (error_info(error.code).outcome == ErrorOutcome::UNKNOWN) entry.maybe_stored = true;
        entry.state = State::QUEUED;
        return;
    }
    partition.failure_count = 0;
    partition.back_off = false;
    if (error.code == ErrorCode::UNKNOWN_TOPIC) forget_topic(partition.key.topic_id);
    if (is_about_partition(error.code)) {
        partition.reset = Reset::ALL_REFUSED;
        partition.reset_error = error;
    } else {
        // What stands behind a message that never got in is not stored either. Else nobody knows.
        const bool forgotten =
            error.code == ErrorCode::SEQ_EXPIRED || error.code == ErrorCode::PRODUCER_SEQ_INVALID;
        partition.reset = forgotten || entry.maybe_stored ? Reset::FORGOTTEN : Reset::RENUMBER;
    }
    settle(entry, std::move(error));
}

bool Producer::should_retry(const Partition& partition, const Entry& entry,
                            const Error& error) const {
    if (closed_) return false;
    const ErrorInfo& info = error_info(error.code);
    const bool outcome_unknown = info.outcome == ErrorOutcome::UNKNOWN;
    if (outcome_unknown && !options_.idempotent) return false;
    if (error.code == ErrorCode::CONNECTION_CLOSED) return true;
    // Judged in order: what is refused behind a message that is not settled was refused because of that one (SEQ_GAP, or
    // SEQ_EXPIRED when that was the producer's first), or will be refused again when its turn comes.
    if (options_.idempotent &&
        (partition.reset != Reset::NONE || !is_first_unsettled(partition, entry)))
        return true;
    if (error.code == ErrorCode::SEQ_GAP) return false;
    return info.retryable;
}

bool Producer::is_first_unsettled(const Partition& partition, const Entry& entry) {
    const auto first = std::find_if(partition.entries.begin(), partition.entries.end(),
                                    [](const Entry& e) { return e.state != State::DONE; });
    return first->number == entry.number;
}

void Producer::settle(Entry& entry, Result<Published> result) {
    MORTAR_ASSERT(entry.state != State::DONE);
    entry.state = State::DONE;
    MORTAR_ASSERT(buffered_count_ > 0);
    --buffered_count_;
    buffered_bytes_ -= entry.bytes();
    entry.value = std::make_shared<const std::string>();
    entry.key.clear();
    resolve_entry(entry, std::move(result));
    space_.notify_all();
}

void Producer::resolve_entry(Entry& entry, Result<Published> result) {
    if (std::exchange(entry.resolved, true)) return;
    Callback callback = std::exchange(entry.callback, nullptr);
    if (result.ok()) {
        ++stats_.published;
        if (result->deduplicated) ++stats_.deduplicated;
    } else {
        ++stats_.failed;
    }
    --unresolved_count_;
    if (callback) callback(std::move(result));
    if (unresolved_count_ == 0) resolved_.notify_all();
}

void Producer::pop_done(Partition& partition) {
    while (!partition.entries.empty() && partition.entries.front().state == State::DONE) {
        partition.entries.pop_front();
        if (partition.next_index > 0) --partition.next_index;
    }
}

// All answers of the round are in: go on from the first message that is not settled.
void Producer::recover(Partition& partition) {
    apply_reset(partition);
    partition.draining = false;
    partition.next_index = 0;
    if (std::exchange(partition.back_off, false)) {
        partition.retry_at = deadline_after(env_.clock, retry_delay(partition.failure_count));
        ++partition.failure_count;
        wake_tender_at(partition.retry_at);
        return;
    }
    pump(partition);
}

void Producer::apply_reset(Partition& partition) {
    const Reset reset = std::exchange(partition.reset, Reset::NONE);
    if (reset == Reset::NONE) return;
    for (Entry& entry : partition.entries) {
        if (entry.state == State::DONE) continue;
        if (reset == Reset::ALL_REFUSED) {
            settle(entry, *partition.reset_error);
            continue;
        }
        if (reset == Reset::FORGOTTEN && entry.ever_sent) {
            settle(
                entry,
                make_error(
                    ErrorCode::SEQ_EXPIRED,
                    "the broker no longer knows whether it stored this message: publish it again "
                    "only if a second copy does no harm"));
            continue;
        }
        entry.ever_sent = false;
        entry.maybe_stored = false;
        entry.seq = ProducerSeq(0);
    }
    // A new id begins a new window at 1; the old one may still be met by a frame that is late.
    partition.producer_id = new_producer_id();
    partition.next_seq = ProducerSeq(1);
    pop_done(partition);
}

Duration Producer::retry_delay(int failure_count) {
    constexpr int DOUBLINGS_MAX = 5;  // 20 ms x 2^5 is above RETRY_MAX already
    const Duration base = std::min(
        RETRY_BASE * (std::int64_t{1} << std::min(failure_count, DOUBLINGS_MAX)), RETRY_MAX);
    return base / 2 + nanoseconds(rng_.between(0, base.ns / 2));
}

void Producer::on_up() {
    for (const std::unique_ptr<Topic>& topic : topics_) {
        for (Partition& partition : topic->partitions)
            pump(partition);
    }
}

// Pauses that are over, and messages whose time is up. Sleeps until the next of these.
void Producer::tend(Fiber& fiber) {
    while (true) {
        Result<void> waited = tend_changed_.wait(fiber, next_tend_);
        if (!waited.ok() && !waited.is(ErrorCode::TIMED_OUT)) return;
        const MonoTime now = env_.clock.now();
        if (now < next_tend_) continue;
        next_tend_ = NEVER;
        for (const std::unique_ptr<Topic>& topic : topics_) {
            for (Partition& partition : topic->partitions) {
                const MonoTime next = tend_partition(partition, now);
                next_tend_ = std::min(next_tend_, next);
            }
        }
        drop_forgotten();
    }
}

MonoTime Producer::tend_partition(Partition& partition, MonoTime now) {
    if (partition.entries.empty()) return NEVER;
    expire(partition, now);
    pump(partition);
    MonoTime next = partition.retry_at > now ? partition.retry_at : NEVER;
    for (const Entry& entry : partition.entries) {
        if (entry.state == State::DONE || entry.resolved) continue;
        next = std::min(next, entry.deadline);
        break;
    }
    return next;
}

void Producer::expire(Partition& partition, MonoTime now) {
    for (Entry& entry : partition.entries) {
        if (entry.deadline > now) break;
        if (entry.state == State::DONE || entry.resolved) continue;
        const std::string reason = link_.is_up()
                                       ? "the broker did not accept it"
                                       : "the broker cannot be reached: tried " + link_.tried();
        if (entry.ever_sent) {
            resolve_entry(
                entry,
                make_error(ErrorCode::TIMED_OUT,
                           reason + "; it may be stored all the same, or still be when the broker "
                                    "is back"));
        } else {
            settle(entry, make_error(ErrorCode::TIMED_OUT, reason + "; it was never sent"));
        }
    }
    pop_done(partition);
}

void Producer::wake_tender_at(MonoTime when) {
    if (when >= next_tend_) return;
    next_tend_ = when;
    tend_changed_.notify_one();
}

// The next publish under this name looks the topic up again: it may have been created anew.
void Producer::forget_topic(TopicId topic_id) {
    std::erase_if(topic_by_name_,
                  [&](const auto& item) { return item.second->info.topic_id == topic_id; });
    for (const std::unique_ptr<Topic>& topic : topics_) {
        if (topic->info.topic_id != topic_id || topic->is_forgotten) continue;
        topic->is_forgotten = true;
        ++forgotten_count_;
    }
}

void Producer::drop_forgotten() {
    if (forgotten_count_ == 0) return;
    const auto is_idle = [](const Partition& partition) {
        return partition.unanswered == 0 && partition.entries.empty();
    };
    forgotten_count_ -= std::erase_if(topics_, [&](const std::unique_ptr<Topic>& topic) {
        return topic->is_forgotten &&
               std::all_of(topic->partitions.begin(), topic->partitions.end(), is_idle);
    });
}

Result<void> Producer::flush(Fiber& fiber, MonoTime deadline) {
    while (unresolved_count_ > 0) {
        Result<void> waited = resolved_.wait(fiber, deadline);
        if (waited.is(ErrorCode::TIMED_OUT)) {
            return make_error(ErrorCode::TIMED_OUT,
                              fmt::format("{} messages are not answered yet", unresolved_count_));
        }
        MORTAR_TRY(std::move(waited));
    }
    return {};
}

void Producer::close(Fiber& fiber) {
    closed_ = true;
    group_.cancel_and_join(fiber);
    link_.close(fiber);
    for (const std::unique_ptr<Topic>& topic : topics_) {
        for (Partition& partition : topic->partitions) {
            for (Entry& entry : partition.entries) {
                if (entry.state == State::DONE) continue;
                settle(entry,
                       make_error(ErrorCode::CONNECTION_CLOSED,
                                  entry.ever_sent ? "the producer was closed; it may be stored"
                                                  : "the producer was closed; it was never sent"));
            }
            partition.entries.clear();
            partition.next_index = 0;
        }
    }
    space_.notify_all();
    resolved_.notify_all();
}

}  // namespace mortar::client
