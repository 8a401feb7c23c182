// echo_server: the path of a PUB without the broker: a frame in, one synced write through io-real, an OK out.
// Shape:    a loop on a thread of its own, loopback TCP, one fiber a connection; each frame's value goes to a preallocated
//           file (round in it) before the answer, which is as long as a PUB's.
// Owns:     its thread, file and connections.
// Errors:   start: what io-real says. A connection that breaks ends.
// Source:   issue 2 (Speed).
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "core/base/result.h"
#include "io-real/real_env.h"

namespace mortar::bench {

class EchoServer {
  public:
    static Result<std::unique_ptr<EchoServer>> start(const std::string& folder);
    ~EchoServer();
    EchoServer(const EchoServer&) = delete;
    EchoServer& operator=(const EchoServer&) = delete;

    const std::string& address() const { return address_; }

  private:
    explicit EchoServer(std::unique_ptr<RealEnv> env) : env_(std::move(env)) {}
    void accept_all(Fiber& fiber);
    Result<void> serve(Fiber& fiber, Conn& conn);

    std::unique_ptr<RealEnv> env_;
    std::unique_ptr<Listener> listener_;
    std::string address_;
    std::uint64_t file_offset_ = 0;
    std::thread thread_;
};

}  // namespace mortar::bench
