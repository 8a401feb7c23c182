#include "core/session/leader_office.h"

#include <utility>

namespace mortar {

LeaderOffice::LeaderOffice(Env& env, MetadataLog& metadata, PartitionTable& partitions,
                           TopicKeeper& keeper, Options options)
    : env_(env),
      metadata_(metadata),
      partitions_(partitions),
      keeper_(keeper),
      options_(std::move(options)),
      fibers_(env.scheduler) {}

LeaderOffice::~LeaderOffice() = default;

Result<void> LeaderOffice::take_office(Fiber& fiber, LeaderEpoch leader_epoch) {
    MORTAR_ASSERT(serving_ == nullptr);
    MORTAR_TRY(metadata_.begin_term(leader_epoch));
    // Groups and topics that the catalog names are all there before anything is delivered from them.
    MORTAR_TRY(keeper_.wait_done(fiber, metadata_.catalog().last_mutation()));
    auto serving = std::make_unique<Serving>();
    DeliveryOptions delivery = options_.delivery;
    delivery.leader_epoch = leader_epoch;
    serving->delivery =
        MORTAR_TRY(Delivery::open(fiber, env_, metadata_, partitions_, delivery));
    Publisher::Term term;
    term.leader_epoch = leader_epoch;
    term.durability =
        replica_->is_single() ? wire::Durability::LOCAL : wire::Durability::QUORUM;
    term.on_overdue = [this] { replica_->on_quorum_timeout(); };
    serving->publisher =
        std::make_unique<Publisher>(env_, metadata_, partitions_, std::move(term));
    serving->declare = std::make_unique<DeclareHandler>(metadata_, partitions_, keeper_,
                                                        options_.partition_default_count);
    serving_ = std::move(serving);
    keeper_.set_delivery(serving_->delivery.get());
    serving_->publisher->start(fibers_);
    ++door_count_;
    door_ = std::shared_ptr<void>(this, [this](void*) {
        --door_count_;
        all_out_.notify_all();
    });
    return {};
}

void LeaderOffice::leave_office() {
    metadata_.end_term();
    if (serving_ == nullptr || door_ == nullptr) return;
    door_.reset();
    serving_->publisher->end_term();
    serving_->delivery->stop();
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
    const Result<void> closed = serving_->delivery->close(fiber);
    if (!closed.ok())
        env_.log.warn("delivery_close_failed", {{"reason", closed.error().to_string()}});
    serving_.reset();
}

bool LeaderOffice::has_pending() const {
    return serving_ != nullptr && serving_->publisher->has_pending();
}

std::shared_ptr<Serving> LeaderOffice::serving() const {
    if (door_ == nullptr) return nullptr;
    return {door_, serving_.get()};
}

Result<void> LeaderOffice::check(wire::Op op) const {
    MORTAR_TRY(op == wire::Op::PUB ? replica_->check_publish() : replica_->check_lease());
    if (door_ != nullptr) return {};
    return make_error(ErrorCode::STALE_LEADER_EPOCH, "leader unknown epoch=0");
}

const Delivery* LeaderOffice::delivery() const {
    return serving_ == nullptr ? nullptr : serving_->delivery.get();
}

bool LeaderOffice::is_disk_full() const {
    return serving_ != nullptr && serving_->publisher->admission().is_disk_full();
}

}  // namespace mortar
