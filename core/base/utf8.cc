#include "core/base/utf8.h"

namespace mortar {

bool take_code_point(std::string_view& text, std::uint32_t& code_point) {
    if (text.empty()) return false;
    const auto byte_at = [&text](std::size_t i) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
    };
    const std::uint32_t lead = byte_at(0);
    std::size_t length = 1;
    std::uint32_t lowest = 0;
    if (lead < 0x80) {
        code_point = lead;
    } else if (lead >= 0xC0 && lead < 0xE0) {
        length = 2, lowest = 0x80, code_point = lead & 0x1F;
    } else if (lead >= 0xE0 && lead < 0xF0) {
        length = 3, lowest = 0x800, code_point = lead & 0x0F;
    } else if (lead >= 0xF0 && lead < 0xF8) {
        length = 4, lowest = 0x10000, code_point = lead & 0x07;
    } else {
        return false;
    }
    if (text.size() < length) return false;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte_at(i) & 0xC0) != 0x80) return false;
        code_point = code_point << 6 | (byte_at(i) & 0x3F);
    }
    if (code_point < lowest || code_point > 0x10FFFF) return false;
    if (code_point >= 0xD800 && code_point <= 0xDFFF) return false;
    text.remove_prefix(length);
    return true;
}

}  // namespace mortar
