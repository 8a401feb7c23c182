// catch_up: makes a log of this node equal to a peer's copy: finds the last common record, cuts what the peer does not have,
// fetches what is missing.
// Shape:    two logs with a record of the same (sequence, leader_epoch) are equal up to there, and leader_epochs do not fall
//           along a log. So both sides name the end of the highest epoch that they have at or below the other's, in turns,
//           until they name the same one: the shorter end of it is the last common record.
//           A metadata log knows no epochs below its snapshot. Where none is common, the peer's snapshot is: what is committed
//           is the same everywhere.
//           What is fetched is appended as from a leader, so a restart goes on where it was.
// Units:    at most CATCH_UP_BYTES_PER_SECOND.
// Errors:   STALE_LEADER_EPOCH (this node, or the peer, has promised a higher one), DIVERGENT_COMMITTED (it would have to cut
//           what it knows committed: nothing was cut), NOT_FOUND (the log is gone), MALFORMED_PAYLOAD (the copy is not as it
//           was said to be), those of PeerRequests and of the log, CANCELLED. After an error the log is its old one, or a
//           prefix of the peer's copy.
// Suspends: what takes Fiber&.
// Source:   design 4 (election, catch-up).
#pragma once

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/replica/peer_requests.h"
#include "core/replica/promise.h"
#include "core/replica/replicated_log.h"

namespace mortar {

inline constexpr std::uint64_t CATCH_UP_BYTES_PER_SECOND = 128u << 20;
inline constexpr std::uint64_t CATCH_UP_UNFLUSHED_RECORDS_MAX = 1u << 20;

// Of this log, or nothing: the last record with leader_epoch <= at_most. By halving: log2(records) reads.
// NOT_FOUND: there is no such log, or it went meanwhile. LOG_CLOSED: it was cut meanwhile.
Result<LogEnd> find_epoch_end(Fiber& fiber, ReplicatedLogs& logs, PartitionKey key,
                              LeaderEpoch at_most);
// The same of what the log has up to end.
Result<LogEnd> find_epoch_end(Fiber& fiber, ReplicatedLogs& logs, PartitionKey key, LogEnd end,
                              LeaderEpoch at_most);

struct CopySource {
    NodeId node;
    LeaderEpoch leader_epoch;  // that this node has promised: an older asker is refused
    LogEnd end;  // the copy counts up to here, and with what a leader appended in leader_epoch
};

class CatchUp {
  public:
    // requests: nothing in a cluster of one, which has nobody to catch up with.
    CatchUp(Env& env, const PromiseStore& store, ReplicatedLogs& logs, PeerRequests* requests)
        : env_(env), store_(store), logs_(logs), requests_(requests) {}

    // The log's end is source.end then, or what it holds behind that is of source.leader_epoch; everything is flushed.
    Result<void> reconcile(Fiber& fiber, PartitionKey key, const CopySource& source);
    // In the source's own term: the log holds a beginning of the source's, or nothing. It holds all up to source.end.last
    // then, flushed. Nothing is ever cut.
    Result<void> fill(Fiber& fiber, PartitionKey key, const CopySource& source);
    // The log is damaged, the source's copy is the one to have: segment by segment its bad records are replaced. Where the
    // copies part above what is committed here, what the source does not have is cut. Afterwards no damage is known.
    Result<void> repair(Fiber& fiber, PartitionKey key, const CopySource& source);
    // The log is damaged, and known to be the source's as far as both reach. IN_SYNC_REPLICAS_NOT_ENOUGH: the source does not
    // have all of the damaged part yet. Nothing is ever cut.
    Result<void> repair_in_place(Fiber& fiber, PartitionKey key, const CopySource& source);
    // Until no log of the node has anything unflushed; closed and faulty ones aside.
    Result<void> settle(Fiber& fiber);
    // This node has promised a higher leader_epoch: who waits for a peer's answer does not any more.
    void on_promised();
    // Nothing is changed for the sake of an epoch that is over: STALE_LEADER_EPOCH.
    Result<void> still(LeaderEpoch leader_epoch) const;
    // Of any log of the node.
    void on_flushed() { flushed_.notify_all(); }

  private:
    // DIVERGENT_COMMITTED when the log, equal to the source's up to common, would lose what was committed.
    Result<void> check_not_committed(const ReplicatedLog& log, Sequence common) const;
    Result<void> cut(Fiber& fiber, ReplicatedLog& log, Sequence common, const CopySource& source);
    Result<ReplicatedLog*> find(PartitionKey key) const;
    Result<LogEnd> last_common(Fiber& fiber, PartitionKey key, LogEnd ours,
                               const CopySource& source);
    Result<LogEnd> asked_end(Fiber& fiber, PartitionKey key, LeaderEpoch at_most,
                             const CopySource& source);
    Result<Sequence> last_common_of_damaged(Fiber& fiber, PartitionKey key, const DamagedPart& part,
                                            const CopySource& source);
    Result<void> repair_part(Fiber& fiber, PartitionKey key, Sequence through,
                             const CopySource& source);
    Result<LogEnd> common_by_snapshot(Fiber& fiber, const CopySource& source);
    Result<void> fetch_through(Fiber& fiber, PartitionKey key, const CopySource& source);
    Result<void> fetch_rest(Fiber& fiber, PartitionKey key, const CopySource& source);
    Result<void> wait_until_flushed(Fiber& fiber, PartitionKey key);
    Result<void> keep_to_rate(Fiber& fiber, std::size_t bytes);

    Env& env_;
    const PromiseStore& store_;
    ReplicatedLogs& logs_;
    PeerRequests* requests_;
    MonoTime may_fetch_at_{};
    Event flushed_;
};

}  // namespace mortar
