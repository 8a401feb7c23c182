#include "core/admin/data_folder.h"

#include <algorithm>
#include <optional>

#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"

namespace mortar {
namespace {
constexpr const char* LOCK_PATH = "LOCK";
constexpr const char* IDENTITY_NAME = "identity";
constexpr const char* IDENTITY_TMP = "identity.tmp";
constexpr const char* TOKENS_PATH = "auth/client.sha256";
constexpr const char* AUTH_FOLDER = "auth";
constexpr const char* PEER_KEY_NAME = "peer.key";
// Neither others nor the group may anything; 0400 is good, too.
constexpr std::uint32_t PERMISSIONS_REFUSED = 0177;
constexpr std::uint64_t SMALL_FILE_BYTES_MAX = 1u << 20;
constexpr std::string_view FIRST_LINE = "mortarmq identity ";
constexpr std::uint64_t IDENTITY_VERSION = 1;

Error damaged_identity(std::string_view why) {
    return make_error(ErrorCode::DAMAGED, std::string(IDENTITY_NAME) + ": " + std::string(why));
}

// The next line without its end; text moves on.
std::string_view take_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view BLANKS = " \t\r";
    const std::size_t first = text.find_first_not_of(BLANKS);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(BLANKS) - first + 1);
}

Result<NodeIdentity> create_identity(Fiber& fiber, Env& env, const Config& config, bool is_dev) {
    // A folder with data has had an identity. Without it nobody can tell whose data that is.
    for (const DirEntry& entry : MORTAR_TRY(env.disk.list(fiber, ""))) {
        if (entry.name == "metadata" || entry.name == "topics" || entry.name == "groups") {
            return damaged_identity("missing, but there is " + entry.name + "/ in the data_dir");
        }
    }
    NodeIdentity identity;
    identity.node_id = config.node_id;
    identity.is_dev = is_dev;
    Rng rng = env.rng.stream("admin.cluster_id");
    store_be(identity.cluster_id.data(), rng.next());
    store_be(identity.cluster_id.data() + sizeof(std::uint64_t), rng.next());
    const std::string text = print_identity(identity);
    MORTAR_TRY(write_new_file(fiber, env.disk, IDENTITY_TMP, as_byte_span(text)));
    MORTAR_TRY(publish_file(fiber, env.disk, "", IDENTITY_TMP, IDENTITY_NAME));
    return identity;
}

Result<void> check_identity(const NodeIdentity& identity, const Config& config) {
    if (identity.node_id != config.node_id) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          "data_dir: it belongs to node " + std::to_string(identity.node_id.value) +
                              ", this is node " + std::to_string(config.node_id.value) +
                              "; use another data_dir, or that node_id");
    }
    if (identity.is_dev && config.peers.size() > 1) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          "data_dir: it was made with --dev and cannot join a cluster of " +
                              std::to_string(config.peers.size()) + " nodes; use another data_dir");
    }
    return {};
}

bool is_loopback_address(const std::string& address) {
    const Result<ListenAddress> parsed = parse_address(address);
    return parsed.ok() && is_loopback_host(parsed->host);
}
}  // namespace

std::string print_identity(const NodeIdentity& identity) {
    std::string text(FIRST_LINE);
    text.append(std::to_string(IDENTITY_VERSION));
    text.append("\nnode_id ").append(std::to_string(identity.node_id.value));
    text.append("\ncluster_id ").append(to_hex(identity.cluster_id));
    text.append("\nmode ").append(identity.is_dev ? "dev" : "normal").append("\n");
    return text;
}

Result<NodeIdentity> parse_identity(std::string_view text) {
    const std::string_view whole = text;
    const auto version = parse_number_between(take_line(text), FIRST_LINE, "");
    if (!version.has_value()) return damaged_identity("it does not begin as one");
    if (*version != IDENTITY_VERSION) {
        return unsupported_version(std::string(IDENTITY_NAME), *version, IDENTITY_VERSION);
    }
    NodeIdentity identity;
    const auto node_id = parse_number_between(take_line(text), "node_id ", "");
    if (!node_id.has_value() || *node_id > 0xFFFF) return damaged_identity("no node_id");
    identity.node_id = NodeId(static_cast<std::uint16_t>(*node_id));
    std::string_view cluster = take_line(text);
    constexpr std::string_view CLUSTER = "cluster_id ";
    if (!cluster.starts_with(CLUSTER) ||
        !from_hex(cluster.substr(CLUSTER.size()), identity.cluster_id)) {
        return damaged_identity("no cluster_id");
    }
    identity.is_dev = take_line(text) == "mode dev";
    if (print_identity(identity) != whole) return damaged_identity("not as it was written");
    return identity;
}

Result<std::unique_ptr<DataFolder>> DataFolder::open(Fiber& fiber, Env& env, const Config& config,
                                                     bool is_dev) {
    Result<std::unique_ptr<DiskLock>> lock = env.disk.lock(fiber, LOCK_PATH);
    if (lock.is(ErrorCode::LOCKED)) {
        return make_error(ErrorCode::LOCKED,
                          "data_dir " + config.data_dir +
                              ": another process uses it; stop that one, or use another "
                              "data_dir");
    }
    if (!lock.ok()) return std::move(lock).error();
    const Result<ByteVector> bytes =
        read_whole_file(fiber, env.disk, IDENTITY_NAME, SMALL_FILE_BYTES_MAX);
    NodeIdentity identity;
    if (bytes.ok()) {
        identity = MORTAR_TRY(parse_identity(as_string_view(*bytes)));
        MORTAR_TRY(check_identity(identity, config));
        // A process that was killed may have left the name in the cache only.
        MORTAR_TRY(env.disk.sync_folder(fiber, ""));
    } else if (bytes.is(ErrorCode::NOT_FOUND)) {
        identity = MORTAR_TRY(create_identity(fiber, env, config, is_dev));
    } else {
        return bytes.error();
    }
    return std::unique_ptr<DataFolder>(new DataFolder(std::move(lock).value(), identity));
}

Result<std::vector<Sha256Digest>> parse_client_digests(std::string_view text,
                                                       const std::string& path) {
    std::vector<Sha256Digest> digests;
    for (std::size_t number = 1; !text.empty(); ++number) {
        std::string_view line = take_line(text);
        line = trimmed(line.substr(0, line.find('#')));
        if (line.empty()) continue;
        Sha256Digest digest;
        const std::string place = path + ", line " + std::to_string(number);
        if (!from_hex(line, digest)) {
            return make_error(
                ErrorCode::INVALID_CONFIG,
                place +
                    ": not a SHA-256 digest (64 hex digits); make one with mortarmq-hash-token");
        }
        if (digests.size() == CLIENT_DIGEST_COUNT_MAX) {
            return make_error(ErrorCode::INVALID_CONFIG, place + ": more than 1000 digests");
        }
        digests.push_back(digest);
    }
    return digests;
}

Result<std::vector<Sha256Digest>> load_client_tokens(Fiber& fiber, Disk& disk,
                                                     const Config& config) {
    const Result<ByteVector> bytes =
        read_whole_file(fiber, disk, TOKENS_PATH, SMALL_FILE_BYTES_MAX);
    const std::string path = config.data_dir + "/" + TOKENS_PATH;
    const std::string advice =
        "make a token with `mortarmq-hash-token --new` and put its digest line into " + path;
    if (bytes.is(ErrorCode::NOT_FOUND)) {
        const bool is_private = is_loopback_address(config.listen_client) &&
                                (config.listen_ws.empty() || is_loopback_address(config.listen_ws));
        if (!is_private) {
            return make_error(
                ErrorCode::INVALID_CONFIG,
                "listen_client \"" + config.listen_client + "\"" +
                    (config.listen_ws.empty() ? "" : " or listen_ws \"" + config.listen_ws + "\"") +
                    " can be reached by other machines, but clients need no token; " + advice);
        }
        return std::vector<Sha256Digest>();
    }
    if (!bytes.ok()) return bytes.error();
    std::vector<Sha256Digest> digests =
        MORTAR_TRY(parse_client_digests(as_string_view(*bytes), path));
    if (digests.empty()) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          path + " holds no digest, so nobody could connect; " + advice);
    }
    return digests;
}

Result<SecretKey> load_peer_key(Fiber& fiber, Disk& disk, const Config& config) {
    const std::string path = config.data_dir + "/" + AUTH_FOLDER + "/" + PEER_KEY_NAME;
    const Result<std::vector<DirEntry>> entries = disk.list(fiber, AUTH_FOLDER);
    if (!entries.ok() && !entries.is(ErrorCode::NOT_FOUND)) return entries.error();
    const DirEntry* entry = nullptr;
    for (std::size_t i = 0; entries.ok() && i < entries->size(); ++i) {
        if ((*entries)[i].name == PEER_KEY_NAME) entry = &(*entries)[i];
    }
    if (entry == nullptr) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          path +
                              " is missing, and a cluster needs it; make it once with `mkdir -p " +
                              config.data_dir + "/" + AUTH_FOLDER +
                              "; head -c32 "
                              "/dev/urandom | od -An -tx1 | tr -d ' \\n' > " +
                              path + "; chmod 600 " + path + "`, then copy it to the other nodes");
    }
    if ((entry->permissions & PERMISSIONS_REFUSED) != 0) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          path + " can be read or changed by others; `chmod 600 " + path +
                              "`, and make a new one if somebody may have read it");
    }
    const ByteVector bytes = MORTAR_TRY(
        read_whole_file(fiber, disk, join_path(AUTH_FOLDER, PEER_KEY_NAME), SMALL_FILE_BYTES_MAX));
    std::string_view text = as_string_view(bytes);
    const std::string_view line = trimmed(take_line(text));
    SecretKey key;
    if (!trimmed(text).empty() || !from_hex(line, key)) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          path + " is not a key: it must hold 64 hex digits and nothing else");
    }
    return key;
}

Result<std::vector<Sha256Digest>> check_folder(Fiber& fiber, Disk& disk, const Config& config) {
    const Result<ByteVector> bytes =
        read_whole_file(fiber, disk, IDENTITY_NAME, SMALL_FILE_BYTES_MAX);
    if (bytes.ok()) {
        const NodeIdentity identity = MORTAR_TRY(parse_identity(as_string_view(*bytes)));
        MORTAR_TRY(check_identity(identity, config));
    } else if (!bytes.is(ErrorCode::NOT_FOUND)) {
        return bytes.error();
    }
    return load_client_tokens(fiber, disk, config);
}

}  // namespace mortar
