// any_message: decode the payload of any op and encode what came out, for sweeps over all ops.
#pragma once

#include "core/wire/codec.h"

namespace mortar::testing {

template <class Message>
Result<ByteVector> encode_again(const Result<Message>& message) {
    if (!message.ok()) return message.error();
    ByteVector frame;
    wire::encode(frame, *message);
    return frame;
}

// The whole frame that the decoded message becomes. UNKNOWN_OP for an op that nobody knows.
inline Result<ByteVector> reencode(std::uint8_t op, ByteSpan payload) {
    if (!wire::op_known(op)) return make_error(ErrorCode::UNKNOWN_OP);
    switch (static_cast<wire::Op>(op)) {
        case wire::Op::CONNECT:
            return encode_again(wire::decode_connect(payload));
        case wire::Op::DECLARE:
            return encode_again(wire::decode_declare(payload));
        case wire::Op::PUB:
            return encode_again(wire::decode_pub(payload));
        case wire::Op::SUB:
            return encode_again(wire::decode_sub(payload));
        case wire::Op::ACK:
            return encode_again(wire::decode_ack(payload));
        case wire::Op::NACK:
            return encode_again(wire::decode_nack(payload));
        case wire::Op::PING:
            return encode_again(wire::decode_ping(payload));
        case wire::Op::ERR:
            return encode_again(wire::decode_err(payload));
        case wire::Op::OK:
            return encode_again(wire::decode_ok(payload));
        case wire::Op::MSG:
            return encode_again(wire::decode_msg(payload));
        case wire::Op::PULL:
            return encode_again(wire::decode_pull(payload));
        case wire::Op::HEARTBEAT:
            return encode_again(wire::decode_heartbeat(payload));
        case wire::Op::NOTICE:
            return encode_again(wire::decode_notice(payload));
        case wire::Op::CONTROL_ACK:
            return encode_again(wire::decode_control_ack(payload));
        case wire::Op::CREDIT:
            return encode_again(wire::decode_credit(payload));
    }
    return make_error(ErrorCode::UNKNOWN_OP);
}

template <class ResultStruct>
Result<ByteVector> encode_ok_again(const Result<ResultStruct>& result) {
    if (!result.ok()) return result.error();
    ByteVector frame;
    wire::encode_ok(frame, *result);
    return frame;
}

// The same for OK.result of a request; an op without a result is a mistake of the test.
inline Result<ByteVector> reencode_result(wire::Op request_op, ByteSpan result) {
    switch (request_op) {
        case wire::Op::DECLARE:
            return encode_ok_again(wire::decode_declare_result(result));
        case wire::Op::PUB:
            return encode_ok_again(wire::decode_pub_result(result));
        case wire::Op::SUB:
            return encode_ok_again(wire::decode_sub_result(result));
        case wire::Op::CREDIT:
            return encode_ok_again(wire::decode_credit_result(result));
        default:
            MORTAR_UNREACHABLE();
    }
}

}  // namespace mortar::testing
