#include "io-real/real_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <utility>

#include "io-real/os_error.h"

namespace mortar {
namespace {

constexpr std::size_t IOV_BATCH = 256;
static_assert(IOV_BATCH <= IOV_MAX);
constexpr mode_t FILE_MODE = 0644;
constexpr mode_t FOLDER_MODE = 0755;
constexpr mode_t PERMISSION_BITS = 0777;

ErrorCode code_of(int error_number) {
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
            return ErrorCode::NO_SPACE;
        case ENOENT:
            return ErrorCode::NOT_FOUND;
        case EEXIST:
        case ENOTEMPTY:
            return ErrorCode::ALREADY_EXISTS;
        case EACCES:
        case EPERM:
        case EROFS:
            return ErrorCode::PERMISSION_DENIED;
        case EMFILE:
        case ENFILE:
            return ErrorCode::LIMIT_REACHED;
        default:
            return ErrorCode::IO_ERROR;
    }
}

// what: "cannot write 4096 bytes at 81920 in".
Error disk_error(int error_number, std::string_view what, const std::string& path) {
    return make_error(code_of(error_number),
                      fmt::format("{} {}: {}", what, path, os_reason(error_number)));
}

class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

  private:
    int fd_;
};

Result<Descriptor> open_path(const std::string& path, int flags) {
    Descriptor opened(::open(path.c_str(), flags | O_CLOEXEC, FILE_MODE));
    if (opened.get() < 0) return disk_error(errno, "cannot open", path);
    return opened;
}

Result<void> sync_folder_at(const std::string& path) {
    const Descriptor folder = MORTAR_TRY(open_path(path, O_RDONLY | O_DIRECTORY));
    if (::fsync(folder.get()) != 0) return disk_error(errno, "cannot sync the folder", path);
    return {};
}

// Bytes read; fewer than asked only at the end of the file.
Result<std::size_t> read_fully(int fd, const std::string& path, std::uint64_t file_offset,
                               MutableByteSpan into) {
    std::size_t done = 0;
    while (done < into.size()) {
        const ssize_t count = ::pread(fd, into.data() + done, into.size() - done,
                                      static_cast<off_t>(file_offset + done));
        if (count == 0) break;
        if (count < 0 && errno != EINTR) {
            return disk_error(
                errno, fmt::format("cannot read {} bytes at {} in", into.size(), file_offset),
                path);
        }
        if (count > 0) done += static_cast<std::size_t>(count);
    }
    return done;
}

Result<void> write_fully(int fd, const std::string& path, std::uint64_t file_offset,
                         std::span<const ByteSpan> parts) {
    std::size_t index = 0;
    std::size_t offset = 0;
    std::uint64_t at = file_offset;
    while (true) {
        iovec entries[IOV_BATCH];
        int used = 0;
        for (std::size_t i = index, skip = offset; i < parts.size() && used < int{IOV_BATCH};
             ++i, skip = 0) {
            const ByteSpan rest = parts[i].subspan(skip);
            if (rest.empty()) continue;
            entries[used].iov_base = const_cast<std::byte*>(rest.data());
            entries[used].iov_len = rest.size();
            ++used;
        }
        if (used == 0) return {};
        const ssize_t count = ::pwritev(fd, entries, used, static_cast<off_t>(at));
        if (count < 0 && errno == EINTR) continue;
        // A device that takes nothing and reports nothing would keep us here for ever.
        if (count <= 0) {
            return disk_error(count == 0 ? EIO : errno, fmt::format("cannot write at {} in", at),
                              path);
        }
        at += static_cast<std::uint64_t>(count);
        offset += static_cast<std::size_t>(count);
        while (index < parts.size() && offset >= parts[index].size())
            offset -= parts[index++].size();
    }
}

class RealFile final : public File {
  public:
    RealFile(RealScheduler& loop, ThreadPool& threads, Descriptor descriptor, std::string path)
        : loop_(loop), threads_(threads), fd_(descriptor.release()), path_(std::move(path)) {}
    ~RealFile() override {
        threads_.run_detached([fd = fd_] { ::close(fd); });
    }

    Result<std::size_t> read_at(Fiber& fiber, std::uint64_t file_offset,
                                MutableByteSpan into) override {
        loop_.count_call(fiber);
        std::size_t done = 0;
        if (into.size() <= RealDisk::INLINE_READ_BYTES_MAX) {
            bool at_end = false;
            done = read_cached(file_offset, into, at_end);
            if (at_end || done == into.size()) return done;
        }
        Result<std::size_t> rest = std::size_t{0};
        threads_.run(
            fiber, [&] { rest = read_fully(fd_, path_, file_offset + done, into.subspan(done)); });
        return done + MORTAR_TRY(std::move(rest));
    }

    Result<void> write_at(Fiber& fiber, std::uint64_t file_offset,
                          std::span<const ByteSpan> parts) override {
        Result<void> result;
        threads_.run(fiber, [&] { result = write_fully(fd_, path_, file_offset, parts); });
        return result;
    }

    Result<void> sync_data(Fiber& fiber) override {
        Result<void> result;
        threads_.run(fiber, [&] { result = sync_now(); });
        return result;
    }

    Result<void> write_and_sync(Fiber& fiber, std::uint64_t file_offset,
                                std::span<const ByteSpan> parts) override {
        Result<void> result;
        threads_.run(fiber, [&] {
            result = write_fully(fd_, path_, file_offset, parts);
            if (result.ok()) result = sync_now();
        });
        return result;
    }

    // Only a sync makes the file system write sizes and blocks.
    Result<void> write_back(Fiber& fiber) override { return sync_data(fiber); }

    Result<void> truncate(Fiber& fiber, std::uint64_t size_bytes) override {
        Result<void> result;
        threads_.run(fiber, [&] {
            int outcome = 0;
            do {
                outcome = ::ftruncate(fd_, static_cast<off_t>(size_bytes));
            } while (outcome != 0 && errno == EINTR);
            if (outcome != 0) result = disk_error(errno, "cannot change the size of", path_);
        });
        return result;
    }

    Result<std::uint64_t> size(Fiber& fiber) override {
        Result<std::uint64_t> result = std::uint64_t{0};
        threads_.run(fiber, [&] {
            struct stat status {};
            if (::fstat(fd_, &status) != 0) {
                result = disk_error(errno, "cannot stat", path_);
            } else {
                result = static_cast<std::uint64_t>(status.st_size);
            }
        });
        return result;
    }

  private:
    // On a thread.
    Result<void> sync_now() const {
        if (::fdatasync(fd_) != 0) return disk_error(errno, "cannot sync", path_);
        return {};
    }

    // What the page cache holds, from the start of into. Errors are left to the thread, which meets
    // them again.
    std::size_t read_cached(std::uint64_t file_offset, MutableByteSpan into, bool& at_end) {
        std::size_t done = 0;
        while (done < into.size()) {
            iovec entry{.iov_base = into.data() + done, .iov_len = into.size() - done};
            const ssize_t count =
                ::preadv2(fd_, &entry, 1, static_cast<off_t>(file_offset + done), RWF_NOWAIT);
            at_end = count == 0;
            if (count <= 0) break;
            done += static_cast<std::size_t>(count);
        }
        return done;
    }

    RealScheduler& loop_;
    ThreadPool& threads_;
    int fd_;
    std::string path_;
};

class RealDiskLock final : public DiskLock {
  public:
    RealDiskLock(Descriptor descriptor, std::string path)
        : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

    // A few bytes into the page cache, once in a life: not worth a thread.
    Result<void> sign(Fiber&) override {
        const std::string pid = fmt::format("{}\n", ::getpid());
        const ByteSpan part = as_byte_span(pid);
        if (::ftruncate(descriptor_.get(), 0) != 0) return disk_error(errno, "cannot empty", path_);
        return write_fully(descriptor_.get(), path_, 0, std::span(&part, 1));
    }

  private:
    Descriptor descriptor_;
    std::string path_;
};

// "process 4711", or what is known instead.
std::string holder_of(int fd) {
    char text[16] = {};
    const ssize_t count = ::pread(fd, text, sizeof text, 0);
    unsigned long pid = 0;
    if (count <= 0 || std::from_chars(text, text + count, pid).ec != std::errc())
        return "another process";
    // An earlier holder's number stands there until the present one has signed.
    if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return "another process";
    return fmt::format("process {}", pid);
}

Result<std::unique_ptr<DiskLock>> lock_at(const std::string& path) {
    Descriptor descriptor = MORTAR_TRY(open_path(path, O_RDWR | O_CREAT));
    if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
        const int failure = errno;
        if (failure != EWOULDBLOCK) return disk_error(failure, "cannot lock", path);
        return make_error(ErrorCode::LOCKED,
                          fmt::format("{} is locked by {}: stop it, or use another folder", path,
                                      holder_of(descriptor.get())));
    }
    return std::unique_ptr<DiskLock>(std::make_unique<RealDiskLock>(std::move(descriptor), path));
}

Result<std::vector<DirEntry>> list_at(const std::string& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
    if (folder == nullptr) return disk_error(errno, "cannot list", path);
    std::vector<DirEntry> entries;
    while (true) {
        errno = 0;
        const dirent* found = ::readdir(folder.get());
        if (found == nullptr) break;
        const std::string name = found->d_name;
        if (name == "." || name == "..") continue;
        struct stat status {};
        if (::fstatat(::dirfd(folder.get()), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) continue;  // removed meanwhile
            return disk_error(errno, "cannot stat", path + "/" + name);
        }
        mode_t mode = status.st_mode;
        struct stat behind {};
        if (S_ISLNK(mode) && ::fstatat(::dirfd(folder.get()), found->d_name, &behind, 0) == 0)
            mode = behind.st_mode;
        entries.push_back({name, S_ISDIR(status.st_mode),
                           static_cast<std::uint64_t>(status.st_size), mode & PERMISSION_BITS});
    }
    if (errno != 0) return disk_error(errno, "cannot list", path);
    std::sort(entries.begin(), entries.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return entries;
}

std::string parent_of(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> make_folders_at(const std::string& path) {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
        const std::string part = path.substr(0, end);
        if (::mkdir(part.c_str(), FOLDER_MODE) == 0) {
            MORTAR_TRY(sync_folder_at(parent_of(part)));
        } else if (errno != EEXIST) {
            return disk_error(errno, "cannot make the folder", part);
        }
        if (end == std::string::npos) break;
    }
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return disk_error(errno, "cannot stat", path);
    if (!S_ISDIR(status.st_mode)) return disk_error(EEXIST, "not a folder:", path);
    return {};
}

int flags_of(OpenMode mode) {
    switch (mode) {
        case OpenMode::READ:
            return O_RDONLY;
        case OpenMode::READ_WRITE:
            return O_RDWR;
        case OpenMode::CREATE:
            return O_RDWR | O_CREAT;
    }
    MORTAR_UNREACHABLE();
}

}  // namespace

RealDisk::RealDisk(RealScheduler& loop, std::string root)
    : loop_(loop), root_(std::move(root)), threads_(loop, THREADS) {
    while (root_.size() > 1 && root_.back() == '/')
        root_.pop_back();
    if (root_.empty()) root_ = ".";
}

std::string RealDisk::full(const std::string& path) const {
    if (path.empty()) return root_;
    MORTAR_ASSERT(path.front() != '/' && path.find("..") == std::string::npos);
    return root_ + "/" + path;
}

Result<std::unique_ptr<File>> RealDisk::open(Fiber& fiber, const std::string& path, OpenMode mode) {
    const std::string where = full(path);
    Result<Descriptor> opened = Descriptor(-1);
    threads_.run(fiber, [&] { opened = open_path(where, flags_of(mode)); });
    return std::unique_ptr<File>(
        std::make_unique<RealFile>(loop_, threads_, MORTAR_TRY(std::move(opened)), where));
}

Result<void> RealDisk::rename(Fiber& fiber, const std::string& from, const std::string& to) {
    const std::string old_path = full(from);
    const std::string new_path = full(to);
    Result<void> result;
    threads_.run(fiber, [&] {
        if (::rename(old_path.c_str(), new_path.c_str()) != 0) {
            result = disk_error(errno, fmt::format("cannot rename {} to", old_path), new_path);
        }
    });
    return result;
}

Result<void> RealDisk::remove(Fiber& fiber, const std::string& path) {
    const std::string where = full(path);
    Result<void> result;
    threads_.run(fiber, [&] {
        if (::remove(where.c_str()) != 0) result = disk_error(errno, "cannot remove", where);
    });
    return result;
}

Result<std::vector<DirEntry>> RealDisk::list(Fiber& fiber, const std::string& folder) {
    const std::string where = full(folder);
    Result<std::vector<DirEntry>> result = std::vector<DirEntry>();
    threads_.run(fiber, [&] { result = list_at(where); });
    return result;
}

Result<void> RealDisk::make_folders(Fiber& fiber, const std::string& folder) {
    const std::string where = full(folder);
    Result<void> result;
    threads_.run(fiber, [&] { result = make_folders_at(where); });
    return result;
}

Result<void> RealDisk::sync_folder(Fiber& fiber, const std::string& folder) {
    const std::string where = full(folder);
    Result<void> result;
    threads_.run(fiber, [&] { result = sync_folder_at(where); });
    return result;
}

Result<DiskSpace> RealDisk::space(Fiber& fiber) {
    Result<DiskSpace> result = DiskSpace{};
    threads_.run(fiber, [&] {
        struct statvfs status {};
        if (::statvfs(root_.c_str(), &status) != 0) {
            result = disk_error(errno, "cannot read the free space of", root_);
        } else {
            result =
                DiskSpace{status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize};
        }
    });
    return result;
}

Result<std::unique_ptr<DiskLock>> RealDisk::lock(Fiber& fiber, const std::string& path) {
    const std::string where = full(path);
    Result<std::unique_ptr<DiskLock>> result = std::unique_ptr<DiskLock>();
    threads_.run(fiber, [&] { result = lock_at(where); });
    return result;
}

}  // namespace mortar
