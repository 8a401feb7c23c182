// admin: topics and groups over the wire: look up, create, delete. Each call is one DECLARE, sent until it is decided.
// Shape:    every function takes a started Link and a deadline.
// Errors:   the broker's (UNKNOWN_TOPIC, TOPIC_EXISTS_MISMATCH, GROUP_EXISTS_MISMATCH, INVALID_TOPIC ..); INVALID_ARGUMENT
//           for a name that does not fit in a frame; TIMED_OUT with the last reason; the link's fatal error.
// Suspends: all. Sending a DECLARE again is safe: a DELETE names the topic_id that it means once that is known.
// Source:   contract T1..T4, R2.
#pragma once

#include <functional>

#include "core/client/link.h"

namespace mortar::client {

struct TopicInfo {
    TopicId topic_id;
    std::uint16_t partition_count = 0;
    bool existed = true;
};

// Sends what encode makes in each session until it is answered with OK or with an error that is not retryable.
Result<ByteVector> request_until(Fiber& fiber, const ClientEnv& env, Link& link, wire::Op op,
                                 const std::function<ByteVector()>& encode, MonoTime deadline);

// 1 to MAX_TOPIC_LEN bytes; the broker judges the rest.
Result<void> check_name(std::string_view what, std::string_view name);

// UNKNOWN_TOPIC when there is none.
Result<TopicInfo> lookup_topic(Fiber& fiber, const ClientEnv& env, Link& link,
                               std::string_view name, MonoTime deadline);
// partition_count 0 = the broker's default, or whatever an existing topic has.
Result<TopicInfo> create_topic(Fiber& fiber, const ClientEnv& env, Link& link,
                               std::string_view name, std::uint16_t partition_count,
                               MonoTime deadline);
// Deletes exactly the topic that bears the name now; answers with what was deleted. UNKNOWN_TOPIC when there is none.
Result<TopicInfo> delete_topic(Fiber& fiber, const ClientEnv& env, Link& link,
                               std::string_view name, MonoTime deadline);
// GROUP_EXISTS_MISMATCH while it has members; UNKNOWN_TOPIC when there is none.
Result<void> delete_group(Fiber& fiber, const ClientEnv& env, Link& link, std::string_view name,
                          MonoTime deadline);

}  // namespace mortar::client
