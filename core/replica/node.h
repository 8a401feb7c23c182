// node: the part that a node plays in its cluster: follower, candidate or leader; what it promises, whom it follows, when it
// stands.
// Shape:    one fiber (run) goes round: wait outside any lease, pre-vote, election, term. Answers to other nodes are given in
//           the fibers of their channels. A cluster of one node goes the same way with a majority of one.
// Owns:     election, leader, follower and leases; its fibers, ended before run returns. PromiseStore, ReplicatedLogs, the
//           roster and the Office outlive it.
// Errors:   check_*: what a client is told: STALE_LEADER_EPOCH with the hint of contract R3, LEASE_EXPIRED,
//           IN_SYNC_REPLICAS_NOT_ENOUGH, QUORUM_LOST.
// Suspends: run, await_leader, on_frame.
// Durable:  every promise before its answer leaves; installed_epoch before INSTALLED leaves.
// Invariant: at most one node is in office in a leader_epoch; nothing is acknowledged by a node that is not.
// Source:   design 4, contract R3, R4, 8 (levels, timing).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/fiber/mutex.h"
#include "core/replica/caretaker.h"
#include "core/replica/catch_up.h"
#include "core/replica/election.h"
#include "core/replica/follower.h"
#include "core/replica/leader.h"
#include "core/replica/lease.h"
#include "core/replica/peer_channel.h"
#include "core/replica/promise.h"

namespace mortar {

// A preferred leader that came back takes over after it was in sync for so long.
inline constexpr Duration PREFERRED_LEADER_WAIT = seconds(30);
// So long after its leader was lost, or an election was seen, a node expects the next one.
inline constexpr Duration LEADER_HOPE = milliseconds(1000);
inline constexpr Duration HAND_OVER_TIMEOUT = milliseconds(500);
// A candidate that lost, or a step that failed, waits for 0..this before the next try.
inline constexpr Duration ELECTION_BACKOFF = milliseconds(200);
// While elections end UNCLEAN over the same copies: so long between two of them, first and at most. Each costs an epoch of
// LEADER_EPOCH_MAX; at this rate they last for years.
inline constexpr Duration UNCLEAN_BACKOFF_MIN = milliseconds(250);
inline constexpr Duration UNCLEAN_BACKOFF_MAX = seconds(5);
// Why there is no leader is a line in the log at most so often: the same words, other words.
inline constexpr Duration TROUBLE_REPEAT = seconds(10);
inline constexpr Duration TROUBLE_SPACING = seconds(1);
// Without a majority that answers heartbeats an installed leader gives up its term after so long.
inline constexpr Duration INSTALL_PATIENCE = seconds(2);
// So far above what this node has promised no honest cluster is: it would have held elections for days without it.
inline constexpr std::uint64_t LEADER_EPOCH_JUMP_MAX = 1u << 20;
inline constexpr std::uint32_t SNAPSHOT_PART_BYTES_MAX = 1u << 20;

// What only a leader has.
class Office {
  public:
    virtual ~Office() = default;
    // Builds it. An error: this node cannot lead, it steps down.
    virtual Result<void> take_office(Fiber& fiber, LeaderEpoch leader_epoch) = 0;
    // At once: nothing more is served, who waits is told that the outcome is unknown.
    virtual void leave_office() = 0;
    // After it: what takes time to end.
    virtual void close_office(Fiber& fiber) = 0;
    // Requests wait whose outcome a hand-over would leave open.
    virtual bool has_pending() const = 0;
};

enum class Role : std::uint8_t { FOLLOWER, CANDIDATE, LEADER };
constexpr std::string_view role_name(Role role) {
    return role == Role::LEADER ? "leader" : role == Role::CANDIDATE ? "candidate" : "follower";
}
// contract 5: mortarmq_quorum_state.
enum class QuorumState : std::uint8_t { HEALTHY = 0, SOFT = 1, READ_ONLY = 2 };

struct ReplicaStatus {
    Role role = Role::FOLLOWER;
    bool is_in_office = false;
    LeaderEpoch leader_epoch;  // promised, or of the own term
    std::optional<NodeId> leader;
    std::string leader_address;  // of its client listener; empty when unknown
    MonoTime lease_until;        // of a leader, by its own clock
    QuorumState quorum_state = QuorumState::READ_ONLY;
    bool is_blank = false;
    std::optional<Error> trouble;  // while no leader is known: why the latest election gave none
    std::vector<FollowerStatus> followers;
};

class ReplicaNode final : public peer::PeerHandler, public ReplicatedLogObserver {
  public:
    ReplicaNode(Env& env, ReplicaOptions options, PromiseStore& store, ReplicatedLogs& logs,
                peer::PeerRoster* peers, Office& office);
    ~ReplicaNode() override;

    // Until stop, or an error that this node cannot go on with.
    Result<void> run(Fiber& fiber);
    // A leader hands over first.
    void stop();

    Result<void> check_leading() const;
    // And no other leader can be in office.
    Result<void> check_lease() const;
    // And something can be expected to commit: a PUB, or what settles a message.
    Result<void> check_publish() const;
    Result<void> check_settle() const;
    // Besides check_publish, of one log: what is appended to it can be expected to commit.
    Result<void> check_append(const ReplicatedLog& log) const;
    // A PUB to this log was not committed in time: it takes nothing until something of it commits, the node is read-only
    // until something commits.
    void on_quorum_timeout(const ReplicatedLog& log);
    // A cluster of one: a PUB is acknowledged as LOCAL.
    bool is_single() const { return options_.nodes.size() == 1; }
    ReplicaStatus status() const;
    // Until a leader can be named, or none is to be expected soon; not beyond the deadline.
    void await_leader(Fiber& fiber, MonoTime deadline);
    const CareStats& care() const { return caretaker_.stats(); }
    Event& changed() { return changed_; }

    void on_channel_up(peer::PeerChannel& channel) override;
    void on_channel_down(peer::PeerChannel& channel) override;
    Result<void> on_frame(Fiber& fiber, peer::PeerChannel& channel, peer::Op op,
                          ByteSpan payload) override;

    void on_appended(ReplicatedLog& log) override;
    void on_flushed(ReplicatedLog& log) override;
    void on_state_changed(ReplicatedLog& log) override;
    void on_opened(ReplicatedLog& log) override;
    void on_retired(PartitionKey key) override;

  private:
    struct KnownLeader {
        NodeId node;
        LeaderEpoch leader_epoch;
        bool is_in_office = false;
    };

    // --- the way round
    Result<void> wait_to_stand(Fiber& fiber);
    MonoTime stand_at() const;
    void back_off();
    void back_off_unclean(const Error& obstacle);
    // Somebody answers who did not: an election may end otherwise now.
    void end_unclean_backoff();
    void tell_trouble(std::string_view event, const Error& trouble);
    Result<void> stand(Fiber& fiber);
    Result<void> lead(Fiber& fiber, ElectionWon won);
    Result<void> serve_term(Fiber& fiber, LeaderEpoch leader_epoch);
    Result<void> wait_for_majority(Fiber& fiber);
    void start_heartbeats(LeaderEpoch leader_epoch);
    void run_heartbeats(Fiber& fiber, LeaderEpoch leader_epoch);
    Result<void> hand_over(Fiber& fiber, std::optional<NodeId> successor);
    void release_lease(std::optional<NodeId> successor);
    void stand_anew();
    std::optional<NodeId> preferred_successor(bool must_wait) const;
    std::size_t rank_of(NodeId node) const;
    bool hears_leader() const;
    void send_heartbeat(LeaderEpoch leader_epoch);
    void step_down(std::string why);
    void send_install(NodeId node);

    // --- answers to other nodes
    Result<void> on_question(Fiber& fiber, peer::PeerChannel& channel, peer::Op op,
                             ByteSpan payload);
    Result<void> on_answer(peer::PeerChannel& channel, peer::Op op, ByteSpan payload);
    Result<void> on_heartbeat(Fiber& fiber, peer::PeerChannel& channel,
                              const peer::Heartbeat& heartbeat);
    void on_release(const peer::PeerChannel& channel, const peer::Release& release);
    void on_pre_vote(peer::PeerChannel& channel, const peer::PreVote& pre_vote);
    Result<void> on_prepare(Fiber& fiber, peer::PeerChannel& channel, const peer::Prepare& prepare);
    Result<void> on_install(Fiber& fiber, peer::PeerChannel& channel, const peer::Install& install);
    Result<void> on_append(peer::PeerChannel& channel, const peer::Append& append);
    Result<void> on_fetch(Fiber& fiber, peer::PeerChannel& channel, const peer::Fetch& fetch);
    Result<void> on_epoch_end(Fiber& fiber, peer::PeerChannel& channel,
                              const peer::EpochEnd& question);
    Result<void> on_snapshot(Fiber& fiber, peer::PeerChannel& channel,
                             const peer::Snapshot& question);
    void on_refused(NodeId node, const peer::Refused& refused);
    bool is_overdue(const ReplicatedLog& log) const;
    bool is_read_only() const;
    void refuse(peer::PeerChannel& channel, peer::Op op) const;
    Result<bool> adopt(Fiber& fiber, NodeId leader, LeaderEpoch leader_epoch);
    void note_epoch(LeaderEpoch seen);
    bool is_believed(NodeId from, peer::Op op, LeaderEpoch leader_epoch);
    bool may_vote() const;

    // --- becoming a follower of a term
    void start_reconciling(NodeId leader, const peer::Install& install);
    void run_reconciling(Fiber& fiber, NodeId leader, peer::Install install);
    bool lacks_metadata(const peer::Install& install) const;
    Result<void> fill_metadata(Fiber& fiber, NodeId leader, const peer::Install& install);
    Result<void> reconcile_all(Fiber& fiber, NodeId leader, const peer::Install& install);
    void confirm_install(NodeId leader, const peer::Install& install);
    Result<void> make_equal(Fiber& fiber, PartitionKey key, const CopySource& source,
                            std::set<PartitionKey>& aside);

    // --- damaged logs
    Result<void> repair_log(Fiber& fiber, PartitionKey key);
    Result<void> repair_as_leader(Fiber& fiber, PartitionKey key);
    void check_base(const ReplicatedLog& log);
    Result<void> make_aside_level(Fiber& fiber, PartitionKey key);
    Result<void> repair_from(Fiber& fiber, PartitionKey key, NodeId node, LeaderEpoch leader_epoch);
    Result<void> leave_aside(Fiber& fiber, PartitionKey key, const Error& error);

    Env& env_;
    ReplicaOptions options_;
    PromiseStore& store_;
    ReplicatedLogs& logs_;
    peer::PeerRoster* peers_;
    Office& office_;
    std::unique_ptr<PeerRequests> requests_;  // none in a cluster of one
    CatchUp catch_up_;
    Caretaker caretaker_;
    Election election_;
    FollowerSide follower_;
    FollowerLease follower_lease_;
    std::optional<LeaderLease> leader_lease_;
    std::unique_ptr<Leader> leader_;
    std::optional<ElectionWon> won_;
    Rng jitter_;

    Role role_ = Role::FOLLOWER;
    bool in_office_ = false;
    bool stopping_ = false;
    bool stand_now_ = false;       // the leader handed over to this node
    bool lost_ = false;            // of the term under way
    bool hands_over_ = false;      // to a preferred leader that is in sync
    bool wants_election_ = false;  // a node refused to be installed in this term
    // A PUB waited too long, while so much was committed; since when, of the latest log for which that is so.
    std::map<PartitionKey, Sequence> overdue_;
    MonoTime read_only_since_{};
    MonoTime not_before_{};        // after a failed try
    MonoTime election_seen_at_{};  // one began, as far as this node knows
    // Of the latest election that ended UNCLEAN; empty when something changed since.
    std::string unclean_obstacle_;
    Duration unclean_backoff_{};
    MonoTime unclean_until_{};
    std::string told_trouble_;
    MonoTime trouble_told_at_{};
    LeaderEpoch highest_seen_;
    std::map<NodeId, LeaderEpoch> disbelieved_;  // the last one of each peer
    std::optional<KnownLeader> known_leader_;
    std::optional<Error> trouble_;
    std::map<NodeId, peer::PeerChannel*> bulk_from_;  // the BULK channels that others dialed
    std::set<PartitionKey> aside_;  // not equal to the leader's since this node was installed
    std::map<PartitionKey, LogEnd>
        base_;  // of the term in which this node follows: it had synced that
    std::optional<LeaderEpoch> reconciling_epoch_;
    Mutex reconciling_;
    Event changed_;
    Group fibers_;
    Group heartbeats_;
};

}  // namespace mortar
