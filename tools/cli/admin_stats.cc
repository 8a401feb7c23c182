#include "tools/cli/admin_stats.h"

#include <fmt/format.h>

#include <cstdio>

#include "tools/cli/http_get.h"

namespace mortar::cli {

std::variant<nlohmann::ordered_json, int> admin_stats(Fiber& fiber, Session& session,
                                                      const std::string& query,
                                                      const char* member) {
    constexpr int HTTP_OK = 200;
    if (session.options.admin_is_unknown) {
        fmt::print(
            stderr,
            "mortarmq: --addr does not say where the admin server is: give --admin HOST:PORT too "
            "(listen_admin of the broker, 7190 by default)\n");
        return EXIT_ARGUMENTS;
    }
    const Result<HttpAnswer> answer = http_get(fiber, session.env, session.options.admin,
                                               "/stats?" + query, session.connect_deadline());
    if (!answer.ok()) {
        fmt::print(stderr,
                   "mortarmq: cannot ask the admin server at {}: {}\nmortarmq: --admin "
                   "HOST:PORT names another (listen_admin of the broker)\n",
                   session.options.admin, answer.error().to_string());
        return EXIT_UNREACHABLE;
    }
    nlohmann::ordered_json page = nlohmann::ordered_json::parse(answer->body, nullptr, false);
    if (answer->status != HTTP_OK || page.is_discarded() || !page.contains(member)) {
        fmt::print(stderr, "mortarmq: the admin server at {} answered {}: {}\n",
                   session.options.admin, answer->status, answer->body);
        return EXIT_REFUSED;
    }
    return page;
}

}  // namespace mortar::cli
