// leftovers: what stands in the data_dir and belongs to nothing in the catalog.
// Shape:    once all of the metadata log is applied, folders under topics/ and groups/ are compared with the catalog. An id that the catalog has given
//           out and holds no more was deleted by a committed mutation, and ids are never reused: what a crash or a failing
//           disk left of it goes. Everything else that nobody knows is reported and left alone.
// Owns:     nothing.
// Errors:   remove_leftovers: none, what cannot be read or removed is logged, and the next start tries again.
//           remove_group_leftovers: those of Disk.
// Suspends: both.
// Source:   contract T4, E3, 7 (data_dir).
#pragma once

#include "core/base/ids.h"
#include "core/env/env.h"
#include "core/meta/metadata_log.h"

namespace mortar {

// While the metadata is quarantined nobody can tell what was deleted: then nothing goes.
void remove_leftovers(Fiber& fiber, Env& env, const MetadataLog& metadata);

// What an earlier office of this node left of a group, deleted since, that nobody serves now. OK when there is nothing.
Result<void> remove_group_leftovers(Fiber& fiber, Env& env, GroupId group_id);

}  // namespace mortar
