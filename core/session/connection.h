// connection: one client connection: reads, dispatches, answers in order, keeps its deadlines, ends
// in good order.
// Shape:    run() is the writer and the owner of the end; a reader fiber and the fibers of requests
//           are its children. The reader stops at a frame boundary while too much is unanswered or
//           unsent.
// Owns:     the Conn, outbox, replies and session. Its address is the session's identity, so it
//           does not move.
// Errors:   what the peer did wrong is answered by its code, after all earlier answers, then the
//           connection closes. A peer that ends its half gets its answers; a lost connection just
//           ends. A peer that takes nothing for SLOW_CONSUMER_TIMEOUT is told so, if it can be.
// Suspends: run, until the connection is closed and every fiber of it has ended.
// Source:   contract S1, S3, S4, S5, R1; wire protocol 1 (keepalive, half frame).
#pragma once

#include <memory>
#include <string>

#include "core/deliver/delivery.h"
#include "core/fiber/group.h"
#include "core/session/dispatch.h"
#include "core/wire/frame.h"

namespace mortar {

class Connection {
  public:
    Connection(SessionContext& context, SessionShared& shared, std::unique_ptr<Conn> conn);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void run(Fiber& fiber);
    // Reads no further; what was read is answered, then it closes.
    void stop();
    // Closes now.
    void abort();

  private:
    void read_requests(Fiber& fiber);
    Result<void> wait_for_room(Fiber& fiber);
    wire::ReadLimits read_limits() const;
    void handle_frame(Fiber& fiber, const wire::FrameView& frame);
    void handle_connect(Fiber& fiber, const wire::FrameView& frame);
    void on_read_failed(const wire::FrameReader& reader, const Error& error);
    void refuse(const Error& error);
    void begin_close();
    void on_close_due();
    void write_answers(Fiber& fiber);
    bool is_done() const;
    Result<void> write_parts(Fiber& fiber, const std::vector<Outbox::Part>& parts);
    // rest: up to the end of a frame.
    void tell_slow_consumer(Fiber& fiber, std::vector<ByteSpan> rest);

    SessionContext& context_;
    SessionShared& shared_;
    std::unique_ptr<Conn> conn_;
    std::string peer_;
    Outbox outbox_{&shared_.outbox_budget};
    Session session_{outbox_};
    std::shared_ptr<ReplyQueue> replies_;
    Group group_;     // the reader: cancelled at the end
    Group requests_;  // waited for at the end
    Dispatch dispatch_;
    FiberId reader_;
    MonoTime connect_deadline_;
    bool connected_ = false;
    bool has_published_ = false;  // by its latest frame
    bool closing_ = false;        // all that is unanswered is answered, then it ends
    bool aborted_ = false;
    bool is_writing_ = false;
    bool has_progress_ = false;  // bytes went out since close_timer_ was armed
    MonoTime close_deadline_ = NEVER;
    Timer close_timer_;
};

// Ends our half and drops what the peer still sends, for a while: closing over unread bytes would
// reset the connection, and a reset takes back what was sent last.
void linger(Fiber& fiber, Conn& conn, const Clock& clock);

}  // namespace mortar
