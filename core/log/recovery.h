// recovery: what a log holds, found by reading it from the checkpoint on.
// Shape:    Known durable is what the checkpoint covers, and every record before the first one of a batch or of a segment: a
//           batch is written, and a segment made, only after the sync of all before it. Where the walk meets no valid record
//           with the next sequence, the log ends (nothing but zeros follows), or its tail is torn (the rest of a last batch
//           that was never synced), or it is damaged (there is evidence that the bad place was synced).
// Why:      The last batch is the only one that may be valid and yet not durable: its bytes may be in the page cache only, be
//           it after a kill or because a failed sync marked its pages clean. It must be made durable before it is served, but
//           writing it again in place would risk acknowledged sectors if the power fails now. So it is copied into a new
//           segment that starts with it, which replaces it atomically by its name: the old copy stands behind the end of its
//           segment (segment.h) from then on. A torn tail is left behind in the same way, by the next segment that starts: its
//           bytes may look like records for ever, nobody looks at them.
//           Honest limit: damage inside the last batch of a log, acknowledged but with nothing written after it, cannot be told
//           from an unfinished write by this node alone. A checkpoint (every checkpoint_every_bytes, at a roll, at close)
//           or one later batch ends that.
//           A cluster must know more: where the tail is torn the log may have held more than it holds now (is_tail_torn). That
//           is told once, before_repair is called first; then an empty segment ends the log, for a later start would take
//           the same remains for a new loss. A damaged log says what it once held for certain (claimed_end), so that
//           nobody with less is taken for complete.
//           A process that had the log open before knows how far it was synced (known): then there is no such doubt. What
//           is bad up to there is damage, though it stand in the last batch, and what is torn behind it was never told.
// Errors:   UNSUPPORTED_FORMAT (nothing on disk was changed), IO_ERROR, NO_SPACE, those of before_repair. Damage is a
//           result, not an error.
// Suspends: recover_log.   Durable: all of the recovered log, once it returns OK.
// Source:   design 3, contract 7, cases DUR-09, COR-01, COR-07, COR-10 to COR-13.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/log/segment.h"

namespace mortar {

struct RecoveredLog {
    std::vector<std::shared_ptr<Segment>> segments;  // ascending
    Sequence next_sequence{1};
    LeaderEpoch last_leader_epoch;  // of the record before next_sequence
    Sequence checkpointed_next{1};
    std::size_t end_segment = 0;   // which of segments holds the last record
    std::uint64_t end_offset = 0;  // where that record ends
    // Where the next batch may start in the last segment; nothing: the next record starts a new segment.
    std::optional<std::uint64_t> append_offset;
    std::optional<Sequence> faulty_from;
    LogEnd claimed_end;  // when faulty: the last record of which there is evidence
    // Something stands behind the last record that is not one, and it may have been synced.
    bool is_tail_torn = false;
    std::string damage;                // what was found, for the log line
    std::uint64_t cut_tail_bytes = 0;  // left behind as torn, 0 for none
    std::uint64_t size_bytes = 0;
    std::uint64_t read_bytes = 0;
};

// before_repair, if any, is called once when is_tail_torn, before anything on disk changes.
Result<RecoveredLog> recover_log(Fiber& fiber, Env& env, const std::string& folder,
                                 const std::function<Result<void>(Fiber&)>& before_repair = {},
                                 const KnownSynced& known = {});

}  // namespace mortar
