// delivery: the front of consuming: what a session calls for SUB, PULL, ACK, NACK, HEARTBEAT, CONTROL_ACK and CREDIT.
// Shape:    a Session is what one connection gives us: its outbox, and the subscriptions that live and die with it.
//           Groups, ledgers, leases and dispatch stand behind it in group/ and deliver/.
// Owns:     all consumer state. The session must call on_session_closed before its outbox dies.
// Errors:   answered through Reply with the registry's codes; see each handler.
// Suspends: what takes Fiber&; the others never do.
// Durable:  an answered ACK, NACK (its failure) and SUB: their events were synced first.
// Source:   contract G, C, D points; design 5.
#pragma once

#include <memory>
#include <vector>

#include "core/deliver/ledger.h"
#include "core/deliver/redelivery.h"
#include "core/env/env.h"
#include "core/meta/metadata_log.h"
#include "core/produce/partition.h"
#include "core/wire/messages.h"
#include "core/wire/outbox.h"

namespace mortar {

// PULLs that send, or wait until their client reads, at one time on a node; others wait their turn.
inline constexpr std::size_t DISPATCH_FIBERS_MAX = 8192;

struct DeliveryOptions {
    std::uint32_t delivery_max_attempts = 5;
    Duration delivery_lease = seconds(30);
    Duration poll_max_wait = seconds(5);
    std::uint32_t credit_initial_count = 256;
    std::size_t dispatch_fibers_max = DISPATCH_FIBERS_MAX;
    std::uint64_t ledger_bytes_min = LEDGER_BYTES_MIN;  // a ledger is not rotated below this size
    std::size_t unsettled_count_max = UNSETTLED_COUNT_MAX;  // a (group, partition)
    LeaderEpoch leader_epoch;
};

struct SessionSubscriptions;  // deliver/delivery_core.h

// What a connection shows to delivery: made once for it, alive until on_session_closed returned.
struct Session {
    explicit Session(Outbox& o) : outbox(o) {}
    Outbox& outbox;
    std::shared_ptr<SessionSubscriptions>
        subscriptions;  // delivery's own; null until the first SUB
};

class Delivery {
  public:
    virtual ~Delivery() = default;
    // Rebuilds every group's state from cursor checkpoints and ledgers. Call once, before any session.
    static Result<std::unique_ptr<Delivery>> open(Fiber& fiber, Env& env, MetadataLog& metadata,
                                                  PartitionTable& partitions,
                                                  DeliveryOptions options);

    // Runs in a fiber of its own, a session's request order is kept by its Reply.
    virtual void handle_sub(Fiber& fiber, Session& session, const wire::Sub& sub, Reply reply) = 0;
    // Ends early when the session gets any other frame: on_other_frame.
    virtual void handle_pull(Session& session, const wire::Pull& pull, Reply reply) = 0;
    virtual void handle_ack(Session& session, const wire::Ack& ack, Reply reply) = 0;
    virtual void handle_nack(Session& session, const wire::Nack& nack, Reply reply) = 0;
    virtual void handle_heartbeat(Fiber& fiber, Session& session, const wire::Heartbeat& heartbeat,
                                  Reply reply) = 0;
    virtual void handle_control_ack(Session& session, const wire::ControlAck& control_ack,
                                    Reply reply) = 0;
    virtual void handle_credit(Session& session, const wire::Credit& credit, Reply reply) = 0;
    // Contract C1: a frame other than PULL arrived on this connection.
    virtual void on_other_frame(Session& session) = 0;
    // Its members end at once; nothing is pushed to its outbox afterwards.
    virtual void on_session_closed(Session& session) = 0;
    // A topic or a group was deleted by a mutation that is just applied: its members get UNKNOWN_TOPIC / UNKNOWN_MEMBER.
    virtual void end_group(GroupId group_id) = 0;
    // After end_group: state and files go.
    // Returns once no fiber of the group lives any more, an error or not: call it before PartitionTable::remove_topic.
    virtual Result<void> remove_group(Fiber& fiber, GroupId group_id) = 0;

    // For /stats and tests: state of one group, all partitions.
    struct PartitionState {
        PartitionIndex partition;
        Sequence ack_floor;
        Sequence last_seq;
        std::uint64_t settled_above_floor = 0;
        std::uint64_t in_flight = 0;
        std::uint64_t waiting_retry = 0;
        std::uint64_t ready = 0;      // comes again now
        std::uint64_t unsettled = 0;  // in flight, waiting, ready, or about to be settled or failed
        Sequence next_first;          // from here on nothing was ever sent
        bool is_served = true;        // else its ledger cannot be read or written
    };
    virtual std::vector<PartitionState> group_state(GroupId group_id) const = 0;
    // Partitions that are not served to some group, each group counted.
    virtual std::size_t unserved_count() const = 0;
    // Flushes ledgers, writes cursor checkpoints, ends fibers.
    virtual Result<void> close(Fiber& fiber) = 0;
};

}  // namespace mortar
