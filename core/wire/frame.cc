#include "core/wire/frame.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/fiber/deadline.h"

namespace mortar::wire {
namespace {

// One socket read copies no more: a frame of 16 MiB must not hold up every other connection.
constexpr std::size_t READ_BYTES_MAX = 256 * 1024;

}  // namespace

bool FrameBudget::try_charge(std::size_t bytes) {
    if (bytes > bytes_max_ - used_bytes_) return false;
    used_bytes_ += bytes;
    return true;
}

void FrameBudget::release(std::size_t bytes) {
    MORTAR_ASSERT(bytes <= used_bytes_);
    used_bytes_ -= bytes;
}

FrameReader::FrameReader(Conn& conn, const Clock& clock, FrameBudget& budget)
    : conn_(conn), clock_(clock), budget_(budget) {}

FrameReader::~FrameReader() {
    release_charge();
}

Result<FrameView> FrameReader::read(Fiber& fiber, const ReadLimits& limits) {
    MORTAR_ASSERT(limits.frame_len_max <= MAX_FRAME_LEN);
    while (true) {
        MORTAR_TRY(check_length(limits.frame_len_max));
        if (has_complete_frame()) return take_frame();
        MORTAR_TRY(fill(fiber, limits.deadline));
    }
}

bool FrameReader::has_complete_frame() const {
    if (unread_bytes() < LENGTH_BYTES) return false;
    const std::uint32_t length = announced_len();
    return length > 0 && length <= MAX_FRAME_LEN && unread_bytes() - LENGTH_BYTES >= length;
}

std::uint32_t FrameReader::announced_len() const {
    return load_be<std::uint32_t>(buffer_.get() + next_);
}

Result<void> FrameReader::check_length(std::uint32_t frame_len_max) const {
    if (unread_bytes() < LENGTH_BYTES) return {};
    const std::uint32_t length = announced_len();
    if (length > 0 && length <= frame_len_max) [[likely]]
        return {};
    return make_error(ErrorCode::BAD_LENGTH, "frame length " + std::to_string(length) +
                                                 ": send 1 to " + std::to_string(frame_len_max));
}

FrameView FrameReader::take_frame() {
    const std::byte* frame = buffer_.get() + next_;
    const std::uint32_t length = announced_len();
    next_ += LENGTH_BYTES + length;
    half_frame_deadline_ = NEVER;
    late_reads_ = 0;
    release_charge();
    return {std::to_integer<std::uint8_t>(frame[LENGTH_BYTES]),
            ByteSpan(frame + FRAME_HEAD_BYTES, length - 1)};
}

// One socket read.
Result<void> FrameReader::fill(Fiber& fiber, MonoTime deadline) {
    if (unread_bytes() > 0 && half_frame_deadline_ == NEVER) renew_half_frame();
    const MonoTime until = std::min(deadline, half_frame_deadline_);
    if (late_reads_ > LATE_READS_MAX) return timed_out(until == half_frame_deadline_);

    make_room();
    const MutableByteSpan room(buffer_.get() + end_,
                               std::min(capacity_bytes_ - end_, READ_BYTES_MAX));
    const Result<std::size_t> received = conn_.read(fiber, room, until);
    if (received.is(ErrorCode::TIMED_OUT)) return timed_out(until == half_frame_deadline_);
    if (!received.ok()) return received.error();
    if (*received == 0) {
        ended_ = true;
        return closed_by_peer();
    }
    MORTAR_ASSERT(*received <= room.size());
    end_ += *received;
    late_reads_ = clock_.now() >= until ? late_reads_ + 1 : 0;
    learn_from_read(*received, room.size());
    if (half_frame_deadline_ != NEVER) {
        renew_bytes_ += *received;
        if (renew_bytes_ >= HALF_FRAME_RENEW_BYTES) renew_half_frame();
    }
    return charge_unfinished();
}

void FrameReader::renew_half_frame() {
    half_frame_deadline_ = deadline_after(clock_, HALF_FRAME_TIMEOUT);
    renew_bytes_ = 0;
}

// Leaves room behind end_ for at least one byte, and keeps the buffer in proportion to what was
// received.
void FrameReader::make_room() {
    const std::size_t held = unread_bytes();
    if (held == 0) {
        next_ = end_ = 0;
        if (capacity_bytes_ != wanted_bytes_) move_to(wanted_bytes_);
        return;
    }
    const std::size_t frame_bytes =
        held < LENGTH_BYTES ? LENGTH_BYTES : LENGTH_BYTES + announced_len();
    if (frame_bytes <= wanted_bytes_ && capacity_bytes_ != wanted_bytes_)
        return move_to(wanted_bytes_);
    if (frame_bytes <= CAPACITY_BYTES_STEADY && capacity_bytes_ > CAPACITY_BYTES_STEADY)
        return move_to(CAPACITY_BYTES_STEADY);
    if (frame_bytes <= capacity_bytes_) {
        const bool fits_here = next_ + frame_bytes <= capacity_bytes_;
        const bool worth_moving =
            capacity_bytes_ - end_ < capacity_bytes_ / 2 && held <= capacity_bytes_ / 4;
        if (!fits_here || worth_moving) move_to_front();
        return;
    }
    if (end_ < capacity_bytes_) return;
    if (held <= capacity_bytes_ / 2) return move_to_front();
    move_to(std::min(2 * capacity_bytes_, frame_bytes));
}

void FrameReader::move_to_front() {
    const std::size_t held = unread_bytes();
    std::memmove(buffer_.get(), buffer_.get() + next_, held);
    next_ = 0;
    end_ = held;
}

void FrameReader::move_to(std::size_t capacity_bytes) {
    const std::size_t held = unread_bytes();
    MORTAR_ASSERT(held < capacity_bytes);
    auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity_bytes);
    if (held > 0) std::memcpy(larger.get(), buffer_.get() + next_, held);
    buffer_ = std::move(larger);
    capacity_bytes_ = capacity_bytes;
    next_ = 0;
    end_ = held;
}

// A read that filled the room says that more would have come; many small ones say that less would
// do.
void FrameReader::learn_from_read(std::size_t received_bytes, std::size_t room_bytes) {
    if (received_bytes == room_bytes) {
        wanted_bytes_ = std::min(2 * wanted_bytes_, CAPACITY_BYTES_STEADY);
        small_reads_ = 0;
    } else if (received_bytes > wanted_bytes_ / 4) {
        small_reads_ = 0;
    } else if (++small_reads_ >= SMALL_READS_MAX) {
        wanted_bytes_ = std::max(wanted_bytes_ / 2, CAPACITY_BYTES_MIN);
        small_reads_ = 0;
    }
}

Result<void> FrameReader::charge_unfinished() {
    const std::size_t held = unread_bytes();
    if (has_complete_frame() || held <= charged_bytes_) return {};
    if (!budget_.try_charge(held - charged_bytes_)) [[unlikely]]
        return make_error(ErrorCode::LIMIT_REACHED,
                          "too many bytes in unfinished frames on this node; retry later");
    charged_bytes_ = held;
    return {};
}

void FrameReader::release_charge() {
    budget_.release(charged_bytes_);
    charged_bytes_ = 0;
}

Error FrameReader::timed_out(bool half_frame) const {
    if (half_frame)
        return make_error(ErrorCode::TIMED_OUT, "the rest of a frame did not come in time; " +
                                                    std::to_string(unread_bytes()) + " bytes came");
    return make_error(ErrorCode::TIMED_OUT, "no complete frame in time");
}

Error FrameReader::closed_by_peer() const {
    return make_error(
        ErrorCode::CONNECTION_CLOSED,
        unread_bytes() == 0 ? "closed by the peer" : "closed by the peer in the middle of a frame");
}

}  // namespace mortar::wire
