// follower: takes the records of the leader that this node has promised and in whose epoch it is installed, and says what it
// has synced.
// Shape:    an APPEND is taken section by section, never partly checked: what does not continue a log is answered with
//           LOG_GAP, once until it fits again; with TAKES_NOTHING when the log is damaged. What logs flush is gathered into one
//           FLUSHED a turn.
// Owns:     its reporting fiber, ended by close.
// Errors:   on_append: those of append_bytes (CHECKSUM_MISMATCH: the leader's bytes are not the next records); the connection
//           ends.
// Suspends: close.
// Invariant: nothing is confirmed to a leader of an older epoch than this node has promised; a log that is known to be
//            damaged confirms nothing; a late or doubled APPEND changes nothing.
// Source:   design 4 (normal case, damage).
#pragma once

#include <map>
#include <optional>
#include <set>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/replica/peer_channel.h"
#include "core/replica/replicated_log.h"

namespace mortar {

class FollowerSide {
  public:
    FollowerSide(Env& env, ReplicatedLogs& logs);
    void start();
    void close(Fiber& fiber);

    // From now on this leader's records are taken, over this channel. Everything synced so far is confirmed again.
    // aside: logs that are not equal to the leader's; nothing is taken or confirmed of them.
    void begin(LeaderEpoch leader_epoch, peer::PeerChannel& channel,
               std::set<PartitionKey> aside = {});
    // It is not equal to the leader's, as was found out meanwhile.
    void leave_aside(PartitionKey key);
    // It is equal now.
    void take_again(PartitionKey key);
    // Nothing more is taken or confirmed.
    void end();
    bool follows(LeaderEpoch leader_epoch) const { return leader_epoch_ == leader_epoch; }
    void on_channel_down(const peer::PeerChannel& channel);

    Result<void> on_append(const peer::PeerChannel& channel, const peer::Append& append);
    void on_flushed(ReplicatedLog& log);
    // A log that was missing or closed when records came for it is there.
    void on_available(ReplicatedLog& log);

  private:
    Result<void> take(const peer::AppendSection& section);
    bool takes(const ReplicatedLog& log) const;
    void tell_gap(PartitionKey key, LogEnd end);
    void run_reporter(Fiber& fiber);
    void report();

    Env& env_;
    ReplicatedLogs& logs_;
    std::optional<LeaderEpoch> leader_epoch_;
    peer::PeerChannel* channel_ = nullptr;
    std::set<PartitionKey> aside_;
    std::set<PartitionKey> to_confirm_;
    std::set<PartitionKey> gap_told_;
    Event work_;
    Group fibers_;
};

}  // namespace mortar
