// checkpoint: MMQC, where recovery starts: everything before it is known durable.
// Shape:   21 bytes: magic, u8 version 1, u32 crc32c of the 12 bytes after it, u64 next_sequence, u32 durable_offset: where
//          record next_sequence - 1 ends, counted from the end of the head of the segment that holds it.
// Owns:    nothing.
// Errors:  read_checkpoint: UNSUPPORTED_FORMAT naming path and version, IO_ERROR. A damaged file reads as absent: it only
//          costs a longer recovery.
// Suspends: both.   Durable: the checkpoint once write_checkpoint returns OK; the old one stands until then.
// Source:  contract 7 (MMQC), core-concepts 13.
#pragma once

#include <optional>
#include <string>

#include "core/env/disk.h"

namespace mortar {

inline constexpr std::size_t CHECKPOINT_BYTES = 21;
inline constexpr std::uint8_t CHECKPOINT_VERSION = 1;
inline constexpr std::string_view CHECKPOINT_MAGIC = "MMQC";
inline constexpr std::string_view CHECKPOINT_FILE_NAME = "checkpoint.mqc";

struct Checkpoint {
    Sequence next_sequence{1};
    std::uint32_t durable_offset = 0;
    bool operator==(const Checkpoint&) const = default;
};

void encode_checkpoint(ByteVector& into, const Checkpoint& checkpoint);
// path: for errors. CHECKSUM_MISMATCH, UNSUPPORTED_FORMAT.
Result<Checkpoint> decode_checkpoint(ByteSpan bytes, const std::string& path);

Result<std::optional<Checkpoint>> read_checkpoint(Fiber& fiber, Disk& disk,
                                                  const std::string& folder);
Result<void> write_checkpoint(Fiber& fiber, Disk& disk, const std::string& folder,
                              const Checkpoint& checkpoint);

}  // namespace mortar
