#include "core/session/dispatch.h"

#include <utility>

#include "core/fiber/deadline.h"
#include "core/session/limits.h"
#include "core/wire/codec.h"

namespace mortar {
namespace {

using wire::Op;

// May suspend: its handler runs in the fiber of such requests.
bool suspends(Op op, ByteSpan payload) {
    if (op != Op::HEARTBEAT) return op == Op::DECLARE || op == Op::SUB;
    const Result<wire::Heartbeat> beat = wire::decode_heartbeat(payload);
    return beat.ok() && beat->state != wire::HeartbeatState::ACTIVE;
}

// Decodes, then hands message and reply on; what does not decode, or may not be served now, is answered.
template <class T, class Handler>
void with(const Result<T>& message, const Result<void>& allowed, Reply& reply,
          const Handler& handler) {
    if (!message.ok()) return reply.error(message.error());
    if (!allowed.ok()) return reply.error(allowed.error());
    handler(*message, std::move(reply));
}

}  // namespace

Dispatch::Dispatch(SessionContext& context, SessionShared& shared, Session& session,
                   std::shared_ptr<ReplyQueue> replies, Group& requests)
    : context_(context),
      shared_(shared),
      session_(session),
      replies_(std::move(replies)),
      requests_(requests),
      deadline_timer_(shared.timers, [this] { on_deadline(); }) {}

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
    if (!wire::allowed_before_connect(reply.op()))
        return reply.error(make_error(ErrorCode::NOT_AUTHENTICATED, "CONNECT first"));
    with(wire::decode_ping(frame.payload), {}, reply, [](const wire::Ping&, Reply r) { r.ok(); });
}

void Dispatch::handle(Fiber& fiber, const wire::FrameView& frame) {
    std::shared_ptr<Serving> serving = enter();
    if (Op{frame.op} != Op::PULL && serving) serving->delivery.on_other_frame(session_);
    Reply reply;
    if (!open_request(frame, reply)) return;
    if (!queue_.empty() && !suspends(reply.op(), frame.payload)) [[unlikely]] {
        wait_until_all_started(fiber);
        // One of them closes the connection, or it is closed: this one is not executed.
        if (!may_start()) return;
    }
    if (serving == nullptr && reply.op() != Op::CONNECT && reply.op() != Op::PING) {
        wait_for_leader(fiber, reply);
        if (!may_start()) return;
        serving = enter();
    }
    const Result<void> allowed = context_.gate.check(reply.op());
    switch (reply.op()) {
        case Op::CONNECT:
            return reply.error(
                make_error(ErrorCode::MALFORMED_PAYLOAD, "CONNECT is sent once a connection"));
        case Op::DECLARE:
            return with(wire::decode_declare(frame.payload), allowed, reply,
                        [this](const wire::Declare& declare, Reply r) {
                            start_declare(declare, std::move(r));
                        });
        case Op::PUB:
            return with(wire::decode_pub(frame.payload), allowed, reply,
                        [&serving](const wire::Pub& pub, Reply r) {
                            serving->publisher.handle_pub(pub, std::move(r));
                        });
        case Op::SUB:
            return with(wire::decode_sub(frame.payload), allowed, reply,
                        [this](const wire::Sub& sub, Reply r) { start_sub(sub, std::move(r)); });
        case Op::ACK:
            return with(wire::decode_ack(frame.payload), allowed, reply,
                        [this, &serving](const wire::Ack& ack, Reply r) {
                            serving->delivery.handle_ack(session_, ack, std::move(r));
                        });
        case Op::NACK:
            return with(wire::decode_nack(frame.payload), allowed, reply,
                        [this, &serving](const wire::Nack& nack, Reply r) {
                            serving->delivery.handle_nack(session_, nack, std::move(r));
                        });
        case Op::PING:
            return with(wire::decode_ping(frame.payload), {}, reply,
                        [](const wire::Ping&, Reply r) { r.ok(); });
        case Op::PULL:
            return with(wire::decode_pull(frame.payload), allowed, reply,
                        [this, &serving](const wire::Pull& pull, Reply r) {
                            serving->delivery.handle_pull(session_, pull, std::move(r));
                        });
        case Op::HEARTBEAT:
            return with(wire::decode_heartbeat(frame.payload), allowed, reply,
                        [this, &fiber, &serving](const wire::Heartbeat& beat, Reply r) {
                            if (beat.state != wire::HeartbeatState::ACTIVE)
                                return start_leave(beat, std::move(r));
                            serving->delivery.handle_heartbeat(fiber, session_, beat, std::move(r));
                        });
        case Op::CONTROL_ACK:
            return with(wire::decode_control_ack(frame.payload), allowed, reply,
                        [this, &serving](const wire::ControlAck& control_ack, Reply r) {
                            serving->delivery.handle_control_ack(session_, control_ack,
                                                                 std::move(r));
                        });
        case Op::CREDIT:
            return with(wire::decode_credit(frame.payload), allowed, reply,
                        [this, &serving](const wire::Credit& credit, Reply r) {
                            serving->delivery.handle_credit(session_, credit, std::move(r));
                        });
        case Op::ERR:
        case Op::OK:
        case Op::MSG:
        case Op::NOTICE:
            break;  // open_request let none of them through
    }
    MORTAR_UNREACHABLE();
}

// The subscriptions of a session end with the office that they were made in.
std::shared_ptr<Serving> Dispatch::enter() {
    std::shared_ptr<Serving> serving = context_.gate.serving();
    if (serving == nullptr || serving == entered_.lock()) return serving;
    leave();
    entered_ = serving;
    return serving;
}

void Dispatch::leave() {
    if (const std::shared_ptr<Serving> entered = entered_.lock())
        entered->delivery.on_session_closed(session_);
    session_.subscriptions.reset();
    entered_.reset();
}

void Dispatch::end_waiting_pulls() {
    if (const std::shared_ptr<Serving> entered = entered_.lock())
        entered->delivery.on_other_frame(session_);
}

void Dispatch::close() {
    closed_ = true;
    queue_.clear();
    deadline_timer_.cancel();
    started_.notify_all();
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
    DeclareRequest request{std::string(declare.topic), declare.partition_count, declare.flags};
    start(std::move(reply),
          [request = std::move(request)](Fiber& fiber, Serving& serving, Reply r) {
              const Result<wire::DeclareResult> result = serving.declare.handle(fiber, request);
              if (result.ok()) return r.ok(*result);
              if (!result.is(ErrorCode::CANCELLED)) r.error(result.error());
          });
}

void Dispatch::start_sub(const wire::Sub& sub, Reply reply) {
    start(std::move(reply),
          [this, sub, group = std::string(sub.group)](Fiber& fiber, Serving& serving, Reply r) {
              wire::Sub owned = sub;
              owned.group = group;
              serving.delivery.handle_sub(fiber, session_, owned, std::move(r));
          });
}

void Dispatch::start_leave(const wire::Heartbeat& heartbeat, Reply reply) {
    start(std::move(reply), [this, heartbeat](Fiber& fiber, Serving& serving, Reply r) {
        serving.delivery.handle_heartbeat(fiber, session_, heartbeat, std::move(r));
    });
}

void Dispatch::start(Reply reply, Work work) {
    if (!has_fiber_ && !take_fiber()) {
        return reply.error(make_error(ErrorCode::QUOTA_EXCEEDED,
                                      "too many requests are under way on this node: retry later"));
    }
    watch_deadline(reply);
    queue_.push_back({std::move(reply), std::move(work)});
    if (std::exchange(has_fiber_, true)) return;
    requests_.spawn("session.requests", [this](Fiber& fiber) { run_requests(fiber); });
}

bool Dispatch::take_fiber() {
    if (shared_.request_fiber_count < shared_.request_fibers_max &&
        context_.env.scheduler.has_room(1)) {
        ++shared_.request_fiber_count;
        return true;
    }
    if (!std::exchange(shared_.is_refusing_requests, true)) {
        context_.env.log.warn("requests_refused",
                              {{"reason", "no fiber is free for DECLARE, SUB and LEAVE"},
                               {"under_way", std::to_string(shared_.request_fiber_count)}});
    }
    return false;
}

// The start of a request is its handler's first step: whoever waits for that runs after it.
void Dispatch::run_requests(Fiber& fiber) {
    while (!queue_.empty() && may_start()) {
        Request request = std::move(queue_.front());
        queue_.pop_front();
        if (queue_.empty()) started_.notify_all();
        const Result<void> allowed = context_.gate.check(request.reply.op());
        const std::shared_ptr<Serving> serving = enter();
        if (!allowed.ok()) {
            request.reply.error(allowed.error());
        } else {
            request.work(fiber, *serving, std::move(request.reply));
        }
    }
    queue_.clear();
    started_.notify_all();
    has_fiber_ = false;
    --shared_.request_fiber_count;
    shared_.is_refusing_requests = false;
}

// Also once the node stops: what was read before is answered. The deadlines bound it.
void Dispatch::wait_until_all_started(Fiber& fiber) {
    while (!queue_.empty()) {
        const Result<void> waited = started_.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(waited.ok());
    }
}

// The answer is in time all the same (contract R2); only a PULL may wait longer.
void Dispatch::wait_for_leader(Fiber& fiber, const Reply& reply) {
    if (reply.op() != Op::PULL) watch_deadline(reply);
    context_.gate.await_leader(fiber, deadline_after(context_.env.clock, LEADER_WAIT_MAX));
}

void Dispatch::watch_deadline(const Reply& reply) {
    while (!deadlines_.empty() && !replies_->is_awaited(deadlines_.front().slot))
        deadlines_.pop_front();
    deadlines_.push_back(
        {reply.slot(), reply.op(), deadline_after(context_.env.clock, REQUEST_TIMEOUT)});
    deadline_timer_.arm(deadlines_.front().at);
}

void Dispatch::on_deadline() {
    const MonoTime now = context_.env.clock.now();
    while (!deadlines_.empty() && deadlines_.front().at <= now) {
        const Deadline due = deadlines_.front();
        deadlines_.pop_front();
        replies_->expire(due.slot, due.op,
                         make_error(ErrorCode::READ_ONLY_DEGRADED,
                                    "not confirmed in time: the outcome is unknown, send the same "
                                    "request again"));
    }
    const auto is_expired = [](const Request& request) { return !request.reply.is_awaited(); };
    if (std::erase_if(queue_, is_expired) > 0 && queue_.empty()) started_.notify_all();
    if (!deadlines_.empty()) deadline_timer_.arm(deadlines_.front().at);
}

}  // namespace mortar
