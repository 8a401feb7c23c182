// http: the admin server: read-only HTTP/1.1 on the node's own network door.
// Shape:    start listens and spawns; one fiber accepts, one serves each connection, requests one after the other.
// Owns:     listener, connections, fibers. state must outlive stop.
// Errors:   start: those of Net::listen. Clients get 400, 404, 405, 431, 503.
// Suspends: stop.
// Bounds:   64 connections (the next gets 503), 16 KiB of head, 30 s idle, 10 s for a head and for each answer.
// Use:      it has no authentication: whoever starts it warns when the address is not on loopback.
// Source:   contract 5, contract 4 (listen_admin).
#pragma once

#include <memory>
#include <string>

#include "core/admin/stats.h"
#include "core/env/env.h"

namespace mortar {

inline constexpr std::size_t ADMIN_CONNECTION_COUNT_MAX = 64;

class AdminServer {
  public:
    static Result<std::unique_ptr<AdminServer>> start(Env& env, const AdminState& state,
                                                      const std::string& address);
    virtual ~AdminServer() = default;
    virtual std::uint16_t port() const = 0;
    // Ends all connections and waits for the fibers.
    virtual void stop(Fiber& fiber) = 0;
};

}  // namespace mortar
