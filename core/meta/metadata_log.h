// metadata_log: MMML mutations and MMMS snapshots on disk, and the Catalog that they add up to.
// Shape:    one writer: propose() validates against the state, appends, syncs, applies, answers; the next waits.
//           A snapshot and a new log file every snapshot_records, and at an open that finds records behind the last one (they
//           may not be durable yet); older files go only after both are durable, one generation is kept.
// Owns:     folder metadata/ and its files.
// Errors:   propose: what Catalog::validate says; METADATA_READ_ONLY (disk full or failed: not executed), METADATA_QUARANTINED,
//           MUTATION_FENCED (outcome unknown), MUTATION_NOT_PACKABLE.
//           A failed sync closes the log: METADATA_READ_ONLY until what is on disk could be read again (with backoff) and a new
//           generation stands. What had an unknown outcome until then was not executed. A full disk ends by itself.
//           open: UNSUPPORTED_FORMAT with path and version; INVALID_ARGUMENT for a leader_epoch older than the last; those of
//           Disk (nothing was concluded from what could not be read). Bytes that cannot be trusted are moved to metadata/quarantine/
//           (never replayed, never deleted) and the log opens quarantined: catalog() is empty, every propose is refused.
//           When that is found while the node runs, catalog() stays what was acknowledged.
// Suspends: open, propose, close.
// Durable:  a mutation once propose returned OK.
// Source:   core-concepts 10, contract 7 (MMML, MMMS), T5, RB-2, design 5.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/env/env.h"
#include "core/meta/catalog.h"

namespace mortar {

// Below this much free space only changes that make room are taken. Above it metadata goes on while PUBs are refused.
inline constexpr std::uint64_t METADATA_SPACE_RESERVE_BYTES = std::uint64_t{64} << 20;
inline constexpr Duration METADATA_REOPEN_BACKOFF_MIN = milliseconds(100);
inline constexpr Duration METADATA_REOPEN_BACKOFF_MAX = seconds(5);

class MetadataLog {
  public:
    virtual ~MetadataLog() = default;
    static Result<std::unique_ptr<MetadataLog>> open(Fiber& fiber, Env& env, std::string folder,
                                                     std::uint32_t snapshot_records,
                                                     LeaderEpoch leader_epoch);

    virtual Result<MutationId> propose(Fiber& fiber, MutationBody body) = 0;
    // For a check that must hold at the moment of the commit: body is made from the state when it is this one's turn.
    virtual Result<MutationId> propose(
        Fiber& fiber, std::function<Result<MutationBody>(const Catalog& catalog)> make) = 0;
    virtual const Catalog& catalog() const = 0;
    virtual bool is_quarantined() const = 0;
    // The log closed after a disk error and is about to be opened again.
    virtual bool is_read_only() const = 0;
    // Called after each applied mutation, in order, before its propose returns.
    virtual void set_on_applied(std::function<void(const Mutation&)> on_applied) = 0;
    virtual Result<void> close(Fiber& fiber) = 0;
};

}  // namespace mortar
