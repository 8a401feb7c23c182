#include "io-real/real_net.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "io-real/os_error.h"
#include "io-real/threads.h"

namespace mortar {
namespace {

// Parts handed to one sendmsg; they lie on a fiber's stack.
constexpr std::size_t IOV_BATCH = 128;
static_assert(IOV_BATCH <= IOV_MAX);

bool would_block(int error_number) {
    return error_number == EAGAIN || error_number == EWOULDBLOCK;
}

ErrorCode code_of(int error_number) {
    switch (error_number) {
        case EADDRINUSE:
            return ErrorCode::ADDRESS_IN_USE;
        case EACCES:
        case EPERM:
            return ErrorCode::PERMISSION_DENIED;
        case EADDRNOTAVAIL:
        case EAFNOSUPPORT:
        case EINVAL:
            return ErrorCode::ADDRESS_INVALID;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            return ErrorCode::LIMIT_REACHED;
        case ECONNREFUSED:
        case EHOSTUNREACH:
        case ENETUNREACH:
            return ErrorCode::CONNECTION_REFUSED;
        case ETIMEDOUT:
            return ErrorCode::TIMED_OUT;
        default:
            return ErrorCode::CONNECTION_CLOSED;
    }
}

Error net_error(int error_number, const char* what, const std::string& address) {
    return make_error(code_of(error_number),
                      fmt::format("cannot {} {}: {}", what, address, os_reason(error_number)));
}

// A descriptor with the fibers that wait for it.
class Socket final : public Watcher {
  public:
    Socket(RealScheduler& loop, int fd) : loop_(loop), fd_(fd) {}
    ~Socket() override { close(); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    int fd() const { return fd_; }
    bool is_closed() const { return fd_ < 0; }
    RealScheduler& loop() const { return loop_; }

    Result<void> watch() {
        return loop_.watch(fd_, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, *this);
    }
    void close() {
        if (fd_ < 0) return;
        loop_.unwatch(fd_);
        ::close(std::exchange(fd_, -1));
        wake(reader_);
        wake(writer_);
    }
    void on_ready(std::uint32_t events) override {
        if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) wake(reader_);
        if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) wake(writer_);
    }
    static WakeReason wait_readable(const std::shared_ptr<Socket>& socket, Fiber& fiber,
                                    MonoTime deadline) {
        return wait(socket, socket->reader_, fiber, deadline);
    }
    static WakeReason wait_writable(const std::shared_ptr<Socket>& socket, Fiber& fiber,
                                    MonoTime deadline) {
        return wait(socket, socket->writer_, fiber, deadline);
    }

  private:
    // The slot is emptied also when the fiber is killed; the copy keeps it alive until then.
    struct Waiter {
        Waiter(std::shared_ptr<Socket> kept_socket, Fiber*& kept_slot, Fiber& fiber)
            : socket(std::move(kept_socket)), slot(kept_slot) {
            MORTAR_ASSERT(slot == nullptr);
            slot = &fiber;
        }
        ~Waiter() { slot = nullptr; }
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        std::shared_ptr<Socket> socket;
        Fiber*& slot;
    };
    static WakeReason wait(const std::shared_ptr<Socket>& socket, Fiber*& slot, Fiber& fiber,
                           MonoTime deadline) {
        const Waiter waiter(socket, slot, fiber);
        return waiter.socket->loop_.park(fiber, deadline, CancelMode::ALLOWED);
    }
    void wake(Fiber* fiber) {
        if (fiber != nullptr) loop_.wake(*fiber);
    }

    RealScheduler& loop_;
    int fd_;
    Fiber* reader_ = nullptr;
    Fiber* writer_ = nullptr;
};

Error closed_error() {
    return make_error(ErrorCode::CONNECTION_CLOSED, "closed on this side");
}

// Fills with what is left of parts from (index, offset) on; returns how many entries.
std::size_t gather(std::span<const ByteSpan> parts, std::size_t index, std::size_t offset,
                   iovec* into) {
    std::size_t count = 0;
    for (; index < parts.size() && count < IOV_BATCH; ++index, offset = 0) {
        const ByteSpan rest = parts[index].subspan(offset);
        if (rest.empty()) continue;
        into[count].iov_base = const_cast<std::byte*>(rest.data());
        into[count].iov_len = rest.size();
        ++count;
    }
    return count;
}

class RealConn final : public Conn {
  public:
    RealConn(std::shared_ptr<Socket> socket, const SocketAddress& peer)
        : socket_(std::move(socket)), peer_(peer) {}
    ~RealConn() override { socket_->close(); }

    Result<std::size_t> read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) override;
    Result<std::size_t> write_some(Fiber& fiber, std::span<const ByteSpan> parts,
                                   MonoTime deadline) override;
    Result<void> write(Fiber& fiber, std::span<const ByteSpan> parts, MonoTime deadline) override;
    void shutdown_write() override {
        if (!socket_->is_closed()) ::shutdown(socket_->fd(), SHUT_WR);
    }
    void close() override { socket_->close(); }
    std::string peer_address() const override { return peer_.to_string(); }

  private:
    // What comes next of parts.
    struct Place {
        std::size_t index = 0;
        std::size_t offset = 0;
        // Past count bytes and the parts that are out whole; false when nothing is left.
        bool skip_sent(std::span<const ByteSpan> parts, std::size_t count) {
            offset += count;
            while (index < parts.size() && offset >= parts[index].size())
                offset -= parts[index++].size();
            return index < parts.size();
        }
    };
    static Result<std::size_t> send_from(Fiber& fiber, std::shared_ptr<Socket> socket,
                                         std::span<const ByteSpan> parts, const Place& place,
                                         MonoTime deadline);

    std::shared_ptr<Socket> socket_;
    SocketAddress peer_;
};

Result<std::size_t> RealConn::read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) {
    MORTAR_ASSERT(!into.empty());
    const std::shared_ptr<Socket> socket = socket_;  // this may be destroyed while the fiber waits
    if (fiber.is_cancelled()) return make_error(ErrorCode::CANCELLED);
    socket->loop().count_call(fiber);
    bool expired = false;
    while (!socket->is_closed()) {
        const ssize_t count = ::recv(socket->fd(), into.data(), into.size(), 0);
        if (count >= 0) {
            socket->loop().count_bytes(static_cast<std::size_t>(count));
            return static_cast<std::size_t>(count);
        }
        const int failure = errno;
        if (failure == EINTR) continue;
        if (!would_block(failure))
            return make_error(ErrorCode::CONNECTION_CLOSED, os_reason(failure));
        if (expired) return make_error(ErrorCode::TIMED_OUT, "nothing to read");
        const WakeReason reason = Socket::wait_readable(socket, fiber, deadline);
        if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
        expired = reason == WakeReason::DEADLINE;
    }
    return closed_error();
}

Result<std::size_t> RealConn::write_some(Fiber& fiber, std::span<const ByteSpan> parts,
                                         MonoTime deadline) {
    socket_->loop().count_call(fiber);
    return send_from(fiber, socket_, parts, {}, deadline);
}

Result<void> RealConn::write(Fiber& fiber, std::span<const ByteSpan> parts, MonoTime deadline) {
    // This may be destroyed while the fiber waits; what is used of it then is the socket.
    const std::shared_ptr<Socket> socket = socket_;
    socket->loop().count_call(fiber);
    Place place;
    while (place.skip_sent(parts, 0)) {
        if (socket->is_closed()) return closed_error();
        const std::size_t count = MORTAR_TRY(send_from(fiber, socket, parts, place, deadline));
        place.skip_sent(parts, count);
    }
    return {};
}

// One send that takes something.
Result<std::size_t> RealConn::send_from(Fiber& fiber, std::shared_ptr<Socket> socket,
                                        std::span<const ByteSpan> parts, const Place& place,
                                        MonoTime deadline) {
    if (fiber.is_cancelled()) return make_error(ErrorCode::CANCELLED);
    bool expired = false;
    while (!socket->is_closed()) {
        iovec entries[IOV_BATCH];
        msghdr message{};
        message.msg_iov = entries;
        message.msg_iovlen = gather(parts, place.index, place.offset, entries);
        MORTAR_ASSERT(message.msg_iovlen > 0);
        // No MSG_MORE for a full batch: nobody knows yet whether more follows, and the kernel would sit on it for 200 ms.
        const ssize_t count = ::sendmsg(socket->fd(), &message, MSG_NOSIGNAL);
        if (count >= 0) {
            socket->loop().count_bytes(static_cast<std::size_t>(count));
            return static_cast<std::size_t>(count);
        }
        const int failure = errno;
        if (failure == EINTR) continue;
        if (!would_block(failure))
            return make_error(ErrorCode::CONNECTION_CLOSED, os_reason(failure));
        if (expired) return make_error(ErrorCode::TIMED_OUT, "the peer does not read");
        const WakeReason reason = Socket::wait_writable(socket, fiber, deadline);
        if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
        // epoll tells only of much room; at the deadline any room counts.
        expired = reason == WakeReason::DEADLINE;
    }
    return closed_error();
}

std::unique_ptr<Conn> make_conn(std::shared_ptr<Socket> socket, const SocketAddress& peer) {
    return std::make_unique<RealConn>(std::move(socket), peer);
}

void send_at_once(int fd) {
    const int on = 1;
    // Fails only on a socket that is dead already, which the first read or write reports.
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<std::shared_ptr<Socket>> adopt(RealScheduler& loop, int fd) {
    auto socket = std::make_shared<Socket>(loop, fd);
    MORTAR_TRY(socket->watch());
    return socket;
}

class RealListener final : public Listener {
  public:
    RealListener(std::shared_ptr<Socket> socket, const SocketAddress& bound, Log& log)
        : socket_(std::move(socket)), bound_(bound), log_(log) {}
    ~RealListener() override { socket_->close(); }

    Result<std::unique_ptr<Conn>> accept(Fiber& fiber) override;
    std::uint16_t port() const override { return bound_.port(); }
    void close() override { socket_->close(); }

  private:
    std::shared_ptr<Socket> socket_;
    SocketAddress bound_;
    Log& log_;
};

Result<std::unique_ptr<Conn>> RealListener::accept(Fiber& fiber) {
    const std::shared_ptr<Socket> socket = socket_;
    Log& log = log_;
    RealScheduler& loop = socket->loop();
    if (fiber.is_cancelled()) return make_error(ErrorCode::CANCELLED);
    loop.count_call(fiber);
    while (!socket->is_closed()) {
        SocketAddress peer;
        peer.length = sizeof peer.storage;
        const int fd =
            ::accept4(socket->fd(), peer.get(), &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            send_at_once(fd);
            Result<std::shared_ptr<Socket>> adopted = adopt(loop, fd);
            if (adopted.ok()) return make_conn(std::move(adopted).value(), peer);
            log.warn("accept_failed",
                     {{"peer", peer.to_string()}, {"reason", adopted.error().detail}});
            continue;
        }
        const int failure = errno;
        WakeReason reason = WakeReason::WOKEN;
        if (would_block(failure)) {
            reason = Socket::wait_readable(socket, fiber, NEVER);
        } else if (code_of(failure) == ErrorCode::LIMIT_REACHED) {
            // The pending connection stays in the backlog; trying at once again would only burn the
            // loop.
            log.warn("accept_paused", {{"reason", os_reason(failure)}});
            // More of them arriving does not end the pause; close does.
            const MonoTime until = loop.clock().now() + RealNet::ACCEPT_PAUSE;
            do {
                reason = Socket::wait_readable(socket, fiber, until);
            } while (reason == WakeReason::WOKEN && !socket->is_closed());
        }
        // Anything else is the failure of one connection that is gone already (accept(2), "Error
        // handling").
        if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
    }
    return closed_error();
}

// A look-up on a thread of its own; the waiting fiber may be gone when it ends.
struct Lookup {
    Result<std::vector<SocketAddress>> answer = std::vector<SocketAddress>{};
    bool done = false;
    Fiber* waiter = nullptr;
};

Result<std::unique_ptr<Conn>> connect_to(Fiber& fiber, RealScheduler& loop,
                                         const SocketAddress& address, MonoTime deadline) {
    const std::string name = address.to_string();
    const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return net_error(errno, "connect to", name);
    send_at_once(fd);
    const bool started = ::connect(fd, address.get(), address.length) == 0;
    const int failure = started ? 0 : errno;
    std::shared_ptr<Socket> socket = MORTAR_TRY(adopt(loop, fd));
    if (failure != 0 && failure != EINPROGRESS && failure != EINTR)
        return net_error(failure, "connect to", name);
    while (true) {
        // Connected when it has a peer and no error is pending.
        int pending = 0;
        socklen_t length = sizeof pending;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &length);
        if (pending != 0) return net_error(pending, "connect to", name);
        SocketAddress peer;
        peer.length = sizeof peer.storage;
        if (getpeername(fd, peer.get(), &peer.length) == 0) break;
        const WakeReason reason = Socket::wait_writable(socket, fiber, deadline);
        if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
        if (reason == WakeReason::DEADLINE) {
            return make_error(ErrorCode::TIMED_OUT, fmt::format("no answer from {}", name));
        }
    }
    // On one machine a port that nobody listens on can be drawn as our own end: TCP then connects
    // to itself.
    SocketAddress own;
    own.length = sizeof own.storage;
    getsockname(fd, own.get(), &own.length);
    if (own.to_string() == name) return net_error(ECONNREFUSED, "connect to", name);
    return make_conn(std::move(socket), address);
}

}  // namespace

RealNet::RealNet(RealScheduler& loop, Log& log)
    : loop_(loop), log_(log), resolvers_(std::make_shared<std::atomic<int>>(0)) {}

Result<std::unique_ptr<Listener>> RealNet::listen(const std::string& address) {
    const HostPort where = MORTAR_TRY(parse_host_port(address));
    std::vector<SocketAddress> found = numeric_address(where);
    if (found.empty()) found = MORTAR_TRY(resolve_name(where));
    // A name like localhost has both kinds; clients try IPv4 in any case.
    const auto v4 = std::find_if(found.begin(), found.end(),
                                 [](const SocketAddress& one) { return one.family() == AF_INET; });
    SocketAddress bound = v4 != found.end() ? *v4 : found.front();
    const int fd = ::socket(bound.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return net_error(errno, "listen on", address);
    auto socket = std::make_shared<Socket>(loop_, fd);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, bound.get(), bound.length) != 0) return net_error(errno, "listen on", address);
    if (::listen(fd, LISTEN_BACKLOG) != 0) return net_error(errno, "listen on", address);
    if (getsockname(fd, bound.get(), &bound.length) != 0)
        return net_error(errno, "listen on", address);
    MORTAR_TRY(socket->watch());
    return std::unique_ptr<Listener>(
        std::make_unique<RealListener>(std::move(socket), bound, log_));
}

Result<std::unique_ptr<Conn>> RealNet::connect(Fiber& fiber, const std::string& address,
                                               MonoTime deadline) {
    if (fiber.is_cancelled()) return make_error(ErrorCode::CANCELLED);
    loop_.count_call(fiber);
    const HostPort where = MORTAR_TRY(parse_host_port(address));
    std::vector<SocketAddress> found = numeric_address(where);
    if (found.empty()) found = MORTAR_TRY(resolve(fiber, where, deadline));
    for (std::size_t i = 0; i + 1 < found.size(); ++i) {
        Result<std::unique_ptr<Conn>> conn = connect_to(fiber, loop_, found[i], deadline);
        if (conn.ok() || conn.is(ErrorCode::CANCELLED) || loop_.clock().now() >= deadline)
            return conn;
    }
    return connect_to(fiber, loop_, found.back(), deadline);
}

Result<std::vector<SocketAddress>> RealNet::resolve(Fiber& fiber, const HostPort& where,
                                                    MonoTime deadline) {
    if (resolvers_->load() >= RESOLVERS_MAX) {
        return make_error(ErrorCode::LIMIT_REACHED,
                          fmt::format("cannot look up {}: too many look-ups hang", where.host));
    }
    ++*resolvers_;
    const auto lookup = std::make_shared<Lookup>();
    // Detached: a resolver may hang far longer than anyone here is ready to wait, also at the end
    // of the process.
    start_thread("resolve", [where, lookup, inbox = loop_.inbox(), loop = &loop_,
                             running = resolvers_] {
        Result<std::vector<SocketAddress>> answer = resolve_name(where);
        --*running;
        inbox->post([lookup, loop, answer = std::move(answer)] {
            lookup->answer = answer;
            lookup->done = true;
            if (lookup->waiter != nullptr) loop->wake(*lookup->waiter);
        });
    }).detach();
    struct Waiting {
        Lookup& lookup;
        ~Waiting() { lookup.waiter = nullptr; }
    } waiting{*lookup};
    lookup->waiter = &fiber;
    while (!lookup->done) {
        const WakeReason reason = loop_.park(fiber, deadline, CancelMode::ALLOWED);
        if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
        if (reason == WakeReason::DEADLINE) {
            return make_error(ErrorCode::TIMED_OUT,
                              fmt::format("no answer from the resolver for {}", where.host));
        }
    }
    return std::move(lookup->answer);
}

}  // namespace mortar
