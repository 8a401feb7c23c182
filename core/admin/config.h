// config: the 18 keys: read strictly, checked, printed. Nothing of it changes while the broker runs.
// Shape:    one table of keys (config.cc) drives reading, messages and printing. Config holds effective values: peers and
//           leader_priority are filled in.
// Units:    *_ms, *_bytes; addresses are host:port, IPv6 in brackets.
// Errors:   INVALID_CONFIG; the detail names key, value and what is allowed, one line.
// Source:   contract 4, cases OPS-02.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/env/log.h"

namespace mortar {

inline constexpr std::size_t CONFIG_BYTES_MAX = 1u << 20;

struct PeerConfig {
    NodeId node_id;
    std::string addr;
    std::string client_addr;  // empty = not given
    bool operator==(const PeerConfig&) const = default;
};

struct Config {
    NodeId node_id;
    std::vector<PeerConfig> peers;        // 1 or 3
    std::vector<NodeId> leader_priority;  // each peer once
    std::string listen_client = "0.0.0.0:7188";
    std::string listen_peer = "0.0.0.0:7189";
    std::string data_dir = "./data";
    std::uint64_t segment_max_bytes = 67'108'864;
    std::uint16_t partition_default_count = 4;
    std::uint32_t delivery_max_attempts = 5;
    std::uint32_t delivery_lease_ms = 30'000;
    std::uint32_t poll_max_wait_ms = 5'000;
    std::uint32_t credit_initial_count = 256;
    std::uint32_t metadata_snapshot_records = 8'192;
    bool metrics_enabled = true;
    LogLevel log_level = LogLevel::INFO;
    std::string listen_ws;  // empty = off
    std::string listen_admin = "127.0.0.1:7190";
    std::vector<std::string> ws_origins = {"http://localhost:*", "https://localhost:*",
                                           "http://127.0.0.1:*", "https://127.0.0.1:*"};
    bool operator==(const Config&) const = default;
};

Result<Config> parse_config(std::string_view text);
// What --dev runs with: the defaults, every listener on 127.0.0.1.
Config dev_config();
// What this version cannot do although the configuration is a good one.
Result<void> check_supported(const Config& config);
// The effective values as JSON that parse_config reads back to the same Config.
std::string print_config(const Config& config);
// A file to start from: the defaults, each key explained in _comment.
std::string default_config_text();

struct ListenAddress {
    std::string host;  // without brackets
    std::uint16_t port = 0;
};
// ADDRESS_INVALID.
Result<ListenAddress> parse_address(std::string_view address);
// 127.0.0.0/8, ::1 and localhost.
bool is_loopback_host(std::string_view host);
bool is_wildcard_host(std::string_view host);

}  // namespace mortar
