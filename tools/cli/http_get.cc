#include "tools/cli/http_get.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace mortar::cli {

namespace {
constexpr std::size_t ANSWER_BYTES_MAX = 64 * 1024 * 1024;
}

Result<HttpAnswer> parse_http_answer(std::string_view text) {
    constexpr std::string_view VERSION = "HTTP/1.1 ";
    constexpr std::size_t STATUS_DIGITS = 3;
    const std::size_t head_end = text.find("\r\n\r\n");
    HttpAnswer answer;
    if (!text.starts_with(VERSION) || head_end == std::string_view::npos) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          "what answers there is not the admin server of a broker");
    }
    const std::string_view status = text.substr(VERSION.size(), STATUS_DIGITS);
    std::from_chars(status.data(), status.data() + status.size(), answer.status);
    answer.body = text.substr(head_end + 4);
    return answer;
}

Result<HttpAnswer> http_get(Fiber& fiber, const client::ClientEnv& env, const std::string& address,
                            const std::string& target, MonoTime deadline) {
    const std::unique_ptr<Conn> conn = MORTAR_TRY(env.net.connect(fiber, address, deadline));
    const std::string request =
        fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", target, address);
    const ByteSpan parts[] = {as_byte_span(request)};
    MORTAR_TRY(conn->write(fiber, parts, deadline));
    std::string text;
    std::array<std::byte, 4096> buffer;
    while (text.size() < ANSWER_BYTES_MAX) {
        const std::size_t count = MORTAR_TRY(conn->read(fiber, buffer, deadline));
        if (count == 0) break;
        text.append(as_string_view(ByteSpan(buffer).first(count)));
    }
    return parse_http_answer(text);
}

}  // namespace mortar::cli
