// say: text for stdout. A write that fails shows in ferror(stdout), which main turns into an exit code; fmt::print would throw.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace mortar::sim {

template <class... Arguments>
void say(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    const std::string line = fmt::format(text, std::forward<Arguments>(arguments)...);
    std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace mortar::sim
