#include "core/replica/election.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/fiber/group.h"

namespace mortar {

namespace {

std::vector<peer::CopyReport> report_copies(ReplicatedLogs& logs, const PromiseStore& store) {
    std::vector<peer::CopyReport> reports;
    for (const PartitionKey key : logs.keys()) {
        const ReplicatedLog* log = logs.find(key);
        if (log == nullptr) continue;
        LogMark mark = store.mark_of(key);
        if (const std::optional<Sequence> faulty_from = log->faulty_from()) {
            mark.faulty_from = mark.faulty_from == Sequence(0)
                                   ? *faulty_from
                                   : std::min(mark.faulty_from, *faulty_from);
        }
        // What stood behind its end, or behind its last sync, cannot be known now.
        if (log->is_closed() || log->is_uncertain()) mark.is_uncertain = true;
        peer::CopyReport report;
        report.log = key;
        report.end = log->end();
        report.commit_seq = log->commit_seq();
        report.state = copy_state(mark, report.end.last);
        if (peer::is_faulty(report.state)) report.faulty_from = mark.faulty_from;
        const bool is_empty =
            report.end.last == Sequence(0) && report.state == peer::CopyState::INTACT;
        if (!is_empty) reports.push_back(report);
    }
    return reports;
}

}  // namespace

peer::PromiseGiven own_promise(ReplicatedLogs& logs, const PromiseStore& store,
                               LeaderEpoch leader_epoch) {
    peer::PromiseGiven promise;
    promise.leader_epoch = leader_epoch;
    promise.installed_epoch = store.installed_epoch();
    promise.cluster_id = store.cluster_id();
    promise.is_blank = store.is_blank();
    promise.copies = report_copies(logs, store);
    return promise;
}

Result<void> make_all_durable(Fiber& fiber, Env& env, ReplicatedLogs& logs) {
    struct Work {
        std::vector<PartitionKey> keys;
        std::size_t next = 0;
        Result<void> result;
    };
    Work work{logs.keys(), 0, {}};
    Group helpers(env.scheduler);
    for (std::size_t i = 0; i < std::min(DURABLE_FIBERS_MAX, work.keys.size()); ++i) {
        helpers.spawn("replica.durable", [&work, &logs](Fiber& helper) {
            while (work.result.ok() && work.next < work.keys.size()) {
                ReplicatedLog* log = logs.find(work.keys[work.next++]);
                if (log == nullptr || log->is_closed() || log->faulty_from()) continue;
                Result<void> made = log->make_durable(helper);
                if (!made.ok() && work.result.ok()) work.result = std::move(made);
            }
        });
    }
    const Result<void> joined = helpers.join(fiber);
    if (!joined.ok()) {
        helpers.cancel_and_join(fiber);
        return joined;
    }
    return std::move(work.result);
}

Election::Election(Env& env, const ReplicaOptions& options, PromiseStore& store,
                   ReplicatedLogs& logs, peer::PeerRoster* peers, CatchUp& catch_up,
                   Caretaker& caretaker, Mutex& moving)
    : env_(env),
      options_(options),
      store_(store),
      logs_(logs),
      peers_(peers),
      catch_up_(catch_up),
      caretaker_(caretaker),
      moving_(moving) {}

template <class Message>
void Election::ask_all(const Message& message) {
    for (const NodeId node : options_.nodes) {
        if (node == options_.self) continue;
        if (peer::PeerChannel* channel = peers_->channel(node, peer::Lane::CONTROL))
            channel->send_message(message);
    }
}

Result<bool> Election::pre_vote(Fiber& fiber, LeaderEpoch candidate_epoch) {
    asked_epoch_ = candidate_epoch;
    votes_.clear();
    ask_all(peer::PreVote{candidate_epoch});
    const MonoTime deadline = deadline_after(env_.clock, PRE_VOTE_TIMEOUT);
    while (true) {
        std::size_t yes_count = store_.is_blank() ? 0 : 1;
        std::size_t blank_count = store_.is_blank() ? 1 : 0;
        for (const auto& [node, vote] : votes_) {
            if (vote.is_yes && !vote.is_blank) ++yes_count;
            if (vote.is_yes && vote.is_blank) ++blank_count;
        }
        if (yes_count >= majority_of(options_.nodes.size())) return true;
        // The first start of all, or one that was interrupted.
        if (yes_count + blank_count == options_.nodes.size()) return true;
        const Result<void> waited = changed_.wait(fiber, deadline);
        if (waited.is(ErrorCode::TIMED_OUT)) return false;
        if (!waited.ok()) return waited.error();
    }
}

std::string Election::missing_votes() const {
    std::string silent;
    std::string others;
    bool is_all_blank = store_.is_blank();
    const auto add = [](std::string& text, NodeId node, std::string_view what) {
        text += fmt::format("{}node {}{}", text.empty() ? "" : ", ", node.value, what);
    };
    if (store_.is_blank()) add(others, options_.self, " is blank");
    for (const NodeId node : options_.nodes) {
        if (node == options_.self) continue;
        const auto vote = votes_.find(node);
        if (vote == votes_.end()) {
            add(silent, node, " does not answer");
            continue;
        }
        is_all_blank = is_all_blank && vote->second.is_blank;
        if (vote->second.is_blank) add(others, node, " is blank");
        if (!vote->second.is_yes)
            add(others, node, " votes for nobody: it hears a leader, or started a moment ago");
    }
    if (is_all_blank && !silent.empty())
        return fmt::format("the first start needs all {} nodes: {}", options_.nodes.size(), silent);
    return fmt::format("too few nodes vote: {}{}{}", silent,
                       silent.empty() || others.empty() ? "" : ", ", others);
}

Result<ElectionWon> Election::run(Fiber& fiber, LeaderEpoch leader_epoch,
                                  const std::function<bool()>& may_vote,
                                  const std::function<void()>& on_majority) {
    ElectionWon won;
    won.leader_epoch = leader_epoch;
    won.heard.push_back(options_.incarnation);
    for (const NodeId node : options_.nodes) {
        if (node == options_.self || peers_->channel(node, peer::Lane::CONTROL) == nullptr)
            continue;
        if (const peer::Identity* identity = peers_->identity_of(node))
            won.heard.push_back(identity->incarnation);
    }
    asked_epoch_ = leader_epoch;
    promises_.clear();
    is_refused_ = false;
    MORTAR_TRY(store_.promise(fiber, leader_epoch, options_.self, may_vote));
    // What followed an older leader stops, and must have stopped: a cut that it had begun would take away what is chosen now.
    catch_up_.on_promised();
    const Mutex::Guard moving =
        MORTAR_TRY(moving_.lock(fiber, deadline_after(env_.clock, ELECTION_TIMEOUT)));
    MORTAR_TRY(catch_up_.settle(fiber));
    MORTAR_TRY(still(leader_epoch));
    promises_[options_.self] = own_promise(logs_, store_, leader_epoch);
    ask_all(peer::Prepare{leader_epoch});

    const Choice choice = MORTAR_TRY(collect(fiber, leader_epoch));
    MORTAR_TRY(still(leader_epoch));
    on_majority();
    won.cluster_id = choice.cluster_id;
    if (won.cluster_id == peer::ClusterId{}) won.cluster_id = options_.new_cluster_id;
    MORTAR_TRY(take_copies(fiber, choice, won));
    MORTAR_TRY(make_all_durable(fiber, env_, logs_));
    MORTAR_TRY(still(leader_epoch));
    MORTAR_TRY(store_.install(fiber, leader_epoch, won.cluster_id));
    if (options_.on_joined) options_.on_joined(won.cluster_id);
    for (const PartitionKey key : logs_.keys()) {
        const ReplicatedLog* log = logs_.find(key);
        if (log != nullptr && log->end().last > Sequence(0)) won.base[key] = log->end();
    }
    return won;
}

Result<Choice> Election::collect(Fiber& fiber, LeaderEpoch leader_epoch) {
    const MonoTime deadline = deadline_after(env_.clock, ELECTION_TIMEOUT);
    while (true) {
        MORTAR_TRY(still(leader_epoch));
        Choice choice = choose();
        const bool is_settled =
            choice.outcome == ChoiceOutcome::CHOSEN || choice.outcome == ChoiceOutcome::FIRST_START;
        if (is_settled) return choice;
        const bool all_answered = promises_.size() == options_.nodes.size();
        Result<void> waited;
        if (!all_answered) waited = changed_.wait(fiber, deadline);
        if (waited.is(ErrorCode::CANCELLED)) return waited.error();
        if (!all_answered && waited.ok()) continue;
        MORTAR_SOMETIMES(choice.outcome == ChoiceOutcome::UNCLEAN, "election: unclean, rejected");
        return make_error(choice.outcome == ChoiceOutcome::UNCLEAN
                              ? ErrorCode::UNCLEAN_ELECTION_REJECTED
                              : ErrorCode::ELECTION_TIMEOUT,
                          choice.reason);
    }
}

Choice Election::choose() const {
    std::vector<NodePromise> promises;
    bool is_all_empty = promises_.size() == options_.nodes.size();
    for (const auto& [node, given] : promises_) {
        promises.push_back({node, given});
        is_all_empty = is_all_empty && given.copies.empty();
    }
    Choice choice = choose_copies(promises, options_.nodes, options_.self);
    if (choice.outcome == ChoiceOutcome::CHOSEN || !is_all_empty) return choice;
    // The first start was interrupted: some have written replica/state, nobody has a record. Nothing can be lost; the
    // cluster that they belong to is the one that goes on.
    choice.outcome = ChoiceOutcome::FIRST_START;
    for (const auto& [node, given] : promises_) {
        if (!given.is_blank) choice.cluster_id = given.cluster_id;
    }
    MORTAR_SOMETIMES(choice.cluster_id != peer::ClusterId{}, "election: first start again");
    return choice;
}

// Whatever was read before a suspension counts only while this holds.
Result<void> Election::still(LeaderEpoch leader_epoch) const {
    if (store_.promised_epoch() == leader_epoch && !is_refused_) return {};
    return make_error(
        ErrorCode::STALE_LEADER_EPOCH,
        "a leader_epoch above " + std::to_string(leader_epoch.value) + " is promised");
}

Result<void> Election::take_copies(Fiber& fiber, const Choice& choice, ElectionWon& won) {
    MORTAR_TRY(take_copy(fiber, won.leader_epoch, METADATA_LOG, choice));
    std::set<PartitionKey> keys;
    for (const auto& [node, given] : promises_) {
        for (const peer::CopyReport& copy : given.copies) {
            keys.insert(copy.log);
            if (copy.log == METADATA_LOG)
                won.metadata_commit_seq = std::max(won.metadata_commit_seq, copy.commit_seq);
        }
    }
    // Whoever has a record of a topic knew its creation committed. The rest of the metadata is committed with the office.
    logs_.find(METADATA_LOG)->advance_commit(won.metadata_commit_seq);
    MORTAR_TRY(logs_.wait_for_catalog(fiber));
    keys.erase(METADATA_LOG);
    for (const PartitionKey key : keys) {
        MORTAR_TRY(still(won.leader_epoch));
        if (logs_.find(key) == nullptr) continue;  // of a topic that was deleted
        MORTAR_TRY(take_copy(fiber, won.leader_epoch, key, choice));
    }
    return {};
}

Result<void> Election::take_copy(Fiber& fiber, LeaderEpoch leader_epoch, PartitionKey key,
                                 const Choice& choice) {
    const auto chosen = std::find_if(choice.logs.begin(), choice.logs.end(),
                                     [key](const LogChoice& each) { return each.log == key; });
    if (chosen == choice.logs.end()) return {};
    if (chosen->node_id == options_.self) return keep_own_copy(*chosen);
    const CopySource source{chosen->node_id, leader_epoch, chosen->end};
    // Whoever leads has every log whole: the followers go by its copies.
    const Result<void> made = key == METADATA_LOG ? catch_up_.reconcile(fiber, key, source)
                                                  : caretaker_.make_level(fiber, key, source);
    MORTAR_SOMETIMES(made.ok(), "election: another node's copy was taken");
    return made;
}

// Of a closed log nobody knows what is on disk: end() counts records that were never written, or more than were synced.
// Followers would install that end and confirm it, and it would be committed without this node's copy.
Result<void> Election::check_open() const {
    // Alone there is nobody else to lead, and nobody who installs its end.
    if (options_.nodes.size() == 1) return {};
    for (const PartitionKey key : logs_.keys()) {
        const ReplicatedLog* log = logs_.find(key);
        if (log != nullptr && log->is_closed())
            return make_error(ErrorCode::LOG_CLOSED, log_name(key) + " is not open here");
    }
    return {};
}

// Closed, or opened again with another end, it is not the copy that was chosen.
Result<void> Election::keep_own_copy(const LogChoice& chosen) const {
    if (options_.nodes.size() == 1) return {};
    const ReplicatedLog* log = logs_.find(chosen.log);
    if (log == nullptr || (!log->is_closed() && log->end() == chosen.end)) return {};
    MORTAR_SOMETIMES(true, "election: the chosen copy failed");
    return make_error(ErrorCode::LOG_CLOSED,
                      log_name(chosen.log) + " was chosen here, but failed: it is read again");
}

void Election::on_pre_vote_reply(NodeId node, const peer::PreVoteReply& reply) {
    if (reply.candidate_epoch != asked_epoch_) return;
    votes_[node] = reply;
    changed_.notify_all();
}

void Election::on_promise(NodeId node, peer::PromiseGiven promise) {
    if (promise.leader_epoch != asked_epoch_) return;
    promises_[node] = std::move(promise);
    changed_.notify_all();
}

void Election::on_refused(NodeId, LeaderEpoch promised_epoch) {
    if (promised_epoch > asked_epoch_) is_refused_ = true;
    changed_.notify_all();
}

}  // namespace mortar
