#include "core/log/segment_rewrite.h"

#include <algorithm>

#include "core/log/checkpoint.h"
#include "core/log/whole_file.h"

namespace mortar {
namespace {

std::string tmp_name(Sequence base_sequence) {
    return segment_file_name(base_sequence) + std::string(TMP_SUFFIX);
}

}  // namespace

Result<SegmentRewrite> SegmentRewrite::begin(Fiber& fiber, Env& env, std::string folder,
                                             const DamagedPart& part) {
    SegmentRewrite rewrite(env, std::move(folder), part);
    Result<std::unique_ptr<File>> old = env.disk.open(
        fiber, join_path(rewrite.folder_, segment_file_name(part.first)), OpenMode::READ);
    if (old.ok()) {
        rewrite.old_.emplace(std::move(old).value(), SEGMENT_HEAD_BYTES);
    } else if (!old.is(ErrorCode::NOT_FOUND)) {
        return std::move(old).error();
    }
    const auto head = segment_head();
    rewrite.file_ =
        MORTAR_TRY(write_new_file(fiber, env.disk, join_path(rewrite.folder_, tmp_name(part.first)),
                                  head, Durability::UNSYNCED));
    return rewrite;
}

Result<void> SegmentRewrite::add(Fiber& fiber, ByteSpan records) {
    ByteVector bytes;
    const std::uint64_t from_offset = end_offset_;
    while (!records.empty()) {
        const Record record =
            MORTAR_TRY(parse_next_record(records, {last_, last_leader_epoch_}, folder_));
        const ByteSpan one = records.first(record_bytes(record));
        MORTAR_TRY(compare(fiber, record.sequence, one));
        if ((from_offset + bytes.size()) % SECTOR_BYTES == 0)
            bytes.resize(bytes.size() + INNER_GAP_BYTES);
        bytes.insert(bytes.end(), one.begin(), one.end());
        last_ = record.sequence;
        last_leader_epoch_ = record.leader_epoch;
        records = records.subspan(one.size());
    }
    end_offset_ = from_offset + bytes.size();
    if (batch_start_after(end_offset_) > SEGMENT_BYTES_MAX)
        return make_error(ErrorCode::LIMIT_REACHED, folder_ + ": too much for one segment");
    const ByteSpan part(bytes);
    return file_->write_at(fiber, from_offset, std::span(&part, 1));
}

// It is the same log, or not to be touched.
Result<void> SegmentRewrite::compare(Fiber& fiber, Sequence sequence, ByteSpan record) {
    if (!old_ || expected_old_ != sequence) return {};
    const auto found = MORTAR_TRY(old_->next(fiber, sequence));
    if (!found) return {};
    expected_old_ = sequence.next();
    if (std::ranges::equal(found->bytes, record)) return {};
    return make_error(ErrorCode::DIVERGENT_COMMITTED, folder_ + ": record " +
                                                          std::to_string(sequence.value) +
                                                          " is sound here and another one there");
}

Result<void> SegmentRewrite::sync(Fiber& fiber) {
    // As behind every batch.
    const ByteVector zeros(static_cast<std::size_t>(batch_start_after(end_offset_) - end_offset_));
    const ByteSpan part(zeros);
    MORTAR_TRY(file_->write_at(fiber, end_offset_, std::span(&part, 1)));
    return file_->sync_data(fiber);
}

Result<void> SegmentRewrite::put_in_place(Fiber& fiber) {
    MORTAR_ASSERT(last_ >= part_.first && last_ <= part_.last);
    Disk& disk = env_->disk;
    if (ends_earlier()) MORTAR_TRY(write_checkpoint(fiber, disk, folder_, {Sequence(1), 0}));
    // A hint to places in the old file.
    const Result<void> removed =
        disk.remove(fiber, join_path(folder_, index_file_name(part_.first)));
    if (!removed.ok() && !removed.is(ErrorCode::NOT_FOUND)) return removed;
    MORTAR_TRY(
        publish_file(fiber, disk, folder_, tmp_name(part_.first), segment_file_name(part_.first)));
    if (!part_.is_at_end || ends_earlier()) return {};
    // Where recovery would start has moved with the records.
    return write_checkpoint(
        fiber, disk, folder_,
        {last_.next(), static_cast<std::uint32_t>(end_offset_ - SEGMENT_HEAD_BYTES)});
}

}  // namespace mortar
