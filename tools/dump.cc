// mortarmq-dump: any of our files as text, checksums verified.
// Shape:  one dumper a magic (DUMPERS); files without a magic are known by their suffix. A dumper prints what it reads, says what
//         is wrong with the word DAMAGE in the line, and answers whether all was sound.
// Use:    a new format adds its row here and keeps its parsing in core.
// Source: contract 1 (exit 0 sound, 1 damage, 2 arguments, 3 unreadable) and 7.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/deliver/cursor.h"
#include "core/deliver/ledger.h"
#include "core/log/checkpoint.h"
#include "core/log/index.h"
#include "core/log/segment.h"
#include "core/meta/metadata_dump.h"
#include "core/meta/metadata_format.h"
#include "core/produce/producer_window.h"
#include "core/replica/promise.h"
#include "tools/common/program.h"

namespace {

using namespace mortar;

constexpr int EXIT_SOUND = 0;
constexpr int EXIT_DAMAGE = 1;
constexpr int EXIT_ARGUMENTS = 2;
constexpr int EXIT_UNREADABLE = 3;

struct Dumped {
    bool sound = true;
    bool readable = true;  // false: a version that this program does not know
};

// More than the largest segment that a configuration can ask for; an endless file must not fill the memory.
constexpr std::size_t FILE_BYTES_MAX = std::size_t{2} << 30;
bool g_print_values = false;  // --values

constexpr std::string_view HELP = R"(usage: mortarmq-dump [--values] FILE...

Prints MortarMQ files as text and verifies their checksums. Changes nothing; a file of a running
broker may end in a batch that is being written.

  FILE        topics/T/P/:  N.seg segment, N.idx sparse index, checkpoint.mqc, producers.mqp
              groups/G/P/:  cursor.mqc, delivery.mql
              metadata/:    log-N.mml metadata log, mmms-N-E.bin snapshot, durable.mmd
              replica/:     state
              T is a topic_id and G a group_id, P a partition: the names stand in the dump of the
              files in metadata/, and `mortarmq topics create NAME` prints the topic_id of NAME
  --values    message values too, as text if all of it is printable ASCII, else hex:...
  --help      this text
  --version   the version

examples:
  mortarmq-dump data/topics/1/0/00000000000000000001.seg
  mortarmq-dump data/topics/1/0/*.seg | grep -c '^record'
  mortarmq-dump --values data/topics/1/0/*.seg | grep 'value=.*apple'
  mortarmq-dump data/metadata/* | grep -i topic          which topic has which topic_id
  mortarmq-dump data/groups/1/0/delivery.mql
  mortarmq-dump $(find data/topics data/groups data/metadata data/replica -type f) | grep DAMAGE

exit status: 0 sound, 1 damage found, 2 bad arguments, 3 a file cannot be read or the output not written
)";

Result<ByteVector> read_whole(const std::string& path) {
    const std::string text = MORTAR_TRY(read_text_file(path, FILE_BYTES_MAX));
    const ByteSpan bytes = as_byte_span(text);
    return ByteVector(bytes.begin(), bytes.end());
}

// Text if all of it stands between first and ~.
std::string printable(ByteSpan bytes, char first = '!') {
    for (const char c : as_string_view(bytes)) {
        if (c < first || c > '~') return "hex:" + to_hex(bytes);
    }
    return std::string(as_string_view(bytes));
}

std::string_view kind_name(RecordKind kind) {
    switch (kind) {
        case RecordKind::CLIENT:
            return "client";
        case RecordKind::DEAD_LETTER:
            return "dead_letter";
        case RecordKind::REPLAY:
            return "replay";
    }
    return "unknown";
}

void print_record(const Record& record, std::size_t file_offset, bool first_of_batch) {
    std::cout << "record offset=" << file_offset << " bytes=" << record_bytes(record)
              << " sequence=" << record.sequence.value << " kind=" << kind_name(record.kind)
              << " producer_id=" << record.producer_id.value
              << " producer_seq=" << record.producer_seq.value
              << " timestamp_unix_ms=" << record.timestamp_unix_ms
              << " leader_epoch=" << record.leader_epoch.value << " key=" << printable(record.key)
              << " value_bytes=" << record.value.size() << (first_of_batch ? " batch" : "");
    if (g_print_values) std::cout << " value=" << printable(record.value, ' ');
    std::cout << "\n";
}

// The next offset where a whole record stands, or the end.
std::size_t find_record(ByteSpan bytes, std::size_t from) {
    while (from < bytes.size()) {
        const ByteSpan rest = bytes.subspan(from);
        if (looks_like_record(rest) && parse_record(rest).ok()) break;
        ++from;
    }
    return from;
}

Dumped dump_segment(ByteSpan bytes, const std::string& path) {
    const Result<bool> head = check_segment_head(bytes, path);
    if (!head.ok()) {
        std::cerr << head.error().to_string() << "\n";
        return {false, false};
    }
    Dumped dumped{*head, true};
    std::cout << "segment format_version=1 header_version=1 file_bytes=" << bytes.size()
              << (*head ? "" : " DAMAGE: no head") << "\n";
    std::uint64_t record_count = 0;
    std::optional<Sequence> last;
    std::size_t at = SEGMENT_HEAD_BYTES;
    while (at < bytes.size()) {
        std::size_t place = at;
        const ByteSpan length = bytes.subspan(place);
        if (length.size() >= RECORD_LEN_FIELD_BYTES && load_be<std::uint32_t>(length.data()) == 0) {
            place = static_cast<std::size_t>(place_after_zero(place));
        }
        if (place < bytes.size()) {
            const Result<Record> record = parse_record(bytes.subspan(place));
            if (record.ok()) {
                print_record(*record, place, starts_batch(place, SEGMENT_HEAD_BYTES));
                if (last && record->sequence != last->next()) {
                    std::cout << "DAMAGE offset=" << place << " sequence " << last->next().value
                              << " expected\n";
                    dumped.sound = false;
                }
                last = record->sequence;
                ++record_count;
                at = place + record_bytes(*record);
                continue;
            }
        }
        // No record here: the end if only zeros follow.
        std::size_t used = at;
        while (used < bytes.size() && bytes[used] == std::byte{0})
            ++used;
        if (used == bytes.size()) break;
        const std::size_t next = find_record(bytes, at + 1);
        std::cout << "DAMAGE offset=" << at << " no valid record before offset " << next
                  << (next == bytes.size() ? " (the end: damage or an unfinished write)" : "")
                  << "\n";
        dumped.sound = false;
        at = next;
    }
    std::cout << "end records=" << record_count;
    if (last) std::cout << " last_sequence=" << last->value;
    std::cout << " records_end=" << std::min(at, bytes.size()) << "\n";
    return dumped;
}

Dumped dump_checkpoint(ByteSpan bytes, const std::string& path) {
    const Result<Checkpoint> checkpoint = decode_checkpoint(bytes, path);
    if (!checkpoint.ok()) {
        std::cout << "checkpoint DAMAGE: " << checkpoint.error().to_string() << "\n";
        return {false, !checkpoint.is(ErrorCode::UNSUPPORTED_FORMAT)};
    }
    std::cout << "checkpoint version=" << int{CHECKPOINT_VERSION}
              << " next_sequence=" << checkpoint->next_sequence.value
              << " durable_offset=" << checkpoint->durable_offset << "\n";
    return {};
}

// Each entry is compared with the record that it names, when the segment lies beside the index.
Dumped dump_index(ByteSpan bytes, const std::string& path) {
    const SparseIndex index = SparseIndex::decode(bytes);
    Dumped dumped{!index.entries().empty() || bytes.empty(), true};
    std::cout << "index entries=" << index.entries().size()
              << (dumped.sound ? "" : " DAMAGE: not a list of ascending entries") << "\n";
    const auto segment =
        read_whole(path.substr(0, path.size() - std::string_view(".idx").size()) + ".seg");
    for (const IndexEntry& entry : index.entries()) {
        std::cout << "entry sequence=" << entry.sequence.value
                  << " timestamp_unix_ms=" << entry.timestamp_unix_ms
                  << " offset=" << entry.file_offset << " bytes=" << entry.record_bytes;
        if (segment.ok()) {
            const bool inside = entry.file_offset < segment->size();
            const Result<Record> record =
                parse_record(inside ? ByteSpan(*segment).subspan(entry.file_offset) : ByteSpan());
            const bool fits = record.ok() && record->sequence == entry.sequence &&
                              record->timestamp_unix_ms == entry.timestamp_unix_ms &&
                              record_bytes(*record) == entry.record_bytes;
            if (!fits) std::cout << " DAMAGE: no such record in the segment";
            dumped.sound = dumped.sound && fits;
        }
        std::cout << "\n";
    }
    return dumped;
}

// What a parser of a whole file says of a bad one.
Dumped bad_file(std::string_view kind, const Error& error, const std::string& path) {
    std::cout << kind << " DAMAGE: " << path << ": " << error.to_string() << "\n";
    return {false, error.code != ErrorCode::UNSUPPORTED_FORMAT};
}

Dumped dump_windows(ByteSpan bytes, const std::string& path) {
    const Result<ProducerWindows::Decoded> decoded = ProducerWindows::decode(bytes, path);
    if (!decoded.ok()) return bad_file("producers", decoded.error(), path);
    std::cout << "producers version=" << int{PRODUCER_WINDOWS_VERSION}
              << " through_sequence=" << decoded->through.value
              << " count=" << decoded->windows.producer_count() << "\n";
    decoded->windows.for_each_run([](const ProducerWindows::RunView& run) {
        std::cout << "run producer_id=" << run.producer_id.value
                  << " producer_seq=" << run.first_seq.value
                  << " sequence=" << run.first_sequence.value << " count=" << run.count << "\n";
    });
    return {};
}

Dumped dump_cursor(ByteSpan bytes, const std::string& path) {
    const Result<CursorImage> cursor = decode_cursor(bytes);
    if (!cursor.ok()) return bad_file("cursor", cursor.error(), path);
    const SettledSet& settled = cursor->settled;
    std::cout << "cursor version=" << int{CURSOR_VERSION}
              << " cursor_epoch=" << cursor->cursor_epoch
              << " ack_floor=" << settled.ack_floor().value
              << " settled_above_floor=" << settled.count_above_floor()
              << " unsettled=" << cursor->unsettled.size() << "\n";
    for (Sequence first = settled.ack_floor().next(); first <= settled.highest();
         first = first.next()) {
        if (!settled.contains(first)) continue;
        Sequence last = first;
        while (settled.contains(last.next()))
            last = last.next();
        std::cout << "settled sequence=" << first.value << " to=" << last.value << "\n";
        first = last;
    }
    for (const UnsettledImage& message : cursor->unsettled) {
        std::cout << "unsettled sequence=" << message.sequence.value
                  << " failures=" << message.failures << " deliveries=" << message.deliveries
                  << (message.is_backing_off ? " backing_off" : "") << "\n";
    }
    return {};
}

void print_event(const LedgerEvent& event, std::uint64_t file_offset) {
    std::cout << "event offset=" << file_offset << " type=";
    switch (event.type) {
        case LedgerEventType::DELIVER:
            std::cout << "DELIVER sequence=" << event.sequence.value
                      << " deliveries=" << event.count
                      << " delivery_id=" << event.delivery_id.value;
            break;
        case LedgerEventType::ACK:
            std::cout << "ACK sequence=" << event.sequence.value;
            break;
        case LedgerEventType::FAIL:
            std::cout << "FAIL sequence=" << event.sequence.value << " failures=" << event.count
                      << (event.is_backing_off ? " backing_off" : "");
            break;
        default:
            std::cout << int{static_cast<std::uint8_t>(event.type)};
            break;
    }
    std::cout << "\n";
}

// A torn tail counts as damage: a person asked.
Dumped dump_ledger(ByteSpan bytes, const std::string& path) {
    const Result<ParsedLedger> ledger = parse_ledger(bytes);
    if (!ledger.ok()) return bad_file("ledger", ledger.error(), path);
    std::cout << "ledger version=" << int{LEDGER_VERSION}
              << " follows_cursor_epoch=" << ledger->cursor_epoch
              << " events=" << ledger->events.size() << "\n";
    for (std::size_t i = 0; i < ledger->events.size(); ++i)
        print_event(ledger->events[i], ledger->offsets[i]);
    if (ledger->is_torn) {
        std::cout << "DAMAGE offset=" << ledger->end_offset
                  << " no valid event (the end: damage or an unfinished write)\n";
    }
    return {!ledger->is_torn, true};
}

Dumped dump_metadata(std::string_view kind, const Result<void>& version,
                     bool (*dump)(ByteSpan, const std::string&, const DumpLine&), ByteSpan bytes,
                     const std::string& path) {
    if (version.is(ErrorCode::UNSUPPORTED_FORMAT)) return bad_file(kind, version.error(), path);
    const bool sound =
        dump(bytes, path, [](const std::string& line) { std::cout << line << "\n"; });
    std::cout << "end " << kind << (sound ? "" : " DAMAGE: see the lines above") << "\n";
    return {sound, true};
}
Dumped dump_meta_log(ByteSpan bytes, const std::string& path) {
    return dump_metadata("metadata log", check_metadata_log_head(bytes, path), dump_metadata_log,
                         bytes, path);
}
Dumped dump_meta_snapshot(ByteSpan bytes, const std::string& path) {
    const Result<Catalog> catalog = parse_metadata_snapshot(bytes, path);
    return dump_metadata("metadata snapshot",
                         catalog.ok() ? Result<void>() : Result<void>(catalog.error()),
                         dump_metadata_snapshot, bytes, path);
}

Dumped dump_meta_durable(ByteSpan bytes, const std::string& path) {
    const Result<MutationId> through = parse_metadata_durable(bytes, path);
    if (!through.ok()) return bad_file("metadata durable mark", through.error(), path);
    std::cout << "metadata durable mark version="
              << std::to_integer<int>(bytes[METADATA_DURABLE_MAGIC.size()])
              << " mutation_id=" << through->value << "\n";
    return {};
}

Dumped dump_promise(ByteSpan bytes, const std::string& path) {
    const Result<Promise> promise = decode_promise(bytes);
    if (!promise.ok()) return bad_file("replica state", promise.error(), path);
    std::cout << "replica state version=" << std::to_integer<int>(bytes[PROMISE_MAGIC.size()])
              << " node_id=" << promise->node_id.value
              << " cluster_id=" << to_hex(promise->cluster_id)
              << " promised_epoch=" << promise->promised_epoch.value
              << " promised_to=" << promise->promised_to.value
              << " installed_epoch=" << promise->installed_epoch.value
              << " member_count=" << promise->member_count << "\n";
    for (const LogMark& mark : promise->marks) {
        std::cout << "mark topic_id=" << mark.log.topic_id.value
                  << " partition=" << mark.log.partition.value
                  << " uncertain=" << (mark.is_uncertain ? "yes" : "no")
                  << " faulty_from=" << mark.faulty_from.value << "\n";
    }
    return {};
}

struct Dumper {
    std::string_view magic;  // at the front of the file; empty: by suffix
    std::string_view suffix;
    Dumped (*dump)(ByteSpan bytes, const std::string& path);
};
constexpr Dumper DUMPERS[] = {
    {SEGMENT_MAGIC, ".seg", dump_segment},
    {CHECKPOINT_MAGIC, "checkpoint.mqc", dump_checkpoint},
    {PRODUCER_WINDOWS_MAGIC, ".mqp", dump_windows},
    {CURSOR_MAGIC, "cursor.mqc", dump_cursor},
    {LEDGER_MAGIC, ".mql", dump_ledger},
    {METADATA_LOG_MAGIC, ".mml", dump_meta_log},
    {METADATA_SNAPSHOT_MAGIC, ".bin", dump_meta_snapshot},
    {METADATA_DURABLE_MAGIC, METADATA_DURABLE_NAME, dump_meta_durable},
    {PROMISE_MAGIC, "replica/state", dump_promise},
    {"", ".idx", dump_index},
};

const Dumper* find_dumper(ByteSpan bytes, const std::string& path) {
    for (const Dumper& dumper : DUMPERS) {
        if (!dumper.magic.empty() && as_string_view(bytes).starts_with(dumper.magic))
            return &dumper;
    }
    for (const Dumper& dumper : DUMPERS) {
        if (path.ends_with(dumper.suffix)) return &dumper;
    }
    return nullptr;
}

int dump_file(const std::string& path) {
    const Result<ByteVector> bytes = read_whole(path);
    if (!bytes.ok()) {
        std::cerr << "mortarmq-dump: " << bytes.error().detail << "\n";
        return EXIT_UNREADABLE;
    }
    const Dumper* dumper = find_dumper(*bytes, path);
    if (dumper == nullptr) {
        std::cerr << "mortarmq-dump: " << path
                  << ": neither its first bytes nor its name are of a MortarMQ file\n";
        return EXIT_UNREADABLE;
    }
    std::cout << "# " << path << "\n";
    const Dumped dumped = dumper->dump(*bytes, path);
    if (!dumped.readable) return EXIT_UNREADABLE;
    return dumped.sound ? EXIT_SOUND : EXIT_DAMAGE;
}

int run(const std::vector<std::string>& words) {
    std::vector<std::string> paths;
    for (const std::string& word : words) {
        if (word == "--values") {
            g_print_values = true;
            continue;
        }
        if (word == "--help" || word == "-h") {
            std::cout << HELP;
            return EXIT_SOUND;
        }
        if (word == "--version") {
            std::cout << "mortarmq-dump " << MORTAR_VERSION << "\n";
            return EXIT_SOUND;
        }
        if (word.starts_with("-")) {
            std::cerr << "mortarmq-dump: unknown option " << word << "; see --help\n";
            return EXIT_ARGUMENTS;
        }
        paths.push_back(word);
    }
    if (paths.empty()) {
        std::cerr << HELP;
        return EXIT_ARGUMENTS;
    }
    int worst = EXIT_SOUND;
    for (const std::string& path : paths)
        worst = std::max(worst, dump_file(path));
    return worst;
}

}  // namespace

int main(int argument_count, char** arguments) {
    open_standard_files();
    const int exit_code = run(std::vector<std::string>(arguments + 1, arguments + argument_count));
    std::cout.flush();
    return finish_output("mortarmq-dump", exit_code, EXIT_UNREADABLE);
}
