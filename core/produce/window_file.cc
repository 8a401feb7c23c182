#include "core/produce/window_file.h"

#include <algorithm>

namespace mortar {
namespace {

// The most that encode can give; more than that is damage.
constexpr std::uint64_t FILE_BYTES_MAX = 32 + PRODUCER_COUNT_MAX * (20 + PRODUCER_WINDOW_COUNT * 20);

Result<ByteVector> read_file(Fiber& fiber, Disk& disk, const std::string& path) {
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::READ));
    const std::uint64_t size_bytes = MORTAR_TRY(file->size(fiber));
    if (size_bytes > FILE_BYTES_MAX) return make_error(ErrorCode::DAMAGED, path + ": too large");
    ByteVector bytes(size_bytes);
    std::size_t read_bytes = 0;
    while (read_bytes < bytes.size()) {
        const std::size_t count = MORTAR_TRY(
            file->read_at(fiber, read_bytes, MutableByteSpan(bytes).subspan(read_bytes)));
        if (count == 0) return make_error(ErrorCode::DAMAGED, path + ": shorter than its size");
        read_bytes += count;
    }
    return bytes;
}

Result<ProducerWindows::Decoded> load(Fiber& fiber, Disk& disk, const std::string& path) {
    const ByteVector bytes = MORTAR_TRY(read_file(fiber, disk, path));
    return ProducerWindows::decode(bytes, path);
}

// Windows are derived: what cannot be read is made again, but a newer version or a failing disk is the operator's.
bool counts_as_absent(ErrorCode code) {
    return code == ErrorCode::NOT_FOUND || code == ErrorCode::DAMAGED;
}

}  // namespace

Result<ProducerWindows> open_windows(Fiber& fiber, Env& env, const std::string& folder, PartitionLog& log) {
    const std::string path = folder + "/" + std::string(WINDOW_FILE_NAME);
    const Sequence last = log.flushed_sequence();
    ProducerWindows::Decoded state;
    Result<ProducerWindows::Decoded> loaded = load(fiber, env.disk, path);
    if (loaded.ok() && loaded->through <= last) {
        state = std::move(loaded).value();
    } else if (loaded.ok()) {
        env.log.warn("producer_windows_ahead", {{"path", path}});
    } else if (!counts_as_absent(loaded.error().code)) {
        return std::move(loaded).error();
    } else if (loaded.is(ErrorCode::DAMAGED)) {
        env.log.warn("producer_windows_damaged", {{"detail", loaded.error().detail}});
    }
    MORTAR_SOMETIMES(last > state.through && state.through > Sequence(0), "windows: fed from the tail");
    while (state.through < last) {
        const RecordBatch batch =
            MORTAR_TRY(log.read(fiber, state.through.next(), last, WINDOW_REBUILD_READ_BYTES));
        MORTAR_ASSERT(!batch.records.empty());
        for (const Record& record : batch.records) {
            MORTAR_ASSERT(record.sequence == state.through.next());
            state.windows.on_record(record.producer_id, record.producer_seq, record.sequence);
            state.through = record.sequence;
        }
    }
    return std::move(state.windows);
}

Result<void> save_windows(Fiber& fiber, Disk& disk, const std::string& folder, const ProducerWindows& windows,
                          PartitionLog& log, Event& flushed) {
    const Sequence through = log.last_sequence();
    if (through == Sequence(0)) return {};  // no folder yet, nothing to remember
    const ByteVector bytes = windows.encode(through);
    const std::string path = folder + "/" + std::string(WINDOW_FILE_NAME);
    const std::string tmp_path = path + ".tmp";
    {
        const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, tmp_path, OpenMode::CREATE));
        const ByteSpan parts[] = {bytes};
        MORTAR_TRY(file->truncate(fiber, bytes.size()));
        MORTAR_TRY(file->write_at(fiber, 0, parts));
        MORTAR_TRY(file->sync_data(fiber));
    }
    // Windows ahead of the log would remember records that a crash may still take away.
    while (log.flushed_sequence() < through) {
        if (log.failure().has_value()) return *log.failure();
        MORTAR_TRY(flushed.wait(fiber));
    }
    MORTAR_TRY(disk.rename(fiber, tmp_path, path));
    return disk.sync_folder(fiber, folder);
}

}  // namespace mortar
