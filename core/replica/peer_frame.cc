#include "core/replica/peer_frame.h"

#include <algorithm>

#include "core/fiber/deadline.h"

namespace mortar::peer {

Result<FrameView> PeerFrameReader::read(Fiber& fiber, const ReadLimits& limits) {
    while (true) {
        const ByteSpan held(buffer_.get() + next_, end_ - next_);
        if (held.size() >= PEER_LENGTH_BYTES) {
            const std::size_t size = MORTAR_TRY(frame_bytes(held, limits.frame_len_max));
            if (held.size() >= size) {
                next_ += size;
                return open_frame(held.first(size));
            }
        }
        MORTAR_TRY(fill(fiber, limits));
    }
}

Result<void> PeerFrameReader::fill(Fiber& fiber, const ReadLimits& limits) {
    make_room();
    MonoTime until = limits.deadline;
    if (limits.silence_max > Duration{})
        until = std::min(until, deadline_after(clock_, limits.silence_max));
    if (clock_.now() >= limits.deadline) return make_error(ErrorCode::TIMED_OUT, "too slow");
    const MutableByteSpan room(buffer_.get() + end_,
                               std::min(capacity_bytes_ - end_, READ_BYTES_MAX));
    const Result<std::size_t> received = conn_.read(fiber, room, until);
    if (received.is(ErrorCode::TIMED_OUT)) {
        return make_error(
            ErrorCode::TIMED_OUT,
            until == limits.deadline
                ? "too slow"
                : "nothing received for " + std::to_string(limits.silence_max.to_ms()) + " ms");
    }
    if (!received.ok()) return received.error();
    if (*received == 0) return make_error(ErrorCode::CONNECTION_CLOSED, "closed by the peer");
    MORTAR_ASSERT(*received <= room.size());
    end_ += *received;
    return {};
}

// Behind end_ is room for at least one byte. The buffer doubles only when what was received fills it.
void PeerFrameReader::make_room() {
    const std::size_t held = end_ - next_;
    const bool was_filled = end_ == capacity_bytes_;
    if (held == 0) {
        next_ = end_ = 0;
        if (capacity_bytes_ > CAPACITY_BYTES_STEADY) return move_to(CAPACITY_BYTES_STEADY);
    }
    if (!was_filled) return;
    if (held <= capacity_bytes_ / 2 && capacity_bytes_ >= CAPACITY_BYTES_STEADY) {
        std::copy_n(buffer_.get() + next_, held, buffer_.get());
        next_ = 0;
        end_ = held;
        return;
    }
    move_to(std::clamp(2 * capacity_bytes_, CAPACITY_BYTES_MIN,
                       PEER_LENGTH_BYTES + PEER_FRAME_LEN_MAX));
}

void PeerFrameReader::move_to(std::size_t capacity_bytes) {
    const std::size_t held = end_ - next_;
    MORTAR_ASSERT(held < capacity_bytes);
    auto moved = std::make_unique_for_overwrite<std::byte[]>(capacity_bytes);
    if (held > 0) std::copy_n(buffer_.get() + next_, held, moved.get());
    buffer_ = std::move(moved);
    capacity_bytes_ = capacity_bytes;
    next_ = 0;
    end_ = held;
}

}  // namespace mortar::peer
