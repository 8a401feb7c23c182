// hash: fnv1a32 is ours (the contract's key routing); the rest comes from packages behind this one file.
// crc32c is ISA-L (runtime dispatch, hardware speed); SHA-256, keyed hash and constant-time compare are libsodium.
// Source: contract P1 (routing), S3 (token digests), 4 (peer.key), 7 (crc32c).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace mortar {

using Sha256Digest = std::array<std::byte, 32>;
using SecretKey = std::array<std::byte, 32>;

std::uint32_t fnv1a32(ByteSpan bytes);
// CRC-32C of bytes; pass the checksum of the part before as crc to go on.
std::uint32_t crc32c(ByteSpan bytes, std::uint32_t crc = 0);
Sha256Digest sha256(ByteSpan bytes);
// HMAC-SHA256.
Sha256Digest keyed_hash(const SecretKey& key, ByteSpan bytes);
bool equal_constant_time(const Sha256Digest& a, const Sha256Digest& b);
std::string to_hex(ByteSpan bytes);
// False when text is not exactly two lower or upper case hex digits for each byte of into.
bool from_hex(std::string_view text, MutableByteSpan into);

}  // namespace mortar
