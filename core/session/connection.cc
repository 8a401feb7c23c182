#include "core/session/connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/session/limits.h"
#include "core/wire/codec.h"

namespace mortar {

using wire::Op;

Connection::Connection(SessionContext& context, SessionShared& shared, std::unique_ptr<Conn> conn)
    : context_(context),
      shared_(shared),
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
      dispatch_(context, shared, session_, replies_, requests_),
      connect_deadline_(deadline_after(context.env.clock, wire::CONNECT_TIMEOUT)),
      close_timer_(shared.timers, [this] { on_close_due(); }) {}

void Connection::run(Fiber& fiber) {
    reader_ = group_.spawn("session.read", [this](Fiber& reader) { read_requests(reader); });
    write_answers(fiber);
    close_timer_.cancel();
    dispatch_.close();
    group_.cancel_and_join(fiber);
    dispatch_.leave();
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
        const Result<void> room = wait_for_room(fiber);
        if (!room.ok()) return on_read_failed(reader, room.error());
        if (++frames_this_turn >= FRAMES_A_TURN) {
            frames_this_turn = 0;
            context_.env.scheduler.yield(fiber);
        }
        if (fiber.is_cancelled()) return;  // a full buffer gives frames without a wait
        const Result<wire::FrameView> frame = reader.read(fiber, read_limits());
        // A request that was started earlier may have been answered meanwhile by an ERR that closes.
        if (replies_->is_closing()) return begin_close();
        if (!frame.ok()) return on_read_failed(reader, frame.error());
        has_published_ = connected_ && Op{frame->op} == Op::PUB;
        handle_frame(fiber, *frame);
        if (replies_->is_closing()) return begin_close();
    }
}

// Contract R1: at a frame boundary, and only there. S3: the time to CONNECT runs on.
Result<void> Connection::wait_for_room(Fiber& fiber) {
    while (true) {
        const MonoTime deadline = connected_ ? NEVER : connect_deadline_;
        const std::size_t outbox_max = connected_ ? OUTBOX_BYTES_MAX : PRE_CONNECT_OUTBOX_BYTES_MAX;
        if (replies_->unanswered_count() >= UNANSWERED_COUNT_MAX ||
            replies_->unanswered_bytes() >= UNANSWERED_BYTES_MAX) {
            MORTAR_TRY(replies_->answered().wait(fiber, deadline));
        } else if (!outbox_.has_room(outbox_max) && !outbox_.is_finished()) {
            MORTAR_TRY(outbox_.drained().wait(fiber, deadline));
        } else if (has_published_ && context_.gate.pace().held_until() > MonoTime{}) {
            // Held back for a follower that catches up: what was sent keeps its place, and waits to be read.
            ProducePace& pace = context_.gate.pace();
            const Result<void> waited = pace.released().wait(fiber, pace.held_until());
            if (waited.is(ErrorCode::CANCELLED)) return waited;
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
    if (connected_) return dispatch_.handle(fiber, frame);
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

void Connection::on_read_failed(const wire::FrameReader& reader, const Error& error) {
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
            // It asks no more, and may wait for its answers.
            if (reader.has_ended() && !reader.in_mid_frame()) return begin_close();
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
    close_timer_.arm(close_deadline_);
    dispatch_.end_waiting_pulls();
    outbox_.ready().notify_all();
}

// The wait for answers has its own deadline; this one is for a peer that does not take them.
void Connection::on_close_due() {
    if (is_writing_ && (!connected_ || !has_progress_)) return abort();
    has_progress_ = false;
    const MonoTime again = deadline_after(context_.env.clock, CLOSE_TIMEOUT);
    if (is_writing_) close_deadline_ = again;
    close_timer_.arm(again);
}

void Connection::write_answers(Fiber& fiber) {
    while (!aborted_) {
        if (outbox_.is_empty()) {
            if (is_done() || !outbox_.ready().wait(fiber, close_deadline_).ok()) return;
            continue;
        }
        is_writing_ = true;
        const Result<void> written = write_parts(fiber, outbox_.take());
        is_writing_ = false;
        if (!written.ok()) return abort();
    }
}

bool Connection::is_done() const {
    return outbox_.is_finished() || (closing_ && replies_->unanswered_count() == 0);
}

Result<void> Connection::write_parts(Fiber& fiber, const std::vector<Outbox::Part>& parts) {
    std::size_t part = 0;
    std::size_t part_offset = 0;
    while (part < parts.size()) {
        std::array<ByteSpan, WRITE_PARTS_MAX> views;
        std::size_t view_count = 0;
        std::size_t bytes = 0;
        for (std::size_t i = part, offset = part_offset;
             i < parts.size() && view_count < views.size() && bytes < WRITE_BYTES_MAX;
             ++i, offset = 0) {
            const ByteSpan rest = parts[i].view().subspan(offset);
            views[view_count++] = rest.first(std::min(rest.size(), WRITE_BYTES_MAX - bytes));
            bytes += views[view_count - 1].size();
        }
        const Result<std::size_t> written =
            conn_->write_some(fiber, std::span<const ByteSpan>(views.data(), view_count),
                              deadline_after(context_.env.clock, SLOW_CONSUMER_TIMEOUT));
        if (written.is(ErrorCode::TIMED_OUT)) {
            std::vector<ByteSpan> rest;
            const bool is_between = part_offset == 0 && (part == 0 || parts[part - 1].ends_frame);
            while (!is_between && part < parts.size()) {
                rest.push_back(parts[part].view().subspan(std::exchange(part_offset, 0)));
                if (parts[part++].ends_frame) break;
            }
            tell_slow_consumer(fiber, std::move(rest));
        }
        if (!written.ok()) return written.error();
        has_progress_ = true;
        outbox_.done_writing(*written);
        part_offset += *written;
        while (part < parts.size() && part_offset >= parts[part].view().size())
            part_offset -= parts[part++].view().size();
    }
    return {};
}

void Connection::tell_slow_consumer(Fiber& fiber, std::vector<ByteSpan> rest) {
    context_.env.log.warn("slow_consumer", {{"peer", peer_}});
    ByteVector frame;
    wire::encode_err(frame, ErrorCode::SLOW_CONSUMER, wire::NO_OP, "consume faster, reconnect");
    rest.push_back(frame);
    const Result<void> told =
        conn_->write(fiber, rest, deadline_after(context_.env.clock, SLOW_CONSUMER_GRACE));
    if (!told.ok()) return;
    dispatch_.close();
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
