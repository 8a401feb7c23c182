// format: what `consume --format` takes: text with %letters for the fields of a message and backslash escapes.
// Errors: Format::parse: INVALID_ARGUMENT naming what is wrong and what is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/client/consumer.h"

namespace mortar::cli {

inline constexpr std::string_view FORMAT_HELP =
    "%t topic, %p partition, %s sequence, %a attempt, %k key, %v value, %% a percent sign, "
    "\\n, \\t, \\0, \\\\";

class Format {
  public:
    static Result<Format> parse(std::string_view text);
    void append(std::string& out, const std::string& topic, const client::Message& message) const;

  private:
    struct Piece {
        char field = 0;  // a letter, or 0 for text
        std::string text;
    };
    void add_text(char c);
    std::vector<Piece> pieces_;
};

}  // namespace mortar::cli
