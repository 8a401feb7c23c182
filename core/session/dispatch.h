// dispatch: the one switch from op to handler, for one connection that has connected.
// Shape:    every request gets its slot in arrival order. What never suspends runs at once, in the
//           reader; what may suspend (DECLARE, SUB, LEAVE) queues for one fiber of the connection,
//           which lives while there is some. The reader waits before any other request until all in
//           the queue have started.
// Owns:     the queue, and the deadlines of what is in it or under way.
//           A request is served by what serves at its start. When the node has led anew since, the session's
//           subscriptions are gone (contract R4).
// Errors:   answered as ERR with the op of the request; what Gate::check says; a frame that is not one of ours ends the
//           connection by its code. READ_ONLY_DEGRADED when time ran out (what has started goes on,
//           what has not never does); QUOTA_EXCEEDED when too many connections wait like that.
// Suspends: handle, while a request before this one has not started, and during an election.
// Source:   contract S1, R1, R2, C1; wire protocol 2.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "core/fiber/group.h"
#include "core/session/connect.h"
#include "core/session/gate.h"
#include "core/session/shared.h"
#include "core/wire/frame.h"

namespace mortar {

// What all connections of a node share.
struct SessionContext {
    Env& env;
    const Gate& gate;
    const ClientAuth& auth;
    wire::FrameBudget& frame_budget;
};

class Dispatch {
  public:
    // requests: for the fiber that must end by itself (a half-made subscription would stay for
    // ever).
    Dispatch(SessionContext& context, SessionShared& shared, Session& session,
             std::shared_ptr<ReplyQueue> replies, Group& requests);

    // Any frame but CONNECT before the connection is authenticated.
    void handle_early(const wire::FrameView& frame);
    // Any frame afterwards.
    void handle(Fiber& fiber, const wire::FrameView& frame);
    // The session is closed: what has not started by now never does, and nobody waits for it.
    void close();
    // Waiting PULLs end, so that what is behind them can leave.
    void end_waiting_pulls();
    // After the last request: its members end.
    void leave();

  private:
    using Work = std::function<void(Fiber&, Serving&, Reply)>;
    struct Request {
        Reply reply;
        Work work;
    };
    struct Deadline {
        std::uint64_t slot;
        wire::Op op;
        MonoTime at;
    };

    std::shared_ptr<Serving> enter();
    // The slot of a request; nothing when the frame was answered or was no request.
    bool open_request(const wire::FrameView& frame, Reply& reply);
    void handle_err(const wire::FrameView& frame);
    void start_declare(const wire::Declare& declare, Reply reply);
    void start_sub(const wire::Sub& sub, Reply reply);
    void start_leave(const wire::Heartbeat& heartbeat, Reply reply);
    // In its turn, in the fiber of suspending requests.
    void start(Reply reply, Work work);
    bool take_fiber();
    void run_requests(Fiber& fiber);
    bool may_start() const { return !closed_ && !replies_->is_closing(); }
    void wait_until_all_started(Fiber& fiber);
    void wait_for_leader(Fiber& fiber, const Reply& reply);
    void watch_deadline(const Reply& reply);
    void on_deadline();

    SessionContext& context_;
    SessionShared& shared_;
    Session& session_;
    std::shared_ptr<ReplyQueue> replies_;
    Group& requests_;
    std::weak_ptr<Serving> entered_;  // whose subscriptions the session holds
    std::deque<Request> queue_;       // not started yet
    Event started_;                   // the queue became empty
    bool has_fiber_ = false;
    bool closed_ = false;
    std::deque<Deadline> deadlines_;  // earliest first
    Timer deadline_timer_;
};

}  // namespace mortar
