#include "core/deliver/ledger.h"

#include <algorithm>
#include <array>

#include "core/base/assert.h"
#include "core/base/hash.h"
#include "core/fiber/deadline.h"
#include "core/log/whole_file.h"

namespace mortar {
namespace {

constexpr std::size_t EVENT_LEN_BYTES = 4;
constexpr std::size_t EVENT_CRC_BYTES = 4;
constexpr std::size_t EVENT_LEN_MAX = 64;
constexpr std::uint8_t FLAG_BACKING_OFF = 1;

constexpr const char* LEDGER_NAME = "delivery.mql";
constexpr const char* CURSOR_NAME = "cursor.mqc";

std::string ledger_path(const std::string& folder) {
    return join_path(folder, LEDGER_NAME);
}
std::string cursor_path(const std::string& folder) {
    return join_path(folder, CURSOR_NAME);
}
std::string unfinished(const std::string& path) {
    return path + std::string(TMP_SUFFIX);
}
bool is_own_path(const std::string& folder, const std::string& path) {
    return path == ledger_path(folder) || path == unfinished(ledger_path(folder)) ||
           path == cursor_path(folder) || path == unfinished(cursor_path(folder));
}

ByteVector encode_head() {
    ByteVector head;
    ByteWriter writer(head);
    writer.bytes(as_byte_span(LEDGER_MAGIC));
    writer.u8(LEDGER_VERSION);
    writer.zeros(LEDGER_HEAD_BYTES - head.size());
    return head;
}

Error with_path(const Error& error, const std::string& path) {
    return make_error(error.code, path + ": " + error.detail);
}

Error damaged_at(std::uint64_t file_offset, const char* what) {
    return make_error(ErrorCode::DAMAGED, std::string(what) + " at " + std::to_string(file_offset));
}

// The event at file_offset; its total size goes to size_bytes.
Result<LedgerEvent> parse_event(ByteSpan file, std::uint64_t file_offset,
                                std::uint64_t& size_bytes) {
    ByteReader reader(file.subspan(static_cast<std::size_t>(file_offset)));
    const std::uint32_t event_len = reader.u32();
    if (event_len <= EVENT_CRC_BYTES || event_len > EVENT_LEN_MAX)
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "no event");
    const std::uint32_t crc = reader.u32();
    const ByteSpan body = reader.bytes(event_len - EVENT_CRC_BYTES);
    if (reader.failed() || crc32c(body) != crc)
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "no event");
    size_bytes = EVENT_LEN_BYTES + event_len;

    ByteReader fields(body);
    LedgerEvent event;
    event.type = static_cast<LedgerEventType>(fields.u8());
    switch (event.type) {
        case LedgerEventType::FOLLOWS:
            event.cursor_epoch = fields.u64();
            break;
        case LedgerEventType::DELIVER:
            event.sequence = fields.id<Sequence>();
            event.count = fields.u16();
            event.delivery_id = fields.id<DeliveryId>();
            break;
        case LedgerEventType::ACK:
            event.sequence = fields.id<Sequence>();
            break;
        case LedgerEventType::FAIL:
            event.sequence = fields.id<Sequence>();
            event.count = fields.u16();
            event.is_backing_off = (fields.u8() & FLAG_BACKING_OFF) != 0;
            break;
        default:
            return make_error(
                ErrorCode::UNSUPPORTED_FORMAT,
                "ledger event of type " + std::to_string(static_cast<unsigned>(event.type)));
    }
    if (!fields.finished())
        return make_error(ErrorCode::UNSUPPORTED_FORMAT, "ledger event of another length");
    return event;
}

// Where the event stands that file_offset, the end of the one before, leads to.
std::uint64_t event_place(ByteSpan file, std::uint64_t file_offset) {
    const bool is_gap = file_offset + EVENT_LEN_BYTES > file.size() ||
                        load_be<std::uint32_t>(file.data() + file_offset) == 0;
    return is_gap ? place_after_zero(file_offset) : file_offset;
}

}  // namespace

void encode_ledger_event(ByteVector& into, const LedgerEvent& event) {
    const std::size_t start = into.size();
    ByteWriter writer(into);
    writer.u32(0);
    writer.u32(0);
    writer.u8(static_cast<std::uint8_t>(event.type));
    switch (event.type) {
        case LedgerEventType::FOLLOWS:
            writer.u64(event.cursor_epoch);
            break;
        case LedgerEventType::DELIVER:
            writer.id(event.sequence);
            writer.u16(event.count);
            writer.id(event.delivery_id);
            break;
        case LedgerEventType::ACK:
            writer.id(event.sequence);
            break;
        case LedgerEventType::FAIL:
            writer.id(event.sequence);
            writer.u16(event.count);
            writer.u8(event.is_backing_off ? FLAG_BACKING_OFF : 0);
            break;
        default:
            MORTAR_UNREACHABLE();
    }
    const std::size_t body_at = start + EVENT_LEN_BYTES + EVENT_CRC_BYTES;
    store_be(into.data() + start,
             static_cast<std::uint32_t>(into.size() - start - EVENT_LEN_BYTES));
    store_be(into.data() + start + EVENT_LEN_BYTES, crc32c(ByteSpan(into).subspan(body_at)));
}

Result<ParsedLedger> parse_ledger(ByteSpan file) {
    ByteReader head(file);
    const ByteSpan magic = head.bytes(LEDGER_MAGIC.size());
    const std::uint8_t version = head.u8();
    // The name became durable after the head was synced, so a short or wrong head is no unfinished write.
    if (head.failed() || as_string_view(magic) != LEDGER_MAGIC || version == 0)
        return damaged_at(0, "ledger head");
    if (version > LEDGER_VERSION)
        return make_error(ErrorCode::UNSUPPORTED_FORMAT,
                          "delivery ledger of version " + std::to_string(version));

    ParsedLedger parsed;
    parsed.end_offset = LEDGER_HEAD_BYTES;
    std::uint64_t bad_at = LEDGER_HEAD_BYTES;
    for (std::uint64_t at = LEDGER_HEAD_BYTES; at < file.size();) {
        at = event_place(file, at);
        bad_at = at;
        if (at >= file.size()) break;
        std::uint64_t size_bytes = 0;
        Result<LedgerEvent> event = parse_event(file, at, size_bytes);
        if (event.is(ErrorCode::UNSUPPORTED_FORMAT)) return event.error();
        if (!event.ok()) break;
        const bool is_first = at == LEDGER_HEAD_BYTES;
        if (is_first != (event->type == LedgerEventType::FOLLOWS))
            return damaged_at(at, "misplaced ledger event");
        if (is_first) {
            parsed.cursor_epoch = event->cursor_epoch;
        } else {
            parsed.events.push_back(*event);
            parsed.offsets.push_back(at);
        }
        at += size_bytes;
        parsed.end_offset = at;
    }
    // Whatever begins a batch was written after the sync of all before it (log/layout.h).
    for (std::uint64_t at = sector_floor(bad_at) + SECTOR_BYTES; at < file.size();
         at += SECTOR_BYTES) {
        std::uint64_t size_bytes = 0;
        const Result<LedgerEvent> event = parse_event(file, at, size_bytes);
        if (event.ok() || event.is(ErrorCode::UNSUPPORTED_FORMAT))
            return damaged_at(bad_at, "ledger event");
    }
    const auto rest = file.subspan(
        std::min<std::size_t>(file.size(), static_cast<std::size_t>(parsed.end_offset)));
    parsed.is_torn =
        std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; });
    return parsed;
}

void replay_ledger(CursorImage& image, const std::vector<LedgerEvent>& events) {
    std::map<Sequence, UnsettledImage> unsettled;
    for (const UnsettledImage& message : image.unsettled)
        unsettled.emplace(message.sequence, message);
    for (const LedgerEvent& event : events) {
        if (image.settled.contains(event.sequence)) continue;
        if (event.type == LedgerEventType::ACK) {
            image.settled.add(event.sequence);
            unsettled.erase(event.sequence);
            continue;
        }
        UnsettledImage& message = unsettled[event.sequence];
        message.sequence = event.sequence;
        if (event.type == LedgerEventType::DELIVER) {
            message.deliveries = std::max(message.deliveries, event.count);
            message.is_backing_off = false;
        } else {
            message.failures = std::max(message.failures, event.count);
            message.is_backing_off = event.is_backing_off;
        }
    }
    image.unsettled.clear();
    for (const auto& [sequence, message] : unsettled)
        image.unsettled.push_back(message);
}

Result<CursorImage> Ledger::recover(Fiber& fiber, Disk& disk, const std::string& folder,
                                    Sequence start_after) {
    CursorImage image;
    image.settled = SettledSet(start_after);
    const Result<ByteVector> cursor_bytes =
        read_whole_file(fiber, disk, cursor_path(folder), CURSOR_FILE_BYTES_MAX);
    if (cursor_bytes.ok()) {
        Result<CursorImage> decoded = decode_cursor(*cursor_bytes);
        if (!decoded.ok()) return with_path(decoded.error(), cursor_path(folder));
        image = std::move(decoded).value();
    } else if (!cursor_bytes.is(ErrorCode::NOT_FOUND)) {
        return cursor_bytes.error();
    }

    const Result<ByteVector> ledger_bytes =
        read_whole_file(fiber, disk, ledger_path(folder), LEDGER_FILE_BYTES_MAX);
    if (ledger_bytes.is(ErrorCode::NOT_FOUND)) {
        // No checkpoint is written before the first ledger has its name for good.
        if (image.cursor_epoch == 0) return image;
        return make_error(ErrorCode::DAMAGED,
                          ledger_path(folder) + " is missing beside " + cursor_path(folder) +
                              ": what was acknowledged since is unknown; restore it from a backup");
    }
    if (!ledger_bytes.ok()) return ledger_bytes.error();
    Result<ParsedLedger> parsed = parse_ledger(*ledger_bytes);
    if (!parsed.ok()) return with_path(parsed.error(), ledger_path(folder));
    MORTAR_SOMETIMES(parsed->is_torn, "ledger tail cut");
    // An older ledger was taken in by the checkpoint whole: the crash came between the two renames, or it was closed.
    if (parsed->cursor_epoch < image.cursor_epoch || parsed->events.empty()) {
        // A checkpoint that is seen may be one whose writer was killed before it synced the name.
        if (image.cursor_epoch > 0) MORTAR_TRY(disk.sync_folder(fiber, folder));
        return image;
    }
    if (parsed->cursor_epoch > image.cursor_epoch)
        return make_error(ErrorCode::DAMAGED,
                          cursor_path(folder) + ": its ledger follows checkpoint " +
                              std::to_string(parsed->cursor_epoch) + ", this is " +
                              std::to_string(image.cursor_epoch));
    replay_ledger(image, parsed->events);
    ++image.cursor_epoch;
    ByteVector bytes;
    encode_cursor(bytes, image.cursor_epoch, image.settled, image.unsettled);
    MORTAR_TRY(replace_file(fiber, disk, folder, CURSOR_NAME, bytes));
    return image;
}

Ledger::Ledger(Env& env, TimerQueue& timers, std::string folder, std::string name,
               std::uint64_t cursor_epoch, std::uint64_t bytes_min,
               std::function<void(ByteVector&, std::uint64_t)> encode_cursor)
    : env_(env),
      folder_(std::move(folder)),
      writer_(env, std::move(name), LEDGER_CHUNK_BYTES_MAX),
      lazy_timer_(timers, [this] { flush_lazy(); }),
      encode_cursor_(std::move(encode_cursor)),
      cursor_epoch_(cursor_epoch),
      bytes_min_(bytes_min) {}

void Ledger::append_lazy(const LedgerEvent& event) {
    if (failure()) return;
    lazy_.push_back(event);
    if (lazy_.size() >= LAZY_EVENT_COUNT_MAX) {
        flush_lazy();
    } else {
        lazy_timer_.arm(deadline_after(env_.clock, LAZY_EVENT_WAIT_MAX));
    }
}

Result<std::uint64_t> Ledger::append(const LedgerEvent& event) {
    lazy_.push_back(event);
    flush_lazy();
    if (failure()) return make_error(ErrorCode::LOG_CLOSED, failure()->to_string());
    return writer_.appended_mark();
}

void Ledger::flush_lazy() {
    lazy_timer_.cancel();
    const std::uint64_t bytes_max = std::max(bytes_min_, cursor_bytes_ * LEDGER_PER_CURSOR_BYTES);
    if (!failure() && !lazy_.empty() && (!has_file_ || writer_.next_offset() > bytes_max))
        start_file();
    for (const LedgerEvent& event : lazy_)
        write_event(event);
    lazy_.clear();
}

void Ledger::write_event(const LedgerEvent& event) {
    ByteVector bytes;
    encode_ledger_event(bytes, event);
    const Result<LogWriter::Appended> appended = writer_.append(bytes);
    // After a failure the owner was told; what is queued here is as lost as what was on its way.
    MORTAR_ASSERT(appended.ok() || appended.is(ErrorCode::LOG_CLOSED));
}

void Ledger::start_file() {
    // The first file of a life follows the checkpoint that recover left; a later one follows a new checkpoint.
    const bool write_cursor = has_file_;
    if (write_cursor) ++cursor_epoch_;
    has_file_ = true;
    LogWriter::NextFile next;
    next.open = [this, cursor_epoch = cursor_epoch_, write_cursor](Fiber& fiber) {
        return open_next(fiber, cursor_epoch, write_cursor);
    };
    next.first_offset = LEDGER_HEAD_BYTES;
    writer_.switch_file(std::move(next));
    LedgerEvent follows;
    follows.type = LedgerEventType::FOLLOWS;
    follows.cursor_epoch = cursor_epoch_;
    write_event(follows);
}

Result<std::shared_ptr<File>> Ledger::open_next(Fiber& fiber, std::uint64_t cursor_epoch,
                                                bool write_cursor) {
    // The folder may have been made by a process that died before it synced the name.
    if (!write_cursor) MORTAR_TRY(make_folders_durably(fiber, env_.disk, folder_));
    if (write_cursor) {
        MORTAR_SOMETIMES(true, "ledger rotated");
        ByteVector bytes;
        encode_cursor_(bytes, cursor_epoch);
        MORTAR_TRY(replace_file(fiber, env_.disk, folder_, CURSOR_NAME, bytes));
        cursor_bytes_ = bytes.size();
    }
    const ByteVector head = encode_head();
    return std::shared_ptr<File>(
        MORTAR_TRY(replace_file(fiber, env_.disk, folder_, LEDGER_NAME, head)));
}

Result<void> Ledger::close(Fiber& fiber) {
    flush_lazy();
    MORTAR_TRY(writer_.close(fiber));
    if (!has_file_) return {};
    ++cursor_epoch_;
    ByteVector bytes;
    encode_cursor_(bytes, cursor_epoch_);
    MORTAR_TRY(replace_file(fiber, env_.disk, folder_, CURSOR_NAME, bytes));
    return {};
}

void Ledger::abandon(Fiber& fiber) {
    lazy_timer_.cancel();
    lazy_.clear();
    if (!failure()) writer_.fail(make_error(ErrorCode::LOG_CLOSED, "abandoned"));
    const Result<void> closed = writer_.close(fiber);
    MORTAR_ASSERT(!closed.ok());
}

Result<void> Ledger::remove_files(Fiber& fiber, Env& env, const std::string& folder) {
    const Result<std::vector<DirEntry>> entries = env.disk.list(fiber, folder);
    if (entries.is(ErrorCode::NOT_FOUND)) return {};
    if (!entries.ok()) return entries.error();
    bool all_known = true;
    for (const DirEntry& entry : *entries) {
        const std::string path = folder + "/" + entry.name;
        if (!entry.is_folder && is_own_path(folder, path)) {
            MORTAR_TRY(env.disk.remove(fiber, path));
        } else {
            all_known = false;
            env.log.warn("unknown_file_left_alone", {{"path", path}});
        }
    }
    if (!all_known) return {};
    return env.disk.remove(fiber, folder);
}

}  // namespace mortar
