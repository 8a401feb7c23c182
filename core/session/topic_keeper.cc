#include "core/session/topic_keeper.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/session/leftovers.h"

namespace mortar {
namespace {

TopicId twin_of(TopicId topic_id) {
    return topic_id.next();
}

// Committed, or perhaps committed elsewhere.
std::optional<Topic> find_possible(const MetadataLog& metadata, TopicId topic_id) {
    if (const Topic* topic = metadata.catalog().find_topic(topic_id)) return *topic;
    for (const Topic& topic : metadata.topics_in_tail()) {
        if (topic.topic_id == topic_id) return topic;
    }
    return std::nullopt;
}

// While this waits for its turn the topic may be deleted, or cut away with the tail, and another one may have its number.
Result<void> open_if_possible(Fiber& fiber, const MetadataLog& metadata, PartitionTable& partitions,
                              TopicId topic_id) {
    std::optional<Topic> topic = find_possible(metadata, topic_id);
    while (topic.has_value()) {
        MORTAR_TRY(partitions.open_topic(fiber, *topic));
        std::optional<Topic> now = find_possible(metadata, topic_id);
        if (now.has_value() && now->partition_count == topic->partition_count) return {};
        MORTAR_SOMETIMES(true, "topic_keeper: a topic went while it was opened");
        partitions.retire_topic(topic_id);
        MORTAR_TRY(partitions.remove_topic(fiber, topic_id));
        topic = find_possible(metadata, topic_id);
    }
    return {};
}

}  // namespace

Result<void> TopicKeeper::open_all(Fiber& fiber) {
    // Nothing changes the catalog yet: the broker serves nobody before this returns.
    for (const auto& [topic_id, topic] : metadata_.catalog().topics()) {
        MORTAR_TRY(partitions_.recover_topic(fiber, topic));
        if (!topic.is_twin()) sources_.insert(topic_id);
    }
    for (const Topic& topic : metadata_.topics_in_tail()) {
        MORTAR_TRY(partitions_.recover_topic(fiber, topic));
        if (!topic.is_twin()) sources_.insert(topic.topic_id);
    }
    done_through_ = metadata_.catalog().last_mutation();
    for (const auto& [group_id, group] : metadata_.catalog().groups())
        topic_of_group_[group_id] = group.topic_id;
    metadata_.set_on_applied([this](const Mutation& mutation) { on_applied(mutation); });
    metadata_.set_on_replaced([this] { on_replaced(); });
    return {};
}

void TopicKeeper::set_delivery(Delivery* delivery) {
    delivery_ = delivery;
}

void TopicKeeper::release_delivery(Fiber& fiber) {
    delivery_ = nullptr;
    while (is_in_delivery_) {
        const Result<void> waited = changed_.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(waited.ok());
    }
}

void TopicKeeper::on_applied(const Mutation& mutation) {
    Change change;
    change.mutation_id = mutation.mutation_id;
    if (const auto* created = std::get_if<TopicCreated>(&mutation.body)) {
        change.created = metadata_.catalog().find_topic(created->name)->topic_id;
        sources_.insert(change.created);
    } else if (const auto* deleted = std::get_if<TopicDeleted>(&mutation.body)) {
        change.deleted = deleted->topic_id;
        for (const auto& [group_id, topic_id] : topic_of_group_) {
            if (topic_id == change.deleted || topic_id == twin_of(change.deleted)) {
                change.deleted_groups.push_back(group_id);
            }
        }
    } else if (const auto* group_created = std::get_if<GroupCreated>(&mutation.body)) {
        topic_of_group_[metadata_.catalog().find_group(group_created->name)->group_id] =
            group_created->topic_id;
    } else if (const auto* group_deleted = std::get_if<GroupDeleted>(&mutation.body)) {
        change.deleted_groups.push_back(group_deleted->group_id);
    }
    end_service(change);
    changes_.push_back(std::move(change));
    changed_.notify_all();
}

// Before anyone is told that the deletion is done: nothing of the topic may be acknowledged
// after that.
void TopicKeeper::end_service(const Change& change) {
    for (const GroupId group_id : change.deleted_groups) {
        topic_of_group_.erase(group_id);
        if (delivery_ != nullptr) delivery_->end_group(group_id);
    }
    if (change.deleted != TopicId(0)) {
        sources_.erase(change.deleted);
        partitions_.retire_topic(change.deleted);
        partitions_.retire_topic(twin_of(change.deleted));
    }
}

void TopicKeeper::on_replaced() {
    const Catalog& catalog = metadata_.catalog();
    std::set<TopicId> wanted;
    for (const auto& [topic_id, topic] : catalog.topics()) {
        if (!topic.is_twin()) wanted.insert(topic_id);
    }
    std::set<TopicId> possible = wanted;
    for (const Topic& topic : metadata_.topics_in_tail())
        possible.insert(topic.topic_id);
    std::vector<Change> changes;
    Change groups;
    for (const auto& [group_id, topic_id] : topic_of_group_) {
        if (catalog.find_group(group_id) == nullptr) groups.deleted_groups.push_back(group_id);
    }
    if (!groups.deleted_groups.empty()) changes.push_back(std::move(groups));
    for (const TopicId topic_id : sources_) {
        if (!possible.contains(topic_id)) changes.push_back({{}, {}, topic_id, {}});
    }
    for (const TopicId topic_id : wanted) {
        if (!sources_.contains(topic_id)) changes.push_back({{}, topic_id, {}, {}});
    }
    sources_.insert(wanted.begin(), wanted.end());
    for (const auto& [group_id, group] : catalog.groups())
        topic_of_group_[group_id] = group.topic_id;
    changes.push_back({});  // so that somebody may wait for it, whatever there is to do
    for (Change& change : changes) {
        change.mutation_id = catalog.last_mutation();
        end_service(change);
        changes_.push_back(std::move(change));
    }
    changed_.notify_all();
}

void TopicKeeper::run(Fiber& fiber) {
    Duration backoff = TOPIC_RETRY_BACKOFF_MIN;
    MonoTime retry_at = NEVER;
    while (!stopping_) {
        if (!is_swept_ && changes_.empty() &&
            (metadata_.is_all_applied() || metadata_.is_quarantined())) {
            is_swept_ = true;
            remove_leftovers(fiber, env_, metadata_);
            continue;
        }
        if (changes_.empty() || retry_at != NEVER) {
            const Result<void> woken = changed_.wait(fiber, retry_at);
            if (woken.is(ErrorCode::CANCELLED)) return;
            if (!woken.ok()) retry_at = NEVER;
            continue;
        }
        const Change change = changes_.front();
        const Result<void> done = carry_out(fiber, change);
        if (done.is(ErrorCode::CANCELLED)) return;
        if (!done.ok()) {
            env_.log.error("topic_change_failed",
                           {{"mutation_id", std::to_string(change.mutation_id.value)},
                            {"reason", done.error().to_string()}});
            retry_at = deadline_after(env_.clock, backoff);
            backoff = std::min(backoff * 2, TOPIC_RETRY_BACKOFF_MAX);
            continue;
        }
        backoff = TOPIC_RETRY_BACKOFF_MIN;
        changes_.pop_front();
        // Several of one replacement carry its number: the last one is done.
        if (changes_.empty() || changes_.front().mutation_id != change.mutation_id)
            done_through_ = std::max(done_through_, change.mutation_id);
        changed_.notify_all();
    }
}

void TopicKeeper::stop() {
    stopping_ = true;
    changed_.notify_all();
}

Result<void> TopicKeeper::open_tail(Fiber& fiber) {
    std::set<TopicId> opened;
    while (true) {
        // Each time anew: the tail moves on while one is opened.
        const std::vector<Topic> tail = metadata_.topics_in_tail();
        const auto next = std::find_if(tail.begin(), tail.end(), [&opened](const Topic& topic) {
            return !opened.contains(topic.topic_id);
        });
        if (next == tail.end()) return {};
        const TopicId topic_id = next->topic_id;
        const bool is_twin = next->is_twin();
        opened.insert(topic_id);
        MORTAR_TRY(open_if_possible(fiber, metadata_, partitions_, topic_id));
        if (!is_twin && find_possible(metadata_, topic_id)) sources_.insert(topic_id);
    }
}

Result<void> TopicKeeper::wait_done(Fiber& fiber, MutationId through) {
    // A replacement has changes for a number that was done before.
    while (done_through_ < through ||
           (!changes_.empty() && changes_.front().mutation_id <= through))
        MORTAR_TRY(changed_.wait(fiber));
    return {};
}

Result<void> TopicKeeper::carry_out(Fiber& fiber, const Change& change) {
    if (change.created != TopicId(0)) return open_pair(fiber, change.created);
    return remove(fiber, change);
}

Result<void> TopicKeeper::open_pair(Fiber& fiber, TopicId topic_id) {
    for (const TopicId id : {topic_id, twin_of(topic_id)}) {
        if (metadata_.catalog().find_topic(id) == nullptr) return {};  // deleted since
        MORTAR_TRY(open_if_possible(fiber, metadata_, partitions_, id));
    }
    return {};
}

Result<void> TopicKeeper::remove(Fiber& fiber, const Change& change) {
    for (const GroupId group_id : change.deleted_groups) {
        Result<void> removed;
        if (delivery_ == nullptr) {
            removed = remove_group_leftovers(fiber, env_, group_id);
        } else {
            is_in_delivery_ = true;
            removed = delivery_->remove_group(fiber, group_id);
            is_in_delivery_ = false;
            changed_.notify_all();
        }
        if (removed.is(ErrorCode::CANCELLED)) return removed;
        if (!removed.ok()) {
            env_.log.warn("group_files_left", {{"group_id", std::to_string(group_id.value)},
                                               {"reason", removed.error().to_string()}});
        }
    }
    if (change.deleted == TopicId(0)) return {};
    for (const TopicId id : {change.deleted, twin_of(change.deleted)}) {
        Result<void> removed = partitions_.remove_topic(fiber, id);
        if (removed.is(ErrorCode::CANCELLED)) return removed;
        if (!removed.ok()) {
            env_.log.warn("topic_files_left", {{"topic_id", std::to_string(id.value)},
                                               {"reason", removed.error().to_string()}});
        }
    }
    return {};
}

}  // namespace mortar
