#include "core/log/index.h"

#include <algorithm>

#include "core/log/record.h"

namespace mortar {
namespace {
bool before(const IndexEntry& entry, Sequence sequence) {
    return entry.sequence < sequence;
}
}  // namespace

bool SparseIndex::add(const IndexEntry& entry) {
    const auto next = std::lower_bound(entries_.begin(), entries_.end(), entry.sequence, before);
    if (next != entries_.end()) {
        if (next->file_offset < entry.file_offset + INDEX_EVERY_BYTES) return false;
    }
    if (next != entries_.begin()) {
        const IndexEntry& previous = *(next - 1);
        if (entry.file_offset < previous.file_offset + INDEX_EVERY_BYTES) return false;
    }
    entries_.insert(next, entry);
    return true;
}

std::optional<IndexEntry> SparseIndex::find(Sequence sequence) const {
    const auto next = std::lower_bound(entries_.begin(), entries_.end(), sequence.next(), before);
    if (next == entries_.begin()) return std::nullopt;
    return *(next - 1);
}

void SparseIndex::remove(Sequence sequence) {
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), sequence, before);
    if (found != entries_.end() && found->sequence == sequence) entries_.erase(found);
}

bool SparseIndex::remove_behind(Sequence sequence) {
    const auto next = std::lower_bound(entries_.begin(), entries_.end(), sequence.next(), before);
    const bool any = next != entries_.end();
    entries_.erase(next, entries_.end());
    return any;
}

void SparseIndex::encode(ByteVector& into) const {
    ByteWriter writer(into);
    for (const IndexEntry& entry : entries_) {
        writer.id(entry.sequence);
        writer.u64(entry.timestamp_unix_ms);
        writer.u32(entry.file_offset);
        writer.u32(entry.record_bytes);
        writer.u64(0);
    }
}

SparseIndex SparseIndex::decode(ByteSpan bytes) {
    SparseIndex index;
    if (bytes.size() % INDEX_ENTRY_BYTES != 0) return {};
    ByteReader reader(bytes);
    while (reader.remaining() > 0) {
        IndexEntry entry;
        entry.sequence = reader.id<Sequence>();
        entry.timestamp_unix_ms = reader.u64();
        entry.file_offset = reader.u32();
        entry.record_bytes = reader.u32();
        const bool zero_tail = reader.u64() == 0;
        if (!zero_tail || entry.sequence.value == 0 || entry.record_bytes < RECORD_FIXED_BYTES)
            return {};
        if (!index.entries_.empty()) {
            const IndexEntry& last = index.entries_.back();
            if (entry.sequence <= last.sequence || entry.file_offset <= last.file_offset) return {};
        }
        index.entries_.push_back(entry);
    }
    return index;
}

}  // namespace mortar
