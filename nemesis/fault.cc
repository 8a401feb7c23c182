#include "nemesis/fault.h"

#include <charconv>
#include <utility>

namespace mortar::sim {
namespace {

// Takes the next word off the front of line.
std::string_view next_word(std::string_view& line) {
    const std::size_t start = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t end = std::min(line.find(' ', start), line.size());
    const std::string_view word = line.substr(start, end - start);
    line.remove_prefix(end);
    return word;
}

template <class Number>
bool parse_number(std::string_view word, Number& into) {
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), into);
    return error == std::errc() && stop == word.data() + word.size() && !word.empty();
}

}  // namespace

std::string format_fault(const Fault& fault) {
    std::string text = std::to_string((fault.at - MonoTime{}).to_us());
    text.append(" ").append(fault.family).append(" ").append(fault.node);
    text.append(" ").append(std::to_string(fault.duration.to_us()));
    text.append(" ").append(std::to_string(fault.draw));
    return text;
}

Result<Fault> parse_fault(std::string_view line) {
    std::string_view rest = line;
    std::int64_t at_us = 0;
    std::int64_t duration_us = 0;
    Fault fault;
    const bool at_ok = parse_number(next_word(rest), at_us);
    fault.family = next_word(rest);
    fault.node = next_word(rest);
    const bool duration_ok = parse_number(next_word(rest), duration_us);
    const bool draw_ok = parse_number(next_word(rest), fault.draw);
    const bool complete = at_ok && duration_ok && draw_ok && next_word(rest).empty();
    if (!complete || at_us < 0 || duration_us < 0) {
        return make_error(ErrorCode::INVALID_ARGUMENT, "not a fault: " + std::string(line));
    }
    fault.at = MonoTime{} + microseconds(at_us);
    fault.duration = microseconds(duration_us);
    return fault;
}

std::string format_schedule(const std::vector<Fault>& schedule) {
    std::string text;
    for (const Fault& fault : schedule)
        text.append(format_fault(fault)).append("\n");
    return text;
}

Result<std::vector<Fault>> parse_schedule(std::string_view text) {
    std::vector<Fault> schedule;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line.front() == '#') continue;
        schedule.push_back(MORTAR_TRY(parse_fault(line)));
    }
    return schedule;
}

}  // namespace mortar::sim
