// What a node answers to others, and what it makes of their answers: the second half of node.h.
#include <algorithm>
#include <set>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/replica/node.h"
#include "core/replica/timing.h"

namespace mortar {

using peer::Op;

namespace {

Error unexpected(Op op) {
    return make_error(ErrorCode::MALFORMED_PAYLOAD,
                      std::string(peer::op_name(op)) + " does not belong on this connection");
}

constexpr Duration RECONCILE_RETRY = milliseconds(200);

}  // namespace

// --- channels

void ReplicaNode::on_channel_up(peer::PeerChannel& channel) {
    if (channel.lane() == peer::Lane::BULK) {
        if (channel.is_dialed()) {
            send_install(channel.peer());
        } else {
            bulk_from_[channel.peer()] = &channel;
        }
    }
    end_unclean_backoff();
    changed_.notify_all();
}

void ReplicaNode::on_channel_down(peer::PeerChannel& channel) {
    if (channel.lane() == peer::Lane::BULK) {
        if (channel.is_dialed()) {
            requests_->on_channel_down(channel.peer());
            if (leader_ != nullptr) leader_->on_channel_down(channel.peer());
        } else {
            const auto found = bulk_from_.find(channel.peer());
            if (found != bulk_from_.end() && found->second == &channel) bulk_from_.erase(found);
            follower_.on_channel_down(channel);
        }
    }
    end_unclean_backoff();
    changed_.notify_all();
}

Result<void> ReplicaNode::on_frame(Fiber& fiber, peer::PeerChannel& channel, Op op,
                                   ByteSpan payload) {
    return channel.is_dialed() ? on_answer(channel, op, payload)
                               : on_question(fiber, channel, op, payload);
}

Result<void> ReplicaNode::on_question(Fiber& fiber, peer::PeerChannel& channel, Op op,
                                      ByteSpan payload) {
    const bool is_control = channel.lane() == peer::Lane::CONTROL;
    switch (op) {
        case Op::HEARTBEAT:
            if (!is_control) return unexpected(op);
            return on_heartbeat(fiber, channel, MORTAR_TRY(peer::decode<peer::Heartbeat>(payload)));
        case Op::RELEASE:
            if (!is_control) return unexpected(op);
            on_release(channel, MORTAR_TRY(peer::decode<peer::Release>(payload)));
            return {};
        case Op::PRE_VOTE:
            if (!is_control) return unexpected(op);
            on_pre_vote(channel, MORTAR_TRY(peer::decode<peer::PreVote>(payload)));
            return {};
        case Op::PREPARE:
            if (!is_control) return unexpected(op);
            return on_prepare(fiber, channel, MORTAR_TRY(peer::decode<peer::Prepare>(payload)));
        case Op::INSTALL:
            if (is_control) return unexpected(op);
            return on_install(fiber, channel, MORTAR_TRY(peer::decode<peer::Install>(payload)));
        case Op::APPEND:
            if (is_control) return unexpected(op);
            return on_append(channel, MORTAR_TRY(peer::decode_append(payload, channel.version())));
        case Op::FETCH:
            if (is_control) return unexpected(op);
            return on_fetch(fiber, channel, MORTAR_TRY(peer::decode<peer::Fetch>(payload)));
        case Op::EPOCH_END:
            if (is_control) return unexpected(op);
            return on_epoch_end(fiber, channel, MORTAR_TRY(peer::decode<peer::EpochEnd>(payload)));
        case Op::SNAPSHOT:
            if (is_control) return unexpected(op);
            return on_snapshot(fiber, channel, MORTAR_TRY(peer::decode<peer::Snapshot>(payload)));
        default:
            return unexpected(op);
    }
}

Result<void> ReplicaNode::on_answer(peer::PeerChannel& channel, Op op, ByteSpan payload) {
    const NodeId node = channel.peer();
    switch (op) {
        case Op::HEARTBEAT_OK: {
            const auto answer = MORTAR_TRY(peer::decode<peer::HeartbeatOk>(payload));
            if (!leader_lease_) return {};
            leader_lease_->on_answer(node, answer.leader_epoch, answer.sent_at);
            if (!in_office_) changed_.notify_all();
            return {};
        }
        case Op::PRE_VOTE_REPLY: {
            const auto answer = MORTAR_TRY(peer::decode<peer::PreVoteReply>(payload));
            if (!is_believed(node, op, answer.promised_epoch)) return {};
            note_epoch(answer.promised_epoch);
            election_.on_pre_vote_reply(node, answer);
            return {};
        }
        case Op::PROMISE:
            // Too late for an election that has ended without it, the next one may hear it.
            if (role_ == Role::FOLLOWER) end_unclean_backoff();
            election_.on_promise(node, MORTAR_TRY(peer::decode<peer::PromiseGiven>(payload)));
            return {};
        case Op::INSTALLED: {
            const auto answer = MORTAR_TRY(peer::decode<peer::Installed>(payload));
            if (leader_ == nullptr || lost_) return {};
            leader_->on_installed(node, answer);
            caretaker_.wake();
            changed_.notify_all();
            return {};
        }
        case Op::REFUSED:
            on_refused(node, MORTAR_TRY(peer::decode<peer::Refused>(payload)));
            return {};
        case Op::FLUSHED: {
            const auto answer = MORTAR_TRY(peer::decode<peer::Flushed>(payload));
            if (leader_ == nullptr || lost_) return {};
            leader_->on_flushed_by(node, answer);
            if (!in_office_) changed_.notify_all();
            return {};
        }
        case Op::LOG_GAP: {
            const auto answer = MORTAR_TRY(peer::decode<peer::LogGap>(payload));
            if (leader_ != nullptr && !lost_) leader_->on_log_gap(node, answer);
            return {};
        }
        case Op::FETCHED:
        case Op::EPOCH_END_REPLY:
        case Op::SNAPSHOT_REPLY:
            return requests_->on_reply(node, op, payload);
        default:
            return unexpected(op);
    }
}

// --- promises and votes

void ReplicaNode::note_epoch(LeaderEpoch seen) {
    highest_seen_ = std::max(highest_seen_, seen);
}

// Epochs are few, and one that is promised is promised for ever: a mad or broken peer could use up all with one message. No
// answer either, it would begin an election after the other. A blank node knows of none before, and has nothing to keep.
bool ReplicaNode::is_believed(NodeId from, Op op, LeaderEpoch leader_epoch) {
    const LeaderEpoch promised = store_.promised_epoch();
    if (store_.is_blank() || leader_epoch.value <= promised.value + LEADER_EPOCH_JUMP_MAX)
        return true;
    MORTAR_SOMETIMES(true, "node: an epoch out of all reach was not believed");
    const auto [told, is_new] = disbelieved_.try_emplace(from, leader_epoch);
    if (!is_new && std::exchange(told->second, leader_epoch) == leader_epoch) return false;
    env_.log.error("leader_epoch_not_believed",
                   {{"peer", std::to_string(from.value)},
                    {"op", std::string(peer::op_name(op))},
                    {"leader_epoch", std::to_string(leader_epoch.value)},
                    {"promised", std::to_string(promised.value)},
                    {"advice",
                     "no cluster has so many elections: find out what that node is; if it is "
                     "right, this node's replica/state is of another time: take it away (RB-1)"}});
    return false;
}

// Outside any lease: that of a leader it heard, or its own.
bool ReplicaNode::may_vote() const {
    const MonoTime now = env_.clock.now();
    if (leader_lease_ && !lost_ && leader_lease_->is_held(now)) return false;
    return follower_lease_.may_vote(now);
}

void ReplicaNode::refuse(peer::PeerChannel& channel, Op op) const {
    channel.send_message(peer::Refused{op, store_.promised_epoch()});
}

// Somebody else has promised more: whatever this node is, it is so in an epoch that is over.
void ReplicaNode::on_refused(NodeId node, const peer::Refused& refused) {
    if (!is_believed(node, Op::REFUSED, refused.promised_epoch)) return;
    note_epoch(refused.promised_epoch);
    if (refused.op == Op::PREPARE) return election_.on_refused(node, refused.promised_epoch);
    if (refused.op == Op::FETCH || refused.op == Op::EPOCH_END || refused.op == Op::SNAPSHOT)
        return requests_->on_refused(node);
    if (leader_ == nullptr) return;
    if (refused.promised_epoch > leader_->term().leader_epoch)
        return step_down("node " + std::to_string(node.value) + " has promised leader_epoch " +
                         std::to_string(refused.promised_epoch.value));
    // It is blank, and takes part only in an election that began after it came; or it has promised this very epoch to
    // another candidate. Either way a new election takes it in.
    if (refused.op == Op::INSTALL) {
        wants_election_ = true;
        changed_.notify_all();
    }
}

// A leader of a higher epoch was elected without this node: from now on older ones are refused. False: it is not to be
// followed.
Result<bool> ReplicaNode::adopt(Fiber& fiber, NodeId leader, LeaderEpoch leader_epoch) {
    note_epoch(leader_epoch);
    if (leader_epoch < store_.promised_epoch()) return false;
    if (leader_epoch == store_.promised_epoch()) return store_.promised_to() == leader;
    // Not before it is its turn to be saved: until then this node may be elected.
    const auto turn_away = [&] {
        step_down("node " + std::to_string(leader.value) + " leads in leader_epoch " +
                  std::to_string(leader_epoch.value));
        follower_.end();
        return true;
    };
    const Result<void> promised = store_.promise(fiber, leader_epoch, leader, turn_away);
    election_.wake();
    if (promised.is(ErrorCode::STALE_LEADER_EPOCH)) return false;
    catch_up_.on_promised();
    if (!promised.ok()) return promised.error();
    return store_.promised_epoch() == leader_epoch;
}

Result<void> ReplicaNode::on_heartbeat(Fiber& fiber, peer::PeerChannel& channel,
                                       const peer::Heartbeat& heartbeat) {
    const NodeId leader = channel.peer();
    if (!is_believed(leader, Op::HEARTBEAT, heartbeat.leader_epoch)) return {};
    // Its memory is gone: what it promises now it may have promised otherwise.
    if (store_.is_blank()) {
        note_epoch(heartbeat.leader_epoch);
        known_leader_ = KnownLeader{leader, heartbeat.leader_epoch, heartbeat.is_in_office};
        return {};
    }
    const bool is_followed = MORTAR_TRY(adopt(fiber, leader, heartbeat.leader_epoch));
    if (channel.is_closed()) return {};
    if (!is_followed) {
        refuse(channel, Op::HEARTBEAT);
        return {};
    }
    if (!follower_lease_.on_heard(heartbeat.leader_epoch, env_.clock.now())) return {};
    const KnownLeader known{leader, heartbeat.leader_epoch, heartbeat.is_in_office};
    if (known.is_in_office) {
        trouble_.reset();
        unclean_obstacle_.clear();
        unclean_until_ = {};
    }
    if (!known_leader_ || known_leader_->leader_epoch != known.leader_epoch ||
        known_leader_->is_in_office != known.is_in_office) {
        known_leader_ = known;
        changed_.notify_all();
    }
    peer::HeartbeatOk answer;
    answer.leader_epoch = heartbeat.leader_epoch;
    answer.sent_at = heartbeat.sent_at;
    answer.installed_epoch = store_.installed_epoch();
    channel.send_message(answer);
    if (follower_.follows(heartbeat.leader_epoch))
        logs_.find(METADATA_LOG)->advance_commit(heartbeat.metadata_commit_seq);
    return {};
}

void ReplicaNode::on_release(const peer::PeerChannel& channel, const peer::Release& release) {
    const bool is_own =
        release.leader_epoch == store_.promised_epoch() && store_.promised_to() == channel.peer();
    if (!is_own || store_.is_blank()) return;
    follower_lease_.on_release(release.leader_epoch, env_.clock.now());
    known_leader_.reset();
    election_seen_at_ = env_.clock.now();
    if (release.successor == options_.self) stand_now_ = true;
    if (release.successor != options_.self && !stopping_) {
        // The successor goes first.
        not_before_ = std::max(not_before_, env_.clock.now() + ELECTION_DELAY_PER_RANK * 3);
    }
    changed_.notify_all();
}

void ReplicaNode::on_pre_vote(peer::PeerChannel& channel, const peer::PreVote& pre_vote) {
    if (!is_believed(channel.peer(), Op::PRE_VOTE, pre_vote.candidate_epoch)) return;
    note_epoch(LeaderEpoch(pre_vote.candidate_epoch.value - 1));
    peer::PreVoteReply reply;
    reply.candidate_epoch = pre_vote.candidate_epoch;
    reply.is_yes = may_vote() && pre_vote.candidate_epoch > store_.promised_epoch();
    reply.is_blank = store_.is_blank();
    reply.promised_epoch = store_.promised_epoch();
    channel.send_message(reply);
}

Result<void> ReplicaNode::on_prepare(Fiber& fiber, peer::PeerChannel& channel,
                                     const peer::Prepare& prepare) {
    if (!is_believed(channel.peer(), Op::PREPARE, prepare.leader_epoch)) return {};
    note_epoch(prepare.leader_epoch);
    if (!may_vote() || prepare.leader_epoch <= store_.promised_epoch()) {
        MORTAR_SOMETIMES(!may_vote(), "node: no vote inside a lease");
        refuse(channel, Op::PREPARE);
        return {};
    }
    // Other saves may go first, and meanwhile the leader may be heard, or this node be elected.
    const auto turn_away = [&] {
        if (!may_vote()) return false;
        step_down("it votes for node " + std::to_string(channel.peer().value));
        follower_.end();
        known_leader_.reset();
        election_seen_at_ = env_.clock.now();
        return true;
    };
    const Result<void> promised =
        store_.promise(fiber, prepare.leader_epoch, channel.peer(), turn_away);
    election_.wake();
    if (promised.is(ErrorCode::STALE_LEADER_EPOCH)) {
        if (!channel.is_closed()) refuse(channel, Op::PREPARE);
        return {};
    }
    catch_up_.on_promised();
    MORTAR_TRY(promised);
    // Only now: nothing of an older epoch is taken any more, so these positions do not grow.
    MORTAR_TRY(catch_up_.settle(fiber));
    if (channel.is_closed()) return {};
    if (store_.promised_epoch() != prepare.leader_epoch) {
        refuse(channel, Op::PREPARE);
        return {};
    }
    channel.send_message(own_promise(logs_, store_, prepare.leader_epoch));
    // The next one in rank does not stand while this one is at work.
    not_before_ = std::max(not_before_, env_.clock.now() + ELECTION_TIMEOUT);
    return {};
}

// --- becoming a follower of a term

Result<void> ReplicaNode::on_install(Fiber& fiber, peer::PeerChannel& channel,
                                     const peer::Install& install) {
    const NodeId leader = channel.peer();
    if (!is_believed(leader, Op::INSTALL, install.leader_epoch)) return {};
    note_epoch(install.leader_epoch);
    if (store_.is_blank()) {
        const bool began_later = std::find(install.heard.begin(), install.heard.end(),
                                           options_.incarnation) != install.heard.end();
        if (!began_later || install.leader_epoch < store_.promised_epoch()) {
            refuse(channel, Op::INSTALL);
            return {};
        }
    }
    const bool is_followed = MORTAR_TRY(adopt(fiber, leader, install.leader_epoch));
    if (channel.is_closed()) return {};
    if (!is_followed) {
        refuse(channel, Op::INSTALL);
        return {};
    }
    const bool is_installed =
        !store_.is_blank() && store_.installed_epoch() == install.leader_epoch;
    if (is_installed && !lacks_metadata(install)) {
        confirm_install(leader, install);
    } else {
        follower_.end();
        start_reconciling(leader, install);
    }
    return {};
}

void ReplicaNode::confirm_install(NodeId leader, const peer::Install& install) {
    const auto channel = bulk_from_.find(leader);
    if (channel == bulk_from_.end()) return;
    peer::Installed installed;
    installed.leader_epoch = install.leader_epoch;
    base_.clear();
    for (const peer::InstallBase& each : install.base)
        base_[each.log] = each.end;
    std::set<PartitionKey> keys;
    for (const PartitionKey key : logs_.keys())
        keys.insert(key);
    for (const auto& [key, end] : base_)
        keys.insert(key);
    for (const PartitionKey key : keys) {
        const ReplicatedLog* log = logs_.find(key);
        if (log != nullptr) check_base(*log);
        // Of one that is not open now nobody knows what it holds: it is told when it is (on_available).
        if (log == nullptr || log->is_closed() || log->faulty_from() || aside_.contains(key)) {
            installed.positions.push_back({key, peer::TAKES_NOTHING});
            continue;
        }
        const auto found = base_.find(key);
        if (log->end() != (found == base_.end() ? LogEnd{} : found->second))
            installed.positions.push_back({key, log->end()});
    }
    channel->second->send_message(installed);
    follower_.begin(install.leader_epoch, *channel->second, aside_);
    caretaker_.wake();
}

void ReplicaNode::start_reconciling(NodeId leader, const peer::Install& install) {
    if (reconciling_epoch_ == install.leader_epoch) return;  // under way; it answers when done
    reconciling_epoch_ = install.leader_epoch;
    fibers_.spawn("replica.reconcile", [this, leader, install](Fiber& fiber) {
        run_reconciling(fiber, leader, install);
    });
}

void ReplicaNode::run_reconciling(Fiber& fiber, NodeId leader, peer::Install install) {
    const LeaderEpoch leader_epoch = install.leader_epoch;
    const auto guard = reconciling_.lock(fiber);  // one before the other: both move the same logs
    if (!guard.ok()) return;
    const auto is_current = [&] { return store_.promised_epoch() == leader_epoch; };
    bool is_done = false;
    while (is_current()) {
        const bool is_installed = !store_.is_blank() && store_.installed_epoch() == leader_epoch;
        const Result<void> made = is_installed ? fill_metadata(fiber, leader, install)
                                               : reconcile_all(fiber, leader, install);
        is_done = made.ok();
        if (made.ok() || made.is(ErrorCode::CANCELLED)) break;
        env_.log.warn("not_installed", {{"leader_epoch", std::to_string(leader_epoch.value)},
                                        {"leader", std::to_string(leader.value)},
                                        {"reason", made.error().to_string()}});
        if (!env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, RECONCILE_RETRY)).ok())
            break;
    }
    if (reconciling_epoch_ == leader_epoch) reconciling_epoch_.reset();
    if (is_done && is_current() && store_.installed_epoch() == leader_epoch)
        confirm_install(leader, install);
}

// What the leader knows to be committed, and what was there when it was elected.
static Sequence metadata_due(const peer::Install& install) {
    Sequence due = install.metadata_commit_seq;
    for (const peer::InstallBase& each : install.base) {
        if (each.log == METADATA_LOG) due = std::max(due, each.end.last);
    }
    return due;
}

// Of an installed node: the rest may be in the leader's snapshot only, which no APPEND carries; or its own is in quarantine.
bool ReplicaNode::lacks_metadata(const peer::Install& install) const {
    const ReplicatedLog* metadata = logs_.find(METADATA_LOG);
    if (metadata->is_closed()) return false;
    // Bad in the middle, and in memory: it takes a new start to put it aside.
    if (metadata->faulty_from() && metadata->end().last > Sequence(0)) return false;
    return metadata->faulty_from() || metadata->end().last < metadata_due(install);
}

// What this node holds in a term in which it is installed is a beginning of the leader's log, or nothing: no need to look
// for the last common record, and nothing to cut.
Result<void> ReplicaNode::fill_metadata(Fiber& fiber, NodeId leader, const peer::Install& install) {
    const LeaderEpoch leader_epoch = install.leader_epoch;
    const LogEnd due{metadata_due(install), leader_epoch};
    MORTAR_SOMETIMES(true, "node: metadata is fetched in a term in which it is installed");
    MORTAR_TRY(catch_up_.fill(fiber, METADATA_LOG, {leader, leader_epoch, due}));
    MORTAR_TRY(catch_up_.still(leader_epoch));
    logs_.find(METADATA_LOG)->advance_commit(install.metadata_commit_seq);
    // Partitions that were not open without it would pass for empty ones, were the mark gone before they are.
    MORTAR_TRY(logs_.wait_for_catalog(fiber));
    MORTAR_TRY(logs_.find(METADATA_LOG)->make_durable(fiber));
    MORTAR_TRY(catch_up_.still(leader_epoch));
    if (logs_.find(METADATA_LOG)->faulty_from()) return {};
    // Whatever it had confirmed before it was lost, it holds again.
    return store_.forget(fiber, METADATA_LOG);
}

Result<void> ReplicaNode::reconcile_all(Fiber& fiber, NodeId leader, const peer::Install& install) {
    const LeaderEpoch leader_epoch = install.leader_epoch;
    std::map<PartitionKey, LogEnd> base;
    for (const peer::InstallBase& each : install.base)
        base[each.log] = each.end;
    MORTAR_TRY(catch_up_.settle(fiber));
    MORTAR_TRY(
        catch_up_.reconcile(fiber, METADATA_LOG, {leader, leader_epoch, base[METADATA_LOG]}));
    MORTAR_TRY(catch_up_.still(leader_epoch));
    logs_.find(METADATA_LOG)->advance_commit(install.metadata_commit_seq);
    MORTAR_TRY(logs_.wait_for_catalog(fiber));
    std::set<PartitionKey> aside;
    for (const PartitionKey key : logs_.keys()) {
        MORTAR_TRY(catch_up_.still(leader_epoch));
        if (key == METADATA_LOG || logs_.find(key) == nullptr) continue;
        const auto found = base.find(key);
        const LogEnd end = found == base.end() ? LogEnd{} : found->second;
        MORTAR_TRY(make_equal(fiber, key, {leader, leader_epoch, end}, aside));
    }
    MORTAR_TRY(make_all_durable(fiber, env_, logs_));
    MORTAR_TRY(catch_up_.still(leader_epoch));
    MORTAR_TRY(store_.install(fiber, leader_epoch, install.cluster_id));
    aside_ = std::move(aside);
    if (options_.on_joined) options_.on_joined(install.cluster_id);
    return {};
}

// One log that stays behind does not keep the others from being confirmed.
Result<void> ReplicaNode::make_equal(Fiber& fiber, PartitionKey key, const CopySource& source,
                                     std::set<PartitionKey>& aside) {
    const Result<void> made = caretaker_.make_level(fiber, key, source);
    // A leader has every log of its topics: this one's was deleted, which comes to be known here too.
    if (made.ok() || made.is(ErrorCode::NOT_FOUND)) return {};
    MORTAR_TRY(leave_aside(fiber, key, made.error()));
    aside.insert(key);
    return {};
}

Result<void> ReplicaNode::on_append(peer::PeerChannel& channel, const peer::Append& append) {
    if (append.leader_epoch < store_.promised_epoch()) {
        refuse(channel, Op::APPEND);
        return {};
    }
    // Of a term in which this node is not installed (any more, or yet): INSTALL comes, or came too late.
    if (!follower_.follows(append.leader_epoch)) return {};
    MORTAR_ASSERT(store_.installed_epoch() == append.leader_epoch);
    return follower_.on_append(channel, append);
}

// --- reads of this node's logs

Result<void> ReplicaNode::on_fetch(Fiber& fiber, peer::PeerChannel& channel,
                                   const peer::Fetch& fetch) {
    if (fetch.leader_epoch != store_.promised_epoch()) {
        refuse(channel, Op::FETCH);
        return {};
    }
    const auto answer = [&](peer::FetchOutcome outcome) {
        peer::Fetched fetched;
        fetched.request_id = fetch.request_id;
        fetched.outcome = outcome;
        channel.send_message(fetched);
    };
    ReplicatedLog* log = logs_.find(fetch.log);
    if (log == nullptr) {
        answer(peer::FetchOutcome::NO_SUCH_LOG);
        return {};
    }
    const Sequence through = std::min(fetch.through, log->flushed());
    // It is not what this node's installed_epoch stands for.
    if (aside_.contains(fetch.log)) {
        answer(peer::FetchOutcome::DAMAGED);
        return {};
    }
    if (fetch.from == Sequence(0) || fetch.from > through) {
        answer(peer::FetchOutcome::FAILED);
        return {};
    }
    // Whatever it asks for: the answer must fit into a frame.
    const std::uint32_t bytes_max = std::min(fetch.bytes_max, FETCH_BYTES_MAX);
    Result<RecordBytes> read = log->read_bytes(fiber, fetch.from, through, bytes_max);
    if (read.is(ErrorCode::CANCELLED)) return read.error();
    if (channel.is_closed()) return {};
    if (read.ok()) {
        channel.send(peer::encode_fetched(fetch.request_id, std::move(read).value()));
    } else if (read.is(ErrorCode::NOT_FOUND)) {
        answer(peer::FetchOutcome::BELOW_SNAPSHOT);
    } else if (read.is(ErrorCode::CHECKSUM_MISMATCH) || read.is(ErrorCode::DAMAGED)) {
        answer(peer::FetchOutcome::DAMAGED);
    } else {
        answer(peer::FetchOutcome::FAILED);
    }
    return {};
}

Result<void> ReplicaNode::on_epoch_end(Fiber& fiber, peer::PeerChannel& channel,
                                       const peer::EpochEnd& question) {
    if (question.leader_epoch != store_.promised_epoch()) {
        refuse(channel, Op::EPOCH_END);
        return {};
    }
    peer::EpochEndReply reply;
    reply.request_id = question.request_id;
    if (aside_.contains(question.log)) {
        reply.outcome = peer::FetchOutcome::DAMAGED;
    } else {
        const Result<LogEnd> found = find_epoch_end(fiber, logs_, question.log, question.at_most);
        if (found.is(ErrorCode::CANCELLED)) return found.error();
        if (found.ok()) reply.end = *found;
        if (!found.ok()) {
            const bool is_gone = logs_.find(question.log) == nullptr;
            reply.outcome = is_gone ? peer::FetchOutcome::NO_SUCH_LOG : peer::FetchOutcome::FAILED;
        }
    }
    if (!channel.is_closed()) channel.send_message(reply);
    return {};
}

Result<void> ReplicaNode::on_snapshot(Fiber& fiber, peer::PeerChannel& channel,
                                      const peer::Snapshot& question) {
    if (question.leader_epoch != store_.promised_epoch()) {
        refuse(channel, Op::SNAPSHOT);
        return {};
    }
    const Result<MetadataSnapshot> snapshot = logs_.metadata_snapshot(fiber);
    if (snapshot.is(ErrorCode::CANCELLED)) return snapshot.error();
    if (channel.is_closed()) return {};
    peer::SnapshotReply reply;
    reply.request_id = question.request_id;
    const bool is_other =
        snapshot.ok() && question.through != Sequence(0) && question.through != snapshot->through;
    if (snapshot.is(ErrorCode::NOT_FOUND)) {
        reply.outcome = peer::FetchOutcome::NO_SUCH_LOG;
    } else if (!snapshot.ok()) {
        reply.outcome = peer::FetchOutcome::FAILED;
    } else if (is_other || question.file_offset > snapshot->bytes->size()) {
        reply.outcome = peer::FetchOutcome::NO_SUCH_LOG;
    } else {
        reply.through = snapshot->through;
        reply.total_bytes = snapshot->bytes->size();
        const ByteSpan rest =
            ByteSpan(*snapshot->bytes).subspan(static_cast<std::size_t>(question.file_offset));
        reply.bytes = rest.first(std::min<std::size_t>(rest.size(), SNAPSHOT_PART_BYTES_MAX));
    }
    channel.send_message(reply);
    return {};
}

}  // namespace mortar
