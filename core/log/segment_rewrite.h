// segment_rewrite: a segment with bad records, written anew beside the old file, and put in its place.
// Shape:    the records come from elsewhere, all of the segment, in order. They stand in the new file as one batch. The old
//           file stays as it is until the new one is whole and synced, and is then replaced by its name: a crash leaves the
//           one or the other. The new one may end earlier than the old one; then the checkpoint is taken back first, so that
//           recovery reads everything and sees the gap to what the log still claims.
// Owns:     the new file under "<base>.seg.tmp", which the next rewrite of the segment or the log's removal clears away.
// Errors:   add: CHECKSUM_MISMATCH (not the next records), DIVERGENT_COMMITTED (a sound record of the old file is another
//           one), LIMIT_REACHED (the file would be too large); those of Disk. After an error of put_in_place either file may
//           have the name: open the log again and see.
// Suspends: all that take Fiber&.
// Durable:  the new segment, once put_in_place returned OK.
// Invariant: nobody else writes this log's files between its close, before put_in_place, and its next open.
// Source:   design 3, 4 (Damage).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/env/env.h"
#include "core/log/segment.h"

namespace mortar {

class SegmentRewrite {
  public:
    static Result<SegmentRewrite> begin(Fiber& fiber, Env& env, std::string folder,
                                        const DamagedPart& part);

    // Of the last record added; the one before the segment at first.
    Sequence last() const { return last_; }
    LogEnd end() const { return {last_, last_leader_epoch_}; }
    // What the old part had behind last goes.
    bool ends_earlier() const { return last_ < part_.last; }
    // Whole records, the next ones.
    Result<void> add(Fiber& fiber, ByteSpan records);
    // The file holds all that was added. Nobody sees it yet.
    Result<void> sync(Fiber& fiber);
    // After sync. The log must be closed.
    Result<void> put_in_place(Fiber& fiber);

  private:
    SegmentRewrite(Env& env, std::string folder, const DamagedPart& part)
        : env_(&env),
          folder_(std::move(folder)),
          part_(part),
          last_(part.first.value - 1),
          expected_old_(part.first) {}
    Result<void> compare(Fiber& fiber, Sequence sequence, ByteSpan record);

    Env* env_;
    std::string folder_;
    DamagedPart part_;
    std::unique_ptr<File> file_;
    std::optional<RecordScan> old_;  // up to its first bad record
    Sequence last_;
    Sequence expected_old_;
    LeaderEpoch last_leader_epoch_;
    std::uint64_t end_offset_ = SEGMENT_HEAD_BYTES;
};

}  // namespace mortar
