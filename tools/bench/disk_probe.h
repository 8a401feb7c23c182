// disk_probe: what the disk itself does: one write and one fdatasync after the other, by plain system calls.
// Shape:    the file is written full of zeros and synced first, as the broker's own log is ahead of its appends; writes go
//           round in it.
// Owns:     its file.
// Errors:   IO_ERROR.
// Source:   issue 2 (Speed).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/env/clock.h"
#include "tools/bench/histogram.h"

namespace mortar::bench {

inline constexpr std::size_t PREALLOCATED_BYTES = 8u << 20;

// Makes the file, full of zeros, on disk.
Result<void> preallocate(const std::string& path);

struct Round {
    std::uint64_t count = 0;
    Duration elapsed;
    std::uint64_t per_second() const {
        return elapsed.ns <= 0 ? 0
                               : count * 1'000'000'000u / static_cast<std::uint64_t>(elapsed.ns);
    }
};

class DiskProbe {
  public:
    static Result<std::unique_ptr<DiskProbe>> create(const std::string& path,
                                                     std::size_t write_bytes);
    ~DiskProbe();
    DiskProbe(const DiskProbe&) = delete;
    DiskProbe& operator=(const DiskProbe&) = delete;

    Result<Round> run(Duration how_long, Histogram& latency);

  private:
    DiskProbe(int fd, std::size_t write_bytes) : fd_(fd), bytes_(write_bytes, 'p') {}

    int fd_;
    std::string bytes_;
    std::size_t file_offset_ = 0;
};

// So many writers at once, each with a thread and a file of its own: what a disk does for as many nodes.
class DiskProbes {
  public:
    // Files are path-0, path-1 ..
    static Result<std::unique_ptr<DiskProbes>> create(const std::string& path, std::size_t count,
                                                      std::size_t write_bytes);
    // The writes of all, and the latency of each.
    Result<Round> run(Duration how_long, Histogram& latency);
    std::size_t count() const { return probes_.size(); }

  private:
    std::vector<std::unique_ptr<DiskProbe>> probes_;
};

std::int64_t now_ns();

}  // namespace mortar::bench
