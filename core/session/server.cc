#include "core/session/server.h"

#include <utility>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar {

SessionServer::SessionServer(SessionContext context, std::unique_ptr<Listener> listener,
                             std::size_t connection_count_max)
    : context_(context),
      listener_(std::move(listener)),
      connection_count_max_(connection_count_max),
      running_(context.env.scheduler),
      refusing_(context.env.scheduler) {}

SessionServer::~SessionServer() = default;

void SessionServer::serve(Fiber& fiber) {
    while (true) {
        Result<std::unique_ptr<Conn>> accepted = listener_->accept(fiber);
        if (accepted.is(ErrorCode::CONNECTION_CLOSED) || accepted.is(ErrorCode::CANCELLED)) return;
        if (!accepted.ok()) {
            context_.env.log.warn("accept_failed", {{"reason", accepted.error().to_string()}});
            const MonoTime again = deadline_after(context_.env.clock, ACCEPT_PAUSE);
            if (!context_.env.scheduler.sleep_until(fiber, again).ok()) return;
        } else if (connections_.size() >= connection_count_max_) {
            refuse(std::move(accepted).value());
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
    Event no_event;
    while (!connections_.empty() && context_.env.clock.now() < deadline) {
        const MonoTime look_again = deadline_after(context_.env.clock, milliseconds(5));
        if (no_event.wait(fiber, look_again).is(ErrorCode::CANCELLED)) break;
    }
    for (const auto& [id, connection] : connections_)
        connection->abort();
    running_.cancel_and_join(fiber);
    refusing_.cancel_and_join(fiber);
}

void SessionServer::start(std::unique_ptr<Conn> conn) {
    const std::uint64_t id = next_connection_++;
    connections_.emplace(id, std::make_unique<Connection>(context_, std::move(conn)));
    running_.spawn("session.connection", [this, id](Fiber& fiber) {
        connections_.at(id)->run(fiber);
        connections_.erase(id);
    });
}

// Told in a fiber: the accept loop waits for nobody.
void SessionServer::refuse(std::unique_ptr<Conn> conn) {
    context_.env.log.warn("connection_limit", {{"peer", conn->peer_address()}});
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
