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
          flushed_{last_sequence_,
                   last_sequence_.value == 0 ? nullptr : segments_.at(recovered.end_segment).get(),
                   recovered.end_offset},
          checkpointed_sequence_(recovered.checkpointed_next.value - 1),
          unchecked_bytes_(recovered.read_bytes),
          folder_is_durable_(!segments_.empty()),
          append_offset_(recovered.append_offset),
          faulty_from_(recovered.faulty_from),
          recovered_bytes_(recovered.read_bytes),
          size_bytes_(recovered.size_bytes),
          writer_(env, name_),
          tail_cache_(writer_, options.tail_cache_bytes, std::move(tail_budget)),
          fibers_(env.scheduler) {
        writer_.set_on_flushed([this] { on_written(); });
    }

    Result<Sequence> append(const Record& record) override {
        if (faulty_from_) {
            return make_error(ErrorCode::DAMAGED,
                              name_ + ": damaged from " + std::to_string(faulty_from_->value));
        }
        if (failure() || closing_) return make_error(ErrorCode::LOG_CLOSED, name_);
        Record numbered = record;
        numbered.sequence = last_sequence_.next();
        const std::size_t size_bytes = record_bytes(numbered);
        make_room(numbered.sequence, size_bytes);
        const LogWriter::Appended appended = MORTAR_TRY(writer_.append_space(size_bytes));
        encode_record_at(appended.bytes, numbered);
        last_sequence_ = numbered.sequence;
        Segment* segment = segments_.back().get();
        segment->note_record(numbered, appended.file_offset);
        tail_cache_.add(numbered.sequence, appended);
        const Place end{numbered.sequence, segment, appended.file_offset + size_bytes};
        in_flight_.push_back({end, appended.mark, size_bytes});
        return numbered.sequence;
    }

    Sequence last_sequence() const override { return last_sequence_; }
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
        MORTAR_ASSERT(from.value > 0 && from <= through);
        MORTAR_ASSERT(through <= flushed_.sequence);
        if (tail_cache_.holds(from)) {
            Result<RecordBatch> cached = tail_cache_.read(from, through, max_bytes);
            if (cached.is(ErrorCode::CHECKSUM_MISMATCH)) become_faulty(from, cached.error());
            return cached;
        }
        const auto next = std::upper_bound(
            segments_.begin(), segments_.end(), from,
            [](Sequence s, const auto& segment) { return s < segment->base_sequence(); });
        MORTAR_ASSERT(next != segments_.begin());
        Segment& segment = **(next - 1);
        const Sequence last = next == segments_.end()
                                  ? through
                                  : std::min(through, Sequence((*next)->base_sequence().value - 1));
        touch_open_segment(segment);
        Result<RecordBatch> batch = segment.read(fiber, from, last, max_bytes);
        if (batch.is(ErrorCode::CHECKSUM_MISMATCH))
            become_faulty(segment.mismatched(), batch.error());
        return batch;
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

    Result<void> close(Fiber& fiber) override {
        closing_ = true;
        Result<void> written = writer_.close(fiber);
        checkpoint_wanted_.notify_all();
        while (fibers_.size() > 0) {
            const auto waited = checkpointer_ended_.wait(fiber, NEVER, CancelMode::DEFERRED);
            MORTAR_ASSERT(waited.ok());
        }
        if (!written.ok()) return written;
        if (flushed_.sequence > checkpointed_sequence_ && !faulty_from_) {
            MORTAR_TRY(write_checkpoint_through(fiber));
            // Zeros ahead are for the writer; without them the next open has nothing to look through.
            trim(fiber, *flushed_.segment, flushed_.end_offset);
        }
        for (const auto& segment : segments_)
            segment->close_file();
        return {};
    }

    Result<void> remove_files(Fiber& fiber) override {
        MORTAR_ASSERT(closing_);
        return remove_log_files(fiber, env_, folder_);
    }

  private:
    // A record's end: what is flushed, what a checkpoint covers.
    struct Place {
        Sequence sequence;
        Segment* segment = nullptr;
        std::uint64_t end_offset = 0;
    };
    struct InFlight {
        Place place;
        std::uint64_t mark = 0;
        std::size_t size_bytes = 0;
    };

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
        segments_.push_back(std::make_unique<Segment>(env_.disk, folder_, base_sequence));
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
            unchecked_bytes_ += done.size_bytes;
            size_bytes_ += done.size_bytes;
            in_flight_.pop_front();
        }
        if (wants_checkpoint()) checkpoint_wanted_.notify_all();
        if (on_flushed_) on_flushed_();
    }

    bool wants_checkpoint() const {
        return !failure() && !faulty_from_ && flushed_.sequence > checkpointed_sequence_ &&
               (!rolled_.empty() || unchecked_bytes_ >= options_.checkpoint_every_bytes);
    }

    void run_checkpointer(Fiber& fiber) {
        while (!closing_ && !failure()) {
            if (wants_checkpoint()) {
                const std::uint64_t covered_bytes = unchecked_bytes_;
                const Result<void> written = write_checkpoint_through(fiber);
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
        const std::uint64_t durable_offset = through.end_offset - SEGMENT_HEAD_BYTES;
        if (durable_offset > std::numeric_limits<std::uint32_t>::max()) {
            return make_error(ErrorCode::LIMIT_REACHED,
                              name_ + ": segment too large for a checkpoint");
        }
        MORTAR_TRY(write_checkpoint(
            fiber, env_.disk, folder_,
            {through.sequence.next(), static_cast<std::uint32_t>(durable_offset)}));
        checkpointed_sequence_ = through.sequence;
        unchecked_bytes_ -= covered_bytes;
        return {};
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
    std::vector<std::unique_ptr<Segment>> segments_;  // ascending; only grows
    std::vector<Segment*> open_segments_;
    Sequence last_sequence_;
    Place flushed_;
    std::deque<InFlight> in_flight_;
    std::vector<Place> rolled_;  // ends of segments that are complete since the last checkpoint
    Sequence checkpointed_sequence_;
    std::uint64_t unchecked_bytes_;  // flushed since the last checkpoint
    bool folder_is_durable_;         // a segment is made only in a folder that is
    std::optional<std::uint64_t>
        append_offset_;  // in the last segment, until the writer has a file
    bool has_writer_file_ = false;
    bool closing_ = false;
    std::optional<Sequence> faulty_from_;
    std::uint64_t recovered_bytes_;
    std::uint64_t size_bytes_;
    std::function<void()> on_flushed_;
    std::function<Result<void>(Fiber&, Sequence)> before_checkpoint_;
    Event checkpoint_wanted_;
    Event checkpointer_ended_;
    LogWriter writer_;
    TailCache tail_cache_;
    Group fibers_;
};

}  // namespace

Result<void> remove_log_files(Fiber& fiber, Env& env, const std::string& folder) {
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

Result<std::unique_ptr<PartitionLog>> PartitionLog::open(Fiber& fiber, Env& env, std::string folder,
                                                         std::string name, LogOptions options,
                                                         std::shared_ptr<TailBudget> tail_budget) {
    RecoveredLog recovered = MORTAR_TRY(recover_log(fiber, env, folder));
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
