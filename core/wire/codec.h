// codec: strict encode and decode of every message of the wire, without allocation on decode.
// Shape:  decode_x takes the payload of one frame; encode appends one whole frame (length, op,
//         payload) to out and grows out at most once. encode_head leaves out the bytes of value,
//         which the caller writes right behind.
// Owns:   nothing; a decoded message borrows its payload.
// Errors: MALFORMED_PAYLOAD, detail "OP field: what is wrong"; decode_connect also
//         UNSUPPORTED_VERSION. encode stops the process on a message that breaks a limit: check
//         what users give before.
// Source: wire protocol v0 section 2, contract S1, S2, S6.
#pragma once

#include "core/base/result.h"
#include "core/wire/messages.h"

namespace mortar::wire {

// UNSUPPORTED_VERSION is judged by the first byte alone: the rest of another version may look
// different.
Result<Connect> decode_connect(ByteSpan payload);
Result<Declare> decode_declare(ByteSpan payload);
Result<Pub> decode_pub(ByteSpan payload);
Result<Sub> decode_sub(ByteSpan payload);
Result<Ack> decode_ack(ByteSpan payload);
Result<Nack> decode_nack(ByteSpan payload);
Result<Ping> decode_ping(ByteSpan payload);
Result<Err> decode_err(ByteSpan payload);
Result<Ok> decode_ok(ByteSpan payload);
Result<Msg> decode_msg(ByteSpan payload);
Result<Pull> decode_pull(ByteSpan payload);
Result<Heartbeat> decode_heartbeat(ByteSpan payload);
Result<Notice> decode_notice(ByteSpan payload);
Result<ControlAck> decode_control_ack(ByteSpan payload);
Result<Credit> decode_credit(ByteSpan payload);

// Of OK.result; a tail behind the known fields is ignored.
Result<DeclareResult> decode_declare_result(ByteSpan result);
Result<PubResult> decode_pub_result(ByteSpan result);
Result<SubResult> decode_sub_result(ByteSpan result);
Result<CreditResult> decode_credit_result(ByteSpan result);

void encode(ByteVector& out, const Connect& connect);
void encode(ByteVector& out, const Declare& declare);
void encode(ByteVector& out, const Pub& pub);
void encode(ByteVector& out, const Sub& sub);
void encode(ByteVector& out, const Ack& ack);
void encode(ByteVector& out, const Nack& nack);
void encode(ByteVector& out, const Ping& ping);
// A message over MAX_ERR_MESSAGE is cut before a whole UTF-8 character.
void encode(ByteVector& out, const Err& err);
void encode(ByteVector& out, const Ok& ok);
void encode(ByteVector& out, const Msg& msg);
void encode(ByteVector& out, const Pull& pull);
void encode(ByteVector& out, const Heartbeat& heartbeat);
void encode(ByteVector& out, const Notice& notice);
void encode(ByteVector& out, const ControlAck& control_ack);
void encode(ByteVector& out, const Credit& credit);

// Everything but the bytes of value.
void encode_head(ByteVector& out, const Pub& pub);
void encode_head(ByteVector& out, const Msg& msg);

// An ERR for one of our codes; a local code is our mistake.
void encode_err(ByteVector& out, ErrorCode code, std::uint8_t request_op, std::string_view message);

// A whole OK frame around a result; request_op follows from the type.
void encode_ok(ByteVector& out, const DeclareResult& result);
void encode_ok(ByteVector& out, const PubResult& result);
void encode_ok(ByteVector& out, const SubResult& result);
void encode_ok(ByteVector& out, const CreditResult& result);
// An OK whose result is empty.
void encode_ok(ByteVector& out, Op request_op);

}  // namespace mortar::wire
