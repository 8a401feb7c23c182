// record: bytes of one record and its checksum.
// Shape:  u32 record_len (= 52 + key + value, itself excluded), u32 crc32c of all after it, then the fields of
//         contract 7 in order; fixed part 56 bytes with record_len and crc, then key and value.
// Units:  *_bytes in bytes; sequences count from 1.
// Owns:   nothing: RecordView borrows the bytes that it was parsed from.
// Errors: parse_record: CHECKSUM_MISMATCH, TORN_TAIL (fewer bytes than record_len says, or record_len 0).
// Source: contract 7 (record).
#pragma once

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace mortar {

inline constexpr std::size_t RECORD_FIXED_BYTES = 56;
inline constexpr std::size_t RECORD_LEN_BASE = 52;  // record_len of a record without key and value

enum class RecordKind : std::uint8_t { CLIENT = 0, DEAD_LETTER = 1, REPLAY = 2 };

struct Record {
    Sequence sequence;
    ProducerId producer_id;
    ProducerSeq producer_seq;
    std::uint64_t timestamp_unix_ms = 0;
    LeaderEpoch leader_epoch;  // the one in which it was first appended; u32 on disk
    RecordKind kind = RecordKind::CLIENT;
    ByteSpan key;    // empty = no key
    ByteSpan value;
};

inline std::size_t record_bytes(std::size_t key_bytes, std::size_t value_bytes) {
    return RECORD_FIXED_BYTES + key_bytes + value_bytes;
}
// Appends the bytes of the record, checksum included.
void encode_record(ByteVector& into, const Record& record);
// The record at the front of bytes; its size is record_bytes(key, value).
Result<Record> parse_record(ByteSpan bytes);

}  // namespace mortar
