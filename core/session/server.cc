#include "core/session/server.h"

#include <utility>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar {

SessionServer::SessionServer(SessionContext context, std::unique_ptr<Listener> listener,
                             std::size_t connection_count_max, std::size_t request_fibers_max)
    : context_(context),
      listener_(std::move(listener)),
      connection_count_max_(connection_count_max),
      running_(context.env.scheduler),
      refusing_(context.env.scheduler),
      timing_(context.env.scheduler) {
    shared_.request_fibers_max = request_fibers_max;
    timing_.spawn("session.timers",
                  [this](Fiber& fiber) { shared_.timers.run(fiber, context_.env.clock); });
}

SessionServer::~SessionServer() = default;

void SessionServer::serve(Fiber& fiber) {
    while (true) {
        Result<std::unique_ptr<Conn>> accepted = listener_->accept(fiber);
        if (!accepted.ok()) return;
        if (connections_.size() >= connection_count_max_) {
            refuse(std::move(accepted).value(), "the maximum of connections is reached");
        } else if (!context_.env.scheduler.has_room(CONNECTION_FIBERS)) {
            refuse(std::move(accepted).value(),
                   "the system gives no more memory or mappings for fiber stacks");
        } else {
            start(std::move(accepted).value());
        }
    }
}

void SessionServer::drain(Fiber& fiber) {
    for (const auto& [id, connection] : connections_)
        connection->stop();
    // Each has its own CLOSE_TIMEOUT; a peer that takes nothing must not keep the node from
    // stopping.
    const MonoTime deadline = deadline_after(context_.env.clock, CLOSE_TIMEOUT + LINGER_TIMEOUT);
    while (!connections_.empty()) {
        if (!ended_.wait(fiber, deadline).ok()) break;
    }
    for (const auto& [id, connection] : connections_)
        connection->abort();
    running_.cancel_and_join(fiber);
    refusing_.cancel_and_join(fiber);
    timing_.cancel_and_join(fiber);
}

void SessionServer::start(std::unique_ptr<Conn> conn) {
    const std::uint64_t id = next_connection_++;
    connections_.emplace(id, std::make_unique<Connection>(context_, shared_, std::move(conn)));
    running_.spawn("session.connection", [this, id](Fiber& fiber) {
        connections_.at(id)->run(fiber);
        connections_.erase(id);
        ended_.notify_all();
    });
}

// Told in a fiber: the accept loop waits for nobody.
void SessionServer::refuse(std::unique_ptr<Conn> conn, const char* reason) {
    context_.env.log.warn("connection_refused",
                          {{"peer", conn->peer_address()}, {"reason", reason}});
    if (refusing_.size() >= REFUSING_COUNT_MAX) return;
    refusing_.spawn("session.refuse", [this, held = std::shared_ptr<Conn>(std::move(conn))](
                                          Fiber& fiber) {
        ByteVector frame;
        wire::encode_err(frame, ErrorCode::QUOTA_EXCEEDED, wire::NO_OP,
                         "the node serves its maximum of connections: close some, or retry later");
        const ByteSpan parts[] = {frame};
        if (held->write(fiber, parts, deadline_after(context_.env.clock, LINGER_TIMEOUT)).ok()) {
            linger(fiber, *held, context_.env.clock);
        }
        held->close();
    });
}

}  // namespace mortar
