#include "core/log/files.h"

namespace mortar {

Result<ByteVector> read_file(Fiber& fiber, Disk& disk, const std::string& path, std::size_t bytes_max) {
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::READ));
    const std::uint64_t size_bytes = MORTAR_TRY(file->size(fiber));
    ByteVector bytes(static_cast<std::size_t>(std::min<std::uint64_t>(size_bytes, bytes_max)));
    const std::size_t count = MORTAR_TRY(file->read_at(fiber, 0, bytes));
    bytes.resize(count);
    return bytes;
}

Result<void> replace_file(Fiber& fiber, Disk& disk, const std::string& folder, const std::string& name,
                          ByteSpan bytes, Durability durability) {
    const std::string path = folder + "/" + name;
    const std::string tmp_path = path + std::string(TMP_SUFFIX);
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, tmp_path, OpenMode::CREATE));
    MORTAR_TRY(file->truncate(fiber, 0));
    MORTAR_TRY(file->write_at(fiber, 0, std::span(&bytes, 1)));
    if (durability == Durability::SYNCED) MORTAR_TRY(file->sync_data(fiber));
    MORTAR_TRY(disk.rename(fiber, tmp_path, path));
    if (durability == Durability::SYNCED) MORTAR_TRY(disk.sync_folder(fiber, folder));
    return {};
}

Error unsupported_version(const std::string& path, unsigned version, unsigned version_known) {
    return make_error(ErrorCode::UNSUPPORTED_FORMAT,
                      path + ": version " + std::to_string(version) + ", this program reads version " +
                          std::to_string(version_known) + ": start a newer program");
}

}  // namespace mortar
