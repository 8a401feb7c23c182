// index: where records stand in a segment, one in about 64 KiB; never more than a hint.
// Shape:    entries ascend by sequence and by file_offset. On disk 32 bytes each: u64 sequence, u64 timestamp_unix_ms, u32
//           file_offset of the length prefix, u32 record bytes with prefix, 8 zero bytes.
// Owns:     its entries.
// Errors:   decode: none; bytes that are no index give an empty one. An entry of zeros is never valid.
// Invariant: an entry says nothing about the log: its record is read and verified before anything is concluded from it.
// Source:   contract 7 (.idx), cases COR-07, COR-12, COR-13.
#pragma once

#include <optional>
#include <vector>

#include "core/base/bytes.h"

namespace mortar {

inline constexpr std::size_t INDEX_ENTRY_BYTES = 32;
inline constexpr std::uint64_t INDEX_EVERY_BYTES = 64u << 10;

struct IndexEntry {
    Sequence sequence;
    std::uint64_t timestamp_unix_ms = 0;
    std::uint32_t file_offset = 0;
    std::uint32_t record_bytes = 0;
    bool operator==(const IndexEntry&) const = default;
};

class SparseIndex {
  public:
    // Takes it when no entry is nearer than INDEX_EVERY_BYTES; in any order. True when taken.
    bool add(const IndexEntry& entry);
    // The last entry at or before sequence.
    std::optional<IndexEntry> find(Sequence sequence) const;
    void remove(Sequence sequence);
    // True when there were any.
    bool remove_behind(Sequence sequence);
    const std::vector<IndexEntry>& entries() const { return entries_; }

    void encode(ByteVector& into) const;
    // Empty unless every entry is well formed and they ascend.
    static SparseIndex decode(ByteSpan bytes);

  private:
    std::vector<IndexEntry> entries_;
};

}  // namespace mortar
