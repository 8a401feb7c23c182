#include "core/log/writer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace mortar {
namespace {

constexpr std::size_t ZERO_BLOCK_BYTES = 64u << 10;
const std::array<std::byte, ZERO_BLOCK_BYTES> ZERO_BLOCK{};

ByteSpan zeros(std::uint64_t count) {
    return ByteSpan(ZERO_BLOCK).first(static_cast<std::size_t>(count));
}

}  // namespace

LogWriter::LogWriter(Env& env, std::string name, std::size_t chunk_bytes_max)
    : name_(std::move(name)),
      scheduler_(env.scheduler),
      fibers_(env.scheduler),
      chunk_bytes_max_(chunk_bytes_max) {}

void LogWriter::switch_file(NextFile next) {
    MORTAR_ASSERT(!closing_);
    seal_batch();
    place_offset_ = next.first_offset;
    has_file_ = true;
    Step step;
    step.next_file = std::move(next);
    steps_.push_back(std::move(step));
    start_fibers();
    work_.notify_all();
}

Result<LogWriter::Appended> LogWriter::append(ByteSpan bytes) {
    Appended appended = MORTAR_TRY(append_space(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), appended.bytes.begin());
    return appended;
}

Result<LogWriter::Appended> LogWriter::append_space(std::size_t size_bytes) {
    MORTAR_ASSERT(has_file_ && size_bytes > 0);
    if (failure_ || closing_) return closed_error();
    if (batch_is_open_ && !fits_batch(size_bytes)) seal_batch();
    const bool first = !batch_is_open_;
    if (first) open_batch();
    Step& batch = steps_.back();
    if (!first && place_offset_ % SECTOR_BYTES == 0) {
        batch.parts.push_back(zeros(INNER_GAP_BYTES));
        batch.size_bytes += INNER_GAP_BYTES;
        place_offset_ += INNER_GAP_BYTES;
    }
    Appended appended;
    appended.file_offset = place_offset_;
    appended.bytes = place(batch, size_bytes);
    appended.chunk = chunk_;
    place_offset_ += size_bytes;
    appended_mark_ += size_bytes;
    appended.mark = appended_mark_;
    batch.mark = appended_mark_;
    if (first) work_.notify_all();
    return appended;
}

void LogWriter::let_go(const WriteChunk& chunk) {
    if (chunk_.get() == &chunk) chunk_ = nullptr;
}

std::uint64_t LogWriter::next_offset(std::size_t size_bytes) const {
    if (!batch_is_open_) return place_offset_;
    if (!fits_batch(size_bytes)) return batch_start_after(place_offset_);
    return place_offset_ % SECTOR_BYTES == 0 ? place_offset_ + INNER_GAP_BYTES : place_offset_;
}

bool LogWriter::fits_batch(std::size_t size_bytes) const {
    return steps_.back().size_bytes + INNER_GAP_BYTES + size_bytes <= WRITE_BATCH_BYTES_MAX;
}

void LogWriter::fail(Error error) {
    if (failure_) return;
    failure_ = std::move(error);
    steps_.clear();
    batch_is_open_ = false;
    flushed_.notify_all();
    work_.notify_all();
    grow_changed_.notify_all();
    if (on_flushed_) on_flushed_();
}

Result<void> LogWriter::flush(Fiber& fiber) {
    const std::uint64_t mark = appended_mark_;
    while (!failure_ && flushed_mark_ < mark)
        MORTAR_TRY(flushed_.wait(fiber));
    if (failure_) return closed_error();
    return {};
}

Result<void> LogWriter::release_file(Fiber& fiber) {
    const std::uint64_t mark = appended_mark_;
    while (!failure_ && !(steps_.empty() && writer_idle_))
        MORTAR_TRY(flushed_.wait(fiber));
    while (!failure_ && growing_)
        MORTAR_TRY(grow_changed_.wait(fiber));
    if (failure_ || closing_) return closed_error();
    MORTAR_ASSERT(appended_mark_ == mark && flushed_mark_ == mark);
    file_ = nullptr;
    has_file_ = false;
    return {};
}

Result<void> LogWriter::close(Fiber& fiber) {
    closing_ = true;
    seal_batch();
    work_.notify_all();
    grow_changed_.notify_all();
    while (!failure_ && !(steps_.empty() && writer_idle_)) {
        const auto waited = flushed_.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(waited.ok());
    }
    fibers_.cancel_and_join(fiber);
    file_ = nullptr;
    if (failure_) return *failure_;
    return {};
}

void LogWriter::open_batch() {
    Step step;
    step.file_offset = place_offset_;
    steps_.push_back(std::move(step));
    batch_is_open_ = true;
}

void LogWriter::seal_batch() {
    if (!batch_is_open_) return;
    batch_is_open_ = false;
    Step& batch = steps_.back();
    const std::uint64_t next_start = batch_start_after(place_offset_);
    const std::uint64_t gap_bytes = next_start - place_offset_;
    if (gap_bytes > 0) batch.parts.push_back(zeros(gap_bytes));
    batch.size_bytes += gap_bytes;
    place_offset_ = next_start;
    MORTAR_ASSERT(place_offset_ == batch.file_offset + batch.size_bytes);
}

MutableByteSpan LogWriter::place(Step& batch, std::size_t size_bytes) {
    if (chunk_ == nullptr || chunk_->capacity - chunk_->used < size_bytes) {
        // Doubling keeps a quiet log small and a busy one at few parts a write.
        const std::size_t next_bytes = chunk_ == nullptr
                                           ? WRITE_CHUNK_BYTES_MIN
                                           : std::min(WRITE_CHUNK_BYTES_MAX, chunk_->capacity * 2);
        chunk_ = std::make_shared<WriteChunk>(std::max(size_bytes, next_bytes));
    }
    const MutableByteSpan into(chunk_->bytes.get() + chunk_->used, size_bytes);
    chunk_->used += size_bytes;
    batch.size_bytes += size_bytes;
    if (batch.owners.empty() || batch.owners.back() != chunk_) batch.owners.push_back(chunk_);
    if (!batch.parts.empty() &&
        batch.parts.back().data() + batch.parts.back().size() == into.data()) {
        ByteSpan& last = batch.parts.back();
        last = ByteSpan(last.data(), last.size() + size_bytes);
    } else {
        batch.parts.push_back(into);
    }
    return into;
}

void LogWriter::start_fibers() {
    if (fibers_.size() > 0) return;
    fibers_.spawn(name_ + ".writer", [this](Fiber& fiber) { run_writer(fiber); });
    fibers_.spawn(name_ + ".grower", [this](Fiber& fiber) { run_grower(fiber); });
}

void LogWriter::run_writer(Fiber& fiber) {
    while (!failure_) {
        if (steps_.empty()) {
            writer_idle_ = true;
            flushed_.notify_all();
            if (!work_.wait(fiber).ok()) return;  // cancelled by close, nothing is queued
            // First those who can append more, and those who send it to other nodes: their syncs are waited for longer than
            // the own one.
            scheduler_.yield(fiber);
            continue;
        }
        writer_idle_ = false;
        if (steps_.size() == 1) seal_batch();
        Step step = std::move(steps_.front());
        steps_.pop_front();
        const bool is_batch = !step.next_file.has_value();
        const std::uint64_t mark = step.mark;
        const Result<void> done = is_batch ? run_batch(fiber, std::move(step))
                                           : run_switch(fiber, std::move(*step.next_file));
        if (failure_)
            return;  // the grower's write-back failed meanwhile: what this one said counts no more
        if (!done.ok()) return fail(done.error());
        if (!is_batch) continue;
        MORTAR_ASSERT(mark > flushed_mark_ && mark <= appended_mark_);
        flushed_mark_ = mark;
        flushed_.notify_all();
        if (on_flushed_) on_flushed_();
    }
}

Result<void> LogWriter::run_switch(Fiber& fiber, NextFile next) {
    while (growing_) {  // the grower uses file_
        const auto waited = grow_changed_.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(waited.ok());
    }
    cannot_grow_ = true;  // nobody grows the old file while the new one opens
    std::shared_ptr<File> file = MORTAR_TRY(next.open(fiber));
    const std::uint64_t size_bytes = MORTAR_TRY(file->size(fiber));
    file_ = std::move(file);
    write_end_ = next.first_offset;
    grown_end_ = std::max(size_bytes, next.first_offset);
    grow_bytes_max_ = next.grow_bytes_max;
    grow_bytes_ = GROW_BYTES_MIN;
    cannot_grow_ = false;
    return {};
}

Result<void> LogWriter::run_batch(Fiber& fiber, Step batch) {
    const std::uint64_t batch_end = batch.file_offset + batch.size_bytes;
    // Two writes to the same bytes have no order, and the zeros must not win.
    while (growing_ && batch_end > grown_end_) {
        const auto waited = grow_changed_.wait(fiber, NEVER, CancelMode::DEFERRED);
        MORTAR_ASSERT(waited.ok());
    }
    if (failure_) return closed_error();
    MORTAR_ASSERT(batch.file_offset >= write_end_);
    write_end_ = batch_end;
    ++stats_.write_count;
    MORTAR_TRY(file_->write_and_sync(fiber, batch.file_offset, batch.parts));
    ++stats_.sync_count;
    grown_end_ = std::max(grown_end_, batch_end);
    if (wants_growth()) grow_changed_.notify_all();
    return {};
}

bool LogWriter::wants_growth() const {
    return !failure_ && !closing_ && !cannot_grow_ && file_ != nullptr &&
           grown_end_ < grow_bytes_max_ && write_end_ + grow_bytes_ / 2 > grown_end_;
}

void LogWriter::run_grower(Fiber& fiber) {
    while (!failure_) {
        if (wants_growth()) {
            grow(fiber);
        } else if (!grow_changed_.wait(fiber).ok()) {
            return;  // cancelled by close
        }
    }
}

void LogWriter::grow(Fiber& fiber) {
    growing_ = true;
    const std::shared_ptr<File> file = file_;
    // A batch that is being written may already reach behind the zeros; later ones wait for this growth.
    const std::uint64_t from = sector_ceil(std::max(grown_end_, write_end_));
    const std::uint64_t to = std::max(from, std::min(grow_bytes_max_, from + grow_bytes_));
    grown_end_ = from;
    Result<void> done;
    bool synced = true;
    for (std::uint64_t at = from; done.ok() && at < to;) {
        const std::uint64_t end = std::min(to, at + GROW_STEP_BYTES);
        std::vector<ByteSpan> parts;
        for (std::uint64_t part = at; part < end; part += ZERO_BLOCK_BYTES)
            parts.push_back(zeros(std::min<std::uint64_t>(ZERO_BLOCK_BYTES, end - part)));
        done = file->write_at(fiber, at, parts);
        if (!done.ok()) break;
        // So that the next batch's sync does not have to write this file's new size and blocks. Step by step, since a
        // batch's sync waits for all that is on its way to the disk.
        done = file->write_back(fiber);
        synced = done.ok();
        at = end;
        if (!synced) break;
        grown_end_ = std::max(at, grown_end_);
        grow_changed_.notify_all();
    }
    growing_ = false;
    if (done.ok()) {
        grow_bytes_ = std::min(GROW_BYTES_MAX, grow_bytes_ * 2);
    } else {
        cannot_grow_ = true;
        // A failed write-back may have dropped the bytes of a batch too: the next sync would not know.
        if (!synced) fail(done.error());
    }
    grow_changed_.notify_all();
}

Error LogWriter::closed_error() const {
    return make_error(ErrorCode::LOG_CLOSED,
                      name_ + (failure_ ? ": " + failure_->to_string() : ": closed"));
}

}  // namespace mortar
