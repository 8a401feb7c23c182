// producer: publishes messages so that each is stored once and in order, across errors, reconnects and restarts.
// Shape:    the library chooses the partition (fnv1a32(key) % n, in turn for an empty key) and numbers messages per partition
//           (producer_seq), so a message sent again meets the same window in the broker and is stored once. A partition
//           has at most partition_window messages outstanding; after a failure it waits for the answers under way, then sends
//           everything from the first failure on, in order.
// Owns:     its Link, and copies of key and value until they are answered.
// Errors:   INVALID_ARGUMENT (key or value too large); the broker's final ones (UNKNOWN_TOPIC, SEQ_EXPIRED,
//           PRODUCER_SEQ_INVALID ..); TIMED_OUT after delivery_timeout: then the message may be stored, and while this
//           producer lives it still tries, so that later messages do not overtake it; CONNECTION_CLOSED by close.
// Suspends: publish, publish_async (while too much is buffered, or for the first message to a topic), flush, close.
// Invariant: a Callback is called exactly once, not from inside publish_async. In a partition, what is stored is in the
//           order of the publish_async calls.
// Source:   contract P1, P2, P3, P5, R2; wire protocol 2.1 (note 1).
#pragma once

#include <map>
#include <memory>

#include "core/client/admin.h"

namespace mortar::client {

inline constexpr std::size_t PARTITION_WINDOW_MAX = 1024;
inline constexpr Duration RETRY_BASE = milliseconds(20);
// After a long refusal writes go on within this: a majority that is back is not waited for twice.
inline constexpr Duration RETRY_MAX = milliseconds(500);

struct ProducerOptions {
    // Off: producer_id 0; a message whose outcome is unknown fails instead of being sent again.
    bool idempotent = true;
    Duration delivery_timeout = seconds(120);
    std::size_t partition_window = PARTITION_WINDOW_MAX;  // at most PARTITION_WINDOW_MAX
    std::size_t buffered_count_max = 16 * 1024;
    std::size_t buffered_bytes_max = 64 * 1024 * 1024;
};

struct Published {
    TopicId topic_id;
    PartitionIndex partition;
    Sequence sequence;
    wire::Durability durability = wire::Durability::LOCAL;
    LeaderEpoch leader_epoch;
    bool deduplicated = false;  // an earlier try had stored it
};

struct ProducerStats {
    std::uint64_t published = 0;
    std::uint64_t deduplicated = 0;
    std::uint64_t failed = 0;
    std::uint64_t resent = 0;
    std::size_t known_topics = 0;  // that are kept now
};

class Producer : private LinkHandler {
  public:
    // Must not suspend.
    using Callback = std::function<void(Result<Published>)>;

    Producer(const ClientEnv& env, LinkOptions link, ProducerOptions options = {});
    ~Producer() override;

    void start();
    Result<Published> publish(Fiber& fiber, std::string_view topic, std::string key,
                              std::string value);
    // OK: accepted, callback will be called. An error: callback is never called.
    Result<void> publish_async(Fiber& fiber, std::string_view topic, std::string key,
                               std::string value, Callback callback);
    // Waits until every message accepted so far was answered. TIMED_OUT.
    Result<void> flush(Fiber& fiber, MonoTime deadline = NEVER);
    // Answers what is left with CONNECTION_CLOSED; flush first to wait for it. Idempotent.
    void close(Fiber& fiber);

    Link& link() { return link_; }
    ProducerStats stats() const {
        ProducerStats stats = stats_;
        stats.known_topics = topics_.size();
        return stats;
    }
    std::size_t unresolved_count() const { return unresolved_count_; }

  private:
    enum class State : std::uint8_t {
        QUEUED,  // not under way; sent before or not
        SENT,    // its answer is awaited
        DONE,    // settled, kept only until all in front of it are
    };
    struct Entry {
        std::uint64_t number = 0;  // place in the partition's queue; without gaps
        ProducerSeq seq;           // set when first sent
        bool ever_sent = false;
        bool maybe_stored = false;  // a try ended with an unknown outcome
        State state = State::QUEUED;
        std::string key;
        std::shared_ptr<const std::string> value;
        Callback callback;  // may be null
        bool resolved =
            false;  // the caller knows; when it timed out, the message may still be under way
        MonoTime deadline;
        std::size_t bytes() const { return key.size() + value->size(); }
    };
    // What the answers under way decide before the partition goes on.
    enum class Reset : std::uint8_t {
        NONE,
        RENUMBER,  // a message was refused: those behind it are not stored and take new numbers
        FORGOTTEN,  // nobody knows what is stored: what was ever sent fails, as its outcome is unknown
        ALL_REFUSED,  // the partition takes nothing: all that wait fail with reset_error
    };
    struct Partition {
        PartitionKey key;
        ProducerId producer_id;
        ProducerSeq next_seq{1};
        std::deque<Entry> entries;
        std::size_t next_index = 0;  // the first that this round has not sent
        std::size_t unanswered = 0;
        bool draining = false;  // a failure happened: no sends until unanswered is 0
        bool back_off = false;  // .. and then only after a pause
        Reset reset = Reset::NONE;
        std::optional<Error> reset_error;
        int failure_count = 0;
        MonoTime retry_at;
    };
    struct Topic {
        std::string name;
        TopicInfo info;
        std::uint16_t next_partition = 0;
        std::vector<Partition> partitions;
        bool is_forgotten = false;  // goes once nothing of it waits for an answer
    };

    void on_up() override;

    Result<void> check_sizes(std::string_view key, std::string_view value) const;
    Result<Topic*> resolve(Fiber& fiber, std::string_view name, MonoTime deadline);
    Topic* add_topic(std::string_view name, const TopicInfo& info);
    Result<void> wait_for_space(Fiber& fiber, std::size_t bytes, MonoTime deadline);
    static std::size_t choose_partition(Topic& topic, std::string_view key);
    void enqueue(Partition& partition, std::string key, std::string value, MonoTime deadline,
                 Callback callback);
    void pump(Partition& partition);
    void send_entry(Partition& partition, Entry& entry);
    void on_answer(Partition& partition, std::uint64_t number, Result<ByteSpan> answer);
    void on_failure(Partition& partition, Entry& entry, Error error);
    bool should_retry(const Partition& partition, const Entry& entry, const Error& error) const;
    static bool is_first_unsettled(const Partition& partition, const Entry& entry);
    void settle(Entry& entry, Result<Published> result);
    void resolve_entry(Entry& entry, Result<Published> result);
    void pop_done(Partition& partition);
    void recover(Partition& partition);
    void apply_reset(Partition& partition);
    Duration retry_delay(int failure_count);
    void tend(Fiber& fiber);
    MonoTime tend_partition(Partition& partition, MonoTime now);
    void expire(Partition& partition, MonoTime now);
    void wake_tender_at(MonoTime when);
    void forget_topic(TopicId topic_id);
    void drop_forgotten();
    ProducerId new_producer_id();

    ClientEnv env_;
    ProducerOptions options_;
    Rng rng_;
    Link link_;
    Group group_;
    bool started_ = false;
    bool closed_ = false;

    std::vector<std::unique_ptr<Topic>> topics_;  // answers refer to their partitions
    std::size_t forgotten_count_ = 0;             // of topics_
    std::map<std::string, Topic*, std::less<>> topic_by_name_;
    std::size_t buffered_count_ = 0;
    std::size_t buffered_bytes_ = 0;
    std::size_t unresolved_count_ = 0;  // entries whose callback is still to be called
    ProducerStats stats_;
    MonoTime next_tend_ = NEVER;
    Event tend_changed_;
    Event space_;
    Event resolved_;
};

}  // namespace mortar::client
