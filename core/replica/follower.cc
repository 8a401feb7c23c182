#include "core/replica/follower.h"

#include <utility>
#include <vector>

namespace mortar {

FollowerSide::FollowerSide(Env& env, ReplicatedLogs& logs)
    : env_(env), logs_(logs), fibers_(env.scheduler) {}

void FollowerSide::start() {
    fibers_.spawn("replica.confirm", [this](Fiber& fiber) { run_reporter(fiber); });
}

void FollowerSide::close(Fiber& fiber) {
    end();
    fibers_.cancel_and_join(fiber);
}

void FollowerSide::begin(LeaderEpoch leader_epoch, peer::PeerChannel& channel,
                         std::set<PartitionKey> aside) {
    aside_ = std::move(aside);
    leader_epoch_ = leader_epoch;
    channel_ = &channel;
    gap_told_.clear();
    for (const PartitionKey key : logs_.keys())
        to_confirm_.insert(key);
    work_.notify_all();
}

void FollowerSide::end() {
    leader_epoch_.reset();
    channel_ = nullptr;
    to_confirm_.clear();
    gap_told_.clear();
}

void FollowerSide::leave_aside(PartitionKey key) {
    aside_.insert(key);
    gap_told_.erase(key);
    if (channel_ != nullptr) tell_gap(key, peer::TAKES_NOTHING);
}

void FollowerSide::take_again(PartitionKey key) {
    aside_.erase(key);
    if (ReplicatedLog* log = logs_.find(key)) on_available(*log);
}

// A damaged log takes and confirms nothing until it is repaired.
bool FollowerSide::takes(const ReplicatedLog& log) const {
    return !log.is_closed() && !log.faulty_from().has_value() && !aside_.contains(log.key());
}

void FollowerSide::on_channel_down(const peer::PeerChannel& channel) {
    if (channel_ == &channel) end();
}

Result<void> FollowerSide::on_append(const peer::PeerChannel& channel, const peer::Append& append) {
    MORTAR_ASSERT(leader_epoch_ == append.leader_epoch);
    if (channel_ != &channel) return {};  // of a connection whose INSTALL was not answered
    // Records of a topic come only after its creation was committed.
    if (ReplicatedLog* metadata = logs_.find(METADATA_LOG))
        metadata->advance_commit(append.metadata_commit_seq);
    for (const peer::AppendSection& section : append.sections)
        MORTAR_TRY(take(section));
    return {};
}

Result<void> FollowerSide::take(const peer::AppendSection& section) {
    ReplicatedLog* log = logs_.find(section.log);
    if (log == nullptr || log->is_closed()) {
        // on_available asks for what was missed. A topic that is deleted here never asks.
        gap_told_.erase(section.log);
        return {};
    }
    if (!takes(*log)) {
        tell_gap(section.log, peer::TAKES_NOTHING);
        return {};
    }
    if (!section.records.empty()) {
        if (log->end() != section.previous) {
            tell_gap(section.log, log->end());
            return {};
        }
        MORTAR_TRY(log->append_bytes(section.records));
        gap_told_.erase(section.log);
    } else if (log->end() != section.previous && log->end().last < section.previous.last) {
        tell_gap(section.log, log->end());
    }
    log->advance_commit(section.commit_seq);
    return {};
}

void FollowerSide::tell_gap(PartitionKey key, LogEnd end) {
    if (!gap_told_.insert(key).second) return;
    MORTAR_SOMETIMES(true, "follower: an APPEND did not continue the log");
    peer::LogGap gap;
    gap.leader_epoch = *leader_epoch_;
    gap.log = key;
    gap.end = end;
    channel_->send_message(gap);
}

void FollowerSide::on_flushed(ReplicatedLog& log) {
    if (channel_ == nullptr || !to_confirm_.insert(log.key()).second) return;
    work_.notify_all();
}

void FollowerSide::on_available(ReplicatedLog& log) {
    if (channel_ == nullptr || !takes(log)) return;
    gap_told_.erase(log.key());
    tell_gap(log.key(), log.end());
    on_flushed(log);
}

void FollowerSide::run_reporter(Fiber& fiber) {
    while (true) {
        if (channel_ == nullptr || to_confirm_.empty()) {
            if (!work_.wait(fiber).ok()) return;
            continue;
        }
        report();
    }
}

void FollowerSide::report() {
    peer::Flushed flushed;
    flushed.leader_epoch = *leader_epoch_;
    for (const PartitionKey key : std::exchange(to_confirm_, {})) {
        const ReplicatedLog* log = logs_.find(key);
        if (log == nullptr || log->faulty_from().has_value() || aside_.contains(key)) continue;
        if (log->flushed() > Sequence(0)) flushed.logs.push_back({key, log->flushed()});
    }
    if (!flushed.logs.empty()) channel_->send_message(flushed);
}

}  // namespace mortar
