// Damaged logs made whole from a peer's copy: the second half of catch_up.h.
#include <algorithm>

#include "core/replica/catch_up.h"

namespace mortar {

Result<void> CatchUp::repair(Fiber& fiber, PartitionKey key, const CopySource& source) {
    while (true) {
        ReplicatedLog* log = MORTAR_TRY(find(key));
        const std::optional<DamagedPart> part = log->damaged_part();
        if (!part) return {};
        const Sequence common = MORTAR_TRY(last_common_of_damaged(fiber, key, *part, source));
        log = MORTAR_TRY(find(key));
        if (log->damaged_part() != part)
            return make_error(ErrorCode::LOG_CLOSED, log_name(key) + " changed meanwhile");
        const Sequence faulty_from = *log->faulty_from();
        MORTAR_TRY(check_not_committed(*log, common));
        if (common < faulty_from) {
            // The bad record itself is one that the source does not have.
            MORTAR_SOMETIMES(true, "catch_up: damage went with a cut");
            MORTAR_TRY(cut(fiber, *log, common, source));
            continue;
        }
        MORTAR_SOMETIMES(common < log->end().last, "catch_up: copies part behind damage");
        MORTAR_TRY(repair_part(fiber, key, std::min(common, part->last), source));
        log = MORTAR_TRY(find(key));
        if (log->faulty_from() && *log->faulty_from() <= faulty_from)
            return make_error(ErrorCode::DAMAGED, log_name(key) + " is damaged again");
    }
}

Result<void> CatchUp::repair_in_place(Fiber& fiber, PartitionKey key, const CopySource& source) {
    Sequence repaired_through;
    while (true) {
        const ReplicatedLog* log = MORTAR_TRY(find(key));
        const std::optional<DamagedPart> part = log->damaged_part();
        if (!part) return {};
        if (part->last <= repaired_through)
            return make_error(ErrorCode::DAMAGED, log_name(key) + " is damaged again");
        if (source.end.last < part->last) {
            return make_error(ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH,
                              log_name(key) + ": the peer does not have all of the damaged part");
        }
        repaired_through = part->last;
        MORTAR_TRY(repair_part(fiber, key, part->last, source));
    }
}

Result<void> CatchUp::repair_part(Fiber& fiber, PartitionKey key, Sequence through,
                                  const CopySource& source) {
    ReplicatedLog* log = MORTAR_TRY(find(key));
    return log->repair(
        fiber, through,
        [this, key, source](Fiber& own, Sequence from, Sequence last) -> Result<ByteVector> {
            FetchedRecords fetched = MORTAR_TRY(
                requests_->fetch(own, source.node, source.leader_epoch, key, from, last));
            MORTAR_TRY(keep_to_rate(own, fetched.bytes.size()));
            return std::move(fetched.bytes);
        });
}

// Up to where this copy may be the source's, its bad records being whatever the source has there: what is found to be the
// same ends the question for all before it, what is found to be another record ends the common part.
Result<Sequence> CatchUp::last_common_of_damaged(Fiber& fiber, PartitionKey key,
                                                 const DamagedPart& part,
                                                 const CopySource& source) {
    ReplicatedLog* log = MORTAR_TRY(find(key));
    const LogEnd claim = log->end();
    if (claim == source.end) return claim.last;
    const LogEnd theirs = MORTAR_TRY(asked_end(fiber, key, claim.leader_epoch, source));
    if (theirs.leader_epoch == claim.leader_epoch && theirs.last >= claim.last) return claim.last;

    log = MORTAR_TRY(find(key));
    const std::vector<EpochRun> runs = MORTAR_TRY(log->runs_behind_damage(fiber));
    Sequence next_other =
        claim.last.next();  // the first record known to be another one, or the end
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
        const LogEnd there = MORTAR_TRY(asked_end(fiber, key, run->leader_epoch, source));
        if (there.leader_epoch == run->leader_epoch && there.last >= run->first) {
            if (there.last < run->last) return there.last;
            return std::min(Sequence(next_other.value - 1), source.end.last);
        }
        next_other = run->first;
    }
    // Nothing of it: the copies part in front of the damaged part, or in its bad beginning.
    const Sequence before(part.first.value - 1);
    if (before > Sequence(0)) {
        log = MORTAR_TRY(find(key));
        const LogEnd ours{before, MORTAR_TRY(log->epoch_at(fiber, before))};
        const LogEnd common = MORTAR_TRY(last_common(fiber, key, ours, source));
        if (common.last < before) return common.last;
    }
    return std::min(Sequence(next_other.value - 1), source.end.last);
}

}  // namespace mortar
