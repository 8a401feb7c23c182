#include "sim/seed_file.h"

#include <sstream>

namespace mortar::sim {

Result<SeedFile> parse_seed_file(const std::string& name, const std::string& text) {
    SeedFile file;
    std::istringstream in(text);
    std::string line;
    bool has_seed = false;
    for (int number = 1; std::getline(in, line); ++number) {
        if (line.empty()) continue;
        if (line[0] == '#') {
            if (!file.story.empty()) file.story += '\n';
            file.story += line.substr(line.find_first_not_of("# ") == std::string::npos
                                          ? line.size()
                                          : line.find_first_not_of("# "));
            continue;
        }
        std::istringstream words(line);
        std::string key;
        words >> key;
        bool good = false;
        if (key == "seed") {
            good = static_cast<bool>(words >> file.options.seed);
            has_seed = has_seed || good;
        } else if (key == "nemesis") {
            good = static_cast<bool>(words >> file.options.nemesis);
        } else if (key == "pin") {
            std::string pin;
            std::uint64_t value = 0;
            good = static_cast<bool>(words >> pin >> value);
            if (good) file.options.pins[pin] = value;
        }
        std::string rest;
        if (!good || (words >> rest)) {
            return make_error(ErrorCode::INVALID_ARGUMENT,
                              name + ":" + std::to_string(number) + ": cannot read '" + line + "'");
        }
    }
    if (!has_seed) return make_error(ErrorCode::INVALID_ARGUMENT, name + ": no line 'seed N'");
    return file;
}

std::string format_seed_file(const SeedFile& file) {
    std::ostringstream out;
    std::istringstream story(file.story);
    for (std::string line; std::getline(story, line);) out << "# " << line << '\n';
    out << "seed " << file.options.seed << '\n' << "nemesis " << file.options.nemesis << '\n';
    for (const auto& [pin, value] : file.options.pins) out << "pin " << pin << ' ' << value << '\n';
    return out.str();
}

}  // namespace mortar::sim
