// cursor: which messages of a partition a group has settled, and the MMCU file that remembers it.
// Shape:     SettledSet = ack_floor and a bitmap of settled sequences above it. CursorImage adds what is known of messages
//            that were touched and not settled: one consistent record, never two files that must agree.
//            MMCU: magic, u8 version 1, u32 crc32c of all after it, u64 cursor_epoch, u64 ack_floor, u32 bitmap count, each:
//            u32 high half of the sequences, u32 bytes, roaring bitmap (portable) of their low halves; u32 count of
//            unsettled, each: u64 sequence, u16 failures, u16 deliveries, u8 flags (bit0 = in backoff).
// Errors:    decode: UNSUPPORTED_FORMAT (version), DAMAGED. The checksum is verified before a bitmap is read.
// Invariant: the set only grows; nothing at or below ack_floor is in the bitmap, nor is ack_floor + 1.
// Source:    contract E1, 7 (MMCU), core-concepts 6.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

extern "C" {
struct roaring_bitmap_s;
}

namespace mortar {

inline constexpr std::string_view CURSOR_MAGIC = "MMCU";
inline constexpr std::uint8_t CURSOR_VERSION = 1;

class SettledSet {
  public:
    explicit SettledSet(Sequence ack_floor = {}) : ack_floor_(ack_floor) {}

    // False when it was in the set already.
    bool add(Sequence sequence);
    bool contains(Sequence sequence) const;
    Sequence ack_floor() const { return ack_floor_; }
    std::uint64_t count_above_floor() const { return count_above_floor_; }
    Sequence highest() const;  // ack_floor when nothing is above it

    void encode(ByteVector& into) const;
    // reader's bytes passed their checksum.
    static Result<SettledSet> decode(ByteReader& reader);

  private:
    struct FreeBitmap {
        void operator()(roaring_bitmap_s* bitmap) const;
    };
    using Bitmap = std::unique_ptr<roaring_bitmap_s, FreeBitmap>;
    void advance_floor();

    Sequence ack_floor_;
    std::uint64_t count_above_floor_ = 0;
    std::map<std::uint32_t, Bitmap> bitmaps_;  // by the high half of the sequence; none is empty
};

// A message that was delivered at least once and is not settled.
struct UnsettledImage {
    Sequence sequence;
    std::uint16_t failures = 0;
    std::uint16_t deliveries = 0;
    bool is_backing_off = false;
    bool operator==(const UnsettledImage&) const = default;
};

struct CursorImage {
    std::uint64_t cursor_epoch = 0;  // counts checkpoints of this cursor; 0 = none was written yet
    SettledSet settled;
    std::vector<UnsettledImage> unsettled;  // ascending
};

void encode_cursor(ByteVector& into, std::uint64_t cursor_epoch, const SettledSet& settled,
                   const std::vector<UnsettledImage>& unsettled);
Result<CursorImage> decode_cursor(ByteSpan bytes);

}  // namespace mortar
