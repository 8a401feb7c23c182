// consumer: a member of a group that pulls messages, settles them, and stays a member across reconnects.
// Shape:    one subscription a session: SUB, then a PULL stays pending while there is free credit; NOTICEs are answered;
//           ACKs leave in batches (ACK_BATCH_*), at once when the application waits for messages. After a reconnect all is
//           negotiated anew. A message whose lease is over is dropped before the application sees it; the lease of one
//           that it holds is renewed by PROGRESS.
// Owns:     its Link; messages handed out belong to the caller.
// Errors:   next: TIMED_OUT; CONNECTION_CLOSED after close; the group's end for this member (UNKNOWN_TOPIC,
//           GROUP_EXISTS_MISMATCH, AUTH_FAILED, GROUP_MEMBER_LIMIT at the first SUB ..), the same at each call. ack_and_wait: CONNECTION_CLOSED
//           = unknown: the message may come again, and is then settled without the application.
// Suspends: next, ack_and_wait, close. ack and nack do not.
// Invariant: first deliveries of a partition come in the order of their sequences. What was acked here is not handed
//           out again by this consumer, also when the broker never heard of that ack.
// Source:   contract G3..G5, C1..C6, D1..D3, D7.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "core/client/admin.h"

namespace mortar::client {

inline constexpr std::size_t ACK_BATCH_COUNT = 32;
inline constexpr std::size_t ACK_BATCH_BYTES = 1024 * 1024;
inline constexpr Duration ACK_BATCH_WAIT = milliseconds(20);
inline constexpr Duration HEARTBEAT_AFTER = seconds(3);
// How long a revoked partition waits for the messages that the application holds; the broker expels after 10 s.
inline constexpr Duration REVOKE_GRACE = seconds(3);
// close waits so long for acks on their way.
inline constexpr Duration CLOSE_PATIENCE = seconds(3);
// Acks that the broker has not confirmed are remembered up to so many; the oldest positions go first.
inline constexpr std::size_t UNCONFIRMED_ACKS_MAX = 65'536;
inline constexpr std::uint32_t WINDOW_BYTES_MAX = 512 * 1024 * 1024;

struct ConsumerOptions {
    std::string topic;
    std::string group;
    wire::StartPolicy start_policy =
        wire::StartPolicy::EARLIEST;  // counts when the SUB creates the group
    std::uint16_t credit_count = 256;
    std::uint32_t credit_bytes = 2 * 1024 * 1024;
    std::uint16_t poll_wait_ms = 5000;
    // The broker's delivery_lease_ms.
    Duration lease = seconds(30);
    // Called when the broker refused to settle a message for good; it comes again. Must not suspend; may be null.
    std::function<void(PartitionIndex, Sequence, const Error&)> on_settle_refused = nullptr;
};

struct Message {
    TopicId topic_id;
    PartitionIndex partition;
    Sequence sequence;
    DeliveryId delivery_id;
    OwnershipEpoch ownership_epoch;
    std::uint16_t attempt = 1;
    bool is_last_attempt = false;  // failing this one dead-letters it
    bool is_replayed = false;
    ProducerId producer_id;
    ProducerSeq producer_seq;
    std::uint64_t session = 0;  // of the consumer, in which it was delivered
    std::string key;
    std::string value;
};

struct ConsumerStats {
    std::uint64_t received = 0;
    std::uint64_t handed_out = 0;
    std::uint64_t acked = 0;  // confirmed by the broker
    std::uint64_t nacked = 0;
    std::uint64_t dropped_expired = 0;  // lease over before the application saw it
    std::uint64_t settled_again =
        0;  // redelivered after an unconfirmed ack, settled without the application
    std::uint64_t subscriptions = 0;
};

class Consumer : private LinkHandler {
  public:
    Consumer(const ClientEnv& env, LinkOptions link, ConsumerOptions options);
    ~Consumer() override;

    void start();
    Result<Message> next(Fiber& fiber, MonoTime deadline = NEVER);
    // The message is done. Sent soon; lost only if the consumer dies first, then it comes again.
    void ack(const Message& message);
    // .. and the broker promised that the group never gets it again.
    Result<void> ack_and_wait(Fiber& fiber, const Message& message);
    void nack(const Message& message, wire::NackReason reason);
    // Settles what was acked, leaves the group, ends. Messages not settled go to other members at once, uncounted.
    void close(Fiber& fiber);

    Link& link() { return link_; }
    const ConsumerStats& stats() const { return stats_; }

  private:
    struct AckWaiter {
        Event answered;
        std::optional<Result<void>> result;
    };
    struct Delivery {
        enum class State : std::uint8_t { QUEUED, IN_HAND, SETTLING };
        State state = State::QUEUED;
        PartitionIndex partition;
        Sequence sequence;
        OwnershipEpoch ownership_epoch;
        std::size_t bytes = 0;
        MonoTime received_at;
        MonoTime progress_at;
        int refusal_count = 0;  // of its settlement
    };
    struct Settlement {
        DeliveryId delivery_id;
        bool is_nack = false;
        wire::NackReason reason = wire::NackReason::RETRY;
        std::shared_ptr<AckWaiter> waiter;
    };
    struct Revoke {
        wire::Notice notice;
        MonoTime deadline;
    };
    // Everything that ends with the session.
    struct Subscription {
        bool is_active = false;
        SubscriptionId subscription_id;
        MemberId member_id;
        MembershipEpoch membership_epoch;
        AssignmentEpoch assignment_epoch;
        std::map<PartitionIndex, OwnershipEpoch> owned;  // ASSIGN acked, REVOKE not
        std::map<PartitionIndex, Revoke> revoking;
        bool pull_pending = false;
        bool heartbeat_pending = false;
        MonoTime pull_not_before;
        std::map<DeliveryId, Delivery> unsettled;
        std::size_t unsettled_bytes = 0;
        std::vector<Settlement> batch;  // settled here, not sent
        std::size_t batch_bytes = 0;
        MonoTime batch_due = NEVER;
        MonoTime next_progress = NEVER;
        std::multimap<MonoTime, Settlement> refused;  // by when each is sent again
        std::size_t settling_count = 0;               // sent, not answered
    };

    void on_up() override;
    void on_down(const Error& why) override;
    void on_msg(const wire::Msg& msg) override;
    void on_notice(const wire::Notice& notice) override;

    void run(Fiber& fiber);
    Result<void> subscribe(Fiber& fiber);
    void on_subscribed(const wire::SubResult& result);
    void serve(Fiber& fiber);
    MonoTime do_due_work(MonoTime now);
    bool may_subscribe_later(ErrorCode code) const;
    void fail(Error why);

    bool has_free_credit() const;
    void pull();
    void on_pulled(const Result<ByteSpan>& answer);
    void grow_window();
    void heartbeat();
    void send_progress(MonoTime now);
    void finish_revokes(MonoTime now);
    bool is_held(PartitionIndex partition) const;
    void send_control_ack(const wire::Notice& notice, wire::ControlResult result);
    void drop_queued(PartitionIndex partition);

    void settle(const Message& message, Settlement settlement);
    void settle_queued_copy(const Message& message);
    void settle_again(DeliveryId delivery_id, Delivery& delivery);
    void add_to_batch(Settlement settlement, std::size_t bytes);
    bool batch_is_full() const;
    void flush_batch();
    void send_refused(MonoTime due);
    void send_settlement(const Settlement& settlement, const Delivery& delivery);
    void on_settled(const Settlement& settlement, Result<ByteSpan> answer);
    void confirm(const Settlement& settlement, const Delivery& delivery);
    void remember_ack(PartitionIndex partition, Sequence sequence);
    void erase_delivery(DeliveryId delivery_id);
    static void answer_waiter(const Settlement& settlement, Result<void> result);
    // An answer of an ended session must not touch the present one.
    Link::Answer in_session(std::function<void(Result<ByteSpan>)> then);

    ClientEnv env_;
    ConsumerOptions options_;
    Link link_;
    Group group_;
    bool started_ = false;
    bool closing_ = false;
    bool closed_ = false;
    std::optional<Error> fatal_;
    std::optional<TopicInfo> topic_;
    Subscription sub_;
    std::deque<Message> queue_;
    std::set<std::pair<PartitionIndex, Sequence>> unconfirmed_acks_;
    std::size_t waiting_count_ = 0;    // fibers in next
    int subscribe_failure_count_ = 0;  // in a row
    ConsumerStats stats_;
    Event messages_;
    Event work_;
    Event settled_;
};

}  // namespace mortar::client
