// log: one line an event, for people: `time level node event key=value`. Where it goes is the world's business.
// Shape:  log.info("client_connected", {{"peer", address}}). Rate limits are the sink's.
// Source: contract E2 (wall time in log text only), issue of the operator surface for the format.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace mortar {

enum class LogLevel : unsigned char { ERROR, WARN, INFO, DEBUG };

struct LogField {
    std::string_view key;
    std::string value;
};

class Log {
  public:
    virtual ~Log() = default;
    virtual bool enabled(LogLevel level) const = 0;
    virtual void write(LogLevel level, std::string_view event,
                       std::initializer_list<LogField> fields) = 0;

    void error(std::string_view event, std::initializer_list<LogField> fields = {}) {
        if (enabled(LogLevel::ERROR)) write(LogLevel::ERROR, event, fields);
    }
    void warn(std::string_view event, std::initializer_list<LogField> fields = {}) {
        if (enabled(LogLevel::WARN)) write(LogLevel::WARN, event, fields);
    }
    void info(std::string_view event, std::initializer_list<LogField> fields = {}) {
        if (enabled(LogLevel::INFO)) write(LogLevel::INFO, event, fields);
    }
    void debug(std::string_view event, std::initializer_list<LogField> fields = {}) {
        if (enabled(LogLevel::DEBUG)) write(LogLevel::DEBUG, event, fields);
    }
};

}  // namespace mortar
