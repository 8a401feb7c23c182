#include "core/base/hash.h"

#include <isa-l/crc.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/crypto_hash_sha256.h>
#include <sodium/utils.h>

#include <algorithm>

#include "core/base/assert.h"

namespace mortar {
namespace {
int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}
}  // namespace

std::uint32_t fnv1a32(ByteSpan bytes) {
    std::uint32_t hash = 2166136261u;
    for (const std::byte b : bytes) {
        hash ^= static_cast<std::uint32_t>(b);
        hash *= 16777619u;
    }
    return hash;
}

std::uint32_t crc32c(ByteSpan bytes, std::uint32_t crc) {
    // The library takes an int length and a non-const pointer, and does not invert by itself.
    constexpr std::size_t PART_BYTES_MAX = std::size_t{1} << 30;
    while (!bytes.empty()) {
        const std::size_t count = std::min(bytes.size(), PART_BYTES_MAX);
        auto* at = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
        crc = ~crc32_iscsi(at, static_cast<int>(count), ~crc);
        bytes = bytes.subspan(count);
    }
    return crc;
}

Sha256Digest sha256(ByteSpan bytes) {
    Sha256Digest digest;
    crypto_hash_sha256(reinterpret_cast<unsigned char*>(digest.data()),
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return digest;
}

Sha256Digest keyed_hash(const SecretKey& key, ByteSpan bytes) {
    static_assert(sizeof(SecretKey) == crypto_auth_hmacsha256_KEYBYTES);
    static_assert(sizeof(Sha256Digest) == crypto_auth_hmacsha256_BYTES);
    Sha256Digest digest;
    crypto_auth_hmacsha256(reinterpret_cast<unsigned char*>(digest.data()),
                           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                           reinterpret_cast<const unsigned char*>(key.data()));
    return digest;
}

bool equal_constant_time(const Sha256Digest& a, const Sha256Digest& b) {
    return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string to_hex(ByteSpan bytes) {
    static constexpr char DIGITS[] = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::byte b : bytes) {
        text.push_back(DIGITS[static_cast<unsigned>(b) >> 4]);
        text.push_back(DIGITS[static_cast<unsigned>(b) & 15u]);
    }
    return text;
}

bool from_hex(std::string_view text, MutableByteSpan into) {
    if (text.size() != into.size() * 2) return false;
    for (std::size_t i = 0; i < into.size(); ++i) {
        const int high = hex_digit(text[2 * i]);
        const int low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        into[i] = static_cast<std::byte>(high * 16 + low);
    }
    return true;
}

}  // namespace mortar
