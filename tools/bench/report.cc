#include "tools/bench/report.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/json.h"

namespace mortar::bench {
namespace {

constexpr std::size_t JSON_INDENT = 2;

}  // namespace

bool Report::holds() const {
    return std::all_of(bars.begin(), bars.end(), [](const Bar& bar) { return bar.holds; });
}

std::string Report::json() const {
    std::string text;
    JsonWriter writer(text, JSON_INDENT);
    writer.begin_object();
    for (const auto& [key, fact] : facts)
        writer.key(key).string(fact);
    writer.key("measured").begin_array();
    for (const Measured& one : measured) {
        writer.begin_object().key("name").string(one.name);
        writer.key("count").number(one.latency.count());
        writer.key("per_second").number(one.total.per_second());
        writer.key("p50_ns").number(one.latency.percentile_ns(500));
        writer.key("p90_ns").number(one.latency.percentile_ns(900));
        writer.key("p99_ns").number(one.latency.percentile_ns(990));
        writer.key("p999_ns").number(one.latency.percentile_ns(999));
        writer.key("max_ns").number(one.latency.percentile_ns(1000)).end_object();
    }
    writer.end_array();
    for (const Figure& figure : figures)
        writer.key(figure.name).number(figure.value);
    if (!errors.empty()) {
        writer.key("errors").begin_object();
        for (const auto& [code, count] : errors)
            writer.key(error_text(code)).number(count);
        writer.end_object();
    }
    writer.key("bars").begin_array();
    for (const Bar& bar : bars) {
        writer.begin_object().key("name").string(bar.name).key("holds").boolean(bar.holds);
        writer.key("text").string(bar.text).end_object();
    }
    writer.end_array().end_object();
    return text + "\n";
}

std::string Report::table() const {
    std::string text;
    for (const auto& [key, fact] : facts)
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key, fact);
    if (!text.empty()) text += "\n";
    if (!measured.empty()) {
        text += fmt::format("{:<24}{:>9}{:>10}{:>13}{:>13}{:>13}{:>13}{:>13}\n", "", "count",
                            "per s", "p50", "p90", "p99", "p99.9", "max");
    }
    for (const Measured& one : measured) {
        text +=
            fmt::format("{:<24}{:>9}{:>10}", one.name, one.latency.count(), one.total.per_second());
        for (const std::uint64_t per_mille : {500u, 900u, 990u, 999u, 1000u}) {
            const std::uint64_t ns = one.latency.percentile_ns(per_mille);
            text += fmt::format("{:>13}", microseconds_text(static_cast<std::int64_t>(ns)));
        }
        text += "\n";
    }
    for (const Figure& figure : figures)
        if (!figure.text.empty()) text += figure.text + "\n";
    for (const auto& [code, count] : errors)
        text += fmt::format("errors {}: {}\n", error_text(code), count);
    for (const Bar& bar : bars)
        text += fmt::format("{:<8}{}: {}\n", bar.holds ? "ok" : "MISSED", bar.name, bar.text);
    return text;
}

std::string microseconds_text(std::int64_t ns) {
    const bool negative = ns < 0;
    const std::int64_t tenths = (negative ? -ns : ns) / 100;
    return fmt::format("{}{}.{} us", negative ? "-" : "", tenths / 10, tenths % 10);
}

std::string ratio_text(std::uint64_t percent) {
    return fmt::format("{}.{:02}", percent / 100, percent % 100);
}

std::string error_text(std::uint16_t code) {
    const ErrorInfo* info = find_error(code);
    return info == nullptr ? fmt::format("{:#06x}", code) : std::string(info->name);
}

std::uint64_t percent_of(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : part * 100 / whole;
}

std::string load_average() {
    double last_minute = 0;
    if (::getloadavg(&last_minute, 1) != 1) return "unknown";
    return fmt::format("{:.2f}", last_minute);
}

Progress::Progress() : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
    show("");
}

void Progress::show(const std::string& text) {
    if (!on_terminal_) return;
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
}

}  // namespace mortar::bench
