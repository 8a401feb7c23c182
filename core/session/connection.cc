#include "core/session/connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/session/limits.h"
#include "core/wire/codec.h"

namespace mortar {

using wire::Op;

Connection::Connection(SessionContext& context, std::unique_ptr<Conn> conn)
    : context_(context),
      conn_(std::move(conn)),
      peer_(conn_->peer_address()),
      replies_(std::make_shared<ReplyQueue>(
          outbox_,
          [&context](Op op, const Error& error) {
              context.env.log.error("request_failed", {{"op", std::string(wire::op_name(op))},
                                                       {"reason", error.to_string()}});
          })),
      group_(context.env.scheduler),
      requests_(context.env.scheduler),
      dispatch_(context, session_, replies_, requests_, group_),
      connect_deadline_(deadline_after(context.env.clock, wire::CONNECT_TIMEOUT)) {}

void Connection::run(Fiber& fiber) {
    reader_ = group_.spawn("session.read", [this](Fiber& reader) { read_requests(reader); });
    write_answers(fiber);
    group_.cancel_and_join(fiber);
    dispatch_.close();
    context_.delivery.on_session_closed(session_);
    replies_->detach();
    if (!aborted_) linger(fiber, *conn_, context_.env.clock);
    conn_->close();
    // A SUB under way commits its member and then finds the session closed; cut short, that member
    // would stay.
    if (!requests_.join(fiber).ok()) requests_.cancel_and_join(fiber);
}

void Connection::stop() {
    context_.env.scheduler.cancel(reader_);
    begin_close();
}

void Connection::abort() {
    aborted_ = true;
    conn_->close();
    outbox_.ready().notify_all();
}

void Connection::read_requests(Fiber& fiber) {
    wire::FrameReader reader(*conn_, context_.env.clock, context_.frame_budget);
    int frames_this_turn = 0;
    while (true) {
        if (!wait_for_room(fiber).ok()) return;
        if (++frames_this_turn >= FRAMES_A_TURN) {
            frames_this_turn = 0;
            context_.env.scheduler.yield(fiber);
        }
        if (fiber.is_cancelled()) return;  // a full buffer gives frames without a wait
        const Result<wire::FrameView> frame = reader.read(fiber, read_limits());
        if (!frame.ok()) return on_read_failed(frame.error());
        handle_frame(fiber, *frame);
        if (replies_->is_closing()) return begin_close();
    }
}

// Contract R1: at a frame boundary, and only there.
Result<void> Connection::wait_for_room(Fiber& fiber) {
    while (true) {
        if (replies_->unanswered_count() >= UNANSWERED_COUNT_MAX ||
            replies_->unanswered_bytes() >= UNANSWERED_BYTES_MAX) {
            MORTAR_TRY(replies_->answered().wait(fiber));
        } else if (outbox_.size_bytes() >= OUTBOX_BYTES_MAX && !outbox_.is_finished()) {
            MORTAR_TRY(outbox_.drained().wait(fiber));
        } else {
            return {};
        }
    }
}

wire::ReadLimits Connection::read_limits() const {
    if (!connected_) return {wire::PRE_CONNECT_FRAME_LEN_MAX, connect_deadline_};
    return {wire::MAX_FRAME_LEN, deadline_after(context_.env.clock, wire::KEEPALIVE_LIMIT)};
}

void Connection::handle_frame(Fiber& fiber, const wire::FrameView& frame) {
    if (connected_) return dispatch_.handle(frame);
    if (Op{frame.op} == Op::CONNECT) return handle_connect(fiber, frame);
    dispatch_.handle_early(frame);
}

void Connection::handle_connect(Fiber& fiber, const wire::FrameView& frame) {
    Reply reply = replies_->open(Op::CONNECT, wire::FRAME_HEAD_BYTES + frame.payload.size());
    const Result<void> judged = judge_connect(context_.auth, frame.payload);
    if (judged.is(ErrorCode::AUTH_FAILED)) {
        context_.env.log.warn("auth_failed", {{"peer", peer_}});
        const MonoTime answer_at = deadline_after(context_.env.clock, AUTH_FAILURE_DELAY);
        const Result<void> waited = context_.env.scheduler.sleep_until(fiber, answer_at);
        if (!waited.ok())
            return reply.error(judged.error());  // the node stops; nothing else is read
    }
    if (!judged.ok()) return reply.error(judged.error());
    connected_ = true;
    reply.ok();
}

void Connection::on_read_failed(const Error& error) {
    switch (error.code) {
        case ErrorCode::CANCELLED:
            return;  // stop() or the end of run() did it
        case ErrorCode::BAD_LENGTH:
            return refuse(error);
        case ErrorCode::LIMIT_REACHED:
            return refuse(make_error(
                ErrorCode::QUOTA_EXCEEDED,
                "the node holds too many unfinished frames: send smaller ones, retry later"));
        case ErrorCode::TIMED_OUT:
            if (!connected_) {
                return refuse(make_error(ErrorCode::AUTH_TIMEOUT, "send CONNECT within 10 s"));
            }
            context_.env.log.info("client_timed_out", {{"peer", peer_}, {"detail", error.detail}});
            return abort();
        default:
            return abort();
    }
}

// An ERR for bytes of which no op was read; it closes, whatever its code.
void Connection::refuse(const Error& error) {
    replies_->open(Op{wire::NO_OP}, 0).error(error);
    begin_close();
}

void Connection::begin_close() {
    if (closing_) return;
    closing_ = true;
    close_deadline_ = deadline_after(context_.env.clock, CLOSE_TIMEOUT);
    context_.delivery.on_other_frame(
        session_);  // waiting PULLs end, so that what is behind them can leave
    outbox_.ready().notify_all();
}

void Connection::write_answers(Fiber& fiber) {
    while (!aborted_) {
        if (outbox_.is_empty()) {
            if (is_done() || !outbox_.ready().wait(fiber, close_deadline_).ok()) return;
            continue;
        }
        const Result<void> written = write_parts(fiber, outbox_.take());
        if (!written.ok()) return abort();
    }
}

bool Connection::is_done() const {
    return outbox_.is_finished() || (closing_ && replies_->unanswered_count() == 0);
}

Result<void> Connection::write_parts(Fiber& fiber, const std::vector<Outbox::Part>& parts) {
    const Clock& clock = context_.env.clock;
    std::size_t part = 0;
    std::size_t part_offset = 0;
    bool is_slow = false;
    while (part < parts.size()) {
        std::array<ByteSpan, WRITE_PARTS_MAX> views;
        std::size_t view_count = 0;
        std::size_t bytes = 0;
        bool ends_frame = false;
        while (part < parts.size() && view_count < views.size() && bytes < WRITE_BYTES_MAX &&
               !(is_slow && ends_frame)) {
            const ByteSpan rest = parts[part].view().subspan(part_offset);
            const ByteSpan view = rest.first(std::min(rest.size(), WRITE_BYTES_MAX - bytes));
            views[view_count++] = view;
            bytes += view.size();
            part_offset += view.size();
            ends_frame = view.size() == rest.size() && parts[part].ends_frame;
            if (view.size() == rest.size()) {
                ++part;
                part_offset = 0;
            }
        }
        const MonoTime started = clock.now();
        MORTAR_TRY(conn_->write(fiber, std::span<const ByteSpan>(views.data(), view_count),
                                started + SLOW_CONSUMER_TIMEOUT + SLOW_CONSUMER_GRACE));
        outbox_.done_writing(bytes);
        const MonoTime ended = clock.now();
        is_slow = is_slow || ended - started >= SLOW_CONSUMER_TIMEOUT;
        if (is_slow && ends_frame) {
            tell_slow_consumer(fiber);
            return make_error(ErrorCode::SLOW_CONSUMER);
        }
    }
    return {};
}

void Connection::tell_slow_consumer(Fiber& fiber) {
    context_.env.log.warn("slow_consumer", {{"peer", peer_}});
    ByteVector frame;
    wire::encode_err(frame, ErrorCode::SLOW_CONSUMER, wire::NO_OP, "consume faster, reconnect");
    const ByteSpan parts[] = {frame};
    const Result<void> told =
        conn_->write(fiber, parts, deadline_after(context_.env.clock, SLOW_CONSUMER_GRACE));
    if (!told.ok()) return;
    group_.cancel_and_join(fiber);  // one reads at a time
    linger(fiber, *conn_, context_.env.clock);
}

void linger(Fiber& fiber, Conn& conn, const Clock& clock) {
    conn.shutdown_write();
    const MonoTime deadline = deadline_after(clock, LINGER_TIMEOUT);
    std::array<std::byte, 4096> dropped;
    std::size_t dropped_bytes = 0;
    while (dropped_bytes < LINGER_BYTES_MAX) {
        const Result<std::size_t> count = conn.read(fiber, dropped, deadline);
        if (!count.ok() || *count == 0) return;
        dropped_bytes += *count;
    }
}

}  // namespace mortar
