#include "core/log/checkpoint.h"

#include "core/base/hash.h"
#include "core/log/whole_file.h"

namespace mortar {
namespace {
constexpr std::size_t CHECKED_OFFSET = 9;
}

void encode_checkpoint(ByteVector& into, const Checkpoint& checkpoint) {
    ByteVector checked;
    ByteWriter body(checked);
    body.id(checkpoint.next_sequence);
    body.u32(checkpoint.durable_offset);
    ByteWriter writer(into);
    writer.bytes(as_byte_span(CHECKPOINT_MAGIC));
    writer.u8(CHECKPOINT_VERSION);
    writer.u32(crc32c(checked));
    writer.bytes(checked);
}

Result<Checkpoint> decode_checkpoint(ByteSpan bytes, const std::string& path) {
    ByteReader reader(bytes);
    const ByteSpan magic = reader.bytes(CHECKPOINT_MAGIC.size());
    const std::uint8_t version = reader.u8();
    const std::uint32_t crc = reader.u32();
    Checkpoint checkpoint;
    checkpoint.next_sequence = reader.id<Sequence>();
    checkpoint.durable_offset = reader.u32();
    if (as_string_view(magic) != CHECKPOINT_MAGIC) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, path + ": not a checkpoint");
    }
    if (bytes.size() > CHECKPOINT_MAGIC.size() && version != CHECKPOINT_VERSION) {
        return unsupported_version(path, version, CHECKPOINT_VERSION);
    }
    if (!reader.finished() || crc32c(bytes.subspan(CHECKED_OFFSET)) != crc ||
        checkpoint.next_sequence.value == 0) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, path + ": damaged checkpoint");
    }
    return checkpoint;
}

Result<std::optional<Checkpoint>> read_checkpoint(Fiber& fiber, Disk& disk,
                                                  const std::string& folder) {
    const std::string path = folder + "/" + std::string(CHECKPOINT_FILE_NAME);
    // One byte more than it has, to see that it ends there.
    Result<ByteVector> bytes = read_file_start(fiber, disk, path, CHECKPOINT_BYTES + 1);
    if (bytes.is(ErrorCode::NOT_FOUND)) return std::optional<Checkpoint>();
    if (!bytes.ok()) return std::move(bytes).error();
    Result<Checkpoint> checkpoint = decode_checkpoint(*bytes, path);
    MORTAR_SOMETIMES(checkpoint.is(ErrorCode::CHECKSUM_MISMATCH),
                     "log: damaged checkpoint ignored");
    if (checkpoint.is(ErrorCode::CHECKSUM_MISMATCH)) return std::optional<Checkpoint>();
    if (!checkpoint.ok()) return std::move(checkpoint).error();
    return std::optional<Checkpoint>(*checkpoint);
}

Result<void> write_checkpoint(Fiber& fiber, Disk& disk, const std::string& folder,
                              const Checkpoint& checkpoint) {
    ByteVector bytes;
    encode_checkpoint(bytes, checkpoint);
    MORTAR_ASSERT(bytes.size() == CHECKPOINT_BYTES);
    MORTAR_TRY(replace_file(fiber, disk, folder, std::string(CHECKPOINT_FILE_NAME), bytes));
    return {};
}

}  // namespace mortar
