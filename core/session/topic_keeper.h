// topic_keeper: makes what stands behind topics follow the catalog: opens partitions of a created
// topic, removes partitions and groups of a deleted one.
// Shape:    on_applied ends the service of what was deleted at once and queues the work on files; one
//           fiber works it off in order. Whoever promises a client that a topic works waits for its
//           mutation. A catalog that was replaced as a whole (a snapshot of a peer), or whose tail
//           was cut, is compared with what is open here. Once all is applied that the log held, what
//           earlier lives left over goes (leftovers).
// Owns:     its queue. A creation that fails (disk) is tried again with backoff; files that cannot
//           be deleted are logged.
// Errors:   open_all, open_tail: those of PartitionTable (a topic of the tail that went meanwhile is removed). wait_done:
//           CANCELLED.
// Suspends: open_all, open_tail, release_delivery, run, wait_done.
// Source:   contract T4, E3.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <vector>

#include "core/deliver/delivery.h"
#include "core/env/env.h"
#include "core/meta/metadata_log.h"
#include "core/produce/partition.h"

namespace mortar {

inline constexpr Duration TOPIC_RETRY_BACKOFF_MIN = milliseconds(100);
inline constexpr Duration TOPIC_RETRY_BACKOFF_MAX = seconds(5);

class TopicKeeper {
  public:
    TopicKeeper(Env& env, MetadataLog& metadata, PartitionTable& partitions)
        : env_(env), metadata_(metadata), partitions_(partitions) {}

    // At the start: every topic of the catalog, and of its tail: their records may be committed. Damage or a read error
    // isolates a partition, a full disk or a newer format ends it. From then on changes of the catalog are followed.
    Result<void> open_all(Fiber& fiber);
    // While this node delivers. Groups that are deleted while it does not have no service to end, only files.
    void set_delivery(Delivery* delivery);
    // No delivery any more, once run does not use it. Not ended by a cancel.
    void release_delivery(Fiber& fiber);
    void run(Fiber& fiber);
    // run returns once the change under way is carried out.
    void stop();

    // Topics of the metadata log's tail that are not open yet: their creation, and records, may be committed.
    Result<void> open_tail(Fiber& fiber);
    // All effects up to this mutation are complete.
    Result<void> wait_done(Fiber& fiber, MutationId through);

  private:
    struct Change {
        MutationId mutation_id;
        TopicId created;  // 0 = none
        TopicId deleted;  // 0 = none; sources, as created
        std::vector<GroupId> deleted_groups;
    };
    void on_applied(const Mutation& mutation);
    void on_replaced();
    void end_service(const Change& change);
    Result<void> carry_out(Fiber& fiber, const Change& change);
    Result<void> open_pair(Fiber& fiber, TopicId topic_id);
    Result<void> remove(Fiber& fiber, const Change& change);

    Env& env_;
    MetadataLog& metadata_;
    PartitionTable& partitions_;
    Delivery* delivery_ = nullptr;
    bool is_in_delivery_ = false;                // run is at work in it
    std::map<GroupId, TopicId> topic_of_group_;  // the catalog forgets groups before we hear of it
    std::set<TopicId> sources_;                  // opened, or queued for it
    std::deque<Change> changes_;
    MutationId done_through_;
    bool is_swept_ = false;  // leftovers of earlier lives are gone
    bool stopping_ = false;
    Event changed_;
};

}  // namespace mortar
