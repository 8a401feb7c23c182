// admin_stats: what the admin server at --admin answers to one /stats request.
// Errors:   told on stderr, with what to do next; the exit code that fits is what is returned then.
// Suspends: admin_stats.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "tools/cli/cli.h"

namespace mortar::cli {

// The object, which has a member of that name, or an exit code.
std::variant<nlohmann::ordered_json, int> admin_stats(Fiber& fiber, Session& session,
                                                      const std::string& query, const char* member);

}  // namespace mortar::cli
