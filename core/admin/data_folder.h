// data_folder: whose the data_dir is: locked while a process uses it, and marked with the node that it belongs to.
// Shape:    data_dir/LOCK is only locked; data_dir/identity is a small text file, written once at the first start and
//           never again (kept apart from LOCK, because a file that is replaced atomically cannot hold a lock):
//             mortarmq identity 1
//             node_id 0
//             cluster_id 0123456789abcdef0123456789abcdef
//             mode dev        (or: normal)
//           data_dir/auth/client.sha256 holds the digests of the tokens that clients may use; data_dir/auth/peer.key the
//           key by which the nodes of a cluster know each other.
// Owns:     the lock, until destroyed.
// Errors:   LOCKED (another process), INVALID_CONFIG (another node's folder; a --dev folder in a cluster; tokens; the key), DAMAGED
//           (the identity is unreadable, or missing next to data), UNSUPPORTED_FORMAT, those of Disk.
// Suspends: all that take Fiber&.
// Durable:  the identity, before open returns.
// Source:   contract 4 (data_dir, secrets), S3.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/admin/config.h"
#include "core/base/hash.h"
#include "core/env/env.h"

namespace mortar {

struct NodeIdentity {
    NodeId node_id;
    std::array<std::byte, 16> cluster_id{};  // drawn at random
    bool is_dev = false;
    bool operator==(const NodeIdentity&) const = default;
};

std::string print_identity(const NodeIdentity& identity);
Result<NodeIdentity> parse_identity(std::string_view text);

class DataFolder {
  public:
    static Result<std::unique_ptr<DataFolder>> open(Fiber& fiber, Env& env, const Config& config,
                                                    bool is_dev);
    const NodeIdentity& identity() const { return identity_; }
    // Who uses the folder, into LOCK: once nothing can refuse the start any more.
    Result<void> sign(Fiber& fiber) { return lock_->sign(fiber); }

  private:
    DataFolder(std::unique_ptr<DiskLock> lock, NodeIdentity identity)
        : lock_(std::move(lock)), identity_(identity) {}

    std::unique_ptr<DiskLock> lock_;
    NodeIdentity identity_;
};

inline constexpr std::size_t CLIENT_DIGEST_COUNT_MAX = 1000;

// One digest in hex a line; # begins a comment.
Result<std::vector<Sha256Digest>> parse_client_digests(std::string_view text,
                                                       const std::string& path);
// Of the tokens that may connect. None without the file: then the empty token may, and only this machine can reach the
// listeners (contract S3).
Result<std::vector<Sha256Digest>> load_client_tokens(Fiber& fiber, Disk& disk,
                                                     const Config& config);
// What the nodes of a cluster know each other by: 64 hex digits, in a file that nobody else may read. Asked for with more
// than one peer only.
Result<SecretKey> load_peer_key(Fiber& fiber, Disk& disk, const Config& config);
// What a start refuses because of the configuration and what stands in the folder: the tokens, and whose folder it is.
// Changes nothing; the folder need not be there.
Result<std::vector<Sha256Digest>> check_folder(Fiber& fiber, Disk& disk, const Config& config);

}  // namespace mortar
