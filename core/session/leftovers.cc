#include "core/session/leftovers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/deliver/ledger.h"
#include "core/log/partition_log.h"
#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"

namespace mortar {
namespace {

constexpr std::string_view TOPICS = "topics";
constexpr std::string_view GROUPS = "groups";
constexpr std::string_view ROOT_NAMES[] = {"LOCK",     "auth",    "groups", "identity",
                                           "metadata", "replica", "topics"};

enum class Standing : std::uint8_t { IN_USE, DELETED, UNKNOWN };

using RemovePartition = Result<void> (*)(Fiber& fiber, Env& env, const std::string& folder);

Result<void> remove_ledger_files(Fiber& fiber, Env& env, const std::string& folder) {
    return Ledger::remove_files(fiber, env, folder);
}

void report_unknown(Env& env, const std::string& path) {
    env.log.warn("unknown_entry_left_alone", {{"path", path}});
}

// The number that the name of a folder is.
template <class Id>
std::optional<Id> id_of(const DirEntry& entry) {
    const std::optional<std::uint64_t> number = parse_number_between(entry.name, "", "");
    if (!entry.is_folder || !number || *number > UINT16_MAX) return std::nullopt;
    return Id(static_cast<std::uint16_t>(*number));
}

template <class Id, class Known>
Standing standing_of(const DirEntry& entry, const Catalog& catalog, const Known& known) {
    const std::optional<Id> id = id_of<Id>(entry);
    if (!id || !catalog.was_given_out(*id)) return Standing::UNKNOWN;
    return known.contains(*id) ? Standing::IN_USE : Standing::DELETED;
}

// One folder a partition, and the folder around them.
Result<void> remove_tree(Fiber& fiber, Env& env, const std::string& folder,
                         RemovePartition remove_partition) {
    for (DirEntry& entry : MORTAR_TRY(env.disk.list(fiber, folder))) {
        // One whose removal was cut short goes with the name that it had.
        if (entry.name.ends_with(TMP_SUFFIX))
            entry.name.resize(entry.name.size() - TMP_SUFFIX.size());
        const std::string path = join_path(folder, entry.name);
        if (id_of<PartitionIndex>(entry)) {
            MORTAR_TRY(remove_partition(fiber, env, path));
        } else {
            report_unknown(env, path);
        }
    }
    // Refused when something unknown is in it.
    MORTAR_TRY(env.disk.remove(fiber, folder));
    env.log.info("leftover_removed", {{"path", folder}});
    return {};
}

template <class Id, class Known>
Result<void> sweep(Fiber& fiber, Env& env, std::string_view parent, const MetadataLog& metadata,
                   const Known& known, RemovePartition remove_partition) {
    const std::string folder(parent);
    const Result<std::vector<DirEntry>> entries = env.disk.list(fiber, folder);
    if (entries.is(ErrorCode::NOT_FOUND)) return {};
    if (!entries.ok()) return entries.error();
    for (const DirEntry& entry : *entries) {
        const std::string path = join_path(folder, entry.name);
        const Standing standing = standing_of<Id>(entry, metadata.catalog(), known);
        // It may have been created by what follows.
        if (standing == Standing::UNKNOWN && id_of<Id>(entry) && !metadata.is_all_applied())
            continue;
        if (standing == Standing::UNKNOWN) report_unknown(env, path);
        if (standing != Standing::DELETED) continue;
        MORTAR_SOMETIMES(true, "leftovers: folder of a deleted topic or group");
        const Result<void> removed = remove_tree(fiber, env, path, remove_partition);
        if (!removed.ok())
            env.log.warn("leftover_not_removed",
                         {{"path", path}, {"reason", removed.error().to_string()}});
    }
    return {};
}

Result<void> report_unknown_in_root(Fiber& fiber, Env& env) {
    for (const DirEntry& entry : MORTAR_TRY(env.disk.list(fiber, ""))) {
        const bool is_known = std::find(std::begin(ROOT_NAMES), std::end(ROOT_NAMES), entry.name) !=
                              std::end(ROOT_NAMES);
        if (!is_known && !entry.name.ends_with(TMP_SUFFIX)) report_unknown(env, entry.name);
    }
    return {};
}

}  // namespace

void remove_leftovers(Fiber& fiber, Env& env, const MetadataLog& metadata) {
    const auto note = [&env](std::string_view folder, const Result<void>& looked) {
        if (!looked.ok())
            env.log.warn("folder_not_looked_through",
                         {{"path", std::string(folder)}, {"reason", looked.error().to_string()}});
    };
    note(".", report_unknown_in_root(fiber, env));
    if (metadata.is_quarantined()) return;
    const Catalog& catalog = metadata.catalog();
    note(TOPICS, sweep<TopicId>(fiber, env, TOPICS, metadata, catalog.topics(), remove_log_files));
    note(GROUPS,
         sweep<GroupId>(fiber, env, GROUPS, metadata, catalog.groups(), remove_ledger_files));
}

Result<void> remove_group_leftovers(Fiber& fiber, Env& env, GroupId group_id) {
    Result<void> removed =
        remove_tree(fiber, env, join_path(std::string(GROUPS), std::to_string(group_id.value)),
                    remove_ledger_files);
    if (removed.is(ErrorCode::NOT_FOUND)) return {};
    return removed;
}

}  // namespace mortar
