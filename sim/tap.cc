#include "sim/tap.h"

#include <string>
#include <utility>

#include "core/wire/codec.h"

namespace mortar::sim {
namespace {

// Calls each(op, payload) for every whole frame at the front and removes them. False when the framing itself is broken.
template <class Each>
bool cut_frames(ByteVector& bytes, Each each) {
    std::size_t at = 0;
    bool sound = true;
    while (bytes.size() - at >= wire::LENGTH_BYTES) {
        const std::uint32_t length = load_be<std::uint32_t>(bytes.data() + at);
        if (length == 0 || length > wire::MAX_FRAME_LEN) {
            sound = false;
            break;
        }
        if (bytes.size() - at < wire::LENGTH_BYTES + length) break;
        const ByteSpan frame = ByteSpan(bytes).subspan(at + wire::LENGTH_BYTES, length);
        at += wire::LENGTH_BYTES + length;
        each(static_cast<std::uint8_t>(frame[0]), frame.subspan(1));
    }
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    return sound;
}

}  // namespace

void Tap::on_client_bytes(ConnId conn, ByteSpan bytes) {
    if (ended_.contains(conn)) return;
    Connection& connection = connections_[conn];
    if (connection.client_garbage) return;
    connection.from_client.insert(connection.from_client.end(), bytes.begin(), bytes.end());
    connection.client_garbage = !cut_frames(
        connection.from_client,
        [&](std::uint8_t op, ByteSpan payload) { client_frame(conn, connection, op, payload); });
}

void Tap::client_frame(ConnId id, Connection& connection, std::uint8_t op, ByteSpan payload) {
    if (!wire::op_known(op) || !wire::is_request(static_cast<wire::Op>(op))) return;
    Request request;
    request.op = static_cast<wire::Op>(op);
    switch (request.op) {
        case wire::Op::PUB: {
            const Result<wire::Pub> pub = wire::decode_pub(payload);
            if (!pub.ok()) break;
            request.pub = {.conn = id,
                           .asked = {pub->topic_id, pub->partition},
                           .producer_id = pub->producer_id,
                           .producer_seq = pub->producer_seq,
                           .digest = payload_digest(pub->key.data(), pub->key.size(),
                                                    pub->value.data(), pub->value.size())};
            tell([&](Checker& checker) { checker.on_pub(request.pub); });
            break;
        }
        case wire::Op::DECLARE: {
            const Result<wire::Declare> declare = wire::decode_declare(payload);
            if (!declare.ok()) break;
            constexpr std::uint16_t DELETES_TOPIC = wire::DECLARE_FLAG_DELETE;
            request.deletes_topic =
                declare->flags == DELETES_TOPIC && declare->partition_count != 0;
            if (!request.deletes_topic) break;
            request.topic_id = TopicId(declare->partition_count);
            tell([&](Checker& checker) { checker.on_topic_delete_sent(request.topic_id); });
            break;
        }
        case wire::Op::SUB: {
            const Result<wire::Sub> sub = wire::decode_sub(payload);
            if (!sub.ok()) break;
            request.group = std::string(sub->group);
            request.topic_id = sub->topic_id;
            request.credit_count = sub->credit_count;
            request.credit_bytes = sub->credit_bytes;
            break;
        }
        case wire::Op::ACK: {
            const Result<wire::Ack> ack = wire::decode_ack(payload);
            if (!ack.ok()) break;
            request.where = where(connection, ack->subscription_id, ack->topic_id, ack->partition);
            request.sequence = ack->seq;
            request.progress = (ack->flags & wire::ACK_FLAG_PROGRESS) != 0;
            break;
        }
        case wire::Op::NACK: {
            const Result<wire::Nack> nack = wire::decode_nack(payload);
            if (!nack.ok()) break;
            request.where =
                where(connection, nack->subscription_id, nack->topic_id, nack->partition);
            request.sequence = nack->seq;
            break;
        }
        case wire::Op::CREDIT: {
            const Result<wire::Credit> credit = wire::decode_credit(payload);
            if (!credit.ok()) break;
            request.where = where(connection, credit->subscription_id, TopicId(0), ANY_PARTITION);
            break;
        }
        default:
            break;
    }
    connection.waiting.push_back(std::move(request));
}

GroupPartition Tap::where(const Connection& connection, SubscriptionId subscription_id,
                          TopicId topic_id, PartitionIndex partition) const {
    const auto found = connection.subscriptions.find(subscription_id);
    return {found == connection.subscriptions.end() ? std::string() : found->second.first,
            {topic_id, partition}};
}

void Tap::on_broker_bytes(ConnId conn, ByteSpan bytes) {
    if (ended_.contains(conn)) return;
    Connection& connection = connections_[conn];
    connection.from_broker.insert(connection.from_broker.end(), bytes.begin(), bytes.end());
    const bool sound = cut_frames(connection.from_broker, [&](std::uint8_t op, ByteSpan payload) {
        broker_frame(conn, connection, op, payload);
    });
    if (!sound)
        tell([&](Checker& checker) { checker.on_malformed(conn, "a frame of impossible length"); });
}

void Tap::broker_frame(ConnId id, Connection& connection, std::uint8_t op, ByteSpan payload) {
    const auto malformed = [&](const Error& error) {
        tell([&](Checker& checker) { checker.on_malformed(id, error.to_string()); });
    };
    if (!wire::op_known(op) || !wire::server_may_send(static_cast<wire::Op>(op))) {
        return malformed(make_error(ErrorCode::UNKNOWN_OP, "op " + std::to_string(op)));
    }
    tell([&](Checker& checker) { checker.on_broker_frame(id); });
    switch (static_cast<wire::Op>(op)) {
        case wire::Op::OK: {
            const Result<wire::Ok> answer = wire::decode_ok(payload);
            return answer.ok() ? answer_ok(id, connection, *answer) : malformed(answer.error());
        }
        case wire::Op::ERR: {
            const Result<wire::Err> answer = wire::decode_err(payload);
            return answer.ok() ? answer_error(id, connection, *answer) : malformed(answer.error());
        }
        case wire::Op::NOTICE: {
            const Result<wire::Notice> notice = wire::decode_notice(payload);
            if (!notice.ok()) return malformed(notice.error());
            return tell([&](Checker& checker) { checker.on_notice(id, *notice); });
        }
        case wire::Op::MSG: {
            const Result<wire::Msg> msg = wire::decode_msg(payload);
            if (!msg.ok()) return malformed(msg.error());
            MsgSent sent;
            sent.conn = id;
            sent.where = where(connection, msg->subscription_id, msg->topic_id, msg->partition);
            sent.sequence = msg->sequence;
            sent.delivery_id = msg->delivery_id;
            sent.attempt = msg->attempt;
            sent.is_last = (msg->flags & wire::MSG_FLAG_LAST) != 0;
            sent.ownership_epoch = msg->ownership_epoch;
            sent.digest = payload_digest(msg->key.data(), msg->key.size(), msg->value.data(),
                                         msg->value.size());
            sent.payload_bytes = msg->key.size() + msg->value.size();
            return tell([&](Checker& checker) { checker.on_msg(sent); });
        }
        default:
            return;
    }
}

void Tap::answer_ok(ConnId id, Connection& connection, const wire::Ok& ok) {
    if (connection.waiting.empty() || connection.waiting.front().op != ok.request_op) {
        const std::string what =
            "OK(" + std::string(wire::op_name(ok.request_op)) + ") out of turn";
        return tell([&](Checker& checker) { checker.on_malformed(id, what); });
    }
    const Request request = std::move(connection.waiting.front());
    connection.waiting.pop_front();
    switch (request.op) {
        case wire::Op::PUB: {
            const Result<wire::PubResult> result = wire::decode_pub_result(ok.result);
            if (!result.ok()) {
                return tell([&](Checker& checker) {
                    checker.on_malformed(id, result.error().to_string());
                });
            }
            ++acked_pubs_;
            return tell([&](Checker& checker) { checker.on_pub_ok(request.pub, *result); });
        }
        case wire::Op::DECLARE:
            if (!request.deletes_topic) return;
            return tell([&](Checker& checker) { checker.on_topic_deleted(request.topic_id); });
        case wire::Op::SUB: {
            const Result<wire::SubResult> result = wire::decode_sub_result(ok.result);
            if (!result.ok()) {
                return tell([&](Checker& checker) {
                    checker.on_malformed(id, result.error().to_string());
                });
            }
            connection.subscriptions[result->subscription_id] = {request.group, request.topic_id};
            tell([&](Checker& checker) {
                checker.on_sub_ok(id, request.group, request.topic_id, *result);
                checker.on_credit(id, {request.group, {request.topic_id, ANY_PARTITION}},
                                  request.credit_count, request.credit_bytes);
            });
            return;
        }
        case wire::Op::ACK:
            if (request.progress) return;
            ++acked_messages_;
            return tell(
                [&](Checker& checker) { checker.on_ack_ok(request.where, request.sequence); });
        case wire::Op::NACK:
            return tell(
                [&](Checker& checker) { checker.on_nack_ok(request.where, request.sequence); });
        case wire::Op::CREDIT: {
            const Result<wire::CreditResult> result = wire::decode_credit_result(ok.result);
            if (!result.ok()) {
                return tell([&](Checker& checker) {
                    checker.on_malformed(id, result.error().to_string());
                });
            }
            return tell([&](Checker& checker) {
                checker.on_credit(id, request.where, result->granted_count, result->granted_bytes);
            });
        }
        default:
            return;
    }
}

void Tap::answer_error(ConnId id, Connection& connection, const wire::Err& err) {
    const ErrorInfo* info = find_error(err.code);
    if (info == nullptr || is_local(info->code)) {
        return tell([&](Checker& checker) {
            checker.on_malformed(id, "ERR with unregistered code " + std::to_string(err.code));
        });
    }
    if (info->closes) {
        connection.ended_by_error = true;
        // The request that was judged, when the answer is its own.
        if (!connection.waiting.empty() && connection.waiting.front().op == wire::Op::PUB &&
            err.request_op == static_cast<std::uint8_t>(wire::Op::PUB)) {
            const PubRequest pub = connection.waiting.front().pub;
            connection.waiting.pop_front();
            tell([&](Checker& checker) { checker.on_pub_error(pub, err.code); });
        }
        return;
    }
    if (connection.waiting.empty() ||
        static_cast<std::uint8_t>(connection.waiting.front().op) != err.request_op) {
        return tell([&](Checker& checker) { checker.on_malformed(id, "ERR out of turn"); });
    }
    const Request request = std::move(connection.waiting.front());
    connection.waiting.pop_front();
    if (request.op == wire::Op::PUB) {
        tell([&](Checker& checker) { checker.on_pub_error(request.pub, err.code); });
    }
}

void Tap::on_end(ConnId conn) {
    const auto found = connections_.find(conn);
    if (found == connections_.end()) return;
    for (const Request& request : found->second.waiting) {
        if (request.op == wire::Op::PUB) {
            tell([&](Checker& checker) { checker.on_pub_unanswered(request.pub); });
        }
    }
    tell([&](Checker& checker) { checker.on_connection_end(conn); });
    connections_.erase(found);
    ended_.insert(conn);
}

}  // namespace mortar::sim
