#include "core/replica/node.h"

#include <algorithm>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/replica/timing.h"

namespace mortar {
namespace {

std::string number(std::uint64_t value) {
    return std::to_string(value);
}

Error quorum_lost() {
    return make_error(ErrorCode::QUORUM_LOST,
                      "a majority of nodes does not confirm writes at present: retry later");
}

CareOptions care_options(const ReplicaOptions& options) {
    CareOptions care = options.care;
    care.has_peers = options.nodes.size() > 1;
    return care;
}

}  // namespace

ReplicaNode::ReplicaNode(Env& env, ReplicaOptions options, PromiseStore& store,
                         ReplicatedLogs& logs, peer::PeerRoster* peers, Office& office)
    : env_(env),
      options_(std::move(options)),
      store_(store),
      logs_(logs),
      peers_(peers),
      office_(office),
      requests_(peers == nullptr ? nullptr : std::make_unique<PeerRequests>(env, *peers)),
      catch_up_(env, store, logs, requests_.get()),
      caretaker_(env, logs, store, catch_up_, care_options(options_),
                 [this](Fiber& fiber, PartitionKey key) { return repair_log(fiber, key); }),
      election_(env, options_, store, logs, peers, catch_up_, caretaker_, reconciling_),
      follower_(env, logs),
      follower_lease_(env.clock.now(),
                      store.is_blank() ? std::nullopt : std::optional(store.promised_epoch())),
      jitter_(env.rng.stream("replica.jitter")),
      highest_seen_(store.promised_epoch()),
      fibers_(env.scheduler),
      heartbeats_(env.scheduler) {
    for (const LogMark& mark : store.marks()) {
        if (mark.faulty_from > Sequence(0)) aside_.insert(mark.log);
    }
}

ReplicaNode::~ReplicaNode() = default;

// --- the way round

Result<void> ReplicaNode::run(Fiber& fiber) {
    follower_.start();
    caretaker_.start();
    Result<void> result;
    while (!stopping_ && result.ok()) {
        if (!is_single()) result = wait_to_stand(fiber);
        if (stopping_ || !result.ok()) break;
        result = stand(fiber);
        if (result.ok()) continue;
        if (result.is(ErrorCode::CANCELLED)) break;
        trouble_ = result.error();
        tell_trouble("election_failed", *trouble_);
        // A cluster of one has nobody to wait for: what failed is its own disk.
        if (is_single()) break;
        back_off();
        if (result.is(ErrorCode::UNCLEAN_ELECTION_REJECTED)) back_off_unclean(*trouble_);
        // Somebody whose copies are whole goes first.
        if (result.is(ErrorCode::DAMAGED) || result.is(ErrorCode::DIVERGENT_COMMITTED))
            not_before_ = env_.clock.now() + ELECTION_TIMEOUT * 2;
        result = {};
    }
    caretaker_.close(fiber);
    fibers_.cancel_and_join(fiber);
    follower_.close(fiber);
    return result;
}

void ReplicaNode::stop() {
    stopping_ = true;
    election_.wake();
    changed_.notify_all();
}

Result<void> ReplicaNode::wait_to_stand(Fiber& fiber) {
    role_ = Role::FOLLOWER;
    const Duration jitter = microseconds(jitter_.between(0, ELECTION_JITTER_MAX.to_us()));
    while (!stopping_) {
        const MonoTime due = stand_now_ ? env_.clock.now() : stand_at() + jitter;
        if (due <= env_.clock.now()) return {};
        const Result<void> waited = changed_.wait(fiber, due);
        if (waited.is(ErrorCode::CANCELLED)) return waited;
    }
    return {};
}

MonoTime ReplicaNode::stand_at() const {
    const MonoTime free_at = std::max({follower_lease_.expires_at(), not_before_, unclean_until_});
    return free_at + ELECTION_DELAY_PER_RANK * static_cast<std::int64_t>(rank_of(options_.self));
}

std::size_t ReplicaNode::rank_of(NodeId node) const {
    const auto found = std::find(options_.priority.begin(), options_.priority.end(), node);
    return static_cast<std::size_t>(found - options_.priority.begin());
}

void ReplicaNode::back_off() {
    not_before_ = env_.clock.now() + microseconds(jitter_.between(0, ELECTION_BACKOFF.to_us()));
    role_ = Role::FOLLOWER;
}

void ReplicaNode::back_off_unclean(const Error& obstacle) {
    const bool is_same = unclean_obstacle_ == obstacle.detail;
    unclean_obstacle_ = obstacle.detail;
    unclean_backoff_ =
        is_same ? std::min(unclean_backoff_ * 2, UNCLEAN_BACKOFF_MAX) : UNCLEAN_BACKOFF_MIN;
    unclean_until_ = env_.clock.now() + unclean_backoff_;
    MORTAR_SOMETIMES(unclean_backoff_ == UNCLEAN_BACKOFF_MAX, "node: waits long after UNCLEAN");
}

void ReplicaNode::end_unclean_backoff() {
    unclean_obstacle_.clear();
    unclean_until_ = {};
    changed_.notify_all();
}

void ReplicaNode::tell_trouble(std::string_view event, const Error& trouble) {
    const MonoTime now = env_.clock.now();
    std::string reason = trouble.to_string();
    const Duration apart = reason == told_trouble_ ? TROUBLE_REPEAT : TROUBLE_SPACING;
    if (!told_trouble_.empty() && now < trouble_told_at_ + apart) return;
    trouble_told_at_ = now;
    told_trouble_ = std::move(reason);
    env_.log.warn(event,
                  {{"leader_epoch", number(highest_seen_.value)}, {"reason", told_trouble_}});
}

Result<void> ReplicaNode::stand(Fiber& fiber) {
    stand_now_ = lost_ = false;
    role_ = Role::CANDIDATE;
    if (const Result<void> open = election_.check_open(); !open.ok()) {
        MORTAR_SOMETIMES(true, "node: does not stand while a log is closed");
        trouble_ = open.error();
        back_off();
        return {};
    }
    if (!is_single()) {
        const LeaderEpoch candidate_epoch = std::max(highest_seen_, store_.promised_epoch()).next();
        // Nobody can even be asked.
        if (candidate_epoch.value > LEADER_EPOCH_MAX)
            return make_error(ErrorCode::LIMIT_REACHED, "all leader epochs are used up");
        const bool has_votes = MORTAR_TRY(election_.pre_vote(fiber, candidate_epoch));
        if (!has_votes) {
            back_off();
            if (hears_leader()) return {};
            trouble_ = make_error(ErrorCode::ELECTION_TIMEOUT, election_.missing_votes());
            tell_trouble("election_not_begun", *trouble_);
            return {};
        }
        // A leader may have been heard while the votes came in.
        if (!may_vote() || stopping_) return {};
    }
    const LeaderEpoch leader_epoch = std::max(highest_seen_, store_.promised_epoch()).next();
    note_epoch(leader_epoch);
    follower_.end();
    known_leader_.reset();
    Result<ElectionWon> won = election_.run(
        fiber, leader_epoch, [this] { return is_single() || may_vote(); },
        [&] { start_heartbeats(leader_epoch); });
    if (!won.ok()) {
        heartbeats_.cancel_and_join(fiber);
        leader_lease_.reset();
        return std::move(won).error();
    }
    trouble_.reset();
    unclean_obstacle_.clear();
    unclean_until_ = {};
    return lead(fiber, std::move(won).value());
}

// --- a term

Result<void> ReplicaNode::lead(Fiber& fiber, ElectionWon won) {
    const LeaderEpoch leader_epoch = won.leader_epoch;
    role_ = Role::LEADER;
    lost_ = wants_election_ = false;
    aside_.clear();
    hands_over_ = false;
    Term term;
    term.leader_epoch = leader_epoch;
    term.base = won.base;
    for (const NodeId node : options_.nodes) {
        if (node != options_.self) term.followers.push_back(node);
    }
    won_ = std::move(won);
    leader_ = std::make_unique<Leader>(env_, peers_, logs_, std::move(term),
                                       [this](NodeId node) { send_install(node); });
    leader_->start();
    for (const NodeId node : leader_->term().followers)
        send_install(node);

    Result<void> served = serve_term(fiber, leader_epoch);

    in_office_ = false;
    office_.leave_office();
    office_.close_office(fiber);
    heartbeats_.cancel_and_join(fiber);
    leader_->close(fiber);
    leader_.reset();
    won_.reset();
    leader_lease_.reset();
    role_ = Role::FOLLOWER;
    env_.log.info("leader_left", {{"leader_epoch", number(leader_epoch.value)}});
    changed_.notify_all();
    return served;
}

Result<void> ReplicaNode::serve_term(Fiber& fiber, LeaderEpoch leader_epoch) {
    MORTAR_TRY(wait_for_majority(fiber));
    if (lost_ || stopping_) return {};
    leader_->take_office();
    MORTAR_TRY(office_.take_office(fiber, leader_epoch));
    if (lost_) return {};
    in_office_ = true;
    overdue_.clear();
    known_leader_ = KnownLeader{options_.self, leader_epoch, true};
    env_.log.info("leader", {{"leader_epoch", number(leader_epoch.value)}});
    // Clients wait at the other nodes to hear where to go.
    send_heartbeat(leader_epoch);
    changed_.notify_all();
    while (!lost_ && !stopping_) {
        // Also what was asked for before this node was in office.
        if (wants_election_) {
            stand_anew();
        } else if (std::exchange(hands_over_, false)) {
            if (const auto successor = preferred_successor(true))
                MORTAR_TRY(hand_over(fiber, successor));
        } else {
            MORTAR_TRY(changed_.wait(fiber));
        }
    }
    if (stopping_ && !lost_ && !is_single())
        MORTAR_TRY(hand_over(fiber, preferred_successor(false)));
    return {};
}

Result<void> ReplicaNode::wait_for_majority(Fiber& fiber) {
    MonoTime patience = env_.clock.now() + INSTALL_PATIENCE;
    while (!lost_ && !stopping_) {
        const MonoTime now = env_.clock.now();
        const bool is_held = leader_lease_->is_held(now);
        if (leader_->is_majority_installed() && is_held) return {};
        // A follower may have much to fetch; as long as a majority answers it is waited for.
        if (is_held) patience = now + INSTALL_PATIENCE;
        if (now >= patience) {
            return make_error(ErrorCode::ELECTION_TIMEOUT,
                              "no majority of nodes answered the new leader");
        }
        Result<void> waited = changed_.wait(fiber, now + HEARTBEAT_INTERVAL);
        if (waited.is(ErrorCode::CANCELLED)) return waited;
    }
    return {};
}

void ReplicaNode::start_heartbeats(LeaderEpoch leader_epoch) {
    std::vector<NodeId> others;
    for (const NodeId node : options_.nodes) {
        if (node != options_.self) others.push_back(node);
    }
    leader_lease_.emplace(leader_epoch, others);
    if (is_single()) return;
    heartbeats_.spawn("replica.heartbeat",
                      [this, leader_epoch](Fiber& fiber) { run_heartbeats(fiber, leader_epoch); });
}

void ReplicaNode::run_heartbeats(Fiber& fiber, LeaderEpoch leader_epoch) {
    while (!leader_lease_->is_released()) {
        const MonoTime now = env_.clock.now();
        send_heartbeat(leader_epoch);
        if (leader_ != nullptr) leader_->on_tick();
        if (in_office_ && preferred_successor(true).has_value()) {
            hands_over_ = true;
            changed_.notify_all();
        }
        if (!env_.scheduler.sleep_until(fiber, now + HEARTBEAT_INTERVAL).ok()) return;
    }
}

void ReplicaNode::send_heartbeat(LeaderEpoch leader_epoch) {
    if (is_single() || leader_lease_->is_released()) return;
    peer::Heartbeat heartbeat;
    heartbeat.leader_epoch = leader_epoch;
    heartbeat.sent_at = leader_lease_->on_sending(env_.clock.now());
    heartbeat.is_in_office = in_office_;
    heartbeat.metadata_commit_seq = logs_.find(METADATA_LOG)->commit_seq();
    for (const NodeId node : options_.nodes) {
        if (node == options_.self) continue;
        if (peer::PeerChannel* channel = peers_->channel(node, peer::Lane::CONTROL))
            channel->send_message(heartbeat);
    }
}

// must_wait: only one that is preferred to this node, and was in sync for long. Else: the best that is in sync.
std::optional<NodeId> ReplicaNode::preferred_successor(bool must_wait) const {
    std::optional<NodeId> best;
    const MonoTime now = env_.clock.now();
    for (const FollowerStatus& follower : leader_->followers()) {
        if (!follower.is_installed || !follower.is_in_sync) continue;
        const bool is_preferred = rank_of(follower.node_id) < rank_of(options_.self);
        if (must_wait && (!is_preferred || now < follower.in_sync_since + PREFERRED_LEADER_WAIT))
            continue;
        if (!best || rank_of(follower.node_id) < rank_of(*best)) best = follower.node_id;
    }
    return best;
}

// New requests are refused, those under way end, the successor has everything: then the promises are void.
Result<void> ReplicaNode::hand_over(Fiber& fiber, std::optional<NodeId> successor) {
    in_office_ = false;
    known_leader_.reset();
    election_seen_at_ = env_.clock.now();
    const MonoTime deadline = deadline_after(env_.clock, HAND_OVER_TIMEOUT);
    while (successor && !lost_ && (office_.has_pending() || !leader_->has_all(*successor))) {
        const Result<void> waited = changed_.wait(fiber, deadline);
        if (waited.is(ErrorCode::CANCELLED)) return waited;
        if (!waited.ok()) break;
    }
    if (lost_) return {};
    office_.leave_office();
    release_lease(successor);
    MORTAR_SOMETIMES(successor.has_value(), "node: handed over");
    not_before_ = env_.clock.now() + LEASE;  // the successor goes first
    step_down("handed over");
    return {};
}

// The promises not to vote are void from here on.
void ReplicaNode::release_lease(std::optional<NodeId> successor) {
    leader_lease_->release();
    peer::Release release;
    release.leader_epoch = leader_->term().leader_epoch;
    if (successor) release.successor = *successor;
    for (const NodeId node : leader_->term().followers) {
        if (peer::PeerChannel* channel = peers_->channel(node, peer::Lane::CONTROL))
            channel->send_message(release);
    }
}

// For a node that can only follow in a higher epoch.
void ReplicaNode::stand_anew() {
    MORTAR_SOMETIMES(true, "node: an election for a node that cannot follow in this epoch");
    in_office_ = false;
    release_lease(options_.self);
    step_down("a node can only be taken in by a new election");
    stand_now_ = true;
}

void ReplicaNode::step_down(std::string why) {
    if (role_ != Role::LEADER || lost_) return;
    lost_ = true;
    in_office_ = false;
    election_seen_at_ = env_.clock.now();
    if (known_leader_ && known_leader_->node == options_.self) known_leader_.reset();
    heartbeats_.cancel_all();
    office_.leave_office();
    env_.log.warn(
        "leader_steps_down",
        {{"leader_epoch", number(leader_->term().leader_epoch.value)}, {"reason", std::move(why)}});
    changed_.notify_all();
}

void ReplicaNode::send_install(NodeId node) {
    peer::PeerChannel* channel = peers_->channel(node, peer::Lane::BULK);
    if (channel == nullptr || leader_ == nullptr || lost_) return;
    peer::Install install;
    install.leader_epoch = won_->leader_epoch;
    install.cluster_id = won_->cluster_id;
    install.metadata_commit_seq =
        std::max(won_->metadata_commit_seq, logs_.find(METADATA_LOG)->commit_seq());
    install.heard = won_->heard;
    for (const auto& [key, end] : won_->base)
        install.base.push_back({key, end});
    channel->send_message(install);
}

// --- what clients are told

bool ReplicaNode::hears_leader() const {
    if (!known_leader_ || !known_leader_->is_in_office) return false;
    return in_office_ || !follower_lease_.may_vote(env_.clock.now());
}

void ReplicaNode::await_leader(Fiber& fiber, MonoTime deadline) {
    // One that stops is not told any more.
    while (!stopping_ && !in_office_ && !hears_leader()) {
        const MonoTime lost_at = std::max(follower_lease_.expires_at(), election_seen_at_);
        const MonoTime until = std::min(deadline, lost_at + LEADER_HOPE);
        if (until <= env_.clock.now()) return;
        if (changed_.wait(fiber, until).is(ErrorCode::CANCELLED)) return;
    }
}

Result<void> ReplicaNode::check_leading() const {
    if (in_office_) return {};
    const LeaderEpoch leader_epoch = std::max(store_.promised_epoch(), highest_seen_);
    const ReplicaStatus now = status();
    if (!now.leader || now.leader_address.empty() || *now.leader == options_.self) {
        return make_error(ErrorCode::STALE_LEADER_EPOCH,
                          "leader unknown epoch=" + number(leader_epoch.value));
    }
    return make_error(ErrorCode::STALE_LEADER_EPOCH,
                      "leader node=" + number(now.leader->value) + " addr=" + now.leader_address +
                          " epoch=" + number(known_leader_->leader_epoch.value));
}

Result<void> ReplicaNode::check_lease() const {
    MORTAR_TRY(check_leading());
    if (leader_lease_->is_held(env_.clock.now())) return {};
    return make_error(ErrorCode::LEASE_EXPIRED,
                      "no majority of nodes answers this leader: find the leader again");
}

Result<void> ReplicaNode::check_publish() const {
    MORTAR_TRY(check_leading());
    if (!leader_->is_majority_installed()) {
        return make_error(ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH,
                          "no follower can confirm: start or repair one, then retry");
    }
    return check_lease();
}

Result<void> ReplicaNode::check_settle() const {
    MORTAR_TRY(check_lease());
    if (is_read_only()) return quorum_lost();
    return {};
}

// A log that cannot commit refuses for itself alone. While the node is read-only every other log takes one record and no
// more: whether it commits tells whether a majority confirms again.
Result<void> ReplicaNode::check_append(const ReplicatedLog& log) const {
    if (is_single()) return {};
    MORTAR_TRY(check_leading());
    if (!leader_->can_commit(log)) {
        return make_error(ErrorCode::QUORUM_LOST,
                          "too few whole copies of this partition are there: start or repair the "
                          "other nodes, then retry");
    }
    const bool waits = log.commit_seq() < log.end().last;
    if (is_overdue(log) || (waits && is_read_only())) return quorum_lost();
    return {};
}

void ReplicaNode::on_quorum_timeout(const ReplicatedLog& log) {
    // A retry that waits for the same record tells nothing new.
    if (is_single() || is_overdue(log)) return;
    std::erase_if(overdue_, [this](const auto& each) {
        const ReplicatedLog* other = logs_.find(each.first);
        return other == nullptr || !is_overdue(*other);
    });
    overdue_[log.key()] = log.commit_seq();
    read_only_since_ = env_.clock.now();
}

bool ReplicaNode::is_overdue(const ReplicatedLog& log) const {
    const auto found = overdue_.find(log.key());
    return found != overdue_.end() && log.commit_seq() <= found->second;
}

// A PUB waited too long, and nothing was committed since. One that only lacks copies of its own log says nothing of others.
bool ReplicaNode::is_read_only() const {
    if (leader_ == nullptr || leader_->last_commit_at() > read_only_since_) return false;
    return std::any_of(overdue_.begin(), overdue_.end(), [this](const auto& each) {
        const ReplicatedLog* log = logs_.find(each.first);
        return log != nullptr && is_overdue(*log) && leader_->can_commit(*log);
    });
}

ReplicaStatus ReplicaNode::status() const {
    ReplicaStatus status;
    status.role = role_;
    status.is_in_office = in_office_;
    status.leader_epoch = std::max(store_.promised_epoch(), highest_seen_);
    status.is_blank = store_.is_blank();
    status.trouble = trouble_;
    if (leader_ != nullptr) {
        status.leader_epoch = leader_->term().leader_epoch;
        status.followers = leader_->followers();
    }
    if (leader_lease_) status.lease_until = leader_lease_->held_until();
    if (hears_leader()) status.leader = known_leader_->node;
    if (status.leader && *status.leader != options_.self) {
        if (const peer::Identity* identity = peers_->identity_of(*status.leader)) {
            status.leader_address = identity->listen_client;
        }
        status.quorum_state = QuorumState::HEALTHY;
    }
    if (in_office_) {
        const bool is_soft =
            std::any_of(status.followers.begin(), status.followers.end(),
                        [](const FollowerStatus& follower) { return !follower.is_in_sync; });
        const bool is_writable = check_publish().ok() && !is_read_only();
        status.quorum_state = !is_writable ? QuorumState::READ_ONLY
                              : is_soft    ? QuorumState::SOFT
                                           : QuorumState::HEALTHY;
    }
    return status;
}

// --- logs of this node

void ReplicaNode::on_appended(ReplicatedLog& log) {
    if (leader_ != nullptr) leader_->on_appended(log);
}

void ReplicaNode::on_flushed(ReplicatedLog& log) {
    catch_up_.on_flushed();
    if (leader_ != nullptr) {
        leader_->on_flushed(log);
        if (!in_office_) changed_.notify_all();
    } else {
        follower_.on_flushed(log);
    }
}

void ReplicaNode::on_state_changed(ReplicatedLog& log) {
    catch_up_.on_flushed();
    if (log.faulty_from()) caretaker_.on_damaged(log.key());
    // A leader whose disk fails cannot confirm for itself, and reads what is on disk again.
    if (log.is_closed() && !is_single()) step_down("a log of this node failed");
    if (leader_ == nullptr) {
        if (follower_.follows(store_.promised_epoch())) check_base(log);
        follower_.on_available(log);
    } else if (!log.is_closed()) {
        leader_->on_opened(log);
    }
}

void ReplicaNode::on_opened(ReplicatedLog& log) {
    if (log.faulty_from()) caretaker_.on_damaged(log.key());
    if (leader_ != nullptr) {
        leader_->on_opened(log);
    } else {
        if (follower_.follows(store_.promised_epoch())) check_base(log);
        follower_.on_available(log);
    }
}

void ReplicaNode::on_retired(PartitionKey key) {
    caretaker_.on_retired(key);
    aside_.erase(key);
    overdue_.erase(key);
    if (leader_ != nullptr) leader_->on_retired(key);
}

}  // namespace mortar
