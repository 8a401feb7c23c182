#include "core/replica/caretaker.h"

#include <utility>
#include <vector>

#include "core/fiber/deadline.h"

namespace mortar {

Caretaker::Caretaker(Env& env, ReplicatedLogs& logs, PromiseStore& store, CatchUp& catch_up,
                     CareOptions options, Repair repair)
    : env_(env),
      logs_(logs),
      store_(store),
      catch_up_(catch_up),
      options_(options),
      repair_(std::move(repair)),
      fibers_(env.scheduler) {
    for (const LogMark& mark : store_.marks()) {
        if (mark.faulty_from > Sequence(0) && mark.log != METADATA_LOG) damaged_[mark.log];
    }
}

void Caretaker::start() {
    fibers_.spawn("replica.scrub", [this](Fiber& fiber) { run_scrub(fiber); });
    if (options_.has_peers)
        fibers_.spawn("replica.repair", [this](Fiber& fiber) { run_repairs(fiber); });
}

void Caretaker::close(Fiber& fiber) {
    fibers_.cancel_and_join(fiber);
}

bool Caretaker::has_mark(PartitionKey key) const {
    return store_.mark_of(key).faulty_from > Sequence(0);
}

// --- damage that is known

void Caretaker::on_damaged(PartitionKey key) {
    if (key == METADATA_LOG || !damaged_.try_emplace(key).second) return;
    ++stats_.damaged_count;
    wanted_.notify_all();
}

void Caretaker::on_lost(PartitionKey key, Sequence from) {
    lost_[key] = from;
    on_damaged(key);
}

void Caretaker::on_retired(PartitionKey key) {
    damaged_.erase(key);
    lost_.erase(key);
    if (store_.mark_of(key) == LogMark{key, false, {}}) return;
    retired_.insert(key);
    wanted_.notify_all();
}

void Caretaker::run_repairs(Fiber& fiber) {
    while (true) {
        if (tend_all(fiber).is(ErrorCode::CANCELLED)) return;
        const MonoTime due = damaged_.empty() ? NEVER : deadline_after(env_.clock, REPAIR_RETRY);
        if (wanted_.wait(fiber, due).is(ErrorCode::CANCELLED)) return;
    }
}

Result<void> Caretaker::tend_all(Fiber& fiber) {
    for (const PartitionKey key : std::exchange(retired_, {})) {
        const Result<void> forgotten = store_.forget(fiber, key);
        if (forgotten.is(ErrorCode::CANCELLED)) return forgotten;
    }
    // Before anything is put in the place of what was lost.
    for (const auto& [key, from] : std::exchange(lost_, {})) {
        const Result<void> marked = store_.mark(fiber, {LogMark{key, true, from}});
        if (marked.is(ErrorCode::CANCELLED)) return marked;
        if (!marked.ok()) lost_[key] = from;
    }
    std::vector<PartitionKey> keys;
    for (const auto& [key, reason] : damaged_)
        keys.push_back(key);
    for (const PartitionKey key : keys) {
        const Result<void> done = tend(fiber, key);
        if (done.ok()) continue;
        if (done.is(ErrorCode::CANCELLED)) return done;
        const auto found = damaged_.find(key);
        const std::string reason = done.error().to_string();
        if (found == damaged_.end() || found->second == reason) continue;
        found->second = reason;
        env_.log.warn("log_not_repaired", {{"log", log_name(key)}, {"reason", reason}});
    }
    return {};
}

Result<void> Caretaker::tend(Fiber& fiber, PartitionKey key) {
    const ReplicatedLog* log = logs_.find(key);
    if (log == nullptr || log->is_closed())
        return make_error(ErrorCode::LOG_CLOSED, log_name(key) + " is not open");
    if (lost_.contains(key)) return make_error(ErrorCode::IO_ERROR, "its loss is not written down");
    if (!log->faulty_from() && !has_mark(key)) {
        damaged_.erase(key);
        return {};
    }
    MORTAR_TRY(mark_damage(fiber, key));
    return repair_(fiber, key);
}

// Found below a checkpoint it would not be seen by the next start.
Result<void> Caretaker::mark_damage(Fiber& fiber, PartitionKey key) {
    const ReplicatedLog* log = logs_.find(key);
    if (log == nullptr || !log->faulty_from()) return {};
    const Sequence faulty_from = *log->faulty_from();
    if (has_mark(key) && store_.mark_of(key).faulty_from <= faulty_from) return {};
    return store_.mark(fiber, {LogMark{key, false, faulty_from}});
}

Result<void> Caretaker::look_again(Fiber& fiber, PartitionKey key) {
    Sequence from = store_.mark_of(key).faulty_from;
    while (from > Sequence(0)) {
        ReplicatedLog* log = logs_.find(key);
        if (log == nullptr || log->is_closed() || log->faulty_from()) break;
        const Result<Scrubbed> scrubbed = log->scrub(fiber, from, SCRUB_READ_BYTES);
        if (scrubbed.is(ErrorCode::CHECKSUM_MISMATCH)) break;
        if (!scrubbed.ok()) return scrubbed.error();
        if (scrubbed->record_count == 0) break;
        from = scrubbed->last.next();
    }
    return {};
}

Result<void> Caretaker::make_level(Fiber& fiber, PartitionKey key, const CopySource& source) {
    MORTAR_TRY(look_again(fiber, key));
    MORTAR_TRY(mark_damage(fiber, key));
    const ReplicatedLog* log = logs_.find(key);
    if (log == nullptr) return make_error(ErrorCode::NOT_FOUND, log_name(key) + " is gone");
    const bool was_damaged = log->faulty_from().has_value() || has_mark(key);
    if (log->faulty_from()) MORTAR_TRY(catch_up_.repair(fiber, key, source));
    MORTAR_TRY(catch_up_.reconcile(fiber, key, source));
    return was_damaged ? note_whole(fiber, key) : Result<void>();
}

Result<void> Caretaker::note_whole(Fiber& fiber, PartitionKey key) {
    ReplicatedLog* log = logs_.find(key);
    if (log == nullptr) return make_error(ErrorCode::NOT_FOUND, log_name(key) + " is gone");
    if (log->faulty_from())
        return make_error(ErrorCode::DAMAGED, log_name(key) + " is damaged once more");
    MORTAR_TRY(log->make_durable(fiber));
    MORTAR_TRY(store_.clear_faulty(fiber, key));
    log = logs_.find(key);
    if (log == nullptr || log->faulty_from()) return {};  // tended to again
    damaged_.erase(key);
    scrub_soon_.insert(key);
    scrub_wanted_.notify_all();
    ++stats_.repaired_count;
    MORTAR_SOMETIMES(true, "caretaker: a log is whole again");
    env_.log.info("log_repaired",
                  {{"log", log_name(key)}, {"end", std::to_string(log->end().last.value)}});
    return {};
}

// --- damage that is not known yet

void Caretaker::run_scrub(Fiber& fiber) {
    while (true) {
        const MonoTime begin = deadline_after(env_.clock, options_.scrub_pause);
        while (env_.clock.now() < begin) {
            for (const PartitionKey key : std::exchange(scrub_soon_, {})) {
                if (scrub_log(fiber, key).is(ErrorCode::CANCELLED)) return;
            }
            if (!scrub_soon_.empty()) continue;
            if (scrub_wanted_.wait(fiber, begin).is(ErrorCode::CANCELLED)) return;
        }
        for (const PartitionKey key : logs_.keys()) {
            if (key == METADATA_LOG) continue;  // small, and in memory
            if (scrub_log(fiber, key).is(ErrorCode::CANCELLED)) return;
        }
        ++stats_.scrub_walk_count;
    }
}

Result<void> Caretaker::scrub_log(Fiber& fiber, PartitionKey key) {
    Sequence from(1);
    const ReplicatedLog* at_first = logs_.find(key);
    const Sequence through = at_first == nullptr ? Sequence(0) : at_first->flushed();
    while (from <= through) {
        ReplicatedLog* log = logs_.find(key);
        if (log == nullptr || log->is_closed() || log->faulty_from()) return {};
        const Scrubbed scrubbed = MORTAR_TRY(log->scrub(fiber, from, SCRUB_READ_BYTES));
        if (scrubbed.record_count == 0) return {};
        stats_.scrubbed_record_count += scrubbed.record_count;
        stats_.scrubbed_bytes += scrubbed.size_bytes;
        from = scrubbed.last.next();
        const Duration cost{static_cast<std::int64_t>(scrubbed.size_bytes * 1'000'000'000 /
                                                      options_.scrub_bytes_per_second)};
        MORTAR_TRY(env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, cost)));
    }
    return {};
}

}  // namespace mortar
