#include "sim/hostile.h"

#include <algorithm>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"
#include "sim/broker_node.h"

namespace mortar::sim {
namespace {

ByteVector random_bytes(Rng& rng, std::size_t count) {
    ByteVector bytes(count);
    for (std::byte& b : bytes)
        b = static_cast<std::byte>(rng.below(256));
    return bytes;
}

ByteVector connect_frame() {
    ByteVector bytes;
    wire::encode(bytes, wire::Connect{.protocol_version = wire::WIRE_VERSION,
                                      .client_flags = 0,
                                      .token = as_byte_span(CLIENT_TOKEN)});
    return bytes;
}

ByteVector pub_frame(Rng& rng) {
    const ByteVector value = random_bytes(rng, 40);
    ByteVector bytes;
    wire::encode(bytes, wire::Pub{.topic_id = TopicId(1),
                                  .partition = PartitionIndex(0),
                                  .producer_id = ProducerId(0),
                                  .producer_seq = ProducerSeq(0),
                                  .flags = 0,
                                  .key = {},
                                  .value = value});
    return bytes;
}

// What goes out in one round.
ByteVector bad_bytes(Rng& rng) {
    ByteVector bytes = rng.one_in(3) ? ByteVector() : connect_frame();
    ByteWriter writer(bytes);
    switch (rng.below(8)) {
        case 0:  // noise
            writer.bytes(random_bytes(rng, 1 + rng.below(200)));
            break;
        case 1:  // impossible lengths
            writer.u32(rng.one_in(2) ? 0 : wire::MAX_FRAME_LEN + 1);
            break;
        case 2:  // a frame that never ends
            writer.u32(wire::MAX_FRAME_LEN);
            writer.u8(static_cast<std::uint8_t>(wire::Op::PUB));
            writer.bytes(random_bytes(rng, 100));
            break;
        case 3: {  // any op with any short payload
            const std::uint64_t op = rng.below(256);
            const ByteVector payload = random_bytes(rng, rng.below(64));
            writer.u32(static_cast<std::uint32_t>(payload.size() + 1));
            writer.u8(static_cast<std::uint8_t>(op));
            writer.bytes(payload);
            break;
        }
        case 4: {  // a PUB with one bit flipped in its payload
            ByteVector pub = pub_frame(rng);
            const std::size_t at = wire::FRAME_HEAD_BYTES + rng.below(wire::PUB_FIXED_BYTES);
            pub[at] ^= static_cast<std::byte>(1u << rng.below(8));
            writer.bytes(pub);
            break;
        }
        case 5:  // CONNECT again
            writer.bytes(connect_frame());
            writer.bytes(connect_frame());
            break;
        case 6: {  // the tail of a PUB cut off, then another frame
            ByteVector pub = pub_frame(rng);
            pub.resize(pub.size() - 1 - rng.below(30));
            writer.bytes(pub);
            writer.bytes(pub_frame(rng));
            break;
        }
        default:  // half a frame, then nothing
            writer.bytes(ByteSpan(pub_frame(rng)).first(3 + rng.below(20)));
            break;
    }
    return bytes;
}

Result<void> one_round(Fiber& fiber, Env& env, const std::string& address, Rng& rng) {
    const MonoTime deadline = deadline_after(env.clock, seconds(1));
    std::unique_ptr<Conn> conn = MORTAR_TRY(env.net.connect(fiber, address, deadline));
    const ByteVector bytes = bad_bytes(rng);
    const ByteSpan parts[] = {bytes};
    MORTAR_TRY(conn->write(fiber, parts, deadline));
    std::byte buffer[512];
    while (true) {
        const std::size_t count = MORTAR_TRY(conn->read(fiber, buffer, deadline));
        if (count == 0) break;
    }
    return {};
}

}  // namespace

void run_hostile(Fiber& fiber, Env& env, const std::string& address, MonoTime until) {
    Rng rng = env.rng.stream("hostile");
    while (env.clock.now() < until) {
        if (one_round(fiber, env, address, rng).is(ErrorCode::CANCELLED)) return;
        const Duration pause = milliseconds(static_cast<std::int64_t>(50 + rng.below(2000)));
        if (!env.scheduler.sleep_until(fiber, env.clock.now() + pause).ok()) return;
    }
}

}  // namespace mortar::sim
