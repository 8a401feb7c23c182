// line_reader: lines of files for a fiber, read by a thread of its own: a slow or silent input never stops the loop.
// Owns:     its thread, which may outlive it while it is stuck in a read.
// Errors:   next: IO_ERROR naming the file; INVALID_ARGUMENT for a line over LINE_BYTES_MAX.
// Suspends: next.
// Bound:    about LINES_AHEAD lines wait.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fiber/event.h"
#include "io-real/loop.h"

namespace mortar::cli {

class LineReader {
  public:
    static constexpr std::size_t LINES_AHEAD = 16 * 1024;
    static constexpr std::size_t LINE_BYTES_MAX = 32 * 1024 * 1024;

    // "-" is the standard input.
    LineReader(RealScheduler& loop, std::vector<std::string> paths);
    ~LineReader();
    // Without its line end; nothing at the end of the last file.
    Result<std::optional<std::string>> next(Fiber& fiber);
    // next returns the end from now on.
    void stop();

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
    std::vector<std::string> taken_;  // from the thread, oldest last
};

}  // namespace mortar::cli
