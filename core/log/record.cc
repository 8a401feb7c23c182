#include "core/log/record.h"

#include <algorithm>
#include <limits>

#include "core/base/hash.h"

namespace mortar {
namespace {

constexpr std::size_t CRC_FIELD_OFFSET = 4;
constexpr std::size_t CHECKED_OFFSET = 8;  // the checksum covers all from here on
constexpr std::uint16_t FLAG_KEY_PRESENT = 1;
constexpr std::size_t RESERVED_BYTES = 3;

struct FixedPart {
    std::uint32_t record_len = 0;
    std::uint32_t crc = 0;
    std::uint16_t flags = 0;
    std::uint16_t key_len = 0;
    std::uint32_t value_len = 0;
    std::uint64_t sequence = 0;
    std::uint64_t producer_id = 0;
    std::uint64_t producer_seq = 0;
    std::uint64_t timestamp_unix_ms = 0;
    std::uint32_t leader_epoch = 0;
    std::uint8_t kind = 0;
    bool reserved_zero = false;

    explicit FixedPart(ByteSpan bytes) {
        ByteReader reader(bytes.first(RECORD_FIXED_BYTES));
        record_len = reader.u32();
        crc = reader.u32();
        flags = reader.u16();
        key_len = reader.u16();
        value_len = reader.u32();
        sequence = reader.u64();
        producer_id = reader.u64();
        producer_seq = reader.u64();
        timestamp_unix_ms = reader.u64();
        leader_epoch = reader.u32();
        kind = reader.u8();
        const ByteSpan reserved = reader.bytes(RESERVED_BYTES);
        reserved_zero = std::all_of(reserved.begin(), reserved.end(),
                                    [](std::byte b) { return b == std::byte{0}; });
        MORTAR_ASSERT(reader.finished());
    }
    const char* contradiction() const {
        if (key_len > RECORD_KEY_BYTES_MAX || value_len > RECORD_VALUE_BYTES_MAX) {
            return "key or value too long";
        }
        if (record_len != RECORD_LEN_BASE + key_len + value_len) return "lengths do not add up";
        if (flags != (key_len > 0 ? FLAG_KEY_PRESENT : 0)) return "flags do not fit";
        if (kind > static_cast<std::uint8_t>(RecordKind::REPLAY)) return "unknown kind";
        if (!reserved_zero) return "reserved bytes are not zero";
        if (sequence == 0) return "sequence 0";
        return nullptr;
    }
};

}  // namespace

void encode_record_at(MutableByteSpan into, const Record& record) {
    MORTAR_ASSERT(into.size() == record_bytes(record));
    MORTAR_ASSERT(record.key.size() <= RECORD_KEY_BYTES_MAX);
    MORTAR_ASSERT(record.value.size() <= RECORD_VALUE_BYTES_MAX);
    MORTAR_ASSERT(record.sequence.value > 0);
    MORTAR_ASSERT(record.leader_epoch.value <= std::numeric_limits<std::uint32_t>::max());
    std::byte* at = into.data();
    const auto put = [&at](auto value) {
        store_be(at, value);
        at += sizeof value;
    };
    put(static_cast<std::uint32_t>(into.size() - RECORD_LEN_FIELD_BYTES));
    put(std::uint32_t{0});
    put(record.key.empty() ? std::uint16_t{0} : FLAG_KEY_PRESENT);
    put(static_cast<std::uint16_t>(record.key.size()));
    put(static_cast<std::uint32_t>(record.value.size()));
    put(record.sequence.value);
    put(record.producer_id.value);
    put(record.producer_seq.value);
    put(record.timestamp_unix_ms);
    put(static_cast<std::uint32_t>(record.leader_epoch.value));
    put(static_cast<std::uint8_t>(record.kind));
    at = std::fill_n(at, RESERVED_BYTES, std::byte{0});
    at = std::copy(record.key.begin(), record.key.end(), at);
    at = std::copy(record.value.begin(), record.value.end(), at);
    MORTAR_ASSERT(at == into.data() + into.size());
    store_be(into.data() + CRC_FIELD_OFFSET, crc32c(into.subspan(CHECKED_OFFSET)));
}

void encode_record(ByteVector& into, const Record& record) {
    const std::size_t at = into.size();
    into.resize(at + record_bytes(record));
    encode_record_at(MutableByteSpan(into).subspan(at), record);
}

bool looks_like_record(ByteSpan bytes) {
    return bytes.size() >= RECORD_FIXED_BYTES && FixedPart(bytes).contradiction() == nullptr;
}

Result<Record> parse_record(ByteSpan bytes) {
    if (bytes.size() < RECORD_LEN_FIELD_BYTES) return make_error(ErrorCode::TORN_TAIL, "no length");
    const std::uint32_t record_len = load_be<std::uint32_t>(bytes.data());
    if (record_len == 0) return make_error(ErrorCode::TORN_TAIL, "record_len 0");
    if (record_len < RECORD_LEN_BASE || record_len > RECORD_BYTES_MAX - RECORD_LEN_FIELD_BYTES) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "record_len " + std::to_string(record_len));
    }
    if (bytes.size() - RECORD_LEN_FIELD_BYTES < record_len) {
        return make_error(ErrorCode::TORN_TAIL, "record_len " + std::to_string(record_len) +
                                                    " reaches behind the end of the bytes");
    }
    const FixedPart fixed(bytes);
    if (const char* what = fixed.contradiction()) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, what);
    }
    const ByteSpan all = bytes.first(RECORD_LEN_FIELD_BYTES + record_len);
    if (crc32c(all.subspan(CHECKED_OFFSET)) != fixed.crc) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "crc32c");
    }
    Record record;
    record.sequence = Sequence(fixed.sequence);
    record.producer_id = ProducerId(fixed.producer_id);
    record.producer_seq = ProducerSeq(fixed.producer_seq);
    record.timestamp_unix_ms = fixed.timestamp_unix_ms;
    record.leader_epoch = LeaderEpoch(fixed.leader_epoch);
    record.kind = static_cast<RecordKind>(fixed.kind);
    record.key = all.subspan(RECORD_FIXED_BYTES, fixed.key_len);
    record.value = all.subspan(RECORD_FIXED_BYTES + fixed.key_len, fixed.value_len);
    return record;
}

}  // namespace mortar
