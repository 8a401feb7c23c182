// metadata_recovery: what the files of metadata/ add up to, or that they cannot be trusted.
// Shape:    the newest sound snapshot plus the log behind it; if that does not reach the end, an older snapshot plus
//           more log. A state is accepted only when it provably holds every mutation that may have been acknowledged:
//           the log is contiguous up to its last file, nothing sound lies behind a bad record, no snapshot is named
//           beyond it, and it reaches what was marked as durable. A torn tail (one unfinished record at the very end) was
//           never acknowledged and does not count; but one damaged record looks the same, so it is told (is_tail_torn).
//           What the newest generation began with is committed. Of the records behind it nobody here knows: they are the
//           tail.
//           Otherwise everything moves to metadata/quarantine/<n>/ with the reason, for a human.
// Owns:     nothing. Log files are only read: the caller starts a new generation instead of repairing a tail in place.
// Errors:   UNSUPPORTED_FORMAT, and those of Disk; both leave everything as it is.
// Suspends: all.
// Invariant: missing files are not an empty cluster: without metadata, but with a quarantine, topics or groups next to
//           it, the answer is quarantined. (An unfinished move is finished first: metadata/quarantine-<n>.txt marks it.)
// Source:   core-concepts 10, contract 7 and RB-2, cases DUR-02, COR-02.
#pragma once

#include <string>
#include <vector>

#include "core/env/env.h"
#include "core/meta/catalog.h"

namespace mortar {

struct RecoveredMetadata {
    Catalog catalog;             // as of the newest generation, also when its snapshot is damaged
    std::vector<Mutation> tail;  // behind it; they fit one after the other
    MutationId known_durable;    // as marked; 0 = never
    bool is_quarantined = false;
    // The newest log file is empty and begins right behind the state: new records may go there. Otherwise the last
    // record may not be durable yet, and a new generation must be written before the tail counts as synced.
    bool is_tail_clean = false;
    // Behind its last record stands something that is none: a record that was never finished, or one that was synced, and
    // perhaps acknowledged, and is damaged. Nobody here can tell.
    bool is_tail_torn = false;
    MutationId base;  // of the snapshot that the state was built on; 0 = none
    std::vector<std::string> damaged_snapshots;  // names of files that were not needed
};

Result<RecoveredMetadata> recover_metadata(Fiber& fiber, Env& env, const std::string& folder);
// Moves the named files of folder into a new folder below quarantine/. They are evidence, never garbage.
Result<void> set_aside(Fiber& fiber, Env& env, const std::string& folder,
                       const std::vector<std::string>& names);

}  // namespace mortar
