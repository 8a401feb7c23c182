#include "core/replica/catch_up.h"

#include <algorithm>

#include "core/fiber/deadline.h"

namespace mortar {
namespace {

// A reader that waits for its own disk looks again after this, should the log have closed meanwhile.
constexpr Duration FLUSH_LOOK_AGAIN = milliseconds(100);
// What was not used of the rate is not saved up for longer than this.
constexpr Duration RATE_BURST = milliseconds(100);

// The copy counts up to its end only, whatever stands behind it by now: save what its leader has appended since, in the epoch
// in which it is asked.
LogEnd bounded(LogEnd found, const CopySource& source) {
    const bool counts = found.last <= source.end.last || found.leader_epoch == source.leader_epoch;
    return counts ? found : source.end;
}

// Looked up for each read: during the one before a topic may have been deleted, or its log cut.
Result<LeaderEpoch> epoch_at(Fiber& fiber, ReplicatedLogs& logs, PartitionKey key,
                             Sequence sequence) {
    ReplicatedLog* log = logs.find(key);
    if (log == nullptr) return make_error(ErrorCode::NOT_FOUND, log_name(key) + " is gone");
    if (sequence > log->end().last)
        return make_error(ErrorCode::LOG_CLOSED, log_name(key) + " changed meanwhile");
    return log->epoch_at(fiber, sequence);
}

}  // namespace

Result<LogEnd> find_epoch_end(Fiber& fiber, ReplicatedLogs& logs, PartitionKey key,
                              LeaderEpoch at_most) {
    const ReplicatedLog* log = logs.find(key);
    if (log == nullptr) return make_error(ErrorCode::NOT_FOUND, log_name(key) + " is gone");
    return find_epoch_end(fiber, logs, key, log->end(), at_most);
}

Result<LogEnd> find_epoch_end(Fiber& fiber, ReplicatedLogs& logs, PartitionKey key, LogEnd end,
                              LeaderEpoch at_most) {
    if (end.leader_epoch <= at_most) return end;
    // In (low, high] stands the first record above at_most.
    Sequence low(0);
    Sequence high = end.last;
    while (low.next() < high) {
        const Sequence middle(low.value + (high.value - low.value) / 2);
        const LeaderEpoch there = MORTAR_TRY(epoch_at(fiber, logs, key, middle));
        (there <= at_most ? low : high) = middle;
    }
    if (low == Sequence(0)) return LogEnd{};
    return LogEnd{low, MORTAR_TRY(epoch_at(fiber, logs, key, low))};
}

void CatchUp::on_promised() {
    if (requests_ != nullptr) requests_->on_promised();
}

Result<void> CatchUp::still(LeaderEpoch leader_epoch) const {
    if (store_.promised_epoch() == leader_epoch) return {};
    return make_error(ErrorCode::STALE_LEADER_EPOCH, "a higher leader_epoch is promised");
}

Result<ReplicatedLog*> CatchUp::find(PartitionKey key) const {
    ReplicatedLog* log = logs_.find(key);
    if (log == nullptr) return make_error(ErrorCode::NOT_FOUND, log_name(key) + " is gone");
    if (log->is_closed()) return make_error(ErrorCode::LOG_CLOSED, log_name(key));
    return log;
}

Result<void> CatchUp::reconcile(Fiber& fiber, PartitionKey key, const CopySource& source) {
    ReplicatedLog* log = MORTAR_TRY(find(key));
    if (log->end() != source.end) {
        LogEnd common = MORTAR_TRY(last_common(fiber, key, log->end(), source));
        log = MORTAR_TRY(find(key));
        if (key == METADATA_LOG && common.last == Sequence(0) && log->end().last > Sequence(0)) {
            common = MORTAR_TRY(common_by_snapshot(fiber, source));
            log = MORTAR_TRY(find(key));
        }
        if (common.last < log->end().last) {
            MORTAR_TRY(check_not_committed(*log, common.last));
            MORTAR_SOMETIMES(true, "catch_up: a log was cut");
            MORTAR_TRY(cut(fiber, *log, common.last, source));
        }
        MORTAR_TRY(fetch_rest(fiber, key, source));
    }
    return wait_until_flushed(fiber, key);
}

Result<void> CatchUp::check_not_committed(const ReplicatedLog& log, Sequence common) const {
    if (common >= std::min(log.commit_seq(), log.end().last)) return {};
    return make_error(ErrorCode::DIVERGENT_COMMITTED,
                      log_name(log.key()) + ": the copies part at " + std::to_string(common.value) +
                          ", but " + std::to_string(log.commit_seq().value) +
                          " was committed here");
}

Result<void> CatchUp::cut(Fiber& fiber, ReplicatedLog& log, Sequence common,
                          const CopySource& source) {
    MORTAR_TRY(still(source.leader_epoch));
    env_.log.info("log_cut", {{"log", log_name(log.key())},
                              {"from", std::to_string(log.end().last.value)},
                              {"to", std::to_string(common.value)}});
    return log.cut(fiber, common);
}

// Of the source's copy: where its last epoch at or below at_most ends.
Result<LogEnd> CatchUp::asked_end(Fiber& fiber, PartitionKey key, LeaderEpoch at_most,
                                  const CopySource& source) {
    const LogEnd found =
        MORTAR_TRY(requests_->epoch_end(fiber, source.node, source.leader_epoch, key, at_most));
    return bounded(found, source);
}

// ours: what of this log is looked at, all or its beginning.
Result<LogEnd> CatchUp::last_common(Fiber& fiber, PartitionKey key, LogEnd ours,
                                    const CopySource& source) {
    while (ours.last > Sequence(0)) {
        const LogEnd theirs = MORTAR_TRY(asked_end(fiber, key, ours.leader_epoch, source));
        if (theirs.leader_epoch == ours.leader_epoch)
            return LogEnd{std::min(ours.last, theirs.last), ours.leader_epoch};
        if (theirs.leader_epoch > ours.leader_epoch)
            return make_error(ErrorCode::MALFORMED_PAYLOAD, "an epoch above the one asked for");
        MORTAR_TRY(find(key));
        ours = MORTAR_TRY(find_epoch_end(fiber, logs_, key, ours, theirs.leader_epoch));
        if (ours.leader_epoch == theirs.leader_epoch)
            return LogEnd{std::min(ours.last, theirs.last), ours.leader_epoch};
    }
    return LogEnd{};
}

Result<LogEnd> CatchUp::common_by_snapshot(Fiber& fiber, const CopySource& source) {
    const Result<MetadataSnapshot> snapshot =
        requests_->snapshot(fiber, source.node, source.leader_epoch);
    if (snapshot.is(ErrorCode::NOT_FOUND)) return LogEnd{};
    if (!snapshot.ok()) return snapshot.error();
    MORTAR_TRY(still(source.leader_epoch));
    MORTAR_TRY(logs_.install_metadata_snapshot(fiber, *snapshot->bytes));
    ReplicatedLog* log = MORTAR_TRY(find(METADATA_LOG));
    MORTAR_SOMETIMES(true, "catch_up: a snapshot shows what metadata has in common");
    const Sequence committed = log->commit_seq();
    if (committed == Sequence(0)) return LogEnd{};
    const LogEnd common{committed, MORTAR_TRY(log->epoch_at(fiber, committed))};
    return bounded(common, source);
}

Result<void> CatchUp::fill(Fiber& fiber, PartitionKey key, const CopySource& source) {
    MORTAR_TRY(fetch_through(fiber, key, source));
    return wait_until_flushed(fiber, key);
}

Result<void> CatchUp::fetch_rest(Fiber& fiber, PartitionKey key, const CopySource& source) {
    MORTAR_TRY(fetch_through(fiber, key, source));
    const ReplicatedLog* log = MORTAR_TRY(find(key));
    const LogEnd end = log->end();
    // A snapshot is the leader's newest: it may go on into the term.
    if (end == source.end || end.leader_epoch == source.leader_epoch) return {};
    return make_error(ErrorCode::MALFORMED_PAYLOAD,
                      log_name(key) + ": the copy does not end as it was said to");
}

Result<void> CatchUp::fetch_through(Fiber& fiber, PartitionKey key, const CopySource& source) {
    while (true) {
        ReplicatedLog* log = MORTAR_TRY(find(key));
        const LogEnd end = log->end();
        if (end.last >= source.end.last) return {};
        const FetchedRecords fetched = MORTAR_TRY(requests_->fetch(
            fiber, source.node, source.leader_epoch, key, end.last.next(), source.end.last));
        if (fetched.is_below_snapshot) {
            const MetadataSnapshot snapshot =
                MORTAR_TRY(requests_->snapshot(fiber, source.node, source.leader_epoch));
            if (snapshot.through <= end.last) {
                return make_error(ErrorCode::MALFORMED_PAYLOAD,
                                  "a snapshot that covers nothing new");
            }
            MORTAR_TRY(still(source.leader_epoch));
            MORTAR_SOMETIMES(true, "catch_up: metadata came as a snapshot");
            MORTAR_TRY(logs_.install_metadata_snapshot(fiber, *snapshot.bytes));
            continue;
        }
        MORTAR_TRY(still(source.leader_epoch));
        log = MORTAR_TRY(find(key));
        if (log->end() != end)
            return make_error(ErrorCode::LOG_CLOSED, log_name(key) + " changed meanwhile");
        MORTAR_SOMETIMES(true, "catch_up: records were fetched");
        MORTAR_TRY(log->append_bytes(fetched.bytes));
        MORTAR_TRY(keep_to_rate(fiber, fetched.bytes.size()));
        log = MORTAR_TRY(find(key));
        if (sequence_distance(log->flushed(), log->end().last) > CATCH_UP_UNFLUSHED_RECORDS_MAX)
            MORTAR_TRY(wait_until_flushed(fiber, key));
    }
}

Result<void> CatchUp::wait_until_flushed(Fiber& fiber, PartitionKey key) {
    while (true) {
        const ReplicatedLog* log = MORTAR_TRY(find(key));
        if (log->flushed() >= log->end().last) return {};
        // What it claims to have is nothing that will ever be flushed.
        if (log->faulty_from()) return make_error(ErrorCode::DAMAGED, log_name(key) + " is faulty");
        const Result<void> waited =
            flushed_.wait(fiber, deadline_after(env_.clock, FLUSH_LOOK_AGAIN));
        if (waited.is(ErrorCode::CANCELLED)) return waited;
    }
}

Result<void> CatchUp::settle(Fiber& fiber) {
    for (const PartitionKey key : logs_.keys()) {
        const Result<void> flushed = wait_until_flushed(fiber, key);
        if (flushed.is(ErrorCode::CANCELLED)) return flushed;
    }
    return {};
}

Result<void> CatchUp::keep_to_rate(Fiber& fiber, std::size_t bytes) {
    const MonoTime now = env_.clock.now();
    const auto cost =
        Duration{static_cast<std::int64_t>(bytes * 1'000'000'000 / CATCH_UP_BYTES_PER_SECOND)};
    const MonoTime earliest = now - RATE_BURST;
    may_fetch_at_ = std::max(may_fetch_at_, earliest) + cost;
    if (may_fetch_at_ <= now) return {};
    return env_.scheduler.sleep_until(fiber, may_fetch_at_);
}

}  // namespace mortar
