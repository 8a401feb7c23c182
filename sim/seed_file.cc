#include "sim/seed_file.h"

#include <charconv>
#include <sstream>
#include <utility>
#include <vector>

#include "sim/params.h"

namespace mortar::sim {

namespace {

// One line that is neither empty nor a comment.
Result<void> read_line(const std::string& line, SeedFile& file, bool& has_seed, bool& has_nemesis) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;)
        words.push_back(word);
    const std::string key = words.empty() ? std::string() : words.front();
    RunOptions& options = file.options;
    if (key == "seed" && words.size() == 2) {
        const auto seed = parse_number(words[1]);
        if (!seed)
            return make_error(ErrorCode::INVALID_ARGUMENT, "a seed is a number from 0 to 2^64 - 1");
        if (std::exchange(has_seed, true))
            return make_error(ErrorCode::INVALID_ARGUMENT, "a second seed");
        options.seed = *seed;
        return {};
    }
    if (key == "nemesis" && words.size() == 2) {
        if (std::exchange(has_nemesis, true))
            return make_error(ErrorCode::INVALID_ARGUMENT, "a second nemesis");
        if (!known_nemeses(words[1]))
            return make_error(ErrorCode::INVALID_ARGUMENT, "unknown nemesis; see sim list");
        options.nemesis = words[1];
        return {};
    }
    if (key == "pin" && words.size() == 3) {
        const auto value = parse_number(words[2]);
        if (!value) return make_error(ErrorCode::INVALID_ARGUMENT, "the value is no number");
        if (options.pins.contains(words[1]))
            return make_error(ErrorCode::INVALID_ARGUMENT, "a second pin of it");
        MORTAR_TRY(Params::check_pin(words[1], *value));
        options.pins[words[1]] = *value;
        return {};
    }
    return make_error(ErrorCode::INVALID_ARGUMENT, "not a line of a seed file");
}

}  // namespace

std::optional<std::uint64_t> parse_number(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

Result<SeedFile> parse_seed_file(const std::string& name, const std::string& text) {
    SeedFile file;
    std::istringstream in(text);
    std::string line;
    bool has_seed = false;
    bool has_nemesis = false;
    for (int number = 1; std::getline(in, line); ++number) {
        if (line.empty()) continue;
        if (line[0] == '#') {
            if (!file.story.empty()) file.story += '\n';
            file.story += line.substr(line.find_first_not_of("# ") == std::string::npos
                                          ? line.size()
                                          : line.find_first_not_of("# "));
            continue;
        }
        const Result<void> read = read_line(line, file, has_seed, has_nemesis);
        if (!read.ok()) {
            return make_error(ErrorCode::INVALID_ARGUMENT, name + ":" + std::to_string(number) +
                                                               ": cannot read '" + line +
                                                               "': " + read.error().detail);
        }
    }
    if (!has_seed) return make_error(ErrorCode::INVALID_ARGUMENT, name + ": no line 'seed N'");
    return file;
}

std::string format_seed_file(const SeedFile& file) {
    std::ostringstream out;
    std::istringstream story(file.story);
    for (std::string line; std::getline(story, line);)
        out << "# " << line << '\n';
    out << "seed " << file.options.seed << '\n' << "nemesis " << file.options.nemesis << '\n';
    for (const auto& [pin, value] : file.options.pins)
        out << "pin " << pin << ' ' << value << '\n';
    return out.str();
}

}  // namespace mortar::sim
