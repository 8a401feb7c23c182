// window_file: `producers.mqp` beside a partition's segments: its producer windows as of some
// sequence.
// Shape:    saved before a checkpoint, so that opening reads only the log behind it. A file that
//           is missing or damaged counts as absent: the windows are then read from the whole log.
//           It covers only what is committed and synced here, so no cut goes below it, and one that
//           is ahead of the log proves that the log lost such records.
// Errors:   open_windows: UNSUPPORTED_FORMAT, IO_ERROR, what the log's read says. save_windows:
//           IO_ERROR, NO_SPACE, LOG_CLOSED.
// Suspends: both.
// Durable:  the file once save_windows returned OK, unless its caller had it dropped.
// Source:   contract P3, 7 (MMPW).
#pragma once

#include <functional>
#include <string>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/log/partition_log.h"
#include "core/produce/producer_window.h"

namespace mortar {

inline constexpr std::string_view WINDOW_FILE_NAME = "producers.mqp";
inline constexpr std::uint64_t WINDOW_REBUILD_READ_BYTES = 1024 * 1024;

struct OpenedWindows {
    ProducerWindows windows;   // as of everything up to through
    Sequence known_committed;  // the file says that all up to here was committed and synced
};
// through: at most what the log has flushed.
Result<OpenedWindows> open_windows(Fiber& fiber, Env& env, const std::string& folder,
                                   PartitionLog& log, Sequence through);

enum class WindowFate : std::uint8_t {
    WAIT,
    SAVE,  // what they cover is committed and synced
    DROP,  // no time to wait for that: the old file stays
};
// windows hold everything up to through now. fate: asked again each time changed is notified.
Result<void> save_windows(Fiber& fiber, Disk& disk, const std::string& folder,
                          const ProducerWindows& windows, Sequence through, Event& changed,
                          const std::function<Result<WindowFate>()>& fate);

}  // namespace mortar
