// disk: files and folders under one root (the data_dir). Every call may fail and says how.
// Shape:    paths are relative to the root, parts separated by '/'. Offsets and sizes in bytes.
// Durable:  bytes written before sync_data began, once it returns OK; those of write_and_sync, once that does. A created, renamed or removed name: once
//           sync_folder of its folder (and of each new parent) returned OK. Nothing else.
// Errors:   IO_ERROR, NO_SPACE (some of the bytes may have been written), NOT_FOUND, ALREADY_EXISTS,
//           PERMISSION_DENIED, LIMIT_REACHED (descriptors), LOCKED. The detail names the path and the OS's reason.
//           After a failed sync the state of the unsynced bytes is unknown: close the log, never just sync again.
// Suspends: every call that takes Fiber&. Waits here are not ended by a cancel: a disk thread uses the caller's bytes.
// Source:   design 2, 3 and 6 (disk model).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/env/scheduler.h"

namespace mortar {

enum class OpenMode : std::uint8_t {
    READ,        // must exist
    READ_WRITE,  // must exist
    CREATE,      // read and write; made when absent
};

class File {
  public:
    virtual ~File() = default;
    // Bytes read; fewer than asked only at the end of the file.
    virtual Result<std::size_t> read_at(Fiber& fiber, std::uint64_t file_offset,
                                        MutableByteSpan into) = 0;
    // All of parts back to back, or an error.
    virtual Result<void> write_at(Fiber& fiber, std::uint64_t file_offset,
                                  std::span<const ByteSpan> parts) = 0;
    virtual Result<void> sync_data(Fiber& fiber) = 0;
    // One after the other; a disk whose calls go to other threads does both on one way there.
    virtual Result<void> write_and_sync(Fiber& fiber, std::uint64_t file_offset,
                                        std::span<const ByteSpan> parts) {
        MORTAR_TRY(write_at(fiber, file_offset, parts));
        return sync_data(fiber);
    }
    // Has what was written carried to the disk, so that later syncs are short. Nothing is durable by it, also when it is OK;
    // an error means what one of sync_data means.
    virtual Result<void> write_back(Fiber& fiber) = 0;
    virtual Result<void> truncate(Fiber& fiber, std::uint64_t size_bytes) = 0;
    virtual Result<std::uint64_t> size(Fiber& fiber) = 0;
};

struct DirEntry {
    std::string name;
    bool is_folder = false;
    std::uint64_t size_bytes = 0;
    std::uint32_t permissions = 0600;  // the rwx bits; of a link: those of the file behind it
};

struct DiskSpace {
    std::uint64_t free_bytes = 0;  // to us, the root's reserve left out
    std::uint64_t total_bytes = 0;
};

// Held until destroyed.
class DiskLock {
  public:
    virtual ~DiskLock() = default;
    // Writes into the file who holds it, for people. Apart from lock, because a start that is refused leaves no traces.
    virtual Result<void> sign(Fiber& fiber) {
        (void)fiber;
        return {};
    }
};

class Disk {
  public:
    virtual ~Disk() = default;
    virtual Result<std::unique_ptr<File>> open(Fiber& fiber, const std::string& path,
                                               OpenMode mode) = 0;
    // Replaces to when it exists, atomically.
    virtual Result<void> rename(Fiber& fiber, const std::string& from, const std::string& to) = 0;
    // A file or an empty folder.
    virtual Result<void> remove(Fiber& fiber, const std::string& path) = 0;
    // Sorted by name. NOT_FOUND when the folder is absent.
    virtual Result<std::vector<DirEntry>> list(Fiber& fiber, const std::string& folder) = 0;
    // Makes the folder and its missing parents; OK when it exists. Each new one is synced into its parent.
    virtual Result<void> make_folders(Fiber& fiber, const std::string& folder) = 0;
    // "" is the root.
    virtual Result<void> sync_folder(Fiber& fiber, const std::string& folder) = 0;
    virtual Result<DiskSpace> space(Fiber& fiber) = 0;
    // Creates path when absent and takes an exclusive lock: LOCKED when another process holds it.
    virtual Result<std::unique_ptr<DiskLock>> lock(Fiber& fiber, const std::string& path) = 0;
};

}  // namespace mortar
