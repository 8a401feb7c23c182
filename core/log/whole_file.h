// whole_file: small files that are read and replaced as a whole.
// Shape:    write_new_file then publish_file replace a file atomically: write under a temporary name, sync, rename, sync
//           the folder. Two calls, because a failure of the first changed nothing and one of the second is unknown.
// Errors:   those of Disk; LIMIT_REACHED when the file is larger than the reader allows.
// Suspends: all.
// Durable:  the new content, once publish_file returned OK; until then the old one or the new one, never a mixture.
// Source:   design 3, cases DUR-15.
#pragma once

#include <string>

#include "core/env/disk.h"

namespace mortar {

Result<ByteVector> read_whole_file(Fiber& fiber, Disk& disk, const std::string& path,
                                   std::uint64_t bytes_max);
// Creates or empties path, writes bytes, syncs them. Nothing is durable about the name yet.
Result<void> write_new_file(Fiber& fiber, Disk& disk, const std::string& path, ByteSpan bytes);
// Renames within one folder and syncs it. After an error the name may lead to either content.
Result<void> publish_file(Fiber& fiber, Disk& disk, const std::string& folder, const std::string& from_name,
                          const std::string& to_name);
// Like Disk::make_folders, and durable in any case: a folder that is there already may be one that a process made which
// was killed before it synced the parent.
Result<void> make_folders_durably(Fiber& fiber, Disk& disk, const std::string& folder);
// "a/b" of "a" and "b"; b alone when a is the root.
std::string join_path(const std::string& folder, const std::string& name);

}  // namespace mortar
