#include "core/session/connect.h"

#include "core/wire/codec.h"

namespace mortar {

bool is_token_accepted(const ClientAuth& auth, ByteSpan token) {
    if (auth.token_digests.empty()) return token.empty();
    const Sha256Digest digest = sha256(token);
    bool accepted = false;
    for (const Sha256Digest& known : auth.token_digests) {
        const bool equal = equal_constant_time(known, digest);
        accepted = accepted || equal;
    }
    return accepted;
}

Result<void> judge_connect(const ClientAuth& auth, ByteSpan payload) {
    const wire::Connect connect = MORTAR_TRY(wire::decode_connect(payload));
    if (!is_token_accepted(auth, connect.token))
        return make_error(ErrorCode::AUTH_FAILED, "check the token");
    return {};
}

}  // namespace mortar
