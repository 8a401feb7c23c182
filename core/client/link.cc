#include "core/client/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar::client {

namespace {

std::string join(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) {
        if (!text.empty()) text.append(", ");
        text.append(part);
    }
    return text;
}

// The broker's code and text as our Error. A code of a newer broker, or a local one, is reported as INTERNAL.
Error error_from(const wire::Err& err) {
    const ErrorInfo* info = find_error(err.code);
    if (info == nullptr || is_local(info->code)) {
        return make_error(ErrorCode::INTERNAL,
                          fmt::format("unknown code {:#06x}: {}", err.code, err.message));
    }
    return make_error(info->code, std::string(err.message));
}

bool means_not_leader(ErrorCode code) {
    return code == ErrorCode::STALE_LEADER_EPOCH || code == ErrorCode::LEASE_EXPIRED ||
           code == ErrorCode::PRODUCER_EPOCH_STALE;
}

bool ends_for_good(ErrorCode code) {
    return code == ErrorCode::AUTH_FAILED || code == ErrorCode::UNSUPPORTED_VERSION;
}

}  // namespace

std::string leader_hint_address(std::string_view text) {
    constexpr std::string_view HEAD = "leader node=";
    constexpr std::string_view FIELD = " addr=";
    if (!text.starts_with(HEAD)) return {};
    const std::size_t at = text.find(FIELD);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + FIELD.size());
    return std::string(rest.substr(0, rest.find(' ')));
}

Link::Link(const ClientEnv& env, LinkOptions options, LinkHandler* handler)
    : env_(env),
      options_(std::move(options)),
      handler_(handler),
      rng_(env.rng.stream(options_.rng_name + ".link")),
      group_(env.scheduler) {
    MORTAR_ASSERT(!options_.addresses.empty());
}

void Link::start() {
    MORTAR_ASSERT(!started_);
    started_ = true;
    group_.spawn("client.link", [this](Fiber& fiber) { run(fiber); });
}

Result<void> Link::wait_up(Fiber& fiber, MonoTime deadline) {
    while (!up_) {
        if (fatal_) return *fatal_;
        if (closed_) return make_error(ErrorCode::CONNECTION_CLOSED, "the client was closed");
        Result<void> waited = up_changed_.wait(fiber, deadline);
        if (waited.is(ErrorCode::TIMED_OUT)) {
            return make_error(
                ErrorCode::TIMED_OUT,
                fmt::format("no broker at {} accepted a connection: {}", join(options_.addresses),
                            last_error_ ? last_error_->to_string() : "still trying"));
        }
        if (!waited.ok()) return waited;
    }
    return {};
}

void Link::send(wire::Op op, ByteVector frame, Answer answer, wire::SharedBytes tail,
                Duration extra_wait) {
    MORTAR_ASSERT(up_);
    enqueue(op, std::move(frame), std::move(tail), options_.request_timeout + extra_wait,
            std::move(answer));
}

void Link::enqueue(wire::Op op, ByteVector frame, wire::SharedBytes tail, Duration may_take,
                   Answer answer) {
    last_sent_ = env_.clock.now();
    MonoTime deadline = last_sent_ + may_take;
    // Answers come in order: none can be late before the one in front of it is.
    if (!pending_.empty()) deadline = std::max(deadline, pending_.back().deadline);
    const bool was_idle = pending_.empty();
    pending_.push_back({op, deadline, std::move(answer)});
    out_.push_back({std::move(frame), std::move(tail)});
    out_ready_.notify_one();
    if (was_idle) watch_changed_.notify_one();
}

Result<ByteVector> Link::request(Fiber& fiber, wire::Op op, ByteVector frame) {
    if (!up_) {
        if (fatal_) return *fatal_;
        return make_error(ErrorCode::CONNECTION_CLOSED, "not connected");
    }
    struct Waiting {
        Event answered;
        std::optional<Result<ByteVector>> answer;
    };
    auto waiting = std::make_shared<Waiting>();
    send(op, std::move(frame), [waiting](Result<ByteSpan> result) {
        if (result.ok()) {
            waiting->answer = ByteVector(result->begin(), result->end());
        } else {
            waiting->answer = std::move(result).error();
        }
        waiting->answered.notify_all();
    });
    while (!waiting->answer)
        MORTAR_TRY(waiting->answered.wait(fiber));
    return std::move(*waiting->answer);
}

void Link::restart(Error why) {
    if (conn_ != nullptr) end_session(std::move(why));
}

void Link::close(Fiber& fiber) {
    closed_ = true;
    group_.cancel_and_join(fiber);
    up_changed_.notify_all();
}

void Link::run(Fiber& fiber) {
    while (!fatal_ && !closed_) {
        if (!wait_before_attempt(fiber).ok()) return;
        const std::string address = pick_address();
        const MonoTime began = env_.clock.now();
        Error why = serve_session(fiber, address);
        if (fiber.is_cancelled()) return;
        judge_session(began);
        env_.log.debug("client_disconnected", {{"broker", address}, {"reason", why.to_string()}});
        last_error_ = make_error(why.code, fmt::format("{}: {}", address, why.detail));
        if (ends_for_good(why.code)) fatal_ = last_error_;
        if (fatal_) up_changed_.notify_all();
    }
}

Result<void> Link::wait_before_attempt(Fiber& fiber) {
    const Duration delay = attempt_delay();
    if (delay.ns == 0) return {};
    return env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, delay));
}

Duration Link::attempt_delay() {
    if (failure_count_ < 0) return {};
    if (failure_count_ == 0) return nanoseconds(rng_.between(0, RECONNECT_FIRST_MAX.ns));
    constexpr int DOUBLINGS_MAX = 6;  // 500 ms x 2^6 is above RECONNECT_MAX already
    const int doublings = std::min(failure_count_ - 1, DOUBLINGS_MAX);
    const Duration base = std::min(RECONNECT_BASE * (std::int64_t{1} << doublings), RECONNECT_MAX);
    const Duration jitter = nanoseconds(rng_.between(0, base.ns / 2));
    return std::min(base + jitter, RECONNECT_MAX);
}

std::string Link::pick_address() {
    if (!hinted_address_.empty()) return std::exchange(hinted_address_, {});
    return options_.addresses[address_index_ % options_.addresses.size()];
}

// After a session or an attempt: how soon, and where, comes the next one?
void Link::judge_session(MonoTime began) {
    const bool lasted = came_up_ && env_.clock.now() - began >= SESSION_PROVEN_AFTER;
    if (proven_ || (lasted && !redirected_)) {
        failure_count_ = 0;
        redirect_count_ = 0;
        if (!redirected_) return;  // the same broker first: it may only have restarted
    }
    if (redirected_ && redirect_count_ < REDIRECTS_FREE) {
        ++redirect_count_;
        failure_count_ = 0;
        return;
    }
    ++failure_count_;
    if (hinted_address_.empty() && !redirected_) ++address_index_;
}

Error Link::serve_session(Fiber& fiber, const std::string& address) {
    end_reason_.reset();
    came_up_ = false;
    proven_ = false;
    redirected_ = false;
    Result<std::unique_ptr<Conn>> connected =
        env_.net.connect(fiber, address, deadline_after(env_.clock, options_.connect_timeout));
    if (!connected.ok()) return std::move(connected).error();
    conn_ = std::move(connected).value();
    send_connect();
    Group group(env_.scheduler);
    group.spawn("client.link.write", [this](Fiber& writer) { write_frames(writer); });
    group.spawn("client.link.watch", [this](Fiber& watcher) { watch(watcher); });
    const Error read_error = read_frames(fiber);
    Error why = end_reason_ ? *end_reason_ : read_error;
    up_ = false;
    conn_->close();
    group.cancel_and_join(fiber);
    conn_.reset();
    out_.clear();
    fail_pending(why);
    if (came_up_ && handler_ != nullptr) handler_->on_down(why);
    return why;
}

void Link::fail_pending(const Error& why) {
    // The code says what the sender may assume: the outcome of what waited is unknown, whatever ended the session.
    std::deque<Pending> lost = std::exchange(pending_, {});
    for (Pending& pending : lost) {
        if (pending.op == wire::Op::CONNECT) continue;
        if (pending.answer)
            pending.answer(make_error(ErrorCode::CONNECTION_CLOSED, why.to_string()));
    }
}

void Link::send_connect() {
    wire::Connect connect;
    connect.token = as_byte_span(options_.token);
    ByteVector frame;
    wire::encode(frame, connect);
    enqueue(wire::Op::CONNECT, std::move(frame), {}, options_.connect_timeout,
            [this](Result<ByteSpan> answer) { on_connected(answer); });
}

void Link::on_connected(const Result<ByteSpan>& answer) {
    if (!answer.ok()) {
        end_session(answer.error());
        return;
    }
    up_ = true;
    came_up_ = true;
    ++session_;
    env_.log.debug("client_connected", {{"broker", conn_->peer_address()}});
    if (handler_ != nullptr) handler_->on_up();
    up_changed_.notify_all();
}

Error Link::read_frames(Fiber& fiber) {
    wire::FrameReader reader(*conn_, env_.clock, budget_);
    while (true) {
        Result<wire::FrameView> frame = reader.read(fiber, wire::ReadLimits{});
        if (!frame.ok()) return std::move(frame).error();
        if (end_reason_) return *end_reason_;
        Result<void> dispatched = dispatch(*frame);
        if (!dispatched.ok()) return std::move(dispatched).error();
        if (end_reason_) return *end_reason_;
    }
}

Result<void> Link::dispatch(const wire::FrameView& frame) {
    if (frame.op == static_cast<std::uint8_t>(wire::Op::OK)) return dispatch_ok(frame.payload);
    if (frame.op == static_cast<std::uint8_t>(wire::Op::ERR)) return dispatch_err(frame.payload);
    if (!up_)
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          "the broker pushed something before CONNECT's OK");
    if (frame.op == static_cast<std::uint8_t>(wire::Op::MSG)) {
        const wire::Msg msg = MORTAR_TRY(wire::decode_msg(frame.payload));
        if (handler_ != nullptr) handler_->on_msg(msg);
        return {};
    }
    if (frame.op == static_cast<std::uint8_t>(wire::Op::NOTICE)) {
        const wire::Notice notice = MORTAR_TRY(wire::decode_notice(frame.payload));
        if (handler_ != nullptr) handler_->on_notice(notice);
        return {};
    }
    return make_error(ErrorCode::UNKNOWN_OP,
                      fmt::format("the broker sent op {:#04x}: is it newer?", frame.op));
}

Result<void> Link::dispatch_ok(ByteSpan payload) {
    const wire::Ok ok = MORTAR_TRY(wire::decode_ok(payload));
    if (pending_.empty() || pending_.front().op != ok.request_op) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          fmt::format("OK for {} out of turn", wire::op_name(ok.request_op)));
    }
    Pending pending = std::move(pending_.front());
    pending_.pop_front();
    if (pending.op != wire::Op::CONNECT && pending.op != wire::Op::PING) proven_ = true;
    if (pending.answer) pending.answer(ok.result);
    return {};
}

Result<void> Link::dispatch_err(ByteSpan payload) {
    const wire::Err err = MORTAR_TRY(wire::decode_err(payload));
    Error error = error_from(err);
    const bool answers_request =
        !pending_.empty() && err.request_op == static_cast<std::uint8_t>(pending_.front().op);
    // Not for a request: the broker says why it closes this connection.
    if (!answers_request) return error;
    Pending pending = std::move(pending_.front());
    pending_.pop_front();
    // First, so that the receiver of the answer finds the link down and does not send into it again.
    if (means_not_leader(error.code)) follow_leader(error);
    if (error_info(error.code).closes) end_session(error);
    if (pending.answer) pending.answer(std::move(error));
    return {};
}

void Link::follow_leader(const Error& error) {
    redirected_ = true;
    hinted_address_ = leader_hint_address(error.detail);
    if (hinted_address_.empty()) ++address_index_;
    end_session(error);
}

// The first reason counts. The reading fiber does the rest.
void Link::end_session(Error why) {
    if (!end_reason_) end_reason_ = std::move(why);
    up_ = false;
    if (conn_ != nullptr) conn_->close();
}

void Link::write_frames(Fiber& fiber) {
    std::vector<OutFrame> batch;
    std::vector<ByteSpan> parts;
    while (true) {
        while (out_.empty()) {
            if (!out_ready_.wait(fiber).ok()) return;
        }
        batch.clear();
        parts.clear();
        while (!out_.empty() && batch.size() < WRITE_FRAMES_MAX) {
            batch.push_back(std::move(out_.front()));
            out_.pop_front();
        }
        for (const OutFrame& out : batch) {
            parts.emplace_back(out.frame);
            if (!out.tail.view.empty()) parts.push_back(out.tail.view);
        }
        Result<void> written =
            conn_->write(fiber, parts, deadline_after(env_.clock, options_.request_timeout));
        if (written.ok()) continue;
        // A closed connection may still hold the ERR that says why: the reader gets to it.
        if (written.is(ErrorCode::TIMED_OUT)) end_session(std::move(written).error());
        return;
    }
}

// Gives up on a broker that does not answer, and keeps an idle session alive.
void Link::watch(Fiber& fiber) {
    while (true) {
        const MonoTime now = env_.clock.now();
        if (!pending_.empty() && pending_.front().deadline <= now) {
            end_session(make_error(
                ErrorCode::TIMED_OUT,
                fmt::format("no answer to {} in time", wire::op_name(pending_.front().op))));
            return;
        }
        if (up_ && now - last_sent_ >= PING_AFTER) {
            ByteVector frame;
            wire::encode(frame, wire::Ping{});
            send(wire::Op::PING, std::move(frame), nullptr);
        }
        MonoTime next = last_sent_ + PING_AFTER;
        if (!up_) next = NEVER;
        if (!pending_.empty()) next = std::min(next, pending_.front().deadline);
        Result<void> waited = watch_changed_.wait(fiber, next);
        if (!waited.ok() && !waited.is(ErrorCode::TIMED_OUT)) return;
    }
}

}  // namespace mortar::client
