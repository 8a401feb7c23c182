#include "core/session/connect.h"

#include <gtest/gtest.h>

#include "core/wire/codec.h"

namespace mortar {
namespace {

TEST(Connect, accepts_only_the_empty_token_without_digests) {
    EXPECT_TRUE(is_token_accepted({}, {}));
    EXPECT_FALSE(is_token_accepted({}, as_byte_span("x")));
}

TEST(Connect, accepts_each_token_whose_digest_is_known) {
    const ClientAuth auth{{sha256(as_byte_span("a")), sha256(as_byte_span("b"))}};
    EXPECT_TRUE(is_token_accepted(auth, as_byte_span("a")));
    EXPECT_TRUE(is_token_accepted(auth, as_byte_span("b")));
    EXPECT_FALSE(is_token_accepted(auth, as_byte_span("c")));
    EXPECT_FALSE(is_token_accepted(auth, {}));
}

TEST(Contract, S3_tokens_are_at_most_4096_bytes) {
    const std::string token(wire::MAX_TOKEN_LEN, 't');
    const ClientAuth auth{{sha256(as_byte_span(token))}};
    ByteVector frame;
    wire::encode(frame, wire::Connect{wire::WIRE_VERSION, 0, as_byte_span(token)});
    const ByteSpan payload = ByteSpan(frame).subspan(wire::FRAME_HEAD_BYTES);
    EXPECT_TRUE(judge_connect(auth, payload).ok());
    ByteVector longer(payload.begin(), payload.end());
    store_be(longer.data() + 3, static_cast<std::uint16_t>(wire::MAX_TOKEN_LEN + 1));
    longer.push_back(std::byte{0});
    EXPECT_TRUE(judge_connect(auth, longer).is(ErrorCode::MALFORMED_PAYLOAD));
}

}  // namespace
}  // namespace mortar
