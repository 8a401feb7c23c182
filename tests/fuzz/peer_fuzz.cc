// First byte: the op. Rest: the payload. What decodes must encode to exactly its input again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/unit/replica/any_peer_message.h"

using namespace mortar;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const ByteSpan payload = std::as_bytes(std::span(data + 1, size - 1));
    const Result<ByteVector> frame = testing::AllPeerMessages::reencode(data[0], payload);
    if (!frame.ok()) {
        MORTAR_ASSERT(frame.is(ErrorCode::MALFORMED_PAYLOAD) || frame.is(ErrorCode::UNKNOWN_OP));
        MORTAR_ASSERT(frame.is(ErrorCode::UNKNOWN_OP) != peer::is_known_op(data[0]));
        return 0;
    }
    const Result<peer::FrameView> opened = peer::open_frame(*frame);
    MORTAR_ASSERT(opened.ok());
    MORTAR_ASSERT(static_cast<std::uint8_t>(opened->op) == data[0]);
    MORTAR_ASSERT(
        std::equal(opened->payload.begin(), opened->payload.end(), payload.begin(), payload.end()));
    // The same bytes as a frame: its length or checksum is wrong, or it opens.
    (void)peer::open_frame(std::as_bytes(std::span(data, size)));
    return 0;
}
