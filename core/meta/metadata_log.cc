#include "core/meta/metadata_log.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/fiber/mutex.h"
#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"
#include "core/meta/metadata_recovery.h"

namespace mortar {
namespace {
constexpr const char* SNAPSHOT_TMP = "snapshot.tmp";
constexpr const char* LOG_TMP = "log.tmp";
// After a snapshot that could not be written (the disk is full), the next try.
constexpr std::uint64_t SNAPSHOT_RETRY_RECORDS = 64;
// Records are synced one by one, so that no more than one can be torn. With more than this many waiting (a follower
// catches up) a whole new log file is cheaper.
constexpr std::uint64_t SINGLE_SYNCS_MAX = 32;

bool makes_room(const MutationBody& body) {
    return std::holds_alternative<TopicDeleted>(body) ||
           std::holds_alternative<GroupDeleted>(body) || std::holds_alternative<MembersLeft>(body);
}

ByteVector state_bytes(const Catalog& catalog) {
    ByteVector bytes;
    catalog.encode(bytes);
    return bytes;
}

Sequence sequence_of(MutationId mutation_id) {
    return Sequence(mutation_id.value);
}
MutationId mutation_of(Sequence sequence) {
    return MutationId(sequence.value);
}

// In memory as long as it is not both committed and synced.
struct TailRecord {
    Mutation mutation;
    std::shared_ptr<const ByteVector> bytes;  // as in the file: with zeros behind it
    std::size_t record_bytes = 0;             // without them

    explicit TailRecord(Mutation m)
        : mutation(std::move(m)),
          bytes(std::make_shared<const ByteVector>(encode_metadata_record(mutation))) {
        record_bytes = parse_metadata_record(*bytes)->record_bytes();
    }
    Sequence sequence() const { return sequence_of(mutation.mutation_id); }
};

// A file that this process wrote, or found empty.
struct LogFile {
    Sequence first;
    std::shared_ptr<File> file;
    std::vector<std::uint64_t> offsets;  // of first and those behind it
    std::uint64_t end_offset = METADATA_ALIGN_BYTES;
};

// What a new snapshot and a new log file will hold: taken at one moment, before anything is written.
struct Generation {
    Sequence covered;  // by the snapshot
    std::string snapshot_name;
    ByteVector snapshot;  // empty: it is there already
    ByteVector log;
    std::vector<std::uint64_t> offsets;
    Sequence last;  // in the log file
};

class DiskMetadataLog : public MetadataLog {
  public:
    DiskMetadataLog(Env& env, std::string folder, std::uint32_t snapshot_records)
        : env_(env),
          folder_(std::move(folder)),
          snapshot_records_(snapshot_records),
          rotate_at_records_(snapshot_records),
          writing_(env.scheduler),
          reopening_(env.scheduler) {}

    Result<void> recover(Fiber& fiber, const std::function<Result<void>(Fiber&)>& before_repair);
    void set_observer(ReplicatedLogObserver* observer) override { observer_ = observer; }

    LogEnd end() const override { return end_; }
    Sequence flushed() const override { return flushed_; }
    Sequence commit_seq() const override { return sequence_of(catalog_.last_mutation()); }
    std::optional<Sequence> faulty_from() const override {
        return is_quarantined_ ? Sequence(1) : faulty_from_;
    }
    bool is_closed() const override { return is_closed_ || failure_.has_value(); }
    Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                   std::uint64_t max_bytes) override;
    Result<LeaderEpoch> epoch_at(Fiber& fiber, Sequence sequence) override;
    Result<void> append_bytes(ByteSpan records) override;
    Result<void> cut(Fiber& fiber, Sequence keep_through) override;
    Result<void> make_durable(Fiber& fiber) override;
    void advance_commit(Sequence committed) override;

    Result<void> begin_term(LeaderEpoch leader_epoch) override;
    void end_term() override;
    Result<MutationId> propose(Fiber& fiber, MutationBody body) override {
        const auto make = [&body](const Catalog&) -> Result<MutationBody> {
            return std::move(body);
        };
        return propose(fiber, std::function<Result<MutationBody>(const Catalog&)>(make));
    }
    Result<MutationId> propose(
        Fiber& fiber, std::function<Result<MutationBody>(const Catalog& catalog)> make) override;

    const Catalog& catalog() const override { return catalog_; }
    std::vector<Topic> topics_in_tail() const override;
    bool is_quarantined() const override { return is_quarantined_; }
    bool is_read_only() const override { return failure_.has_value() || faulty_from_.has_value(); }
    void set_on_applied(std::function<void(const Mutation&)> on_applied) override {
        on_applied_ = std::move(on_applied);
    }
    void set_on_replaced(std::function<void()> on_replaced) override {
        on_replaced_ = std::move(on_replaced);
    }
    Result<MetadataSnapshot> snapshot() override;
    Result<void> install_snapshot(Fiber& fiber, ByteSpan snapshot) override;
    Result<void> close(Fiber& fiber) override;

  private:
    using Make = std::function<Result<MutationBody>(const Catalog& catalog)>;
    Result<void> check_open() const;
    Result<void> check_term(std::uint64_t term) const;
    Result<void> check_space(Fiber& fiber, const MutationBody& body);
    Result<Mutex::Guard> lock_in_time(Fiber& fiber, Mutex& mutex);
    Result<void> wait_for_earlier(Fiber& fiber, std::uint64_t term);
    Result<MutationId> append_own(Fiber& fiber, std::uint64_t term, const Make& make);
    Result<MutationId> wait_committed(Fiber& fiber, std::uint64_t term, MutationId mutation_id);
    Result<void> undo_write(Fiber& fiber, const Error& cause);
    bool is_patience_over() const;

    Result<void> write(Fiber& fiber, const TailRecord& record);
    void push(TailRecord record);
    void drop_behind(Sequence keep_through);
    void trim();
    void set_flushed(Sequence flushed);
    const TailRecord* in_memory(Sequence sequence) const;
    LeaderEpoch epoch_of(Sequence sequence) const;
    std::uint64_t committed_in_file() const;
    bool is_rotation_due() const;

    void start_writer();
    void write_behind(Fiber& fiber);
    Result<bool> write_step(Fiber& fiber);
    Result<void> begin_folder(Fiber& fiber);
    void rotate(Fiber& fiber);

    Generation make_generation(const Catalog& state, Sequence through) const;
    Result<void> write_generation(Fiber& fiber, Generation generation);
    void remove_older(Fiber& fiber, Sequence keep_from);
    Result<void> mark_durable(Fiber& fiber, Sequence through);
    Result<void> cut_files(Fiber& fiber, Sequence keep_through);
    void take_state(Catalog state);
    Result<RecordBytes> read_file(Fiber& fiber, Sequence from, Sequence through,
                                  std::uint64_t max_bytes);
    void forget_file(Sequence first, const std::string& reason);
    Sequence readable_from() const;

    void fail(const Error& error);
    void say_changed();
    void start_reopening();
    void reopen(Fiber& fiber);
    Result<void> try_reopen(Fiber& fiber);
    Result<void> check_found(RecoveredMetadata& found) const;

    Env& env_;
    std::string folder_;
    std::uint64_t snapshot_records_;
    ReplicatedLogObserver* observer_ = nullptr;
    std::function<void(const Mutation&)> on_applied_;
    std::function<void()> on_replaced_;

    Catalog catalog_;                 // committed
    std::deque<TailRecord> records_;  // up to end_, without gaps
    LogEnd end_;
    Sequence written_;  // may be lost with the power
    Sequence flushed_;
    LeaderEpoch base_epoch_;  // of what the first known epoch comes behind
    std::vector<std::pair<Sequence, LeaderEpoch>> epochs_;  // each begins there
    std::optional<Sequence> commit_limit_;  // while something behind it is being cut
    MetadataSnapshot served_;               // to peers
    Event changed_;                         // of all that proposals and make_durable wait for

    std::uint64_t term_ = 0;  // counts begin_term and end_term
    std::optional<LeaderEpoch> leading_in_;
    Mutex turn_;              // of proposals
    MonoTime progress_at_{};  // when one was committed

    bool is_quarantined_ = false;
    bool is_closed_ = false;
    std::optional<Sequence> faulty_from_;  // committed, and does not fit the state
    std::optional<Error> failure_;         // nothing is written until it was opened again
    bool is_reopening_ = false;

    Mutex io_;                   // one at a time works on the files
    std::deque<LogFile> files_;  // ascending; the last one is written to. Empty: nothing is on disk
    Sequence readable_from_;     // what is older, and not in memory, turned out to be unreadable
    bool is_rotation_wanted_ = false;
    std::uint64_t rotate_at_records_;
    Sequence snapshot_through_;  // of the newest snapshot on disk
    Sequence generation_;        // what the newest durable generation's snapshot covers
    Sequence known_durable_;     // as marked on disk
    bool has_writer_ = false;
    Group writing_;
    Group reopening_;
};

// --- start

Result<void> DiskMetadataLog::recover(Fiber& fiber,
                                      const std::function<Result<void>(Fiber&)>& before_repair) {
    RecoveredMetadata recovered = MORTAR_TRY(recover_metadata(fiber, env_, folder_));
    is_quarantined_ = recovered.is_quarantined;
    if (is_quarantined_) return {};
    // The generation that is written below takes the torn file's place.
    if (recovered.is_tail_torn) {
        env_.log.warn("metadata_tail_torn",
                      {{"folder", folder_},
                       {"behind", std::to_string(recovered.tail.empty()
                                                     ? recovered.catalog.last_mutation().value
                                                     : recovered.tail.back().mutation_id.value)}});
        if (before_repair) MORTAR_TRY(before_repair(fiber));
    }
    catalog_ = std::move(recovered.catalog);
    base_epoch_ = catalog_.last_leader_epoch();
    end_ = {commit_seq(), base_epoch_};
    flushed_ = written_ = end_.last;
    for (Mutation& mutation : recovered.tail)
        push(TailRecord(std::move(mutation)));
    generation_ = snapshot_through_ = sequence_of(recovered.base);
    known_durable_ = sequence_of(recovered.known_durable);
    MORTAR_TRY(make_folders_durably(fiber, env_.disk, folder_));
    if (!recovered.damaged_snapshots.empty()) {
        MORTAR_TRY(set_aside(fiber, env_, folder_, recovered.damaged_snapshots));
    }
    // Names that are seen here may be those of a process that died between rename and sync; what is appended must not go
    // with them.
    MORTAR_TRY(env_.disk.sync_folder(fiber, folder_));
    // The last record may be in the page cache only. Writing it again in place could tear what was acknowledged;
    // a new generation leaves the old one as it is until the new one is durable.
    if (!recovered.is_tail_clean)
        return write_generation(fiber, make_generation(catalog_, end_.last));
    const std::string name = metadata_log_name(mutation_of(end_.last.next()));
    LogFile file;
    file.first = end_.last.next();
    file.file = MORTAR_TRY(env_.disk.open(fiber, join_path(folder_, name), OpenMode::READ_WRITE));
    files_.push_back(std::move(file));
    return {};
}

// --- the leader's side

Result<void> DiskMetadataLog::begin_term(LeaderEpoch leader_epoch) {
    if (leader_epoch < end_.leader_epoch) {
        return make_error(ErrorCode::INVALID_ARGUMENT, folder_ + " was written in leader_epoch " +
                                                           std::to_string(end_.leader_epoch.value) +
                                                           ", this one is " +
                                                           std::to_string(leader_epoch.value));
    }
    ++term_;
    leading_in_ = leader_epoch;
    return {};
}

void DiskMetadataLog::end_term() {
    ++term_;
    leading_in_.reset();
    changed_.notify_all();
}

Result<MutationId> DiskMetadataLog::propose(Fiber& fiber, Make make) {
    // While the log is opened again nobody waits for it.
    const std::uint64_t term = term_;
    MORTAR_TRY(check_term(term));
    // One at a time: what is validated is all that will have been committed before it.
    const Mutex::Guard turn = MORTAR_TRY(lock_in_time(fiber, turn_));
    MORTAR_TRY(wait_for_earlier(fiber, term));
    const MutationId mutation_id = MORTAR_TRY(append_own(fiber, term, make));
    return wait_committed(fiber, term, mutation_id);
}

Result<void> DiskMetadataLog::check_open() const {
    if (is_quarantined_) {
        return make_error(ErrorCode::METADATA_QUARANTINED,
                          "the metadata of this node is in quarantine; see runbook RB-2");
    }
    if (is_read_only()) {
        return make_error(ErrorCode::METADATA_READ_ONLY,
                          "the metadata log failed and is being opened again: retry");
    }
    if (is_closed_) return make_error(ErrorCode::METADATA_READ_ONLY, "the node is stopping");
    return {};
}

Result<void> DiskMetadataLog::check_term(std::uint64_t term) const {
    MORTAR_TRY(check_open());
    if (!leading_in_.has_value() || term != term_)
        return make_error(ErrorCode::METADATA_READ_ONLY,
                          "this node does not lead: find the leader");
    return {};
}

Result<void> DiskMetadataLog::check_space(Fiber& fiber, const MutationBody& body) {
    if (makes_room(body)) return {};
    const Result<DiskSpace> space = env_.disk.space(fiber);
    // A disk that cannot tell is judged by the write.
    if (!space.ok() || space->free_bytes >= METADATA_SPACE_RESERVE_BYTES) return {};
    MORTAR_SOMETIMES(true, "metadata is read-only: the disk is full");
    return make_error(ErrorCode::METADATA_READ_ONLY,
                      "the disk is full; delete topics or free some space");
}

bool DiskMetadataLog::is_patience_over() const {
    return env_.clock.now() >= progress_at_ + METADATA_COMMIT_TIMEOUT;
}

// As long as others get on, their number does not matter.
Result<Mutex::Guard> DiskMetadataLog::lock_in_time(Fiber& fiber, Mutex& mutex) {
    MonoTime deadline = deadline_after(env_.clock, METADATA_COMMIT_TIMEOUT);
    while (true) {
        Result<Mutex::Guard> locked = mutex.lock(fiber, deadline);
        if (!locked.is(ErrorCode::TIMED_OUT)) return locked;
        if (is_patience_over())
            return make_error(ErrorCode::METADATA_READ_ONLY,
                              "an earlier change is not done: retry");
        deadline = progress_at_ + METADATA_COMMIT_TIMEOUT;
    }
}

Result<void> DiskMetadataLog::wait_for_earlier(Fiber& fiber, std::uint64_t term) {
    const MonoTime deadline = deadline_after(env_.clock, METADATA_COMMIT_TIMEOUT);
    while (true) {
        MORTAR_TRY(check_term(term));
        if (commit_seq() == end_.last && flushed_ == end_.last) return {};
        const Result<void> woken = changed_.wait(fiber, deadline);
        if (woken.ok()) continue;
        if (!woken.is(ErrorCode::TIMED_OUT)) return woken;
        MORTAR_SOMETIMES(true, "metadata is read-only: an earlier mutation is not committed");
        return make_error(ErrorCode::METADATA_READ_ONLY,
                          "an earlier change is not committed yet: retry");
    }
}

// OK: it stands in the log. METADATA_READ_ONLY: not there, also after a restart. MUTATION_FENCED: a restart will tell.
Result<MutationId> DiskMetadataLog::append_own(Fiber& fiber, std::uint64_t term, const Make& make) {
    const Mutex::Guard io = MORTAR_TRY(lock_in_time(fiber, io_));
    MORTAR_TRY(check_term(term));
    MORTAR_ASSERT(commit_seq() == end_.last && flushed_ == end_.last);
    Mutation mutation;
    mutation.body = MORTAR_TRY(make(catalog_));
    MORTAR_TRY(catalog_.validate(mutation.body));
    MORTAR_TRY(check_space(fiber, mutation.body));
    MORTAR_TRY(check_term(term));
    mutation.mutation_id = mutation_of(end_.last.next());
    mutation.leader_epoch = *leading_in_;
    mutation.timestamp_unix_ms = env_.clock.wall_unix_ms();
    TailRecord record(std::move(mutation));
    // Nobody has seen it before it is written: until then it can be taken back, and its number given to another.
    const ByteSpan parts[] = {*record.bytes};
    Result<void> written = files_.back().file->write_at(fiber, files_.back().end_offset, parts);
    if (written.ok()) written = check_term(term);
    if (!written.ok()) {
        const Result<void> undone = undo_write(fiber, written.error());
        if (failure_.has_value()) start_reopening();
        return undone.error();
    }
    files_.back().offsets.push_back(files_.back().end_offset);
    files_.back().end_offset += record.bytes->size();
    push(std::move(record));
    written_ = end_.last;
    // Before the own sync: the others work meanwhile.
    if (observer_ != nullptr) observer_->on_appended(*this);
    start_writer();
    return mutation_of(end_.last);
}

Result<MutationId> DiskMetadataLog::wait_committed(Fiber& fiber, std::uint64_t term,
                                                   MutationId mutation_id) {
    const MonoTime deadline = deadline_after(env_.clock, METADATA_COMMIT_TIMEOUT);
    while (true) {
        // In another term another mutation may have this number.
        if (term != term_)
            return make_error(ErrorCode::MUTATION_FENCED,
                              "outcome unknown: this node does not lead any more");
        if (catalog_.last_mutation() >= mutation_id) return mutation_id;
        if (is_read_only())
            return make_error(ErrorCode::MUTATION_FENCED, "outcome unknown: the disk failed");
        const Result<void> woken = changed_.wait(fiber, deadline);
        if (woken.ok()) continue;
        if (!woken.is(ErrorCode::TIMED_OUT)) return woken.error();
        MORTAR_SOMETIMES(true, "metadata mutation is not committed in time");
        return make_error(ErrorCode::MUTATION_FENCED,
                          "outcome unknown: it was not committed in time");
    }
}

// All of the bytes may be there although the write failed. Nobody may be told "not executed" before they are
// durably gone. Never OK.
Result<void> DiskMetadataLog::undo_write(Fiber& fiber, const Error& cause) {
    env_.log.warn("metadata_write_failed", {{"reason", cause.to_string()}});
    File& file = *files_.back().file;
    Result<void> cut = file.truncate(fiber, files_.back().end_offset);
    if (cut.ok()) cut = file.sync_data(fiber);
    if (!cut.ok()) {
        fail(cut.error());
        return make_error(ErrorCode::MUTATION_FENCED, "outcome unknown: the disk failed");
    }
    MORTAR_SOMETIMES(true, "metadata write was undone");
    if (cause.code == ErrorCode::METADATA_READ_ONLY) return cause;
    return make_error(ErrorCode::METADATA_READ_ONLY, cause.code == ErrorCode::NO_SPACE
                                                         ? "the disk is full; free some space"
                                                         : "the disk refused the write");
}

// --- both sides

std::vector<Topic> DiskMetadataLog::topics_in_tail() const {
    std::vector<Topic> topics;
    if (records_.empty()) return topics;
    Catalog ahead = catalog_;
    for (const TailRecord& record : records_) {
        if (record.sequence() <= commit_seq()) continue;
        if (!ahead.validate(record.mutation.body).ok()) break;  // advance_commit will say so
        ahead.apply(record.mutation);
        const auto* created = std::get_if<TopicCreated>(&record.mutation.body);
        if (created == nullptr) continue;
        const Topic& source = *ahead.find_topic(created->name);
        topics.push_back(source);
        topics.push_back(*ahead.find_topic(source.topic_id.next()));
    }
    return topics;
}

void DiskMetadataLog::advance_commit(Sequence committed) {
    if (is_quarantined_ || faulty_from_.has_value()) return;
    const Sequence through = std::min(committed, commit_limit_.value_or(end_.last));
    if (through <= commit_seq()) return;
    while (commit_seq() < std::min(through, end_.last)) {
        const TailRecord* next = in_memory(commit_seq().next());
        MORTAR_ASSERT(next != nullptr);
        // Append cannot look into what has others before it; what a leader committed fits, unless something is very wrong.
        const Result<void> fits = catalog_.validate(next->mutation.body);
        if (!fits.ok()) {
            faulty_from_ = next->sequence();
            env_.log.error("metadata_mutation_does_not_fit",
                           {{"mutation_id", std::to_string(faulty_from_->value)},
                            {"reason", fits.error().to_string()}});
            say_changed();
            return;
        }
        catalog_.apply(next->mutation);
        if (on_applied_) on_applied_(next->mutation);
    }
    progress_at_ = env_.clock.now();
    trim();
    changed_.notify_all();
    if (is_rotation_due()) start_writer();
}

Result<void> DiskMetadataLog::append_bytes(ByteSpan records) {
    MORTAR_ASSERT(!leading_in_.has_value());
    if (is_closed()) return make_error(ErrorCode::LOG_CLOSED, folder_ + " is closed");
    // What it held cannot be told from what it has lost.
    if (faulty_from_.has_value() || (is_quarantined_ && end_.last > Sequence{}))
        return make_error(ErrorCode::DAMAGED, folder_ + " takes only a snapshot");
    std::vector<TailRecord> taken;
    LogEnd at = end_;
    while (!records.empty()) {
        const Result<RawMetadataRecord> raw = parse_metadata_record(records);
        if (!raw.ok()) return make_error(ErrorCode::CHECKSUM_MISMATCH, raw.error().detail);
        Result<Mutation> mutation = decode_metadata_record(*raw);
        if (!mutation.ok())
            return make_error(ErrorCode::CHECKSUM_MISMATCH, mutation.error().detail);
        if (sequence_of(mutation->mutation_id) != at.last.next() ||
            mutation->leader_epoch < at.leader_epoch) {
            return make_error(ErrorCode::CHECKSUM_MISMATCH,
                              "mutation " + std::to_string(mutation->mutation_id.value) +
                                  " does not follow " + std::to_string(at.last.value));
        }
        at = {sequence_of(mutation->mutation_id), mutation->leader_epoch};
        taken.emplace_back(std::move(mutation).value());
        records = records.subspan(raw->record_bytes());
    }
    if (taken.empty()) return {};
    if (std::exchange(is_quarantined_, false)) {
        MORTAR_SOMETIMES(true, "metadata in quarantine is filled again");
        say_changed();
    }
    for (TailRecord& record : taken)
        push(std::move(record));
    start_writer();
    return {};
}

void DiskMetadataLog::push(TailRecord record) {
    MORTAR_ASSERT(record.sequence() == end_.last.next());
    end_ = {record.sequence(), record.mutation.leader_epoch};
    const LeaderEpoch before = epochs_.empty() ? base_epoch_ : epochs_.back().second;
    if (before != end_.leader_epoch) epochs_.emplace_back(end_.last, end_.leader_epoch);
    records_.push_back(std::move(record));
}

void DiskMetadataLog::drop_behind(Sequence keep_through) {
    while (!records_.empty() && records_.back().sequence() > keep_through)
        records_.pop_back();
    while (!epochs_.empty() && epochs_.back().first > keep_through)
        epochs_.pop_back();
    end_ = {keep_through, epoch_of(keep_through)};
    written_ = std::min(written_, keep_through);
    flushed_ = std::min(flushed_, keep_through);
}

void DiskMetadataLog::trim() {
    const Sequence needless = std::min(commit_seq(), flushed_);
    while (!records_.empty() && records_.front().sequence() <= needless)
        records_.pop_front();
}

void DiskMetadataLog::set_flushed(Sequence flushed) {
    if (flushed <= flushed_) return;
    flushed_ = flushed;
    written_ = std::max(written_, flushed);
    trim();
    changed_.notify_all();
    if (observer_ != nullptr) observer_->on_flushed(*this);
}

const TailRecord* DiskMetadataLog::in_memory(Sequence sequence) const {
    if (records_.empty() || sequence < records_.front().sequence() || sequence > end_.last)
        return nullptr;
    return &records_[sequence_distance(records_.front().sequence(), sequence)];
}

LeaderEpoch DiskMetadataLog::epoch_of(Sequence sequence) const {
    for (auto at = epochs_.rbegin(); at != epochs_.rend(); ++at) {
        if (at->first <= sequence) return at->second;
    }
    return sequence == Sequence{} ? LeaderEpoch{} : base_epoch_;
}

Result<LeaderEpoch> DiskMetadataLog::epoch_at(Fiber&, Sequence sequence) {
    MORTAR_ASSERT(sequence > Sequence{} && sequence <= end_.last);
    return epoch_of(sequence);
}

// --- the log's own fiber: it lives as long as there is work

void DiskMetadataLog::start_writer() {
    if (has_writer_ || is_closed()) return;
    has_writer_ = true;
    writing_.spawn("metadata.writer", [this](Fiber& fiber) { write_behind(fiber); });
}

void DiskMetadataLog::write_behind(Fiber& fiber) {
    while (!failure_.has_value()) {
        const Result<Mutex::Guard> io = io_.lock(fiber);
        if (!io.ok() || failure_.has_value()) break;
        const Result<bool> worked = write_step(fiber);
        if (!worked.ok()) fail(worked.error());
        if (!worked.ok() || !*worked) break;
    }
    has_writer_ = false;
    if (failure_.has_value()) start_reopening();
}

// False when there is nothing to do.
Result<bool> DiskMetadataLog::write_step(Fiber& fiber) {
    if (is_quarantined_) return false;
    const std::uint64_t waiting = sequence_distance(flushed_, end_.last);
    if (waiting > 0 && (files_.empty() || waiting > SINGLE_SYNCS_MAX)) {
        if (files_.empty()) MORTAR_TRY(begin_folder(fiber));
        MORTAR_SOMETIMES(waiting > SINGLE_SYNCS_MAX, "metadata: many records in one new file");
        MORTAR_TRY(write_generation(fiber, make_generation(catalog_, end_.last)));
        return true;
    }
    if (waiting > 0) {
        const Sequence next = flushed_.next();
        const TailRecord record = *in_memory(next);
        if (written_ < next) {
            const ByteSpan parts[] = {*record.bytes};
            MORTAR_TRY(files_.back().file->write_at(fiber, files_.back().end_offset, parts));
            files_.back().offsets.push_back(files_.back().end_offset);
            files_.back().end_offset += record.bytes->size();
            written_ = next;
        }
        MORTAR_TRY(files_.back().file->sync_data(fiber));
        set_flushed(next);
        return true;
    }
    if (!is_rotation_due()) return false;
    rotate(fiber);
    return !failure_.has_value();
}

std::uint64_t DiskMetadataLog::committed_in_file() const {
    if (files_.empty() || commit_seq() < files_.back().first) return 0;
    return sequence_distance(files_.back().first, commit_seq()) + 1;
}

bool DiskMetadataLog::is_rotation_due() const {
    return is_rotation_wanted_ || committed_in_file() >= rotate_at_records_;
}

void DiskMetadataLog::rotate(Fiber& fiber) {
    const Result<void> rotated = write_generation(fiber, make_generation(catalog_, end_.last));
    if (rotated.ok()) return;
    env_.log.warn("metadata_snapshot_failed", {{"reason", rotated.error().to_string()}});
    is_rotation_wanted_ = false;
    rotate_at_records_ = committed_in_file() + SNAPSHOT_RETRY_RECORDS;
}

// Where nothing is that counts: what was in quarantine is not continued.
Result<void> DiskMetadataLog::begin_folder(Fiber& fiber) {
    MORTAR_TRY(make_folders_durably(fiber, env_.disk, folder_));
    MORTAR_TRY(mark_durable(fiber, Sequence{}));
    generation_ = snapshot_through_ = Sequence{};
    return {};
}

// --- generations

// state, and behind it the records up to through.
Generation DiskMetadataLog::make_generation(const Catalog& state, Sequence through) const {
    Generation made;
    made.covered = sequence_of(state.last_mutation());
    if (made.covered != snapshot_through_ && made.covered != Sequence{}) {
        made.snapshot = encode_metadata_snapshot(state);
        made.snapshot_name =
            metadata_snapshot_name(state.last_mutation(), state.last_leader_epoch());
    }
    made.last = std::max(made.covered, through);
    made.log = encode_metadata_log_head();
    if (made.last > made.covered) made.log.resize(METADATA_ALIGN_BYTES);
    for (Sequence at = made.covered.next(); at <= made.last; at = at.next()) {
        const TailRecord* record = in_memory(at);
        MORTAR_ASSERT(record != nullptr);
        made.offsets.push_back(made.log.size());
        made.log.insert(made.log.end(), record->bytes->begin(), record->bytes->end());
    }
    return made;
}

// A snapshot of the state, then a new log file. Until the name of the new log file is written all failures are
// harmless: the present file goes on. Afterwards two files would claim the next mutation, so the log stops.
Result<void> DiskMetadataLog::write_generation(Fiber& fiber, Generation generation) {
    if (!generation.snapshot.empty()) {
        MORTAR_TRY(write_new_file(fiber, env_.disk, join_path(folder_, SNAPSHOT_TMP),
                                  generation.snapshot));
        MORTAR_TRY(publish_file(fiber, env_.disk, folder_, SNAPSHOT_TMP, generation.snapshot_name));
        snapshot_through_ = generation.covered;
    }
    LogFile next;
    next.first = generation.covered.next();
    next.offsets = std::move(generation.offsets);
    next.end_offset = std::max<std::uint64_t>(METADATA_ALIGN_BYTES, generation.log.size());
    MORTAR_TRY(write_new_file(fiber, env_.disk, join_path(folder_, LOG_TMP), generation.log));
    const std::string name = metadata_log_name(mutation_of(next.first));
    const Result<void> published = publish_file(fiber, env_.disk, folder_, LOG_TMP, name);
    if (!published.ok()) {
        fail(published.error());
        return published;
    }
    Result<std::unique_ptr<File>> opened =
        env_.disk.open(fiber, join_path(folder_, name), OpenMode::READ_WRITE);
    if (!opened.ok()) {
        fail(opened.error());
        return std::move(opened).error();
    }
    next.file = std::move(opened).value();
    // One that begins there too is replaced by it.
    while (!files_.empty() && files_.back().first >= next.first)
        files_.pop_back();
    // Others committed what was not written here yet: it stands in the snapshot only.
    if (!files_.empty() && files_.back().first.plus(files_.back().offsets.size()) < next.first)
        readable_from_ = std::max(readable_from_, next.first);
    files_.push_back(std::move(next));
    is_rotation_wanted_ = false;
    rotate_at_records_ = snapshot_records_;
    set_flushed(generation.last);
    // Written anew without a change in between: the generation before stays the one before.
    if (generation.covered != generation_)
        remove_older(fiber, std::exchange(generation_, generation.covered));
    return {};
}

// keep_from: what the snapshot before the newest covers; that generation stays whole.
void DiskMetadataLog::remove_older(Fiber& fiber, Sequence keep_from) {
    const Result<std::vector<DirEntry>> entries = env_.disk.list(fiber, folder_);
    if (!entries.ok()) return;  // what stays is removed next time
    const MutationId kept = mutation_of(keep_from);
    std::vector<MutationId> firsts;
    for (const DirEntry& entry : *entries) {
        if (const auto first = parse_metadata_log_name(entry.name)) firsts.push_back(*first);
    }
    // Of the logs, the one that holds keep_from + 1 and all later ones are needed.
    MutationId first_needed{1};
    for (const MutationId first : firsts) {
        if (first <= kept.next() && first > first_needed) first_needed = first;
    }
    while (!files_.empty() && files_.front().first < sequence_of(first_needed))
        files_.pop_front();
    for (const DirEntry& entry : *entries) {
        const auto first = parse_metadata_log_name(entry.name);
        const auto snapshot = parse_metadata_snapshot_name(entry.name);
        const bool is_old = (first.has_value() && *first < first_needed) ||
                            (snapshot.has_value() && snapshot->offset < kept);
        if (!is_old) continue;
        const Result<void> removed = env_.disk.remove(fiber, join_path(folder_, entry.name));
        if (!removed.ok())
            env_.log.warn("metadata_remove_failed", {{"reason", removed.error().to_string()}});
    }
}

Result<void> DiskMetadataLog::mark_durable(Fiber& fiber, Sequence through) {
    const ByteVector bytes = encode_metadata_durable(mutation_of(through));
    MORTAR_TRY(replace_file(fiber, env_.disk, folder_, std::string(METADATA_DURABLE_NAME), bytes));
    known_durable_ = through;
    return {};
}

Result<void> DiskMetadataLog::make_durable(Fiber& fiber) {
    const Sequence asked = end_.last;
    while (true) {
        if (is_closed()) return make_error(ErrorCode::LOG_CLOSED, folder_ + " is closed");
        if (flushed_ >= std::min(asked, end_.last)) break;
        MORTAR_TRY(changed_.wait(fiber));
    }
    const Mutex::Guard io = MORTAR_TRY(io_.lock(fiber));
    if (is_closed()) return make_error(ErrorCode::LOG_CLOSED, folder_ + " is closed");
    if (is_quarantined_ || known_durable_ == flushed_) return {};
    return mark_durable(fiber, flushed_);
}

// --- cut, snapshots

Result<void> DiskMetadataLog::cut(Fiber& fiber, Sequence keep_through) {
    MORTAR_ASSERT(!leading_in_.has_value());
    const Mutex::Guard io = MORTAR_TRY(io_.lock(fiber));
    if (is_closed()) return make_error(ErrorCode::LOG_CLOSED, folder_ + " is closed");
    MORTAR_ASSERT(keep_through >= commit_seq());
    if (keep_through >= end_.last) return {};
    commit_limit_ = keep_through;
    Result<void> done = cut_files(fiber, keep_through);
    commit_limit_.reset();
    if (failure_.has_value()) start_reopening();
    if (end_.last == keep_through && on_replaced_) on_replaced_();
    start_writer();
    return done;
}

Result<void> DiskMetadataLog::cut_files(Fiber& fiber, Sequence keep_through) {
    if (known_durable_ > keep_through) MORTAR_TRY(mark_durable(fiber, keep_through));
    Result<void> written = write_generation(fiber, make_generation(catalog_, keep_through));
    // Once the new file may be there, the next one must hold as little.
    if (written.ok() || failure_.has_value()) {
        drop_behind(keep_through);
        changed_.notify_all();
    }
    return written;
}

Result<MetadataSnapshot> DiskMetadataLog::snapshot() {
    if (is_quarantined_ || commit_seq() == Sequence{})
        return make_error(ErrorCode::NOT_FOUND, folder_ + " has no state");
    if (served_.bytes == nullptr || served_.through.next() < readable_from())
        served_ = {commit_seq(),
                   std::make_shared<const ByteVector>(encode_metadata_snapshot(catalog_))};
    return served_;
}

Result<void> DiskMetadataLog::install_snapshot(Fiber& fiber, ByteSpan snapshot) {
    MORTAR_ASSERT(!leading_in_.has_value());
    Catalog state = MORTAR_TRY(parse_metadata_snapshot(snapshot, "the snapshot of a peer"));
    const Sequence through = sequence_of(state.last_mutation());
    const Mutex::Guard io = MORTAR_TRY(io_.lock(fiber));
    if (is_closed()) return make_error(ErrorCode::LOG_CLOSED, folder_ + " is closed");
    const bool is_refill = is_quarantined_ || faulty_from_.has_value();
    if (through < commit_seq() || (through == commit_seq() && !is_refill)) return {};
    if (state.last_leader_epoch() < catalog_.last_leader_epoch())
        return make_error(ErrorCode::DAMAGED, "the snapshot of a peer is of an older epoch");
    commit_limit_ = commit_seq();
    Result<void> done;
    if (is_quarantined_ || files_.empty()) done = begin_folder(fiber);
    // What stands behind the snapshot in the file would be taken for its continuation. What it covers stays until it is
    // there: a majority may count on this copy.
    if (done.ok() && !is_quarantined_ && end_.last > through) done = cut_files(fiber, through);
    if (done.ok()) done = write_generation(fiber, make_generation(state, through));
    commit_limit_.reset();
    if (done.ok()) {
        // The log before it does not lead up to it: no generation to fall back to.
        remove_older(fiber, through);
        take_state(std::move(state));
    }
    if (failure_.has_value()) start_reopening();
    return done;
}

// It is on disk, and nothing behind it.
void DiskMetadataLog::take_state(Catalog state) {
    MORTAR_SOMETIMES(true, "metadata snapshot of a peer installed");
    catalog_ = std::move(state);
    records_.clear();
    epochs_.clear();
    base_epoch_ = catalog_.last_leader_epoch();
    end_ = {commit_seq(), base_epoch_};
    written_ = flushed_ = end_.last;
    readable_from_ = end_.last.next();
    served_ = {};
    is_quarantined_ = false;
    faulty_from_.reset();
    changed_.notify_all();
    if (on_replaced_) on_replaced_();
    say_changed();
    if (observer_ != nullptr) observer_->on_flushed(*this);
}

// --- reading

Sequence DiskMetadataLog::readable_from() const {
    const Sequence memory = records_.empty() ? end_.last.next() : records_.front().sequence();
    const Sequence file = files_.empty() ? memory : files_.front().first;
    return std::min(memory, std::max(file, readable_from_));
}

Result<RecordBytes> DiskMetadataLog::read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                                std::uint64_t max_bytes) {
    MORTAR_ASSERT(from > Sequence{} && from <= end_.last);
    if (is_closed()) return make_error(ErrorCode::LOG_CLOSED, folder_ + " is closed");
    if (in_memory(from) == nullptr) return read_file(fiber, from, through, max_bytes);
    RecordBytes read;
    for (Sequence at = from; at <= std::min(through, end_.last); at = at.next()) {
        const TailRecord& record = *in_memory(at);
        if (at != from && read.size_bytes + record.record_bytes > max_bytes) break;
        read.add(at, ByteSpan(*record.bytes).first(record.record_bytes), record.bytes);
    }
    return read;
}

Result<RecordBytes> DiskMetadataLog::read_file(Fiber& fiber, Sequence from, Sequence through,
                                               std::uint64_t max_bytes) {
    const auto not_here = [this, from] {
        return make_error(
            ErrorCode::NOT_FOUND,
            folder_ + ": mutation " + std::to_string(from.value) + " is covered by a snapshot");
    };
    if (from < readable_from()) return not_here();
    auto behind =
        std::upper_bound(files_.begin(), files_.end(), from,
                         [](Sequence at, const LogFile& file) { return at < file.first; });
    MORTAR_ASSERT(behind != files_.begin());
    const LogFile& source = *(behind - 1);
    // What an older file holds beyond the next one's beginning may have been cut since.
    const Sequence file_end = behind == files_.end()
                                  ? Sequence(source.first.value + source.offsets.size() - 1)
                                  : Sequence(behind->first.value - 1);
    through = std::min({through, file_end, flushed_});
    const std::size_t begin = sequence_distance(source.first, from);
    const auto offset_behind = [&source](std::size_t index) {
        return index + 1 < source.offsets.size() ? source.offsets[index + 1] : source.end_offset;
    };
    std::size_t last = begin;
    while (source.first.plus(last) < through &&
           offset_behind(last + 1) - source.offsets[begin] <= max_bytes)
        ++last;
    const Sequence first = source.first;
    const std::uint64_t start = source.offsets[begin];
    const auto buffer =
        std::make_shared<ByteVector>(static_cast<std::size_t>(offset_behind(last) - start));
    const std::shared_ptr<File> file = source.file;  // the list may change meanwhile
    const Result<std::size_t> count = file->read_at(fiber, start, *buffer);
    if (count.is(ErrorCode::CANCELLED)) return count.error();
    RecordBytes read;
    ByteSpan rest = count.ok() ? ByteSpan(*buffer).first(*count) : ByteSpan{};
    for (Sequence at = from; at <= first.plus(last); at = at.next()) {
        const Result<RawMetadataRecord> record = parse_metadata_record(rest);
        if (!record.ok() || sequence_of(record->mutation_id) != at) {
            forget_file(first, count.ok() ? "it is damaged" : count.error().to_string());
            return not_here();
        }
        read.add(at, rest.first(record->record_bytes()), buffer);
        rest = rest.subspan(std::min<std::size_t>(
            rest.size(), static_cast<std::size_t>(metadata_aligned(record->record_bytes()))));
    }
    return read;
}

// The state is in memory: a new generation makes the file needless, and peers take the snapshot instead.
void DiskMetadataLog::forget_file(Sequence first, const std::string& reason) {
    MORTAR_SOMETIMES(true, "metadata log file cannot be read back");
    env_.log.error(
        "metadata_file_unreadable",
        {{"path", join_path(folder_, metadata_log_name(mutation_of(first)))}, {"reason", reason}});
    const auto behind =
        std::upper_bound(files_.begin(), files_.end(), first,
                         [](Sequence at, const LogFile& file) { return at < file.first; });
    const Sequence good_from = behind == files_.end() ? commit_seq().next() : behind->first;
    readable_from_ = std::max(readable_from_, good_from);
    is_rotation_wanted_ = true;
    start_writer();
}

// --- failures

void DiskMetadataLog::fail(const Error& error) {
    if (failure_.has_value()) return;
    failure_ = error;
    env_.log.error("metadata_log_failed", {{"reason", error.to_string()}});
    say_changed();
}

void DiskMetadataLog::say_changed() {
    changed_.notify_all();
    if (observer_ != nullptr) observer_->on_state_changed(*this);
}

void DiskMetadataLog::start_reopening() {
    if (is_closed_ || std::exchange(is_reopening_, true)) return;
    reopening_.spawn("metadata.reopen", [this](Fiber& fiber) { reopen(fiber); });
}

void DiskMetadataLog::reopen(Fiber& fiber) {
    for (Duration backoff = METADATA_REOPEN_BACKOFF_MIN;;
         backoff = std::min(backoff * 2, METADATA_REOPEN_BACKOFF_MAX)) {
        if (!env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, backoff)).ok()) return;
        const Result<void> reopened = try_reopen(fiber);
        if (reopened.is(ErrorCode::CANCELLED)) return;
        if (reopened.ok()) break;
        env_.log.error("metadata_reopen_failed", {{"reason", reopened.error().to_string()},
                                                  {"advice", "check the disk; it is tried again"}});
    }
    is_reopening_ = false;
    failure_.reset();
    say_changed();
    start_writer();
}

// A failed sync is never retried as if nothing had happened (design 3): what is on disk is read again, must hold what was
// synced, and goes on in a new generation. What was appended and not synced is written there from memory: others may
// have it, and its number may not be given to another mutation.
Result<void> DiskMetadataLog::try_reopen(Fiber& fiber) {
    const Mutex::Guard io = MORTAR_TRY(io_.lock(fiber));
    if (files_.empty()) {
        MORTAR_TRY(begin_folder(fiber));
    } else {
        RecoveredMetadata found = MORTAR_TRY(recover_metadata(fiber, env_, folder_));
        is_quarantined_ = found.is_quarantined;
        if (is_quarantined_) return {};
        MORTAR_TRY(env_.disk.sync_folder(fiber, folder_));
        const Sequence found_committed = sequence_of(found.catalog.last_mutation());
        const bool is_installed = found_committed > commit_seq() && found.tail.empty();
        if (!is_installed) MORTAR_TRY(check_found(found));
        if (!found.damaged_snapshots.empty())
            MORTAR_TRY(set_aside(fiber, env_, folder_, found.damaged_snapshots));
        generation_ = snapshot_through_ = sequence_of(found.base);
        known_durable_ = sequence_of(found.known_durable);
        // A snapshot of a peer whose name was written although it could not be synced.
        if (is_installed) take_state(std::move(found.catalog));
    }
    MORTAR_TRY(write_generation(fiber, make_generation(catalog_, end_.last)));
    MORTAR_SOMETIMES(true, "metadata log opened again after a failure");
    env_.log.info("metadata_reopened",
                  {{"last_mutation", std::to_string(catalog_.last_mutation().value)}});
    return {};
}

// Does what was read again hold all that this node has synced, and nothing else there?
Result<void> DiskMetadataLog::check_found(RecoveredMetadata& found) const {
    const auto differs = [this](Sequence at) {
        return make_error(ErrorCode::DAMAGED, folder_ + ": mutation " + std::to_string(at.value) +
                                                  " is not what was synced");
    };
    Catalog& state = found.catalog;
    Sequence at = sequence_of(state.last_mutation());
    for (const Mutation& mutation : found.tail) {
        at = sequence_of(mutation.mutation_id);
        const TailRecord* known = in_memory(at);
        if (known != nullptr && at <= flushed_ && known->mutation != mutation) return differs(at);
        if (at <= commit_seq()) state.apply(mutation);
    }
    if (at < flushed_) {
        return make_error(ErrorCode::DAMAGED, folder_ + ": holds mutation " +
                                                  std::to_string(at.value) + " where " +
                                                  std::to_string(flushed_.value) + " was synced");
    }
    // Committed by others before it was synced here.
    for (at = at.next(); at <= commit_seq(); at = at.next()) {
        const TailRecord* record = in_memory(at);
        MORTAR_ASSERT(record != nullptr);
        if (!state.validate(record->mutation.body).ok()) return differs(at);
        state.apply(record->mutation);
    }
    if (state_bytes(state) != state_bytes(catalog_)) return differs(commit_seq());
    return {};
}

Result<void> DiskMetadataLog::close(Fiber& fiber) {
    is_closed_ = true;
    const Result<void> written = writing_.join(fiber);
    if (!written.ok()) writing_.cancel_and_join(fiber);
    reopening_.cancel_and_join(fiber);
    const Mutex::Guard turn = MORTAR_TRY(turn_.lock(fiber));
    const Mutex::Guard io = MORTAR_TRY(io_.lock(fiber));
    files_.clear();
    return {};
}
}  // namespace

Result<std::unique_ptr<MetadataLog>> MetadataLog::open(
    Fiber& fiber, Env& env, std::string folder, std::uint32_t snapshot_records,
    std::function<Result<void>(Fiber& fiber)> before_repair) {
    MORTAR_ASSERT(snapshot_records > 0);
    auto log = std::make_unique<DiskMetadataLog>(env, std::move(folder), snapshot_records);
    MORTAR_TRY(log->recover(fiber, before_repair));
    return std::unique_ptr<MetadataLog>(std::move(log));
}

}  // namespace mortar
