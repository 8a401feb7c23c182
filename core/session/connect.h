// connect: judges a CONNECT: version, then token. The connection answers, and keeps the deadline.
// Errors: UNSUPPORTED_VERSION, MALFORMED_PAYLOAD; AUTH_FAILED, which is answered only after
//         AUTH_FAILURE_DELAY.
// Source: contract S3, 4 (client.sha256).
#pragma once

#include <vector>

#include "core/base/hash.h"
#include "core/base/result.h"

namespace mortar {

// Digests of the tokens that may connect; none: the empty token alone may.
struct ClientAuth {
    std::vector<Sha256Digest> token_digests;
};

// Compares with all digests in constant time, so that the time tells nothing about them.
bool is_token_accepted(const ClientAuth& auth, ByteSpan token);
Result<void> judge_connect(const ClientAuth& auth, ByteSpan payload);

}  // namespace mortar
