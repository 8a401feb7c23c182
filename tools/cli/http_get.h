// http_get: one GET from the admin server.
// Errors:   those of Net; MALFORMED_PAYLOAD when the answer is not HTTP.
// Suspends: http_get.
#pragma once

#include <string>

#include "core/client/link.h"

namespace mortar::cli {

struct HttpAnswer {
    int status = 0;
    std::string body;
};

Result<HttpAnswer> http_get(Fiber& fiber, const client::ClientEnv& env, const std::string& address,
                            const std::string& target, MonoTime deadline);
// The head and body of a whole answer.
Result<HttpAnswer> parse_http_answer(std::string_view text);

}  // namespace mortar::cli
