#include "core/log/whole_file.h"

#include <algorithm>

namespace mortar {
namespace {

Result<ByteVector> read_first(Fiber& fiber, File& file, std::uint64_t count_bytes) {
    ByteVector bytes(static_cast<std::size_t>(count_bytes));
    const std::size_t count = MORTAR_TRY(file.read_at(fiber, 0, bytes));
    bytes.resize(count);
    return bytes;
}

}  // namespace

std::string join_path(const std::string& folder, const std::string& name) {
    return folder.empty() ? name : folder + "/" + name;
}

Result<void> make_folders_durably(Fiber& fiber, Disk& disk, const std::string& folder) {
    MORTAR_TRY(disk.make_folders(fiber, folder));
    std::string path = folder;
    while (!path.empty()) {
        const std::size_t slash = path.rfind('/');
        path.resize(slash == std::string::npos ? 0 : slash);
        MORTAR_TRY(disk.sync_folder(fiber, path));
    }
    return {};
}

Result<ByteVector> read_whole_file(Fiber& fiber, Disk& disk, const std::string& path,
                                   std::uint64_t bytes_max) {
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::READ));
    const std::uint64_t size_bytes = MORTAR_TRY(file->size(fiber));
    if (size_bytes > bytes_max) {
        return make_error(ErrorCode::DAMAGED, path + " has " + std::to_string(size_bytes) +
                                                  " bytes, at most " + std::to_string(bytes_max) +
                                                  " are read");
    }
    return read_first(fiber, *file, size_bytes);
}

Result<ByteVector> read_file_start(Fiber& fiber, Disk& disk, const std::string& path,
                                   std::uint64_t bytes_max) {
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::READ));
    const std::uint64_t size_bytes = MORTAR_TRY(file->size(fiber));
    return read_first(fiber, *file, std::min(size_bytes, bytes_max));
}

Result<std::unique_ptr<File>> write_new_file(Fiber& fiber, Disk& disk, const std::string& path,
                                             ByteSpan bytes, Durability durability) {
    std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::CREATE));
    // What a crash left under the temporary name goes first.
    MORTAR_TRY(file->truncate(fiber, 0));
    MORTAR_TRY(file->write_at(fiber, 0, std::span(&bytes, 1)));
    if (durability == Durability::SYNCED) MORTAR_TRY(file->sync_data(fiber));
    return file;
}

Result<void> publish_file(Fiber& fiber, Disk& disk, const std::string& folder,
                          const std::string& from_name, const std::string& to_name,
                          Durability durability) {
    MORTAR_TRY(disk.rename(fiber, join_path(folder, from_name), join_path(folder, to_name)));
    if (durability == Durability::UNSYNCED) return {};
    return disk.sync_folder(fiber, folder);
}

Result<std::unique_ptr<File>> replace_file(Fiber& fiber, Disk& disk, const std::string& folder,
                                           const std::string& name, ByteSpan bytes,
                                           Durability durability) {
    const std::string tmp_name = name + std::string(TMP_SUFFIX);
    std::unique_ptr<File> file =
        MORTAR_TRY(write_new_file(fiber, disk, join_path(folder, tmp_name), bytes, durability));
    MORTAR_TRY(publish_file(fiber, disk, folder, tmp_name, name, durability));
    return file;
}

Error unsupported_version(const std::string& path, std::uint64_t version,
                          std::uint64_t version_known) {
    return make_error(ErrorCode::UNSUPPORTED_FORMAT, path + ": version " + std::to_string(version) +
                                                         ", this program reads version " +
                                                         std::to_string(version_known) +
                                                         ": start a newer program");
}

}  // namespace mortar
