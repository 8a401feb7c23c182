// sim_disk: core/env/disk.h over a DiskState: time, faults, crash points and the god's view.
// Shape:  each call waits a drawn latency. Reads, syncs and names take effect at its end, writes at
//         its start, half at each, or at its end (drawn). A sync makes durable what was cached when
//         it began.
// Owns:   the state. Files and locks of a dead life answer IO_ERROR and free nothing.
// Faults: knobs in DiskFaults; each says which physical event it stands for.
// Crash:  the operation hook runs before and after the effect of each operation, in the calling
//         fiber; with SimNode::stop_after_step it stops the node right there.
// Source: design 6 (disk model).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/env/disk.h"
#include "core/env/rng.h"
#include "io-sim/disk_state.h"

namespace mortar::sim {

class SimNode;

// What kind of device it is. A call takes between half and one and a half of these, now and then
// much longer.
struct DiskSpeed {
    Duration read = microseconds(60);
    Duration write = microseconds(12);  // into the page cache
    Duration sync = microseconds(150);
    Duration metadata = microseconds(20);  // open, rename, list, ...
    std::int64_t sync_bytes_per_ms = 1'000'000;
    std::uint64_t hiccup_one_in = 400;  // garbage collection of the flash, a busy neighbour
    std::int64_t hiccup_factor = 20;

    static DiskSpeed nvme();
    static DiskSpeed sata_flash();
    static DiskSpeed cloud_volume();
    static DiskSpeed spinning();
    // One of the above by a draw.
    static DiskSpeed draw(Rng& rng);
};

enum class DiskOp : std::uint8_t {
    OPEN,
    READ,
    WRITE,
    SYNC_DATA,
    WRITE_BACK,
    TRUNCATE,
    SIZE,
    RENAME,
    REMOVE,
    LIST,
    MAKE_FOLDER,  // one a missing folder; its entry is synced by a SYNC_FOLDER of the parent
    SYNC_FOLDER,
    SPACE,
    LOCK,
};
std::string_view disk_op_name(DiskOp op);

struct DiskOperation {
    std::uint64_t number;  // counts from 1 over all lives of the node
    DiskOp op;
    std::string_view path;
    std::string_view to_path;  // RENAME only
    std::string_view fiber;
    std::uint64_t file_offset;  // READ, WRITE; TRUNCATE: the new size
    std::uint64_t bytes;        // READ, WRITE
};
enum class OperationPoint : std::uint8_t { BEFORE, AFTER };
using OperationHook = std::function<void(OperationPoint, const DiskOperation&)>;

struct SyncCall {
    DiskOp op;  // SYNC_DATA or SYNC_FOLDER
    std::string_view path;
    std::string_view fiber;
};

// What becomes of the dirty pages when a sync fails; kernels and file systems differ.
enum class FailedSync : std::uint8_t {
    PAGES_GONE,    // the cache drops them and reads see the disk again
    MARKED_CLEAN,  // reads see the new bytes, but no later sync writes them
    KEPT_DIRTY,    // the next sync tries again
    UNKNOWN,       // each page by a draw one of these
};

struct DiskFaults {
    // A medium error, a lost path to the device: the call fails with IO_ERROR, after its time.
    std::uint64_t read_error_per_mille = 0;
    std::uint64_t write_error_per_mille = 0;
    std::uint64_t sync_error_per_mille = 0;
    FailedSync failed_sync = FailedSync::UNKNOWN;
    // For scripted faults: true fails this operation with IO_ERROR.
    std::function<bool(const DiskOperation&)> fails;
    // A full file system: a write that does not fit leaves what fits (a short write) and says
    // NO_SPACE.
    std::uint64_t capacity_bytes = std::uint64_t{1} << 40;
    // The descriptor limit of the process.
    std::size_t open_files_max = 1 << 20;
    // An aged or throttled device: every latency is multiplied.
    std::int64_t slow_factor = 1;
    // A queue in front of the device (a neighbour, a rebuild): each call waits up to so much longer.
    Duration delay_max;
    // A device or controller that hangs: no call ends before this moment of true time.
    MonoTime stalled_until;
    // No fault of the world but of the program: a sync for which this is true does nothing and says
    // OK. Proves that each sync call is needed.
    std::function<bool(const SyncCall&)> drop_sync;
};

class SimDisk : public Disk {
  public:
    SimDisk(SimNode& node, Rng rng);

    Result<std::unique_ptr<File>> open(Fiber& fiber, const std::string& path,
                                       OpenMode mode) override;
    Result<void> rename(Fiber& fiber, const std::string& from, const std::string& to) override;
    Result<void> remove(Fiber& fiber, const std::string& path) override;
    Result<std::vector<DirEntry>> list(Fiber& fiber, const std::string& folder) override;
    Result<void> make_folders(Fiber& fiber, const std::string& folder) override;
    Result<void> sync_folder(Fiber& fiber, const std::string& folder) override;
    Result<DiskSpace> space(Fiber& fiber) override;
    Result<std::unique_ptr<DiskLock>> lock(Fiber& fiber, const std::string& path) override;

    DiskFaults& faults() { return faults_; }
    void set_speed(const DiskSpeed& speed) { speed_ = speed; }
    void set_operation_hook(OperationHook hook) { hook_ = std::move(hook); }
    std::uint64_t operation_count() const { return operations_; }
    std::size_t open_files() const { return open_files_; }

    // What survives a power loss for certain: names whose folder was synced, bytes as of the last
    // sync. A name that is being replaced or removed still counts with its old file until that is
    // synced.
    std::vector<std::string> durable_names(const std::string& folder) const;
    std::optional<ByteVector> durable_read(const std::string& path) const;
    // What a program would read now.
    std::vector<std::string> cached_names(const std::string& folder) const;
    std::optional<ByteVector> cached_read(const std::string& path) const;
    // At most max_bytes from file_offset on; empty when there is no such file or it ends before.
    ByteVector durable_read_part(const std::string& path, std::uint64_t file_offset,
                                 std::uint64_t max_bytes) const;
    ByteVector cached_read_part(const std::string& path, std::uint64_t file_offset,
                                std::uint64_t max_bytes) const;
    std::uint64_t used_bytes() const { return state_.used_bytes(); }
    std::uint64_t unsynced_count() { return state_.unsynced_count(); }
    std::uint64_t digest() const { return state_.digest(); }

    // Only while the node is dead (or has never opened a file).
    DiskState image() const { return state_; }
    void restore(DiskState image);
    void lose_power(const PowerImage& image) { state_.lose_power(image); }
    // Files below folder whose name and bytes are durable, by path, ascending.
    std::vector<std::string> durable_files(const std::string& folder) const;
    // Bit rot at rest: cached and durable bytes alike. False when the file has no such byte.
    bool flip_bit(const std::string& path, std::uint64_t file_offset, unsigned bit);
    // What list tells of this path; without it a file is the owner's alone.
    void set_permissions(const std::string& path, std::uint32_t permissions) {
        permissions_[path] = permissions;
    }
    // The medium was replaced.
    void wipe() { restore(DiskState()); }

  private:
    friend class SimFile;
    friend class SimLock;
    friend class SimNode;

    void on_kill();
    void on_power_loss(const PowerImage& image);

    DiskOperation describe(Fiber& fiber, DiskOp op, std::string_view path);
    void before(Fiber& fiber, const DiskOperation& operation);
    void after(Fiber& fiber, const DiskOperation& operation);
    void wait(Fiber& fiber, Duration base);
    Duration draw(Duration base);
    bool fails(const DiskOperation& operation, std::uint64_t per_mille);
    bool is_dropped(const DiskOperation& operation) const;
    std::optional<std::pair<InodeNumber, std::string>> parent_of(const std::string& path) const;
    void fail_sync(InodeNumber file, const SyncSnapshot& snapshot);

    SimNode& node_;
    Rng rng_;
    DiskSpeed speed_;
    DiskFaults faults_;
    OperationHook hook_;
    DiskState state_;
    std::uint64_t operations_ = 0;
    std::size_t open_files_ = 0;
    std::map<std::string, std::uint32_t> permissions_;
    std::map<std::string, std::uint64_t> locks_;  // path to the holder's number
    std::uint64_t next_lock_ = 1;
};

}  // namespace mortar::sim
