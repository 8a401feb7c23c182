// server: accepts client connections and owns them until they have ended.
// Shape:    serve() is the accept loop; each connection runs in a fiber of its own.
// Owns:     the listener and the connections.
// Errors:   a connection over the maximum, or for which there are no fibers, is told QUOTA_EXCEEDED
//           and closed.
// Suspends: serve, until stop_accepting; drain, until every connection has ended.
// Source:   contract S5, R1.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/fiber/group.h"
#include "core/session/connection.h"
#include "core/session/limits.h"

namespace mortar {

class SessionServer {
  public:
    SessionServer(SessionContext context, std::unique_ptr<Listener> listener,
                  std::size_t connection_count_max = CONNECTION_COUNT_MAX,
                  std::size_t request_fibers_max = REQUEST_FIBERS_MAX);
    ~SessionServer();

    void serve(Fiber& fiber);
    void stop_accepting() { listener_->close(); }
    // Reads nothing more, answers what was read, closes.
    void drain(Fiber& fiber);
    std::size_t connection_count() const { return connections_.size(); }
    std::uint16_t port() const { return listener_->port(); }

  private:
    void start(std::unique_ptr<Conn> conn);
    void refuse(std::unique_ptr<Conn> conn, const char* reason);

    SessionContext context_;
    SessionShared shared_;
    std::unique_ptr<Listener> listener_;
    std::size_t connection_count_max_;
    std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  // in order of arrival
    std::uint64_t next_connection_ = 0;
    Event ended_;  // a connection less
    Group running_;
    Group refusing_;
    Group timing_;
};

}  // namespace mortar
