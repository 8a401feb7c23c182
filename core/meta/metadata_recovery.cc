#include "core/meta/metadata_recovery.h"

#include <algorithm>
#include <optional>

#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"

namespace mortar {
namespace {
constexpr std::string_view QUARANTINE = "quarantine";
constexpr std::string_view MARKER_PREFIX = "quarantine-";
constexpr std::string_view MARKER_SUFFIX = ".txt";
constexpr std::string_view MARKER_TMP = "quarantine.tmp";
constexpr std::uint64_t SNAPSHOT_BYTES_MAX = std::uint64_t{2} << 30;
constexpr std::size_t WINDOW_BYTES = 1u << 20;
static_assert(WINDOW_BYTES >= 2 * METADATA_RECORD_BYTES_MAX);

struct LogFile {
    MutationId first;
    std::string path;
    bool has_sound_head = false;
};

struct SnapshotFile {
    MutationId offset;
    std::string name;
    std::optional<Catalog> state;  // absent when damaged
};

struct Inventory {
    std::vector<LogFile> logs;            // ascending
    std::vector<SnapshotFile> snapshots;  // ascending
    std::optional<std::uint64_t> unfinished_quarantine;
    bool has_durable_mark = false;
};

Error damaged(std::string detail) {
    return make_error(ErrorCode::DAMAGED, std::move(detail));
}
bool is_damage(const Error& error) {
    return error.code == ErrorCode::DAMAGED || error.code == ErrorCode::CHECKSUM_MISMATCH;
}

// An absent folder has no entries.
Result<std::vector<DirEntry>> list_if_present(Fiber& fiber, Disk& disk, const std::string& folder) {
    Result<std::vector<DirEntry>> entries = disk.list(fiber, folder);
    if (entries.is(ErrorCode::NOT_FOUND)) return std::vector<DirEntry>{};
    return entries;
}

// Reads a log file in large steps and finds records in it.
class LogWindow {
  public:
    LogWindow(File& file, std::uint64_t size_bytes) : file_(file), size_bytes_(size_bytes) {}

    // The sound record that starts at file_offset, if there is one. Its payload lives until the next call.
    Result<std::optional<RawMetadataRecord>> record_at(Fiber& fiber, std::uint64_t file_offset) {
        const ByteSpan bytes = MORTAR_TRY(view(fiber, file_offset, METADATA_RECORD_BYTES_MAX));
        const Result<RawMetadataRecord> record = parse_metadata_record(bytes);
        if (!record.ok()) return std::optional<RawMetadataRecord>{};
        return std::optional<RawMetadataRecord>(*record);
    }

    // Where the first sound record at or behind file_offset stands whose id is not below `least`.
    // Older ones are what a reused block of the disk may hold.
    Result<std::optional<std::uint64_t>> find_from(Fiber& fiber, std::uint64_t file_offset,
                                                   MutationId least) {
        for (std::uint64_t at = file_offset; at < size_bytes_; at += METADATA_ALIGN_BYTES) {
            const std::optional<RawMetadataRecord> record = MORTAR_TRY(record_at(fiber, at));
            if (record.has_value() && record->mutation_id >= least)
                return std::optional<std::uint64_t>(at);
        }
        return std::optional<std::uint64_t>{};
    }

    Result<bool> is_zero_from(Fiber& fiber, std::uint64_t file_offset) {
        while (file_offset < size_bytes_) {
            const ByteSpan bytes = MORTAR_TRY(view(fiber, file_offset, METADATA_ALIGN_BYTES));
            const auto nonzero = [](std::byte b) { return b != std::byte{0}; };
            if (std::any_of(bytes.begin(), bytes.end(), nonzero)) return false;
            if (bytes.empty()) break;
            file_offset += bytes.size();
        }
        return true;
    }

  private:
    // From file_offset on: at least want bytes, or all up to the end of the file.
    Result<ByteSpan> view(Fiber& fiber, std::uint64_t file_offset, std::size_t want) {
        if (file_offset >= size_bytes_) return ByteSpan{};
        const std::uint64_t need_end = std::min<std::uint64_t>(file_offset + want, size_bytes_);
        if (file_offset < start_ || need_end > start_ + buffer_.size()) {
            buffer_.resize(static_cast<std::size_t>(
                std::min<std::uint64_t>(WINDOW_BYTES, size_bytes_ - file_offset)));
            start_ = file_offset;
            const std::size_t count = MORTAR_TRY(file_.read_at(fiber, file_offset, buffer_));
            buffer_.resize(count);
        }
        return ByteSpan(buffer_).subspan(static_cast<std::size_t>(file_offset - start_));
    }

    File& file_;
    std::uint64_t size_bytes_;
    ByteVector buffer_;
    std::uint64_t start_ = 0;
};

// The state at the end of the log so far, and what of it is committed.
struct Replay {
    Catalog end;
    MutationId committed;
    RecoveredMetadata result;
};

Result<void> take_record(const RawMetadataRecord& record, const std::string& path, Replay& replay) {
    const std::string where = path + ": mutation " + std::to_string(record.mutation_id.value);
    Result<Mutation> mutation = decode_metadata_record(record);
    if (!mutation.ok()) return damaged(where + ": " + mutation.error().detail);
    if (mutation->leader_epoch < replay.end.last_leader_epoch()) {
        return damaged(where + ": leader_epoch goes back");
    }
    const Result<void> fits = replay.end.validate(mutation->body);
    if (!fits.ok()) return damaged(where + " does not fit the state: " + fits.error().to_string());
    if (mutation->mutation_id == replay.committed.next()) replay.result.catalog = replay.end;
    replay.end.apply(*mutation);
    if (mutation->mutation_id > replay.committed)
        replay.result.tail.push_back(std::move(mutation).value());
    return {};
}

class Recovery {
  public:
    Recovery(Env& env, std::string folder) : env_(env), folder_(std::move(folder)) {}

    Result<RecoveredMetadata> run(Fiber& fiber) {
        MORTAR_TRY(take_inventory(fiber));
        if (inventory_.unfinished_quarantine.has_value()) {
            MORTAR_TRY(finish_quarantine(fiber, *inventory_.unfinished_quarantine));
            return quarantined("an unfinished quarantine was finished");
        }
        MORTAR_TRY(read_durable_mark(fiber));
        if (inventory_.logs.empty() && inventory_.snapshots.empty())
            return run_without_files(fiber);
        MORTAR_TRY(check_log_heads(fiber));
        MORTAR_TRY(read_snapshots(fiber));
        return choose(fiber);
    }

  private:
    Result<void> take_inventory(Fiber& fiber) {
        for (const DirEntry& entry : MORTAR_TRY(list_if_present(fiber, env_.disk, folder_))) {
            if (entry.is_folder) {
                if (entry.name != QUARANTINE) report_unknown(entry.name);
            } else if (const auto first = parse_metadata_log_name(entry.name)) {
                inventory_.logs.push_back({*first, join_path(folder_, entry.name)});
            } else if (const auto snapshot = parse_metadata_snapshot_name(entry.name)) {
                inventory_.snapshots.push_back({snapshot->offset, entry.name, {}});
            } else if (const auto n =
                           parse_number_between(entry.name, MARKER_PREFIX, MARKER_SUFFIX)) {
                inventory_.unfinished_quarantine = n;
            } else if (entry.name == METADATA_DURABLE_NAME) {
                inventory_.has_durable_mark = true;
            } else if (!entry.name.ends_with(".tmp")) {
                report_unknown(entry.name);
            }
        }
        const auto by_first = [](const LogFile& a, const LogFile& b) { return a.first < b.first; };
        std::sort(inventory_.logs.begin(), inventory_.logs.end(), by_first);
        const auto by_offset = [](const SnapshotFile& a, const SnapshotFile& b) {
            return a.offset != b.offset ? a.offset < b.offset : a.name < b.name;
        };
        std::sort(inventory_.snapshots.begin(), inventory_.snapshots.end(), by_offset);
        return {};
    }

    // A mark that cannot be read says nothing: it is made again with the next one.
    Result<void> read_durable_mark(Fiber& fiber) {
        if (!inventory_.has_durable_mark) return {};
        const std::string path = join_path(folder_, std::string(METADATA_DURABLE_NAME));
        const ByteVector bytes =
            MORTAR_TRY(read_file_start(fiber, env_.disk, path, METADATA_DURABLE_BYTES));
        const Result<MutationId> through = parse_metadata_durable(bytes, path);
        if (through.is(ErrorCode::UNSUPPORTED_FORMAT)) return through.error();
        if (!through.ok()) env_.log.error("metadata_durable_mark_damaged", {{"path", path}});
        if (through.ok()) known_durable_ = *through;
        return {};
    }

    // A first start, or all that this node knew about its topics is gone.
    Result<RecoveredMetadata> run_without_files(Fiber& fiber) {
        const auto set_aside_before = MORTAR_TRY(
            list_if_present(fiber, env_.disk, join_path(folder_, std::string(QUARANTINE))));
        if (!set_aside_before.empty()) return quarantined("metadata is in quarantine");
        if (known_durable_ > MutationId{})
            return quarantined("there is no metadata, but it was durable up to mutation " +
                               std::to_string(known_durable_.value));
        for (const char* sibling : {"topics", "groups"}) {
            const std::size_t slash = folder_.rfind('/');
            const std::string parent = slash == std::string::npos ? "" : folder_.substr(0, slash);
            const std::string path = join_path(parent, sibling);
            if (!MORTAR_TRY(list_if_present(fiber, env_.disk, path)).empty()) {
                return quarantined("there is no metadata, but there is data in " + path);
            }
        }
        return RecoveredMetadata{};
    }

    Result<void> check_log_heads(Fiber& fiber) {
        for (LogFile& log : inventory_.logs) {
            const auto file = MORTAR_TRY(env_.disk.open(fiber, log.path, OpenMode::READ));
            ByteVector head(METADATA_LOG_HEAD_BYTES);
            head.resize(MORTAR_TRY(file->read_at(fiber, 0, head)));
            const Result<void> checked = check_metadata_log_head(head, log.path);
            if (checked.is(ErrorCode::UNSUPPORTED_FORMAT)) return checked;
            log.has_sound_head = checked.ok();
        }
        return {};
    }

    Result<void> read_snapshots(Fiber& fiber) {
        for (SnapshotFile& snapshot : inventory_.snapshots) {
            const std::string path = join_path(folder_, snapshot.name);
            const ByteVector bytes =
                MORTAR_TRY(read_whole_file(fiber, env_.disk, path, SNAPSHOT_BYTES_MAX));
            Result<Catalog> state = parse_metadata_snapshot(bytes, path);
            if (state.is(ErrorCode::UNSUPPORTED_FORMAT)) return std::move(state).error();
            if (state.ok() && state->last_mutation() == snapshot.offset) {
                snapshot.state = std::move(state).value();
            } else {
                env_.log.error("metadata_snapshot_damaged", {{"path", path}});
            }
        }
        return {};
    }

    Result<RecoveredMetadata> choose(Fiber& fiber) {
        std::string reason;
        for (auto at = inventory_.snapshots.rbegin(); at != inventory_.snapshots.rend(); ++at) {
            if (!at->state.has_value()) continue;
            Result<RecoveredMetadata> recovered = replay(fiber, *at->state);
            if (recovered.ok() || !is_damage(recovered.error())) return recovered;
            if (reason.empty()) reason = recovered.error().detail;
        }
        Result<RecoveredMetadata> recovered = replay(fiber, Catalog{});
        if (recovered.ok() || !is_damage(recovered.error())) return recovered;
        if (reason.empty()) reason = recovered.error().detail;
        MORTAR_TRY(begin_quarantine(fiber, reason));
        return quarantined(reason);
    }

    // The state from base and all log behind it. DAMAGED when it may lack an acknowledged mutation.
    Result<RecoveredMetadata> replay(Fiber& fiber, const Catalog& base) {
        Replay replay;
        replay.end = base;
        // A snapshot and a new log file are begun with what is committed.
        if (!inventory_.snapshots.empty()) replay.committed = inventory_.snapshots.back().offset;
        if (!inventory_.logs.empty()) {
            replay.committed =
                std::max(replay.committed, MutationId(inventory_.logs.back().first.value - 1));
        }
        RecoveredMetadata& recovered = replay.result;
        recovered.base = base.last_mutation();
        recovered.known_durable = known_durable_;
        const auto& logs = inventory_.logs;
        const auto first_behind = std::upper_bound(
            logs.begin(), logs.end(), base.last_mutation().next(),
            [](MutationId needed, const LogFile& log) { return needed < log.first; });
        if (first_behind == logs.begin()) {
            return damaged(folder_ + ": no log file holds mutation " +
                           std::to_string(base.last_mutation().next().value));
        }
        for (auto log = first_behind - 1; log != logs.end(); ++log) {
            const bool is_last = log + 1 == logs.end();
            const MutationId end = is_last ? MutationId{} : (log + 1)->first;
            recovered.is_tail_clean = MORTAR_TRY(replay_file(fiber, *log, end, replay));
        }
        const MutationId last = replay.end.last_mutation();
        for (const SnapshotFile& snapshot : inventory_.snapshots) {
            if (snapshot.offset > last) {
                return damaged(snapshot.name + " is beyond the end of the log and cannot be read");
            }
            if (!snapshot.state.has_value()) recovered.damaged_snapshots.push_back(snapshot.name);
        }
        if (last < known_durable_) {
            return damaged(folder_ + " ends at mutation " + std::to_string(last.value) +
                           ", but it was durable up to " + std::to_string(known_durable_.value));
        }
        if (recovered.tail.empty()) recovered.catalog = std::move(replay.end);
        return std::move(recovered);
    }

    // end: the mutation with which the next file begins; 0 for the last file. True when the file holds nothing yet.
    Result<bool> replay_file(Fiber& fiber, const LogFile& log, MutationId end, Replay& replay) {
        const Catalog& catalog = replay.end;
        if (!log.has_sound_head) return damaged(log.path + " does not begin as a metadata log");
        const auto file = MORTAR_TRY(env_.disk.open(fiber, log.path, OpenMode::READ));
        const std::uint64_t size_bytes = MORTAR_TRY(file->size(fiber));
        LogWindow window(*file, size_bytes);
        std::uint64_t file_offset = METADATA_ALIGN_BYTES;
        MutationId expected = log.first;
        // What stands behind the last record of an older file is a torn tail that a restart left there.
        while (expected != end) {
            const auto record = MORTAR_TRY(window.record_at(fiber, file_offset));
            if (record.has_value() && record->mutation_id == expected) {
                if (expected == catalog.last_mutation().next()) {
                    MORTAR_TRY(take_record(*record, log.path, replay));
                }
                file_offset += metadata_aligned(record->record_bytes());
                expected = expected.next();
                continue;
            }
            const auto found = MORTAR_TRY(window.find_from(fiber, file_offset, expected));
            if (!found.has_value()) break;
            const auto behind = MORTAR_TRY(window.record_at(fiber, *found));
            // A hole in what the snapshot already covers harms nobody.
            if (behind->mutation_id > catalog.last_mutation().next()) {
                return damaged(log.path + ": mutation " + std::to_string(expected.value) +
                               " is damaged, but mutation " +
                               std::to_string(behind->mutation_id.value) + " behind it is not");
            }
            expected = behind->mutation_id;
            file_offset = *found;
        }
        if (expected == end) return false;
        if (end != MutationId{}) {
            return damaged(log.path + " ends before mutation " + std::to_string(expected.value));
        }
        // One record at a time is in flight: more than one cannot be torn.
        const bool is_zero = MORTAR_TRY(
            window.is_zero_from(fiber, file_offset + metadata_aligned(METADATA_RECORD_BYTES_MAX)));
        if (!is_zero) {
            return damaged(log.path + ": more than one record is damaged behind mutation " +
                           std::to_string(expected.value - 1));
        }
        replay.result.is_tail_torn = !MORTAR_TRY(window.is_zero_from(fiber, file_offset));
        MORTAR_SOMETIMES(replay.result.is_tail_torn, "metadata log has a torn tail");
        return size_bytes <= METADATA_ALIGN_BYTES && log.first == catalog.last_mutation().next();
    }

    // The marker comes first: half moved files could look like a sound, shorter history.
    Result<void> begin_quarantine(Fiber& fiber, const std::string& reason) {
        const std::uint64_t n = MORTAR_TRY(next_quarantine(fiber));
        const std::string text = reason + "\n";
        const std::string marker =
            std::string(MARKER_PREFIX) + std::to_string(n) + std::string(MARKER_SUFFIX);
        const std::string tmp(MARKER_TMP);
        MORTAR_TRY(write_new_file(fiber, env_.disk, join_path(folder_, tmp), as_byte_span(text)));
        MORTAR_TRY(publish_file(fiber, env_.disk, folder_, tmp, marker));
        return finish_quarantine(fiber, n);
    }

    Result<void> finish_quarantine(Fiber& fiber, std::uint64_t n) {
        const std::string marker =
            std::string(MARKER_PREFIX) + std::to_string(n) + std::string(MARKER_SUFFIX);
        const std::string into = quarantine_folder(n);
        MORTAR_TRY(make_folders_durably(fiber, env_.disk, into));
        std::vector<std::string> names;
        for (const DirEntry& entry : MORTAR_TRY(env_.disk.list(fiber, folder_))) {
            if (entry.name != QUARANTINE && entry.name != marker) names.push_back(entry.name);
        }
        MORTAR_TRY(move(fiber, names, into));
        return move(fiber, {marker}, into);
    }

  public:
    Result<std::uint64_t> next_quarantine(Fiber& fiber) {
        std::uint64_t n = 1;
        const std::string folder = join_path(folder_, std::string(QUARANTINE));
        for (const DirEntry& entry : MORTAR_TRY(list_if_present(fiber, env_.disk, folder))) {
            const auto taken = parse_number_between(entry.name, "", "");
            if (taken.has_value() && *taken >= n) n = *taken + 1;
        }
        return n;
    }

    std::string quarantine_folder(std::uint64_t n) const {
        return join_path(join_path(folder_, std::string(QUARANTINE)), std::to_string(n));
    }

    Result<void> move(Fiber& fiber, const std::vector<std::string>& names,
                      const std::string& into) {
        for (const std::string& name : names) {
            MORTAR_TRY(env_.disk.rename(fiber, join_path(folder_, name), join_path(into, name)));
        }
        // The new place first: between the two a file may be seen twice, never not at all.
        MORTAR_TRY(env_.disk.sync_folder(fiber, into));
        return env_.disk.sync_folder(fiber, folder_);
    }

  private:
    RecoveredMetadata quarantined(const std::string& reason) {
        env_.log.error("metadata_quarantined", {{"folder", folder_}, {"reason", reason}});
        RecoveredMetadata recovered;
        recovered.is_quarantined = true;
        return recovered;
    }

    void report_unknown(const std::string& name) {
        env_.log.warn("unknown_file", {{"path", join_path(folder_, name)}});
    }

    Env& env_;
    std::string folder_;
    Inventory inventory_;
    MutationId known_durable_;
};
}  // namespace

Result<RecoveredMetadata> recover_metadata(Fiber& fiber, Env& env, const std::string& folder) {
    return Recovery(env, folder).run(fiber);
}

Result<void> set_aside(Fiber& fiber, Env& env, const std::string& folder,
                       const std::vector<std::string>& names) {
    Recovery recovery(env, folder);
    const std::string into =
        recovery.quarantine_folder(MORTAR_TRY(recovery.next_quarantine(fiber)));
    MORTAR_TRY(make_folders_durably(fiber, env.disk, into));
    return recovery.move(fiber, names, into);
}

}  // namespace mortar
