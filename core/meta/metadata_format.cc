#include "core/meta/metadata_format.h"

#include <charconv>

#include "core/base/hash.h"
#include "core/log/whole_file.h"

namespace mortar {
namespace {
constexpr std::size_t RECORD_LEN_BASE = 30;  // record_len without payload
constexpr std::size_t CRC_END = 8;  // of a record: length and checksum stand before what it covers
// Of the files that are written as a whole.
constexpr std::size_t CRC_AT = 5;
constexpr std::size_t CRC_AT_END = 9;

bool has_magic(ByteSpan bytes, std::string_view magic) {
    return bytes.size() >= magic.size() && as_string_view(bytes.first(magic.size())) == magic;
}
}  // namespace

ByteVector encode_metadata_log_head() {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.bytes(as_byte_span(METADATA_LOG_MAGIC));
    writer.u8(METADATA_FORMAT_VERSION);
    writer.u8(METADATA_HEADER_VERSION);
    MORTAR_ASSERT(bytes.size() == METADATA_LOG_HEAD_BYTES);
    return bytes;
}

Result<void> check_metadata_log_head(ByteSpan bytes, const std::string& path) {
    if (bytes.size() < METADATA_LOG_HEAD_BYTES || !has_magic(bytes, METADATA_LOG_MAGIC)) {
        return make_error(ErrorCode::DAMAGED, path + " does not begin as a metadata log");
    }
    const auto format_version = static_cast<std::uint8_t>(bytes[4]);
    const auto header_version = static_cast<std::uint8_t>(bytes[5]);
    if (format_version != METADATA_FORMAT_VERSION)
        return unsupported_version(path, format_version, METADATA_FORMAT_VERSION);
    if (header_version != METADATA_HEADER_VERSION)
        return unsupported_version(path + " (header)", header_version, METADATA_HEADER_VERSION);
    return {};
}

ByteVector encode_metadata_record(const Mutation& mutation) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.u32(0);  // length and checksum follow when the rest is there
    writer.u32(0);
    writer.u16(mutation_type(mutation.body));
    writer.id(mutation.mutation_id);
    writer.id(mutation.leader_epoch);
    writer.u64(mutation.timestamp_unix_ms);
    MORTAR_ASSERT(bytes.size() == METADATA_RECORD_HEAD_BYTES);
    encode_mutation(bytes, mutation.body);
    MORTAR_ASSERT(bytes.size() <= METADATA_RECORD_BYTES_MAX);
    store_be(bytes.data(), static_cast<std::uint32_t>(bytes.size() - sizeof(std::uint32_t)));
    store_be(bytes.data() + sizeof(std::uint32_t), crc32c(ByteSpan(bytes).subspan(CRC_END)));
    writer.zeros(static_cast<std::size_t>(metadata_aligned(bytes.size())) - bytes.size());
    return bytes;
}

Result<RawMetadataRecord> parse_metadata_record(ByteSpan bytes) {
    ByteReader reader(bytes);
    const std::uint32_t record_len = reader.u32();
    const std::uint32_t checksum = reader.u32();
    if (reader.failed() || record_len == 0)
        return make_error(ErrorCode::TORN_TAIL, "no record here");
    if (record_len < RECORD_LEN_BASE || record_len > RECORD_LEN_BASE + MUTATION_PAYLOAD_BYTES_MAX) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "impossible record length");
    }
    if (record_len + sizeof(std::uint32_t) > bytes.size()) {
        return make_error(ErrorCode::TORN_TAIL, "the record ends early");
    }
    if (crc32c(bytes.subspan(CRC_END, record_len - sizeof(std::uint32_t))) != checksum) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "wrong checksum");
    }
    RawMetadataRecord record;
    record.type = reader.u16();
    record.mutation_id = reader.id<MutationId>();
    record.leader_epoch = reader.id<LeaderEpoch>();
    record.timestamp_unix_ms = reader.u64();
    record.payload = reader.bytes(record_len - RECORD_LEN_BASE);
    MORTAR_ASSERT(!reader.failed());
    return record;
}

Result<Mutation> decode_metadata_record(const RawMetadataRecord& record) {
    Mutation mutation;
    mutation.mutation_id = record.mutation_id;
    mutation.leader_epoch = record.leader_epoch;
    mutation.timestamp_unix_ms = record.timestamp_unix_ms;
    mutation.body = MORTAR_TRY(decode_mutation(record.type, record.payload));
    return mutation;
}

ByteVector encode_metadata_durable(MutationId through) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.bytes(as_byte_span(METADATA_DURABLE_MAGIC));
    writer.u8(METADATA_DURABLE_VERSION);
    writer.u32(0);
    writer.id(through);
    MORTAR_ASSERT(bytes.size() == METADATA_DURABLE_BYTES);
    store_be(bytes.data() + CRC_AT, crc32c(ByteSpan(bytes).subspan(CRC_AT_END)));
    return bytes;
}

Result<MutationId> parse_metadata_durable(ByteSpan bytes, const std::string& path) {
    if (bytes.size() < METADATA_DURABLE_BYTES || !has_magic(bytes, METADATA_DURABLE_MAGIC))
        return make_error(ErrorCode::DAMAGED, path + " is not what was written there");
    const auto version = static_cast<std::uint8_t>(bytes[4]);
    if (version != METADATA_DURABLE_VERSION)
        return unsupported_version(path, version, METADATA_DURABLE_VERSION);
    if (crc32c(bytes.subspan(CRC_AT_END)) != load_be<std::uint32_t>(bytes.data() + CRC_AT))
        return make_error(ErrorCode::CHECKSUM_MISMATCH, path + " has a wrong checksum");
    return ByteReader(bytes.subspan(CRC_AT_END)).id<MutationId>();
}

ByteVector encode_metadata_snapshot(const Catalog& catalog) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.bytes(as_byte_span(METADATA_SNAPSHOT_MAGIC));
    writer.u8(METADATA_FORMAT_VERSION);
    writer.u32(0);
    writer.id(catalog.last_mutation());
    writer.id(catalog.last_leader_epoch());
    MORTAR_ASSERT(bytes.size() == METADATA_SNAPSHOT_HEAD_BYTES);
    catalog.encode(bytes);
    store_be(bytes.data() + CRC_AT, crc32c(ByteSpan(bytes).subspan(CRC_AT_END)));
    return bytes;
}

Result<Catalog> parse_metadata_snapshot(ByteSpan bytes, const std::string& path) {
    if (bytes.size() < METADATA_SNAPSHOT_HEAD_BYTES || !has_magic(bytes, METADATA_SNAPSHOT_MAGIC)) {
        return make_error(ErrorCode::DAMAGED, path + " does not begin as a metadata snapshot");
    }
    const auto version = static_cast<std::uint8_t>(bytes[4]);
    if (version != METADATA_FORMAT_VERSION)
        return unsupported_version(path, version, METADATA_FORMAT_VERSION);
    if (crc32c(bytes.subspan(CRC_AT_END)) != load_be<std::uint32_t>(bytes.data() + CRC_AT)) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, path + " has a wrong checksum");
    }
    ByteReader reader(bytes.subspan(CRC_AT_END));
    const auto offset = reader.id<MutationId>();
    const auto leader_epoch = reader.id<LeaderEpoch>();
    Catalog catalog = MORTAR_TRY(Catalog::decode(reader.rest()));
    if (catalog.last_mutation() != offset || catalog.last_leader_epoch() != leader_epoch) {
        return make_error(ErrorCode::DAMAGED, path + ": its head and its state disagree");
    }
    return catalog;
}

std::string metadata_log_name(MutationId first) {
    return "log-" + std::to_string(first.value) + ".mml";
}

std::string metadata_snapshot_name(MutationId offset, LeaderEpoch leader_epoch) {
    return "mmms-" + std::to_string(offset.value) + "-" + std::to_string(leader_epoch.value) +
           ".bin";
}

std::optional<MutationId> parse_metadata_log_name(std::string_view name) {
    const auto number = parse_number_between(name, "log-", ".mml");
    if (!number.has_value() || *number == 0) return std::nullopt;
    return MutationId(*number);
}

std::optional<MetadataSnapshotName> parse_metadata_snapshot_name(std::string_view name) {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto offset = parse_number_between(name.substr(0, dash), "mmms-", "");
    const auto leader_epoch = parse_number_between(name.substr(dash), "-", ".bin");
    if (!offset.has_value() || !leader_epoch.has_value()) return std::nullopt;
    return MetadataSnapshotName{MutationId(*offset), LeaderEpoch(*leader_epoch)};
}

std::optional<std::uint64_t> parse_number_between(std::string_view text, std::string_view prefix,
                                                  std::string_view suffix) {
    if (text.size() <= prefix.size() + suffix.size() || !text.starts_with(prefix) ||
        !text.ends_with(suffix)) {
        return std::nullopt;
    }
    const std::string_view digits =
        text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
    if (digits.front() == '0' && digits.size() > 1) return std::nullopt;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return number;
}

}  // namespace mortar
