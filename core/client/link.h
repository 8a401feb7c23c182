// link: one connection to the cluster's leader that heals itself: connect, CONNECT, follow the leader, reconnect.
// Shape:    a session is the time between CONNECT's OK and the end of that connection; sessions are numbered from 1. Where
//           the next one goes is Route's matter. A broker that says that it does not lead, that stays silent while requests
//           wait, or that takes nothing for long ends its session.
//           Requests are pipelined; answers are matched in order (their request_op is checked). MSG, NOTICE, the begin
//           and the end of a session go to a LinkHandler. Nothing is resent here: an end answers what waits with an error.
// Owns:     its connection and fibers. Bytes handed to send are kept until they are written.
// Errors:   an answer carries the broker's code and text; CONNECTION_CLOSED when the session ended first (the outcome
//           is unknown then). Wrong token or version ends the link for good: wait_up and last_error tell why.
// Suspends: wait_up, request, close. send and restart do not.
// Invariant: each Answer is called exactly once, in the order of the sends, before on_down of its session; never
//           from inside send. Close a link before destroying it (unless its node is killed). In a cluster nothing follows
//           the first request of a session that is not a PULL or PING before its answer proves that this is the leader.
// Source:   contract R1, R2, R3, R4, 8 (client reconnect), design 1.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/client/route.h"
#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/wire/frame.h"
#include "core/wire/messages.h"

namespace mortar::client {

// What a client needs of the world: everything but a disk.
struct ClientEnv {
    Clock& clock;
    Scheduler& scheduler;
    Net& net;
    RngSource& rng;
    Log& log;
};
inline ClientEnv client_env(const Env& env) {
    return {env.clock, env.scheduler, env.net, env.rng, env.log};
}

struct LinkOptions {
    std::vector<std::string> addresses;  // host:port, or several with commas; at least one in all
    std::string token;
    // Name of the random stream: two clients on one node need different ones.
    std::string rng_name = "client";
    Duration connect_timeout = seconds(5);   // TCP, then CONNECT's answer: each
    Duration request_timeout = seconds(10);  // the broker answers within 2 s, or it is gone
};

// A session that had a request answered with OK, or lasted so long without a refusal for lack of a quorum, was a good one: the
// backoff begins anew.
inline constexpr Duration SESSION_PROVEN_AFTER = seconds(5);
// TCP, and CONNECT's answer, while another address may answer sooner.
inline constexpr Duration HURRIED_CONNECT_MAX = seconds(1);
// A PING leaves when nothing was sent for so long; the broker closes after 45 s of silence.
inline constexpr Duration PING_AFTER = seconds(15);
// Every request is answered within 2 s (contract R2): a broker that says nothing for so long while one waits is gone.
inline constexpr Duration SILENCE_MAX = seconds(3);
// .. and for as long as what is under way may take on a slow line.
inline constexpr std::int64_t LINE_BYTES_PER_S_MIN = 1024 * 1024;
// A PULL may wait longer in silence: a PING ends it, and asks whether anybody is there.
inline constexpr Duration PING_BEHIND_PULL_AFTER = seconds(2);
inline constexpr Duration SILENCE_BEHIND_PULL_MAX = milliseconds(1500);
// What came while this process slept is read before anything counts as silence.
inline constexpr Duration LOOP_STALL = seconds(1);
// A leader that refuses everything for so long for lack of a quorum may not be the one that the others follow.
inline constexpr Duration UNAVAILABLE_PATIENCE = seconds(5);
// Frames in one gather write.
inline constexpr std::size_t WRITE_FRAMES_MAX = 256;

// Called from the link's fiber; must not suspend. Views are borrowed for the call.
class LinkHandler {
  public:
    virtual ~LinkHandler() = default;
    virtual void on_up() {}
    virtual void on_down(const Error& why) { (void)why; }
    virtual void on_msg(const wire::Msg& msg) { (void)msg; }
    virtual void on_notice(const wire::Notice& notice) { (void)notice; }
};

class Link {
  public:
    // The OK's result, borrowed for the call, or why there is none. Must not suspend.
    using Answer = std::function<void(Result<ByteSpan>)>;

    // handler may be null; it must outlive the link's fibers.
    Link(const ClientEnv& env, LinkOptions options, LinkHandler* handler = nullptr);
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    // Begins to connect, and never stops trying until close.
    void start();
    bool is_up() const { return up_; }
    // Number of the present or, while down, of the last session; 0 before the first.
    std::uint64_t session() const { return session_; }
    // TIMED_OUT names the addresses and the last reason.
    Result<void> wait_up(Fiber& fiber, MonoTime deadline);
    // The address of the present or the last attempt; empty before the first.
    const std::string& broker() const { return broker_; }
    // Set once the link has given up for good.
    const std::optional<Error>& fatal_error() const { return fatal_; }
    // Why the last attempt or session ended, address first; empty before the first end.
    const std::optional<Error>& last_error() const { return last_error_; }
    // `a:1 (why it failed), b:2 (..)` since the last good session.
    std::string tried() const;

    // Queues one whole frame, whose last bytes may be tail. Only while is_up(). extra_wait is added to the time that the
    // answer may take (a PULL waits).
    void send(wire::Op op, ByteVector frame, Answer answer, wire::SharedBytes tail = {},
              Duration extra_wait = {});
    // CONNECTION_CLOSED at once while the link is down.
    Result<ByteVector> request(Fiber& fiber, wire::Op op, ByteVector frame);
    // Ends the session; the link connects again.
    void restart(Error why);
    // When a frame was queued last.
    MonoTime last_sent() const { return last_sent_; }
    std::size_t unanswered_count() const { return pending_.size(); }
    // Waits until its fibers are gone. Idempotent.
    void close(Fiber& fiber);

  private:
    struct Pending {
        wire::Op op;
        MonoTime sent_at;
        MonoTime deadline;
        std::size_t bytes = 0;
        Answer answer;
    };
    // Whether the broker of this session leads.
    enum class Probe : std::uint8_t {
        WANTED,  // the next request asks it
        ASKED,   // nothing follows that request before its answer
        PROVEN,  // it does, or there is no other
    };
    struct OutFrame {
        ByteVector frame;
        wire::SharedBytes tail;
    };

    void run(Fiber& fiber);
    Result<void> wait_before(Fiber& fiber, Duration pause);
    Error serve_session(Fiber& fiber, const Route::Attempt& attempt);
    Error read_frames(Fiber& fiber);
    void write_frames(Fiber& fiber);
    void watch(Fiber& fiber);
    void enqueue(wire::Op op, ByteVector frame, wire::SharedBytes tail, Duration may_take,
                 Answer answer);
    void queue_frame(wire::Op op, OutFrame out);
    void on_proven();
    bool asks_leader(wire::Op op) const;
    void send_connect(Duration patience);
    void on_connected(const Result<ByteSpan>& answer);
    Result<void> dispatch(const wire::FrameView& frame);
    Result<void> dispatch_ok(ByteSpan payload);
    Result<void> dispatch_err(ByteSpan payload);
    void judge_refusal(const Error& error);
    void leave_for_leader(const Error& error);
    void end_session(Error why);
    void fail_pending(const Error& why);
    void judge_session(const std::string& address, const Error& why, MonoTime began);
    void remember_failure(const std::string& address, const Error& why);
    MonoTime give_up_at() const;
    MonoTime ping_due() const;

    ClientEnv env_;
    LinkOptions options_;
    LinkHandler* handler_;
    Route route_;
    Group group_;
    wire::FrameBudget budget_;

    bool started_ = false;
    bool closed_ = false;
    bool up_ = false;
    std::uint64_t session_ = 0;
    std::optional<Error> fatal_;
    std::optional<Error> last_error_;
    std::string broker_;
    Event up_changed_;

    // By address, since the last good session.
    std::map<std::string, std::string> failures_;
    // Of this round: the refusal that no waiting makes right; whether anybody accepted the token.
    std::optional<Error> hopeless_;
    bool is_accepted_ = false;

    // Of the present session.
    std::unique_ptr<Conn> conn_;
    std::optional<Error> end_reason_;
    bool came_up_ = false;
    bool proven_ = false;
    bool has_no_leader_ = false;
    std::optional<LeaderHint> hint_;
    std::optional<MonoTime> unavailable_since_;
    Probe probe_ = Probe::PROVEN;
    std::deque<Pending> pending_;
    std::size_t pending_bytes_ = 0;
    std::deque<OutFrame> out_;
    std::deque<OutFrame> held_;  // until the answer of the request that asks for the leader
    MonoTime last_sent_;
    MonoTime last_heard_;
    MonoTime not_before_;  // that a silence counts, after a stall
    Event out_ready_;
    Event watch_changed_;
};

}  // namespace mortar::client
