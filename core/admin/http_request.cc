#include "core/admin/http_request.h"

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <limits>

namespace mortar {
namespace {
namespace http = boost::beast::http;

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string decoded;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded.push_back(text[i] == '+' ? ' ' : text[i]);
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = hex_value(text[i + 1]);
        const int low = hex_value(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        decoded.push_back(static_cast<char>(high * 16 + low));
        i += 2;
    }
    return decoded;
}
}  // namespace

HttpHead parse_http_head(ByteSpan bytes, HttpRequest& request, std::size_t& head_bytes) {
    // The parser is asked once the head is whole: a peer that sends byte by byte costs one look a byte.
    constexpr std::string_view END = "\r\n\r\n";
    const std::size_t end = as_string_view(bytes).find(END);
    if (end == std::string_view::npos) {
        return bytes.size() > HTTP_HEAD_BYTES_MAX ? HttpHead::TOO_LARGE : HttpHead::INCOMPLETE;
    }
    head_bytes = end + END.size();
    if (head_bytes > HTTP_HEAD_BYTES_MAX) return HttpHead::TOO_LARGE;
    // A body type that keeps nothing and accepts that there is one.
    http::request_parser<http::buffer_body> parser;
    parser.header_limit(HTTP_HEAD_BYTES_MAX);
    // The body is never read; to this version of the parser "no limit" means that every length is over it.
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    boost::system::error_code error;
    const std::size_t used = parser.put(boost::asio::const_buffer(bytes.data(), head_bytes), error);
    if (error || used != head_bytes || !parser.is_header_done()) return HttpHead::MALFORMED;
    const auto& message = parser.get();
    request.method = std::string(message.method_string());
    request.target = std::string(message.target());
    request.keep_alive = parser.keep_alive();
    request.has_body = !parser.is_done();
    return HttpHead::COMPLETE;
}

std::optional<HttpTarget> parse_http_target(std::string_view target) {
    if (!target.starts_with('/')) return std::nullopt;
    const std::size_t mark = std::min(target.find('?'), target.size());
    HttpTarget parsed;
    const auto path = percent_decoded(target.substr(0, mark));
    if (!path.has_value()) return std::nullopt;
    parsed.path = *path;
    std::string_view query = target.substr(std::min(mark + 1, target.size()));
    while (!query.empty()) {
        const std::size_t end = std::min(query.find('&'), query.size());
        const std::string_view pair = query.substr(0, end);
        query.remove_prefix(std::min(end + 1, query.size()));
        if (pair.empty()) continue;
        const std::size_t equals = std::min(pair.find('='), pair.size());
        const auto name = percent_decoded(pair.substr(0, equals));
        const auto value = percent_decoded(pair.substr(std::min(equals + 1, pair.size())));
        if (!name.has_value() || !value.has_value()) return std::nullopt;
        parsed.query.emplace_back(*name, *value);
    }
    return parsed;
}

}  // namespace mortar
