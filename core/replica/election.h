// election: the candidate's side: asks for votes, asks for promises, takes of each log the best copy, installs itself.
// Shape:    pre_vote promises nothing and costs nothing. run: own promise on disk, PREPARE, a majority of promises, the choice
//           log by log (choice.h), this node's logs made equal to what was chosen, all of it durable, installed_epoch on disk.
//           What comes then (INSTALL, office) is node.h's.
// Owns:     the answers of the round under way.
// Errors:   run: ELECTION_TIMEOUT (too few answers), UNCLEAN_ELECTION_REJECTED (the copies that answered may not be the best),
//           STALE_LEADER_EPOCH (a higher one is promised), LOG_CLOSED (a log of this node failed meanwhile), those of CatchUp and PromiseStore, CANCELLED.
// Suspends: pre_vote, run.
// Durable:  when run returns OK, this node's copy of every log is the chosen one, and says so.
// Source:   design 4 (election, damage, blank nodes).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/mutex.h"
#include "core/replica/caretaker.h"
#include "core/replica/catch_up.h"
#include "core/replica/choice.h"
#include "core/replica/peer_channel.h"
#include "core/replica/promise.h"

namespace mortar {

inline constexpr Duration PRE_VOTE_TIMEOUT = milliseconds(300);
inline constexpr Duration ELECTION_TIMEOUT = milliseconds(1000);
inline constexpr std::size_t DURABLE_FIBERS_MAX = 8;  // logs that are made durable at one time

struct ReplicaOptions {
    NodeId self;
    std::vector<NodeId> nodes;         // all configured, ascending; one or three
    std::vector<NodeId> priority;      // of who leads, all of nodes
    peer::ClusterId new_cluster_id{};  // should this node be the first to lead
    std::uint64_t incarnation = 0;
    CareOptions care;
    // This node belongs to that cluster: for handshakes from now on.
    std::function<void(const peer::ClusterId&)> on_joined;
};

// What an election is told of this node and its logs, once leader_epoch is promised and the logs do not grow.
peer::PromiseGiven own_promise(ReplicatedLogs& logs, const PromiseStore& store,
                               LeaderEpoch leader_epoch);
// Checkpoints of all logs, several at a time; the first error.
Result<void> make_all_durable(Fiber& fiber, Env& env, ReplicatedLogs& logs);

struct ElectionWon {
    LeaderEpoch leader_epoch;
    peer::ClusterId cluster_id{};
    Sequence metadata_commit_seq;
    std::vector<std::uint64_t> heard;     // incarnations that were connected when it began
    std::map<PartitionKey, LogEnd> base;  // of all logs that are not empty
};

class Election {
  public:
    // peers: none in a cluster of one. moving: held by who makes logs equal to a copy.
    Election(Env& env, const ReplicaOptions& options, PromiseStore& store, ReplicatedLogs& logs,
             peer::PeerRoster* peers, CatchUp& catch_up, Caretaker& caretaker, Mutex& moving);

    // LOG_CLOSED: this node cannot lead now, and does not stand.
    Result<void> check_open() const;
    Result<bool> pre_vote(Fiber& fiber, LeaderEpoch candidate_epoch);
    // After one that had too few votes, for the operator: whose are missing, and why.
    std::string missing_votes() const;
    // may_vote: this node for itself. on_majority: promises came in; from here on the followers must hear this node as a
    // leader.
    Result<ElectionWon> run(Fiber& fiber, LeaderEpoch leader_epoch,
                            const std::function<bool()>& may_vote,
                            const std::function<void()>& on_majority);

    void on_pre_vote_reply(NodeId node, const peer::PreVoteReply& reply);
    void on_promise(NodeId node, peer::PromiseGiven promise);
    void on_refused(NodeId node, LeaderEpoch promised_epoch);
    // Another candidate was promised more, or the node stops: the wait ends.
    void wake() { changed_.notify_all(); }

  private:
    template <class Message>
    void ask_all(const Message& message);
    Result<Choice> collect(Fiber& fiber, LeaderEpoch leader_epoch);
    Choice choose() const;
    Result<void> still(LeaderEpoch leader_epoch) const;
    Result<void> take_copies(Fiber& fiber, const Choice& choice, ElectionWon& won);
    Result<void> take_copy(Fiber& fiber, LeaderEpoch leader_epoch, PartitionKey key,
                           const Choice& choice);
    Result<void> keep_own_copy(const LogChoice& chosen) const;

    Env& env_;
    const ReplicaOptions& options_;
    PromiseStore& store_;
    ReplicatedLogs& logs_;
    peer::PeerRoster* peers_;
    CatchUp& catch_up_;
    Caretaker& caretaker_;
    Mutex& moving_;
    LeaderEpoch asked_epoch_;
    std::map<NodeId, peer::PreVoteReply> votes_;
    std::map<NodeId, peer::PromiseGiven> promises_;
    bool is_refused_ = false;
    Event changed_;
};

}  // namespace mortar
