// publish: handles PUB: stages 2 to 4 of its path, top to bottom in handle_pub.
// Shape:    admit, ask the producer window, append, wait for commit_seq without a fiber: the log's
//           flush answers all that it covered, in order. One fiber answers what took longer than
//           quorum_timeout, another samples disk space. One object a term of this node as leader.
// Owns:     admission, counters. Pending PUBs stand in their Partition.
// Errors:   answered through Reply: what Admission and the term say; SEQ_GAP, SEQ_EXPIRED; READ_ONLY_DEGRADED
//           when the flush took too long or the log failed meanwhile (the record may still be
//           committed: the idempotent retry gets its sequence); PRODUCER_EPOCH_STALE when the term
//           ended meanwhile (the same).
// Suspends: nothing but the two fibers.
// Durable:  a PUB that was answered OK.
// Source:   contract P, R2; design 4 (degradation).
#pragma once

#include <functional>
#include <set>

#include "core/env/env.h"
#include "core/fiber/group.h"
#include "core/meta/metadata_log.h"
#include "core/produce/admission.h"
#include "core/produce/pace.h"
#include "core/produce/partition.h"
#include "core/wire/messages.h"
#include "core/wire/outbox.h"

namespace mortar {

inline constexpr Duration QUORUM_TIMEOUT = milliseconds(2000);

class Publisher : public PartitionObserver {
  public:
    struct Term {
        LeaderEpoch leader_epoch;
        wire::Durability durability = wire::Durability::LOCAL;  // what an OK stands for
        std::function<void(const Partition&)> on_overdue;       // a PUB was not committed in time
        ProducePace* pace = nullptr;  // outlives the term; none where nobody can be held back
        // What is appended here can be expected to commit; absent: always.
        std::function<Result<void>(const Partition&)> check_append;
    };
    Publisher(Env& env, const MetadataLog& metadata, PartitionTable& partitions, Term term);
    ~Publisher() override;

    // Fibers that end when cancelled.
    void start(Group& group);
    void handle_pub(const wire::Pub& pub, Reply reply);
    // This node leads no more: what waits for its commit may get it from the next leader.
    void end_term();
    bool has_pending() const;
    const Admission& admission() const { return admission_; }

    void on_committed(Partition& partition) override;
    void on_log_failed(Partition& partition) override;
    void on_removed(Partition& partition) override;

  private:
    void answer_duplicate(Partition& partition, Sequence sequence, Reply reply);
    void wait_for_commit(Partition& partition, PendingPub pub);
    void answer_ok(const Partition& partition, Sequence sequence, bool deduplicated, Reply reply);
    void fail_pending(Partition& partition, const Error& error);
    void answer_overdue(Fiber& fiber);
    // True when there was one.
    bool answer_overdue_of(Partition& partition, MonoTime now);
    MonoTime next_deadline();

    Env& env_;
    PartitionTable& partitions_;
    Term term_;
    Admission admission_;
    std::set<PartitionKey>
        waiting_;        // every partition with pending PUBs, and some that had them of late
    Event first_waits_;  // waiting_ was empty
};

}  // namespace mortar
