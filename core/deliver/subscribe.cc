// SUB, HEARTBEAT, CONTROL_ACK, and every way in which a member ends.
#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/deliver/delivery_core.h"
#include "core/fiber/deadline.h"
#include "core/group/assignment.h"
#include "core/wire/codec.h"

namespace mortar {

GroupConsumer::GroupConsumer(DeliveryCore& delivery, std::shared_ptr<LiveGroup> group_state,
                             std::shared_ptr<SessionSubscriptions> session_subscriptions,
                             SubscriptionId id, const Membership& member,
                             const CreditWindow& window)
    : core(delivery),
      group(std::move(group_state)),
      session(std::move(session_subscriptions)),
      subscription_id(id),
      membership(member),
      credit(window),
      expiry(core.timers(), [this] { core.on_consumer_timer(*this); }),
      reread(core.timers(), [this] {
          candidates.merge(std::exchange(unread, {}));
          wake_pull();
      }) {}

void GroupConsumer::wake_pull() {
    if (pull != nullptr) core.advance(*pull);
}

void GroupConsumer::on_freed(std::uint32_t message_bytes) {
    credit.give_back(message_bytes);
    wake_pull();
}

void GroupConsumer::on_ready(PartitionIndex partition) {
    candidates.insert(partition);
    wake_pull();
}

void DeliveryCore::handle_sub(Fiber& fiber, Session& session, const wire::Sub& sub, Reply reply) {
    const SubRequest request{std::string(sub.group), sub.topic_id, sub.start_policy,
                             sub.credit_count, sub.credit_bytes};
    if (sub.partition != ANY_PARTITION)
        return reply.error(make_error(ErrorCode::UNKNOWN_PARTITION,
                                      "SUB takes partition 0xFFFF: the group assigns"));
    if (session.subscriptions == nullptr)
        session.subscriptions = std::make_shared<SessionSubscriptions>(session.outbox);
    // The session may be gone after any suspension; this stays.
    const std::shared_ptr<SessionSubscriptions> subscriptions = session.subscriptions;

    const Result<std::shared_ptr<GroupConsumer>> joined = join(fiber, subscriptions, request);
    if (joined.is(ErrorCode::CANCELLED)) return;  // the node stops
    if (!joined.ok()) return reply.error(joined.error());
    const std::shared_ptr<GroupConsumer>& consumer = *joined;
    if (subscriptions->is_closed) {
        MORTAR_SOMETIMES(true, "connection closed while its SUB was committed");
        return end_consumer(consumer, EndReason::CLOSED);
    }
    // Answered "outcome unknown" meanwhile: nobody knows the member, and the SUB that is sent again
    // must find the group free.
    if (!reply.is_awaited()) {
        MORTAR_SOMETIMES(true, "SUB took longer than its client was told to wait");
        return end_consumer(consumer, EndReason::LEFT);
    }
    const ConsumerGroup* group = metadata_.catalog().find_group(consumer->group->group_id);
    MORTAR_ASSERT(group != nullptr);
    const ByteVector notices = assign_all(consumer, *group);
    arm_expiry(*consumer);
    wire::SubResult result;
    result.subscription_id = consumer->subscription_id;
    result.member_id = consumer->membership.member_id();
    result.membership_epoch = consumer->membership.membership_epoch();
    result.assignment_epoch = consumer->membership.assignment_epoch();
    reply.ok(result, notices);
}

Result<std::shared_ptr<GroupConsumer>> DeliveryCore::join(
    Fiber& fiber, const std::shared_ptr<SessionSubscriptions>& subscriptions,
    const SubRequest& request) {
    // A topic that cannot be known must not look like one that does not exist.
    if (metadata_.is_quarantined()) return make_error(ErrorCode::METADATA_QUARANTINED);
    MORTAR_TRY(check_group_name(request.group));
    if (metadata_.catalog().find_topic(request.topic_id) == nullptr)
        return make_error(ErrorCode::UNKNOWN_TOPIC, "SUB does not create topics: DECLARE it first");
    if (metadata_.catalog().find_group(request.group) == nullptr)
        MORTAR_TRY(create_group(fiber, request));

    const ConsumerGroup* found = metadata_.catalog().find_group(request.group);
    if (found == nullptr)
        return make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted meanwhile");
    if (found->topic_id != request.topic_id)
        return make_error(ErrorCode::GROUP_EXISTS_MISMATCH, "the group belongs to another topic");
    const std::shared_ptr<LiveGroup> state = MORTAR_TRY(open_group(fiber, found->group_id));
    MORTAR_TRY(wait_for_leavers(fiber, *state));
    const auto check = [&]() -> Result<void> {
        if (stopping_) return make_error(ErrorCode::METADATA_READ_ONLY, "the node is stopping");
        if (state->is_removed)
            return make_error(ErrorCode::UNKNOWN_TOPIC, "the group was deleted meanwhile");
        return {};
    };
    MORTAR_TRY(check());
    if (state->consumer != nullptr || state->is_joining)
        return make_error(ErrorCode::GROUP_MEMBER_LIMIT,
                          "this version takes one member a group, and it has one");

    state->is_joining = true;
    const Result<MutationId> joined =
        metadata_.propose(fiber, [&](const Catalog& catalog) -> Result<MutationBody> {
            const ConsumerGroup* group = catalog.find_group(state->group_id);
            if (group == nullptr)
                return make_error(ErrorCode::UNKNOWN_TOPIC, "the group was deleted meanwhile");
            if (!group->members.empty())
                return make_error(ErrorCode::GROUP_MEMBER_LIMIT,
                                  "this version takes one member a group, and it has one");
            std::vector<MemberId> previous;
            for (const Ownership& ownership : group->ownership)
                previous.push_back(ownership.owner);
            // The joining member is named 0 in its own mutation.
            const MemberId joining[] = {NO_MEMBER};
            return MutationBody(MemberJoined{state->group_id, assign(joining, previous)});
        });
    state->is_joining = false;
    if (!joined.ok()) return joined.error();
    const MemberId member_id(joined->value);
    const Result<void> still = check();
    const ConsumerGroup* group = metadata_.catalog().find_group(state->group_id);
    if (!still.ok() || group == nullptr)
        return still.ok() ? make_error(ErrorCode::UNKNOWN_TOPIC, "the group was deleted meanwhile")
                          : still.error();
    const Result<SubscriptionId> subscription_id = take_subscription_id();
    if (!subscription_id.ok()) {
        start_leaving(state, member_id);
        return subscription_id.error();
    }
    const Membership member(member_id, group->membership_epoch, group->assignment_epoch,
                            env_.clock.now());
    const CreditWindow window(request.credit_count, request.credit_bytes,
                              options_.credit_initial_count);
    state->consumer = std::make_shared<GroupConsumer>(*this, state, subscriptions, *subscription_id,
                                                      member, window);
    subscriptions->consumers.emplace(*subscription_id, state->consumer);
    return state->consumer;
}

Result<void> DeliveryCore::create_group(Fiber& fiber, const SubRequest& request) {
    const Result<MutationId> created = metadata_.propose(
        fiber, [&](const Catalog& catalog) { return make_group(catalog, request); });
    // Another SUB made it first; whether for this topic is looked at next.
    if (!created.ok() && !created.is(ErrorCode::GROUP_EXISTS_MISMATCH)) return created.error();
    return {};
}

Result<MutationBody> DeliveryCore::make_group(const Catalog& catalog, const SubRequest& request) {
    const Topic* topic = catalog.find_topic(request.topic_id);
    if (topic == nullptr)
        return make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted meanwhile");
    GroupCreated body{request.group, request.topic_id, {}};
    for (std::uint16_t i = 0; i < topic->partition_count; ++i) {
        Sequence start_after;
        if (request.start_policy == wire::StartPolicy::LATEST) {
            Partition* source = partitions_.find({request.topic_id, PartitionIndex(i)});
            // Its end is unknown: beginning at 0 would not be LATEST, and anything else would skip messages.
            if (source != nullptr && !source->is_end_known())
                return make_error(ErrorCode::QUORUM_LOST,
                                  "a partition's log cannot be opened at present: retry");
            if (source == nullptr || source->is_quarantined())
                return make_error(ErrorCode::DIVERGENT_COMMITTED,
                                  "a partition of the topic is quarantined: see RB-1");
            start_after = source->commit_seq();
        }
        body.start_after.push_back(start_after);
    }
    return MutationBody(std::move(body));
}

Result<std::shared_ptr<LiveGroup>> DeliveryCore::open_group(Fiber& fiber, GroupId group_id) {
    const ConsumerGroup* group = metadata_.catalog().find_group(group_id);
    MORTAR_ASSERT(group != nullptr);
    const auto [it, is_new] = groups_.try_emplace(group_id);
    if (is_new) it->second = make_live_group(*group);
    const std::shared_ptr<LiveGroup> state = it->second;
    if (is_new) {
        Result<void> opened;
        for (const auto& partition : state->partitions) {
            opened = partition->open(fiber);
            if (!opened.ok()) break;
        }
        state->is_open = true;
        state->changed.notify_all();
        MORTAR_TRY(std::move(opened));
    }
    while (!state->is_open)
        MORTAR_TRY(state->changed.wait(fiber));
    return state;
}

Result<void> DeliveryCore::wait_for_leavers(Fiber& fiber, LiveGroup& group) {
    const MonoTime deadline = deadline_after(env_.clock, LEAVE_WAIT_MAX);
    while (group.leaving_count > 0) {
        if (stopping_) return make_error(ErrorCode::METADATA_READ_ONLY, "the node is stopping");
        const Result<void> waited = group.changed.wait(fiber, deadline);
        if (waited.is(ErrorCode::TIMED_OUT))
            return make_error(ErrorCode::METADATA_READ_ONLY,
                              "the last member's leave is not committed yet: retry");
        MORTAR_TRY(waited);
    }
    return {};
}

Result<SubscriptionId> DeliveryCore::take_subscription_id() {
    if (subscription_ids_.size() >= SUBSCRIPTION_COUNT_MAX)
        return make_error(ErrorCode::QUOTA_EXCEEDED,
                          "this node has 65535 subscriptions: close some");
    do {
        last_subscription_id_ = last_subscription_id_.next();
    } while (last_subscription_id_ == SubscriptionId{} ||
             subscription_ids_.contains(last_subscription_id_));
    subscription_ids_.insert(last_subscription_id_);
    return last_subscription_id_;
}

ByteVector DeliveryCore::assign_all(const std::shared_ptr<GroupConsumer>& consumer,
                                    const ConsumerGroup& group) {
    ByteVector notices;
    const MonoTime now = env_.clock.now();
    for (std::size_t i = 0; i < group.ownership.size(); ++i) {
        const PartitionIndex partition(static_cast<std::uint16_t>(i));
        const OwnershipEpoch ownership_epoch = group.ownership[i].ownership_epoch;
        last_notice_id_ = last_notice_id_.next();
        consumer->ownership.assign(partition, ownership_epoch, last_notice_id_, now);
        consumer->session->notices.emplace(last_notice_id_, consumer);
        consumer->group->partitions[i]->set_owner(consumer.get());
        wire::Notice notice;
        notice.notice_id = last_notice_id_;
        notice.kind = wire::NoticeKind::ASSIGN;
        notice.group_id = group.group_id;
        notice.membership_epoch = consumer->membership.membership_epoch();
        notice.assignment_epoch = consumer->membership.assignment_epoch();
        notice.ownership_epoch = ownership_epoch;
        notice.topic_id = group.topic_id;
        notice.partition = partition;
        notice.member_id = consumer->membership.member_id();
        wire::encode(notices, notice);
    }
    return notices;
}

void DeliveryCore::handle_control_ack(Session& session, const wire::ControlAck& control_ack,
                                      Reply reply) {
    const std::shared_ptr<SessionSubscriptions>& subscriptions = session.subscriptions;
    const auto unknown = [] {
        return make_error(ErrorCode::STALE_GENERATION,
                          "no NOTICE of this connection waits under that notice_id");
    };
    if (subscriptions == nullptr) return reply.error(unknown());
    const auto it = subscriptions->notices.find(control_ack.notice_id);
    if (it == subscriptions->notices.end()) return reply.error(unknown());
    const std::shared_ptr<GroupConsumer> consumer = it->second;
    const Result<PartitionIndex> partition =
        consumer->ownership.control_ack(consumer->group->group_id, control_ack);
    if (!partition.ok()) return reply.error(partition.error());
    subscriptions->notices.erase(it);
    reply.ok();
    if (control_ack.result == wire::ControlResult::ERROR)
        return end_consumer(consumer, EndReason::EXPELLED);
    watch(consumer, *partition);
    consumer->on_ready(*partition);
}

void DeliveryCore::handle_heartbeat(Fiber& fiber, Session& session,
                                    const wire::Heartbeat& heartbeat, Reply reply) {
    const Result<std::shared_ptr<GroupConsumer>> found =
        find_member(session, heartbeat.subscription_id, heartbeat.member_id);
    if (!found.ok()) return reply.error(found.error());
    const std::shared_ptr<GroupConsumer>& consumer = *found;
    const Result<void> checked =
        consumer->membership.check_epochs(heartbeat.membership_epoch, heartbeat.assignment_epoch);
    if (!checked.ok()) return reply.error(checked.error());
    if (heartbeat.state == wire::HeartbeatState::ACTIVE) {
        on_heard(*consumer);
        return reply.ok();
    }
    end_consumer(consumer, EndReason::LEFT);
    // The member is gone for everybody; a commit that takes longer goes on without this answer.
    const Result<void> left = wait_for_leavers(fiber, *consumer->group);
    if (left.is(ErrorCode::CANCELLED)) return;
    reply.ok();
}

void DeliveryCore::on_session_closed(Session& session) {
    const std::shared_ptr<SessionSubscriptions> subscriptions = std::move(session.subscriptions);
    if (subscriptions == nullptr) return;
    subscriptions->is_closed = true;
    for (const SubscriptionId id : subscriptions->topic_deleted)
        subscription_ids_.erase(id);
    while (!subscriptions->consumers.empty()) {
        const std::shared_ptr<GroupConsumer> consumer = subscriptions->consumers.begin()->second;
        end_consumer(consumer, EndReason::CLOSED);
    }
    // Dispatchers that wait for the outbox must not find it gone.
    subscriptions->outbox.drained().notify_all();
}

void DeliveryCore::end_consumer(std::shared_ptr<GroupConsumer> consumer, EndReason reason) {
    if (consumer->ended) return;
    consumer->ended = reason;
    consumer->expiry.cancel();
    consumer->reread.cancel();
    const std::shared_ptr<LiveGroup>& group = consumer->group;
    SessionSubscriptions& session = *consumer->session;
    MORTAR_ASSERT(group->consumer == consumer);
    group->consumer = nullptr;
    for (const auto& [partition, owned] : consumer->ownership.partitions()) {
        if (owned.is_active) unwatch(*consumer, partition);
        // A node that stops fails nothing: after a restart all in flight is ready again, uncounted.
        const bool is_clean = reason != EndReason::CLOSED && reason != EndReason::EXPELLED;
        group->partitions[partition.value]->release_owner(is_clean);
    }
    session.consumers.erase(consumer->subscription_id);
    std::erase_if(session.notices, [&](const auto& entry) { return entry.second == consumer; });
    if (reason == EndReason::TOPIC_DELETED && !session.is_closed) {
        session.topic_deleted.insert(consumer->subscription_id);
    } else {
        subscription_ids_.erase(consumer->subscription_id);
    }
    consumer->wake_pull();
    if (!session.is_closed) session.outbox.drained().notify_all();
    const bool is_in_catalog =
        reason == EndReason::LEFT || reason == EndReason::CLOSED || reason == EndReason::EXPELLED;
    if (is_in_catalog) start_leaving(group, consumer->membership.member_id());
}

void DeliveryCore::start_leaving(const std::shared_ptr<LiveGroup>& group, MemberId member_id) {
    ++group->leaving_count;
    fibers_.spawn("group.leave", [this, group, member_id](Fiber& fiber) {
        while (true) {
            const Result<void> left = commit_left(fiber, group->group_id, {member_id});
            if (left.ok() || group->is_removed) break;
            if (left.is(ErrorCode::CANCELLED)) return;
            env_.log.warn("leave_not_committed", {{"reason", left.error().to_string()}});
            if (!env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, LEAVE_RETRY_DELAY))
                     .ok())
                return;
        }
        --group->leaving_count;
        group->changed.notify_all();
    });
}

Result<void> DeliveryCore::commit_left(Fiber& fiber, GroupId group_id,
                                       const std::vector<MemberId>& left) {
    const Result<MutationId> committed =
        metadata_.propose(fiber, [&](const Catalog& catalog) -> Result<MutationBody> {
            const ConsumerGroup* group = catalog.find_group(group_id);
            if (group == nullptr || !group->members.contains(left.front()))
                return make_error(ErrorCode::NOT_FOUND, "left already");
            std::vector<MemberId> staying;
            for (const auto& [member_id, member] : group->members) {
                if (member_id != left.front()) staying.push_back(member_id);
            }
            std::vector<MemberId> previous;
            for (const Ownership& ownership : group->ownership)
                previous.push_back(ownership.owner);
            return MutationBody(MembersLeft{group_id, left, assign(staying, previous)});
        });
    if (committed.ok() || committed.is(ErrorCode::NOT_FOUND)) return {};
    return committed.error();
}

Result<std::shared_ptr<GroupConsumer>> DeliveryCore::find_consumer(
    const Session& session, SubscriptionId subscription_id) const {
    if (session.subscriptions != nullptr) {
        const auto it = session.subscriptions->consumers.find(subscription_id);
        if (it != session.subscriptions->consumers.end()) return it->second;
        if (session.subscriptions->topic_deleted.contains(subscription_id))
            return make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted");
    }
    return make_error(ErrorCode::UNKNOWN_MEMBER,
                      "no such subscription on this connection, or it has ended: SUB again");
}

Result<std::shared_ptr<GroupConsumer>> DeliveryCore::find_member(const Session& session,
                                                                 SubscriptionId subscription_id,
                                                                 MemberId member_id) const {
    std::shared_ptr<GroupConsumer> consumer = MORTAR_TRY(find_consumer(session, subscription_id));
    if (consumer->membership.member_id() != member_id)
        return make_error(ErrorCode::UNKNOWN_MEMBER,
                          "the subscription belongs to another member_id");
    return consumer;
}

void DeliveryCore::on_heard(GroupConsumer& consumer) {
    consumer.membership.on_heard(env_.clock.now());
}

void DeliveryCore::arm_expiry(GroupConsumer& consumer) {
    consumer.expiry.arm(
        std::min(consumer.membership.expires_at(), consumer.ownership.notice_deadline()));
}

void DeliveryCore::on_consumer_timer(GroupConsumer& consumer) {
    const MonoTime now = env_.clock.now();
    const bool is_silent = consumer.membership.expires_at() <= now;
    const bool owes_control_ack = consumer.ownership.notice_deadline() <= now;
    if (!is_silent && !owes_control_ack) return arm_expiry(consumer);
    env_.log.info("member_expelled",
                  {{"member_id", std::to_string(consumer.membership.member_id().value)},
                   {"reason", is_silent ? "silent" : "no_control_ack"}});
    end_consumer(consumer.group->consumer, EndReason::EXPELLED);
}

}  // namespace mortar
