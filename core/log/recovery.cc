#include "core/log/recovery.h"

#include <algorithm>
#include <utility>

#include "core/log/checkpoint.h"

namespace mortar {
namespace {

struct Listed {
    Sequence base_sequence;
    std::uint64_t size_bytes = 0;
    bool has_head = false;
};

class Recovery {
  public:
    Recovery(Env& env, std::string folder, const std::function<Result<void>(Fiber&)>& before_repair,
             const KnownSynced& known)
        : env_(env), folder_(std::move(folder)), before_repair_(before_repair), known_(known) {}

    Result<RecoveredLog> run(Fiber& fiber) {
        MORTAR_TRY(list_segments(fiber));
        // All heads first: a file of a newer program is refused before anything is changed.
        MORTAR_TRY(check_heads(fiber));
        const std::optional<Checkpoint> checkpoint =
            MORTAR_TRY(read_checkpoint(fiber, env_.disk, folder_));
        if (checkpoint) log_.checkpointed_next = checkpoint->next_sequence;
        if (listed_.empty()) {
            if (log_.checkpointed_next > Sequence(1) || known_.end.last > Sequence(0))
                found_damage(Sequence(1), "all segments are gone");
            claim(log_.checkpointed_next);
            claim_known();
            return std::move(log_);
        }
        // A process that died between rename and sync left a name that a power loss still takes away, with all that would be
        // appended to the file. A checkpoint behind the last name says that the name was durable before it.
        if (log_.checkpointed_next <= listed_.back().base_sequence) {
            MORTAR_TRY(env_.disk.sync_folder(fiber, folder_));
        }
        MORTAR_TRY(find_start(fiber, checkpoint));
        while (!log_.faulty_from && !finished_)
            MORTAR_TRY(walk_segment(fiber));
        if (log_.faulty_from) {
            MORTAR_TRY(find_claim(fiber));
        } else {
            MORTAR_SOMETIMES(has_remains_ && known_.is_all, "log: torn tail that was never told");
            log_.is_tail_torn = has_remains_ && !known_.is_all;
            if (log_.is_tail_torn && before_repair_) MORTAR_TRY(before_repair_(fiber));
            MORTAR_TRY(secure_last_batch(fiber));
        }
        for (const Listed& listed : listed_)
            log_.size_bytes += listed.size_bytes;
        for (const auto& segment : log_.segments)
            segment->close_file();
        return std::move(log_);
    }

  private:
    Result<void> list_segments(Fiber& fiber) {
        const auto entries = env_.disk.list(fiber, folder_);
        if (entries.is(ErrorCode::NOT_FOUND)) return {};
        if (!entries.ok()) return entries.error();
        for (const DirEntry& entry : *entries) {
            const auto base =
                entry.is_folder ? std::nullopt : parse_log_file_name(entry.name, ".seg");
            if (base) listed_.push_back({*base, entry.size_bytes, false});
        }
        std::sort(listed_.begin(), listed_.end(), [](const Listed& a, const Listed& b) {
            return a.base_sequence < b.base_sequence;
        });
        for (const Listed& listed : listed_) {
            log_.segments.push_back(
                std::make_shared<Segment>(env_.disk, folder_, listed.base_sequence));
        }
        return {};
    }

    Result<void> check_heads(Fiber& fiber) {
        for (std::size_t i = 0; i < listed_.size(); ++i) {
            const std::string path = log_.segments[i]->path();
            const auto file = MORTAR_TRY(env_.disk.open(fiber, path, OpenMode::READ));
            std::array<std::byte, SEGMENT_HEAD_BYTES> head;
            const std::size_t count = MORTAR_TRY(file->read_at(fiber, 0, head));
            log_.read_bytes += count;
            listed_[i].has_head = MORTAR_TRY(check_segment_head(ByteSpan(head).first(count), path));
        }
        return {};
    }

    // The checkpoint is believed if the record before it ends where it says; else everything is read.
    Result<void> find_start(Fiber& fiber, const std::optional<Checkpoint>& checkpoint) {
        if (listed_.front().base_sequence != Sequence(1)) {
            found_damage(Sequence(1), "the first segment is gone");
            return {};
        }
        for (std::size_t i = 0; i + 1 < listed_.size(); ++i) {
            if (listed_[i].has_head) continue;
            found_damage(listed_[i].base_sequence, log_.segments[i]->path() + ": no segment head");
            return {};
        }
        segment_ = 0;
        next_ = Sequence(1);
        place_ = SEGMENT_HEAD_BYTES;
        if (!checkpoint || checkpoint->next_sequence == Sequence(1)) return {};
        const Sequence last_durable(checkpoint->next_sequence.value - 1);
        const std::size_t holder = segment_of(last_durable);
        if (!listed_[holder].has_head) return {};
        const auto last = MORTAR_TRY(log_.segments[holder]->locate(fiber, last_durable));
        if (!last || last->end_offset != SEGMENT_HEAD_BYTES + checkpoint->durable_offset) {
            MORTAR_SOMETIMES(true, "log: checkpoint does not fit, all is read");
            return {};
        }
        segment_ = holder;
        next_ = checkpoint->next_sequence;
        place_ = last->end_offset;
        log_.last_leader_epoch = last->leader_epoch;
        return {};
    }

    std::size_t segment_of(Sequence sequence) const {
        std::size_t i = 0;
        while (i + 1 < listed_.size() && listed_[i + 1].base_sequence <= sequence)
            ++i;
        return i;
    }

    Result<void> walk_segment(Fiber& fiber) {
        Segment& segment = *log_.segments[segment_];
        const bool is_last = segment_ + 1 == listed_.size();
        const Sequence end = is_last ? Sequence(UINT64_MAX) : listed_[segment_ + 1].base_sequence;
        batch_first_ = next_;
        batch_place_ = place_;
        RecordScan scan(MORTAR_TRY(segment.file(fiber)), place_, SCAN_BLOCK_BYTES_MAX);
        while (next_ < end && listed_[segment_].has_head) {
            const auto found = MORTAR_TRY(scan.next(fiber, next_));
            if (!found) break;
            segment.note_record(found->record, found->file_offset);
            log_.last_leader_epoch = found->record.leader_epoch;
            if (starts_batch(found->file_offset, SEGMENT_HEAD_BYTES)) {
                batch_first_ = next_;
                batch_place_ = found->file_offset;
            }
            next_ = next_.next();
        }
        place_ = scan.place();
        // In a segment without a record the last one ended in the segment before.
        if (next_ > listed_[segment_].base_sequence) {
            log_.end_segment = segment_;
            log_.end_offset = place_;
        }
        if (next_ == end) {
            log_.read_bytes += scan.bytes_read();
            segment.close_file();
            ++segment_;
            place_ = SEGMENT_HEAD_BYTES;
            return {};
        }
        if (!is_last) {
            found_damage(next_, segment.path() + ": a later segment exists");
        } else {
            MORTAR_TRY(judge_tail(fiber, scan, segment));
        }
        log_.read_bytes += scan.bytes_read();
        return {};
    }

    // No valid record next_ at place_ in the last segment: the end, a torn tail, or damage?
    Result<void> judge_tail(Fiber& fiber, RecordScan& scan, const Segment& segment) {
        finished_ = true;
        if (next_ < log_.checkpointed_next) {
            found_damage(next_, segment.path() + ": bad record below the checkpoint");
            return {};
        }
        if (next_ <= known_.end.last) {
            MORTAR_SOMETIMES(true, "log: bad record that this process has synced");
            found_damage(next_, segment.path() + ": bad record that was synced");
            return {};
        }
        if (!listed_[segment_].has_head) {
            // Only the write of the first batch can have torn the head's sector, and then the record in it is torn too.
            if (MORTAR_TRY(scan.next(fiber, next_))) {
                found_damage(next_, segment.path() + ": no segment head");
                return {};
            }
            scan.set_place(0);
            has_remains_ = true;
        } else {
            has_remains_ = MORTAR_TRY(scan.anything_behind(fiber));
            if (!has_remains_) return {};
        }
        const std::uint64_t torn_at = scan.place();
        const auto evidence =
            MORTAR_TRY(scan.search(fiber, next_, Sequence(UINT64_MAX), true, UINT64_MAX));
        if (evidence) {
            found_damage(next_,
                         segment.path() + ": no valid record at " + std::to_string(torn_at) +
                             ", but record " + std::to_string(evidence->record.sequence.value) +
                             " started a later batch at " + std::to_string(evidence->file_offset));
            return {};
        }
        MORTAR_SOMETIMES(true, "log: torn tail left behind");
        log_.cut_tail_bytes =
            listed_[segment_].size_bytes - std::min(listed_[segment_].size_bytes, torn_at);
        return {};
    }

    Result<void> secure_last_batch(Fiber& fiber) {
        const bool is_known_durable = next_ == batch_first_ || next_ <= log_.checkpointed_next;
        const bool is_empty = listed_[segment_].base_sequence == next_;
        log_.next_sequence = next_;
        if (is_known_durable) {
            if (has_remains_) return leave_behind(fiber, is_empty);
            log_.append_offset = is_empty ? place_ : batch_start_after(place_);
            return {};
        }
        MORTAR_SOMETIMES(true, "log: last batch copied to a new segment");
        Segment& old_segment = *log_.segments[segment_];
        const ByteVector records = MORTAR_TRY(read_batch(fiber, old_segment));
        const bool replaces = old_segment.base_sequence() == batch_first_;
        const NewSegment made =
            MORTAR_TRY(create_segment(fiber, env_.disk, folder_, batch_first_, records));
        if (replaces) {
            drop_last_segment();
        } else {
            trim_old(fiber, old_segment);
        }
        log_.segments.push_back(std::make_shared<Segment>(env_.disk, folder_, batch_first_));
        listed_.push_back({batch_first_, made.end_offset, true});
        log_.end_segment = log_.segments.size() - 1;
        log_.end_offset = made.end_offset;
        log_.append_offset = batch_start_after(made.end_offset);
        return {};
    }

    // The remains, by an empty segment: in the place of theirs when that holds no record.
    Result<void> leave_behind(Fiber& fiber, bool is_empty) {
        MORTAR_TRY(create_segment(fiber, env_.disk, folder_, next_, {}));
        if (is_empty) drop_last_segment();
        log_.segments.push_back(std::make_shared<Segment>(env_.disk, folder_, next_));
        listed_.push_back({next_, SEGMENT_HEAD_BYTES, true});
        log_.append_offset = SEGMENT_HEAD_BYTES;
        return {};
    }

    Result<ByteVector> read_batch(Fiber& fiber, Segment& segment) {
        RecordScan scan(MORTAR_TRY(segment.file(fiber)), batch_place_, SCAN_BLOCK_BYTES_MAX);
        ByteVector records;
        for (Sequence sequence = batch_first_; sequence < next_; sequence = sequence.next()) {
            const auto found = MORTAR_TRY(scan.next(fiber, sequence));
            if (!found) return make_error(ErrorCode::IO_ERROR, segment.path() + ": reads differ");
            encode_record(records, found->record);
        }
        log_.read_bytes += scan.bytes_read();
        return records;
    }

    // What stands behind the segment's end is of no account; without it the file shows what it holds.
    void trim_old(Fiber& fiber, Segment& segment) {
        const std::uint64_t end = sector_ceil(batch_place_);
        segment.close_file();
        const auto file = env_.disk.open(fiber, segment.path(), OpenMode::READ_WRITE);
        if (!file.ok() || !(*file)->truncate(fiber, end).ok()) {
            env_.log.warn("log_trim_failed", {{"path", segment.path()}});
            return;
        }
        listed_[segment_].size_bytes = end;
    }

    void drop_last_segment() {
        log_.segments.pop_back();
        listed_.pop_back();
    }

    // All before next was there.
    void claim(Sequence next) {
        const Sequence last(next.value - 1);
        if (last <= log_.claimed_end.last) return;
        log_.claimed_end = {last, std::max(log_.claimed_end.leader_epoch, log_.last_leader_epoch)};
    }

    void claim_known() {
        if (known_.end.last >= log_.claimed_end.last) log_.claimed_end = known_.end;
    }

    // The last record that is whole stands in the last segment, or that one never had one: it was made after all before it
    // were synced.
    Result<void> find_claim(Fiber& fiber) {
        claim(log_.next_sequence);
        claim(log_.checkpointed_next);
        claim(listed_.back().base_sequence);
        Segment& last_segment = *log_.segments.back();
        RecordScan scan(MORTAR_TRY(last_segment.file(fiber)), SEGMENT_HEAD_BYTES,
                        SCAN_BLOCK_BYTES_MAX);
        Sequence expected = listed_.back().base_sequence;
        while (true) {
            auto found = MORTAR_TRY(scan.next(fiber, expected));
            if (!found)
                found = MORTAR_TRY(
                    scan.search(fiber, expected, Sequence(UINT64_MAX), false, UINT64_MAX));
            if (!found) break;
            log_.last_leader_epoch = found->record.leader_epoch;
            expected = found->record.sequence.next();
            claim(expected);
        }
        claim_known();
        log_.is_tail_torn = MORTAR_TRY(scan.anything_behind(fiber));
        log_.read_bytes += scan.bytes_read();
        return {};
    }

    void found_damage(Sequence from, std::string what) {
        log_.faulty_from = from;
        log_.next_sequence = from;
        log_.damage = std::move(what);
    }

    Env& env_;
    std::string folder_;
    const std::function<Result<void>(Fiber&)>& before_repair_;
    const KnownSynced& known_;
    RecoveredLog log_;
    std::vector<Listed> listed_;  // as log_.segments
    std::size_t segment_ = 0;     // being walked
    Sequence next_{1};            // expected at place_
    std::uint64_t place_ = SEGMENT_HEAD_BYTES;
    Sequence batch_first_{1};  // of the last batch walked, or where the walk began
    std::uint64_t batch_place_ = 0;
    bool finished_ = false;
    bool has_remains_ = false;  // behind the last record stands something that is not one
};

}  // namespace

Result<RecoveredLog> recover_log(Fiber& fiber, Env& env, const std::string& folder,
                                 const std::function<Result<void>(Fiber&)>& before_repair,
                                 const KnownSynced& known) {
    return Recovery(env, folder, before_repair, known).run(fiber);
}

}  // namespace mortar
