#include "core/log/partition_log.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "core/fiber/group.h"
#include "core/log/checkpoint.h"
#include "core/log/recovery.h"
#include "core/log/tail_cache.h"
#include "core/log/whole_file.h"
#include "core/log/writer.h"

namespace mortar {
namespace {

constexpr std::string_view PRODUCERS_FILE_NAME = "producers.mqp";

bool is_log_file(const DirEntry& entry) {
    if (entry.is_folder) return false;
    std::string_view name = entry.name;
    if (name.ends_with(TMP_SUFFIX)) name.remove_suffix(TMP_SUFFIX.size());
    return name == CHECKPOINT_FILE_NAME || name == PRODUCERS_FILE_NAME ||
           parse_log_file_name(name, ".seg") || parse_log_file_name(name, ".idx");
}

void report_damage(Env& env, const std::string& log_name, Sequence faulty_from,
                   const std::string& found) {
    env.log.error(
        "log_damaged",
        {{"log", log_name}, {"faulty_from", std::to_string(faulty_from.value)}, {"found", found}});
}

class LogOnDisk final : public PartitionLog {
  public:
    LogOnDisk(Env& env, std::string folder, std::string name, LogOptions options,
              std::shared_ptr<TailBudget> tail_budget, RecoveredLog recovered)
        : env_(env),
          folder_(std::move(folder)),
          name_("log." + std::move(name)),
          options_(options),
          segments_(std::move(recovered.segments)),
          last_sequence_(recovered.next_sequence.value - 1),
          last_leader_epoch_(recovered.last_leader_epoch),
          flushed_{last_sequence_, last_leader_epoch_,
                   last_sequence_.value == 0 ? nullptr : segments_.at(recovered.end_segment).get(),
                   recovered.end_offset},
          known_synced_(options.known_synced),
          checkpointed_sequence_(recovered.checkpointed_next.value - 1),
          unchecked_bytes_(recovered.read_bytes),
          folder_is_durable_(!segments_.empty()),
          append_offset_(recovered.append_offset),
          faulty_from_(recovered.faulty_from),
          is_tail_torn_(recovered.is_tail_torn),
          recovered_bytes_(recovered.read_bytes),
          size_bytes_(recovered.size_bytes),
          writer_(env, name_),
          tail_cache_(writer_, options.tail_cache_bytes, std::move(tail_budget)),
          fibers_(env.scheduler) {
        // Of a damaged log, what stands behind the bad place was not looked at as it is at the end of a sound one.
        if (faulty_from_) claimed_end_ = recovered.claimed_end;
        if (!faulty_from_) note_synced();
        writer_.set_on_flushed([this] { on_written(); });
    }

    Result<Sequence> append(const Record& record) override {
        MORTAR_TRY(check_takes_records());
        Record numbered = record;
        numbered.sequence = last_sequence_.next();
        MORTAR_ASSERT(numbered.leader_epoch >= last_leader_epoch_);
        encode_record_at(MORTAR_TRY(space_for(numbered)), numbered);
        return numbered.sequence;
    }

    Result<void> append_bytes(ByteSpan records,
                              const std::function<void(const Record&)>& on_record) override {
        MORTAR_TRY(check_takes_records());
        const std::vector<Record> next = MORTAR_TRY(parse_next(records));
        for (const Record& record : next) {
            const std::size_t size_bytes = record_bytes(record);
            const Result<MutableByteSpan> space = space_for(record);
            MORTAR_ASSERT(space.ok());  // nothing suspended since it was asked
            std::copy_n(records.begin(), size_bytes, space->begin());
            records = records.subspan(size_bytes);
            if (on_record) on_record(record);
        }
        return {};
    }

    Sequence last_sequence() const override { return last_sequence_; }
    LogEnd end() const override {
        return claimed_end_ ? *claimed_end_ : LogEnd{last_sequence_, last_leader_epoch_};
    }
    bool is_tail_torn() const override { return is_tail_torn_; }
    KnownSynced known_synced() const override { return known_synced_; }
    Sequence flushed_sequence() const override { return flushed_.sequence; }
    std::uint64_t unflushed_bytes() const override { return writer_.unflushed_bytes(); }
    void set_on_flushed(std::function<void()> on_flushed) override {
        on_flushed_ = std::move(on_flushed);
    }
    void set_before_checkpoint(std::function<Result<void>(Fiber&, Sequence)> save) override {
        before_checkpoint_ = std::move(save);
    }
    const std::optional<Error>& failure() const override { return writer_.failure(); }
    std::optional<Sequence> faulty_from() const override { return faulty_from_; }

    Result<RecordBatch> read(Fiber& fiber, Sequence from, Sequence through,
                             std::uint64_t max_bytes) override {
        MORTAR_ASSERT(through <= flushed_.sequence);
        return read_as<RecordBatch>(fiber, from, through, max_bytes, &TailCache::read,
                                    &Segment::read);
    }
    Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                   std::uint64_t max_bytes) override {
        MORTAR_ASSERT(through <= end().last);
        return read_as<RecordBytes>(fiber, from, through, max_bytes, &TailCache::read_bytes,
                                    &Segment::read_bytes);
    }
    Result<LeaderEpoch> epoch_at(Fiber& fiber, Sequence sequence) override {
        if (sequence == end().last) return end().leader_epoch;
        const RecordBytes one = MORTAR_TRY(read_bytes(fiber, sequence, sequence, 1));
        return MORTAR_TRY(parse_record(one.parts.front())).leader_epoch;
    }

    LogStats stats() const override {
        LogStats stats;
        stats.segment_count = segments_.size();
        stats.size_bytes = size_bytes_;
        stats.recovered_bytes = recovered_bytes_;
        stats.sync_count = writer_.stats().sync_count;
        stats.write_count = writer_.stats().write_count;
        return stats;
    }

    std::optional<DamagedPart> damaged_part() const override {
        if (!faulty_from_) return std::nullopt;
        const auto next = segment_behind(*faulty_from_);
        DamagedPart part;
        part.first = next == segments_.begin() ? Sequence(1) : (*(next - 1))->base_sequence();
        part.is_at_end = next == segments_.end();
        part.last = part.is_at_end ? end().last : Sequence((*next)->base_sequence().value - 1);
        MORTAR_ASSERT(part.last >= *faulty_from_);
        return part;
    }
    Result<std::vector<EpochRun>> runs_behind_damage(Fiber& fiber) override {
        const std::optional<DamagedPart> part = damaged_part();
        MORTAR_ASSERT(part.has_value());
        MORTAR_TRY(writer_.flush(fiber));
        std::vector<EpochRun> runs;
        const std::vector<std::shared_ptr<Segment>> segments = segments_;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            if (segments[i]->base_sequence() < part->first) continue;
            const Sequence last = i + 1 == segments.size()
                                      ? end().last
                                      : Sequence(segments[i + 1]->base_sequence().value - 1);
            MORTAR_TRY(add_runs(fiber, *segments[i], last, runs));
        }
        return runs;
    }
    Result<Scrubbed> scrub(Fiber& fiber, Sequence from, std::uint64_t max_bytes) override {
        const auto next = segment_behind(from);
        if (faulty_from_ || from > flushed_.sequence || next == segments_.begin())
            return Scrubbed{};
        const std::shared_ptr<Segment> segment = *(next - 1);
        Sequence last = flushed_.sequence;
        if (next != segments_.end())
            last = std::min(last, Sequence((*next)->base_sequence().value - 1));
        const std::uint64_t cut_count = cut_count_;
        // Nobody else reads there, mostly: it does not stay open for this.
        const bool was_open = segment->is_open();
        if (from == segment->base_sequence()) MORTAR_TRY(scrub_head(fiber, *segment));
        const Result<RecordBatch> batch = segment->read(fiber, from, last, max_bytes);
        if (!was_open) segment->close_file();
        if (cut_count_ != cut_count) return cut_away(from);
        if (batch.is(ErrorCode::CHECKSUM_MISMATCH))
            become_faulty(segment->mismatched(), batch.error());
        if (!batch.ok()) return batch.error();
        Scrubbed scrubbed;
        scrubbed.last = batch->records.back().sequence;
        scrubbed.record_count = batch->records.size();
        for (const Record& record : batch->records)
            scrubbed.size_bytes += record_bytes(record);
        return scrubbed;
    }

    Result<void> cut(Fiber& fiber, Sequence keep_through) override {
        MORTAR_TRY(take_turn(fiber, CancelMode::ALLOWED));
        cutting_ = true;
        Result<void> done = cut_in_turn(fiber, keep_through);
        cutting_ = false;
        end_turn();
        return done;
    }

    Result<void> make_durable(Fiber& fiber) override {
        if (last_sequence_ == checkpointed_sequence_ && !faulty_from_ && !failure()) return {};
        MORTAR_TRY(writer_.flush(fiber));
        MORTAR_TRY(take_turn(fiber, CancelMode::ALLOWED));
        Result<void> done = check_takes_records();
        if (done.ok() && flushed_.sequence > checkpointed_sequence_)
            done = write_checkpoint_through(fiber);
        end_turn();
        return done;
    }

    Result<void> close(Fiber& fiber) override {
        closing_ = true;
        Result<void> written = writer_.close(fiber);
        checkpoint_wanted_.notify_all();
        while (fibers_.size() > 0) {
            const auto waited = checkpointer_ended_.wait(fiber, NEVER, CancelMode::DEFERRED);
            MORTAR_ASSERT(waited.ok());
        }
        const Result<void> turn = take_turn(fiber, CancelMode::DEFERRED);
        MORTAR_ASSERT(turn.ok());
        Result<void> done = written.ok() ? close_in_turn(fiber) : written;
        end_turn();
        return done;
    }

    Result<void> remove_files(Fiber& fiber) override {
        MORTAR_ASSERT(closing_);
        return remove_log_files(fiber, env_, folder_);
    }

  private:
    // A record's end: what is flushed, what a checkpoint covers.
    struct Place {
        Sequence sequence;
        LeaderEpoch leader_epoch;
        Segment* segment = nullptr;
        std::uint64_t end_offset = 0;
    };
    struct InFlight {
        Place place;
        std::uint64_t mark = 0;
        std::size_t size_bytes = 0;
    };

    Result<void> check_takes_records() const {
        if (faulty_from_) {
            return make_error(ErrorCode::DAMAGED,
                              name_ + ": damaged from " + std::to_string(faulty_from_->value));
        }
        if (failure() || closing_ || cutting_) return make_error(ErrorCode::LOG_CLOSED, name_);
        return {};
    }

    // Room in the writer's buffer for the next record, to be filled before the caller suspends.
    Result<MutableByteSpan> space_for(const Record& record) {
        MORTAR_ASSERT(record.sequence == last_sequence_.next());
        const std::size_t size_bytes = record_bytes(record);
        make_room(record.sequence, size_bytes);
        const LogWriter::Appended appended = MORTAR_TRY(writer_.append_space(size_bytes));
        last_sequence_ = record.sequence;
        last_leader_epoch_ = record.leader_epoch;
        Segment* segment = segments_.back().get();
        segment->note_record(record, appended.file_offset);
        tail_cache_.add(record.sequence, appended);
        const Place end{record.sequence, record.leader_epoch, segment,
                        appended.file_offset + size_bytes};
        in_flight_.push_back({end, appended.mark, size_bytes});
        return appended.bytes;
    }

    // The records, if they are whole and the next ones of this log.
    Result<std::vector<Record>> parse_next(ByteSpan records) const {
        std::vector<Record> next;
        LogEnd previous{last_sequence_, last_leader_epoch_};
        while (!records.empty()) {
            const Record record = MORTAR_TRY(parse_next_record(records, previous, name_));
            previous = {record.sequence, record.leader_epoch};
            records = records.subspan(record_bytes(record));
            next.push_back(record);
        }
        return next;
    }

    // From the tail cache, else from the files once it is flushed.
    template <class Batch>
    Result<Batch> read_as(Fiber& fiber, Sequence from, Sequence through, std::uint64_t max_bytes,
                          Result<Batch> (TailCache::*cached)(Sequence, Sequence, std::uint64_t)
                              const,
                          Result<Batch> (Segment::*stored)(Fiber&, Sequence, Sequence,
                                                           std::uint64_t)) {
        MORTAR_ASSERT(from.value > 0 && from <= through);
        while (true) {
            if (tail_cache_.holds(from)) {
                Result<Batch> batch = (tail_cache_.*cached)(from, through, max_bytes);
                if (batch.is(ErrorCode::CHECKSUM_MISMATCH)) become_faulty(from, batch.error());
                return batch;
            }
            const std::uint64_t cut_count = cut_count_;
            if (from > flushed_.sequence) {
                // Behind a bad place nothing was read when the log was opened.
                if (claimed_end_) return make_error(ErrorCode::CHECKSUM_MISMATCH, name_);
                if (failure()) return make_error(ErrorCode::LOG_CLOSED, name_);
                MORTAR_TRY(flushed_moved_.wait(fiber));
                if (cut_count_ != cut_count) return cut_away(from);
                continue;
            }
            const auto next = segment_behind(from);
            MORTAR_ASSERT(next != segments_.begin());
            const std::shared_ptr<Segment> segment = *(next - 1);
            Sequence last = std::min(through, flushed_.sequence);
            if (next != segments_.end())
                last = std::min(last, Sequence((*next)->base_sequence().value - 1));
            touch_open_segment(*segment);
            Result<Batch> batch = (segment.get()->*stored)(fiber, from, last, max_bytes);
            // What was read may be of neither the log before the cut nor of the one after it.
            if (cut_count_ != cut_count) return cut_away(from);
            if (batch.is(ErrorCode::CHECKSUM_MISMATCH))
                become_faulty(segment->mismatched(), batch.error());
            return batch;
        }
    }
    Error cut_away(Sequence from) const {
        MORTAR_SOMETIMES(true, "log: cut while it was read");
        return make_error(ErrorCode::NOT_FOUND,
                          name_ + ": cut while " + std::to_string(from.value) + " was read");
    }

    // The first segment that begins behind the sequence.
    std::vector<std::shared_ptr<Segment>>::const_iterator segment_behind(Sequence sequence) const {
        return std::upper_bound(
            segments_.begin(), segments_.end(), sequence,
            [](Sequence s, const auto& segment) { return s < segment->base_sequence(); });
    }

    // --- damage

    // A bad record costs no other; what then shows an older leader_epoch than one before it was never a record of this log.
    static Result<void> add_runs(Fiber& fiber, Segment& segment, Sequence last,
                                 std::vector<EpochRun>& runs) {
        RecordScan scan(MORTAR_TRY(segment.file(fiber)), SEGMENT_HEAD_BYTES, SCAN_BLOCK_BYTES_MAX);
        Sequence expected = segment.base_sequence();
        while (expected <= last) {
            auto found = MORTAR_TRY(scan.next(fiber, expected));
            if (!found) found = MORTAR_TRY(scan.search(fiber, expected, last, false, UINT64_MAX));
            if (!found) break;
            const LeaderEpoch leader_epoch = found->record.leader_epoch;
            const Sequence sequence = found->record.sequence;
            while (!runs.empty() && runs.back().leader_epoch > leader_epoch)
                runs.pop_back();
            if (runs.empty() || runs.back().leader_epoch < leader_epoch)
                runs.push_back({leader_epoch, sequence, sequence});
            runs.back().last = sequence;
            expected = sequence.next();
        }
        return {};
    }

    // Whatever it says now, this program wrote and synced a head that it reads.
    Result<void> scrub_head(Fiber& fiber, Segment& segment) {
        std::array<std::byte, SEGMENT_HEAD_BYTES> head;
        const std::shared_ptr<File> file = MORTAR_TRY(segment.file(fiber));
        const std::size_t count = MORTAR_TRY(file->read_at(fiber, 0, head));
        if (count == head.size() && head == segment_head()) return {};
        Error error =
            make_error(ErrorCode::CHECKSUM_MISMATCH, segment.path() + ": no segment head");
        become_faulty(segment.base_sequence(), error);
        return error;
    }

    // --- cut

    Result<void> cut_in_turn(Fiber& fiber, Sequence keep_through) {
        if (failure() || closing_) return make_error(ErrorCode::LOG_CLOSED, name_);
        if (faulty_from_ && *faulty_from_ <= keep_through) {
            return make_error(ErrorCode::DAMAGED,
                              name_ + ": damaged from " + std::to_string(faulty_from_->value));
        }
        MORTAR_ASSERT(keep_through <= last_sequence_);
        if (keep_through == last_sequence_ && !faulty_from_) return {};
        MORTAR_TRY(writer_.release_file(fiber));
        MORTAR_ASSERT(in_flight_.empty());
        Result<void> done = cut_files(fiber, keep_through);
        // Where it stopped the next open finds out.
        if (!done.ok()) writer_.fail(done.error());
        return done;
    }

    Result<void> cut_files(Fiber& fiber, Sequence keep_through) {
        Place end;
        if (keep_through.value > 0) {
            Segment* segment = (segment_behind(keep_through) - 1)->get();
            const auto last = MORTAR_TRY(segment->locate(fiber, keep_through));
            if (!last) {
                return make_error(
                    ErrorCode::CHECKSUM_MISMATCH,
                    segment->path() + ": record " + std::to_string(keep_through.value));
            }
            end = {keep_through, last->leader_epoch, segment, last->end_offset};
        }
        // Wherever it stops, no more than this need be there.
        if (keep_through < known_synced_.end.last)
            known_synced_.end = {keep_through, end.leader_epoch};
        if (!folder_is_durable_) MORTAR_TRY(make_folders_durably(fiber, env_.disk, folder_));
        folder_is_durable_ = true;
        // Also when the last one known covers less: one whose writing failed may be there in spite of that.
        MORTAR_TRY(write_checkpoint_at(fiber, end));
        MORTAR_TRY(end_files_before(fiber, keep_through.next()));
        forget_behind(end);
        return {};
    }

    // Afterwards the last segment is the empty one whose first record would be this one. Goes by what is on disk: a segment
    // of a torn tail is no part of segments_.
    Result<void> end_files_before(Fiber& fiber, Sequence first_cut) {
        std::vector<Sequence> bases;
        std::uint64_t kept_bytes = 0;
        for (const DirEntry& entry : MORTAR_TRY(env_.disk.list(fiber, folder_))) {
            const auto indexed = parse_log_file_name(entry.name, ".idx");
            if (indexed && *indexed >= first_cut)
                MORTAR_TRY(env_.disk.remove(fiber, join_path(folder_, entry.name)));
            const auto base = parse_log_file_name(entry.name, ".seg");
            if (!base) continue;
            bases.push_back(*base);
            if (*base < first_cut) kept_bytes += entry.size_bytes;
        }
        std::sort(bases.begin(), bases.end());
        Sequence at = bases.empty() ? first_cut : std::max(bases.back(), first_cut);
        MORTAR_TRY(create_segment(fiber, env_.disk, folder_, at, {}));
        while (at > first_cut) {
            const auto here = std::lower_bound(bases.begin(), bases.end(), at);
            const Sequence before =
                here == bases.begin() ? first_cut : std::max(*std::prev(here), first_cut);
            MORTAR_TRY(publish_file(fiber, env_.disk, folder_, segment_file_name(at),
                                    segment_file_name(before)));
            at = before;
        }
        size_bytes_ = kept_bytes + SEGMENT_HEAD_BYTES;
        return {};
    }

    void forget_behind(const Place& end) {
        ++cut_count_;
        const auto gone = segment_behind(end.sequence);
        for (auto at = gone; at != segments_.end(); ++at)
            std::erase(open_segments_, at->get());
        segments_.erase(gone, segments_.end());
        if (end.segment != nullptr) end.segment->forget_behind(end.sequence);
        segments_.push_back(std::make_shared<Segment>(env_.disk, folder_, end.sequence.next()));
        std::erase_if(rolled_, [&end](const Place& roll) { return roll.sequence > end.sequence; });
        tail_cache_.cut(end.sequence);
        last_sequence_ = checkpointed_sequence_ = end.sequence;
        last_leader_epoch_ = end.leader_epoch;
        flushed_ = end;
        note_synced();
        unchecked_bytes_ = 0;
        append_offset_ = SEGMENT_HEAD_BYTES;
        has_writer_file_ = false;
        faulty_from_.reset();
        claimed_end_.reset();
        flushed_moved_.notify_all();
    }

    // One at a time writes checkpoints, cuts or closes.
    Result<void> take_turn(Fiber& fiber, CancelMode mode) {
        while (turn_is_taken_)
            MORTAR_TRY(turn_ended_.wait(fiber, NEVER, mode));
        turn_is_taken_ = true;
        return {};
    }
    void end_turn() {
        turn_is_taken_ = false;
        turn_ended_.notify_all();
    }

    Result<void> close_in_turn(Fiber& fiber) {
        if (flushed_.sequence > checkpointed_sequence_ && !faulty_from_) {
            MORTAR_TRY(write_checkpoint_through(fiber));
            // Zeros ahead are for the writer; without them the next open has nothing to look through.
            trim(fiber, *flushed_.segment, flushed_.end_offset);
        }
        for (const auto& segment : segments_)
            segment->close_file();
        return {};
    }

    // Sees to it that the writer stands in the segment that takes the record.
    void make_room(Sequence sequence, std::size_t size_bytes) {
        if (!has_writer_file_) {
            if (!append_offset_) return start_segment(sequence);
            continue_segment(*append_offset_);
        }
        const bool is_empty = segments_.back()->base_sequence() == sequence;
        const std::uint64_t end = writer_.next_offset(size_bytes) + size_bytes;
        if (!is_empty && end > options_.segment_max_bytes) start_segment(sequence);
    }

    void continue_segment(std::uint64_t first_offset) {
        LogWriter::NextFile next;
        const std::string path = segments_.back()->path();
        next.open = [this, path, segment = segments_.back().get()](
                        Fiber& fiber) -> Result<std::shared_ptr<File>> {
            std::shared_ptr<File> file =
                MORTAR_TRY(env_.disk.open(fiber, path, OpenMode::READ_WRITE));
            segment->set_file(file);
            return file;
        };
        next.first_offset = first_offset;
        next.grow_bytes_max = options_.segment_max_bytes;
        use_file(std::move(next));
    }

    void start_segment(Sequence base_sequence) {
        segments_.push_back(std::make_shared<Segment>(env_.disk, folder_, base_sequence));
        Segment* segment = segments_.back().get();
        LogWriter::NextFile next;
        next.open = [this, segment](Fiber& fiber) -> Result<std::shared_ptr<File>> {
            if (!folder_is_durable_) MORTAR_TRY(make_folders_durably(fiber, env_.disk, folder_));
            folder_is_durable_ = true;
            const NewSegment made =
                MORTAR_TRY(create_segment(fiber, env_.disk, folder_, segment->base_sequence(), {}));
            segment->set_file(made.file);
            return made.file;
        };
        next.first_offset = SEGMENT_HEAD_BYTES;
        next.grow_bytes_max = options_.segment_max_bytes;
        use_file(std::move(next));
    }

    void use_file(LogWriter::NextFile next) {
        has_writer_file_ = true;
        writer_.switch_file(std::move(next));
        if (fibers_.size() == 0) {
            fibers_.spawn(name_ + ".checkpointer",
                          [this](Fiber& fiber) { run_checkpointer(fiber); });
        }
    }

    void note_synced() { known_synced_ = {{flushed_.sequence, flushed_.leader_epoch}, true}; }

    // In the writer's fiber: flushed_mark moved, or the writer failed.
    void on_written() {
        if (writer_.failure()) {
            env_.log.error("log_closed",
                           {{"log", name_}, {"error", writer_.failure()->to_string()}});
        }
        while (!in_flight_.empty() && in_flight_.front().mark <= writer_.flushed_mark()) {
            const InFlight& done = in_flight_.front();
            MORTAR_ASSERT(done.place.sequence == flushed_.sequence.next());
            if (flushed_.segment != nullptr && flushed_.segment != done.place.segment) {
                rolled_.push_back(flushed_);
            }
            flushed_ = done.place;
            note_synced();
            unchecked_bytes_ += done.size_bytes;
            size_bytes_ += done.size_bytes;
            in_flight_.pop_front();
        }
        if (wants_checkpoint()) checkpoint_wanted_.notify_all();
        flushed_moved_.notify_all();
        if (on_flushed_) on_flushed_();
    }

    bool wants_checkpoint() const {
        return !failure() && !faulty_from_ && flushed_.sequence > checkpointed_sequence_ &&
               (!rolled_.empty() || unchecked_bytes_ >= options_.checkpoint_every_bytes);
    }

    void run_checkpointer(Fiber& fiber) {
        while (!closing_ && !failure()) {
            if (wants_checkpoint()) {
                if (!take_turn(fiber, CancelMode::ALLOWED).ok()) break;
                if (!wants_checkpoint() || closing_) {  // another one took its turn for it
                    end_turn();
                    continue;
                }
                const std::uint64_t covered_bytes = unchecked_bytes_;
                const Result<void> written = write_checkpoint_through(fiber);
                end_turn();
                if (!written.ok()) {
                    // The old one stands and is right; another try when as much again was flushed.
                    env_.log.warn("checkpoint_failed",
                                  {{"log", name_}, {"error", written.error().to_string()}});
                    unchecked_bytes_ -= covered_bytes;
                    rolled_.clear();
                }
                continue;
            }
            if (!checkpoint_wanted_.wait(fiber).ok()) break;
        }
        checkpointer_ended_.notify_all();
    }

    Result<void> write_checkpoint_through(Fiber& fiber) {
        const Place through = flushed_;
        const std::uint64_t covered_bytes = unchecked_bytes_;
        const std::vector<Place> rolled = std::exchange(rolled_, {});
        for (const Place& end : rolled) {
            trim(fiber, *end.segment, end.end_offset);
            save_index(fiber, *end.segment);
            end.segment->close_file();
        }
        if (before_checkpoint_) MORTAR_TRY(before_checkpoint_(fiber, through.sequence));
        save_index(fiber, *through.segment);
        MORTAR_TRY(write_checkpoint_at(fiber, through));
        checkpointed_sequence_ = through.sequence;
        unchecked_bytes_ -= covered_bytes;
        return {};
    }

    Result<void> write_checkpoint_at(Fiber& fiber, const Place& through) {
        const std::uint64_t durable_offset =
            through.segment == nullptr ? 0 : through.end_offset - SEGMENT_HEAD_BYTES;
        if (durable_offset > std::numeric_limits<std::uint32_t>::max()) {
            return make_error(ErrorCode::LIMIT_REACHED,
                              name_ + ": segment too large for a checkpoint");
        }
        return write_checkpoint(
            fiber, env_.disk, folder_,
            {through.sequence.next(), static_cast<std::uint32_t>(durable_offset)});
    }

    // A record that was synced is not what was written. What was appended behind it is not declared sound by a checkpoint.
    void become_faulty(Sequence sequence, const Error& found) {
        if (faulty_from_ && *faulty_from_ <= sequence) return;
        faulty_from_ = sequence;
        MORTAR_SOMETIMES(true, "log: damage met by a read");
        report_damage(env_, name_, sequence, found.detail);
        if (on_flushed_) on_flushed_();
    }

    // A hint only: its loss costs a scan.
    void save_index(Fiber& fiber, Segment& segment) {
        const Result<void> saved = segment.save_index(fiber);
        if (!saved.ok()) env_.log.warn("index_not_saved", {{"error", saved.error().to_string()}});
    }

    // Nobody writes the segment any more. Only whole sectors go: none that holds a record is touched.
    void trim(Fiber& fiber, Segment& segment, std::uint64_t end_offset) {
        MORTAR_ASSERT(end_offset > SEGMENT_HEAD_BYTES);
        const auto file = env_.disk.open(fiber, segment.path(), OpenMode::READ_WRITE);
        const Result<void> cut = file.ok() ? (*file)->truncate(fiber, batch_start_after(end_offset))
                                           : Result<void>(file.error());
        if (!cut.ok()) env_.log.warn("log_trim_failed", {{"error", cut.error().to_string()}});
    }

    // Latest first; the segment that is written stays open in any case.
    void touch_open_segment(Segment& segment) {
        if (&segment == segments_.back().get()) return;
        std::erase(open_segments_, &segment);
        open_segments_.insert(open_segments_.begin(), &segment);
        while (open_segments_.size() > LOG_OPEN_SEGMENTS_MAX) {
            if (open_segments_.back() != segments_.back().get())
                open_segments_.back()->close_file();
            open_segments_.pop_back();
        }
    }

    Env& env_;
    std::string folder_;
    std::string name_;
    LogOptions options_;
    std::vector<std::shared_ptr<Segment>> segments_;  // ascending; shared with who reads
    std::vector<Segment*> open_segments_;
    Sequence last_sequence_;
    LeaderEpoch last_leader_epoch_;
    Place flushed_;
    KnownSynced known_synced_;
    std::deque<InFlight> in_flight_;
    std::vector<Place> rolled_;  // ends of segments that are complete since the last checkpoint
    Sequence checkpointed_sequence_;
    std::uint64_t unchecked_bytes_;  // flushed since the last checkpoint
    bool folder_is_durable_;         // a segment is made only in a folder that is
    std::optional<std::uint64_t>
        append_offset_;  // in the last segment, until the writer has a file
    bool has_writer_file_ = false;
    bool closing_ = false;
    bool cutting_ = false;
    bool turn_is_taken_ = false;
    std::uint64_t cut_count_ = 0;
    std::optional<Sequence> faulty_from_;
    std::optional<LogEnd> claimed_end_;  // while faulty since it was opened
    bool is_tail_torn_;
    std::uint64_t recovered_bytes_;
    std::uint64_t size_bytes_;
    std::function<void()> on_flushed_;
    std::function<Result<void>(Fiber&, Sequence)> before_checkpoint_;
    Event checkpoint_wanted_;
    Event checkpointer_ended_;
    Event turn_ended_;
    Event flushed_moved_;  // flushed_ moved, the log failed or was cut
    LogWriter writer_;
    TailCache tail_cache_;
    Group fibers_;
};

}  // namespace

namespace {

Result<void> remove_all_in(Fiber& fiber, Env& env, const std::string& folder) {
    const auto entries = env.disk.list(fiber, folder);
    if (entries.is(ErrorCode::NOT_FOUND)) return {};
    if (!entries.ok()) return entries.error();
    bool all_known = true;
    for (const DirEntry& entry : *entries) {
        if (is_log_file(entry)) {
            MORTAR_TRY(env.disk.remove(fiber, join_path(folder, entry.name)));
        } else {
            all_known = false;
            env.log.warn("unknown_file_left_alone", {{"path", join_path(folder, entry.name)}});
        }
    }
    if (!all_known) return {};
    MORTAR_TRY(env.disk.remove(fiber, folder));
    return env.disk.sync_folder(fiber, folder.substr(0, folder.rfind('/')));
}

}  // namespace

// A node may not know after a crash that the topic is deleted, and half of a log would pass for a damaged one: so it goes as a
// whole, by its name.
Result<void> remove_log_files(Fiber& fiber, Env& env, const std::string& folder) {
    const std::string gone = folder + std::string(TMP_SUFFIX);
    MORTAR_TRY(remove_all_in(fiber, env, gone));  // of an earlier try
    const auto entries = env.disk.list(fiber, folder);
    if (entries.is(ErrorCode::NOT_FOUND)) return {};
    if (!entries.ok()) return entries.error();
    if (!std::all_of(entries->begin(), entries->end(), is_log_file))
        return remove_all_in(fiber, env, folder);
    MORTAR_TRY(env.disk.rename(fiber, folder, gone));
    MORTAR_TRY(env.disk.sync_folder(fiber, folder.substr(0, folder.rfind('/'))));
    return remove_all_in(fiber, env, gone);
}

Result<std::unique_ptr<PartitionLog>> PartitionLog::open(Fiber& fiber, Env& env, std::string folder,
                                                         std::string name, LogOptions options,
                                                         std::shared_ptr<TailBudget> tail_budget) {
    RecoveredLog recovered =
        MORTAR_TRY(recover_log(fiber, env, folder, options.before_repair, options.known_synced));
    if (recovered.faulty_from) {
        report_damage(env, name, *recovered.faulty_from, recovered.damage);
    }
    if (recovered.cut_tail_bytes > 0) {
        env.log.warn("log_tail_cut",
                     {{"log", name},
                      {"next_sequence", std::to_string(recovered.next_sequence.value)},
                      {"bytes", std::to_string(recovered.cut_tail_bytes)}});
    }
    return std::unique_ptr<PartitionLog>(
        std::make_unique<LogOnDisk>(env, std::move(folder), std::move(name), options,
                                    std::move(tail_budget), std::move(recovered)));
}

}  // namespace mortar
