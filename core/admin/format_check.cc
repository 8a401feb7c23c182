#include "core/admin/format_check.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/deliver/cursor.h"
#include "core/deliver/ledger.h"
#include "core/log/checkpoint.h"
#include "core/log/segment.h"
#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"
#include "core/produce/producer_window.h"

namespace mortar {
namespace {

// In all our files the version of the format follows the magic; logs have one of the record's
// header behind it.
struct Format {
    std::string_view magic;
    std::string_view name_ending;
    std::uint8_t version;
    std::uint8_t header_version;  // 0: none
};
constexpr std::array FORMATS = {
    Format{SEGMENT_MAGIC, ".seg", SEGMENT_FORMAT_VERSION, SEGMENT_HEADER_VERSION},
    Format{CHECKPOINT_MAGIC, "checkpoint.mqc", CHECKPOINT_VERSION, 0},
    Format{PRODUCER_WINDOWS_MAGIC, ".mqp", PRODUCER_WINDOWS_VERSION, 0},
    Format{METADATA_LOG_MAGIC, ".mml", METADATA_FORMAT_VERSION, METADATA_HEADER_VERSION},
    Format{METADATA_SNAPSHOT_MAGIC, ".bin", METADATA_FORMAT_VERSION, 0},
    Format{LEDGER_MAGIC, ".mql", LEDGER_VERSION, 0},
    Format{CURSOR_MAGIC, "cursor.mqc", CURSOR_VERSION, 0},
};
constexpr std::size_t MAGIC_BYTES = 4;
constexpr std::size_t HEAD_BYTES = MAGIC_BYTES + 2;
// What is in quarantine waits for a human, whatever its version.
constexpr std::string_view LEFT_ALONE = "metadata/quarantine";

Result<void> check_file(Fiber& fiber, Disk& disk, const std::string& path, const Format& format) {
    const std::unique_ptr<File> file = MORTAR_TRY(disk.open(fiber, path, OpenMode::READ));
    std::array<std::byte, HEAD_BYTES> head{};
    const std::size_t count = MORTAR_TRY(file->read_at(fiber, 0, head));
    if (count < HEAD_BYTES || as_string_view(ByteSpan(head).first(MAGIC_BYTES)) != format.magic)
        return {};
    const auto version = std::to_integer<std::uint8_t>(head[MAGIC_BYTES]);
    const auto header_version = std::to_integer<std::uint8_t>(head[MAGIC_BYTES + 1]);
    if (version > format.version) return unsupported_version(path, version, format.version);
    if (format.header_version != 0 && header_version > format.header_version)
        return unsupported_version(path + " (header)", header_version, format.header_version);
    return {};
}

}  // namespace

Result<void> refuse_newer_formats(Fiber& fiber, Disk& disk) {
    std::vector<std::string> folders = {"topics", "groups", "metadata"};
    while (!folders.empty()) {
        const std::string folder = std::move(folders.back());
        folders.pop_back();
        if (folder == LEFT_ALONE) continue;
        const Result<std::vector<DirEntry>> entries = disk.list(fiber, folder);
        if (entries.is(ErrorCode::NOT_FOUND) || entries.is(ErrorCode::IO_ERROR)) continue;
        if (!entries.ok()) return entries.error();
        for (const DirEntry& entry : *entries) {
            const std::string path = join_path(folder, entry.name);
            if (entry.is_folder) folders.push_back(path);
            for (const Format& format : FORMATS) {
                if (entry.is_folder || !entry.name.ends_with(format.name_ending)) continue;
                Result<void> checked = check_file(fiber, disk, path, format);
                if (!checked.ok() && !checked.is(ErrorCode::IO_ERROR)) return checked;
            }
        }
    }
    return {};
}

}  // namespace mortar
