#include "core/session/declare.h"

namespace mortar {
namespace {

using wire::DeclareOutcome;
using wire::DeclareResult;

}  // namespace

Result<DeclareResult> DeclareHandler::handle(Fiber& fiber, const DeclareRequest& request) {
    // An empty catalog that is not to be believed must not answer "unknown topic".
    if (metadata_.is_quarantined()) return make_error(ErrorCode::METADATA_QUARANTINED);
    switch (request.flags & wire::DECLARE_FLAGS_DEFINED) {
        case 0:
            return create(fiber, request);
        case wire::DECLARE_FLAG_LOOKUP:
            return look_up(fiber, request);
        case wire::DECLARE_FLAG_DELETE:
            return delete_topic(fiber, request);
        case wire::DECLARE_FLAG_DELETE | wire::DECLARE_FLAG_GROUP:
            return delete_group(fiber, request);
        default:
            return make_error(ErrorCode::MALFORMED_PAYLOAD,
                              "DECLARE flags: send none, LOOKUP, DELETE, or DELETE with GROUP");
    }
}

Result<DeclareResult> DeclareHandler::create(Fiber& fiber, const DeclareRequest& request) {
    // In the order in which the catalog judges: a name that fits in no record is told so.
    MORTAR_TRY(check_packable(TopicCreated{request.name, request.partition_count}));
    MORTAR_TRY(check_topic_name(request.name, false));
    if (request.partition_count > PARTITION_COUNT_MAX) {
        return make_error(
            ErrorCode::QUOTA_EXCEEDED,
            "a topic has at most " + std::to_string(PARTITION_COUNT_MAX) + " partitions");
    }
    const std::uint16_t count =
        request.partition_count == 0 ? partition_default_count_ : request.partition_count;
    TopicId found;
    const auto make = [&request, &found, count](const Catalog& catalog) -> Result<MutationBody> {
        if (const Topic* topic = catalog.find_topic(request.name)) {
            found = topic->topic_id;
            return make_error(ErrorCode::ALREADY_EXISTS);
        }
        return MutationBody(TopicCreated{request.name, count});
    };
    if (const Topic* topic = metadata_.catalog().find_topic(request.name)) {
        return existing(fiber, topic->topic_id, request.partition_count);
    }
    const Result<MutationId> committed = metadata_.propose(fiber, make);
    if (committed.is(ErrorCode::ALREADY_EXISTS))
        return existing(fiber, found, request.partition_count);
    if (!committed.ok()) return committed.error();
    MORTAR_TRY(keeper_.wait_done(fiber, *committed));
    const Topic* topic = metadata_.catalog().find_topic(request.name);
    if (topic == nullptr)
        return make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted again");
    return DeclareResult{topic->topic_id, topic->partition_count, DeclareOutcome::CREATED};
}

Result<DeclareResult> DeclareHandler::existing(Fiber& fiber, TopicId topic_id,
                                               std::uint16_t wanted_count) {
    // Another client's creation may still be opening files.
    if (partitions_.partition_count(topic_id) == 0) {
        MORTAR_TRY(keeper_.wait_done(fiber, metadata_.catalog().last_mutation()));
    }
    const Topic* topic = metadata_.catalog().find_topic(topic_id);
    if (topic == nullptr)
        return make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted meanwhile");
    if (wanted_count != 0 && wanted_count != topic->partition_count) {
        return make_error(
            ErrorCode::TOPIC_EXISTS_MISMATCH,
            "the topic exists with " + std::to_string(topic->partition_count) +
                " partitions, and that cannot change: ask for as many or take another name");
    }
    return DeclareResult{topic->topic_id, topic->partition_count, DeclareOutcome::IDEMPOTENT_OK};
}

Result<DeclareResult> DeclareHandler::look_up(Fiber& fiber, const DeclareRequest& request) {
    MORTAR_TRY(check_topic_name(request.name, true));
    const Topic* topic = metadata_.catalog().find_topic(request.name);
    if (topic == nullptr) return make_error(ErrorCode::UNKNOWN_TOPIC);
    return existing(fiber, topic->topic_id, 0);
}

Result<DeclareResult> DeclareHandler::delete_topic(Fiber& fiber, const DeclareRequest& request) {
    MORTAR_TRY(check_topic_name(request.name, false));
    DeclareResult result{{}, 0, DeclareOutcome::IDEMPOTENT_OK};
    const TopicId meant(request.partition_count);
    const Result<MutationId> committed = metadata_.propose(
        fiber, [&request, &result, meant](const Catalog& catalog) -> Result<MutationBody> {
            const Topic* topic = catalog.find_topic(request.name);
            if (topic == nullptr) return make_error(ErrorCode::UNKNOWN_TOPIC);
            if (meant != TopicId(0) && meant != topic->topic_id) {
                return make_error(ErrorCode::UNKNOWN_TOPIC,
                                  "the topic of that id is gone; the name has a successor");
            }
            result.topic_id = topic->topic_id;
            result.partition_count = topic->partition_count;
            return MutationBody(TopicDeleted{topic->topic_id});
        });
    if (!committed.ok()) return committed.error();
    return result;
}

Result<DeclareResult> DeclareHandler::delete_group(Fiber& fiber, const DeclareRequest& request) {
    MORTAR_TRY(check_group_name(request.name));
    DeclareResult result{{}, 0, DeclareOutcome::IDEMPOTENT_OK};
    const Result<MutationId> committed = metadata_.propose(
        fiber, [&request, &result](const Catalog& catalog) -> Result<MutationBody> {
            const ConsumerGroup* group = catalog.find_group(request.name);
            // 0x2005 UNKNOWN_GROUP is never sent in v0 (contract E4).
            if (group == nullptr)
                return make_error(ErrorCode::UNKNOWN_TOPIC, "there is no group of that name");
            if (!group->members.empty()) {
                return make_error(ErrorCode::GROUP_EXISTS_MISMATCH,
                                  "the group has members: stop them first");
            }
            result.topic_id = group->topic_id;
            return MutationBody(GroupDeleted{group->group_id});
        });
    if (!committed.ok()) return committed.error();
    return result;
}

}  // namespace mortar
