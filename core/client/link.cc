#include "core/client/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar::client {

namespace {

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

// Of a leader without a quorum: temporary, unless it is the leader of nobody.
bool means_unavailable(ErrorCode code) {
    return code == ErrorCode::QUORUM_LOST || code == ErrorCode::READ_ONLY_DEGRADED ||
           code == ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH ||
           code == ErrorCode::METADATA_READ_ONLY || code == ErrorCode::MUTATION_FENCED ||
           code == ErrorCode::UNCLEAN_ELECTION_REJECTED || code == ErrorCode::ELECTION_TIMEOUT;
}

bool ends_for_good(ErrorCode code) {
    return code == ErrorCode::AUTH_FAILED || code == ErrorCode::UNSUPPORTED_VERSION;
}

// Notes when bytes came: a frame may be long, and its line slow.
class HeardConn final : public Conn {
  public:
    HeardConn(Conn& conn, const Clock& clock, MonoTime& heard_at)
        : conn_(conn), clock_(clock), heard_at_(heard_at) {}
    Result<std::size_t> read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) override {
        Result<std::size_t> count = conn_.read(fiber, into, deadline);
        if (count.ok()) heard_at_ = clock_.now();
        return count;
    }
    Result<std::size_t> write_some(Fiber& fiber, std::span<const ByteSpan> parts,
                                   MonoTime deadline) override {
        return conn_.write_some(fiber, parts, deadline);
    }
    Result<void> write(Fiber& fiber, std::span<const ByteSpan> parts, MonoTime deadline) override {
        return conn_.write(fiber, parts, deadline);
    }
    void shutdown_write() override { conn_.shutdown_write(); }
    void close() override { conn_.close(); }
    std::string peer_address() const override { return conn_.peer_address(); }

  private:
    Conn& conn_;
    const Clock& clock_;
    MonoTime& heard_at_;
};

}  // namespace

Link::Link(const ClientEnv& env, LinkOptions options, LinkHandler* handler)
    : env_(env),
      options_(std::move(options)),
      handler_(handler),
      route_(split_addresses(options_.addresses), env.rng.stream(options_.rng_name + ".link")),
      group_(env.scheduler) {}

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
            return make_error(ErrorCode::TIMED_OUT,
                              fmt::format("no broker accepted a connection; tried {}", tried()));
        }
        if (!waited.ok()) return waited;
    }
    return {};
}

std::string Link::tried() const {
    std::string text;
    const auto add = [&text](const std::string& address, const std::string& reason) {
        if (!text.empty()) text.append(", ");
        text.append(fmt::format("{} ({})", address, reason));
    };
    for (const std::string& address : route_.addresses()) {
        const auto failed = failures_.find(address);
        add(address, failed == failures_.end() ? "no answer yet" : failed->second);
    }
    for (const auto& [address, reason] : failures_) {
        const std::vector<std::string>& listed = route_.addresses();
        if (std::find(listed.begin(), listed.end(), address) == listed.end()) add(address, reason);
    }
    return text;
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
    const std::size_t bytes = frame.size() + tail.view.size();
    pending_.push_back({op, last_sent_, deadline, bytes, std::move(answer)});
    pending_bytes_ += bytes;
    queue_frame(op, {std::move(frame), std::move(tail)});
    if (was_idle) watch_changed_.notify_one();
}

// A follower would refuse all that a producer has, one by one: a single request asks first. A PULL may take too long.
void Link::queue_frame(wire::Op op, OutFrame out) {
    if (probe_ == Probe::ASKED) {
        held_.push_back(std::move(out));
        return;
    }
    if (probe_ == Probe::WANTED && asks_leader(op) && op != wire::Op::PULL) probe_ = Probe::ASKED;
    out_.push_back(std::move(out));
    out_ready_.notify_one();
}

bool Link::asks_leader(wire::Op op) const {
    return op != wire::Op::CONNECT && op != wire::Op::PING;
}

void Link::on_proven() {
    if (std::exchange(probe_, Probe::PROVEN) != Probe::ASKED) return;
    for (OutFrame& out : held_)
        out_.push_back(std::move(out));
    held_.clear();
    out_ready_.notify_one();
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
        const Route::Attempt attempt = route_.next();
        if (!wait_before(fiber, attempt.pause).ok()) return;
        const MonoTime began = env_.clock.now();
        broker_ = attempt.address;
        Error why = serve_session(fiber, attempt);
        if (fiber.is_cancelled()) return;
        env_.log.debug("client_disconnected",
                       {{"broker", attempt.address}, {"reason", why.to_string()}});
        judge_session(attempt.address, why, began);
        last_error_ = make_error(why.code, fmt::format("{}: {}", attempt.address, why.detail));
        if (attempt.begins_round) {
            hopeless_.reset();
            is_accepted_ = false;
        }
        if (ends_for_good(why.code)) hopeless_ = last_error_;
        is_accepted_ = is_accepted_ || came_up_;
        // One node of several may not know a new token yet.
        if (hopeless_ && !is_accepted_ && route_.is_round_over()) fatal_ = hopeless_;
        if (fatal_) up_changed_.notify_all();
    }
}

Result<void> Link::wait_before(Fiber& fiber, Duration pause) {
    if (pause.ns == 0) return {};
    return env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, pause));
}

// After a session or an attempt: what does it say about where the next one goes?
void Link::judge_session(const std::string& address, const Error& why, MonoTime began) {
    const bool lasted = came_up_ && env_.clock.now() - began >= SESSION_PROVEN_AFTER;
    Route::Ending ending;
    // One that took nothing for that long has lasted, but not served.
    ending.was_good = proven_ || (lasted && !unavailable_since_);
    ending.was_short = !lasted;
    ending.was_silent = why.code == ErrorCode::TIMED_OUT;
    ending.has_no_leader = has_no_leader_;
    ending.hint = std::exchange(hint_, {});
    route_.on_end(ending);
    if (ending.was_good) failures_.clear();
    remember_failure(address, why);
}

void Link::remember_failure(const std::string& address, const Error& why) {
    const bool is_full = failures_.size() >= route_.addresses().size() + HINTS_PER_ROUND_MAX;
    if (is_full && !failures_.contains(address)) failures_.clear();
    failures_[address] = why.to_string();
}

Error Link::serve_session(Fiber& fiber, const Route::Attempt& attempt) {
    end_reason_.reset();
    came_up_ = false;
    proven_ = false;
    has_no_leader_ = false;
    unavailable_since_.reset();
    probe_ = route_.has_others() ? Probe::WANTED : Probe::PROVEN;
    const Duration patience = attempt.is_hurried
                                  ? std::min(options_.connect_timeout, HURRIED_CONNECT_MAX)
                                  : options_.connect_timeout;
    Result<std::unique_ptr<Conn>> connected =
        env_.net.connect(fiber, attempt.address, deadline_after(env_.clock, patience));
    if (!connected.ok()) return std::move(connected).error();
    conn_ = std::move(connected).value();
    last_heard_ = env_.clock.now();
    send_connect(patience);
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
    held_.clear();
    fail_pending(why);
    if (came_up_ && handler_ != nullptr) handler_->on_down(why);
    return why;
}

void Link::fail_pending(const Error& why) {
    // The code says what the sender may assume: the outcome of what waited is unknown, whatever ended the session.
    std::deque<Pending> lost = std::exchange(pending_, {});
    pending_bytes_ = 0;
    for (Pending& pending : lost) {
        if (pending.op == wire::Op::CONNECT) continue;
        if (pending.answer)
            pending.answer(make_error(ErrorCode::CONNECTION_CLOSED, why.to_string()));
    }
}

void Link::send_connect(Duration patience) {
    wire::Connect connect;
    connect.token = as_byte_span(options_.token);
    ByteVector frame;
    wire::encode(frame, connect);
    enqueue(wire::Op::CONNECT, std::move(frame), {}, patience,
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
    HeardConn heard(*conn_, env_.clock, last_heard_);
    wire::FrameReader reader(heard, env_.clock, budget_);
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
    pending_bytes_ -= pending.bytes;
    if (asks_leader(pending.op)) {
        proven_ = true;
        unavailable_since_.reset();
        on_proven();
    }
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
    pending_bytes_ -= pending.bytes;
    // First, so that the receiver of the answer finds the link down and does not send into it again.
    if (asks_leader(pending.op)) judge_refusal(error);
    if (error_info(error.code).closes) end_session(error);
    if (pending.answer) pending.answer(std::move(error));
    return {};
}

void Link::judge_refusal(const Error& error) {
    if (means_not_leader(error.code)) {
        leave_for_leader(error);
        return;
    }
    on_proven();
    if (!means_unavailable(error.code)) return;
    const MonoTime now = env_.clock.now();
    if (!unavailable_since_) unavailable_since_ = now;
    // covers REB-07
    if (now - *unavailable_since_ >= UNAVAILABLE_PATIENCE && route_.has_others())
        leave_for_leader(error);
}

void Link::leave_for_leader(const Error& error) {
    has_no_leader_ = true;
    hint_ = parse_leader_hint(error.detail);
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
    MonoTime wanted = NEVER;
    while (true) {
        const MonoTime now = env_.clock.now();
        if (wanted != NEVER && now - wanted >= LOOP_STALL) not_before_ = now + LOOP_STALL;
        if (!pending_.empty() && give_up_at() <= now) {
            end_session(make_error(
                ErrorCode::TIMED_OUT,
                fmt::format("no answer to {} in time", wire::op_name(pending_.front().op))));
            return;
        }
        if (up_ && ping_due() <= now) {
            ByteVector frame;
            wire::encode(frame, wire::Ping{});
            send(wire::Op::PING, std::move(frame), nullptr);
        }
        wanted = up_ ? ping_due() : NEVER;
        if (!pending_.empty()) wanted = std::min(wanted, give_up_at());
        Result<void> waited = watch_changed_.wait(fiber, wanted);
        if (!waited.ok() && !waited.is(ErrorCode::TIMED_OUT)) return;
    }
}

// contract R2: a broker that is there answers in time. covers NET-01
MonoTime Link::give_up_at() const {
    const Pending& front = pending_.front();
    if (front.op == wire::Op::CONNECT) return std::max(front.deadline, not_before_);
    const Duration under_way =
        milliseconds(static_cast<std::int64_t>(pending_bytes_) * 1000 / LINE_BYTES_PER_S_MIN);
    MonoTime silent = NEVER;
    if (front.op != wire::Op::PULL) {
        silent = std::max(last_heard_, front.sent_at) + SILENCE_MAX + under_way;
    } else if (pending_.size() > 1) {
        // What stands behind a PULL ends it at once (contract C1).
        silent = std::max(last_heard_, pending_[1].sent_at) + SILENCE_BEHIND_PULL_MAX + under_way;
    }
    return std::max(std::min(front.deadline, silent), not_before_);
}

MonoTime Link::ping_due() const {
    const bool pull_waits = pending_.size() == 1 && pending_.front().op == wire::Op::PULL;
    const MonoTime idle = last_sent_ + PING_AFTER;
    // Who has nowhere else to go lets it wait.
    if (!pull_waits || !route_.has_others()) return idle;
    return std::min(idle, std::max(last_heard_, last_sent_) + PING_BEHIND_PULL_AFTER);
}

}  // namespace mortar::client
