// metadata_log: MMML mutations and MMMS snapshots on disk, and the Catalog that they add up to: a replicated log whose
// sequences are mutation ids.
// Shape:    catalog() is what is committed. Behind it stands the tail: appended, not yet known to be committed, kept in memory
//           too. A leader appends one mutation after the other: propose() validates against the state, writes, tells the
//           observer, and waits for the commit while the log's own fiber syncs. A follower takes the leader's records.
//           Snapshots hold committed state only. A snapshot and a new log file ("a generation") every snapshot_records, at an
//           open that finds records behind the last one (they may not be durable yet), for a cut and after a failure; older
//           files go only after both are durable, one generation is kept. The tail stands again in each new log file.
// Owns:     folder metadata/ and its files.
// Errors:   propose: what Catalog::validate says; METADATA_READ_ONLY (not leading, disk full or failed, an earlier mutation is
//           still uncommitted: not executed), METADATA_QUARANTINED, MUTATION_FENCED (outcome unknown: it stands in the log and
//           may yet be committed), MUTATION_NOT_PACKABLE.
//           A failed write or sync closes the log: METADATA_READ_ONLY and LOG_CLOSED until what is on disk could be read again
//           (with backoff), holds all that was synced, and a new generation stands. A full disk ends by itself.
//           begin_term: INVALID_ARGUMENT for a leader_epoch older than the last. install_snapshot: DAMAGED, CHECKSUM_MISMATCH,
//           UNSUPPORTED_FORMAT (nothing was changed), IO_ERROR, NO_SPACE, LOG_CLOSED. snapshot: NOT_FOUND while it has none.
//           open: UNSUPPORTED_FORMAT with path and version; those of
//           Disk (nothing was concluded from what could not be read). Bytes that cannot be trusted are moved to metadata/quarantine/
//           (never replayed, never deleted) and the log opens quarantined: catalog() is empty, every propose is refused. It is
//           filled again by install_snapshot and append_bytes from a peer, and counts as a copy that may have held anything
//           (whoever has that done must remember it until the copy is complete).
//           When that is found while the node runs, catalog() stays what was committed, and only a snapshot fills it again.
// Suspends: open, propose, install_snapshot, close, and what says so in replicated_log.
// Durable:  a mutation once propose returned OK (on a majority); all up to flushed() here.
// Source:   core-concepts 10, contract 7 (MMML, MMMS), T5, RB-2, design 4 and 5.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/meta/catalog.h"
#include "core/replica/replicated_log.h"

namespace mortar {

// Below this much free space only changes that make room are taken. Above it metadata goes on while PUBs are refused.
inline constexpr std::uint64_t METADATA_SPACE_RESERVE_BYTES = std::uint64_t{64} << 20;
inline constexpr Duration METADATA_REOPEN_BACKOFF_MIN = milliseconds(100);
inline constexpr Duration METADATA_REOPEN_BACKOFF_MAX = seconds(5);
// A proposal waits that long for those before it to get somewhere, and then for its own commit.
inline constexpr Duration METADATA_COMMIT_TIMEOUT = seconds(2);

class MetadataLog : public ReplicatedLog {
  public:
    // before_repair: called while a torn tail is still to be seen; its error is open's. What is torn may be a record that
    // this copy had synced, and others count on it: who must not forget that writes it down there.
    static Result<std::unique_ptr<MetadataLog>> open(
        Fiber& fiber, Env& env, std::string folder, std::uint32_t snapshot_records,
        std::function<Result<void>(Fiber& fiber)> before_repair = {});
    PartitionKey key() const override { return METADATA_LOG; }
    // May be null. Set it before anything is appended.
    virtual void set_observer(ReplicatedLogObserver* observer) = 0;

    // From now on propose appends in this epoch, and append_bytes, cut and install_snapshot do not come.
    virtual Result<void> begin_term(LeaderEpoch leader_epoch) = 0;
    // Proposals that wait for their commit get MUTATION_FENCED.
    virtual void end_term() = 0;
    virtual Result<MutationId> propose(Fiber& fiber, MutationBody body) = 0;
    // For a check that must hold at the moment of the commit: body is made from the state when it is this one's turn.
    virtual Result<MutationId> propose(
        Fiber& fiber, std::function<Result<MutationBody>(const Catalog& catalog)> make) = 0;

    // What is committed.
    virtual const Catalog& catalog() const = 0;
    // Topics that exist once the tail, or a part of it, is committed. They may have been committed, and have records.
    virtual std::vector<Topic> topics_in_tail() const = 0;
    // catalog() is all that this log holds: there is no tail.
    bool is_all_applied() const { return catalog().last_mutation().value == end().last.value; }
    virtual bool is_quarantined() const = 0;
    // The log closed after a disk error and is about to be opened again.
    virtual bool is_read_only() const = 0;
    // Called after each applied mutation, in order, before its propose returns.
    virtual void set_on_applied(std::function<void(const Mutation&)> on_applied) = 0;
    // catalog() is another one, or the tail was cut: what depends on either must be compared anew.
    virtual void set_on_replaced(std::function<void()> on_replaced) = 0;

    // A snapshot that read_bytes can go on behind; the same one as long as that is so.
    virtual Result<MetadataSnapshot> snapshot() = 0;
    // From a peer: replaces state and tail, when it covers more than this one has committed; else nothing happens. What
    // stands behind it is cut: the caller knows that the peer does not have that.
    virtual Result<void> install_snapshot(Fiber& fiber, ByteSpan snapshot) = 0;
    // Writes out what was appended.
    virtual Result<void> close(Fiber& fiber) = 0;
};

}  // namespace mortar
