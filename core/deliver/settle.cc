// ACK, NACK and CREDIT: the end of a delivery, and how many may be in flight.
#include "core/deliver/delivery_core.h"

namespace mortar {

Result<GroupPartition*> DeliveryCore::settle_target(const Session& session,
                                                    SubscriptionId subscription_id,
                                                    TopicId topic_id, PartitionIndex partition,
                                                    OwnershipEpoch ownership_epoch) {
    const std::shared_ptr<GroupConsumer> consumer =
        MORTAR_TRY(find_consumer(session, subscription_id));
    on_heard(*consumer);
    LiveGroup& group = *consumer->group;
    if (topic_id != group.topic_id)
        return make_error(ErrorCode::UNKNOWN_TOPIC, "the subscription is for another topic");
    if (partition.value >= group.partitions.size())
        return make_error(ErrorCode::UNKNOWN_PARTITION, "the topic has fewer partitions");
    MORTAR_TRY(consumer->ownership.check_settle(partition, ownership_epoch));
    return group.partitions[partition.value].get();
}

void DeliveryCore::handle_ack(Session& session, const wire::Ack& ack, Reply reply) {
    const Result<GroupPartition*> target = settle_target(session, ack.subscription_id, ack.topic_id,
                                                         ack.partition, ack.ownership_epoch);
    if (!target.ok()) return reply.error(target.error());
    if ((ack.flags & wire::ACK_FLAG_PROGRESS) != 0) {
        (*target)->progress(ack.seq, ack.delivery_id, std::move(reply));
    } else {
        (*target)->ack(ack.seq, std::move(reply));
    }
}

void DeliveryCore::handle_nack(Session& session, const wire::Nack& nack, Reply reply) {
    const Result<GroupPartition*> target = settle_target(
        session, nack.subscription_id, nack.topic_id, nack.partition, nack.ownership_epoch);
    if (!target.ok()) return reply.error(target.error());
    (*target)->nack(nack.seq, nack.delivery_id, nack.reason, std::move(reply));
}

void DeliveryCore::handle_credit(Session& session, const wire::Credit& credit, Reply reply) {
    const auto apply = [&]() -> Result<wire::CreditResult> {
        const std::shared_ptr<GroupConsumer> consumer =
            MORTAR_TRY(find_consumer(session, credit.subscription_id));
        MORTAR_TRY(consumer->membership.check_membership_epoch(credit.membership_epoch));
        MORTAR_TRY(consumer->ownership.check_credit(credit.ownership_epoch));
        return consumer->credit.apply(credit.mode, credit.credit_count, credit.credit_bytes);
    };
    const Result<wire::CreditResult> applied = apply();
    if (!applied.ok()) return reply.error(applied.error());
    reply.ok(*applied);
}

}  // namespace mortar
