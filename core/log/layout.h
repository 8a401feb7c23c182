// layout: where records stand in a log file, so that a power loss can neither harm nor imitate a synced record.
// Shape:    A batch is what one write and one sync made durable together. It starts at a multiple of SECTOR_BYTES (the first
//           one of a file directly behind the file's head); its records stand back to back. The bytes from its end to the
//           start of the next batch are zero, at least 4 of them or none. Where a record that is not the first of its batch
//           would start at a multiple of SECTOR_BYTES, 8 zero bytes stand before it. Hence:
//             a record starts at a multiple of SECTOR_BYTES, or directly behind the head, if and only if it is the first
//             of its batch.
//           A reader that meets record_len 0 at file_offset goes on at place_after_zero(file_offset); a record_len of 0
//           there too is the end. Files whose records all stand back to back are read by the same rule.
// Why:      A disk writes sectors, and one that is written while the power fails may hold anything afterwards. No write ever
//           touches a sector that an earlier sync covered, so no failing write can take an acknowledged record with it.
//           And a batch is written only after the sync of the one before returned: the first record of a batch is evidence
//           that all records before it were synced, so what is bad before it is damage, not an unfinished write.
// Source:   contract 7 (record_len 0 is never a record), design 3 (recovery) and 6 (disk model).
#pragma once

#include <cstdint>

namespace mortar {

inline constexpr std::uint64_t SECTOR_BYTES = 512;
inline constexpr std::uint64_t GAP_BYTES_MIN = 4;  // so that a gap reads as record_len 0
inline constexpr std::uint64_t INNER_GAP_BYTES = 8;

constexpr std::uint64_t sector_floor(std::uint64_t file_offset) {
    return file_offset / SECTOR_BYTES * SECTOR_BYTES;
}
constexpr std::uint64_t sector_ceil(std::uint64_t file_offset) {
    return sector_floor(file_offset + SECTOR_BYTES - 1);
}
// Where the next batch starts in a file whose records end at file_offset.
constexpr std::uint64_t batch_start_after(std::uint64_t file_offset) {
    const std::uint64_t start = sector_ceil(file_offset);
    return start == file_offset ? start : sector_ceil(file_offset + GAP_BYTES_MIN);
}
// Where the next record may stand when record_len at file_offset is 0.
constexpr std::uint64_t place_after_zero(std::uint64_t file_offset) {
    return file_offset % SECTOR_BYTES == 0 ? file_offset + INNER_GAP_BYTES
                                           : sector_ceil(file_offset + GAP_BYTES_MIN);
}
constexpr bool starts_batch(std::uint64_t file_offset, std::uint64_t head_bytes) {
    return file_offset % SECTOR_BYTES == 0 || file_offset == head_bytes;
}

}  // namespace mortar
