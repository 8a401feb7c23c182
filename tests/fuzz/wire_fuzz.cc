// First byte: the op (or, from 0x80, the request whose OK.result follows). Rest: the payload. What
// decodes must encode to a prefix of its input, and decode again to the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/unit/wire/any_message.h"

using namespace mortar;

namespace {

constexpr std::uint8_t RESULT_BIT = 0x80;

bool has_result(std::uint8_t op) {
    const auto known = static_cast<wire::Op>(op);
    return known == wire::Op::DECLARE || known == wire::Op::PUB || known == wire::Op::SUB ||
           known == wire::Op::CREDIT;
}

Result<ByteVector> decode_and_encode(std::uint8_t selector, ByteSpan input) {
    const auto op = static_cast<std::uint8_t>(selector & ~RESULT_BIT);
    if ((selector & RESULT_BIT) == 0) return testing::reencode(op, input);
    if (!has_result(op)) return make_error(ErrorCode::UNKNOWN_OP);
    return testing::reencode_result(static_cast<wire::Op>(op), input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const ByteSpan input = std::as_bytes(std::span(data + 1, size - 1));
    const Result<ByteVector> frame = decode_and_encode(data[0], input);
    if (!frame.ok()) {
        MORTAR_ASSERT(frame.is(ErrorCode::MALFORMED_PAYLOAD) || frame.is(ErrorCode::UNKNOWN_OP) ||
                      frame.is(ErrorCode::UNSUPPORTED_VERSION));
        return 0;
    }
    const std::size_t head_bytes =
        wire::FRAME_HEAD_BYTES + ((data[0] & RESULT_BIT) != 0 ? wire::OK_FIXED_BYTES : 0);
    const ByteSpan again = ByteSpan(*frame).subspan(head_bytes);
    MORTAR_ASSERT(again.size() <= input.size());
    MORTAR_ASSERT(std::equal(again.begin(), again.end(), input.begin()));
    const Result<ByteVector> frame_again = decode_and_encode(data[0], again);
    MORTAR_ASSERT(frame_again.ok());
    MORTAR_ASSERT(*frame_again == *frame);
    return 0;
}
