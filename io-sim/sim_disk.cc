#include "io-sim/sim_disk.h"

#include <algorithm>
#include <utility>

#include "core/base/hash.h"
#include "io-sim/node.h"

namespace mortar::sim {
namespace {

Error io_error(const DiskOperation& operation, std::string_view reason) {
    std::string text(disk_op_name(operation.op));
    text.append(" of ").append(operation.path);
    if (operation.op == DiskOp::READ || operation.op == DiskOp::WRITE) {
        text.append(" at ").append(std::to_string(operation.file_offset));
        text.append(" (").append(std::to_string(operation.bytes)).append(" bytes)");
    }
    text.append(": ").append(reason);
    return make_error(ErrorCode::IO_ERROR, std::move(text));
}

std::size_t total_bytes(std::span<const ByteSpan> parts) {
    std::size_t total = 0;
    for (const ByteSpan part : parts)
        total += part.size();
    return total;
}

}  // namespace

DiskSpeed DiskSpeed::nvme() {
    return {};
}
DiskSpeed DiskSpeed::sata_flash() {
    return {
        microseconds(150), microseconds(15), microseconds(900), microseconds(30), 400'000, 300, 30};
}
DiskSpeed DiskSpeed::cloud_volume() {
    return {
        microseconds(600), microseconds(20), milliseconds(3), microseconds(50), 120'000, 100, 20};
}
DiskSpeed DiskSpeed::spinning() {
    return {milliseconds(6), microseconds(20), milliseconds(10), microseconds(60), 120'000, 50, 4};
}
DiskSpeed DiskSpeed::draw(Rng& rng) {
    const std::uint64_t kind = rng.below(8);
    if (kind < 4) return nvme();
    if (kind < 6) return sata_flash();
    return kind == 6 ? cloud_volume() : spinning();
}

std::string_view disk_op_name(DiskOp op) {
    static constexpr std::string_view NAMES[] = {
        "open",   "read",   "write", "sync_data",   "write_back",  "truncate", "size",
        "rename", "remove", "list",  "make_folder", "sync_folder", "space",    "lock"};
    return NAMES[static_cast<std::size_t>(op)];
}

class SimFile final : public File {
  public:
    SimFile(SimDisk& disk, InodeNumber inode, std::string path, bool writable)
        : disk_(disk),
          inode_(inode),
          path_(std::move(path)),
          writable_(writable),
          life_(disk.node_.life()) {
        disk_.state_.open(inode_);
        ++disk_.open_files_;
    }
    ~SimFile() override {
        if (!is_current()) return;
        disk_.state_.close(inode_);
        --disk_.open_files_;
    }
    SimFile(const SimFile&) = delete;
    SimFile& operator=(const SimFile&) = delete;

    Result<std::size_t> read_at(Fiber& fiber, std::uint64_t file_offset,
                                MutableByteSpan into) override {
        DiskOperation operation = begin(fiber, DiskOp::READ, file_offset, into.size());
        disk_.wait(fiber, disk_.speed_.read);
        MORTAR_TRY(check(operation));
        if (disk_.fails(operation, disk_.faults_.read_error_per_mille)) {
            return io_error(operation, "Input/output error");
        }
        const std::size_t count = disk_.state_.inode(inode_).cached.read(file_offset, into);
        disk_.after(fiber, operation);
        return count;
    }

    Result<void> write_at(Fiber& fiber, std::uint64_t file_offset,
                          std::span<const ByteSpan> parts) override {
        const std::size_t total = total_bytes(parts);
        DiskOperation operation = begin(fiber, DiskOp::WRITE, file_offset, total);
        MORTAR_TRY(check(operation));
        if (!writable_) return io_error(operation, "Bad file descriptor");
        const bool failing = disk_.fails(operation, disk_.faults_.write_error_per_mille);
        const std::size_t room = room_for(file_offset, total);
        // A failed write may have come any way; one that has no space writes what fits.
        const std::size_t reach =
            failing ? static_cast<std::size_t>(disk_.rng_.below(std::min(room, total) + 1))
                    : std::min(room, total);
        const std::uint64_t shape = disk_.rng_.below(3);
        const std::size_t at_once = shape == 0 ? 0 : shape == 1 ? reach / 2 : reach;
        put(file_offset, parts, 0, at_once);
        disk_.wait(fiber, disk_.speed_.write);
        put(file_offset, parts, at_once, reach);
        if (failing) return io_error(operation, "Input/output error");
        disk_.after(fiber, operation);
        if (reach < total) {
            return make_error(ErrorCode::NO_SPACE, "write of " + std::to_string(total) +
                                                       " bytes at " + std::to_string(file_offset) +
                                                       " in " + path_ +
                                                       ": No space left on device");
        }
        return {};
    }

    Result<void> sync_data(Fiber& fiber) override { return sync(fiber, DiskOp::SYNC_DATA); }
    Result<void> write_back(Fiber& fiber) override { return sync(fiber, DiskOp::WRITE_BACK); }
    Result<void> truncate(Fiber& fiber, std::uint64_t size_bytes) override {
        DiskOperation operation = begin(fiber, DiskOp::TRUNCATE, size_bytes, 0);
        disk_.wait(fiber, disk_.speed_.metadata);
        MORTAR_TRY(check(operation));
        if (!writable_) return io_error(operation, "Invalid argument");
        if (disk_.fails(operation, disk_.faults_.write_error_per_mille)) {
            return io_error(operation, "Input/output error");
        }
        disk_.state_.truncate(inode_, size_bytes);
        disk_.after(fiber, operation);
        return {};
    }

    Result<std::uint64_t> size(Fiber& fiber) override {
        DiskOperation operation = begin(fiber, DiskOp::SIZE, 0, 0);
        MORTAR_TRY(check(operation));
        if (disk_.fails(operation, 0)) return io_error(operation, "Input/output error");
        const std::uint64_t bytes = disk_.state_.inode(inode_).cached.size_bytes;
        disk_.after(fiber, operation);
        return bytes;
    }

  private:
    Result<void> sync(Fiber& fiber, DiskOp op) {
        DiskOperation operation = begin(fiber, op, 0, 0);
        MORTAR_TRY(check(operation));
        // Nobody may rely on a write-back, nor on its doing nothing.
        const bool dropped =
            op == DiskOp::WRITE_BACK ? disk_.rng_.one_in(2) : disk_.is_dropped(operation);
        const SyncSnapshot snapshot = disk_.state_.begin_sync(inode_);
        const auto bytes = static_cast<std::int64_t>(snapshot.pages.size() * PAGE_BYTES);
        const Duration carrying{bytes * 1'000'000 / disk_.speed_.sync_bytes_per_ms};
        disk_.wait(fiber, disk_.speed_.sync + carrying);
        if (disk_.fails(operation, disk_.faults_.sync_error_per_mille)) {
            disk_.fail_sync(inode_, snapshot);
            return io_error(operation, "Input/output error");
        }
        if (!dropped) disk_.state_.commit_sync(inode_, snapshot);
        disk_.after(fiber, operation);
        return {};
    }
    bool is_current() const { return life_ == disk_.node_.life() && disk_.node_.alive(); }
    DiskOperation begin(Fiber& fiber, DiskOp op, std::uint64_t file_offset, std::uint64_t bytes) {
        DiskOperation operation = disk_.describe(fiber, op, path_);
        operation.file_offset = file_offset;
        operation.bytes = bytes;
        disk_.before(fiber, operation);
        return operation;
    }
    Result<void> check(const DiskOperation& operation) const {
        if (!is_current())
            return io_error(operation, "the file was opened in another life of the node");
        return {};
    }
    std::size_t room_for(std::uint64_t file_offset, std::size_t total) const {
        const std::uint64_t size = disk_.state_.inode(inode_).cached.size_bytes;
        const std::uint64_t used = disk_.state_.used_bytes();
        const std::uint64_t capacity = disk_.faults_.capacity_bytes;
        const std::uint64_t end_max = size + (capacity > used ? capacity - used : 0);
        if (file_offset >= end_max) return 0;
        return static_cast<std::size_t>(std::min<std::uint64_t>(total, end_max - file_offset));
    }
    // The bytes [from, to) of parts laid back to back.
    void put(std::uint64_t file_offset, std::span<const ByteSpan> parts, std::size_t from,
             std::size_t to) {
        std::size_t at = 0;
        for (const ByteSpan part : parts) {
            const std::size_t begin = std::clamp(from, at, at + part.size());
            const std::size_t end = std::clamp(to, at, at + part.size());
            if (begin < end) {
                const ByteSpan piece = part.subspan(begin - at, end - begin);
                disk_.state_.write(inode_, file_offset + begin, piece);
                disk_.node_.world().trace(crc32c(piece));
            }
            at += part.size();
        }
    }

    SimDisk& disk_;
    InodeNumber inode_;
    std::string path_;
    bool writable_;
    std::uint64_t life_;
};

class SimLock final : public DiskLock {
  public:
    SimLock(SimDisk& disk, std::string path, std::uint64_t number)
        : disk_(disk), path_(std::move(path)), number_(number) {}
    ~SimLock() override {
        const auto found = disk_.locks_.find(path_);
        if (found != disk_.locks_.end() && found->second == number_) disk_.locks_.erase(found);
    }
    SimLock(const SimLock&) = delete;
    SimLock& operator=(const SimLock&) = delete;

  private:
    SimDisk& disk_;
    std::string path_;
    std::uint64_t number_;
};

SimDisk::SimDisk(SimNode& node, Rng rng) : node_(node), rng_(rng) {}

DiskOperation SimDisk::describe(Fiber& fiber, DiskOp op, std::string_view path) {
    return {++operations_, op, path, {}, fiber.name(), 0, 0};
}

void SimDisk::before(Fiber& fiber, const DiskOperation& operation) {
    node_.world().trace(operation.number << 8 | static_cast<std::uint64_t>(operation.op));
    if (hook_) hook_(OperationPoint::BEFORE, operation);
    node_.hold_if_stopping(fiber);
}

void SimDisk::after(Fiber& fiber, const DiskOperation& operation) {
    if (hook_) hook_(OperationPoint::AFTER, operation);
    node_.hold_if_stopping(fiber);
}

Duration SimDisk::draw(Duration base) {
    if (base.ns == 0) return base;
    Duration drawn{base.ns / 2 +
                   static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(base.ns)))};
    if (rng_.one_in(speed_.hiccup_one_in)) drawn = drawn * speed_.hiccup_factor;
    return drawn * faults_.slow_factor;
}

void SimDisk::wait(Fiber& fiber, Duration base) {
    Duration takes = draw(base);
    if (faults_.delay_max.ns > 0) takes.ns += rng_.between(0, faults_.delay_max.ns);
    const MonoTime done = std::max(node_.world().now() + takes, faults_.stalled_until);
    const MonoTime local = node_.clock().from_true(done);
    // At least once: who calls the disk must expect others to run meanwhile.
    do {
        fiber.scheduler().park(fiber, local, CancelMode::DEFERRED);
    } while (node_.clock().now() < local);
}

bool SimDisk::fails(const DiskOperation& operation, std::uint64_t per_mille) {
    if (faults_.fails && faults_.fails(operation)) return true;
    return per_mille > 0 && rng_.chance_per_mille(per_mille);
}

bool SimDisk::is_dropped(const DiskOperation& operation) const {
    return faults_.drop_sync && faults_.drop_sync({operation.op, operation.path, operation.fiber});
}

void SimDisk::fail_sync(InodeNumber file, const SyncSnapshot& snapshot) {
    for (const auto& [index, page] : snapshot.pages) {
        FailedSync how = faults_.failed_sync;
        if (how == FailedSync::UNKNOWN) how = static_cast<FailedSync>(rng_.below(3));
        if (how != FailedSync::KEPT_DIRTY)
            state_.drop_page(file, index, how == FailedSync::MARKED_CLEAN);
    }
}

std::optional<std::pair<InodeNumber, std::string>> SimDisk::parent_of(
    const std::string& path) const {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? std::string() : path.substr(0, slash);
    const std::optional<InodeNumber> parent = state_.find(folder);
    if (!parent || !state_.inode(*parent).is_folder) return std::nullopt;
    return std::pair(*parent, slash == std::string::npos ? path : path.substr(slash + 1));
}

Result<std::unique_ptr<File>> SimDisk::open(Fiber& fiber, const std::string& path, OpenMode mode) {
    DiskOperation operation = describe(fiber, DiskOp::OPEN, path);
    before(fiber, operation);
    wait(fiber, speed_.metadata);
    if (fails(operation, 0)) return io_error(operation, "Input/output error");
    if (open_files_ >= faults_.open_files_max) {
        return make_error(ErrorCode::LIMIT_REACHED, "open of " + path + ": Too many open files");
    }
    std::optional<InodeNumber> inode = state_.find(path);
    if (inode && state_.inode(*inode).is_folder) return io_error(operation, "Is a directory");
    if (!inode) {
        const auto parent = parent_of(path);
        if (mode != OpenMode::CREATE || !parent) return make_error(ErrorCode::NOT_FOUND, path);
        inode = state_.create(parent->first, parent->second, false);
    }
    std::unique_ptr<File> file =
        std::make_unique<SimFile>(*this, *inode, path, mode != OpenMode::READ);
    after(fiber, operation);
    return file;
}

Result<void> SimDisk::rename(Fiber& fiber, const std::string& from, const std::string& to) {
    DiskOperation operation = describe(fiber, DiskOp::RENAME, from);
    operation.to_path = to;
    before(fiber, operation);
    wait(fiber, speed_.metadata);
    if (fails(operation, 0)) return io_error(operation, "Input/output error");
    const auto source = parent_of(from);
    const auto target = parent_of(to);
    const std::optional<InodeNumber> moved = state_.find(from);
    if (!source || !target || !moved) return make_error(ErrorCode::NOT_FOUND, from + " to " + to);
    const std::optional<InodeNumber> replaced = state_.find(to);
    if (replaced && *replaced != *moved) {
        if (state_.inode(*moved).is_folder != state_.inode(*replaced).is_folder) {
            return io_error(operation, "Not a directory");
        }
        if (!state_.inode(*replaced).cached_names.empty())
            return io_error(operation, "Directory not empty");
    }
    if (from != to) state_.rename(source->first, source->second, target->first, target->second);
    after(fiber, operation);
    return {};
}

Result<void> SimDisk::remove(Fiber& fiber, const std::string& path) {
    DiskOperation operation = describe(fiber, DiskOp::REMOVE, path);
    before(fiber, operation);
    wait(fiber, speed_.metadata);
    if (fails(operation, 0)) return io_error(operation, "Input/output error");
    const auto parent = parent_of(path);
    const std::optional<InodeNumber> inode = state_.find(path);
    if (!parent || !inode) return make_error(ErrorCode::NOT_FOUND, path);
    if (!state_.inode(*inode).cached_names.empty())
        return io_error(operation, "Directory not empty");
    state_.remove(parent->first, parent->second);
    after(fiber, operation);
    return {};
}

Result<std::vector<DirEntry>> SimDisk::list(Fiber& fiber, const std::string& folder) {
    DiskOperation operation = describe(fiber, DiskOp::LIST, folder);
    before(fiber, operation);
    wait(fiber, speed_.metadata);
    if (fails(operation, 0)) return io_error(operation, "Input/output error");
    const std::optional<InodeNumber> inode = state_.find(folder);
    if (!inode) return make_error(ErrorCode::NOT_FOUND, folder);
    if (!state_.inode(*inode).is_folder) return io_error(operation, "Not a directory");
    std::vector<DirEntry> entries;
    for (const auto& [name, number] : state_.inode(*inode).cached_names) {
        const Inode& entry = state_.inode(number);
        const auto given = permissions_.find(folder.empty() ? name : folder + "/" + name);
        entries.push_back({name, entry.is_folder, entry.cached.size_bytes,
                           given == permissions_.end() ? DirEntry().permissions : given->second});
    }
    after(fiber, operation);
    return entries;
}

Result<void> SimDisk::make_folders(Fiber& fiber, const std::string& folder) {
    std::size_t end = 0;
    std::string parent;
    while (end < folder.size()) {
        end = std::min(folder.find('/', end + 1), folder.size());
        const std::string path = folder.substr(0, end);
        const std::optional<InodeNumber> present = state_.find(path);
        if (!present) {
            DiskOperation operation = describe(fiber, DiskOp::MAKE_FOLDER, path);
            before(fiber, operation);
            wait(fiber, speed_.metadata);
            if (fails(operation, 0)) return io_error(operation, "Input/output error");
            const auto place = parent_of(path);
            if (!place) return make_error(ErrorCode::NOT_FOUND, parent);
            // Another fiber may have made it while this one waited.
            if (!state_.find(path)) state_.create(place->first, place->second, true);
            after(fiber, operation);
            MORTAR_TRY(sync_folder(fiber, parent));
        } else if (!state_.inode(*present).is_folder) {
            return make_error(ErrorCode::ALREADY_EXISTS, path + " is a file");
        }
        parent = path;
    }
    return {};
}

Result<void> SimDisk::sync_folder(Fiber& fiber, const std::string& folder) {
    DiskOperation operation = describe(fiber, DiskOp::SYNC_FOLDER, folder);
    before(fiber, operation);
    const std::optional<InodeNumber> inode = state_.find(folder);
    if (!inode) return make_error(ErrorCode::NOT_FOUND, folder);
    const bool dropped = is_dropped(operation);
    const std::uint64_t before_change = state_.next_change();
    wait(fiber, speed_.sync);
    if (fails(operation, faults_.sync_error_per_mille))
        return io_error(operation, "Input/output error");
    if (!dropped) state_.commit_folder(*inode, before_change);
    after(fiber, operation);
    return {};
}

Result<DiskSpace> SimDisk::space(Fiber& fiber) {
    DiskOperation operation = describe(fiber, DiskOp::SPACE, {});
    before(fiber, operation);
    wait(fiber, speed_.metadata);
    if (fails(operation, 0)) return io_error(operation, "Input/output error");
    const std::uint64_t used = std::min(state_.used_bytes(), faults_.capacity_bytes);
    after(fiber, operation);
    return DiskSpace{faults_.capacity_bytes - used, faults_.capacity_bytes};
}

Result<std::unique_ptr<DiskLock>> SimDisk::lock(Fiber& fiber, const std::string& path) {
    DiskOperation operation = describe(fiber, DiskOp::LOCK, path);
    before(fiber, operation);
    wait(fiber, speed_.metadata);
    if (fails(operation, 0)) return io_error(operation, "Input/output error");
    if (!state_.find(path)) {
        const auto parent = parent_of(path);
        if (!parent) return make_error(ErrorCode::NOT_FOUND, path);
        state_.create(parent->first, parent->second, false);
    }
    if (locks_.contains(path)) return make_error(ErrorCode::LOCKED, path);
    const std::uint64_t number = next_lock_++;
    locks_.emplace(path, number);
    std::unique_ptr<DiskLock> held = std::make_unique<SimLock>(*this, path, number);
    after(fiber, operation);
    return held;
}

void SimDisk::on_kill() {
    // The kernel closes what the process held; fibers have done so already, objects outside of them
    // have not.
    state_.close_all();
    open_files_ = 0;
    locks_.clear();
}

void SimDisk::on_power_loss(const PowerImage& image) {
    on_kill();
    state_.lose_power(image);
}

void SimDisk::restore(DiskState image) {
    MORTAR_ASSERT(open_files_ == 0);
    state_ = std::move(image);
}

namespace {

std::vector<std::string> names_of(const std::map<std::string, InodeNumber>& names) {
    std::vector<std::string> list;
    for (const auto& [name, inode] : names)
        list.push_back(name);
    return list;
}

ByteVector bytes_of(const FileContent& content) {
    ByteVector bytes(static_cast<std::size_t>(content.size_bytes));
    content.read(0, bytes);
    return bytes;
}

}  // namespace

std::vector<std::string> SimDisk::durable_names(const std::string& folder) const {
    const auto inode = state_.find_durable(folder);
    return inode ? names_of(state_.inode(*inode).durable_names) : std::vector<std::string>();
}

std::vector<std::string> SimDisk::durable_files(const std::string& folder) const {
    std::vector<std::string> files;
    for (const std::string& name : durable_names(folder)) {
        const std::string path = folder.empty() ? name : folder + "/" + name;
        const auto inode = state_.find_durable(path);
        if (!inode) continue;
        if (!state_.inode(*inode).is_folder) {
            files.push_back(path);
            continue;
        }
        for (std::string& file : durable_files(path))
            files.push_back(std::move(file));
    }
    return files;
}

std::optional<ByteVector> SimDisk::durable_read(const std::string& path) const {
    const auto inode = state_.find_durable(path);
    if (!inode || state_.inode(*inode).is_folder) return std::nullopt;
    return bytes_of(state_.inode(*inode).durable);
}

std::vector<std::string> SimDisk::cached_names(const std::string& folder) const {
    const auto inode = state_.find(folder);
    return inode ? names_of(state_.inode(*inode).cached_names) : std::vector<std::string>();
}

std::optional<ByteVector> SimDisk::cached_read(const std::string& path) const {
    const auto inode = state_.find(path);
    if (!inode || state_.inode(*inode).is_folder) return std::nullopt;
    return bytes_of(state_.inode(*inode).cached);
}

namespace {

ByteVector part_of(const FileContent& content, std::uint64_t file_offset, std::uint64_t max_bytes) {
    if (file_offset >= content.size_bytes) return {};
    const std::uint64_t count = std::min(max_bytes, content.size_bytes - file_offset);
    ByteVector bytes(static_cast<std::size_t>(count));
    content.read(file_offset, bytes);
    return bytes;
}

}  // namespace

ByteVector SimDisk::durable_read_part(const std::string& path, std::uint64_t file_offset,
                                      std::uint64_t max_bytes) const {
    const auto inode = state_.find_durable(path);
    if (!inode || state_.inode(*inode).is_folder) return {};
    return part_of(state_.inode(*inode).durable, file_offset, max_bytes);
}

ByteVector SimDisk::cached_read_part(const std::string& path, std::uint64_t file_offset,
                                     std::uint64_t max_bytes) const {
    const auto inode = state_.find(path);
    if (!inode || state_.inode(*inode).is_folder) return {};
    return part_of(state_.inode(*inode).cached, file_offset, max_bytes);
}

bool SimDisk::flip_bit(const std::string& path, std::uint64_t file_offset, unsigned bit) {
    MORTAR_ASSERT(bit < 8);
    const auto number = state_.find(path);
    if (!number) return false;
    Inode& file = state_.inode(*number);
    if (file_offset >= file.cached.size_bytes) return false;
    const auto index = static_cast<std::size_t>(file_offset / PAGE_BYTES);
    const auto within = static_cast<std::size_t>(file_offset % PAGE_BYTES);
    const std::byte mask{static_cast<unsigned char>(1u << bit)};
    const bool same_page = file.cached.page(index) == file.durable.page(index);
    for (FileContent* content : {&file.cached, &file.durable}) {
        PageRef page = content->page(index);
        page.own()[within] ^= mask;
        content->set_page(index, page);
    }
    // One page stays one page, else the next sync would take it for changed.
    if (same_page) file.cached.set_page(index, file.durable.page(index));
    return true;
}

}  // namespace mortar::sim
