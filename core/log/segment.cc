#include "core/log/segment.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/log/whole_file.h"

namespace mortar {
namespace {

constexpr std::size_t NAME_DIGITS = 20;
constexpr std::string_view SEGMENT_SUFFIX = ".seg";
constexpr std::string_view INDEX_SUFFIX = ".idx";

std::string log_file_name(Sequence base_sequence, std::string_view suffix) {
    const std::string digits = std::to_string(base_sequence.value);
    std::string name(NAME_DIGITS - digits.size(), '0');
    return name.append(digits).append(suffix);
}

std::size_t first_nonzero(ByteSpan bytes) {
    std::size_t i = 0;
    for (; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i, sizeof word);
        if (word != 0) break;
    }
    while (i < bytes.size() && bytes[i] == std::byte{0})
        ++i;
    return i;
}

}  // namespace

std::string segment_file_name(Sequence base_sequence) {
    return log_file_name(base_sequence, SEGMENT_SUFFIX);
}

std::string index_file_name(Sequence base_sequence) {
    return log_file_name(base_sequence, INDEX_SUFFIX);
}

std::optional<Sequence> parse_log_file_name(std::string_view name, std::string_view suffix) {
    if (name.size() != NAME_DIGITS + suffix.size() || !name.ends_with(suffix)) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : name.substr(0, NAME_DIGITS)) {
        if (c < '0' || c > '9') return std::nullopt;
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
        value = value * 10 + digit;
    }
    if (value == 0) return std::nullopt;
    return Sequence(value);
}

std::array<std::byte, SEGMENT_HEAD_BYTES> segment_head() {
    std::array<std::byte, SEGMENT_HEAD_BYTES> head{};
    const ByteSpan magic = as_byte_span(SEGMENT_MAGIC);
    std::copy(magic.begin(), magic.end(), head.begin());
    head[4] = std::byte{SEGMENT_FORMAT_VERSION};
    head[5] = std::byte{SEGMENT_HEADER_VERSION};
    return head;
}

Result<Record> parse_next_record(ByteSpan bytes, const LogEnd& previous,
                                 const std::string& log_name) {
    const auto not_next = [&](const std::string& what) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, log_name + ": not the record after " +
                                                            std::to_string(previous.last.value) +
                                                            ": " + what);
    };
    Result<Record> record = parse_record(bytes);
    if (!record.ok()) return not_next(record.error().detail);
    if (record->sequence != previous.last.next())
        return not_next("sequence " + std::to_string(record->sequence.value));
    if (record->leader_epoch < previous.leader_epoch) return not_next("its leader_epoch falls");
    return record;
}

Result<bool> check_segment_head(ByteSpan bytes, const std::string& path) {
    if (bytes.size() < SEGMENT_HEAD_BYTES) return false;
    if (as_string_view(bytes.first(SEGMENT_MAGIC.size())) != SEGMENT_MAGIC) return false;
    const auto format_version = static_cast<std::uint8_t>(bytes[4]);
    const auto header_version = static_cast<std::uint8_t>(bytes[5]);
    if (format_version != SEGMENT_FORMAT_VERSION) {
        return unsupported_version(path, format_version, SEGMENT_FORMAT_VERSION);
    }
    if (header_version != SEGMENT_HEADER_VERSION) {
        return unsupported_version(path + " (header)", header_version, SEGMENT_HEADER_VERSION);
    }
    return true;
}

// --- RecordScan

Result<std::optional<RecordScan::Found>> RecordScan::next(Fiber& fiber, Sequence expected) {
    std::uint64_t at = place_;
    const ByteSpan length = MORTAR_TRY(view(fiber, at, RECORD_LEN_FIELD_BYTES));
    if (length.size() == RECORD_LEN_FIELD_BYTES && load_be<std::uint32_t>(length.data()) == 0) {
        at = place_after_zero(at);
    }
    std::optional<Found> found = MORTAR_TRY(record_at(fiber, at));
    if (!found || found->record.sequence != expected) return std::optional<Found>();
    place_ = found->end_offset;
    return found;
}

Result<std::optional<RecordScan::Found>> RecordScan::search(Fiber& fiber, Sequence low,
                                                            Sequence high, bool only_batch_starts,
                                                            std::uint64_t end_offset) {
    const std::uint64_t step = only_batch_starts ? SECTOR_BYTES : 1;
    for (std::uint64_t at = only_batch_starts ? sector_ceil(place_) : place_; at < end_offset;) {
        const ByteSpan bytes = MORTAR_TRY(view(fiber, at, block_bytes_));
        if (bytes.size() < RECORD_FIXED_BYTES) break;
        // Looked at while the view lives; what looks right is read whole, which ends the view.
        std::size_t i = 0;
        bool candidate = false;
        while (!candidate && i + RECORD_FIXED_BYTES <= bytes.size() && at + i < end_offset) {
            candidate = looks_like_record(bytes.subspan(i));
            if (candidate) break;
            i += step;
            const std::size_t zeros = i < bytes.size() ? first_nonzero(bytes.subspan(i)) : 0;
            if (zeros > RECORD_FIXED_BYTES) {  // a fixed part of zeros only is no record
                const std::size_t skip = zeros - RECORD_FIXED_BYTES;
                i += skip / step * step;
            }
        }
        at += i;
        if (!candidate) continue;
        std::optional<Found> found = MORTAR_TRY(record_at(fiber, at));
        if (found && found->record.sequence >= low && found->record.sequence <= high &&
            sequence_distance(low, found->record.sequence) <=
                (at - place_) / RECORD_FIXED_BYTES + 1) {
            place_ = found->end_offset;
            return found;
        }
        at += step;
    }
    return std::optional<Found>();
}

Result<bool> RecordScan::anything_behind(Fiber& fiber) {
    for (std::uint64_t at = place_;;) {
        const ByteSpan bytes = MORTAR_TRY(view(fiber, at, block_bytes_));
        if (bytes.empty()) return false;
        if (first_nonzero(bytes) < bytes.size()) return true;
        at += bytes.size();
    }
}

Result<ByteSpan> RecordScan::view(Fiber& fiber, std::uint64_t file_offset, std::size_t size_bytes) {
    const auto held_at = [&]() -> ByteSpan {
        if (block_ == nullptr || file_offset < block_offset_) return {};
        const std::uint64_t skip = file_offset - block_offset_;
        if (skip >= block_->size()) return {};
        return ByteSpan(*block_).subspan(static_cast<std::size_t>(skip));
    };
    const ByteSpan held = held_at();
    if (held.size() >= size_bytes) return held.first(size_bytes);
    // A new block: records found in the old one may still be in use.
    auto block = std::make_shared<ByteVector>(std::max(size_bytes, block_bytes_));
    const std::size_t count = MORTAR_TRY(file_->read_at(fiber, file_offset, *block));
    block->resize(count);
    bytes_read_ += count;
    block_ = std::move(block);
    block_offset_ = file_offset;
    return ByteSpan(*block_).first(std::min(size_bytes, count));
}

Result<std::optional<RecordScan::Found>> RecordScan::record_at(Fiber& fiber,
                                                               std::uint64_t file_offset) {
    ByteSpan bytes = MORTAR_TRY(view(fiber, file_offset, RECORD_FIXED_BYTES));
    if (!looks_like_record(bytes)) return std::optional<Found>();
    const std::size_t size_bytes = RECORD_LEN_FIELD_BYTES + load_be<std::uint32_t>(bytes.data());
    bytes = MORTAR_TRY(view(fiber, file_offset, size_bytes));
    const Result<Record> record = parse_record(bytes);
    if (!record.ok()) return std::optional<Found>();
    return std::optional<Found>(
        Found{*record, file_offset, file_offset + size_bytes, bytes, block_});
}

// --- files

Result<NewSegment> create_segment(Fiber& fiber, Disk& disk, const std::string& folder,
                                  Sequence base_sequence, ByteSpan records) {
    ByteVector bytes;
    const auto head = segment_head();
    bytes.insert(bytes.end(), head.begin(), head.end());
    for (Sequence expected = base_sequence; !records.empty(); expected = expected.next()) {
        const Result<Record> record = parse_record(records);
        MORTAR_ASSERT(record.ok() && record->sequence == expected);
        if (bytes.size() % SECTOR_BYTES == 0) bytes.resize(bytes.size() + INNER_GAP_BYTES);
        const ByteSpan one = records.first(record_bytes(*record));
        bytes.insert(bytes.end(), one.begin(), one.end());
        records = records.subspan(one.size());
    }
    NewSegment made;
    made.end_offset = bytes.size();
    if (made.end_offset > SEGMENT_HEAD_BYTES) {
        bytes.resize(static_cast<std::size_t>(batch_start_after(made.end_offset)));
    }
    made.file =
        MORTAR_TRY(replace_file(fiber, disk, folder, segment_file_name(base_sequence), bytes));
    return made;
}

// --- Segment

Result<std::shared_ptr<File>> Segment::file(Fiber& fiber) {
    if (file_ == nullptr) {
        std::shared_ptr<File> opened = MORTAR_TRY(disk_.open(fiber, path(), OpenMode::READ));
        if (file_ == nullptr) file_ = std::move(opened);  // another fiber may have been faster
    }
    return file_;
}

void Segment::note_record(const Record& record, std::uint64_t file_offset) {
    if (file_offset > SEGMENT_BYTES_MAX) return;
    IndexEntry entry;
    entry.sequence = record.sequence;
    entry.timestamp_unix_ms = record.timestamp_unix_ms;
    entry.file_offset = static_cast<std::uint32_t>(file_offset);
    entry.record_bytes = static_cast<std::uint32_t>(record_bytes(record));
    if (index_.add(entry)) index_changed_ = true;
}

Result<RecordBatch> Segment::read(Fiber& fiber, Sequence from, Sequence last,
                                  std::uint64_t bytes_max) {
    RecordBatch batch;
    MORTAR_TRY(read_each(fiber, from, last, bytes_max, [&batch](const RecordScan::Found& found) {
        if (batch.owners.empty() || batch.owners.back() != found.owner)
            batch.owners.push_back(found.owner);
        batch.records.push_back(found.record);
    }));
    return batch;
}

Result<RecordBytes> Segment::read_bytes(Fiber& fiber, Sequence from, Sequence last,
                                        std::uint64_t bytes_max) {
    RecordBytes bytes;
    MORTAR_TRY(read_each(fiber, from, last, bytes_max, [&bytes](const RecordScan::Found& found) {
        bytes.add(found.record.sequence, found.bytes, found.owner);
    }));
    return bytes;
}

template <class Take>
Result<void> Segment::read_each(Fiber& fiber, Sequence from, Sequence last, std::uint64_t bytes_max,
                                const Take& take) {
    MORTAR_ASSERT(from >= base_sequence_ && from <= last);
    const std::size_t block_bytes = static_cast<std::size_t>(
        std::clamp<std::uint64_t>(bytes_max, SCAN_BLOCK_BYTES_MIN, SCAN_BLOCK_BYTES_MAX));
    RecordScan scan = MORTAR_TRY(scan_at(fiber, from, block_bytes));
    std::uint64_t bytes = 0;
    Sequence sequence = from;
    while (sequence <= last && (sequence == from || bytes < bytes_max)) {
        const auto found = MORTAR_TRY(scan.next(fiber, sequence));
        if (!found) {
            // What was read before the bad place is good; the next read meets it first.
            if (sequence == from) return mismatch(sequence, scan.place());
            break;
        }
        note_record(found->record, found->file_offset);
        bytes += found->end_offset - found->file_offset;
        take(*found);
        sequence = sequence.next();
    }
    recent_[next_recent_] = {sequence, scan.place()};
    next_recent_ = (next_recent_ + 1) % RECENT_COUNT;
    return {};
}

Result<std::optional<Segment::Located>> Segment::locate(Fiber& fiber, Sequence sequence) {
    Result<RecordScan> scan = scan_at(fiber, sequence, SCAN_BLOCK_BYTES_MIN);
    if (scan.is(ErrorCode::CHECKSUM_MISMATCH)) return std::optional<Located>();
    if (!scan.ok()) return std::move(scan).error();
    const auto found = MORTAR_TRY(scan->next(fiber, sequence));
    if (!found) return std::optional<Located>();
    return std::optional<Located>(Located{found->end_offset, found->record.leader_epoch});
}

void Segment::forget_behind(Sequence last) {
    if (index_.remove_behind(last)) index_changed_ = true;
}

Result<void> Segment::save_index(Fiber& fiber) {
    if (!index_changed_) return {};
    MORTAR_TRY(load_index(fiber));
    ByteVector bytes;
    index_.encode(bytes);
    index_changed_ = false;
    MORTAR_TRY(replace_file(fiber, disk_, folder_, index_file_name(base_sequence_), bytes,
                            Durability::UNSYNCED));
    return {};
}

Result<RecordScan> Segment::scan_at(Fiber& fiber, Sequence from, std::size_t block_bytes) {
    const std::shared_ptr<File> opened = MORTAR_TRY(file(fiber));
    MORTAR_TRY(load_index(fiber));
    for (const Position& position : recent_) {
        if (position.sequence != from || position.file_offset == 0) continue;
        return RecordScan(opened, position.file_offset, block_bytes);
    }
    while (true) {
        const std::optional<IndexEntry> hint = index_.find(from);
        Sequence sequence = hint ? hint->sequence : base_sequence_;
        RecordScan scan(opened, hint ? hint->file_offset : SEGMENT_HEAD_BYTES, block_bytes);
        bool is_hint = hint.has_value();
        while (sequence < from) {
            const auto found = MORTAR_TRY(scan.next(fiber, sequence));
            if (found) {
                note_record(found->record, found->file_offset);
                sequence = sequence.next();
                is_hint = false;
                continue;
            }
            if (is_hint) break;
            // A damaged record costs no other: go on at the next one that is whole.
            const auto later =
                MORTAR_TRY(scan.search(fiber, sequence.next(), from, false, UINT64_MAX));
            if (!later) return mismatch(sequence, scan.place());
            MORTAR_SOMETIMES(true, "log: read past a damaged record");
            sequence = later->record.sequence;
            scan.set_place(later->file_offset);
        }
        if (sequence == from) {
            if (!is_hint) return scan;
            const std::uint64_t place = scan.place();
            if (MORTAR_TRY(scan.next(fiber, sequence))) {
                scan.set_place(place);
                return scan;
            }
        }
        // The index names a record that is not there: believe the segment, not the index.
        MORTAR_SOMETIMES(true, "log: wrong index entry dropped");
        index_.remove(hint->sequence);
        index_changed_ = true;
    }
}

Result<void> Segment::load_index(Fiber& fiber) {
    if (index_loaded_) return {};
    const std::string index_path = folder_ + "/" + index_file_name(base_sequence_);
    constexpr std::size_t INDEX_BYTES_MAX =
        INDEX_ENTRY_BYTES * (SEGMENT_BYTES_MAX / INDEX_EVERY_BYTES + 1);
    const Result<ByteVector> bytes = read_file_start(fiber, disk_, index_path, INDEX_BYTES_MAX);
    if (index_loaded_) return {};  // by another fiber meanwhile
    index_loaded_ = true;
    // Unreadable, damaged or absent: reads scan and find the entries again.
    if (!bytes.ok()) {
        index_changed_ = true;
        return {};
    }
    const SparseIndex loaded = SparseIndex::decode(*bytes);
    if (loaded.entries().empty()) index_changed_ = true;
    for (const IndexEntry& entry : loaded.entries()) {
        if (entry.sequence >= base_sequence_ && entry.file_offset >= SEGMENT_HEAD_BYTES)
            index_.add(entry);
    }
    return {};
}

Error Segment::mismatch(Sequence sequence, std::uint64_t file_offset) {
    mismatched_ = sequence;
    return make_error(ErrorCode::CHECKSUM_MISMATCH, path() + ": record " +
                                                        std::to_string(sequence.value) + " at " +
                                                        std::to_string(file_offset));
}

}  // namespace mortar
