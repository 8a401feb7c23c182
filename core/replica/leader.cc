#include "core/replica/leader.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/fiber/deadline.h"
#include "core/replica/peer_codec.h"

namespace mortar {

Leader::Leader(Env& env, peer::PeerRoster* peers, ReplicatedLogs& logs, Term term,
               std::function<void(NodeId)> on_out_of_reach)
    : env_(env),
      peers_(peers),
      logs_(logs),
      term_(std::move(term)),
      on_out_of_reach_(std::move(on_out_of_reach)),
      fibers_(env.scheduler) {
    MORTAR_ASSERT(peers_ != nullptr || term_.followers.empty());
    for (const NodeId node : term_.followers) {
        followers_.push_back(std::make_unique<Follower>());
        followers_.back()->node_id = node;
    }
}

Leader::~Leader() = default;

void Leader::start() {
    for (std::size_t i = 0; i < followers_.size(); ++i)
        fibers_.spawn("replica.sender", [this, i](Fiber& fiber) { run_sender(fiber, i); });
}

void Leader::take_office() {
    MORTAR_ASSERT(is_majority_installed());
    in_office_ = true;
    for (const PartitionKey key : logs_.keys()) {
        if (ReplicatedLog* log = logs_.find(key)) update_commit(*log);
    }
}

void Leader::close(Fiber& fiber) {
    fibers_.cancel_and_join(fiber);
}

// --- what happens to the logs of this node

void Leader::on_appended(ReplicatedLog& log) {
    LogState& state = state_of(log.key());
    count_appended(log, state);
    for (std::size_t i = 0; i < followers_.size(); ++i)
        enqueue(i, log.key(), state.progress[i]);
}

void Leader::on_flushed(ReplicatedLog& log) {
    update_commit(log);
}

void Leader::on_opened(ReplicatedLog& log) {
    LogState& state = state_of(log.key());
    count_appended(log, state);
    for (std::size_t i = 0; i < followers_.size(); ++i) {
        if (state.progress[i].sent < log.end().last) enqueue(i, log.key(), state.progress[i]);
    }
    update_commit(log);
}

void Leader::on_retired(PartitionKey key) {
    const auto found = states_.find(key);
    if (found == states_.end()) return;
    for (std::size_t i = 0; i < followers_.size(); ++i) {
        Follower& follower = *followers_[i];
        const Progress& progress = found->second.progress[i];
        for (const InFlight& in_flight : progress.unconfirmed)
            follower.in_flight_bytes -= in_flight.size_bytes;
        follower.lag_records -= sequence_distance(progress.flushed, found->second.counted_end);
        follower.work.notify_all();
    }
    // The queues may still name it: a sender skips what it does not find.
    states_.erase(found);
}

// The base was the same everywhere before this term; what came since is counted as it comes.
void Leader::count_appended(ReplicatedLog& log, LogState& state) {
    const Sequence end = log.end().last;
    if (end <= state.counted_end) return;
    const std::uint64_t count = sequence_distance(state.counted_end, end);
    state.counted_end = end;
    appended_count_ += count;
    for (const auto& follower : followers_)
        follower->lag_records += count;
}

// The highest sequence that a majority has: of n + 1 nodes, the one at place (n + 1) / 2 from the top.
void Leader::update_commit(ReplicatedLog& log) {
    if (!in_office_) return;
    const LogState& state = state_of(log.key());
    // A damaged copy confirms nothing; alone there is no other one.
    const bool counts_itself = followers_.empty() || !log.faulty_from().has_value();
    std::vector<Sequence> flushed{counts_itself ? log.flushed() : Sequence(0)};
    for (std::size_t i = 0; i < followers_.size(); ++i) {
        flushed.push_back(followers_[i]->is_installed ? state.progress[i].flushed : Sequence(0));
    }
    const std::size_t majority_place = flushed.size() / 2;
    std::nth_element(flushed.begin(), flushed.begin() + static_cast<std::ptrdiff_t>(majority_place),
                     flushed.end(), std::greater<>());
    const Sequence committed = flushed[majority_place];
    if (committed <= log.commit_seq()) return;
    last_commit_at_ = env_.clock.now();
    const PartitionKey key = log.key();
    log.advance_commit(committed);
    const auto found =
        states_.find(key);  // a mutation that was committed may have deleted its own kind
    if (found != states_.end()) {
        for (std::size_t i = 0; i < followers_.size(); ++i)
            owe_commit(i, key, found->second.progress[i]);
    }
}

// --- what followers say

void Leader::on_installed(NodeId node, const peer::Installed& installed) {
    const std::size_t index = index_of(node);
    if (index == followers_.size() || installed.leader_epoch != term_.leader_epoch) return;
    end_install(index);
    Follower* follower = followers_[index].get();
    follower->is_installed = true;
    std::map<PartitionKey, LogEnd> positions;
    for (const peer::InstallBase& position : installed.positions)
        positions[position.log] = position.end;
    for (const PartitionKey key : logs_.keys()) {
        ReplicatedLog* log = logs_.find(key);
        if (log == nullptr) continue;
        LogState& state = state_of(key);
        count_appended(*log, state);
        Progress& progress = state.progress[index];
        const auto position = positions.find(key);
        const Sequence base = base_of(key).last;
        const Sequence confirmed = progress.flushed;
        progress.takes_nothing =
            position != positions.end() && position->second == peer::TAKES_NOTHING;
        if (progress.takes_nothing) {
            progress.sent = base;
            progress.flushed = Sequence(0);
            follower->lag_records += sequence_distance(progress.flushed, confirmed);
            continue;
        }
        progress.sent = position == positions.end() ? base : position->second.last;
        if (progress.sent < base) {
            // It said that it had synced all of the base, and now has less: it must find that out before it counts again.
            env_.log.error("follower_lost_records",
                           {{"node", std::to_string(node.value)},
                            {"log", log_name(key)},
                            {"position", std::to_string(progress.sent.value)},
                            {"base", std::to_string(base.value)}});
            MORTAR_SOMETIMES(true, "leader: a follower lost what it had installed");
            end_install(index);
            return;
        }
        // Before it is confirmed a position is only what the follower holds; the base is what it has synced.
        progress.flushed = base;
        if (progress.sent > log->end().last) {
            // It holds what this leader never appended: the follower's own fault, seen again with its next answer.
            env_.log.error("follower_is_ahead",
                           {{"node", std::to_string(follower->node_id.value)},
                            {"log", log_name(key)},
                            {"position", std::to_string(progress.sent.value)}});
            progress.sent = log->end().last;
        }
        // Wraps around when it takes from 0 up to the base: so the sum is right both ways.
        follower->lag_records += sequence_distance(progress.flushed, confirmed);
        if (progress.sent < log->end().last) enqueue(index, key, progress);
        owe_commit(index, key, progress);
    }
    follower->work.notify_all();
    for (const PartitionKey key : logs_.keys()) {
        if (ReplicatedLog* log = logs_.find(key)) update_commit(*log);
    }
}

void Leader::on_flushed_by(NodeId node, const peer::Flushed& flushed) {
    const std::size_t index = index_of(node);
    if (index == followers_.size() || !followers_[index]->is_installed) return;
    Follower* follower = followers_[index].get();
    if (flushed.leader_epoch != term_.leader_epoch) return;
    for (const peer::FlushedLog& each : flushed.logs) {
        const auto found = states_.find(each.log);
        ReplicatedLog* log = logs_.find(each.log);
        if (found == states_.end() || log == nullptr) continue;
        confirm(index, found->second, each.flushed);
        update_commit(*log);
    }
    follower->work.notify_all();
}

void Leader::confirm(std::size_t index, LogState& state, Sequence flushed) {
    Follower& follower = *followers_[index];
    Progress& progress = state.progress[index];
    flushed = std::min(flushed, state.counted_end);
    if (flushed <= progress.flushed || progress.takes_nothing) return;
    follower.lag_records -= sequence_distance(progress.flushed, flushed);
    progress.flushed = flushed;
    progress.sent = std::max(progress.sent, flushed);
    while (!progress.unconfirmed.empty() && progress.unconfirmed.front().last <= flushed) {
        follower.in_flight_bytes -= progress.unconfirmed.front().size_bytes;
        follower.confirmed_bytes += progress.unconfirmed.front().size_bytes;
        progress.unconfirmed.pop_front();
    }
}

void Leader::on_log_gap(NodeId node, const peer::LogGap& gap) {
    const std::size_t index = index_of(node);
    if (index == followers_.size() || !followers_[index]->is_installed) return;
    Follower* follower = followers_[index].get();
    if (gap.leader_epoch != term_.leader_epoch) return;
    const auto found = states_.find(gap.log);
    if (found == states_.end()) return;
    Progress& progress = found->second.progress[index];
    if (gap.end == peer::TAKES_NOTHING) return pause(*follower, found->second, progress);
    if (gap.end.last < base_of(gap.log).last) {
        // It lost what it had synced when it was installed: damage, which it repairs before it takes more.
        MORTAR_SOMETIMES(true, "leader: a follower fell behind its base");
        return;
    }
    MORTAR_SOMETIMES(true, "leader: sends again from a gap");
    for (const InFlight& in_flight : progress.unconfirmed)
        follower->in_flight_bytes -= in_flight.size_bytes;
    progress.unconfirmed.clear();
    progress.takes_nothing = false;
    progress.told_commit = Sequence(0);  // lost with the records that did not fit
    owe_commit(index, gap.log, progress);
    progress.sent = std::min(gap.end.last, found->second.counted_end);
    enqueue(index, gap.log, progress);
    follower->work.notify_all();  // there is room in flight again
}

// What it confirmed before it was damaged may be what is damaged.
void Leader::pause(Follower& follower, const LogState& state, Progress& progress) {
    MORTAR_SOMETIMES(true, "leader: a follower's log is damaged");
    for (const InFlight& in_flight : progress.unconfirmed)
        follower.in_flight_bytes -= in_flight.size_bytes;
    progress.unconfirmed.clear();
    follower.lag_records += sequence_distance(Sequence(0), state.counted_end) -
                            sequence_distance(progress.flushed, state.counted_end);
    progress.flushed = Sequence(0);
    progress.takes_nothing = true;
    follower.work.notify_all();
}

void Leader::on_channel_down(NodeId node) {
    const std::size_t index = index_of(node);
    if (index < followers_.size()) end_install(index);
}

// What it confirmed stays durable, but positions are learned anew with the next INSTALLED.
void Leader::end_install(std::size_t index) {
    Follower& follower = *followers_[index];
    follower.is_installed = false;
    ++follower.install_count;
    follower.queue.clear();
    follower.commits.clear();
    follower.in_flight_bytes = 0;
    follower.in_sync_since = NEVER;
    for (auto& [key, state] : states_) {
        Progress& progress = state.progress[index];
        progress.unconfirmed.clear();
        progress.told_commit = Sequence(0);  // what was told last may be lost
        progress.is_queued = progress.owes_commit = progress.takes_nothing = false;
    }
}

// No APPEND carries a snapshot: the follower fetches what it lacks when it is asked to be installed again, and counts for
// nothing until then.
void Leader::put_out_of_reach(std::size_t index, const Error& reason) {
    MORTAR_SOMETIMES(true, "leader: a follower lacks what only a snapshot has");
    const NodeId node = followers_[index]->node_id;
    env_.log.info("follower_needs_snapshot",
                  {{"node", std::to_string(node.value)}, {"reason", reason.to_string()}});
    end_install(index);
    if (on_out_of_reach_) on_out_of_reach_(node);
}

// --- sending

void Leader::enqueue(std::size_t index, PartitionKey key, Progress& progress) {
    Follower& follower = *followers_[index];
    if (!follower.is_installed || progress.takes_nothing) return;
    if (std::exchange(progress.is_queued, true)) return;
    follower.queue.push_back(key);
    follower.work.notify_all();
}

void Leader::owe_commit(std::size_t index, PartitionKey key, Progress& progress) {
    Follower& follower = *followers_[index];
    if (!follower.is_installed || progress.takes_nothing) return;
    if (std::exchange(progress.owes_commit, true)) return;
    follower.commits.push_back(key);
}

bool Leader::may_send(const Follower& follower) const {
    return follower.is_installed && !follower.queue.empty() &&
           follower.in_flight_bytes < APPEND_IN_FLIGHT_BYTES;
}

void Leader::run_sender(Fiber& fiber, std::size_t index) {
    Follower& follower = *followers_[index];
    while (true) {
        const Result<void> sent =
            may_send(follower) ? send_some(fiber, index) : follower.work.wait(fiber);
        if (sent.is(ErrorCode::CANCELLED)) return;
    }
}

Result<void> Leader::send_some(Fiber& fiber, std::size_t index) {
    Follower& follower = *followers_[index];
    const std::uint64_t install_count = follower.install_count;
    peer::PeerChannel* channel = peers_->channel(follower.node_id, peer::Lane::BULK);
    if (channel == nullptr) {
        end_install(index);
        return {};
    }
    if (channel->queued_bytes() > APPEND_IN_FLIGHT_BYTES) return channel->drained().wait(fiber);

    peer::OutAppend append;
    std::size_t frame_bytes = 0;
    const std::size_t section_count_max = channel->version() >= 2 ? APPEND_SECTION_COUNT_MAX : 1;
    while (!follower.queue.empty() && append.sections.size() < section_count_max &&
           frame_bytes < APPEND_FRAME_BYTES_MAX) {
        const PartitionKey key = follower.queue.front();
        follower.queue.pop_front();
        const bool is_gathered =
            MORTAR_TRY(gather(fiber, index, key, APPEND_FRAME_BYTES_MAX - frame_bytes, append));
        // A read may have slept over a new connection, whose positions are others.
        if (follower.install_count != install_count) return {};
        if (is_gathered) frame_bytes += append.sections.back().records.size_bytes;
    }
    if (!append.sections.empty()) send(index, std::move(append));
    return {};
}

// One log's share of an APPEND; false when it has none.
Result<bool> Leader::gather(Fiber& fiber, std::size_t index, PartitionKey key,
                            std::size_t bytes_max, peer::OutAppend& append) {
    Follower& follower = *followers_[index];
    const std::uint64_t install_count = follower.install_count;
    const auto found = states_.find(key);
    ReplicatedLog* log = logs_.find(key);
    if (found == states_.end() || log == nullptr) return false;
    found->second.progress[index].is_queued = false;
    if (found->second.progress[index].takes_nothing) return false;
    const Sequence from = found->second.progress[index].sent.next();
    if (from > log->end().last) return false;
    Result<RecordBytes> read = log->read_bytes(fiber, from, log->end().last, bytes_max);
    if (read.is(ErrorCode::CANCELLED)) return read.error();
    // What was true before the read: is it still?
    const auto again = states_.find(key);
    log = logs_.find(key);
    if (follower.install_count != install_count || again == states_.end() || log == nullptr)
        return false;
    Progress& progress = again->second.progress[index];
    const bool is_asked_still = progress.sent.next() == from && !progress.takes_nothing;
    if (key == METADATA_LOG && read.is(ErrorCode::NOT_FOUND)) {
        if (is_asked_still) put_out_of_reach(index, read.error());
        return false;
    }
    if (!read.ok()) {
        // Damage is repaired, a closed log makes the leader step down: neither is a sender's matter.
        env_.log.warn("append_not_read",
                      {{"log", log_name(key)}, {"reason", read.error().to_string()}});
        return false;
    }
    if (is_asked_still) {
        const LogEnd previous = sent_end(key, progress.sent);
        progress.sent = read->last;
        progress.told_commit = log->commit_seq();
        progress.unconfirmed.push_back({read->last, read->size_bytes});
        follower.in_flight_bytes += read->size_bytes;
        append.sections.push_back({key, previous, log->commit_seq(), std::move(read).value()});
    }
    if (progress.sent < log->end().last) enqueue(index, key, progress);
    return append.sections.size() > 0 && append.sections.back().log == key;
}

bool Leader::send(std::size_t index, peer::OutAppend append) {
    peer::PeerChannel* channel = peers_->channel(followers_[index]->node_id, peer::Lane::BULK);
    if (channel == nullptr) {
        end_install(index);
        return false;
    }
    append.leader_epoch = term_.leader_epoch;
    append.metadata_commit_seq = logs_.find(METADATA_LOG)->commit_seq();
    channel->send(peer::encode_append(std::move(append), channel->version()));
    return true;
}

void Leader::on_tick() {
    const MonoTime now = env_.clock.now();
    for (std::size_t i = 0; i < followers_.size(); ++i) {
        judge_lag(*followers_[i], now);
        tell_commits(i);
    }
    samples_.push_back({now, appended_count_});
    while (samples_.size() > 1 && samples_[1].at + SOFT_GAP_TIME <= now)
        samples_.pop_front();
}

void Leader::tell_commits(std::size_t index) {
    Follower& follower = *followers_[index];
    const peer::PeerChannel* channel = peers_->channel(follower.node_id, peer::Lane::BULK);
    if (!follower.is_installed || channel == nullptr) return;
    const std::size_t section_count_max = channel->version() >= 2 ? APPEND_SECTION_COUNT_MAX : 1;
    peer::OutAppend append;
    for (const PartitionKey key : std::exchange(follower.commits, {})) {
        const auto found = states_.find(key);
        const ReplicatedLog* log = logs_.find(key);
        if (found == states_.end() || log == nullptr) continue;
        Progress& progress = found->second.progress[index];
        progress.owes_commit = false;
        if (progress.told_commit >= log->commit_seq()) continue;
        progress.told_commit = log->commit_seq();
        append.sections.push_back({key, sent_end(key, progress.sent), log->commit_seq(), {}});
        if (append.sections.size() < section_count_max) continue;
        if (!send(index, std::exchange(append, {}))) return;
    }
    if (!append.sections.empty()) send(index, std::move(append));
}

// Behind by many records, or by what was appended over a second ago.
void Leader::judge_lag(Follower& follower, MonoTime now) {
    const bool has_old_sample = !samples_.empty() && samples_.front().at + SOFT_GAP_TIME <= now;
    const std::uint64_t confirmed_count =
        appended_count_ - std::min(appended_count_, follower.lag_records);
    const bool is_late = has_old_sample && confirmed_count < samples_.front().appended_count;
    const bool is_in_sync =
        follower.is_installed && follower.lag_records <= SOFT_GAP_RECORDS && !is_late;
    if (!is_in_sync) {
        follower.in_sync_since = NEVER;
    } else if (follower.in_sync_since == NEVER) {
        follower.in_sync_since = now;
    }
    // One that is now behind, now not, is one line in the log until it stays in sync.
    const bool stays_in_sync = is_in_sync && follower.in_sync_since + SOFT_GAP_TIME <= now;
    if (follower.is_installed && (follower.is_lag_told ? stays_in_sync : !is_in_sync))
        tell_lag(follower);
}

void Leader::tell_lag(Follower& follower) {
    follower.is_lag_told = !follower.is_lag_told;
    const std::string node = std::to_string(follower.node_id.value);
    if (!follower.is_lag_told) return env_.log.info("follower_in_sync", {{"node", node}});
    env_.log.warn("follower_lag", {{"code", std::string(error_name(ErrorCode::FOLLOWER_LAG))},
                                   {"node", node},
                                   {"lag_records", std::to_string(follower.lag_records)}});
}

// --- what others ask

std::size_t Leader::installed_count() const {
    return 1 + static_cast<std::size_t>(
                   std::count_if(followers_.begin(), followers_.end(),
                                 [](const auto& follower) { return follower->is_installed; }));
}

bool Leader::is_majority_installed() const {
    return installed_count() > (followers_.size() + 1) / 2;
}

bool Leader::can_commit(const ReplicatedLog& log) const {
    const auto state = states_.find(log.key());
    std::size_t count = log.faulty_from().has_value() ? 0 : 1;
    for (std::size_t i = 0; i < followers_.size(); ++i) {
        const bool takes = state == states_.end() || !state->second.progress[i].takes_nothing;
        if (followers_[i]->is_installed && takes) ++count;
    }
    return count > (followers_.size() + 1) / 2;
}

std::vector<FollowerStatus> Leader::followers() const {
    std::vector<FollowerStatus> all;
    for (const auto& follower : followers_) {
        FollowerStatus status;
        status.node_id = follower->node_id;
        status.is_connected = peers_->channel(follower->node_id, peer::Lane::BULK) != nullptr;
        status.is_installed = follower->is_installed;
        status.is_in_sync = follower->in_sync_since != NEVER;
        status.lag_records = follower->lag_records;
        status.confirmed_bytes = follower->confirmed_bytes;
        status.in_sync_since = follower->in_sync_since;
        all.push_back(status);
    }
    return all;
}

bool Leader::has_all(NodeId node) const {
    const std::size_t index = index_of(node);
    return index < followers_.size() && followers_[index]->is_installed &&
           followers_[index]->lag_records == 0;
}

std::size_t Leader::index_of(NodeId node) const {
    std::size_t index = 0;
    while (index < followers_.size() && followers_[index]->node_id != node)
        ++index;
    return index;
}

Leader::LogState& Leader::state_of(PartitionKey key) {
    const auto [at, is_new] = states_.try_emplace(key);
    if (is_new) {
        const LogEnd base = base_of(key);
        Progress at_base;
        at_base.sent = at_base.flushed = base.last;
        at->second.counted_end = base.last;
        at->second.progress.assign(followers_.size(), at_base);
    }
    return at->second;
}

LogEnd Leader::base_of(PartitionKey key) const {
    const auto found = term_.base.find(key);
    return found == term_.base.end() ? LogEnd{} : found->second;
}

// Everything behind the base was appended in this term.
LogEnd Leader::sent_end(PartitionKey key, Sequence sent) const {
    const LogEnd base = base_of(key);
    MORTAR_ASSERT(sent >= base.last);
    return sent == base.last ? base : LogEnd{sent, term_.leader_epoch};
}

}  // namespace mortar
