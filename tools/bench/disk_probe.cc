#include "tools/bench/disk_probe.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "io-real/os_error.h"
#include "io-real/threads.h"

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

Result<std::unique_ptr<DiskProbes>> DiskProbes::create(const std::string& path, std::size_t count,
                                                       std::size_t write_bytes) {
    auto probes = std::make_unique<DiskProbes>();
    for (std::size_t i = 0; i < count; ++i) {
        probes->probes_.push_back(
            MORTAR_TRY(DiskProbe::create(path + "-" + std::to_string(i), write_bytes)));
    }
    return probes;
}

Result<Round> DiskProbes::run(Duration how_long, Histogram& latency) {
    if (probes_.size() == 1) return probes_.front()->run(how_long, latency);
    std::vector<Histogram> latencies(probes_.size());
    std::vector<std::optional<Result<Round>>> rounds(probes_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < probes_.size(); ++i) {
        threads.push_back(start_thread("probe", [this, how_long, i, &latencies, &rounds] {
            rounds[i].emplace(probes_[i]->run(how_long, latencies[i]));
        }));
    }
    for (std::thread& thread : threads)
        thread.join();
    Round all;
    for (std::size_t i = 0; i < probes_.size(); ++i) {
        const Round round = MORTAR_TRY(std::move(*rounds[i]));
        all.count += round.count;
        all.elapsed = std::max(all.elapsed, round.elapsed);
        latency.add(latencies[i]);
    }
    return all;
}

}  // namespace mortar::bench
