// address: host:port text and socket addresses.
// Errors:  ADDRESS_INVALID naming the text.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace mortar {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    int family() const { return storage.ss_family; }
    std::uint16_t port() const;
    std::string to_string() const;  // host:port, IPv6 in brackets
};

struct HostPort {
    std::string host;  // without brackets
    std::uint16_t port = 0;
};

Result<HostPort> parse_host_port(const std::string& address);
// Empty when host is a name.
std::vector<SocketAddress> numeric_address(const HostPort& where);
// Asks the system's resolver: may take many seconds.
Result<std::vector<SocketAddress>> resolve_name(const HostPort& where);

}  // namespace mortar
