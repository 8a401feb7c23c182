#include "core/replica/promise.h"

#include <algorithm>

#include "core/base/hash.h"
#include "core/log/whole_file.h"

namespace mortar {
namespace {

constexpr std::size_t CHECKED_FROM_BYTES = 4 + 1 + 4;
constexpr std::size_t FILE_BYTES = CHECKED_FROM_BYTES + 2 + 16 + 8;
constexpr const char* FOLDER = "replica";
constexpr const char* NAME = "state";
constexpr const char* TMP_NAME = "state.tmp";

Error damaged(std::string_view what) {
    return make_error(ErrorCode::DAMAGED, std::string("replica/state: ").append(what));
}

}  // namespace

ByteVector encode_promise(const Promise& promise) {
    ByteVector file;
    ByteWriter writer(file);
    writer.bytes(as_byte_span(PROMISE_MAGIC));
    writer.u8(PROMISE_VERSION);
    writer.u32(0);
    writer.id(promise.node_id);
    writer.bytes(promise.cluster_id);
    writer.id(promise.leader_epoch);
    store_be(file.data() + CHECKED_FROM_BYTES - sizeof(std::uint32_t),
             crc32c(ByteSpan(file).subspan(CHECKED_FROM_BYTES)));
    return file;
}

Result<Promise> decode_promise(ByteSpan file) {
    ByteReader reader(file);
    const ByteSpan magic = reader.bytes(PROMISE_MAGIC.size());
    const std::uint8_t version = reader.u8();
    const std::uint32_t checksum = reader.u32();
    if (reader.failed() || as_string_view(magic) != PROMISE_MAGIC)
        return damaged("it does not begin as one");
    if (version != PROMISE_VERSION)
        return unsupported_version(join_path(FOLDER, NAME), version, PROMISE_VERSION);
    if (file.size() != FILE_BYTES) return damaged("wrong length");
    if (crc32c(file.subspan(CHECKED_FROM_BYTES)) != checksum) return damaged("wrong checksum");
    Promise promise;
    promise.node_id = reader.id<NodeId>();
    std::ranges::copy(reader.bytes(promise.cluster_id.size()), promise.cluster_id.begin());
    promise.leader_epoch = reader.id<LeaderEpoch>();
    return promise;
}

Result<std::optional<Promise>> load_promise(Fiber& fiber, Disk& disk) {
    const Result<ByteVector> file =
        read_whole_file(fiber, disk, join_path(FOLDER, NAME), FILE_BYTES);
    if (file.is(ErrorCode::NOT_FOUND)) return std::optional<Promise>();
    if (!file.ok()) return file.error();
    return std::optional<Promise>(MORTAR_TRY(decode_promise(*file)));
}

Result<void> save_promise(Fiber& fiber, Disk& disk, const Promise& promise) {
    MORTAR_TRY(make_folders_durably(fiber, disk, FOLDER));
    MORTAR_TRY(write_new_file(fiber, disk, join_path(FOLDER, TMP_NAME), encode_promise(promise)));
    return publish_file(fiber, disk, FOLDER, TMP_NAME, NAME);
}

}  // namespace mortar
