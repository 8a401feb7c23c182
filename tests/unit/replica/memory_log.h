// memory_log: replicated logs in memory for tests of replication: what was flushed survives a restart, the rest does not.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/fiber/deadline.h"
#include "core/fiber/group.h"
#include "core/replica/replicated_log.h"

namespace mortar::testing {

class MemoryLog final : public ReplicatedLog {
  public:
    struct Record {
        LeaderEpoch leader_epoch;
        std::string text;
        bool operator==(const Record&) const = default;
    };
    MemoryLog(PartitionKey key, Duration flush_time) : key_(key), flush_time_(flush_time) {}

    // A new life of the node.
    void attach(Env env, ReplicatedLogObserver* observer) {
        env_.emplace(env);
        observer_ = observer;
        records.resize(static_cast<std::size_t>(flushed_.value));
        commit_ = Sequence(0);
        is_closed_ = false;
        flushing_ = std::make_unique<Group>(env.scheduler);
        wanted_ = std::make_unique<Event>();
        flushing_->spawn("memory_log", [this](Fiber& fiber) { run(fiber); });
    }
    void detach() { observer_ = nullptr; }
    // For flushes that begin from now on.
    void set_flush_time(Duration flush_time) { flush_time_ = flush_time; }

    Sequence append(LeaderEpoch leader_epoch, std::string text) {
        records.push_back({leader_epoch, std::move(text)});
        observer_->on_appended(*this);
        wanted_->notify_all();
        return end().last;
    }

    PartitionKey key() const override { return key_; }
    LogEnd end() const override {
        if (records.empty()) return {};
        return {Sequence(records.size()), records.back().leader_epoch};
    }
    Sequence flushed() const override { return flushed_; }
    Sequence commit_seq() const override { return commit_; }
    std::optional<Sequence> faulty_from() const override { return faulty_from_; }
    bool is_closed() const override { return is_closed_; }
    bool is_uncertain() const override { return is_torn; }

    Result<RecordBytes> read_bytes(Fiber&, Sequence from, Sequence through,
                                   std::uint64_t max_bytes) override {
        if (faulty_from_ && from <= *faulty_from_ && through >= *faulty_from_)
            return make_error(ErrorCode::CHECKSUM_MISMATCH, "rotten");
        if (from <= snapshot_through_) return make_error(ErrorCode::NOT_FOUND, "in a snapshot");
        return encode(from, through, max_bytes);
    }
    RecordBytes encode(Sequence from, Sequence through, std::uint64_t max_bytes) const {
        auto bytes = std::make_shared<ByteVector>();
        RecordBytes out;
        out.first = from;
        for (Sequence s = from; s <= through; s = s.next()) {
            if (!bytes->empty() && bytes->size() >= max_bytes) break;
            const Record& record = records.at(s.value - 1);
            ByteWriter writer(*bytes);
            writer.id(s);
            writer.id(record.leader_epoch);
            writer.u32(static_cast<std::uint32_t>(record.text.size()));
            writer.bytes(as_byte_span(record.text));
            out.last = s;
        }
        out.size_bytes = bytes->size();
        out.parts.push_back(*bytes);
        out.owners.push_back(bytes);
        return out;
    }
    Result<LeaderEpoch> epoch_at(Fiber&, Sequence sequence) override {
        if (sequence == faulty_from_) return make_error(ErrorCode::CHECKSUM_MISMATCH, "rotten");
        const LeaderEpoch found =
            records.at(std::max(sequence, snapshot_through_).value - 1).leader_epoch;
        if (on_epoch_read) on_epoch_read();
        return found;
    }
    // What is committed stands in a snapshot from now on, and in no log.
    void compact() { snapshot_through_ = commit_; }
    Sequence snapshot_through() const { return snapshot_through_; }
    Result<void> install_snapshot(ByteSpan bytes) {
        std::vector<Record> covered = MORTAR_TRY(parse(bytes, Sequence(1), LeaderEpoch()));
        if (Sequence(covered.size()) <= commit_ && !faulty_from_) return {};
        records = std::move(covered);
        faulty_from_.reset();
        flushed_ = commit_ = snapshot_through_ = end().last;
        observer_->on_flushed(*this);
        return {};
    }
    // A write failed: until it is opened again it claims what it was given, and then has what was flushed.
    void fail() {
        is_closed_ = true;
        observer_->on_state_changed(*this);
    }
    void reopen() {
        records.resize(static_cast<std::size_t>(flushed_.value));
        is_closed_ = false;
        wanted_->notify_all();
        observer_->on_state_changed(*this);
    }
    Result<void> append_bytes(ByteSpan bytes) override {
        if (is_closed_) return make_error(ErrorCode::LOG_CLOSED);
        if (faulty_from_ && !records.empty()) return make_error(ErrorCode::DAMAGED, "rotten");
        const std::vector<Record> parsed =
            MORTAR_TRY(parse(bytes, end().last.next(), end().leader_epoch));
        faulty_from_.reset();
        records.insert(records.end(), parsed.begin(), parsed.end());
        wanted_->notify_all();
        return {};
    }
    // Of a node that is down: its folder is gone.
    void lose_all() {
        records.clear();
        flushed_ = commit_ = snapshot_through_ = Sequence(0);
    }
    // As metadata does that cannot be trusted: it is moved aside, and the log may have held anything.
    void quarantine() {
        lose_all();
        faulty_from_ = Sequence(1);
    }
    // The record is not what was written, and a read has met it.
    void rot(Sequence sequence) {
        faulty_from_ = sequence;
        records.at(sequence.value - 1).text = "rotten";
        if (observer_ != nullptr) observer_->on_state_changed(*this);
    }
    std::optional<DamagedPart> damaged_part() const override {
        if (!faulty_from_) return std::nullopt;
        return DamagedPart{*faulty_from_, *faulty_from_, false};
    }
    Result<std::vector<EpochRun>> runs_behind_damage(Fiber&) override {
        std::vector<EpochRun> runs;
        for (Sequence s = faulty_from_->next(); s <= end().last; s = s.next()) {
            const LeaderEpoch leader_epoch = records[s.value - 1].leader_epoch;
            if (runs.empty() || runs.back().leader_epoch != leader_epoch)
                runs.push_back({leader_epoch, s, s});
            runs.back().last = s;
        }
        return runs;
    }
    Result<void> repair(Fiber& fiber, Sequence through, const FetchRecords& fetch) override {
        const Sequence first = *faulty_from_;
        const ByteVector bytes = MORTAR_TRY(fetch(fiber, first, through));
        if (cannot_repair) return make_error(ErrorCode::NO_SPACE, "a full disk");
        records[first.value - 1] = MORTAR_TRY(parse(bytes, first, LeaderEpoch())).at(0);
        faulty_from_.reset();
        ++repair_count;
        if (observer_ != nullptr) observer_->on_state_changed(*this);
        return {};
    }
    static Result<std::vector<Record>> parse(ByteSpan bytes, Sequence next, LeaderEpoch last) {
        ByteReader reader(bytes);
        std::vector<Record> parsed;
        while (reader.remaining() > 0) {
            const auto sequence = reader.id<Sequence>();
            const auto leader_epoch = reader.id<LeaderEpoch>();
            const std::uint32_t size = reader.u32();
            std::string text(as_string_view(reader.bytes(size)));
            if (reader.failed() || sequence != next || leader_epoch < last)
                return make_error(ErrorCode::CHECKSUM_MISMATCH, "not the next record");
            parsed.push_back({leader_epoch, std::move(text)});
            next = next.next();
        }
        return parsed;
    }
    Result<void> cut(Fiber& fiber, Sequence keep_through) override {
        MORTAR_ASSERT(keep_through >= commit_);
        MORTAR_TRY(env_->scheduler.sleep_until(fiber, deadline_after(env_->clock, flush_time_)));
        records.resize(static_cast<std::size_t>(keep_through.value));
        flushed_ = std::min(flushed_, keep_through);
        if (faulty_from_ > keep_through) faulty_from_.reset();
        ++cut_count;
        return {};
    }
    Result<void> make_durable(Fiber& fiber) override {
        while (flushed_ < end().last) {
            MORTAR_TRY(
                env_->scheduler.sleep_until(fiber, deadline_after(env_->clock, flush_time_)));
        }
        return {};
    }
    void advance_commit(Sequence committed) override {
        commit_ = std::max(commit_, std::min(committed, end().last));
    }

    std::vector<Record> records;
    int cut_count = 0;
    int repair_count = 0;
    bool cannot_repair = false;
    bool is_torn = false;
    std::function<void()> on_epoch_read;  // what happens while the disk reads

  private:
    void run(Fiber& fiber) {
        while (true) {
            if (is_closed_ || flushed_ >= end().last) {
                if (!wanted_->wait(fiber).ok()) return;
                continue;
            }
            const Sequence target = end().last;
            if (!env_->scheduler.sleep_until(fiber, deadline_after(env_->clock, flush_time_)).ok())
                return;
            if (is_closed_) continue;
            flushed_ = std::max(flushed_, std::min(target, end().last));
            if (observer_ != nullptr) observer_->on_flushed(*this);
        }
    }

    PartitionKey key_;
    Duration flush_time_;
    std::optional<Env> env_;
    ReplicatedLogObserver* observer_ = nullptr;
    std::unique_ptr<Group> flushing_;
    std::unique_ptr<Event> wanted_;
    Sequence flushed_;
    Sequence commit_;
    bool is_closed_ = false;
    std::optional<Sequence> faulty_from_;
    Sequence snapshot_through_;
};

class MemoryLogs final : public ReplicatedLogs {
  public:
    void add(PartitionKey key, Duration flush_time) {
        logs.emplace(key, std::make_unique<MemoryLog>(key, flush_time));
    }
    ReplicatedLog* find(PartitionKey key) override {
        const auto found = logs.find(key);
        return found == logs.end() ? nullptr : found->second.get();
    }
    std::vector<PartitionKey> keys() const override {
        std::vector<PartitionKey> keys;
        for (const auto& [key, log] : logs)
            keys.push_back(key);
        return keys;
    }
    Result<void> wait_for_catalog(Fiber&) override { return {}; }
    Result<MetadataSnapshot> metadata_snapshot(Fiber&) override {
        const MemoryLog& log = *logs.at(METADATA_LOG);
        if (log.snapshot_through() == Sequence(0)) return make_error(ErrorCode::NOT_FOUND);
        const RecordBytes all = log.encode(Sequence(1), log.snapshot_through(), UINT64_MAX);
        return MetadataSnapshot{
            log.snapshot_through(),
            std::make_shared<const ByteVector>(all.parts.front().begin(), all.parts.front().end())};
    }
    Result<void> install_metadata_snapshot(Fiber&, ByteSpan snapshot) override {
        return logs.at(METADATA_LOG)->install_snapshot(snapshot);
    }
    std::map<PartitionKey, std::unique_ptr<MemoryLog>> logs;
};

}  // namespace mortar::testing
