// promise: what a node must remember of elections, on disk before anyone hears of it:
// `replica/state`.
// Shape:    MMRS: magic, u8 version, u32 crc32c of all after it, u16 node_id, 16 bytes cluster_id,
//           u64 leader_epoch. One node is always its own leader; each start takes the next
//           leader_epoch, so that delivery ids never repeat.
// Errors:   load: DAMAGED (a lost epoch cannot be guessed), UNSUPPORTED_FORMAT, those of Disk.
//           save: those of Disk.
// Suspends: both.
// Durable:  the promise, once save returned OK.
// Source:   design 4 (`replica/state`), contract D8.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "core/base/ids.h"
#include "core/env/disk.h"

namespace mortar {

inline constexpr std::string_view PROMISE_MAGIC = "MMRS";
inline constexpr std::uint8_t PROMISE_VERSION = 1;
// delivery_id holds 24 bits of it (contract D8).
inline constexpr std::uint64_t LEADER_EPOCH_MAX = (1u << 24) - 1;

struct Promise {
    NodeId node_id;
    std::array<std::byte, 16> cluster_id{};
    LeaderEpoch leader_epoch;
    bool operator==(const Promise&) const = default;
};

ByteVector encode_promise(const Promise& promise);
Result<Promise> decode_promise(ByteSpan file);

// Nothing when the node never had one.
Result<std::optional<Promise>> load_promise(Fiber& fiber, Disk& disk);
Result<void> save_promise(Fiber& fiber, Disk& disk, const Promise& promise);

}  // namespace mortar
