// leader: one term of a leader: sends records to the followers, keeps their positions, moves commit_seq.
// Shape:    for each follower one sender fiber. A log that grew is put on the sender's list; the sender takes what has
//           gathered into one APPEND (many logs, bytes shared with the logs), as long as less than APPEND_IN_FLIGHT_BYTES
//           are unconfirmed. Nothing here walks over all logs while records flow.
// Units:    positions are sequences; in flight in bytes of records.
// Owns:     its fibers, ended by close. Logs belong to ReplicatedLogs and may go between two suspensions.
// Suspends: close.
// Invariant: a follower counts for a log only while it is installed in this term, and only for what it confirmed; this node
//            only for what it has flushed. commit_seq never passes what a majority of such nodes has.
// Source:   design 4 (normal case), contract 8 (levels, soft gap).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/replica/peer_channel.h"
#include "core/replica/peer_messages.h"
#include "core/replica/replicated_log.h"

namespace mortar {

inline constexpr std::size_t APPEND_FRAME_BYTES_MAX = 1u << 20;  // one record more may be larger
inline constexpr std::size_t APPEND_SECTION_COUNT_MAX = 4096;
inline constexpr std::size_t APPEND_IN_FLIGHT_BYTES = 16u << 20;  // a follower
inline constexpr std::uint64_t SOFT_GAP_RECORDS = 8192;
inline constexpr Duration SOFT_GAP_TIME = seconds(1);

struct Term {
    LeaderEpoch leader_epoch;
    std::vector<NodeId> followers;        // every other configured node
    std::map<PartitionKey, LogEnd> base;  // as of taking office; absent = empty
};

struct FollowerStatus {
    NodeId node_id;
    bool is_connected = false;
    bool is_installed = false;
    bool is_in_sync = false;  // within the soft gap
    // Appended here and not confirmed, over all logs. Of one that was not installed in this term yet: at least, since what
    // it lacks of older terms is not known.
    std::uint64_t lag_records = 0;
    std::uint64_t confirmed_bytes = 0;  // of records sent to it and confirmed in this term
    MonoTime in_sync_since = NEVER;     // NEVER while it is not
};

class Leader {
  public:
    // on_out_of_reach: of a follower that is no more installed, since it lacks metadata that only a snapshot has.
    Leader(Env& env, peer::PeerRoster* peers, ReplicatedLogs& logs, Term term,
           std::function<void(NodeId)> on_out_of_reach = {});
    ~Leader();
    Leader(const Leader&) = delete;
    Leader& operator=(const Leader&) = delete;

    const Term& term() const { return term_; }
    void start();
    // A majority is installed: everything in base is committed.
    void take_office();
    void close(Fiber& fiber);

    void on_appended(ReplicatedLog& log);
    void on_flushed(ReplicatedLog& log);
    void on_opened(ReplicatedLog& log);
    void on_retired(PartitionKey key);
    void on_installed(NodeId node, const peer::Installed& installed);
    void on_flushed_by(NodeId node, const peer::Flushed& flushed);
    void on_log_gap(NodeId node, const peer::LogGap& gap);
    void on_channel_down(NodeId node);
    // Each heartbeat interval: followers hear of a commit_seq that no record carries, and lag is sampled.
    void on_tick();

    bool is_majority_installed() const;
    // A majority of nodes is there whose copies of this log count.
    bool can_commit(const ReplicatedLog& log) const;
    // The latest commit of anything; 0 before the first.
    MonoTime last_commit_at() const { return last_commit_at_; }
    std::vector<FollowerStatus> followers() const;
    // Everything appended here is confirmed by this follower.
    bool has_all(NodeId node) const;

  private:
    struct InFlight {
        Sequence last;
        std::size_t size_bytes;
    };
    // What one follower has of one log.
    struct Progress {
        Sequence sent;
        Sequence flushed;
        Sequence told_commit;
        bool takes_nothing = false;  // damaged there: it neither gets nor counts for anything
        bool is_queued = false;
        bool owes_commit = false;
        std::deque<InFlight> unconfirmed;
    };
    struct LogState {
        Sequence counted_end;            // what the followers' lag already counts
        std::vector<Progress> progress;  // as followers_
    };
    struct Follower {
        NodeId node_id;
        bool is_installed = false;
        std::uint64_t install_count = 0;    // a sender that slept over a reconnect notices
        std::deque<PartitionKey> queue;     // logs that have something to send
        std::vector<PartitionKey> commits;  // logs whose commit_seq it has not heard
        std::size_t in_flight_bytes = 0;
        std::uint64_t lag_records = 0;
        std::uint64_t confirmed_bytes = 0;
        bool is_lag_told = false;
        MonoTime in_sync_since = NEVER;
        Event work;
    };
    struct Sample {
        MonoTime at;
        std::uint64_t appended_count;
    };

    // Of a node that is no follower: followers_.size().
    std::size_t index_of(NodeId node) const;
    // This node and what is installed.
    std::size_t installed_count() const;
    LogState& state_of(PartitionKey key);
    void count_appended(ReplicatedLog& log, LogState& state);
    void pause(Follower& follower, const LogState& state, Progress& progress);
    void confirm(std::size_t index, LogState& state, Sequence flushed);
    LogEnd base_of(PartitionKey key) const;
    LogEnd sent_end(PartitionKey key, Sequence sent) const;
    void enqueue(std::size_t index, PartitionKey key, Progress& progress);
    void owe_commit(std::size_t index, PartitionKey key, Progress& progress);
    void update_commit(ReplicatedLog& log);
    void run_sender(Fiber& fiber, std::size_t index);
    bool may_send(const Follower& follower) const;
    Result<void> send_some(Fiber& fiber, std::size_t index);
    void end_install(std::size_t index);
    void put_out_of_reach(std::size_t index, const Error& reason);
    Result<bool> gather(Fiber& fiber, std::size_t index, PartitionKey key, std::size_t bytes_max,
                        peer::OutAppend& append);
    bool send(std::size_t index, peer::OutAppend append);
    void tell_commits(std::size_t index);
    void judge_lag(Follower& follower, MonoTime now);
    void tell_lag(Follower& follower);

    Env& env_;
    peer::PeerRoster* peers_;  // none in a cluster of one
    ReplicatedLogs& logs_;
    Term term_;
    std::function<void(NodeId)> on_out_of_reach_;
    bool in_office_ = false;
    std::vector<std::unique_ptr<Follower>> followers_;
    std::map<PartitionKey, LogState> states_;
    std::uint64_t appended_count_ = 0;  // in this term, over all logs
    std::deque<Sample> samples_;        // of the last SOFT_GAP_TIME, oldest first
    MonoTime last_commit_at_{};
    Group fibers_;
};

}  // namespace mortar
