// http: one GET from a broker's admin server, by a plain socket.
// Errors:  ADDRESS_INVALID, CONNECTION_REFUSED, CONNECTION_CLOSED; MALFORMED_PAYLOAD when the answer is not HTTP.
// Source:  contract 5.
#pragma once

#include "tools/cli/http_get.h"

namespace mortar::bench {

// address: numeric host:port.
Result<cli::HttpAnswer> http_get(const std::string& address, const std::string& target);

}  // namespace mortar::bench
