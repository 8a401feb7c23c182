// utf8: one code point from the front of a text, strictly: no overlong form, no surrogate, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string_view>

namespace mortar {

// Takes it off text; false, and text untouched, when the bytes are not UTF-8 or text is empty.
bool take_code_point(std::string_view& text, std::uint32_t& code_point);

}  // namespace mortar
