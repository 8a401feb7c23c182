#include "io-real/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "io-real/os_error.h"

namespace mortar {
namespace {

Result<std::vector<SocketAddress>> look_up(const HostPort& where, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int failure =
        getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
    if (failure != 0) {
        const std::string reason = failure == EAI_SYSTEM ? os_reason(errno) : gai_strerror(failure);
        return make_error(ErrorCode::ADDRESS_INVALID,
                          fmt::format("cannot find host {}: {}", where.host, reason));
    }
    std::vector<SocketAddress> addresses;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
        SocketAddress& address = addresses.emplace_back();
        std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
        address.length = entry->ai_addrlen;
    }
    freeaddrinfo(found);
    return addresses;
}

}  // namespace

std::uint16_t SocketAddress::port() const {
    if (family() == AF_INET6)
        return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string SocketAddress::to_string() const {
    char host[INET6_ADDRSTRLEN] = "?";
    if (family() == AF_INET6) {
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, host,
                  sizeof host);
        return fmt::format("[{}]:{}", host, port());
    }
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, host,
              sizeof host);
    return fmt::format("{}:{}", host, port());
}

Result<HostPort> parse_host_port(const std::string& address) {
    const auto invalid = [&] {
        return make_error(
            ErrorCode::ADDRESS_INVALID,
            fmt::format("'{}' is not an address: write host:port, IPv6 in brackets", address));
    };
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0) return invalid();
    HostPort where;
    where.host = address.substr(0, colon);
    const bool bracketed =
        where.host.front() == '[' && where.host.back() == ']' && where.host.size() > 2;
    if (bracketed) {
        where.host = where.host.substr(1, where.host.size() - 2);
    } else if (where.host.find_first_of(":[]") != std::string::npos) {
        return invalid();
    }
    const char* end = address.data() + address.size();
    const auto [stopped, failure] = std::from_chars(address.data() + colon + 1, end, where.port);
    if (failure != std::errc() || stopped != end) return invalid();
    return where;
}

std::vector<SocketAddress> numeric_address(const HostPort& where) {
    Result<std::vector<SocketAddress>> found = look_up(where, AI_NUMERICHOST);
    if (!found.ok()) return {};
    return std::move(found).value();
}

Result<std::vector<SocketAddress>> resolve_name(const HostPort& where) {
    return look_up(where, 0);
}

}  // namespace mortar
