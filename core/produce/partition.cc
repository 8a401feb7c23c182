#include "core/produce/partition.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/log/tail_cache.h"
#include "core/produce/window_file.h"

namespace mortar {

std::string partition_folder(PartitionKey key) {
    return "topics/" + std::to_string(key.topic_id.value) + "/" +
           std::to_string(key.partition.value);
}

namespace {

std::string partition_name(PartitionKey key) {
    return std::to_string(key.topic_id.value) + "/" + std::to_string(key.partition.value);
}

// Stands for a log that could not be opened: nothing comes out of it, nothing goes in.
class UnopenedLog final : public PartitionLog {
  public:
    UnopenedLog(Env& env, std::string folder, Error error)
        : env_(env), folder_(std::move(folder)), failure_(std::move(error)) {}

    Result<Sequence> append(const Record&) override { return closed_error(); }
    Result<void> append_bytes(ByteSpan, const std::function<void(const Record&)>&) override {
        return closed_error();
    }
    Sequence last_sequence() const override { return {}; }
    LogEnd end() const override { return {}; }
    bool is_tail_torn() const override { return false; }
    Sequence flushed_sequence() const override { return {}; }
    std::uint64_t unflushed_bytes() const override { return 0; }
    void set_on_flushed(std::function<void()>) override {}
    void set_before_checkpoint(std::function<Result<void>(Fiber&, Sequence)>) override {}
    const std::optional<Error>& failure() const override { return failure_; }
    std::optional<Sequence> faulty_from() const override { return std::nullopt; }
    Result<RecordBatch> read(Fiber&, Sequence, Sequence, std::uint64_t) override {
        return closed_error();
    }
    Result<RecordBytes> read_bytes(Fiber&, Sequence, Sequence, std::uint64_t) override {
        return closed_error();
    }
    Result<LeaderEpoch> epoch_at(Fiber&, Sequence) override { return closed_error(); }
    LogStats stats() const override { return {}; }
    Result<void> cut(Fiber&, Sequence) override { return closed_error(); }
    Result<void> make_durable(Fiber&) override { return closed_error(); }
    Result<void> close(Fiber&) override { return {}; }
    Result<void> remove_files(Fiber& fiber) override {
        return remove_log_files(fiber, env_, folder_);
    }

  private:
    Error closed_error() const {
        return make_error(ErrorCode::LOG_CLOSED, folder_ + ": " + failure_->to_string());
    }

    Env& env_;
    std::string folder_;
    std::optional<Error> failure_;
};

}  // namespace

Partition::Hurry::Hurry(Partition& partition) : partition_(partition) {
    ++partition_.hurry_count_;
    partition_.committed_.notify_all();
}

Partition::Hurry::~Hurry() {
    --partition_.hurry_count_;
    partition_.hurry_ended_.notify_all();
}

Partition::Partition(PartitionTable& table, PartitionKey key, std::shared_ptr<PartitionLog> log,
                     ProducerWindows windows)
    : table_(table), key_(key), log_(std::move(log)), windows_(std::move(windows)) {}

Sequence Partition::commit_seq() const {
    if (lost_committed_ || !is_end_known_) return commit_seq_;
    return std::min(commit_seq_, log_->last_sequence());
}

// Before the log was ever opened nobody can say what it holds: try_reopen asks again.
void Partition::raise_commit_floor(Sequence known) {
    readable_seen_ = std::max(readable_seen_, known);
    commit_seq_ = std::max(commit_seq_, readable_seen_);
    if (is_closed() || !is_end_known_) return;
    lost_committed_ = lost_committed_ || log_->flushed_sequence() < readable_seen_;
    MORTAR_SOMETIMES(lost_committed_, "partition: the log lost committed records");
}

void Partition::note_readable() {
    readable_seen_ = std::max(readable_seen_, readable_seq());
    if (!lost_committed_ || log_->flushed_sequence() < readable_seen_) return;
    MORTAR_SOMETIMES(true, "partition: a leader brought lost records back");
    lost_committed_ = quarantine_reported_ = false;
}

void Partition::end_log() {
    log_ended_ = true;
    known_synced_ = log_->known_synced();
}

void Partition::advance_commit(Sequence committed) {
    const Sequence reached = std::min(committed, log_->last_sequence());
    if (reached <= commit_seq_) return;
    commit_seq_ = reached;
    note_readable();
    table_.on_committed(*this);
}

Result<Sequence> Partition::append(const Record& record) {
    const Sequence sequence = MORTAR_TRY(log_->append(record));
    MORTAR_ASSERT(sequence > commit_seq());
    windows_.on_record(record.producer_id, record.producer_seq, sequence);
    table_.count_unflushed(*this);
    if (table_.replication_ != nullptr) table_.replication_->on_appended(*this);
    return sequence;
}

Result<void> Partition::append_bytes(ByteSpan records) {
    Result<void> appended = log_->append_bytes(records, [this](const Record& record) {
        windows_.on_record(record.producer_id, record.producer_seq, record.sequence);
    });
    table_.count_unflushed(*this);
    return appended;
}

Result<RecordBatch> Partition::read(Fiber& fiber, Sequence from, Sequence through,
                                    std::uint64_t max_bytes) {
    const std::shared_ptr<PartitionLog> log = log_;
    return log->read(fiber, from, through, max_bytes);
}

Result<RecordBytes> Partition::read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                          std::uint64_t max_bytes) {
    const std::shared_ptr<PartitionLog> log = log_;
    return log->read_bytes(fiber, from, through, max_bytes);
}

Result<LeaderEpoch> Partition::epoch_at(Fiber& fiber, Sequence sequence) {
    const std::shared_ptr<PartitionLog> log = log_;
    return log->epoch_at(fiber, sequence);
}

Result<void> Partition::cut(Fiber& fiber, Sequence keep_through) {
    MORTAR_ASSERT(keep_through >= commit_seq());
    const Hurry hurry(*this);
    const std::shared_ptr<PartitionLog> log = log_;
    if (log->faulty_from() && *log->faulty_from() <= keep_through)
        return make_error(ErrorCode::DAMAGED, partition_name(key_));
    MORTAR_TRY(wait_flushed(fiber, *log, keep_through));
    const bool was_quarantined = is_quarantined();
    if (keep_through == log->last_sequence() && !was_quarantined) return {};
    // Made first: what fails here leaves the log as it is.
    OpenedWindows kept =
        MORTAR_TRY(open_windows(fiber, table_.env_, partition_folder(key_), *log, keep_through));
    MORTAR_TRY(log->cut(fiber, keep_through));
    if (log != log_) return make_error(ErrorCode::LOG_CLOSED, partition_name(key_));
    windows_ = std::move(kept.windows);
    quarantine_reported_ = is_quarantined();
    table_.count_unflushed(*this);
    if (was_quarantined) table_.on_state_changed(*this);
    committed_.notify_all();
    return {};
}

Result<void> Partition::wait_flushed(Fiber& fiber, PartitionLog& log, Sequence through) {
    while (!log.failure() && log.flushed_sequence() < through)
        MORTAR_TRY(committed_.wait(fiber));
    if (log.failure()) return make_error(ErrorCode::LOG_CLOSED, partition_name(key_));
    return {};
}

Result<void> Partition::make_durable(Fiber& fiber) {
    const Hurry hurry(*this);
    const std::shared_ptr<PartitionLog> log = log_;
    return log->make_durable(fiber);
}

Result<std::vector<EpochRun>> Partition::runs_behind_damage(Fiber& fiber) {
    const std::shared_ptr<PartitionLog> log = log_;
    return log->runs_behind_damage(fiber);
}

Result<void> Partition::repair(Fiber& fiber, Sequence through, const FetchRecords& fetch) {
    return table_.repair(fiber, key_, through, fetch);
}

Result<Scrubbed> Partition::scrub(Fiber& fiber, Sequence from, std::uint64_t max_bytes) {
    const std::shared_ptr<PartitionLog> log = log_;
    return log->scrub(fiber, from, max_bytes);
}

PartitionTable::PartitionTable(Env& env, LogOptions options)
    : env_(env),
      log_options_(std::move(options)),
      tails_(std::make_shared<TailBudget>()),
      reopening_(env.scheduler) {}

PartitionTable::PartitionTable(Env& env, OpenLog open_log)
    : env_(env), open_log_(std::move(open_log)), reopening_(env.scheduler) {}

Result<std::unique_ptr<PartitionLog>> PartitionTable::open_log(Fiber& fiber, PartitionKey key,
                                                               const KnownSynced& known) {
    const std::string folder = partition_folder(key);
    if (open_log_) return open_log_(fiber, folder, partition_name(key));
    LogOptions options = log_options_;
    options.before_repair = [this, key](Fiber& at) {
        return before_repair_ ? before_repair_(at, key) : Result<void>();
    };
    options.known_synced = known;
    return PartitionLog::open(fiber, env_, folder, partition_name(key), std::move(options), tails_);
}

PartitionTable::~PartitionTable() = default;

Result<void> PartitionTable::open_topic(Fiber& fiber, const Topic& topic) {
    return open(fiber, topic, OnDiskError::FAIL);
}

Result<void> PartitionTable::recover_topic(Fiber& fiber, const Topic& topic) {
    return open(fiber, topic, OnDiskError::LEAVE_CLOSED);
}

Result<void> PartitionTable::open(Fiber& fiber, const Topic& topic, OnDiskError on_disk_error) {
    const Topic meant = topic;  // the catalog's own may go while this waits
    const TopicId topic_id = meant.topic_id;
    std::optional<Mutex::Guard> guard(MORTAR_TRY(topology_.lock(fiber)));
    // Another topic had its number: its creation was cut away with the metadata's tail. Its files go first.
    while (retired_.contains(topic_id)) {
        guard.reset();
        MORTAR_TRY(remove_topic(fiber, topic_id));
        guard.emplace(MORTAR_TRY(topology_.lock(fiber)));
    }
    if (topics_.contains(topic_id)) return {};
    opening_ = topic_id;
    opening_is_retired_ = false;
    Result<TopicPartitions> opened = open_partitions(fiber, meant, on_disk_error);
    opening_.reset();
    if (!opened.ok()) return std::move(opened).error();
    MORTAR_SOMETIMES(opening_is_retired_, "partition: topic deleted while it was opened");
    const auto at = topics_.emplace(topic_id, std::move(opened).value()).first;
    for (const std::unique_ptr<Partition>& partition : at->second.partitions) {
        if (replication_ != nullptr) replication_->on_opened(*partition);
    }
    if (opening_is_retired_) retire_topic(topic_id);
    return {};
}

Result<PartitionTable::TopicPartitions> PartitionTable::open_partitions(Fiber& fiber,
                                                                        const Topic& topic,
                                                                        OnDiskError on_disk_error) {
    TopicPartitions opened;
    for (std::uint16_t i = 0; i < topic.partition_count; ++i) {
        const PartitionKey key{topic.topic_id, PartitionIndex(i)};
        Result<Opened> parts = open_log_and_windows(fiber, key, {});
        if (parts.is(ErrorCode::IO_ERROR) && on_disk_error == OnDiskError::LEAVE_CLOSED) {
            opened.partitions.push_back(make_closed(key, parts.error()));
            ++opened_count_;
            continue;
        }
        if (!parts.ok()) {
            // All or none: what was opened has fibers that must end first.
            for (const std::unique_ptr<Partition>& partition : opened.partitions) {
                const Result<void> closed = close_log(fiber, *partition);
                if (!closed.ok())
                    env_.log.warn("partition_close_failed",
                                  {{"reason", closed.error().to_string()}});
            }
            opened_count_ -= opened.partitions.size();
            return std::move(parts).error();
        }
        opened.partitions.push_back(std::make_unique<Partition>(*this, key, std::move(parts->log),
                                                                std::move(parts->windows)));
        Partition& partition = *opened.partitions.back();
        partition.raise_commit_floor(parts->known_committed);
        attach(partition);
        ++opened_count_;
    }
    return opened;
}

void PartitionTable::report_unopened(PartitionKey key, const Error& error) {
    env_.log.error("partition_not_opened", {{"partition", partition_name(key)},
                                            {"reason", error.to_string()},
                                            {"advice", "check the disk; it is tried again"}});
}

std::unique_ptr<Partition> PartitionTable::make_closed(PartitionKey key, const Error& error) {
    report_unopened(key, error);
    auto log = std::make_shared<UnopenedLog>(env_, partition_folder(key), error);
    auto partition = std::make_unique<Partition>(*this, key, std::move(log), ProducerWindows());
    partition->is_end_known_ = false;
    partition->log_ended_ = true;
    start_reopening(*partition);
    return partition;
}

void PartitionTable::retire_topic(TopicId topic_id) {
    if (opening_ == topic_id) opening_is_retired_ = true;
    auto found = topics_.extract(topic_id);
    if (found.empty()) return;
    const TopicPartitions& retired = retired_.insert(std::move(found)).position->second;
    for (const std::unique_ptr<Partition>& partition : retired.partitions) {
        if (observer_ != nullptr) observer_->on_removed(*partition);
        if (replication_ != nullptr) replication_->on_retired(partition->key_);
        partition->committed().notify_all();
        --opened_count_;
    }
}

Result<void> PartitionTable::remove_topic(Fiber& fiber, TopicId topic_id) {
    const Mutex::Guard guard = MORTAR_TRY(topology_.lock(fiber));
    const auto found = retired_.find(topic_id);
    if (found == retired_.end()) return {};
    const TopicPartitions removed = std::move(found->second);
    retired_.erase(found);
    Result<void> first_failure;
    for (const std::unique_ptr<Partition>& partition : removed.partitions) {
        // A log that cannot be flushed any more is deleted all the same.
        const Result<void> closed =
            partition->log_ended_ ? Result<void>() : close_log(fiber, *partition);
        if (closed.is(ErrorCode::CANCELLED)) return closed;
        while (partition->hurry_count_ > 0) {  // who still cuts it holds on to the partition
            const auto waited = partition->hurry_ended_.wait(fiber, NEVER, CancelMode::DEFERRED);
            MORTAR_ASSERT(waited.ok());
        }
        unflushed_bytes_ -= std::exchange(partition->counted_unflushed_bytes_, 0);
        Result<void> gone = partition->log().remove_files(fiber);
        if (!gone.ok() && first_failure.ok()) first_failure = std::move(gone);
    }
    if (!first_failure.ok()) return first_failure;
    // Absent when nothing was ever appended; not empty when it holds files that are not ours.
    Result<void> gone = env_.disk.remove(fiber, "topics/" + std::to_string(topic_id.value));
    return gone.is(ErrorCode::NOT_FOUND) ? Result<void>() : gone;
}

Partition* PartitionTable::find(PartitionKey key) {
    const auto found = topics_.find(key.topic_id);
    if (found == topics_.end()) return nullptr;
    const auto& partitions = found->second.partitions;
    return key.partition.value < partitions.size() ? partitions[key.partition.value].get()
                                                   : nullptr;
}

std::vector<PartitionKey> PartitionTable::keys() const {
    std::vector<PartitionKey> keys;
    for (const auto& [topic_id, topic] : topics_) {
        for (const std::unique_ptr<Partition>& partition : topic.partitions)
            keys.push_back(partition->key_);
    }
    return keys;
}

std::uint16_t PartitionTable::partition_count(TopicId topic_id) const {
    const auto found = topics_.find(topic_id);
    if (found == topics_.end()) return 0;
    return static_cast<std::uint16_t>(found->second.partitions.size());
}

PartitionIndex PartitionTable::next_round_robin(TopicId topic_id) {
    const auto found = topics_.find(topic_id);
    MORTAR_ASSERT(found != topics_.end());
    TopicPartitions& topic = found->second;
    const PartitionIndex chosen(topic.round_robin);
    topic.round_robin =
        static_cast<std::uint16_t>((topic.round_robin + 1u) % topic.partitions.size());
    return chosen;
}

Result<void> PartitionTable::close(Fiber& fiber) {
    reopening_.cancel_and_join(fiber);
    const Mutex::Guard guard = MORTAR_TRY(topology_.lock(fiber));
    Result<void> first_failure;
    for (const std::map<TopicId, TopicPartitions>* topics : {&topics_, &retired_}) {
        for (const auto& [topic_id, topic] : *topics) {
            for (const std::unique_ptr<Partition>& partition : topic.partitions) {
                if (partition->log_ended_) continue;
                Result<void> closed = close_log(fiber, *partition);
                if (!closed.ok() && first_failure.ok()) first_failure = std::move(closed);
            }
        }
    }
    return first_failure;
}

void PartitionTable::note_committed(PartitionKey key, Sequence known) {
    Partition* partition = find(key);
    if (partition == nullptr) return;
    partition->raise_commit_floor(known);
    if (partition->is_quarantined()) report_quarantine(*partition);
}

void PartitionTable::count_unflushed(Partition& partition) {
    const std::uint64_t now_bytes = partition.log().unflushed_bytes();
    unflushed_bytes_ += now_bytes;
    unflushed_bytes_ -= std::exchange(partition.counted_unflushed_bytes_, now_bytes);
}

std::size_t PartitionTable::unserved_count() const {
    std::size_t count = 0;
    for (const auto& [topic_id, topic] : topics_) {
        for (const std::unique_ptr<Partition>& partition : topic.partitions) {
            if (partition->is_quarantined() || partition->is_closed()) ++count;
        }
    }
    return count;
}

Result<PartitionTable::Opened> PartitionTable::open_log_and_windows(Fiber& fiber, PartitionKey key,
                                                                    const KnownSynced& known) {
    const std::string folder = partition_folder(key);
    Opened opened;
    opened.log = MORTAR_TRY(open_log(fiber, key, known));
    // A quarantined partition is served by nobody, so nobody asks its windows.
    if (opened.log->faulty_from().has_value()) return opened;
    Result<OpenedWindows> windows =
        open_windows(fiber, env_, folder, *opened.log, opened.log->flushed_sequence());
    if (windows.ok()) {
        opened.windows = std::move(windows->windows);
        opened.known_committed = windows->known_committed;
    } else if (!opened.log->faulty_from().has_value()) {
        return std::move(windows).error();
    }
    return opened;
}

void PartitionTable::attach(Partition& partition) {
    if (partition.is_quarantined()) report_quarantine(partition);
    partition.log_->set_on_flushed([this, &partition] { on_flushed(partition); });
    partition.log_->set_before_checkpoint(
        [this, &partition](Fiber& fiber, Sequence) { return save_windows_of(fiber, partition); });
}

Result<void> PartitionTable::close_log(Fiber& fiber, Partition& partition) {
    const Partition::Hurry hurry(partition);
    const std::shared_ptr<PartitionLog> log = partition.log_;
    return log->close(fiber);
}

Result<void> PartitionTable::save_windows_of(Fiber& fiber, Partition& partition) {
    const std::shared_ptr<PartitionLog> log = partition.log_;
    const Sequence through = log->last_sequence();
    return save_windows(fiber, env_.disk, partition_folder(partition.key_), partition.windows_,
                        through, partition.committed_, [&]() -> Result<WindowFate> {
                            if (log->failure().has_value()) return *log->failure();
                            if (partition.readable_seq() >= through) return WindowFate::SAVE;
                            return partition.hurry_count_ > 0 ? WindowFate::DROP : WindowFate::WAIT;
                        });
}

void PartitionTable::on_flushed(Partition& partition) {
    count_unflushed(partition);
    partition.note_readable();
    if (replication_ != nullptr) replication_->on_flushed(partition);
    if (partition.is_closed() && !partition.reopening_) {
        env_.log.error("partition_log_closed",
                       {{"partition", partition_name(partition.key_)},
                        {"reason", partition.log_->failure()->to_string()}});
        if (observer_ != nullptr) observer_->on_log_failed(partition);
        start_reopening(partition);
        on_state_changed(partition);
    }
    if (partition.is_quarantined()) report_quarantine(partition);
    partition.committed_.notify_all();
}

void PartitionTable::on_committed(Partition& partition) {
    if (observer_ != nullptr) observer_->on_committed(partition);
    partition.committed_.notify_all();
}

void PartitionTable::on_state_changed(Partition& partition) {
    if (replication_ != nullptr) replication_->on_state_changed(partition);
}

void PartitionTable::report_quarantine(Partition& partition) {
    if (std::exchange(partition.quarantine_reported_, true)) return;
    const std::optional<Sequence> faulty_from = partition.log_->faulty_from();
    env_.log.error(
        "partition_quarantined",
        {{"partition", partition_name(partition.key_)},
         {"folder", partition_folder(partition.key_)},
         {"faulty_from",
          std::to_string(
              (faulty_from ? *faulty_from : partition.log_->flushed_sequence().next()).value)},
         {"commit_seq", std::to_string(partition.commit_seq().value)},
         {"advice",
          "keep a copy of the folder; nothing is written to it any more (RB-1, level -2)"}});
    on_state_changed(partition);
}

void PartitionTable::start_reopening(Partition& partition) {
    partition.reopening_ = true;
    reopening_.spawn("produce.reopen", [this, key = partition.key_](Fiber& fiber) {
        const Result<void> reopened = reopen(fiber, key);
        MORTAR_ASSERT(reopened.ok() || reopened.is(ErrorCode::CANCELLED));
    });
}

// What is on disk is read again: a failed sync is never retried as if nothing had happened (design
// 3).
Result<void> PartitionTable::reopen(Fiber& fiber, PartitionKey key) {
    Duration backoff = REOPEN_BACKOFF_MIN;
    while (true) {
        MORTAR_TRY(env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, backoff)));
        Result<void> reopened = try_reopen(fiber, key);
        if (reopened.ok() || reopened.is(ErrorCode::CANCELLED)) return reopened;
        env_.log.warn("partition_reopen_failed", {{"partition", partition_name(key)},
                                                  {"reason", reopened.error().to_string()}});
        backoff = std::min(backoff * 2, REOPEN_BACKOFF_MAX);
    }
}

Result<void> PartitionTable::try_reopen(Fiber& fiber, PartitionKey key) {
    const Mutex::Guard guard = MORTAR_TRY(topology_.lock(fiber));
    Partition* partition = find(key);
    if (partition == nullptr) return {};
    MORTAR_ASSERT(partition->is_closed());
    if (!partition->log_ended_) {
        // Ends its fibers; that it cannot flush is known.
        const Result<void> closed = close_log(fiber, *partition);
        if (closed.is(ErrorCode::CANCELLED)) return closed;
        partition->end_log();
    }
    take_opened(*partition, MORTAR_TRY(open_log_and_windows(fiber, key, partition->known_synced_)));
    MORTAR_SOMETIMES(!partition->is_quarantined(), "partition: log opened again after a failure");
    return {};
}

void PartitionTable::take_opened(Partition& partition, Opened opened) {
    partition.log_ = std::move(opened.log);
    partition.lost_committed_ = false;
    partition.is_end_known_ = true;
    partition.raise_commit_floor(opened.known_committed);
    partition.windows_ = std::move(opened.windows);
    partition.log_ended_ = partition.reopening_ = partition.quarantine_reported_ = false;
    attach(partition);
    count_unflushed(partition);
    on_state_changed(partition);
    env_.log.info("partition_reopened",
                  {{"partition", partition_name(partition.key_)},
                   {"last_sequence", std::to_string(partition.log_->last_sequence().value)}});
    partition.committed_.notify_all();
}

// --- repair

Result<void> PartitionTable::repair(Fiber& fiber, PartitionKey key, Sequence through,
                                    const FetchRecords& fetch) {
    if (!repairing_.insert(key).second)
        return make_error(ErrorCode::LOG_CLOSED, partition_name(key) + " is being repaired");
    Result<void> done = repair_part(fiber, key, through, fetch);
    repairing_.erase(key);
    return done;
}

Result<void> PartitionTable::repair_part(Fiber& fiber, PartitionKey key, Sequence through,
                                         const FetchRecords& fetch) {
    const auto changed = [&] {
        return make_error(ErrorCode::LOG_CLOSED, partition_name(key) + " changed meanwhile");
    };
    Partition* partition = find(key);
    if (partition == nullptr || partition->is_closed()) return changed();
    const std::shared_ptr<PartitionLog> log = partition->log_;
    const std::optional<DamagedPart> part = log->damaged_part();
    if (!part || through < part->first || through > part->last) return changed();
    SegmentRewrite rewritten =
        MORTAR_TRY(SegmentRewrite::begin(fiber, env_, partition_folder(key), *part));
    while (rewritten.last() < through) {
        const ByteVector records = MORTAR_TRY(fetch(fiber, rewritten.last().next(), through));
        MORTAR_TRY(rewritten.add(fiber, records));
    }
    if (rewritten.last() > through)
        return make_error(ErrorCode::MALFORMED_PAYLOAD, "more records than asked for");
    MORTAR_TRY(rewritten.sync(fiber));

    const Mutex::Guard guard = MORTAR_TRY(topology_.lock(fiber));
    partition = find(key);
    if (partition == nullptr || partition->log_ != log || partition->is_closed() ||
        log->damaged_part() != part)
        return changed();
    return put_in_place(fiber, *partition, std::move(rewritten));
}

// With topology_ held: nobody else opens, closes or removes it.
Result<void> PartitionTable::put_in_place(Fiber& fiber, Partition& partition,
                                          SegmentRewrite rewritten) {
    // What it still had to write ends first. It stays damaged, so nothing is appended or served.
    const Result<void> closed = close_log(fiber, partition);
    partition.end_log();
    if (!closed.ok()) return closed;  // it failed, and is opened again for that
    if (rewritten.ends_earlier() && partition.known_synced_.end.last > rewritten.last())
        partition.known_synced_.end = rewritten.end();
    Result<void> placed = rewritten.put_in_place(fiber);
    Result<Opened> opened = open_log_and_windows(fiber, partition.key_, partition.known_synced_);
    if (!opened.ok()) {
        leave_closed(partition, opened.error());
        return std::move(opened).error();
    }
    take_opened(partition, std::move(opened).value());
    MORTAR_SOMETIMES(placed.ok() && !partition.is_quarantined(), "partition: repaired");
    return placed;
}

// It stays closed for the time being, as if the node had just started.
void PartitionTable::leave_closed(Partition& partition, const Error& error) {
    report_unopened(partition.key_, error);
    partition.log_ = std::make_shared<UnopenedLog>(env_, partition_folder(partition.key_), error);
    partition.is_end_known_ = false;
    partition.log_ended_ = true;
    count_unflushed(partition);
    start_reopening(partition);
    if (observer_ != nullptr) observer_->on_log_failed(partition);
    on_state_changed(partition);
    partition.committed_.notify_all();
}

}  // namespace mortar
