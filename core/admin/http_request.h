// http_request: the head of an HTTP/1.1 request from plain bytes, by Boost.Beast's parser; the only file that knows it.
// Shape:    parse_http_head takes all bytes received so far and says what they are; parse_http_target splits the target.
// Owns:     HttpRequest owns its strings.
// Source:   contract 5 (GET and HEAD only; head at most 16 KiB).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"

namespace mortar {

inline constexpr std::size_t HTTP_HEAD_BYTES_MAX = 16 * 1024;

struct HttpRequest {
    std::string method;
    std::string target;
    bool keep_alive = false;
    bool has_body = false;  // it is not read: answer and close
};

enum class HttpHead : std::uint8_t { COMPLETE, INCOMPLETE, MALFORMED, TOO_LARGE };

// COMPLETE fills request and head_bytes, the size of the head in bytes.
HttpHead parse_http_head(ByteSpan bytes, HttpRequest& request, std::size_t& head_bytes);

struct HttpTarget {
    std::string path;
    std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
};
// Nothing for a target that is not an absolute path or is badly encoded.
std::optional<HttpTarget> parse_http_target(std::string_view target);

}  // namespace mortar
