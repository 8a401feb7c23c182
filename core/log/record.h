// record: bytes of one record and its checksum.
// Shape:  u32 record_len (= 52 + key + value, itself excluded), u32 crc32c of all after it, then the fields of
//         contract 7 in order; fixed part 56 bytes with record_len and crc, then key and value.
// Units:  *_bytes in bytes; sequences count from 1.
// Owns:   nothing: a Record borrows the bytes that it was parsed from.
// Errors: parse_record: TORN_TAIL (fewer bytes than record_len says, or record_len 0), CHECKSUM_MISMATCH (all else:
//         a length out of bounds, fields that contradict each other, a wrong checksum).
// Source: contract 7 (record), P5 (key and value limits), L1 (room for the envelope head).
#pragma once

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace mortar {

inline constexpr std::size_t RECORD_FIXED_BYTES = 56;
inline constexpr std::size_t RECORD_LEN_BASE = 52;  // record_len of a record without key and value
inline constexpr std::size_t RECORD_LEN_FIELD_BYTES = 4;
inline constexpr std::size_t RECORD_KEY_BYTES_MAX = 255;
inline constexpr std::size_t RECORD_VALUE_BYTES_MAX = (16u << 20) - 1024 + 512;

enum class RecordKind : std::uint8_t { CLIENT = 0, DEAD_LETTER = 1, REPLAY = 2 };

struct Record {
    Sequence sequence;
    ProducerId producer_id;
    ProducerSeq producer_seq;
    std::uint64_t timestamp_unix_ms = 0;
    LeaderEpoch leader_epoch;  // the one in which it was first appended; u32 on disk
    RecordKind kind = RecordKind::CLIENT;
    ByteSpan key;  // empty = no key
    ByteSpan value;
};

constexpr std::size_t record_bytes(std::size_t key_bytes, std::size_t value_bytes) {
    return RECORD_FIXED_BYTES + key_bytes + value_bytes;
}
inline std::size_t record_bytes(const Record& record) {
    return record_bytes(record.key.size(), record.value.size());
}
inline constexpr std::size_t RECORD_BYTES_MAX =
    record_bytes(RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX);

// The bytes of the record, checksum included; into is record_bytes(record) long.
void encode_record_at(MutableByteSpan into, const Record& record);
// Appends them.
void encode_record(ByteVector& into, const Record& record);
// The record at the front of bytes; its size is record_bytes(record).
Result<Record> parse_record(ByteSpan bytes);
// Could a record start here? Looks at the fixed part only, at no checksum: a cheap filter before parse_record.
// False when bytes are fewer than the fixed part.
bool looks_like_record(ByteSpan bytes);

}  // namespace mortar
