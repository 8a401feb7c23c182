// whole_file: small files that are read and replaced as a whole.
// Shape:    replace_file is write_new_file under "<name>.tmp", then publish_file: write, sync, rename, sync the folder. A
//           reader sees the old bytes or the new ones. Two calls for those who must know: a failure of the first changed
//           nothing, one of the second is unknown.
// Errors:   those of Disk; DAMAGED when the file is larger than any that was written.
// Suspends: all but join_path and unsupported_version.
// Durable:  SYNCED: the new content, once publish_file or replace_file returned OK; until then the old one or the new one,
//           never a mixture. UNSYNCED: after a power loss the file may be old, new, absent or garbage; for hints only.
// Source:   design 3, contract 7 (refuse naming path and version), cases DUR-15.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/env/disk.h"

namespace mortar {

inline constexpr std::string_view TMP_SUFFIX = ".tmp";

enum class Durability : std::uint8_t { SYNCED, UNSYNCED };

Result<ByteVector> read_whole_file(Fiber& fiber, Disk& disk, const std::string& path,
                                   std::uint64_t bytes_max);
// At most bytes_max of it: of a file whose rest says nothing.
Result<ByteVector> read_file_start(Fiber& fiber, Disk& disk, const std::string& path,
                                   std::uint64_t bytes_max);
// Creates or empties path, writes bytes, syncs them. Nothing is durable about the name yet.
// The file comes back open, for those who go on writing to it.
Result<std::unique_ptr<File>> write_new_file(Fiber& fiber, Disk& disk, const std::string& path,
                                             ByteSpan bytes,
                                             Durability durability = Durability::SYNCED);
// Renames within one folder and syncs it. After an error the name may lead to either content.
Result<void> publish_file(Fiber& fiber, Disk& disk, const std::string& folder,
                          const std::string& from_name, const std::string& to_name,
                          Durability durability = Durability::SYNCED);
// After an error a .tmp may be left, which the next try overwrites. The file comes back open.
Result<std::unique_ptr<File>> replace_file(Fiber& fiber, Disk& disk, const std::string& folder,
                                           const std::string& name, ByteSpan bytes,
                                           Durability durability = Durability::SYNCED);
// Like Disk::make_folders, and durable in any case: a folder that is there already may be one that a process made which
// was killed before it synced the parent.
Result<void> make_folders_durably(Fiber& fiber, Disk& disk, const std::string& folder);
// "a/b" of "a" and "b"; b alone when a is the root.
std::string join_path(const std::string& folder, const std::string& name);
// UNSUPPORTED_FORMAT in the words that operators see.
Error unsupported_version(const std::string& path, std::uint64_t version,
                          std::uint64_t version_known);

}  // namespace mortar
