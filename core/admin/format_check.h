// format_check: does a file of the data_dir come from a newer program? Asked before anything is
// changed.
// Shape:    looks at the head of every file below topics/, groups/ and metadata/ whose name is one
//           of ours; what is damaged, cut short, unknown or cannot be read is left to those who
//           read it: one bad sector does not end the start of the node.
// Errors:   UNSUPPORTED_FORMAT with path and version; those of Disk, IO_ERROR aside.
// Suspends: all.
// Source:   contract 7 (unknown version: refuse, naming path and version), 8 (F3, F4).
#pragma once

#include "core/env/disk.h"

namespace mortar {

Result<void> refuse_newer_formats(Fiber& fiber, Disk& disk);

}  // namespace mortar
