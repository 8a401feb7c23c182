#include "core/session/leader_office.h"

#include <utility>

#include "core/fiber/deadline.h"
#include "core/replica/catch_up_pace.h"

namespace mortar {

LeaderOffice::LeaderOffice(Env& env, MetadataLog& metadata, PartitionTable& partitions,
                           TopicKeeper& keeper, Options options)
    : env_(env),
      metadata_(metadata),
      partitions_(partitions),
      keeper_(keeper),
      options_(std::move(options)),
      pace_(std::make_unique<ProducePace>(env.clock)),
      fibers_(env.scheduler) {}

LeaderOffice::~LeaderOffice() = default;

Result<void> LeaderOffice::take_office(Fiber& fiber, LeaderEpoch leader_epoch) {
    MORTAR_ASSERT(serving_ == nullptr);
    MORTAR_TRY(metadata_.begin_term(leader_epoch));
    // Groups and topics that the catalog names are all there before anything is delivered from them.
    MORTAR_TRY(keeper_.wait_done(fiber, metadata_.catalog().last_mutation()));
    DeliveryOptions delivery = options_.delivery;
    delivery.leader_epoch = leader_epoch;
    delivery_ = MORTAR_TRY(Delivery::open(fiber, env_, metadata_, partitions_, delivery));
    Publisher::Term term;
    term.leader_epoch = leader_epoch;
    term.durability = replica_->is_single() ? wire::Durability::LOCAL : wire::Durability::QUORUM;
    term.check_append = [this](const Partition& log) { return replica_->check_append(log); };
    term.on_overdue = [this](const Partition& log) { replica_->on_quorum_timeout(log); };
    term.pace = pace_.get();
    publisher_ = std::make_unique<Publisher>(env_, metadata_, partitions_, std::move(term));
    declare_ = std::make_unique<DeclareHandler>(metadata_, partitions_, keeper_,
                                                options_.partition_default_count);
    serving_ = std::make_unique<Serving>(Serving{*delivery_, *publisher_, *declare_});
    keeper_.set_delivery(delivery_.get());
    publisher_->start(fibers_);
    if (!replica_->is_single())
        fibers_.spawn("produce.pace", [this](Fiber& own) { pace_producers(own); });
    ++door_count_;
    door_ = std::shared_ptr<void>(this, [this](void*) {
        --door_count_;
        all_out_.notify_all();
    });
    return {};
}

void LeaderOffice::leave_office() {
    metadata_.end_term();
    if (door_ == nullptr) return;
    door_.reset();
    pace_->release();
    publisher_->end_term();
    delivery_->stop();
}

void LeaderOffice::close_office(Fiber& fiber) {
    if (serving_ == nullptr) return;
    MORTAR_ASSERT(door_ == nullptr);
    // Requests under way end by themselves: nothing that they wait for is granted any more.
    while (door_count_ > 0) {
        const Result<void> waited = all_out_.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(waited.ok());
    }
    fibers_.cancel_and_join(fiber);
    // The keeper may be at work in it.
    keeper_.release_delivery(fiber);
    const Result<void> closed = delivery_->close(fiber);
    if (!closed.ok())
        env_.log.warn("delivery_close_failed", {{"reason", closed.error().to_string()}});
    serving_.reset();
    declare_.reset();
    publisher_.reset();
    delivery_.reset();
}

// Until cancelled, at the end of the term.
void LeaderOffice::pace_producers(Fiber& fiber) {
    CatchUpPace catch_up;
    while (door_ != nullptr) {
        const CatchUpPace::Verdict verdict = catch_up.on_sample(
            env_.clock.now(), pace_->appended_bytes(), replica_->status().followers);
        const LogField node{"node", std::to_string(verdict.node_id.value)};
        switch (verdict.change) {
            case CatchUpPace::Change::NONE:
                break;
            case CatchUpPace::Change::HELD:
                pace_->hold_to(verdict.bytes_per_second);
                env_.log.warn("producers_held",
                              {node,
                               {"bytes_per_second", std::to_string(verdict.bytes_per_second)},
                               {"reason", "this follower would not catch up otherwise"}});
                break;
            case CatchUpPace::Change::RELEASED:
                pace_->release();
                env_.log.info("producers_released",
                              {node, {"reason", "this follower is in sync, or away"}});
                break;
            case CatchUpPace::Change::GIVEN_UP:
                pace_->release();
                env_.log.warn("producers_released",
                              {node, {"reason", "this follower does not catch up in spite of it"}});
                break;
        }
        const MonoTime next = deadline_after(env_.clock, PACE_SAMPLE_INTERVAL);
        if (!env_.scheduler.sleep_until(fiber, next).ok()) return;
    }
}

bool LeaderOffice::has_pending() const {
    return serving_ != nullptr && publisher_->has_pending();
}

std::shared_ptr<Serving> LeaderOffice::serving() const {
    if (door_ == nullptr) return nullptr;
    return {door_, serving_.get()};
}

void LeaderOffice::await_leader(Fiber& fiber, MonoTime deadline) const {
    if (door_ == nullptr) replica_->await_leader(fiber, deadline);
}

Result<void> LeaderOffice::check(wire::Op op) const {
    const bool settles = op == wire::Op::ACK || op == wire::Op::NACK;
    MORTAR_TRY(op == wire::Op::PUB ? replica_->check_publish()
               : settles           ? replica_->check_settle()
                                   : replica_->check_lease());
    if (door_ != nullptr) return {};
    return make_error(ErrorCode::STALE_LEADER_EPOCH, "leader unknown epoch=0");
}

const Delivery* LeaderOffice::delivery() const {
    return delivery_.get();
}

bool LeaderOffice::is_disk_full() const {
    return serving_ != nullptr && publisher_->admission().is_disk_full();
}

}  // namespace mortar
