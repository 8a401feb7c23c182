#include "tools/bench/disk_probe.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>

#include "io-real/os_error.h"

namespace mortar::bench {
namespace {

Error io_error(const std::string& what) {
    return make_error(ErrorCode::IO_ERROR, what + ": " + os_reason(errno));
}

}  // namespace

std::int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

Result<void> preallocate(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return io_error("cannot make " + path);
    const std::string zeros(PREALLOCATED_BYTES, '\0');
    const bool written =
        ::pwrite(fd, zeros.data(), zeros.size(), 0) == static_cast<ssize_t>(zeros.size()) &&
        ::fsync(fd) == 0;
    const Result<void> result = written ? Result<void>() : io_error("cannot fill " + path);
    ::close(fd);
    return result;
}

Result<std::unique_ptr<DiskProbe>> DiskProbe::create(const std::string& path,
                                                     std::size_t write_bytes) {
    MORTAR_ASSERT(write_bytes <= PREALLOCATED_BYTES);
    MORTAR_TRY(preallocate(path));
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return io_error("cannot open " + path);
    return std::unique_ptr<DiskProbe>(new DiskProbe(fd, write_bytes));
}

DiskProbe::~DiskProbe() {
    ::close(fd_);
}

Result<Round> DiskProbe::run(Duration how_long, Histogram& latency) {
    const std::int64_t began = now_ns();
    Round round;
    std::int64_t before = began;
    while (before - began < how_long.ns) {
        if (file_offset_ + bytes_.size() > PREALLOCATED_BYTES) file_offset_ = 0;
        const ssize_t written =
            ::pwrite(fd_, bytes_.data(), bytes_.size(), static_cast<off_t>(file_offset_));
        if (written != static_cast<ssize_t>(bytes_.size())) return io_error("cannot write");
        if (::fdatasync(fd_) != 0) return io_error("cannot sync");
        file_offset_ += bytes_.size();
        const std::int64_t after = now_ns();
        latency.add(static_cast<std::uint64_t>(after - before));
        before = after;
        ++round.count;
    }
    round.elapsed = Duration{before - began};
    return round;
}

}  // namespace mortar::bench
