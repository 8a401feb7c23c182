// peer_frame: whole frames between nodes out of a byte stream.
// Shape:    one buffer over a Conn; it grows with what arrived, never with what a length announces, and shrinks again.
// Owns:     its buffer; a FrameView borrows it until the next read.
// Errors:   BAD_LENGTH as soon as four bytes are there; CHECKSUM_MISMATCH, UNKNOWN_OP; TIMED_OUT; CONNECTION_CLOSED;
//           CANCELLED. After any of them the connection is of no more use.
// Suspends: read, unless a whole frame has been received already.
// Source:   peer_messages.
#pragma once

#include <memory>

#include "core/env/clock.h"
#include "core/env/net.h"
#include "core/replica/peer_codec.h"

namespace mortar::peer {

struct ReadLimits {
    std::uint32_t frame_len_max = PEER_FRAME_LEN_MAX;
    MonoTime deadline = NEVER;  // for the frame; bytes that come too late do not count
    Duration silence_max;       // so long nothing at all while somebody reads; 0 = any time
};

class PeerFrameReader {
  public:
    PeerFrameReader(Conn& conn, const Clock& clock) : conn_(conn), clock_(clock) {}
    PeerFrameReader(const PeerFrameReader&) = delete;
    PeerFrameReader& operator=(const PeerFrameReader&) = delete;

    Result<FrameView> read(Fiber& fiber, const ReadLimits& limits);
    std::size_t capacity_bytes() const { return capacity_bytes_; }

    static constexpr std::size_t CAPACITY_BYTES_MIN = 4 * 1024;
    // More is kept only inside a frame that is larger.
    static constexpr std::size_t CAPACITY_BYTES_STEADY = 1024 * 1024;
    // One socket read copies no more: other connections wait meanwhile.
    static constexpr std::size_t READ_BYTES_MAX = 256 * 1024;

  private:
    Result<void> fill(Fiber& fiber, const ReadLimits& limits);
    void make_room();
    void move_to(std::size_t capacity_bytes);

    Conn& conn_;
    const Clock& clock_;
    std::unique_ptr<std::byte[]> buffer_;
    std::size_t capacity_bytes_ = 0;
    std::size_t next_ = 0;  // first byte not handed out yet
    std::size_t end_ = 0;   // behind the last byte received
};

}  // namespace mortar::peer
