// real_log: log lines to stderr.
// Shape:  `2026-01-31T12:00:00.123Z warn accept_paused reason="Too many open files"`, one line an
// event; values are
//         quoted when they are empty or hold blanks, quotes, `=` or control characters, so a line
//         splits again. A thread writes; when stderr is stuck the oldest lines fall out rather than
//         the loop waiting.
// Bound:  LINES_PER_SECOND an event name; the next line that passes says suppressed=N.
// Source: issue 2 (log format), style (spdlog hangs on env/log.h here).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/env/clock.h"
#include "core/env/log.h"

namespace mortar {

class RealLog final : public Log {
  public:
    static constexpr std::uint64_t LINES_PER_SECOND = 10;
    static constexpr std::size_t LINES_QUEUED_MAX = 8192;

    RealLog(const Clock& clock, LogLevel level);
    ~RealLog() override;
    RealLog(const RealLog&) = delete;
    RealLog& operator=(const RealLog&) = delete;

    bool enabled(LogLevel level) const override { return level <= level_; }
    void write(LogLevel level, std::string_view event,
               std::initializer_list<LogField> fields) override;

  private:
    struct Writer;
    struct Rate {
        MonoTime window_start;
        std::uint64_t lines = 0;
        std::uint64_t suppressed = 0;
    };
    // False when the line is to be left out; else how many were before it.
    bool admit(std::string_view event, std::uint64_t& suppressed);

    const Clock& clock_;
    LogLevel level_;
    std::map<std::string, Rate, std::less<>> rates_;
    std::unique_ptr<Writer> writer_;
};

// key=value with the value quoted when needed.
void append_log_field(std::string& line, std::string_view key, std::string_view value);

}  // namespace mortar
