// caretaker: looks for damage in this node's logs, remembers it, and has it repaired.
// Shape:    one fiber walks through all logs slowly and reads what is flushed (scrub), so that damage is found while a peer still
//           holds what was damaged. One fiber tends to the logs that are known to be damaged: their mark goes to disk, then
//           they are repaired, each as the node's part in the cluster allows, until that succeeds; then the mark is taken
//           away. A mark without damage is of an earlier life: recovery does not read what is known durable, so it is looked
//           for again.
// Units:    at most scrub_bytes_per_second; a walk begins scrub_pause after the last one ended.
// Owns:     its fibers, ended by close.
// Errors:   make_level: those of CatchUp and PromiseStore; DAMAGED when the log is damaged once more.
// Suspends: what takes Fiber&.
// Durable:  a mark, before anything is fetched; that it is gone, before the log counts as whole.
// Invariant: a log with a mark or a known bad record confirms nothing and wins no election over a whole copy.
// Source:   design 3, 4 (Damage).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/replica/catch_up.h"
#include "core/replica/promise.h"
#include "core/replica/replicated_log.h"

namespace mortar {

inline constexpr std::uint64_t SCRUB_BYTES_PER_SECOND = 8u << 20;
inline constexpr std::uint64_t SCRUB_READ_BYTES = 256u << 10;
inline constexpr Duration SCRUB_PAUSE = seconds(600);
inline constexpr Duration REPAIR_RETRY = seconds(1);

struct CareOptions {
    std::uint64_t scrub_bytes_per_second = SCRUB_BYTES_PER_SECOND;
    Duration scrub_pause = SCRUB_PAUSE;
    bool has_peers = false;  // else what is damaged stays so: there is nobody to have it from
};

struct CareStats {
    std::uint64_t scrubbed_record_count = 0;
    std::uint64_t scrubbed_bytes = 0;
    std::uint64_t scrub_walk_count = 0;  // that ended
    std::uint64_t damaged_count = 0;     // logs found damaged in this life, by whatever read
    std::uint64_t repaired_count = 0;    // and made whole again, or rid of a mark
};

class Caretaker {
  public:
    // Makes one damaged log whole, as the node's part allows at this moment.
    using Repair = std::function<Result<void>(Fiber& fiber, PartitionKey key)>;
    Caretaker(Env& env, ReplicatedLogs& logs, PromiseStore& store, CatchUp& catch_up,
              CareOptions options, Repair repair);
    void start();
    void close(Fiber& fiber);

    // It is faulty from now on.
    void on_damaged(PartitionKey key);
    // It ends in front of from, and is known to have held more.
    void on_lost(PartitionKey key, Sequence from);
    void on_retired(PartitionKey key);
    // The node's part has changed: what could not be repaired perhaps can be.
    void wake() { wanted_.notify_all(); }

    // Where an earlier life found damage: it is known again, if it is there.
    Result<void> look_again(Fiber& fiber, PartitionKey key);
    // Repaired if it is damaged, then made equal to the source's copy.
    Result<void> make_level(Fiber& fiber, PartitionKey key, const CopySource& source);
    // Nothing of it is damaged any more.
    Result<void> note_whole(Fiber& fiber, PartitionKey key);
    const CareStats& stats() const { return stats_; }

  private:
    bool has_mark(PartitionKey key) const;
    Result<void> mark_damage(Fiber& fiber, PartitionKey key);
    void run_repairs(Fiber& fiber);
    Result<void> tend_all(Fiber& fiber);
    Result<void> tend(Fiber& fiber, PartitionKey key);
    void run_scrub(Fiber& fiber);
    Result<void> scrub_log(Fiber& fiber, PartitionKey key);

    Env& env_;
    ReplicatedLogs& logs_;
    PromiseStore& store_;
    CatchUp& catch_up_;
    CareOptions options_;
    Repair repair_;
    std::map<PartitionKey, std::string> damaged_;  // and why it is so still
    std::map<PartitionKey, Sequence> lost_;        // to be marked
    std::set<PartitionKey> retired_;               // their marks are forgotten
    std::set<PartitionKey> scrub_soon_;            // damage seldom comes alone
    CareStats stats_;
    Event wanted_;
    Event scrub_wanted_;
    Group fibers_;
};

}  // namespace mortar
