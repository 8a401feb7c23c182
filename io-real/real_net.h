// real_net: TCP sockets of the OS, never blocking.
// Shape:    a call first tries the system call; only when that would block the fiber parks until
// epoll (edge-triggered)
//           says that it is worth another try. TCP_NODELAY everywhere.
// Owns:     nothing after its Conns and Listeners: each socket is shared by its handle and by those
// who wait in it, so a
//           handle may be destroyed under a waiting fiber, which then gets CONNECTION_CLOSED.
// Errors:   see env/net.h. A look-up of a name: ADDRESS_INVALID, LIMIT_REACHED past RESOLVERS_MAX
// at a time. Suspends: accept, connect, read, write. Names are looked up on threads of their own;
// listen, at start-up, is the
//           exception and waits for the resolver.
// Source:   design 2, contract S5 (accept pauses when descriptors run out).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/env/log.h"
#include "core/env/net.h"
#include "io-real/address.h"
#include "io-real/loop.h"

namespace mortar {

class RealNet final : public Net {
  public:
    static constexpr int LISTEN_BACKLOG = 1024;
    static constexpr int RESOLVERS_MAX = 16;
    static constexpr Duration ACCEPT_PAUSE = milliseconds(100);

    RealNet(RealScheduler& loop, Log& log);

    Result<std::unique_ptr<Listener>> listen(const std::string& address) override;
    Result<std::unique_ptr<Conn>> connect(Fiber& fiber, const std::string& address,
                                          MonoTime deadline) override;

  private:
    Result<std::vector<SocketAddress>> resolve(Fiber& fiber, const HostPort& where,
                                               MonoTime deadline);

    RealScheduler& loop_;
    Log& log_;
    std::shared_ptr<std::atomic<int>> resolvers_;  // shared with their threads
};

}  // namespace mortar
