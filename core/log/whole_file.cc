#include "core/log/whole_file.h"

namespace mortar {

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
        return make_error(ErrorCode::LIMIT_REACHED, path + " has " + std::to_string(size_bytes) +
                                                        " bytes, at most " + std::to_string(bytes_max) +
                                                        " are read");
    }
    ByteVector bytes(size_bytes);
    const std::size_t count = MORTAR_TRY(file->read_at(fiber, 0, bytes));
    bytes.resize(count);
    return bytes;
}

Result<void> write_new_file(Fiber& fiber, Disk& disk, const std::string& path, ByteSpan bytes) {
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::CREATE));
    // What a crash left under the temporary name goes first.
    MORTAR_TRY(file->truncate(fiber, 0));
    const ByteSpan parts[] = {bytes};
    MORTAR_TRY(file->write_at(fiber, 0, parts));
    return file->sync_data(fiber);
}

Result<void> publish_file(Fiber& fiber, Disk& disk, const std::string& folder, const std::string& from_name,
                          const std::string& to_name) {
    MORTAR_TRY(disk.rename(fiber, join_path(folder, from_name), join_path(folder, to_name)));
    return disk.sync_folder(fiber, folder);
}

}  // namespace mortar
