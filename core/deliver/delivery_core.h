// delivery_core: the parts behind Delivery and how they hang together: groups, their member, PULLs that wait.
// Shape:     a GroupConsumer is one member with its subscription; at most one a group in this version. The handlers stand in
//            subscribe.cc (SUB, HEARTBEAT, CONTROL_ACK, leaving), pull.cc (PULL, dispatch) and settle.cc (ACK, NACK, CREDIT).
//            A PULL has a fiber only while there is something to look at or to send; while it waits, it is a timer and a
//            place that GroupConsumer::wake_pull knows.
// Owns:      all of it. Fibers hold consumers and groups by shared_ptr and re-check them after every suspension.
// Errors:    of a request, through its Reply: METADATA_QUARANTINED (SUB, before anything else), UNKNOWN_TOPIC,
//            UNKNOWN_PARTITION, INVALID_TOPIC, GROUP_EXISTS_MISMATCH, GROUP_MEMBER_LIMIT, QUOTA_EXCEEDED, DIVERGENT_COMMITTED,
//            STALE_GENERATION, NOT_OWNER, STALE_OWNER, UNKNOWN_MEMBER, MAX_WAITING_PULLS, MESSAGE_EXCEEDS_CREDIT, NO_CREDIT,
//            what MetadataLog::propose and group_partition.h say. Nobody is answered once a fiber is CANCELLED: the node stops.
// Suspends:  what takes Fiber&.
// Invariant: a GroupConsumer with `ended` set owns nothing, and nothing is pushed for it any more.
// Source:    contract G, C, D points; design 5.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/deliver/credit.h"
#include "core/deliver/delivery.h"
#include "core/deliver/group_partition.h"
#include "core/deliver/timers.h"
#include "core/fiber/group.h"
#include "core/group/membership.h"
#include "core/group/ownership.h"

namespace mortar {

inline constexpr std::size_t WAITING_PULL_COUNT_MAX = 64;      // a connection
inline constexpr std::size_t SUBSCRIPTION_COUNT_MAX = 65'535;  // a node; 0 is never given
// Nothing more is pushed while this much waits for the socket; one message may go beyond it.
inline constexpr std::size_t DISPATCH_OUTBOX_BYTES_MAX = 1u << 20;
inline constexpr std::uint64_t DISPATCH_READ_BYTES = 256u << 10;
inline constexpr std::uint64_t REDELIVERY_RUN_COUNT_MAX = 64;  // neighbours that are read together
// Contract R2: every request is answered in 2 s; before the session does that by its clock.
inline constexpr Duration LEAVE_WAIT_MAX = milliseconds(1'900);
inline constexpr Duration LEAVE_RETRY_DELAY = seconds(1);
inline constexpr Duration READ_RETRY_DELAY = seconds(1);
inline constexpr unsigned DELIVERY_COUNTER_BITS = 40;

enum class EndReason : std::uint8_t {
    LEFT,
    CLOSED,
    EXPELLED,
    GROUP_DELETED,
    TOPIC_DELETED,
    STOPPING
};

class DeliveryCore;
struct GroupConsumer;
struct PullRun;

struct LiveGroup {
    GroupId group_id;
    TopicId topic_id;
    std::vector<std::unique_ptr<GroupPartition>> partitions;
    std::shared_ptr<GroupConsumer> consumer;
    bool is_open = false;
    bool is_joining = false;
    bool is_removed = false;
    std::size_t leaving_count = 0;   // MembersLeft not committed yet
    std::size_t dispatch_count = 0;  // fibers that may be reading partitions
    Event changed;
};

struct SessionSubscriptions {
    explicit SessionSubscriptions(Outbox& o) : outbox(o) {}
    Outbox& outbox;  // not touched once is_closed
    bool is_closed = false;
    std::map<SubscriptionId, std::shared_ptr<GroupConsumer>> consumers;
    std::map<NoticeId, std::shared_ptr<GroupConsumer>> notices;  // not confirmed yet
    std::set<SubscriptionId> topic_deleted;                      // answered UNKNOWN_TOPIC
    std::deque<PullRun*> pulls;  // in order of arrival; owned by the core
};

struct GroupConsumer : PartitionOwner {
    GroupConsumer(DeliveryCore& delivery, std::shared_ptr<LiveGroup> group_state,
                  std::shared_ptr<SessionSubscriptions> session_subscriptions, SubscriptionId id,
                  const Membership& member, const CreditWindow& window);
    void on_freed(std::uint32_t message_bytes) override;
    void on_ready(PartitionIndex partition) override;

    // Candidates, credit, ended or the PULL's end_requested changed.
    void wake_pull();

    DeliveryCore& core;
    std::shared_ptr<LiveGroup> group;
    std::shared_ptr<SessionSubscriptions> session;
    SubscriptionId subscription_id;
    Membership membership;
    MemberOwnership ownership;
    CreditWindow credit;
    std::set<PartitionIndex> candidates;  // partitions that may have something to send
    PartitionIndex first_partition;       // where the next PULL starts looking
    PullRun* pull = nullptr;              // owned by the core
    std::optional<EndReason> ended;
    Timer expiry;
    std::set<PartitionIndex> unread;  // candidates that the disk did not let read
    Timer reread;
};

struct PullRun : std::enable_shared_from_this<PullRun> {
    PullRun(DeliveryCore& core, std::shared_ptr<GroupConsumer> member);

    std::shared_ptr<GroupConsumer> consumer;
    bool has_fiber = false;  // or its turn for one will come
    Timer timer;             // for deadline, while it has none
    Reply reply;
    std::uint32_t max_msgs = 0;  // 0 = credit alone
    std::uint32_t max_bytes = 0;
    std::uint32_t min_bytes = 0;  // capped by max_bytes and the free credit
    MonoTime deadline;
    bool end_requested = false;
    std::uint32_t sent_count = 0;
    std::uint64_t sent_bytes = 0;
    // What the last look over the partitions met.
    bool is_full = false;  // max_msgs or max_bytes reached
    bool has_no_credit = false;
    bool exceeds_window = false;
};

class DeliveryCore final : public Delivery {
  public:
    DeliveryCore(Env& env, MetadataLog& metadata, PartitionTable& partitions,
                 DeliveryOptions options);

    ~DeliveryCore() override;
    DeliveryCore(const DeliveryCore&) = delete;
    DeliveryCore& operator=(const DeliveryCore&) = delete;

    Result<void> start(Fiber& fiber);
    TimerQueue& timers() { return timers_; }

    void handle_sub(Fiber& fiber, Session& session, const wire::Sub& sub, Reply reply) override;
    void handle_pull(Session& session, const wire::Pull& pull, Reply reply) override;
    void handle_ack(Session& session, const wire::Ack& ack, Reply reply) override;
    void handle_nack(Session& session, const wire::Nack& nack, Reply reply) override;
    void handle_heartbeat(Fiber& fiber, Session& session, const wire::Heartbeat& heartbeat,
                          Reply reply) override;
    void handle_control_ack(Session& session, const wire::ControlAck& control_ack,
                            Reply reply) override;
    void handle_credit(Session& session, const wire::Credit& credit, Reply reply) override;
    void on_other_frame(Session& session) override;
    void on_session_closed(Session& session) override;
    void end_group(GroupId group_id) override;
    Result<void> remove_group(Fiber& fiber, GroupId group_id) override;
    std::vector<PartitionState> group_state(GroupId group_id) const override;
    std::size_t unserved_count() const override;
    void stop() override;
    Result<void> close(Fiber& fiber) override;

    // Of a GroupConsumer's expiry timer.
    void on_consumer_timer(GroupConsumer& consumer);
    // Looks whether this PULL can go on or end, in a fiber.
    void advance(PullRun& run);

  private:
    // subscribe.cc
    struct SubRequest {
        std::string group;
        TopicId topic_id;
        wire::StartPolicy start_policy;
        std::uint16_t credit_count;
        std::uint32_t credit_bytes;
    };
    Result<std::shared_ptr<GroupConsumer>> join(
        Fiber& fiber, const std::shared_ptr<SessionSubscriptions>& subscriptions,
        const SubRequest& request);
    Result<void> create_group(Fiber& fiber, const SubRequest& request);
    Result<MutationBody> make_group(const Catalog& catalog, const SubRequest& request);
    Result<std::shared_ptr<LiveGroup>> open_group(Fiber& fiber, GroupId group_id);
    Result<void> wait_for_leavers(Fiber& fiber, LiveGroup& group);
    Result<SubscriptionId> take_subscription_id();
    ByteVector assign_all(const std::shared_ptr<GroupConsumer>& consumer,
                          const ConsumerGroup& group);
    void end_consumer(std::shared_ptr<GroupConsumer> consumer, EndReason reason);
    void start_leaving(const std::shared_ptr<LiveGroup>& group, MemberId member_id);
    Result<void> commit_left(Fiber& fiber, GroupId group_id, const std::vector<MemberId>& left);
    // Of this connection; UNKNOWN_MEMBER, or UNKNOWN_TOPIC when that is why it ended.
    Result<std::shared_ptr<GroupConsumer>> find_consumer(const Session& session,
                                                         SubscriptionId subscription_id) const;
    Result<std::shared_ptr<GroupConsumer>> find_member(const Session& session,
                                                       SubscriptionId subscription_id,
                                                       MemberId member_id) const;
    void on_heard(GroupConsumer& consumer);
    void arm_expiry(GroupConsumer& consumer);

    // pull.cc
    Result<std::shared_ptr<PullRun>> accept_pull(const Session& session, const wire::Pull& pull);
    void request_end(PullRun& run);
    void end_pulls_before(SessionSubscriptions& session, const PullRun* run);
    void start_dispatch();
    void end_dispatch(PullRun& run);
    void run_pull(Fiber& fiber, const std::shared_ptr<PullRun>& run);
    Result<void> dispatch(Fiber& fiber, PullRun& run);
    Result<void> serve(Fiber& fiber, PullRun& run, PartitionIndex partition);
    bool may_send(const PullRun& run) const;
    void send_batch(PullRun& run, GroupPartition& source, PartitionIndex partition,
                    RecordBatch batch);
    void send_message(PullRun& run, GroupPartition& source, PartitionIndex partition,
                      const Record& record, const std::shared_ptr<const void>& owner);
    // The answer, once this PULL is to end.
    std::optional<Result<void>> verdict(const PullRun& run) const;
    void finish(const std::shared_ptr<PullRun>& run, const Result<void>& answer);
    void watch(const std::shared_ptr<GroupConsumer>& consumer, PartitionIndex partition);
    void unwatch(const GroupConsumer& consumer, PartitionIndex partition);
    void run_watch(Fiber& fiber, PartitionKey key);

    // settle.cc
    Result<GroupPartition*> settle_target(const Session& session, SubscriptionId subscription_id,
                                          TopicId topic_id, PartitionIndex partition,
                                          OwnershipEpoch ownership_epoch);

    // delivery.cc
    std::shared_ptr<LiveGroup> make_live_group(const ConsumerGroup& group);
    Result<void> remove_group_folder(Fiber& fiber, const std::string& folder);

    // Who is told of commits in a partition.
    using Watch = std::map<MemberId, std::shared_ptr<GroupConsumer>>;

    Env& env_;
    MetadataLog& metadata_;
    PartitionTable& partitions_;
    DeliveryOptions options_;
    Rng jitter_;
    TimerQueue timers_;
    Group fibers_;
    std::map<GroupId, std::shared_ptr<LiveGroup>> groups_;
    std::map<PartitionKey, Watch> watches_;
    std::set<SubscriptionId> subscription_ids_;
    SubscriptionId last_subscription_id_;
    NoticeId last_notice_id_;
    std::set<std::shared_ptr<PullRun>> pulls_;        // unanswered; found, never gone through
    std::deque<std::shared_ptr<PullRun>> advancing_;  // to get a fiber, in this order
    std::size_t dispatch_fiber_count_ = 0;
    std::uint64_t delivery_counter_ = 0;
    bool stopping_ = false;
    ByteVector scratch_;
};

}  // namespace mortar
