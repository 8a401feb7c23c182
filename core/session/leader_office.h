// leader_office: what this node has only while it leads: publishing, delivery, declarations; built at the start of a term, ended
// with it.
// Shape:    take_office builds, leave_office shuts the door at once (who waits is told that the outcome is unknown),
//           close_office ends what takes time, once the last request is out.
// Owns:     Serving of the term under way. Metadata, partitions and keeper outlive it.
// Errors:   take_office: those of Delivery::open and MetadataLog::begin_term. check: as Gate.
// Suspends: take_office, close_office, await_leader.
// Source:   design 4 (lease), contract R2, R3, R4.
#pragma once

#include <memory>

#include "core/fiber/group.h"
#include "core/replica/node.h"
#include "core/session/gate.h"
#include "core/session/topic_keeper.h"

namespace mortar {

class LeaderOffice final : public Office, public Gate {
  public:
    struct Options {
        DeliveryOptions delivery;  // its leader_epoch is that of the term
        std::uint16_t partition_default_count = 0;
    };
    LeaderOffice(Env& env, MetadataLog& metadata, PartitionTable& partitions, TopicKeeper& keeper,
                 Options options);
    ~LeaderOffice() override;
    // Who knows whether this node leads; before the first term.
    void set_replica(ReplicaNode* replica) { replica_ = replica; }

    Result<void> take_office(Fiber& fiber, LeaderEpoch leader_epoch) override;
    void leave_office() override;
    void close_office(Fiber& fiber) override;
    bool has_pending() const override;

    std::shared_ptr<Serving> serving() const override;
    void await_leader(Fiber& fiber, MonoTime deadline) const override;
    Result<void> check(wire::Op op) const override;
    ProducePace& pace() const override { return *pace_; }
    // For /stats and checkers; nothing while this node does not lead.
    const Delivery* delivery() const;
    bool is_disk_full() const;

  private:
    void pace_producers(Fiber& fiber);

    Env& env_;
    MetadataLog& metadata_;
    PartitionTable& partitions_;
    TopicKeeper& keeper_;
    Options options_;
    ReplicaNode* replica_ = nullptr;
    std::unique_ptr<ProducePace> pace_;
    std::unique_ptr<Delivery> delivery_;
    std::unique_ptr<Publisher> publisher_;
    std::unique_ptr<DeclareHandler> declare_;
    std::unique_ptr<Serving> serving_;  // of the three, while there is a term
    Group fibers_;
    std::size_t door_count_ = 0;  // doors that somebody holds
    Event all_out_;
    // Shared by every request that is inside; gone here: nobody comes in any more. Last, for it tells the two above.
    std::shared_ptr<void> door_;
};

}  // namespace mortar
