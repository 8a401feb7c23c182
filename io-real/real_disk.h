// real_disk: files under the root folder, by system calls on a few threads.
// Shape:    each call hops to a thread and back; a read whose bytes lie in the page cache is
// answered on the loop
//           (RWF_NOWAIT), as that cannot block.
// Owns:     its threads. A descriptor is closed on a thread too: the last close of a removed file
// frees its blocks. Errors:   see env/disk.h. lock: LOCKED names the path and the holder's pid. The
// lock file holds the pid of the
//           process that has (or last had) the lock; nobody else writes it.
// Suspends: everything; a cancel does not end these waits.
// Source:   design 2 (real I/O), ecosystem notes 7 (plain calls on threads, so that fault injection
// sees them).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/env/disk.h"
#include "io-real/thread_pool.h"

namespace mortar {

class RealDisk final : public Disk {
  public:
    // Syncs of so many files go to the disk at once: it does several in little more time than one. Measured with three nodes,
    // sixteen partitions each: 1.5 times as many messages as with four.
    static constexpr std::size_t THREADS = 16;
    // A longer read copies for so long that it would hold up the loop.
    static constexpr std::size_t INLINE_READ_BYTES_MAX = 262'144;

    RealDisk(RealScheduler& loop, std::string root);

    Result<std::unique_ptr<File>> open(Fiber& fiber, const std::string& path,
                                       OpenMode mode) override;
    Result<void> rename(Fiber& fiber, const std::string& from, const std::string& to) override;
    Result<void> remove(Fiber& fiber, const std::string& path) override;
    Result<std::vector<DirEntry>> list(Fiber& fiber, const std::string& folder) override;
    Result<void> make_folders(Fiber& fiber, const std::string& folder) override;
    Result<void> sync_folder(Fiber& fiber, const std::string& folder) override;
    Result<DiskSpace> space(Fiber& fiber) override;
    Result<std::unique_ptr<DiskLock>> lock(Fiber& fiber, const std::string& path) override;

    // Ends the threads after what is queued; no call may follow.
    void stop() { threads_.stop(); }
    const std::string& root() const { return root_; }

  private:
    std::string full(const std::string& path) const;

    RealScheduler& loop_;
    std::string root_;
    ThreadPool threads_;
};

}  // namespace mortar
