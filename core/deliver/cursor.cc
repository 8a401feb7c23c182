#include "core/deliver/cursor.h"

#include <roaring/roaring.h>

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/hash.h"

namespace mortar {
namespace {

constexpr std::size_t CHECKED_FROM = 4 + 1 + 4;  // magic, version, crc32c
constexpr std::uint8_t FLAG_BACKING_OFF = 1;

std::uint32_t high_half(Sequence sequence) {
    return static_cast<std::uint32_t>(sequence.value >> 32);
}
std::uint32_t low_half(Sequence sequence) {
    return static_cast<std::uint32_t>(sequence.value);
}

// The last value of the run of set bits that begins at first. Nothing below first is set.
std::uint32_t run_end(const roaring_bitmap_t* bitmap, std::uint32_t first) {
    std::uint32_t in_run = first;
    std::uint32_t last = roaring_bitmap_maximum(bitmap);
    while (in_run < last) {
        const std::uint32_t middle = in_run + (last - in_run) / 2 + 1;
        if (roaring_bitmap_rank(bitmap, middle) == std::uint64_t{middle} - first + 1) {
            in_run = middle;
        } else {
            last = middle - 1;
        }
    }
    return in_run;
}

Error damaged(const char* what) {
    return make_error(ErrorCode::DAMAGED, std::string("cursor checkpoint: ") + what);
}

}  // namespace

void SettledSet::FreeBitmap::operator()(roaring_bitmap_s* bitmap) const {
    roaring_bitmap_free(bitmap);
}

bool SettledSet::add(Sequence sequence) {
    if (contains(sequence)) return false;
    if (sequence == ack_floor_.next()) {
        ack_floor_ = sequence;
        advance_floor();
        return true;
    }
    Bitmap& bitmap = bitmaps_[high_half(sequence)];
    if (bitmap == nullptr) bitmap.reset(roaring_bitmap_create());
    roaring_bitmap_add(bitmap.get(), low_half(sequence));
    ++count_above_floor_;
    return true;
}

bool SettledSet::contains(Sequence sequence) const {
    if (sequence <= ack_floor_) return true;
    const auto it = bitmaps_.find(high_half(sequence));
    return it != bitmaps_.end() && roaring_bitmap_contains(it->second.get(), low_half(sequence));
}

Sequence SettledSet::highest() const {
    if (bitmaps_.empty()) return ack_floor_;
    const auto& [high, bitmap] = *bitmaps_.rbegin();
    return Sequence(std::uint64_t{high} << 32 | roaring_bitmap_maximum(bitmap.get()));
}

void SettledSet::advance_floor() {
    while (!bitmaps_.empty()) {
        const auto it = bitmaps_.begin();
        const Sequence next = ack_floor_.next();
        roaring_bitmap_t* bitmap = it->second.get();
        if (it->first != high_half(next) || !roaring_bitmap_contains(bitmap, low_half(next)))
            return;
        const std::uint32_t first = low_half(next);
        const std::uint32_t last = run_end(bitmap, first);
        const std::uint64_t count = std::uint64_t{last} - first + 1;
        roaring_bitmap_remove_range_closed(bitmap, first, last);
        if (roaring_bitmap_is_empty(bitmap)) bitmaps_.erase(it);
        MORTAR_ASSERT(count_above_floor_ >= count);
        count_above_floor_ -= count;
        ack_floor_ = ack_floor_.plus(count);
    }
}

void SettledSet::encode(ByteVector& into) const {
    ByteWriter writer(into);
    writer.id(ack_floor_);
    writer.u32(static_cast<std::uint32_t>(bitmaps_.size()));
    for (const auto& [high, bitmap] : bitmaps_) {
        // Equal sets become equal bytes, whatever order they were filled in.
        roaring_bitmap_run_optimize(bitmap.get());
        const std::size_t bytes = roaring_bitmap_portable_size_in_bytes(bitmap.get());
        writer.u32(high);
        writer.u32(static_cast<std::uint32_t>(bytes));
        const std::size_t at = into.size();
        into.resize(at + bytes);
        roaring_bitmap_portable_serialize(bitmap.get(), reinterpret_cast<char*>(into.data() + at));
    }
}

Result<SettledSet> SettledSet::decode(ByteReader& reader) {
    SettledSet set(reader.id<Sequence>());
    const std::uint32_t bitmap_count = reader.u32();
    for (std::uint32_t i = 0; i < bitmap_count && !reader.failed(); ++i) {
        const std::uint32_t high = reader.u32();
        const ByteSpan bytes = reader.bytes(reader.u32());
        if (bytes.empty()) return damaged("short bitmap");
        Bitmap bitmap(roaring_bitmap_portable_deserialize_safe(
            reinterpret_cast<const char*>(bytes.data()), bytes.size()));
        if (bitmap == nullptr || roaring_bitmap_is_empty(bitmap.get()))
            return damaged("unreadable bitmap");
        const Sequence lowest(std::uint64_t{high} << 32 | roaring_bitmap_minimum(bitmap.get()));
        if (lowest <= set.ack_floor_.next()) return damaged("bitmap reaches down to the ack_floor");
        set.count_above_floor_ += roaring_bitmap_get_cardinality(bitmap.get());
        if (!set.bitmaps_.emplace(high, std::move(bitmap)).second)
            return damaged("bitmap given twice");
    }
    if (reader.failed()) return damaged("too short");
    return set;
}

void encode_cursor(ByteVector& into, std::uint64_t cursor_epoch, const SettledSet& settled,
                   const std::vector<UnsettledImage>& unsettled) {
    const std::size_t start = into.size();
    ByteWriter writer(into);
    writer.bytes(as_byte_span(CURSOR_MAGIC));
    writer.u8(CURSOR_VERSION);
    writer.u32(0);
    writer.u64(cursor_epoch);
    settled.encode(into);
    writer.u32(static_cast<std::uint32_t>(unsettled.size()));
    for (const UnsettledImage& message : unsettled) {
        writer.id(message.sequence);
        writer.u16(message.failures);
        writer.u16(message.deliveries);
        writer.u8(message.is_backing_off ? FLAG_BACKING_OFF : 0);
    }
    store_be(into.data() + start + CHECKED_FROM - 4,
             crc32c(ByteSpan(into).subspan(start + CHECKED_FROM)));
}

Result<CursorImage> decode_cursor(ByteSpan bytes) {
    ByteReader reader(bytes);
    if (as_string_view(reader.bytes(CURSOR_MAGIC.size())) != CURSOR_MAGIC)
        return damaged("wrong magic");
    const std::uint8_t version = reader.u8();
    if (!reader.failed() && version > CURSOR_VERSION)
        return make_error(ErrorCode::UNSUPPORTED_FORMAT,
                          "cursor checkpoint of version " + std::to_string(version));
    const std::uint32_t crc = reader.u32();
    if (reader.failed() || version != CURSOR_VERSION || crc32c(bytes.subspan(CHECKED_FROM)) != crc)
        return damaged("wrong checksum");

    CursorImage image;
    image.cursor_epoch = reader.u64();
    image.settled = MORTAR_TRY(SettledSet::decode(reader));
    const std::uint32_t unsettled_count = reader.u32();
    for (std::uint32_t i = 0; i < unsettled_count && !reader.failed(); ++i) {
        UnsettledImage message;
        message.sequence = reader.id<Sequence>();
        message.failures = reader.u16();
        message.deliveries = reader.u16();
        message.is_backing_off = (reader.u8() & FLAG_BACKING_OFF) != 0;
        if (image.settled.contains(message.sequence))
            return damaged("a settled message is listed as unsettled");
        if (!image.unsettled.empty() && image.unsettled.back().sequence >= message.sequence)
            return damaged("unsettled messages out of order");
        image.unsettled.push_back(message);
    }
    if (!reader.finished()) return damaged("wrong length");
    return image;
}

}  // namespace mortar
