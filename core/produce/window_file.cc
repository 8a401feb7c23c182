#include "core/produce/window_file.h"

#include "core/log/whole_file.h"

namespace mortar {
namespace {

// The most that encode can give; more than that is damage.
constexpr std::uint64_t FILE_BYTES_MAX =
    32 + PRODUCER_COUNT_MAX * (20 + PRODUCER_WINDOW_COUNT * 20);

Result<ProducerWindows::Decoded> load(Fiber& fiber, Disk& disk, const std::string& path) {
    const ByteVector bytes = MORTAR_TRY(read_whole_file(fiber, disk, path, FILE_BYTES_MAX));
    return ProducerWindows::decode(bytes, path);
}

// Windows are derived: what cannot be read is made again, but a newer version or a failing disk is
// the operator's.
bool counts_as_absent(ErrorCode code) {
    return code == ErrorCode::NOT_FOUND || code == ErrorCode::DAMAGED;
}

}  // namespace

Result<OpenedWindows> open_windows(Fiber& fiber, Env& env, const std::string& folder,
                                   PartitionLog& log, Sequence through) {
    const std::string path = join_path(folder, std::string(WINDOW_FILE_NAME));
    ProducerWindows::Decoded state;
    Sequence known_committed;
    Result<ProducerWindows::Decoded> loaded = load(fiber, env.disk, path);
    if (loaded.ok()) known_committed = loaded->through;
    if (loaded.ok() && loaded->through <= through) {
        state = std::move(loaded).value();
    } else if (loaded.ok()) {
        env.log.warn("producer_windows_ahead", {{"path", path}});
    } else if (!counts_as_absent(loaded.error().code)) {
        return std::move(loaded).error();
    } else if (!loaded.is(ErrorCode::NOT_FOUND)) {
        env.log.warn("producer_windows_damaged", {{"detail", loaded.error().detail}});
    }
    MORTAR_SOMETIMES(through > state.through && state.through > Sequence(0),
                     "windows: fed from the tail");
    while (state.through < through) {
        const RecordBatch batch =
            MORTAR_TRY(log.read(fiber, state.through.next(), through, WINDOW_REBUILD_READ_BYTES));
        MORTAR_ASSERT(!batch.records.empty());
        for (const Record& record : batch.records) {
            MORTAR_ASSERT(record.sequence == state.through.next());
            state.windows.on_record(record.producer_id, record.producer_seq, record.sequence);
            state.through = record.sequence;
        }
    }
    return OpenedWindows{std::move(state.windows), known_committed};
}

Result<void> save_windows(Fiber& fiber, Disk& disk, const std::string& folder,
                          const ProducerWindows& windows, Sequence through, Event& changed,
                          const std::function<Result<WindowFate>()>& fate) {
    if (through == Sequence(0)) return {};  // no folder yet, nothing to remember
    const std::string name(WINDOW_FILE_NAME);
    const std::string tmp_name = name + std::string(TMP_SUFFIX);
    const ByteVector bytes = windows.encode(through);
    MORTAR_TRY(write_new_file(fiber, disk, join_path(folder, tmp_name), bytes));
    // Windows ahead of the log would remember records that a crash or another leader may still take away.
    while (true) {
        switch (MORTAR_TRY(fate())) {
            case WindowFate::SAVE:
                return publish_file(fiber, disk, folder, tmp_name, name);
            case WindowFate::DROP:
                return {};
            case WindowFate::WAIT:
                MORTAR_TRY(changed.wait(fiber));
                break;
        }
    }
}

}  // namespace mortar
