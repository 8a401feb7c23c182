#include "core/session/dispatch.h"

#include <utility>

#include "core/fiber/deadline.h"
#include "core/session/limits.h"
#include "core/wire/codec.h"

namespace mortar {
namespace {

using wire::Op;

// A DECLARE's answer: by its handler, or by the clock when that takes too long.
struct DeclareAnswer {
    Reply reply;
    Event answered;

    void give(const Result<wire::DeclareResult>& result) {
        if (!reply.is_pending()) return;
        if (result.ok()) {
            reply.ok(*result);
        } else {
            reply.error(result.error());
        }
        answered.notify_all();
    }
};

// Decodes, then hands message and reply on; what does not decode is answered.
template <class T, class Handler>
void with(const Result<T>& message, Reply& reply, const Handler& handler) {
    if (!message.ok()) return reply.error(message.error());
    handler(*message, std::move(reply));
}

}  // namespace

struct Dispatch::StartOrder {
    std::uint64_t next_ticket = 0;
    std::uint64_t started_count = 0;
    bool closed = false;
    Event started;
};

Dispatch::Dispatch(SessionContext& context, Session& session, std::shared_ptr<ReplyQueue> replies,
                   Group& requests, Group& timers)
    : context_(context),
      session_(session),
      replies_(std::move(replies)),
      requests_(requests),
      timers_(timers),
      order_(std::make_shared<StartOrder>()) {}

bool Dispatch::open_request(const wire::FrameView& frame, Reply& reply) {
    const Op op{frame.op};
    if (op == Op::ERR) {
        handle_err(frame);
        return false;
    }
    reply = replies_->open(op, wire::FRAME_HEAD_BYTES + frame.payload.size());
    if (!wire::op_known(frame.op)) {
        reply.error(make_error(ErrorCode::UNKNOWN_OP,
                               "op " + std::to_string(frame.op) + " is not in this version"));
        return false;
    }
    if (!wire::client_may_send(op)) {
        reply.error(make_error(ErrorCode::MALFORMED_PAYLOAD,
                               std::string(wire::op_name(op)) + " is sent by brokers only"));
        return false;
    }
    return true;
}

void Dispatch::handle_early(const wire::FrameView& frame) {
    Reply reply;
    if (!open_request(frame, reply)) return;
    if (reply.op() != Op::PING)
        return reply.error(make_error(ErrorCode::NOT_AUTHENTICATED, "CONNECT first"));
    with(wire::decode_ping(frame.payload), reply, [](const wire::Ping&, Reply r) { r.ok(); });
}

void Dispatch::handle(const wire::FrameView& frame) {
    if (Op{frame.op} != Op::PULL) context_.delivery.on_other_frame(session_);
    Reply reply;
    if (!open_request(frame, reply)) return;
    Delivery& delivery = context_.delivery;
    switch (reply.op()) {
        case Op::CONNECT:
            return reply.error(
                make_error(ErrorCode::MALFORMED_PAYLOAD, "CONNECT is sent once a connection"));
        case Op::DECLARE:
            return with(wire::decode_declare(frame.payload), reply,
                        [this](const wire::Declare& declare, Reply r) {
                            start_declare(declare, std::move(r));
                        });
        case Op::PUB:
            return with(wire::decode_pub(frame.payload), reply,
                        [this](const wire::Pub& pub, Reply r) {
                            context_.publisher.handle_pub(pub, std::move(r));
                        });
        case Op::SUB:
            return with(wire::decode_sub(frame.payload), reply,
                        [this](const wire::Sub& sub, Reply r) { start_sub(sub, std::move(r)); });
        case Op::ACK:
            return with(wire::decode_ack(frame.payload), reply,
                        [this, &delivery](const wire::Ack& ack, Reply r) {
                            delivery.handle_ack(session_, ack, std::move(r));
                        });
        case Op::NACK:
            return with(wire::decode_nack(frame.payload), reply,
                        [this, &delivery](const wire::Nack& nack, Reply r) {
                            delivery.handle_nack(session_, nack, std::move(r));
                        });
        case Op::PING:
            return with(wire::decode_ping(frame.payload), reply,
                        [](const wire::Ping&, Reply r) { r.ok(); });
        case Op::PULL:
            return with(wire::decode_pull(frame.payload), reply,
                        [this, &delivery](const wire::Pull& pull, Reply r) {
                            delivery.handle_pull(session_, pull, std::move(r));
                        });
        case Op::HEARTBEAT:
            return with(wire::decode_heartbeat(frame.payload), reply,
                        [this](const wire::Heartbeat& beat, Reply r) {
                            start_heartbeat(beat, std::move(r));
                        });
        case Op::CONTROL_ACK:
            return with(wire::decode_control_ack(frame.payload), reply,
                        [this, &delivery](const wire::ControlAck& control_ack, Reply r) {
                            delivery.handle_control_ack(session_, control_ack, std::move(r));
                        });
        case Op::CREDIT:
            return with(wire::decode_credit(frame.payload), reply,
                        [this, &delivery](const wire::Credit& credit, Reply r) {
                            delivery.handle_credit(session_, credit, std::move(r));
                        });
        case Op::ERR:
        case Op::OK:
        case Op::MSG:
        case Op::NOTICE:
            break;  // open_request let none of them through
    }
    MORTAR_UNREACHABLE();
}

void Dispatch::close() {
    order_->closed = true;
}

// Contract S1: a well-formed one is for our log.
void Dispatch::handle_err(const wire::FrameView& frame) {
    const Result<wire::Err> err = wire::decode_err(frame.payload);
    if (!err.ok()) {
        return replies_->open(Op::ERR, wire::FRAME_HEAD_BYTES + frame.payload.size())
            .error(err.error());
    }
    context_.env.log.warn("client_error", {{"code", std::to_string(err->code)},
                                           {"message", std::string(err->message)}});
}

void Dispatch::start_declare(const wire::Declare& declare, Reply reply) {
    auto answer = std::make_shared<DeclareAnswer>();
    answer->reply = std::move(reply);
    DeclareRequest request{std::string(declare.topic), declare.partition_count, declare.flags};
    DeclareHandler& handler = context_.declare;
    start_in_order("session.declare",
                   [answer, request = std::move(request), &handler](Fiber& fiber) {
                       const Result<wire::DeclareResult> result = handler.handle(fiber, request);
                       if (!result.is(ErrorCode::CANCELLED)) answer->give(result);
                   });
    const MonoTime deadline = deadline_after(context_.env.clock, METADATA_TIMEOUT);
    timers_.spawn("session.declare_deadline", [answer, deadline](Fiber& fiber) {
        while (answer->reply.is_pending()) {
            const Result<void> answered = answer->answered.wait(fiber, deadline);
            if (answered.is(ErrorCode::CANCELLED)) return;
            if (answered.is(ErrorCode::TIMED_OUT)) {
                answer->give(make_error(
                    ErrorCode::MUTATION_FENCED,
                    "not confirmed in time: the outcome is unknown, send the same DECLARE again"));
            }
        }
    });
}

void Dispatch::start_sub(const wire::Sub& sub, Reply reply) {
    auto held = std::make_shared<Reply>(std::move(reply));
    start_in_order("session.sub", [this, sub, group = std::string(sub.group), held](Fiber& fiber) {
        wire::Sub owned = sub;
        owned.group = group;
        context_.delivery.handle_sub(fiber, session_, owned, std::move(*held));
    });
}

void Dispatch::start_heartbeat(const wire::Heartbeat& heartbeat, Reply reply) {
    auto held = std::make_shared<Reply>(std::move(reply));
    start_in_order("session.heartbeat", [this, heartbeat, held](Fiber& fiber) {
        context_.delivery.handle_heartbeat(fiber, session_, heartbeat, std::move(*held));
    });
}

// Fibers may be run in any order; what counts as the start is the handler's first step.
void Dispatch::start_in_order(std::string name, std::function<void(Fiber&)> body) {
    const std::uint64_t ticket = order_->next_ticket++;
    requests_.spawn(std::move(name),
                    [order = order_, ticket, body = std::move(body)](Fiber& fiber) {
                        while (order->started_count != ticket) {
                            if (!order->started.wait(fiber).ok()) return;
                        }
                        ++order->started_count;
                        order->started.notify_all();
                        if (!order->closed) body(fiber);
                    });
}

}  // namespace mortar
