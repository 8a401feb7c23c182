#include "tools/cli/format.h"

#include <fmt/format.h>

namespace mortar::cli {

namespace {
constexpr std::string_view FIELDS = "tpsakv";
}

void Format::add_text(char c) {
    if (pieces_.empty() || pieces_.back().field != 0) pieces_.emplace_back();
    pieces_.back().text.push_back(c);
}

Result<Format> Format::parse(std::string_view text) {
    constexpr std::string_view ESCAPES = "nt0\\";
    constexpr std::string_view ESCAPED("\n\t\0\\", ESCAPES.size());
    Format format;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c != '%' && c != '\\') {
            format.add_text(c);
            continue;
        }
        if (++i == text.size()) {
            return make_error(
                ErrorCode::INVALID_ARGUMENT,
                fmt::format("--format: nothing follows the last {}; known: {}", c, FORMAT_HELP));
        }
        const char next = text[i];
        const std::size_t escape = c == '\\' ? ESCAPES.find(next) : std::string_view::npos;
        if (escape != std::string_view::npos) {
            format.add_text(ESCAPED[escape]);
        } else if (c == '%' && next == '%') {
            format.add_text('%');
        } else if (c == '%' && FIELDS.find(next) != std::string_view::npos) {
            format.pieces_.push_back({next, {}});
        } else {
            return make_error(
                ErrorCode::INVALID_ARGUMENT,
                fmt::format("--format: {}{} is unknown; known: {}", c, next, FORMAT_HELP));
        }
    }
    return format;
}

void Format::append(std::string& out, const std::string& topic,
                    const client::Message& message) const {
    for (const Piece& piece : pieces_) {
        switch (piece.field) {
            case 0:
                out.append(piece.text);
                break;
            case 't':
                out.append(topic);
                break;
            case 'p':
                out.append(std::to_string(message.partition.value));
                break;
            case 's':
                out.append(std::to_string(message.sequence.value));
                break;
            case 'a':
                out.append(std::to_string(message.attempt));
                break;
            case 'k':
                out.append(message.key);
                break;
            case 'v':
                out.append(message.value);
                break;
            default:
                MORTAR_ASSERT(false);
        }
    }
}

}  // namespace mortar::cli
