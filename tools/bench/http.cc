#include "tools/bench/http.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>

#include "io-real/address.h"
#include "io-real/os_error.h"

namespace mortar::bench {
namespace {

constexpr timeval TIMEOUT{.tv_sec = 5, .tv_usec = 0};
constexpr std::size_t ANSWER_BYTES_MAX = 16u << 20;

Result<std::string> exchange(int fd, const SocketAddress& where, const std::string& address,
                             const std::string& request) {
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &TIMEOUT, sizeof TIMEOUT);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &TIMEOUT, sizeof TIMEOUT);
    if (::connect(fd, where.get(), where.length) != 0)
        return make_error(ErrorCode::CONNECTION_REFUSED, address + ": " + os_reason(errno));
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
        return make_error(ErrorCode::CONNECTION_CLOSED, address + ": " + os_reason(errno));
    std::string text;
    std::array<char, 4096> buffer;
    while (text.size() < ANSWER_BYTES_MAX) {
        const ssize_t count = ::recv(fd, buffer.data(), buffer.size(), 0);
        if (count == 0) break;
        if (count < 0)
            return make_error(ErrorCode::CONNECTION_CLOSED, address + ": " + os_reason(errno));
        text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return text;
}

}  // namespace

Result<cli::HttpAnswer> http_get(const std::string& address, const std::string& target) {
    const std::vector<SocketAddress> found = numeric_address(MORTAR_TRY(parse_host_port(address)));
    if (found.empty()) {
        return make_error(ErrorCode::ADDRESS_INVALID,
                          address + ": give a number, such as 127.0.0.1:7190");
    }
    const int fd = ::socket(found.front().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return make_error(ErrorCode::IO_ERROR, "socket: " + os_reason(errno));
    const Result<std::string> text = exchange(
        fd, found.front(), address,
        fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", target, address));
    ::close(fd);
    if (!text.ok()) return text.error();
    return cli::parse_http_answer(*text);
}

}  // namespace mortar::bench
