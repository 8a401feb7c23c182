#include <charconv>
#include <sstream>

#include "sim/run.h"

namespace mortar::sim {
namespace {

std::string one_word(std::string text) {
    for (char& c : text) {
        if (c == ' ' || c == '\n' || c == '\t' || c == ',' || c == ':') c = '_';
    }
    return text.empty() ? "-" : text;
}

template <class Key>
std::string join(const std::map<Key, std::uint64_t>& counts) {
    std::string text;
    for (const auto& [key, count] : counts) {
        if (!text.empty()) text += ',';
        if constexpr (std::is_same_v<Key, std::string>) {
            text += one_word(key);
        } else {
            text += std::to_string(key);
        }
        text += ':' + std::to_string(count);
    }
    return text.empty() ? "-" : text;
}

template <class Key>
std::map<Key, std::uint64_t> split(const std::string& text) {
    std::map<Key, std::uint64_t> counts;
    if (text == "-") return counts;
    std::istringstream parts(text);
    std::string part;
    while (std::getline(parts, part, ',')) {
        const std::size_t colon = part.rfind(':');
        if (colon == std::string::npos) continue;
        const std::uint64_t count = std::strtoull(part.c_str() + colon + 1, nullptr, 10);
        if constexpr (std::is_same_v<Key, std::string>) {
            counts[part.substr(0, colon)] = count;
        } else {
            counts[std::atoi(part.c_str())] = count;
        }
    }
    return counts;
}

std::string words(std::string text) {
    if (text == "-") return "";
    for (char& c : text) {
        if (c == '_') c = ' ';
    }
    return text;
}

}  // namespace

std::uint64_t RunReport::fault_count() const {
    std::uint64_t total = 0;
    for (const auto& [kind, count] : faults)
        total += count;
    return total;
}

std::string RunReport::line() const {
    std::ostringstream out;
    out << seed << ' ' << exit_code << ' ' << trace_hash << ' ' << steps << ' ' << simulated_ms
        << ' ' << acked_pubs << ' ' << acked_messages << ' ' << join(faults) << ' ' << join(checks)
        << ' ' << join(rare);
    if (violations.empty()) {
        out << " 0 - -";
    } else {
        const Violation& first = violations.front();
        out << ' ' << first.checker << ' ' << one_word(first.promise) << ' '
            << one_word(first.seen);
    }
    return out.str();
}

RunReport RunReport::parse(const std::string& line) {
    RunReport report;
    std::istringstream in(line);
    std::string fault_text, check_text, rare_text, promise, seen;
    int checker = 0;
    in >> report.seed >> report.exit_code >> report.trace_hash >> report.steps >>
        report.simulated_ms >> report.acked_pubs >> report.acked_messages >> fault_text >>
        check_text >> rare_text >> checker >> promise >> seen;
    if (!in) {
        report.exit_code = EXIT_HARNESS;
        report.violations.push_back({0, "a result line is whole", line, {}});
        return report;
    }
    report.faults = split<std::string>(fault_text);
    report.checks = split<int>(check_text);
    report.rare = split<std::string>(rare_text);
    if (promise != "-" || seen != "-") {
        report.violations.push_back({checker, words(promise), words(seen), {}});
    }
    return report;
}

}  // namespace mortar::sim
