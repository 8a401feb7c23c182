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

Partition::Partition(PartitionKey key, std::shared_ptr<PartitionLog> log, ProducerWindows windows)
    : key_(key), log_(std::move(log)), windows_(std::move(windows)) {}

// Before the log was ever opened nobody can say what it holds: try_reopen asks again.
void Partition::raise_commit_floor(Sequence known) {
    commit_floor_ = std::max(commit_floor_, known);
    if (is_closed() || !is_end_known_) return;
    lost_committed_ = lost_committed_ || log_->flushed_sequence() < commit_floor_;
    MORTAR_SOMETIMES(lost_committed_, "partition: the log lost committed records");
}

Result<Sequence> Partition::append(const Record& record) {
    const Sequence sequence = MORTAR_TRY(log_->append(record));
    MORTAR_ASSERT(sequence > commit_seq());
    windows_.on_record(record.producer_id, record.producer_seq, sequence);
    return sequence;
}

Result<RecordBatch> Partition::read(Fiber& fiber, Sequence from, Sequence through,
                                    std::uint64_t max_bytes) {
    const std::shared_ptr<PartitionLog> log = log_;
    return log->read(fiber, from, through, max_bytes);
}

PartitionTable::PartitionTable(Env& env, LogOptions options)
    : PartitionTable(env, [&env, options, tails = std::make_shared<TailBudget>()](
                              Fiber& fiber, const std::string& folder, const std::string& name) {
          return PartitionLog::open(fiber, env, folder, name, options, tails);
      }) {}

PartitionTable::PartitionTable(Env& env, OpenLog open_log)
    : env_(env), open_log_(std::move(open_log)), reopening_(env.scheduler) {}

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
    const Mutex::Guard guard = MORTAR_TRY(topology_.lock(fiber));
    if (topics_.contains(topic_id)) return {};
    opening_ = topic_id;
    opening_is_retired_ = false;
    Result<TopicPartitions> opened = open_partitions(fiber, meant, on_disk_error);
    opening_.reset();
    if (!opened.ok()) return std::move(opened).error();
    MORTAR_SOMETIMES(opening_is_retired_, "partition: topic deleted while it was opened");
    topics_.emplace(topic_id, std::move(opened).value());
    if (opening_is_retired_) retire_topic(topic_id);
    return {};
}

Result<PartitionTable::TopicPartitions> PartitionTable::open_partitions(Fiber& fiber,
                                                                        const Topic& topic,
                                                                        OnDiskError on_disk_error) {
    TopicPartitions opened;
    for (std::uint16_t i = 0; i < topic.partition_count; ++i) {
        const PartitionKey key{topic.topic_id, PartitionIndex(i)};
        Result<Opened> parts = open_log_and_windows(fiber, key);
        if (parts.is(ErrorCode::IO_ERROR) && on_disk_error == OnDiskError::LEAVE_CLOSED) {
            opened.partitions.push_back(make_closed(key, parts.error()));
            ++opened_count_;
            continue;
        }
        if (!parts.ok()) {
            // All or none: what was opened has fibers that must end first.
            for (const std::unique_ptr<Partition>& partition : opened.partitions) {
                const Result<void> closed = partition->log().close(fiber);
                if (!closed.ok())
                    env_.log.warn("partition_close_failed",
                                  {{"reason", closed.error().to_string()}});
            }
            opened_count_ -= opened.partitions.size();
            return std::move(parts).error();
        }
        opened.partitions.push_back(
            std::make_unique<Partition>(key, std::move(parts->log), std::move(parts->windows)));
        Partition& partition = *opened.partitions.back();
        partition.raise_commit_floor(parts->known_committed);
        attach(partition);
        ++opened_count_;
    }
    return opened;
}

std::unique_ptr<Partition> PartitionTable::make_closed(PartitionKey key, const Error& error) {
    env_.log.error("partition_not_opened", {{"partition", partition_name(key)},
                                            {"reason", error.to_string()},
                                            {"advice", "check the disk; it is tried again"}});
    auto log = std::make_shared<UnopenedLog>(env_, partition_folder(key), error);
    auto partition = std::make_unique<Partition>(key, std::move(log), ProducerWindows());
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
        partition->committed().notify_all();
        --opened_count_;
    }
}

Result<void> PartitionTable::remove_topic(Fiber& fiber, TopicId topic_id) {
    const Mutex::Guard guard = MORTAR_TRY(topology_.lock(fiber));
    MORTAR_ASSERT(!topics_.contains(topic_id));
    const auto found = retired_.find(topic_id);
    if (found == retired_.end()) return {};
    const TopicPartitions removed = std::move(found->second);
    retired_.erase(found);
    Result<void> first_failure;
    for (const std::unique_ptr<Partition>& partition : removed.partitions) {
        // A log that cannot be flushed any more is deleted all the same.
        const Result<void> closed =
            partition->log_ended_ ? Result<void>() : partition->log().close(fiber);
        if (closed.is(ErrorCode::CANCELLED)) return closed;
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
                Result<void> closed = partition->log().close(fiber);
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

Result<PartitionTable::Opened> PartitionTable::open_log_and_windows(Fiber& fiber,
                                                                    PartitionKey key) {
    const std::string folder = partition_folder(key);
    Opened opened;
    opened.log = MORTAR_TRY(open_log_(fiber, folder, partition_name(key)));
    // A quarantined partition is served by nobody, so nobody asks its windows.
    if (opened.log->faulty_from().has_value()) return opened;
    Result<OpenedWindows> windows = open_windows(fiber, env_, folder, *opened.log);
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
    partition.log_->set_before_checkpoint([this, &partition](Fiber& fiber, Sequence) {
        return save_windows(fiber, env_.disk, partition_folder(partition.key_), partition.windows_,
                            *partition.log_, partition.committed_);
    });
}

void PartitionTable::on_flushed(Partition& partition) {
    count_unflushed(partition);
    if (observer_ != nullptr) observer_->on_committed(partition);
    if (partition.is_closed() && !partition.reopening_) {
        partition.commit_floor_ = partition.commit_seq();
        env_.log.error("partition_log_closed",
                       {{"partition", partition_name(partition.key_)},
                        {"reason", partition.log_->failure()->to_string()}});
        if (observer_ != nullptr) observer_->on_log_failed(partition);
        start_reopening(partition);
    }
    if (partition.is_quarantined()) report_quarantine(partition);
    partition.committed_.notify_all();
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
        const Result<void> closed = partition->log_->close(fiber);
        if (closed.is(ErrorCode::CANCELLED)) return closed;
        partition->log_ended_ = true;
    }
    Opened opened = MORTAR_TRY(open_log_and_windows(fiber, key));
    partition->log_ = std::move(opened.log);
    partition->lost_committed_ = false;
    partition->is_end_known_ = true;
    partition->raise_commit_floor(std::max(partition->commit_floor_, opened.known_committed));
    partition->windows_ = std::move(opened.windows);
    partition->log_ended_ = partition->reopening_ = partition->quarantine_reported_ = false;
    attach(*partition);
    count_unflushed(*partition);
    MORTAR_SOMETIMES(!partition->is_quarantined(), "partition: log opened again after a failure");
    env_.log.info("partition_reopened",
                  {{"partition", partition_name(key)},
                   {"last_sequence", std::to_string(partition->log_->last_sequence().value)}});
    partition->committed_.notify_all();
    return {};
}

}  // namespace mortar
