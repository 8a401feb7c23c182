#include "core/deliver/delivery.h"

#include "core/base/assert.h"
#include "core/deliver/delivery_core.h"

namespace mortar {
namespace {

std::string partition_folder(GroupId group_id, std::size_t partition) {
    return "groups/" + std::to_string(group_id.value) + "/" + std::to_string(partition);
}

}  // namespace

Result<std::unique_ptr<Delivery>> Delivery::open(Fiber& fiber, Env& env, MetadataLog& metadata,
                                                 PartitionTable& partitions,
                                                 DeliveryOptions options) {
    auto core = std::make_unique<DeliveryCore>(env, metadata, partitions, options);
    const Result<void> started = core->start(fiber);
    if (!started.ok()) {
        (void)core->close(fiber);  // what began must end; why it did not start says more
        return started.error();
    }
    return std::unique_ptr<Delivery>(std::move(core));
}

DeliveryCore::DeliveryCore(Env& env, MetadataLog& metadata, PartitionTable& partitions,
                           DeliveryOptions options)
    : env_(env),
      metadata_(metadata),
      partitions_(partitions),
      options_(options),
      jitter_(env.rng.stream("deliver.backoff")),
      fibers_(env.scheduler) {}

DeliveryCore::~DeliveryCore() {
    // A consumer and its session hold each other; after a kill nobody else takes them apart.
    for (const auto& [group_id, state] : groups_) {
        if (state->consumer == nullptr) continue;
        state->consumer->session->consumers.clear();
        state->consumer->session->notices.clear();
        state->consumer = nullptr;
    }
}

Result<void> DeliveryCore::start(Fiber& fiber) {
    for (const auto& [group_id, group] : metadata_.catalog().groups())
        groups_.emplace(group_id, make_live_group(group));
    for (const auto& [group_id, state] : groups_) {
        for (const auto& partition : state->partitions)
            MORTAR_TRY(partition->open(fiber));
        state->is_open = true;
        const ConsumerGroup* group = metadata_.catalog().find_group(group_id);
        MORTAR_ASSERT(group != nullptr);
        // Their connections ended with the last life of this node.
        for (const auto& [member_id, member] : group->members)
            start_leaving(state, member_id);
    }
    fibers_.spawn("deliver.timers", [this](Fiber& own) { timers_.run(own, env_.clock); });
    return {};
}

std::shared_ptr<LiveGroup> DeliveryCore::make_live_group(const ConsumerGroup& group) {
    auto state = std::make_shared<LiveGroup>();
    state->group_id = group.group_id;
    state->topic_id = group.topic_id;
    const GroupPartition::Parts parts{
        env_,
        timers_,
        jitter_,
        {options_.delivery_max_attempts, options_.delivery_lease, options_.unsettled_count_max},
        options_.ledger_bytes_min};
    for (std::size_t i = 0; i < group.start_after.size(); ++i) {
        state->partitions.push_back(std::make_unique<GroupPartition>(
            parts, partition_folder(group.group_id, i),
            PartitionIndex(static_cast<std::uint16_t>(i)), group.start_after[i]));
        const PartitionKey key{group.topic_id, PartitionIndex(static_cast<std::uint16_t>(i))};
        // What was sent to a group was committed. A log that ends before is not torn but damaged.
        state->partitions.back()->set_on_loaded(
            [this, key](Sequence known) { partitions_.note_committed(key, known); });
    }
    return state;
}

void DeliveryCore::end_group(GroupId group_id) {
    const auto it = groups_.find(group_id);
    if (it == groups_.end() || it->second->is_removed) return;
    const std::shared_ptr<LiveGroup> state = it->second;
    const bool is_topic_gone = metadata_.catalog().find_topic(state->topic_id) == nullptr;
    state->is_removed = true;
    state->changed.notify_all();
    if (state->consumer != nullptr)
        end_consumer(state->consumer,
                     is_topic_gone ? EndReason::TOPIC_DELETED : EndReason::GROUP_DELETED);
}

Result<void> DeliveryCore::remove_group(Fiber& fiber, GroupId group_id) {
    const auto it = groups_.find(group_id);
    if (it == groups_.end()) return {};
    const std::shared_ptr<LiveGroup> state = it->second;
    MORTAR_ASSERT(state->is_removed);
    // A fiber that reads the partition's log must be out of it before the log goes.
    while (state->dispatch_count > 0 || !state->is_open)
        MORTAR_TRY(state->changed.wait(fiber));  // cancelled: close ends the partitions
    Result<void> first_failure;
    for (const auto& partition : state->partitions) {
        Result<void> gone = partition->remove(fiber);
        MORTAR_ASSERT(partition->is_ended());
        if (!gone.ok() && first_failure.ok()) first_failure = std::move(gone);
    }
    groups_.erase(group_id);
    if (!first_failure.ok()) return first_failure;
    return remove_group_folder(fiber, "groups/" + std::to_string(group_id.value));
}

Result<void> DeliveryCore::remove_group_folder(Fiber& fiber, const std::string& folder) {
    const Result<std::vector<DirEntry>> entries = env_.disk.list(fiber, folder);
    if (entries.is(ErrorCode::NOT_FOUND)) return {};
    if (!entries.ok()) return entries.error();
    // What is left is not ours (contract E3), and was told by name or is told here.
    for (const DirEntry& entry : *entries)
        env_.log.warn("unknown_file_left_alone", {{"path", folder + "/" + entry.name}});
    if (!entries->empty()) return {};
    return env_.disk.remove(fiber, folder);
}

std::vector<Delivery::PartitionState> DeliveryCore::group_state(GroupId group_id) const {
    std::vector<PartitionState> states;
    const auto it = groups_.find(group_id);
    if (it == groups_.end()) return states;
    for (std::size_t i = 0; i < it->second->partitions.size(); ++i) {
        PartitionState state;
        state.partition = PartitionIndex(static_cast<std::uint16_t>(i));
        if (Partition* source = partitions_.find({it->second->topic_id, state.partition}))
            state.last_seq = source->commit_seq();
        state.is_served = it->second->partitions[i]->is_serving();
        if (const DeliveryBook* book = it->second->partitions[i]->book()) {
            state.ack_floor = book->settled().ack_floor();
            state.settled_above_floor = book->settled().count_above_floor();
            state.in_flight = book->in_flight_count();
            state.waiting_retry = book->waiting_count();
            state.ready = book->ready_count();
            state.unsettled = book->unsettled_count();
            state.next_first = book->next_first();
        }
        states.push_back(state);
    }
    return states;
}

std::size_t DeliveryCore::unserved_count() const {
    std::size_t count = 0;
    for (const auto& [group_id, state] : groups_) {
        if (!state->is_open || state->is_removed) continue;
        for (const auto& partition : state->partitions) {
            if (!partition->is_serving()) ++count;
        }
    }
    return count;
}

void DeliveryCore::stop() {
    stopping_ = true;
    for (const auto& [group_id, state] : groups_) {
        if (state->consumer != nullptr) end_consumer(state->consumer, EndReason::STOPPING);
        state->changed.notify_all();
    }
}

Result<void> DeliveryCore::close(Fiber& fiber) {
    stop();
    fibers_.cancel_and_join(fiber);
    Result<void> closed;
    for (const auto& [group_id, state] : groups_) {
        for (const auto& partition : state->partitions) {
            const Result<void> one = partition->close(fiber);
            if (closed.ok() && !one.ok()) closed = one;
        }
    }
    return closed;
}

}  // namespace mortar
