// dispatch: the one switch from op to handler, for one connection that has connected.
// Shape:    every request gets its slot in arrival order; what never suspends runs at once, the
//           rest in a fiber of the connection, started in arrival order too.
// Owns:     nothing but the order of starts.
// Errors:   answered as ERR with the op of the request; a frame that is not one of ours ends the
//           connection by its code.
// Source:   contract S1, R1, R2, C1; wire protocol 2.
#pragma once

#include <memory>
#include <string>

#include "core/deliver/delivery.h"
#include "core/fiber/group.h"
#include "core/produce/publish.h"
#include "core/session/connect.h"
#include "core/session/declare.h"
#include "core/wire/frame.h"

namespace mortar {

// What all connections of a node share.
struct SessionContext {
    Env& env;
    Publisher& publisher;
    Delivery& delivery;
    DeclareHandler& declare;
    const ClientAuth& auth;
    wire::FrameBudget& frame_budget;
};

class Dispatch {
  public:
    // requests: for fibers that must end by themselves (a half-made subscription would stay for
    // ever); timers: for those that may be cancelled when the connection ends.
    Dispatch(SessionContext& context, Session& session, std::shared_ptr<ReplyQueue> replies,
             Group& requests, Group& timers);

    // Any frame but CONNECT before the connection is authenticated.
    void handle_early(const wire::FrameView& frame);
    // Any frame afterwards.
    void handle(const wire::FrameView& frame);
    // The session is closed: what has not started by now never does.
    void close();

  private:
    struct StartOrder;

    // The slot of a request; nothing when the frame was answered or was no request.
    bool open_request(const wire::FrameView& frame, Reply& reply);
    void handle_err(const wire::FrameView& frame);
    void start_declare(const wire::Declare& declare, Reply reply);
    void start_sub(const wire::Sub& sub, Reply reply);
    void start_heartbeat(const wire::Heartbeat& heartbeat, Reply reply);
    void start_in_order(std::string name, std::function<void(Fiber&)> body);

    SessionContext& context_;
    Session& session_;
    std::shared_ptr<ReplyQueue> replies_;
    Group& requests_;
    Group& timers_;
    std::shared_ptr<StartOrder> order_;
};

}  // namespace mortar
