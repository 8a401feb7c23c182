// frame: whole frames out of a byte stream.
// Shape:    FrameReader keeps one buffer over a Conn: one socket read serves as many frames as it
//           brought. The buffer starts small, grows with what arrived (never with what a length
//           announces), and shrinks again.
// Owns:     its buffer; a FrameView borrows it until the next read. Conn, Clock, FrameBudget are
//           borrowed.
// Errors:   BAD_LENGTH as soon as the four length bytes are there (0, or above this read's limit);
//           TIMED_OUT: the caller's deadline, or a half frame's (then the caller's is still ahead);
//           CONNECTION_CLOSED: has_ended() when the peer ended its half, else it is lost;
//           LIMIT_REACHED: the budget, and the connection must end, for nothing skips the rest of
//           the frame; CANCELLED. After TIMED_OUT and CANCELLED read may be called again.
//           An unknown op is the caller's.
// Suspends: read, only while has_complete_frame() is false.
// Invariant: a frame that read waits to complete is charged to the budget with the bytes received
//           of it, until it is complete or the reader is gone.
// Source:   wire protocol v0 section 1, contract S1, S3, S4, R1.
#pragma once

#include <memory>

#include "core/env/net.h"
#include "core/wire/messages.h"

namespace mortar::wire {

// What a node holds in unfinished frames, over all its connections.
class FrameBudget {
  public:
    explicit FrameBudget(std::size_t bytes_max = UNFINISHED_FRAME_BYTES_MAX)
        : bytes_max_(bytes_max) {}
    FrameBudget(const FrameBudget&) = delete;
    FrameBudget& operator=(const FrameBudget&) = delete;

    bool try_charge(std::size_t bytes);
    void release(std::size_t bytes);
    std::size_t used_bytes() const { return used_bytes_; }

  private:
    std::size_t bytes_max_;
    std::size_t used_bytes_ = 0;
};

struct FrameView {
    std::uint8_t op = NO_OP;  // a number: it may be unknown
    ByteSpan payload;
};

struct ReadLimits {
    std::uint32_t frame_len_max = MAX_FRAME_LEN;
    MonoTime deadline = NEVER;  // for the whole frame: keepalive, or CONNECT
};

class FrameReader {
  public:
    FrameReader(Conn& conn, const Clock& clock, FrameBudget& budget);
    ~FrameReader();
    FrameReader(const FrameReader&) = delete;
    FrameReader& operator=(const FrameReader&) = delete;

    // The next frame. Ends the borrow of the frame before.
    Result<FrameView> read(Fiber& fiber, const ReadLimits& limits);

    // The next read of a frame of up to MAX_FRAME_LEN returns it without suspending.
    bool has_complete_frame() const;
    // Behind the frame that was read last stand some bytes of another one, but not all.
    bool in_mid_frame() const { return unread_bytes() > 0 && !has_complete_frame(); }
    // The peer sends nothing more; it may still read.
    bool has_ended() const { return ended_; }
    std::size_t capacity_bytes() const { return capacity_bytes_; }

    static constexpr std::size_t CAPACITY_BYTES_MIN = 4 * 1024;
    static constexpr std::size_t CAPACITY_BYTES_STEADY =
        64 * 1024;  // more only inside a frame that is larger
    // So many small reads in a row halve the buffer.
    static constexpr int SMALL_READS_MAX = 16;
    // Bytes that came in time but were met late (a stalled loop) still count: so many reads past a
    // deadline.
    static constexpr int LATE_READS_MAX = 16;

  private:
    std::size_t unread_bytes() const { return end_ - next_; }
    std::uint32_t announced_len() const;  // of the frame at next_, whose length must be there
    Result<void> check_length(std::uint32_t frame_len_max) const;
    FrameView take_frame();
    Result<void> fill(Fiber& fiber, MonoTime deadline);
    void renew_half_frame();
    void make_room();
    void move_to_front();
    void move_to(std::size_t capacity_bytes);
    void learn_from_read(std::size_t received_bytes, std::size_t room_bytes);
    Result<void> charge_unfinished();
    void release_charge();
    Error timed_out(bool half_frame) const;
    Error closed_by_peer() const;

    Conn& conn_;
    const Clock& clock_;
    FrameBudget& budget_;
    std::unique_ptr<std::byte[]> buffer_;
    std::size_t capacity_bytes_ = 0;
    std::size_t next_ = 0;  // first byte not handed out yet
    std::size_t end_ = 0;   // behind the last byte received
    std::size_t charged_bytes_ = 0;
    std::size_t wanted_bytes_ = CAPACITY_BYTES_MIN;  // what reads of late made useful
    int small_reads_ = 0;
    int late_reads_ = 0;
    MonoTime half_frame_deadline_ = NEVER;  // NEVER while no read has waited in mid frame
    std::size_t renew_bytes_ = 0;           // received since half_frame_deadline_ was set
    bool ended_ = false;
};

// Bytes that several holders may share; the last one frees them.
struct SharedBytes {
    std::shared_ptr<const void> owner;
    ByteSpan view;
};

}  // namespace mortar::wire
