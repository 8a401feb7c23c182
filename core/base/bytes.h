// bytes: bounded big-endian reader and writer over the caller's bytes.
// Shape:  ByteSpan is a borrowed view. ByteReader walks a view; a read past the end sets failed() and yields zeros,
//         so a decoder reads all fields and checks once. ByteWriter appends to a caller's vector.
// Owns:   nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/ids.h"

namespace mortar {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;
using ByteVector = std::vector<std::byte>;

inline ByteSpan as_byte_span(std::string_view text) {
    return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string_view as_string_view(ByteSpan bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Unaligned big-endian store and load. Written with the swap instruction: compilers do not see it in a loop of bytes.
template <class T>
requires std::is_unsigned_v<T>
constexpr T swap_to_big_endian(T value) {
    if constexpr (sizeof(T) == 1 || std::endian::native == std::endian::big) return value;
    if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}
template <class T>
requires std::is_unsigned_v<T>
void store_be(std::byte* at, T value) {
    const T swapped = swap_to_big_endian(value);
    std::memcpy(at, &swapped, sizeof(T));
}
template <class T>
requires std::is_unsigned_v<T> T load_be(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return swap_to_big_endian(value);
}

class ByteReader {
  public:
    explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

    std::uint8_t u8() { return number<std::uint8_t>(); }
    std::uint16_t u16() { return number<std::uint16_t>(); }
    std::uint32_t u32() { return number<std::uint32_t>(); }
    std::uint64_t u64() { return number<std::uint64_t>(); }
    template <class Id>
    Id id() {
        return Id(number<typename Id::rep>());
    }
    // A view of the next count bytes; empty and failed() when there are fewer.
    ByteSpan bytes(std::size_t count) {
        if (failed_ || count > bytes_.size() - offset_) {
            failed_ = true;
            return {};
        }
        const ByteSpan view = bytes_.subspan(offset_, count);
        offset_ += count;
        return view;
    }
    ByteSpan rest() { return bytes(remaining()); }
    std::size_t remaining() const { return failed_ ? 0 : bytes_.size() - offset_; }
    std::size_t offset() const { return offset_; }
    bool failed() const { return failed_; }
    // Everything read, nothing left, nothing short.
    bool finished() const { return !failed_ && offset_ == bytes_.size(); }

  private:
    template <class T>
    T number() {
        const ByteSpan view = bytes(sizeof(T));
        return view.empty() ? T{0} : load_be<T>(view.data());
    }

    ByteSpan bytes_;
    std::size_t offset_ = 0;
    bool failed_ = false;
};

class ByteWriter {
  public:
    explicit ByteWriter(ByteVector& into) : into_(into) {}

    void u8(std::uint8_t value) { number(value); }
    void u16(std::uint16_t value) { number(value); }
    void u32(std::uint32_t value) { number(value); }
    void u64(std::uint64_t value) { number(value); }
    template <class Tag, class Rep>
    void id(StrongId<Tag, Rep> value) {
        number(value.value);
    }
    void bytes(ByteSpan view) { into_.insert(into_.end(), view.begin(), view.end()); }
    void zeros(std::size_t count) { into_.resize(into_.size() + count); }
    std::size_t size() const { return into_.size(); }

  private:
    template <class T>
    void number(T value) {
        const std::size_t at = into_.size();
        into_.resize(at + sizeof(T));
        store_be(into_.data() + at, value);
    }

    ByteVector& into_;
};

}  // namespace mortar
