#include "core/client/admin.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/wire/codec.h"

namespace mortar::client {

namespace {

// Between two tries of a request that was refused on a connection that goes on.
constexpr Duration RETRY_PAUSE = milliseconds(100);

ByteVector declare_frame(std::string_view name, std::uint16_t partition_count,
                         std::uint16_t flags) {
    wire::Declare declare;
    declare.topic = name;
    declare.partition_count = partition_count;
    declare.flags = flags;
    ByteVector frame;
    wire::encode(frame, declare);
    return frame;
}

Result<TopicInfo> declare(Fiber& fiber, const ClientEnv& env, Link& link, std::string_view name,
                          std::uint16_t partition_count, std::uint16_t flags, MonoTime deadline) {
    MORTAR_TRY(check_name("topic", name));
    const ByteVector result = MORTAR_TRY(request_until(
        fiber, env, link, wire::Op::DECLARE,
        [&] { return declare_frame(name, partition_count, flags); }, deadline));
    const wire::DeclareResult declared = MORTAR_TRY(wire::decode_declare_result(result));
    return TopicInfo{declared.topic_id, declared.partition_count,
                     declared.created == wire::DeclareOutcome::IDEMPOTENT_OK};
}

Error gave_up(const Link& link, const std::string& last_reason) {
    return make_error(ErrorCode::TIMED_OUT, fmt::format("gave up; the last answer was {}; tried {}",
                                                        last_reason, link.tried()));
}

}  // namespace

Result<ByteVector> request_until(Fiber& fiber, const ClientEnv& env, Link& link, wire::Op op,
                                 const std::function<ByteVector()>& encode, MonoTime deadline) {
    std::string last_reason;
    while (true) {
        Result<void> up = link.wait_up(fiber, deadline);
        if (up.is(ErrorCode::TIMED_OUT) && !last_reason.empty()) {
            return gave_up(link, last_reason);
        }
        MORTAR_TRY(std::move(up));
        Result<ByteVector> answer = link.request(fiber, op, encode());
        if (answer.ok() || answer.is(ErrorCode::CANCELLED)) return answer;
        const bool is_lost = answer.is(ErrorCode::CONNECTION_CLOSED);
        if (!is_lost && !error_info(answer.error().code).retryable) return answer;
        last_reason = answer.error().to_string();
        if (env.clock.now() >= deadline) {
            return gave_up(link, last_reason);
        }
        // What ended the session has its own backoff.
        if (!is_lost && link.is_up()) {
            MORTAR_TRY(env.scheduler.sleep_until(
                fiber, std::min(env.clock.now() + RETRY_PAUSE, deadline)));
        }
    }
}

Result<void> check_name(std::string_view what, std::string_view name) {
    if (!name.empty() && name.size() <= wire::MAX_TOPIC_LEN) return {};
    return make_error(ErrorCode::INVALID_ARGUMENT,
                      fmt::format("a {} name has 1 to {} bytes, this one has {}: choose another",
                                  what, wire::MAX_TOPIC_LEN, name.size()));
}

Result<TopicInfo> lookup_topic(Fiber& fiber, const ClientEnv& env, Link& link,
                               std::string_view name, MonoTime deadline) {
    return declare(fiber, env, link, name, 0, wire::DECLARE_FLAG_LOOKUP, deadline);
}

Result<TopicInfo> create_topic(Fiber& fiber, const ClientEnv& env, Link& link,
                               std::string_view name, std::uint16_t partition_count,
                               MonoTime deadline) {
    return declare(fiber, env, link, name, partition_count, 0, deadline);
}

Result<TopicInfo> delete_topic(Fiber& fiber, const ClientEnv& env, Link& link,
                               std::string_view name, MonoTime deadline) {
    const TopicInfo found = MORTAR_TRY(lookup_topic(fiber, env, link, name, deadline));
    Result<TopicInfo> deleted =
        declare(fiber, env, link, name, found.topic_id.value, wire::DECLARE_FLAG_DELETE, deadline);
    // It was there, and is gone: by this request, whose first answer was lost, or by somebody at the same time.
    if (deleted.is(ErrorCode::UNKNOWN_TOPIC)) return found;
    return deleted;
}

Result<void> delete_group(Fiber& fiber, const ClientEnv& env, Link& link, std::string_view name,
                          MonoTime deadline) {
    MORTAR_TRY(check_name("group", name));
    const std::uint16_t flags = wire::DECLARE_FLAG_DELETE | wire::DECLARE_FLAG_GROUP;
    MORTAR_TRY(request_until(
        fiber, env, link, wire::Op::DECLARE, [&] { return declare_frame(name, 0, flags); },
        deadline));
    return {};
}

}  // namespace mortar::client
