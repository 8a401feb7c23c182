#include "core/admin/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "core/base/json.h"

namespace mortar {
namespace {
using Kind = JsonValue::Kind;

constexpr std::size_t SHOWN_VALUE_BYTES_MAX = 120;
constexpr std::size_t PATH_BYTES_MAX = 4096;
constexpr std::size_t HOST_BYTES_MAX = 253;
constexpr std::size_t ORIGIN_BYTES_MAX = 300;
constexpr std::size_t ORIGIN_COUNT_MAX = 64;
constexpr std::string_view COMMENT_KEY = "_comment";
constexpr std::string_view OFF = "off";
constexpr std::string_view LEVELS[] = {"error", "warn", "info",
                                       "debug"};  // in the order of LogLevel

Error invalid(std::string detail) {
    return make_error(ErrorCode::INVALID_CONFIG, std::move(detail));
}

std::string shown(const JsonValue& value) {
    std::string text;
    JsonWriter(text).value(value);
    if (text.size() > SHOWN_VALUE_BYTES_MAX) text.resize(SHOWN_VALUE_BYTES_MAX), text.append("...");
    return text;
}

// `key: value is a string; allowed: ...`
Error refused(std::string_view key, const JsonValue& value, std::string_view why,
              std::string_view allowed) {
    return invalid(std::string(key) + ": " + shown(value) + " " + std::string(why) +
                   "; allowed: " + std::string(allowed));
}
Error wrong_type(std::string_view key, const JsonValue& value, std::string_view allowed) {
    return refused(key, value, "is " + std::string(json_kind_name(value.kind)), allowed);
}

Result<std::uint64_t> take_number(std::string_view key, const JsonValue& value,
                                  std::string_view allowed, std::uint64_t low, std::uint64_t high) {
    if (!value.is(Kind::UNSIGNED)) return wrong_type(key, value, allowed);
    if (value.number < low || value.number > high)
        return refused(key, value, "is out of range", allowed);
    return value.number;
}

Result<std::string> take_string(std::string_view key, const JsonValue& value,
                                std::string_view allowed) {
    if (!value.is(Kind::STRING)) return wrong_type(key, value, allowed);
    return value.text;
}

constexpr std::string_view ADDRESS_ALLOWED =
    "host:port, IPv6 in brackets, for example \"127.0.0.1:7188\"";

Result<std::string> take_address(std::string_view key, const JsonValue& value, bool needs_port) {
    std::string text = MORTAR_TRY(take_string(key, value, ADDRESS_ALLOWED));
    const Result<ListenAddress> address = parse_address(text);
    if (!address.ok()) return refused(key, value, "is not an address", ADDRESS_ALLOWED);
    if (needs_port && (address->port == 0 || is_wildcard_host(address->host))) {
        return refused(key, value, "cannot be connected to",
                       "the address at which others reach that node");
    }
    return text;
}

// How many letters must be added, removed or changed to make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

template <class Names>
Error unknown_key(std::string_view prefix, const std::string& key, const Names& known) {
    constexpr std::size_t CLOSE = 3;
    constexpr std::size_t KEY_BYTES_MAX = 64;  // nobody mistypes a longer one
    std::string text = "unknown key: " + std::string(prefix) + key.substr(0, KEY_BYTES_MAX);
    std::string_view best;
    std::size_t best_distance = CLOSE + 1;
    for (const std::string_view name : known) {
        if (key.size() > KEY_BYTES_MAX) break;
        const std::size_t distance = edit_distance(key, name);
        if (distance < best_distance && distance < name.size() / 2 + 1) {
            best = name;
            best_distance = distance;
        }
    }
    if (!best.empty()) text.append(" (did you mean ").append(best).append("?)");
    return invalid(std::move(text));
}

// --- peers

constexpr std::string_view PEER_KEYS[] = {"node_id", "addr", "client_addr"};

Result<PeerConfig> take_peer(const std::string& where, const JsonValue& value) {
    if (!value.is(Kind::OBJECT))
        return wrong_type(where, value, "{\"node_id\", \"addr\", \"client_addr\"?}");
    PeerConfig peer;
    for (std::size_t i = 0; i < value.keys.size(); ++i) {
        const std::string& key = value.keys[i];
        const std::string name = where + "." + key;
        if (key == "node_id") {
            const std::uint64_t number =
                MORTAR_TRY(take_number(name, value.items[i], "a whole number 0..65535", 0, 65535));
            peer.node_id = NodeId(static_cast<std::uint16_t>(number));
        } else if (key == "addr") {
            peer.addr = MORTAR_TRY(take_address(name, value.items[i], true));
        } else if (key == "client_addr") {
            peer.client_addr = MORTAR_TRY(take_address(name, value.items[i], true));
        } else {
            return unknown_key(where + ".", key, PEER_KEYS);
        }
    }
    if (value.find("node_id") == nullptr) return invalid(where + ": node_id is missing");
    if (value.find("addr") == nullptr) return invalid(where + ": addr is missing");
    return peer;
}

Result<void> take_peers(Config& config, const JsonValue& value) {
    constexpr std::string_view ALLOWED =
        "an array of 1 or 3 entries {\"node_id\", \"addr\", \"client_addr\"?}";
    if (!value.is(Kind::ARRAY)) return wrong_type("peers", value, ALLOWED);
    if (value.items.size() != 1 && value.items.size() != 3) {
        return refused("peers", value, "has " + std::to_string(value.items.size()) + " entries",
                       ALLOWED);
    }
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        PeerConfig peer = MORTAR_TRY(take_peer("peers[" + std::to_string(i) + "]", value.items[i]));
        for (const PeerConfig& other : config.peers) {
            if (other.node_id == peer.node_id) {
                return refused("peers", value,
                               "names node_id " + std::to_string(peer.node_id.value) + " twice",
                               "each node once");
            }
            if (other.addr == peer.addr) {
                return refused("peers", value, "names the address " + peer.addr + " twice",
                               "an address of its own for each node");
            }
        }
        config.peers.push_back(std::move(peer));
    }
    return {};
}

Result<void> take_priority(Config& config, const JsonValue& value) {
    constexpr std::string_view ALLOWED = "an array that names the node_id of each peer once";
    if (!value.is(Kind::ARRAY)) return wrong_type("leader_priority", value, ALLOWED);
    for (const JsonValue& item : value.items) {
        const std::uint64_t number =
            MORTAR_TRY(take_number("leader_priority", item, ALLOWED, 0, 65535));
        config.leader_priority.push_back(NodeId(static_cast<std::uint16_t>(number)));
    }
    if (value.items.empty()) return refused("leader_priority", value, "is empty", ALLOWED);
    return {};
}

void print_peers(JsonWriter& writer, const Config& config) {
    writer.begin_array();
    for (const PeerConfig& peer : config.peers) {
        writer.begin_object()
            .key("node_id")
            .number(peer.node_id.value)
            .key("addr")
            .string(peer.addr);
        if (!peer.client_addr.empty()) writer.key("client_addr").string(peer.client_addr);
        writer.end_object();
    }
    writer.end_array();
}
void print_priority(JsonWriter& writer, const Config& config) {
    writer.begin_array();
    for (const NodeId node_id : config.leader_priority)
        writer.number(node_id.value);
    writer.end_array();
}

// --- the rest that is no plain number

Result<void> take_node_id(Config& config, const JsonValue& value) {
    const std::uint64_t number =
        MORTAR_TRY(take_number("node_id", value, "a whole number 0..65535", 0, 65535));
    config.node_id = NodeId(static_cast<std::uint16_t>(number));
    return {};
}
void print_node_id(JsonWriter& writer, const Config& config) {
    writer.number(config.node_id.value);
}

Result<void> take_data_dir(Config& config, const JsonValue& value) {
    constexpr std::string_view ALLOWED = "a path of 1..4096 bytes";
    config.data_dir = MORTAR_TRY(take_string("data_dir", value, ALLOWED));
    if (config.data_dir.empty() || config.data_dir.size() > PATH_BYTES_MAX ||
        config.data_dir.find('\0') != std::string::npos) {
        return refused("data_dir", value, "is not a path", ALLOWED);
    }
    return {};
}

Result<void> take_metrics_enabled(Config& config, const JsonValue& value) {
    if (!value.is(Kind::BOOLEAN)) return wrong_type("metrics_enabled", value, "true or false");
    config.metrics_enabled = value.flag;
    return {};
}
void print_metrics_enabled(JsonWriter& writer, const Config& config) {
    writer.boolean(config.metrics_enabled);
}

Result<void> take_log_level(Config& config, const JsonValue& value) {
    constexpr std::string_view ALLOWED = "error, warn, info, debug";
    const std::string name = MORTAR_TRY(take_string("log_level", value, ALLOWED));
    const auto* level = std::find(std::begin(LEVELS), std::end(LEVELS), name);
    if (level == std::end(LEVELS)) return refused("log_level", value, "is not a level", ALLOWED);
    config.log_level = static_cast<LogLevel>(level - std::begin(LEVELS));
    return {};
}
void print_log_level(JsonWriter& writer, const Config& config) {
    writer.string(LEVELS[static_cast<std::size_t>(config.log_level)]);
}

Result<void> take_listen_ws(Config& config, const JsonValue& value) {
    if (value.is(Kind::STRING) && value.text == OFF) {
        config.listen_ws.clear();
        return {};
    }
    config.listen_ws = MORTAR_TRY(take_address("listen_ws", value, false));
    return {};
}
void print_listen_ws(JsonWriter& writer, const Config& config) {
    writer.string(config.listen_ws.empty() ? OFF : std::string_view(config.listen_ws));
}

bool is_origin(std::string_view text) {
    if (text.size() > ORIGIN_BYTES_MAX) return false;
    const std::size_t scheme = text.find("://");
    if (scheme == std::string_view::npos) return false;
    if (text.substr(0, scheme) != "http" && text.substr(0, scheme) != "https") return false;
    std::string address(text.substr(scheme + 3));
    const bool has_port =
        address.find(':', address.starts_with('[') ? address.find(']') : 0) != std::string::npos;
    if (address.ends_with(":*")) {
        address.replace(address.size() - 1, 1, "1");
    } else if (!has_port) {
        address.append(":80");
    }
    return parse_address(address).ok();
}

Result<void> take_ws_origins(Config& config, const JsonValue& value) {
    constexpr std::string_view ALLOWED =
        "an array of origins such as \"https://example.org\" or \"http://localhost:*\"; empty "
        "rejects all";
    if (!value.is(Kind::ARRAY)) return wrong_type("ws_origins", value, ALLOWED);
    if (value.items.size() > ORIGIN_COUNT_MAX) {
        return refused("ws_origins", value, "has more than 64 entries", ALLOWED);
    }
    config.ws_origins.clear();
    for (const JsonValue& item : value.items) {
        std::string origin = MORTAR_TRY(take_string("ws_origins", item, ALLOWED));
        if (!is_origin(origin)) return refused("ws_origins", item, "is not an origin", ALLOWED);
        config.ws_origins.push_back(std::move(origin));
    }
    return {};
}
void print_ws_origins(JsonWriter& writer, const Config& config) {
    writer.begin_array();
    for (const std::string& origin : config.ws_origins)
        writer.string(origin);
    writer.end_array();
}

template <std::string Config::*member>
void print_text(JsonWriter& writer, const Config& config) {
    writer.string(config.*member);
}
template <auto member>
void print_number(JsonWriter& writer, const Config& config) {
    writer.number(config.*member);
}

// --- the table

struct Key;
using Take = Result<void> (*)(const Key& key, Config& config, const JsonValue& value);

struct Key {
    std::string_view name;
    std::string_view about;    // for _comment
    std::string_view allowed;  // in messages about numbers
    std::uint64_t low;
    std::uint64_t high;
    Take take;
    void (*print)(JsonWriter& writer, const Config& config);
    bool is_in_default_text;
};

template <auto member>
Result<void> number_into(const Key& key, Config& config, const JsonValue& value) {
    using Number = std::remove_reference_t<decltype(config.*member)>;
    MORTAR_ASSERT(key.high <= std::numeric_limits<Number>::max());
    const std::uint64_t number =
        MORTAR_TRY(take_number(key.name, value, key.allowed, key.low, key.high));
    config.*member = static_cast<Number>(number);
    return {};
}
template <std::string Config::*member>
Result<void> address_into(const Key& key, Config& config, const JsonValue& value) {
    config.*member = MORTAR_TRY(take_address(key.name, value, false));
    return {};
}
template <Result<void> (*take)(Config&, const JsonValue&)>
Result<void> plain(const Key&, Config& config, const JsonValue& value) {
    return take(config, value);
}

template <auto member>
constexpr Key number_key(std::string_view name, std::string_view about, std::string_view allowed,
                         std::uint64_t low, std::uint64_t high) {
    return {name, about, allowed, low, high, number_into<member>, print_number<member>, true};
}
template <std::string Config::*member>
constexpr Key address_key(std::string_view name, std::string_view about) {
    return {name, about, {}, 0, 0, address_into<member>, print_text<member>, true};
}
template <Result<void> (*take)(Config&, const JsonValue&)>
constexpr Key plain_key(std::string_view name, std::string_view about,
                        void (*print)(JsonWriter&, const Config&), bool is_in_default_text = true) {
    return {name, about, {}, 0, 0, plain<take>, print, is_in_default_text};
}

constexpr Key KEYS[] = {
    plain_key<take_node_id>("node_id", "number of this node, 0..65535", print_node_id),
    plain_key<take_peers>("peers",
                          "all nodes, this one too: 1 or 3 of {node_id, addr, client_addr?}; "
                          "default: this node alone",
                          print_peers, false),
    plain_key<take_priority>("leader_priority",
                             "node_ids, who leads first; default: the order of peers",
                             print_priority, false),
    address_key<&Config::listen_client>("listen_client", "address for clients"),
    address_key<&Config::listen_peer>("listen_peer", "address for the other nodes"),
    plain_key<take_data_dir>("data_dir", "folder of all data", print_text<&Config::data_dir>),
    number_key<&Config::segment_max_bytes>("segment_max_bytes",
                                           "size at which a log begins a new file, 1 MiB..1 GiB",
                                           "1048576..1073741824", 1u << 20, 1u << 30),
    number_key<&Config::partition_default_count>("partition_default_count",
                                                 "partitions of a topic that asks for 0, 1..1024",
                                                 "1..1024", 1, 1024),
    number_key<&Config::delivery_max_attempts>(
        "delivery_max_attempts", "failures after which a message is a dead letter, 1..1000",
        "1..1000", 1, 1000),
    number_key<&Config::delivery_lease_ms>("delivery_lease_ms",
                                           "time to acknowledge a message, 100..3600000 ms",
                                           "100..3600000", 100, 3'600'000),
    number_key<&Config::poll_max_wait_ms>("poll_max_wait_ms", "longest wait of a PULL, 0..30000 ms",
                                          "0..30000", 0, 30'000),
    number_key<&Config::credit_initial_count>("credit_initial_count",
                                              "messages in flight to a new subscription, 1..65535",
                                              "1..65535", 1, 65'535),
    number_key<&Config::metadata_snapshot_records>(
        "metadata_snapshot_records", "metadata changes between snapshots, 64..1048576",
        "64..1048576", 64, 1'048'576),
    plain_key<take_metrics_enabled>(
        "metrics_enabled",
        "serve /metrics, true or false; no effect in this version, which has none",
        print_metrics_enabled),
    plain_key<take_log_level>("log_level", "error, warn, info or debug", print_log_level),
    plain_key<take_listen_ws>("listen_ws", "address for WebSocket clients, or off",
                              print_listen_ws),
    address_key<&Config::listen_admin>(
        "listen_admin", "address of the read-only admin HTTP; it has no authentication"),
    plain_key<take_ws_origins>("ws_origins",
                               "origins that WebSocket accepts; an empty list rejects all",
                               print_ws_origins),
};
static_assert(std::size(KEYS) == 18);

constexpr std::array<std::string_view, std::size(KEYS)> key_names() {
    std::array<std::string_view, std::size(KEYS)> names{};
    for (std::size_t i = 0; i < names.size(); ++i)
        names[i] = KEYS[i].name;
    return names;
}

// --- what holds between keys

Result<void> check_listeners(const Config& config) {
    struct Listener {
        std::string_view key;
        const std::string& address;
    };
    const Listener listeners[] = {{"listen_client", config.listen_client},
                                  {"listen_peer", config.listen_peer},
                                  {"listen_ws", config.listen_ws},
                                  {"listen_admin", config.listen_admin}};
    for (const Listener& a : listeners) {
        for (const Listener& b : listeners) {
            if (&a >= &b || a.address.empty() || b.address.empty()) continue;
            const ListenAddress x = MORTAR_TRY(parse_address(a.address));
            const ListenAddress y = MORTAR_TRY(parse_address(b.address));
            if (x.port != y.port || x.port == 0) continue;
            const bool same_host =
                x.host == y.host || (is_loopback_host(x.host) && is_loopback_host(y.host) &&
                                     (x.host == "localhost" || y.host == "localhost"));
            if (!same_host && !is_wildcard_host(x.host) && !is_wildcard_host(y.host)) continue;
            return invalid(std::string(b.key) + ": \"" + b.address + "\" collides with " +
                           std::string(a.key) + " \"" + a.address +
                           "\"; allowed: another port, or another specific address");
        }
    }
    return {};
}

// A node that is alone reaches itself on its own listener.
void fill_peers(Config& config) {
    if (config.peers.empty()) {
        const Result<ListenAddress> address = parse_address(config.listen_peer);
        MORTAR_ASSERT(address.ok());
        const bool is_wildcard = is_wildcard_host(address->host) || address->port == 0;
        const std::uint16_t port = address->port == 0 ? std::uint16_t{7189} : address->port;
        config.peers.push_back(
            {config.node_id,
             is_wildcard ? "127.0.0.1:" + std::to_string(port) : config.listen_peer,
             {}});
    }
    if (config.leader_priority.empty()) {
        for (const PeerConfig& peer : config.peers)
            config.leader_priority.push_back(peer.node_id);
    }
}

Result<void> check_peers(const Config& config) {
    const auto is_peer = [&config](NodeId node_id) {
        return std::any_of(config.peers.begin(), config.peers.end(),
                           [node_id](const PeerConfig& peer) { return peer.node_id == node_id; });
    };
    if (!is_peer(config.node_id)) {
        return invalid("peers: no entry for this node, node_id " +
                       std::to_string(config.node_id.value) +
                       "; allowed: 1 or 3 entries, one of them this node");
    }
    std::vector<NodeId> order = config.leader_priority;
    std::sort(order.begin(), order.end());
    const bool is_twice = std::adjacent_find(order.begin(), order.end()) != order.end();
    if (is_twice || order.size() != config.peers.size() ||
        !std::all_of(order.begin(), order.end(), is_peer)) {
        std::string value;
        JsonWriter writer(value);
        print_priority(writer, config);
        return invalid("leader_priority: " + value +
                       " is not the peers; allowed: the node_id of each peer once");
    }
    return {};
}

std::string print(const Config& config, bool is_default_text) {
    std::string text;
    JsonWriter writer(text, 2);
    writer.begin_object();
    if (is_default_text) {
        writer.key(COMMENT_KEY).begin_array();
        for (const Key& key : KEYS)
            writer.string(std::string(key.name) + ": " + std::string(key.about));
        writer.end_array();
    }
    for (const Key& key : KEYS) {
        if (is_default_text && !key.is_in_default_text) continue;
        writer.key(key.name);
        key.print(writer, config);
    }
    writer.end_object();
    text.push_back('\n');
    return text;
}
}  // namespace

Result<Config> parse_config(std::string_view text) {
    if (text.size() > CONFIG_BYTES_MAX) return invalid("the configuration is larger than 1 MiB");
    const Result<JsonValue> parsed = parse_json(text);
    if (!parsed.ok()) return invalid(parsed.error().detail);
    if (!parsed->is(Kind::OBJECT)) return invalid("the configuration is not a JSON object");
    Config config;
    for (std::size_t i = 0; i < parsed->keys.size(); ++i) {
        const std::string& name = parsed->keys[i];
        const JsonValue& value = parsed->items[i];
        if (name == COMMENT_KEY) {
            if (!value.is(Kind::ARRAY)) return wrong_type(COMMENT_KEY, value, "an array");
            continue;
        }
        const Key* key = std::find_if(std::begin(KEYS), std::end(KEYS),
                                      [&name](const Key& each) { return each.name == name; });
        if (key == std::end(KEYS)) return unknown_key("", name, key_names());
        MORTAR_TRY(key->take(*key, config, value));
    }
    fill_peers(config);
    MORTAR_TRY(check_peers(config));
    MORTAR_TRY(check_listeners(config));
    return config;
}

Config dev_config() {
    Config config;
    config.listen_client = "127.0.0.1:7188";
    config.listen_peer = "127.0.0.1:7189";
    config.listen_admin = "127.0.0.1:7190";
    fill_peers(config);
    return config;
}

Result<void> check_supported(const Config& config) {
    if (!config.listen_ws.empty()) {
        return invalid(
            "listen_ws: this version has no WebSocket; leave it out, or set it to \"off\"");
    }
    return {};
}

std::string print_config(const Config& config) {
    return print(config, false);
}

std::string default_config_text() {
    return print(Config{}, true);
}

// --- addresses

Result<ListenAddress> parse_address(std::string_view address) {
    const auto bad = [address](std::string_view why) {
        return make_error(
            ErrorCode::ADDRESS_INVALID,
            std::string(address.substr(0, SHOWN_VALUE_BYTES_MAX)) + ": " + std::string(why));
    };
    const std::size_t colon = address.rfind(':');
    if (colon == std::string_view::npos) return bad("no port");
    std::string_view host = address.substr(0, colon);
    const std::string_view digits = address.substr(colon + 1);
    ListenAddress result;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) {
        return bad("the port is not a number 0..65535");
    }
    const bool is_v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (is_v6) host = host.substr(1, host.size() - 2);
    if (host.empty() || host.size() > HOST_BYTES_MAX) return bad("no host");
    const auto is_host_letter = [is_v6](char c) {
        const bool is_hex =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (is_v6) return is_hex || c == ':' || c == '.';
        return is_hex || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
               c == '_';
    };
    if (!std::all_of(host.begin(), host.end(), is_host_letter)) return bad("not a host");
    result.host = std::string(host);
    return result;
}

bool is_loopback_host(std::string_view host) {
    if (host == "localhost" || host == "::1") return true;
    const auto is_v4_letter = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
    return host.starts_with("127.") && std::all_of(host.begin(), host.end(), is_v4_letter);
}

bool is_wildcard_host(std::string_view host) {
    return host == "0.0.0.0" || host == "::";
}

}  // namespace mortar
