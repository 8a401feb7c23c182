#include "io-real/real_log.h"

#include <fmt/format.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "io-real/threads.h"

namespace mortar {
namespace {

const char* level_name(LogLevel level) {
    switch (level) {
        case LogLevel::ERROR:
            return "error";
        case LogLevel::WARN:
            return "warn";
        case LogLevel::INFO:
            return "info";
        case LogLevel::DEBUG:
            return "debug";
    }
    return "?";
}

bool needs_quotes(std::string_view value) {
    if (value.empty()) return true;
    for (const char c : value) {
        if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f)
            return true;
    }
    return false;
}

}  // namespace

struct RealLog::Writer {
    std::shared_ptr<spdlog::details::thread_pool> pool;
    std::shared_ptr<spdlog::async_logger> logger;
};

RealLog::RealLog(const Clock& clock, LogLevel level)
    : clock_(clock), level_(level), writer_(std::make_unique<Writer>()) {
    const SignalsBlocked blocked;
    writer_->pool = std::make_shared<spdlog::details::thread_pool>(LINES_QUEUED_MAX, 1);
    writer_->logger = std::make_shared<spdlog::async_logger>(
        "mortarmq", std::make_shared<spdlog::sinks::stderr_sink_mt>(), writer_->pool,
        spdlog::async_overflow_policy::overrun_oldest);
    writer_->logger->set_level(spdlog::level::trace);
    writer_->logger->flush_on(spdlog::level::trace);
    writer_->logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc));
}

RealLog::~RealLog() {
    for (const auto& [event, rate] : rates_) {
        if (rate.suppressed > 0)
            writer_->logger->info(fmt::format("info {} suppressed={}", event, rate.suppressed));
    }
}

void RealLog::write(LogLevel level, std::string_view event,
                    std::initializer_list<LogField> fields) {
    std::uint64_t suppressed = 0;
    if (!admit(event, suppressed)) return;
    std::string line = fmt::format("{} {}", level_name(level), event);
    for (const LogField& field : fields)
        append_log_field(line, field.key, field.value);
    if (suppressed > 0) line += fmt::format(" suppressed={}", suppressed);
    writer_->logger->log(spdlog::level::info, line);
}

bool RealLog::admit(std::string_view event, std::uint64_t& suppressed) {
    const MonoTime now = clock_.now();
    auto found = rates_.find(event);
    if (found == rates_.end()) found = rates_.emplace(std::string(event), Rate{now}).first;
    Rate& rate = found->second;
    if (now - rate.window_start >= seconds(1)) {
        rate.window_start = now;
        rate.lines = 0;
    }
    if (rate.lines >= LINES_PER_SECOND) {
        ++rate.suppressed;
        return false;
    }
    ++rate.lines;
    suppressed = rate.suppressed;
    rate.suppressed = 0;
    return true;
}

void append_log_field(std::string& line, std::string_view key, std::string_view value) {
    line.append(" ").append(key).append("=");
    if (!needs_quotes(value)) {
        line.append(value);
        return;
    }
    line += '"';
    for (const char c : value) {
        if (c == '"' || c == '\\') {
            line.append({'\\', c});
        } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
            line += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        } else {
            line += c;
        }
    }
    line += '"';
}

}  // namespace mortar
