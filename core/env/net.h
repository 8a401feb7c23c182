// net: TCP byte streams, and nothing else of the network.
// Shape:    Net listens and connects; Conn reads and gather-writes with a deadline on each call.
// Owns:     whoever holds the unique_ptr owns the connection; destroying it closes it at once (a memory-only act in the
//           simulator; close(2) in the real world). Bytes passed in are borrowed until the call returns.
// Errors:   TIMED_OUT, CONNECTION_CLOSED (closed by us, reset by the peer), CONNECTION_REFUSED, ADDRESS_IN_USE,
//           ADDRESS_INVALID, PERMISSION_DENIED, LIMIT_REACHED (descriptors), CANCELLED.
// Suspends: accept (also until there is a descriptor for the connection), connect, read, write, write_some.
// Use:      at most one fiber reads and one writes a Conn at a time.
// Source:   design 2.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/base/bytes.h"
#include "core/env/scheduler.h"

namespace mortar {

class Conn {
  public:
    virtual ~Conn() = default;
    // At least one byte, or 0 when the peer has closed its half.
    virtual Result<std::size_t> read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) = 0;
    // At least one byte of parts, in order; how many went out. After an error none did.
    virtual Result<std::size_t> write_some(Fiber& fiber, std::span<const ByteSpan> parts,
                                           MonoTime deadline) = 0;
    // All of parts, in order; after an error an unknown part of them was sent.
    virtual Result<void> write(Fiber& fiber, std::span<const ByteSpan> parts,
                               MonoTime deadline) = 0;
    // Half-close: the peer reads what was written, then 0. Does not suspend.
    virtual void shutdown_write() = 0;
    // Ends both directions; a fiber that waits in read or write gets CONNECTION_CLOSED. Idempotent; does not suspend.
    virtual void close() = 0;
    virtual std::string peer_address() const = 0;  // host:port
};

class Listener {
  public:
    virtual ~Listener() = default;
    // Fails for good only: CONNECTION_CLOSED, CANCELLED.
    virtual Result<std::unique_ptr<Conn>> accept(Fiber& fiber) = 0;
    virtual std::uint16_t port() const = 0;
    // accept returns CONNECTION_CLOSED from now on. Does not suspend.
    virtual void close() = 0;
};

class Net {
  public:
    virtual ~Net() = default;
    // address: host:port, IPv6 in brackets, port 0 = any free one.
    virtual Result<std::unique_ptr<Listener>> listen(const std::string& address) = 0;
    virtual Result<std::unique_ptr<Conn>> connect(Fiber& fiber, const std::string& address,
                                                  MonoTime deadline) = 0;
};

}  // namespace mortar
