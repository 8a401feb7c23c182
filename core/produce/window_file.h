// window_file: `producers.mqp` beside a partition's segments: its producer windows as of some
// sequence.
// Shape:    saved before each checkpoint, so that opening reads only the log behind it. A file that
//           is missing or damaged counts as absent: the windows are then read from the whole log.
//           One that is ahead of the log proves that the log lost flushed records.
// Errors:   open_windows: UNSUPPORTED_FORMAT, IO_ERROR, what the log's read says. save_windows:
//           IO_ERROR, NO_SPACE, LOG_CLOSED.
// Suspends: both.
// Durable:  the file once save_windows returned OK. It never covers a record that is not flushed.
// Source:   contract P3, 7 (MMPW).
#pragma once

#include <string>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/log/partition_log.h"
#include "core/produce/producer_window.h"

namespace mortar {

inline constexpr std::string_view WINDOW_FILE_NAME = "producers.mqp";
inline constexpr std::uint64_t WINDOW_REBUILD_READ_BYTES = 1024 * 1024;

struct OpenedWindows {
    ProducerWindows windows;   // as of everything that the log has flushed
    Sequence known_committed;  // the file says that the log once had flushed all up to here
};
Result<OpenedWindows> open_windows(Fiber& fiber, Env& env, const std::string& folder,
                                   PartitionLog& log);

// windows hold everything up to log.last_sequence() now; flushed is notified when
// log.flushed_sequence() moves or the log fails.
Result<void> save_windows(Fiber& fiber, Disk& disk, const std::string& folder,
                          const ProducerWindows& windows, PartitionLog& log, Event& flushed);

}  // namespace mortar
