// metadata_format: bytes and names of MMML (metadata log), MMMS (metadata snapshot) and MMMD (known durable) files.
// Shape:    log: "MMML", format version, header version; each record starts at the next multiple of 512 and what lies
//           between is zero and skipped: u32 record_len (itself excluded), u32 crc32c of all after it, u16 type,
//           u64 mutation_id, u64 leader_epoch, u64 timestamp_unix_ms, payload.
//           known durable: "MMMD", u8 version, u32 crc32c of all after it, u64 mutation_id: this one and all before it were
//           synced; a log that ends earlier has lost some.
//           snapshot: "MMMS", u8 version, u32 crc32c of all after it, u64 offset, u64 leader_epoch, state;
//           offset and leader_epoch are those of the last mutation in the state, and stand in the file's name too.
// Why 512:  power loss may ruin any sector that was written and not yet synced. A record that shares no sector with the
//           one before it cannot take an acknowledged one along.
// Owns:     nothing: RawMetadataRecord borrows the bytes that it was parsed from.
// Errors:   UNSUPPORTED_FORMAT (path and version); TORN_TAIL (fewer bytes than the record has, or no record);
//           CHECKSUM_MISMATCH; DAMAGED (sound checksum, impossible content; or not such a file).
// Source:   contract 7 (MMML, MMMS).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/meta/catalog.h"

namespace mortar {

inline constexpr std::string_view METADATA_LOG_MAGIC = "MMML";
inline constexpr std::string_view METADATA_SNAPSHOT_MAGIC = "MMMS";
inline constexpr std::string_view METADATA_DURABLE_MAGIC = "MMMD";
inline constexpr std::string_view METADATA_DURABLE_NAME = "durable.mmd";
inline constexpr std::uint8_t METADATA_DURABLE_VERSION = 1;
inline constexpr std::size_t METADATA_DURABLE_BYTES = 17;
inline constexpr std::uint8_t METADATA_FORMAT_VERSION = 1;
inline constexpr std::uint8_t METADATA_HEADER_VERSION = 1;
inline constexpr std::size_t METADATA_LOG_HEAD_BYTES = 6;
inline constexpr std::size_t METADATA_RECORD_HEAD_BYTES = 34;
inline constexpr std::size_t METADATA_RECORD_BYTES_MAX =
    METADATA_RECORD_HEAD_BYTES + MUTATION_PAYLOAD_BYTES_MAX;
inline constexpr std::size_t METADATA_ALIGN_BYTES = 512;
inline constexpr std::size_t METADATA_SNAPSHOT_HEAD_BYTES = 25;

constexpr std::uint64_t metadata_aligned(std::uint64_t bytes) {
    return (bytes + METADATA_ALIGN_BYTES - 1) / METADATA_ALIGN_BYTES * METADATA_ALIGN_BYTES;
}

struct RawMetadataRecord {
    std::uint16_t type = 0;
    MutationId mutation_id;
    LeaderEpoch leader_epoch;
    std::uint64_t timestamp_unix_ms = 0;
    ByteSpan payload;
    std::size_t record_bytes() const { return METADATA_RECORD_HEAD_BYTES + payload.size(); }
};

ByteVector encode_metadata_log_head();
Result<void> check_metadata_log_head(ByteSpan bytes, const std::string& path);
// The record and zeros up to the next multiple of 512.
ByteVector encode_metadata_record(const Mutation& mutation);
// The record at the front of bytes; its payload is not looked into.
Result<RawMetadataRecord> parse_metadata_record(ByteSpan bytes);
Result<Mutation> decode_metadata_record(const RawMetadataRecord& record);

ByteVector encode_metadata_durable(MutationId through);
Result<MutationId> parse_metadata_durable(ByteSpan bytes, const std::string& path);

ByteVector encode_metadata_snapshot(const Catalog& catalog);
Result<Catalog> parse_metadata_snapshot(ByteSpan bytes, const std::string& path);

std::string metadata_log_name(MutationId first);
std::string metadata_snapshot_name(MutationId offset, LeaderEpoch leader_epoch);
// Nothing for any other name.
std::optional<MutationId> parse_metadata_log_name(std::string_view name);
struct MetadataSnapshotName {
    MutationId offset;
    LeaderEpoch leader_epoch;
};
std::optional<MetadataSnapshotName> parse_metadata_snapshot_name(std::string_view name);
// "<digits>" between prefix and suffix, without leading zeros.
std::optional<std::uint64_t> parse_number_between(std::string_view text, std::string_view prefix,
                                                  std::string_view suffix);

}  // namespace mortar
