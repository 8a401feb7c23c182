// leftovers: what stands in the data_dir and belongs to nothing in the catalog.
// Shape:    at the start, folders under topics/ and groups/ are compared with the catalog. An id that the catalog has given
//           out and holds no more was deleted by a committed mutation, and ids are never reused: what a crash or a failing
//           disk left of it goes. Everything else that nobody knows is reported and left alone.
// Owns:     nothing.
// Errors:   none: what cannot be read or removed is logged, and the next start tries again.
// Suspends: remove_leftovers.
// Source:   contract T4, E3, 7 (data_dir).
#pragma once

#include "core/env/env.h"
#include "core/meta/metadata_log.h"

namespace mortar {

// While the metadata is quarantined nobody can tell what was deleted: then nothing goes.
void remove_leftovers(Fiber& fiber, Env& env, const MetadataLog& metadata);

}  // namespace mortar
