#include "core/replica/promise.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/hash.h"
#include "core/log/whole_file.h"

namespace mortar {
namespace {

constexpr std::size_t CHECKED_FROM_BYTES = 4 + 1 + 4;
constexpr std::size_t FILE_BYTES_V1 = CHECKED_FROM_BYTES + 2 + 16 + 8;
constexpr std::size_t MARK_BYTES = 2 + 2 + 1 + 8;
constexpr std::size_t FILE_BYTES_MAX =
    CHECKED_FROM_BYTES + 2 + 16 + 8 + 2 + 8 + 2 + 4 + LOG_MARK_COUNT_MAX * MARK_BYTES;
constexpr std::uint8_t FLAG_UNCERTAIN = 1;
constexpr std::uint8_t FLAG_FAULTY = 2;
constexpr const char* FOLDER = "replica";
constexpr const char* NAME = "state";
constexpr const char* TMP_NAME = "state.tmp";

Error damaged(std::string_view what) {
    return make_error(ErrorCode::DAMAGED, std::string("replica/state: ").append(what));
}

void encode_mark(const LogMark& mark, ByteWriter& writer) {
    const bool is_faulty = mark.faulty_from > Sequence(0);
    MORTAR_ASSERT(mark.is_uncertain || is_faulty);
    writer.id(mark.log.topic_id);
    writer.id(mark.log.partition);
    writer.u8(static_cast<std::uint8_t>((mark.is_uncertain ? FLAG_UNCERTAIN : 0) |
                                        (is_faulty ? FLAG_FAULTY : 0)));
    writer.id(mark.faulty_from);
}

Result<LogMark> decode_mark(ByteReader& reader) {
    LogMark mark;
    mark.log.topic_id = reader.id<TopicId>();
    mark.log.partition = reader.id<PartitionIndex>();
    const std::uint8_t flags = reader.u8();
    mark.faulty_from = reader.id<Sequence>();
    mark.is_uncertain = (flags & FLAG_UNCERTAIN) != 0;
    const bool is_faulty = (flags & FLAG_FAULTY) != 0;
    if (flags == 0 || flags > (FLAG_UNCERTAIN | FLAG_FAULTY) ||
        is_faulty != (mark.faulty_from > Sequence(0))) {
        return damaged("a mark that says nothing");
    }
    return mark;
}

Result<void> decode_v2(ByteReader& reader, Promise& promise) {
    promise.promised_epoch = reader.id<LeaderEpoch>();
    promise.promised_to = reader.id<NodeId>();
    promise.installed_epoch = reader.id<LeaderEpoch>();
    promise.member_count = reader.u16();
    const std::uint32_t count = reader.u32();
    if (reader.failed() || count > LOG_MARK_COUNT_MAX || reader.remaining() != count * MARK_BYTES) {
        return damaged("wrong length");
    }
    if (promise.installed_epoch > promise.promised_epoch)
        return damaged("it has installed more than it has promised");
    for (std::uint32_t index = 0; index < count; ++index) {
        const LogMark mark = MORTAR_TRY(decode_mark(reader));
        if (index > 0 && mark.log <= promise.marks.back().log) return damaged("marks out of order");
        promise.marks.push_back(mark);
    }
    return {};
}

// Where the mark of log is, or belongs.
std::vector<LogMark>::const_iterator place_of(const std::vector<LogMark>& marks, PartitionKey log) {
    return std::ranges::lower_bound(marks, log, {}, &LogMark::log);
}
bool has_mark(const std::vector<LogMark>& marks, PartitionKey log) {
    const auto at = place_of(marks, log);
    return at != marks.end() && at->log == log;
}

void add_mark(std::vector<LogMark>& marks, const LogMark& mark) {
    const auto at = marks.begin() + (place_of(marks, mark.log) - marks.cbegin());
    if (!has_mark(marks, mark.log)) {
        marks.insert(at, mark);
        return;
    }
    at->is_uncertain = at->is_uncertain || mark.is_uncertain;
    if (at->faulty_from == Sequence(0)) {
        at->faulty_from = mark.faulty_from;
    } else if (mark.faulty_from > Sequence(0)) {
        at->faulty_from = std::min(at->faulty_from, mark.faulty_from);
    }
}

}  // namespace

ByteVector encode_promise(const Promise& promise) {
    MORTAR_ASSERT(promise.marks.size() <= LOG_MARK_COUNT_MAX);
    MORTAR_ASSERT(promise.installed_epoch <= promise.promised_epoch);
    ByteVector file;
    ByteWriter writer(file);
    writer.bytes(as_byte_span(PROMISE_MAGIC));
    writer.u8(PROMISE_VERSION);
    writer.u32(0);
    writer.id(promise.node_id);
    writer.bytes(promise.cluster_id);
    writer.id(promise.promised_epoch);
    writer.id(promise.promised_to);
    writer.id(promise.installed_epoch);
    writer.u16(promise.member_count);
    writer.u32(static_cast<std::uint32_t>(promise.marks.size()));
    for (const LogMark& mark : promise.marks)
        encode_mark(mark, writer);
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
    if (version > PROMISE_VERSION)
        return unsupported_version(join_path(FOLDER, NAME), version, PROMISE_VERSION);
    if (version == 0) return damaged("version 0");
    if (version == 1 && file.size() != FILE_BYTES_V1) return damaged("wrong length");
    if (crc32c(file.subspan(CHECKED_FROM_BYTES)) != checksum) return damaged("wrong checksum");
    Promise promise;
    promise.node_id = reader.id<NodeId>();
    const ByteSpan cluster_id = reader.bytes(promise.cluster_id.size());
    if (reader.failed()) return damaged("wrong length");
    std::ranges::copy(cluster_id, promise.cluster_id.begin());
    if (version == 1) {
        promise.promised_epoch = promise.installed_epoch = reader.id<LeaderEpoch>();
        promise.promised_to = promise.node_id;
        return promise;
    }
    MORTAR_TRY(decode_v2(reader, promise));
    return promise;
}

Result<std::optional<Promise>> load_promise(Fiber& fiber, Disk& disk) {
    const Result<ByteVector> file =
        read_whole_file(fiber, disk, join_path(FOLDER, NAME), FILE_BYTES_MAX);
    if (file.is(ErrorCode::NOT_FOUND)) return std::optional<Promise>();
    if (!file.ok()) return file.error();
    return std::optional<Promise>(MORTAR_TRY(decode_promise(*file)));
}

Result<void> save_promise(Fiber& fiber, Disk& disk, const Promise& promise) {
    MORTAR_TRY(make_folders_durably(fiber, disk, FOLDER));
    MORTAR_TRY(write_new_file(fiber, disk, join_path(FOLDER, TMP_NAME), encode_promise(promise)));
    return publish_file(fiber, disk, FOLDER, TMP_NAME, NAME);
}

Result<std::unique_ptr<PromiseStore>> PromiseStore::open(Fiber& fiber, Disk& disk, NodeId node_id,
                                                         std::uint16_t member_count) {
    std::optional<Promise> promise = MORTAR_TRY(load_promise(fiber, disk));
    if (promise.has_value() && promise->node_id != node_id) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          "replica/state: it is of node " + std::to_string(promise->node_id.value) +
                              ", this is node " + std::to_string(node_id.value));
    }
    if (promise.has_value() && promise->member_count != member_count) {
        return make_error(
            ErrorCode::INVALID_CONFIG,
            "replica/state: this folder is of one of " + std::to_string(promise->member_count) +
                " nodes, but peers names " + std::to_string(member_count) +
                "; a cluster keeps its size: correct peers, or use another data folder");
    }
    // What is seen may be a name whose writer was killed before it synced the folder: acted upon and then lost, the same
    // epoch could be promised twice.
    if (promise.has_value()) {
        MORTAR_TRY(make_folders_durably(fiber, disk, FOLDER));
        MORTAR_TRY(disk.sync_folder(fiber, FOLDER));
    }
    return std::unique_ptr<PromiseStore>(
        new PromiseStore(disk, node_id, member_count, std::move(promise)));
}

PromiseStore::PromiseStore(Disk& disk, NodeId node_id, std::uint16_t member_count,
                           std::optional<Promise> promise)
    : disk_(disk), is_blank_(!promise.has_value()) {
    if (promise.has_value()) promise_ = std::move(*promise);
    promise_.node_id = node_id;
    promise_.member_count = member_count;
}

LogMark PromiseStore::mark_of(PartitionKey log) const {
    return has_mark(promise_.marks, log) ? *place_of(promise_.marks, log) : LogMark{log, {}, {}};
}

Result<void> PromiseStore::promise(Fiber& fiber, LeaderEpoch leader_epoch, NodeId candidate,
                                   const std::function<bool()>& still_may) {
    const Mutex::Guard guard = MORTAR_TRY(saving_.lock(fiber));
    if (leader_epoch <= promise_.promised_epoch) {
        return make_error(ErrorCode::STALE_LEADER_EPOCH,
                          "leader epoch " + std::to_string(promise_.promised_epoch.value) +
                              " is promised to node " + std::to_string(promise_.promised_to.value));
    }
    if (leader_epoch.value > LEADER_EPOCH_MAX) {
        return make_error(ErrorCode::LIMIT_REACHED, "replica/state: all leader epochs are used up");
    }
    if (still_may && !still_may())
        return make_error(ErrorCode::STALE_LEADER_EPOCH, "a leader was heard meanwhile");
    promise_.promised_epoch = leader_epoch;
    promise_.promised_to = candidate;
    // A blank one counts in no majority; on disk it would pass for one that knows what it promised before.
    if (is_blank_) return {};
    return save(fiber, promise_);
}

Result<void> PromiseStore::install(Fiber& fiber, LeaderEpoch leader_epoch,
                                   const peer::ClusterId& cluster_id) {
    const Mutex::Guard guard = MORTAR_TRY(saving_.lock(fiber));
    if (leader_epoch != promise_.promised_epoch || leader_epoch == LeaderEpoch(0)) {
        return make_error(
            ErrorCode::STALE_LEADER_EPOCH,
            "promised is leader epoch " + std::to_string(promise_.promised_epoch.value));
    }
    if (!is_blank_ && cluster_id != promise_.cluster_id) {
        return make_error(ErrorCode::INVALID_ARGUMENT,
                          "replica/state: this node belongs to another cluster");
    }
    if (leader_epoch == promise_.installed_epoch) return {};
    Promise next = promise_;
    next.cluster_id = cluster_id;
    next.installed_epoch = leader_epoch;
    for (LogMark& mark : next.marks)
        mark.is_uncertain = false;
    std::erase_if(next.marks, [](const LogMark& mark) { return mark.faulty_from == Sequence(0); });
    MORTAR_TRY(save(fiber, next));
    promise_ = std::move(next);
    is_blank_ = false;
    return {};
}

Result<void> PromiseStore::mark(Fiber& fiber, const std::vector<LogMark>& marks) {
    const Mutex::Guard guard = MORTAR_TRY(saving_.lock(fiber));
    std::vector<LogMark> next = promise_.marks;
    for (const LogMark& each : marks)
        add_mark(next, each);
    if (next.size() > LOG_MARK_COUNT_MAX) {
        return make_error(ErrorCode::LIMIT_REACHED, "replica/state: too many damaged logs");
    }
    if (next == promise_.marks) return {};
    promise_.marks = std::move(next);
    if (is_blank_) return {};
    return save(fiber, promise_);
}

Result<void> PromiseStore::clear_faulty(Fiber& fiber, PartitionKey log) {
    const Mutex::Guard guard = MORTAR_TRY(saving_.lock(fiber));
    std::vector<LogMark> next = promise_.marks;
    for (LogMark& mark : next)
        if (mark.log == log) mark.faulty_from = Sequence(0);
    std::erase_if(next, [](const LogMark& mark) {
        return !mark.is_uncertain && mark.faulty_from == Sequence(0);
    });
    return lift_marks(fiber, std::move(next));
}

Result<void> PromiseStore::forget(Fiber& fiber, PartitionKey log) {
    const Mutex::Guard guard = MORTAR_TRY(saving_.lock(fiber));
    std::vector<LogMark> next = promise_.marks;
    std::erase_if(next, [log](const LogMark& mark) { return mark.log == log; });
    return lift_marks(fiber, std::move(next));
}

Result<void> PromiseStore::lift_marks(Fiber& fiber, std::vector<LogMark> left) {
    if (left == promise_.marks) return {};
    Promise next = promise_;
    next.marks = std::move(left);
    if (!is_blank_) MORTAR_TRY(save(fiber, next));
    promise_ = std::move(next);
    return {};
}

// With saving_ held: nobody changes promise_ meanwhile.
Result<void> PromiseStore::save(Fiber& fiber, const Promise& next) {
    const LeaderEpoch promised_before = promise_.promised_epoch;
    MORTAR_ASSERT(next.promised_epoch >= promised_before);
    MORTAR_ASSERT(next.installed_epoch >= promise_.installed_epoch);
    MORTAR_TRY(save_promise(fiber, disk_, next));
    MORTAR_ASSERT(promise_.promised_epoch == promised_before);
    return {};
}

}  // namespace mortar
