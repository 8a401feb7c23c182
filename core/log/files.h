// files: whole small files: read one, replace one atomically.
// Shape:   replace_file writes "<name>.tmp" and renames it over name: a reader sees the old bytes or the new ones.
// Errors:  what the disk says. After an error the old file stands; a .tmp may be left, which the next try overwrites.
// Suspends: all but unsupported_version.
// Durable: replace_file with SYNCED: the new bytes, once it returns OK. UNSYNCED: after a power loss the file may be old, new,
//          absent or garbage; for hints only.
// Source:  contract 7 (tmp, fsync, rename, fsync of the folder; refuse naming path and version).
#pragma once

#include <string>

#include "core/env/disk.h"

namespace mortar {

inline constexpr std::string_view TMP_SUFFIX = ".tmp";

enum class Durability : std::uint8_t { SYNCED, UNSYNCED };

// At most bytes_max of it.
Result<ByteVector> read_file(Fiber& fiber, Disk& disk, const std::string& path, std::size_t bytes_max);
Result<void> replace_file(Fiber& fiber, Disk& disk, const std::string& folder, const std::string& name,
                          ByteSpan bytes, Durability durability);
// UNSUPPORTED_FORMAT in the words that operators see.
Error unsupported_version(const std::string& path, unsigned version, unsigned version_known);

}  // namespace mortar
