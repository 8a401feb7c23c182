#include "core/meta/metadata_log.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/fiber/deadline.h"
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

bool makes_room(const MutationBody& body) {
    return std::holds_alternative<TopicDeleted>(body) ||
           std::holds_alternative<GroupDeleted>(body) || std::holds_alternative<MembersLeft>(body);
}

ByteVector state_bytes(const Catalog& catalog) {
    ByteVector bytes;
    catalog.encode(bytes);
    return bytes;
}

class DiskMetadataLog : public MetadataLog {
  public:
    DiskMetadataLog(Env& env, std::string folder, std::uint32_t snapshot_records,
                    LeaderEpoch leader_epoch)
        : env_(env),
          folder_(std::move(folder)),
          snapshot_records_(snapshot_records),
          leader_epoch_(leader_epoch),
          rotate_at_records_(snapshot_records),
          reopening_(env.scheduler) {}

    Result<void> recover(Fiber& fiber);
    Result<MutationId> propose(Fiber& fiber, MutationBody body) override {
        const auto make = [&body](const Catalog&) -> Result<MutationBody> {
            return std::move(body);
        };
        return propose(fiber, std::function<Result<MutationBody>(const Catalog&)>(make));
    }
    Result<MutationId> propose(
        Fiber& fiber, std::function<Result<MutationBody>(const Catalog& catalog)> make) override;
    const Catalog& catalog() const override { return catalog_; }
    bool is_quarantined() const override { return is_quarantined_; }
    bool is_read_only() const override { return failure_.has_value(); }
    void set_on_applied(std::function<void(const Mutation&)> on_applied) override {
        on_applied_ = std::move(on_applied);
    }
    Result<void> close(Fiber& fiber) override;

  private:
    Result<void> check_open() const;
    Result<void> check_space(Fiber& fiber, const MutationBody& body);
    Result<void> append(Fiber& fiber, const Mutation& mutation);
    Result<void> undo_write(Fiber& fiber, const Error& cause);
    void rotate_if_due(Fiber& fiber);
    Result<void> rotate(Fiber& fiber);
    void remove_older(Fiber& fiber, MutationId keep_from);
    void fail(const Error& error);
    void start_reopening();
    void reopen(Fiber& fiber);
    Result<void> try_reopen(Fiber& fiber);

    Env& env_;
    std::string folder_;
    std::uint64_t snapshot_records_;
    LeaderEpoch leader_epoch_;
    Mutex mutex_;  // one mutation at a time
    Catalog catalog_;
    std::function<void(const Mutation&)> on_applied_;
    bool is_quarantined_ = false;
    bool is_closed_ = false;
    std::optional<Error> failure_;       // no mutation is written until it was opened again
    bool has_uncertain_record_ = false;  // at append_offset_, not acknowledged, perhaps on disk
    bool is_reopening_ = false;
    std::unique_ptr<File> file_;
    std::uint64_t append_offset_ = METADATA_ALIGN_BYTES;
    std::uint64_t record_count_ = 0;  // in the present log file
    std::uint64_t rotate_at_records_;
    MutationId generation_;  // what the newest durable snapshot covers
    Group reopening_;
};

Result<void> DiskMetadataLog::recover(Fiber& fiber) {
    RecoveredMetadata recovered = MORTAR_TRY(recover_metadata(fiber, env_, folder_));
    is_quarantined_ = recovered.is_quarantined;
    if (is_quarantined_) return {};
    catalog_ = std::move(recovered.catalog);
    if (leader_epoch_ < catalog_.last_leader_epoch()) {
        return make_error(ErrorCode::INVALID_ARGUMENT,
                          folder_ + " was written in leader_epoch " +
                              std::to_string(catalog_.last_leader_epoch().value) +
                              ", this one is " + std::to_string(leader_epoch_.value));
    }
    generation_ = recovered.base;
    MORTAR_TRY(make_folders_durably(fiber, env_.disk, folder_));
    if (!recovered.damaged_snapshots.empty()) {
        MORTAR_TRY(set_aside(fiber, env_, folder_, recovered.damaged_snapshots));
    }
    // The last record may be in the page cache only. Writing it again in place could tear what was acknowledged;
    // a new generation leaves the old one as it is until the new one is durable.
    if (!recovered.is_tail_clean) return rotate(fiber);
    // Names that are seen here may be those of a process that died between rename and sync; what is appended must not go
    // with them.
    MORTAR_TRY(env_.disk.sync_folder(fiber, folder_));
    const std::string name = metadata_log_name(catalog_.last_mutation().next());
    file_ = MORTAR_TRY(env_.disk.open(fiber, join_path(folder_, name), OpenMode::READ_WRITE));
    return {};
}

Result<MutationId> DiskMetadataLog::propose(
    Fiber& fiber, std::function<Result<MutationBody>(const Catalog& catalog)> make) {
    // While the log is opened again nobody waits for it.
    MORTAR_TRY(check_open());
    const Mutex::Guard guard = MORTAR_TRY(mutex_.lock(fiber));
    MORTAR_TRY(check_open());
    Mutation mutation;
    mutation.body = MORTAR_TRY(make(catalog_));
    MORTAR_TRY(catalog_.validate(mutation.body));
    MORTAR_TRY(check_space(fiber, mutation.body));
    mutation.mutation_id = catalog_.last_mutation().next();
    mutation.leader_epoch = leader_epoch_;
    mutation.timestamp_unix_ms = env_.clock.wall_unix_ms();
    const Result<void> appended = append(fiber, mutation);
    if (failure_.has_value()) start_reopening();
    if (!appended.ok()) return appended.error();
    catalog_.apply(mutation);
    if (on_applied_) on_applied_(mutation);
    rotate_if_due(fiber);
    if (failure_.has_value()) start_reopening();
    return mutation.mutation_id;
}

Result<void> DiskMetadataLog::check_open() const {
    if (is_quarantined_) {
        return make_error(ErrorCode::METADATA_QUARANTINED,
                          "the metadata of this node is in quarantine; see runbook RB-2");
    }
    if (failure_.has_value()) {
        return make_error(ErrorCode::METADATA_READ_ONLY,
                          "the metadata log failed and is being opened again: retry");
    }
    if (is_closed_) return make_error(ErrorCode::METADATA_READ_ONLY, "the node is stopping");
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

// OK: durable. METADATA_READ_ONLY: not there, also after a restart. MUTATION_FENCED: a restart will tell.
Result<void> DiskMetadataLog::append(Fiber& fiber, const Mutation& mutation) {
    const ByteVector bytes = encode_metadata_record(mutation);
    MORTAR_ASSERT(append_offset_ % METADATA_ALIGN_BYTES == 0);
    const ByteSpan parts[] = {bytes};
    const Result<void> written = file_->write_at(fiber, append_offset_, parts);
    if (!written.ok()) return undo_write(fiber, written.error());
    const Result<void> synced = file_->sync_data(fiber);
    if (!synced.ok()) {
        has_uncertain_record_ = true;
        fail(synced.error());
        return make_error(ErrorCode::MUTATION_FENCED, "outcome unknown: the disk failed");
    }
    append_offset_ += bytes.size();
    ++record_count_;
    return {};
}

// All of the bytes may be there although the write failed. Nobody may be told "not executed" before they are
// durably gone.
Result<void> DiskMetadataLog::undo_write(Fiber& fiber, const Error& cause) {
    env_.log.warn("metadata_write_failed", {{"reason", cause.to_string()}});
    Result<void> cut = file_->truncate(fiber, append_offset_);
    if (cut.ok()) cut = file_->sync_data(fiber);
    if (!cut.ok()) {
        has_uncertain_record_ = true;
        fail(cut.error());
        return make_error(ErrorCode::MUTATION_FENCED, "outcome unknown: the disk failed");
    }
    MORTAR_SOMETIMES(true, "metadata write was undone");
    return make_error(ErrorCode::METADATA_READ_ONLY, cause.code == ErrorCode::NO_SPACE
                                                         ? "the disk is full; free some space"
                                                         : "the disk refused the write");
}

void DiskMetadataLog::rotate_if_due(Fiber& fiber) {
    if (record_count_ < rotate_at_records_) return;
    const Result<void> rotated = rotate(fiber);
    if (rotated.ok()) return;
    env_.log.warn("metadata_snapshot_failed", {{"reason", rotated.error().to_string()}});
    rotate_at_records_ = record_count_ + SNAPSHOT_RETRY_RECORDS;
}

// A snapshot of the state, then a new log file. Until the name of the new log file is written all failures are
// harmless: the present file goes on. Afterwards two files would claim the next mutation, so the log stops.
Result<void> DiskMetadataLog::rotate(Fiber& fiber) {
    const MutationId covered = catalog_.last_mutation();
    if (covered != MutationId{}) {
        const ByteVector snapshot = encode_metadata_snapshot(catalog_);
        const std::string name = metadata_snapshot_name(covered, catalog_.last_leader_epoch());
        MORTAR_TRY(write_new_file(fiber, env_.disk, join_path(folder_, SNAPSHOT_TMP), snapshot));
        MORTAR_TRY(publish_file(fiber, env_.disk, folder_, SNAPSHOT_TMP, name));
    }
    const ByteVector head = encode_metadata_log_head();
    const std::string log_name = metadata_log_name(covered.next());
    MORTAR_TRY(write_new_file(fiber, env_.disk, join_path(folder_, LOG_TMP), head));
    const Result<void> published = publish_file(fiber, env_.disk, folder_, LOG_TMP, log_name);
    if (!published.ok()) {
        fail(published.error());
        return published;
    }
    Result<std::unique_ptr<File>> opened =
        env_.disk.open(fiber, join_path(folder_, log_name), OpenMode::READ_WRITE);
    if (!opened.ok()) {
        fail(opened.error());
        return std::move(opened).error();
    }
    file_ = std::move(opened).value();
    append_offset_ = METADATA_ALIGN_BYTES;
    record_count_ = 0;
    rotate_at_records_ = snapshot_records_;
    // Written anew without a change in between: the generation before stays the one before.
    if (covered != generation_) remove_older(fiber, std::exchange(generation_, covered));
    return {};
}

// keep_from: what the snapshot before the newest covers; that generation stays whole.
void DiskMetadataLog::remove_older(Fiber& fiber, MutationId keep_from) {
    const Result<std::vector<DirEntry>> entries = env_.disk.list(fiber, folder_);
    if (!entries.ok()) return;  // what stays is removed next time
    std::vector<MutationId> firsts;
    for (const DirEntry& entry : *entries) {
        if (const auto first = parse_metadata_log_name(entry.name)) firsts.push_back(*first);
    }
    // Of the logs, the one that holds keep_from + 1 and all later ones are needed.
    MutationId first_needed{1};
    for (const MutationId first : firsts) {
        if (first <= keep_from.next() && first > first_needed) first_needed = first;
    }
    for (const DirEntry& entry : *entries) {
        const auto first = parse_metadata_log_name(entry.name);
        const auto snapshot = parse_metadata_snapshot_name(entry.name);
        const bool is_old = (first.has_value() && *first < first_needed) ||
                            (snapshot.has_value() && snapshot->offset < keep_from);
        if (!is_old) continue;
        const Result<void> removed = env_.disk.remove(fiber, join_path(folder_, entry.name));
        if (!removed.ok())
            env_.log.warn("metadata_remove_failed", {{"reason", removed.error().to_string()}});
    }
}

void DiskMetadataLog::fail(const Error& error) {
    if (failure_.has_value()) return;
    failure_ = error;
    env_.log.error("metadata_log_failed", {{"reason", error.to_string()}});
}

void DiskMetadataLog::start_reopening() {
    if (std::exchange(is_reopening_, true)) return;
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
}

// A failed sync is never retried as if nothing had happened (design 3): what is on disk is read again, must be what was
// acknowledged, and goes on in a new generation.
Result<void> DiskMetadataLog::try_reopen(Fiber& fiber) {
    const Mutex::Guard guard = MORTAR_TRY(mutex_.lock(fiber));
    if (has_uncertain_record_) {
        // Its proposer was told that nobody knows. Taken out, it leaves nothing behind that anybody would have to learn of.
        MORTAR_TRY(file_->truncate(fiber, append_offset_));
        MORTAR_TRY(file_->sync_data(fiber));
        has_uncertain_record_ = false;
    }
    const RecoveredMetadata found = MORTAR_TRY(recover_metadata(fiber, env_, folder_));
    is_quarantined_ = found.is_quarantined;
    if (!is_quarantined_) {
        if (state_bytes(found.catalog) != state_bytes(catalog_)) {
            return make_error(ErrorCode::DAMAGED,
                              folder_ + ": holds mutation " +
                                  std::to_string(found.catalog.last_mutation().value) + " where " +
                                  std::to_string(catalog_.last_mutation().value) +
                                  " was acknowledged");
        }
        if (!found.damaged_snapshots.empty()) {
            MORTAR_TRY(set_aside(fiber, env_, folder_, found.damaged_snapshots));
        }
        generation_ = found.base;
        MORTAR_TRY(rotate(fiber));
        MORTAR_SOMETIMES(true, "metadata log opened again after a failure");
        env_.log.info("metadata_reopened",
                      {{"last_mutation", std::to_string(catalog_.last_mutation().value)}});
    }
    failure_.reset();
    return {};
}

Result<void> DiskMetadataLog::close(Fiber& fiber) {
    reopening_.cancel_and_join(fiber);
    const Mutex::Guard guard = MORTAR_TRY(mutex_.lock(fiber));
    is_closed_ = true;  // every acknowledged mutation is synced already
    file_.reset();
    return {};
}
}  // namespace

Result<std::unique_ptr<MetadataLog>> MetadataLog::open(Fiber& fiber, Env& env, std::string folder,
                                                       std::uint32_t snapshot_records,
                                                       LeaderEpoch leader_epoch) {
    MORTAR_ASSERT(snapshot_records > 0);
    auto log =
        std::make_unique<DiskMetadataLog>(env, std::move(folder), snapshot_records, leader_epoch);
    MORTAR_TRY(log->recover(fiber));
    return std::unique_ptr<MetadataLog>(std::move(log));
}

}  // namespace mortar
