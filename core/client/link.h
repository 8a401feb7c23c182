// link: one connection to the cluster's leader that heals itself: connect, CONNECT, follow the leader, reconnect.
// Shape:    a session is the time between CONNECT's OK and the end of that connection; sessions are numbered from 1.
//           Requests are pipelined; answers are matched in order (their request_op is checked). MSG, NOTICE, the begin
//           and the end of a session go to a LinkHandler. Nothing is resent here: an end answers what waits with an error.
// Owns:     its connection and fibers. Bytes handed to send are kept until they are written.
// Errors:   an answer carries the broker's code and text; CONNECTION_CLOSED when the session ended first (the outcome
//           is unknown then). Wrong token or version ends the link for good: wait_up and last_error tell why.
// Suspends: wait_up, request, close. send and restart do not.
// Invariant: each Answer is called exactly once, in the order of the sends, before on_down of its session; never
//           from inside send. Close a link before destroying it (unless its node is killed).
// Source:   contract R1, R2, R3, 8 (client reconnect), design 1.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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
    std::vector<std::string> addresses;  // host:port, at least one; tried in turn
    std::string token;
    // Name of the random stream: two clients on one node need different ones.
    std::string rng_name = "client";
    Duration connect_timeout = seconds(5);   // TCP, then CONNECT's answer: each
    Duration request_timeout = seconds(10);  // the broker answers within 2 s, or it is gone
};

inline constexpr Duration RECONNECT_FIRST_MAX = milliseconds(100);
inline constexpr Duration RECONNECT_BASE = milliseconds(500);
inline constexpr Duration RECONNECT_MAX = seconds(30);
// A session that lasted so long, or had a request answered with OK, was a good one: the backoff begins anew.
inline constexpr Duration SESSION_PROVEN_AFTER = seconds(5);
// Leader hints followed at once, one after the other; then each counts as a failure.
inline constexpr int REDIRECTS_FREE = 3;
// A PING leaves when nothing was sent for so long; the broker closes after 45 s of silence.
inline constexpr Duration PING_AFTER = seconds(15);
// Frames in one gather write.
inline constexpr std::size_t WRITE_FRAMES_MAX = 256;

// `leader node=<id> addr=<host:port> epoch=<n>`; empty when the text says `leader unknown` or something else.
std::string leader_hint_address(std::string_view text);

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
    // Set once the link has given up for good.
    const std::optional<Error>& fatal_error() const { return fatal_; }
    // Why the last attempt or session ended, address first; empty before the first end.
    const std::optional<Error>& last_error() const { return last_error_; }

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
        MonoTime deadline;
        Answer answer;
    };
    struct OutFrame {
        ByteVector frame;
        wire::SharedBytes tail;
    };

    void run(Fiber& fiber);
    Result<void> wait_before_attempt(Fiber& fiber);
    Duration attempt_delay();
    std::string pick_address();
    Error serve_session(Fiber& fiber, const std::string& address);
    Error read_frames(Fiber& fiber);
    void write_frames(Fiber& fiber);
    void watch(Fiber& fiber);
    void enqueue(wire::Op op, ByteVector frame, wire::SharedBytes tail, Duration may_take,
                 Answer answer);
    void send_connect();
    void on_connected(const Result<ByteSpan>& answer);
    Result<void> dispatch(const wire::FrameView& frame);
    Result<void> dispatch_ok(ByteSpan payload);
    Result<void> dispatch_err(ByteSpan payload);
    void follow_leader(const Error& error);
    void end_session(Error why);
    void fail_pending(const Error& why);
    void judge_session(MonoTime began);

    ClientEnv env_;
    LinkOptions options_;
    LinkHandler* handler_;
    Rng rng_;
    Group group_;
    wire::FrameBudget budget_;

    bool started_ = false;
    bool closed_ = false;
    bool up_ = false;
    std::uint64_t session_ = 0;
    std::optional<Error> fatal_;
    std::optional<Error> last_error_;
    Event up_changed_;

    // Which address comes next, and when.
    std::size_t address_index_ = 0;
    std::string hinted_address_;
    int failure_count_ = -1;  // in a row; -1: nothing was tried yet
    int redirect_count_ = 0;

    // Of the present session.
    std::unique_ptr<Conn> conn_;
    std::optional<Error> end_reason_;
    bool came_up_ = false;
    bool proven_ = false;
    bool redirected_ = false;
    std::deque<Pending> pending_;
    std::deque<OutFrame> out_;
    MonoTime last_sent_;
    Event out_ready_;
    Event watch_changed_;
};

}  // namespace mortar::client
