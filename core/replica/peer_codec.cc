#include "core/replica/peer_codec.h"

#include <string>
#include <type_traits>
#include <utility>

#include "core/base/hash.h"

namespace mortar::peer {
namespace {

constexpr std::size_t CRC_AT = PEER_LENGTH_BYTES + 1;

// Both walk the fields of a message in the same order, so that the two directions cannot differ.
class Encoder {
  public:
    static constexpr bool IS_ENCODER = true;
    explicit Encoder(ByteVector& out) : out_(out) {}

    template <class T>
    requires std::is_unsigned_v<T>
    void value(const char*, T number) {
        const std::size_t at = out_.size();
        out_.resize(at + sizeof(T));
        store_be(out_.data() + at, number);
    }
    void value(const char* field, bool flag) {
        value(field, static_cast<std::uint8_t>(flag ? 1 : 0));
    }
    template <class Tag, class Rep>
    void value(const char* field, StrongId<Tag, Rep> id) {
        value(field, id.value);
    }
    void value(const char* field, MonoTime time) {
        value(field, static_cast<std::uint64_t>(time.ns));
    }
    template <std::size_t COUNT>
    void value(const char*, const std::array<std::byte, COUNT>& bytes) {
        out_.insert(out_.end(), bytes.begin(), bytes.end());
    }
    template <class Enum>
    void one_of(const char* field, Enum choice, Enum last) {
        MORTAR_ASSERT(choice <= last);
        value(field, static_cast<std::uint8_t>(choice));
    }
    void op(const char* field, Op known) { value(field, static_cast<std::uint8_t>(known)); }
    void address(const char* field, const std::string& text) {
        MORTAR_ASSERT(text.size() <= PEER_ADDRESS_BYTES_MAX);
        value(field, static_cast<std::uint16_t>(text.size()));
        const ByteSpan bytes = as_byte_span(text);
        out_.insert(out_.end(), bytes.begin(), bytes.end());
    }
    void bytes(const char* field, ByteSpan borrowed) {
        value(field, static_cast<std::uint32_t>(borrowed.size()));
        blob(field, borrowed, borrowed.size());
    }
    // Without its length.
    void blob(const char*, ByteSpan borrowed, std::size_t) {
        out_.insert(out_.end(), borrowed.begin(), borrowed.end());
    }
    template <class Item, class Each>
    void list(const char* field, const std::vector<Item>& items, std::size_t item_bytes_min,
              Each each) {
        out_.reserve(out_.size() + 4 + items.size() * item_bytes_min);
        value(field, static_cast<std::uint32_t>(items.size()));
        for (const Item& item : items)
            each(item);
    }
    void check(const char*, bool good, const char*) { MORTAR_ASSERT(good); }

  private:
    ByteVector& out_;
};

class Decoder {
  public:
    static constexpr bool IS_ENCODER = false;
    Decoder(Op op, ByteSpan payload) : op_(op), reader_(payload) {}

    template <class T>
    requires std::is_unsigned_v<T>
    void value(const char* field, T& number) {
        const ByteSpan view = take(field, sizeof(T));
        number = view.empty() ? T{0} : load_be<T>(view.data());
    }
    void value(const char* field, bool& flag) {
        std::uint8_t number = 0;
        value(field, number);
        check(field, number <= 1, "neither 0 nor 1");
        flag = number == 1;
    }
    template <class Tag, class Rep>
    void value(const char* field, StrongId<Tag, Rep>& id) {
        value(field, id.value);
    }
    void value(const char* field, MonoTime& time) {
        std::uint64_t number = 0;
        value(field, number);
        time.ns = static_cast<std::int64_t>(number);
    }
    template <std::size_t COUNT>
    void value(const char* field, std::array<std::byte, COUNT>& bytes) {
        const ByteSpan view = take(field, COUNT);
        if (!view.empty()) std::memcpy(bytes.data(), view.data(), COUNT);
    }
    template <class Enum>
    void one_of(const char* field, Enum& choice, Enum last) {
        std::uint8_t number = 0;
        value(field, number);
        check(field, number <= static_cast<std::uint8_t>(last), "not a defined value");
        choice = is_failed() ? Enum{} : static_cast<Enum>(number);
    }
    void op(const char* field, Op& known) {
        std::uint8_t number = 0;
        value(field, number);
        check(field, is_known_op(number), "not a known op");
        known = static_cast<Op>(number);
    }
    void address(const char* field, std::string& text) {
        std::uint16_t size = 0;
        value(field, size);
        check(field, size <= PEER_ADDRESS_BYTES_MAX, "longer than an address may be");
        if (is_failed()) return;
        text = std::string(as_string_view(take(field, size)));
        for (const char c : text)
            check(field, c > ' ' && c <= '~', "not printable ASCII");
    }
    void bytes(const char* field, ByteSpan& borrowed) {
        std::uint32_t size = 0;
        value(field, size);
        blob(field, borrowed, size);
    }
    void blob(const char* field, ByteSpan& borrowed, std::size_t size) {
        borrowed = take(field, size);
    }
    template <class Item, class Each>
    void list(const char* field, std::vector<Item>& items, std::size_t item_bytes_min, Each each) {
        std::uint32_t count = 0;
        value(field, count);
        // Before anything is allocated: a count is believed only when the items can be there.
        check(field, count <= reader_.remaining() / item_bytes_min,
              "says more than the frame holds");
        if (is_failed()) return;
        items.resize(count);
        for (Item& item : items)
            each(item);
    }
    void check(const char* field, bool good, const char* what) {
        if (!good && !is_failed()) {
            field_ = field;
            what_ = what;
        }
    }
    bool is_failed() const { return field_ != nullptr; }

    Result<void> finish() {
        check("tail", reader_.finished(), "bytes behind the last field");
        if (!is_failed()) return {};
        return make_error(
            ErrorCode::MALFORMED_PAYLOAD,
            std::string(op_name(op_)).append(" ").append(field_).append(": ").append(what_));
    }

  private:
    ByteSpan take(const char* field, std::size_t count) {
        if (is_failed()) return {};
        const ByteSpan view = reader_.bytes(count);
        check(field, !reader_.failed(), "the frame ends before it");
        return view;
    }

    Op op_;
    ByteReader reader_;
    const char* field_ = nullptr;  // the first wrong one
    const char* what_ = nullptr;
};

template <class Visitor, class Message>
using Of = std::conditional_t<Visitor::IS_ENCODER, const Message, Message>;

template <class V>
void part(V& v, const char* field, Of<V, PartitionKey>& key) {
    v.value(field, key.topic_id);
    v.value(field, key.partition);
}
template <class V>
void part(V& v, const char* field, Of<V, LogEnd>& end) {
    v.value(field, end.last);
    v.value(field, end.leader_epoch);
}
// One that somebody leads in, wants to, or has promised. The receiver goes on from it: one above all that there may be
// would be the last.
template <class V>
void leader_epoch(V& v, const char* field, Of<V, LeaderEpoch>& value, std::uint64_t least = 0) {
    v.value(field, value);
    v.check(field, value.value >= least, "must not be 0");
    v.check(field, value.value <= LEADER_EPOCH_MAX, "above all leader epochs");
}
// Ascending, each once.
template <class V, class Item>
void check_order(V& v, const char* field, const std::vector<Item>& items) {
    for (std::size_t i = 1; i < items.size(); ++i)
        v.check(field, items[i - 1].log < items[i].log, "not ascending by log");
}

template <class V>
void fields(V& v, Of<V, Hello>& m) {
    v.value("version_min", m.version_min);
    v.value("version_max", m.version_max);
    v.check("version_min", m.version_min >= 1 && m.version_min <= m.version_max, "no such range");
    v.value("nonce", m.nonce);
}
template <class V>
void fields(V& v, Of<V, Challenge>& m) {
    v.value("version", m.version);
    v.check("version", m.version >= 1, "must not be 0");
    v.value("nonce", m.nonce);
}
template <class V>
void fields(V& v, Of<V, Proof>& m) {
    v.value("node_id", m.node_id);
    v.value("dialed_node_id", m.dialed_node_id);
    v.one_of("lane", m.lane, Lane::BULK);
    v.value("mac", m.mac);
}
template <class V>
void fields(V& v, Of<V, Identity>& m) {
    v.value("node_id", m.node_id);
    v.value("incarnation", m.incarnation);
    v.value("cluster_id", m.cluster_id);
    v.value("version_max", m.version_max);
    v.check("version_max", m.version_max >= 1, "must not be 0");
    v.address("listen_client", m.listen_client);
    v.address("listen_admin", m.listen_admin);
}
template <class V>
void fields(V& v, Of<V, Welcome>& m) {
    v.value("mac", m.mac);
    fields(v, m.identity);
}
template <class V>
void fields(V&, Of<V, Ping>&) {}
template <class V>
void fields(V& v, Of<V, Heartbeat>& m) {
    leader_epoch(v, "leader_epoch", m.leader_epoch, 1);
    v.value("sent_at", m.sent_at);
    v.value("is_in_office", m.is_in_office);
    v.value("metadata_commit_seq", m.metadata_commit_seq);
}
template <class V>
void fields(V& v, Of<V, HeartbeatOk>& m) {
    v.value("leader_epoch", m.leader_epoch);
    v.value("sent_at", m.sent_at);
    v.value("installed_epoch", m.installed_epoch);
}
template <class V>
void fields(V& v, Of<V, Release>& m) {
    v.value("leader_epoch", m.leader_epoch);
    v.value("successor", m.successor);
}
template <class V>
void fields(V& v, Of<V, PreVote>& m) {
    leader_epoch(v, "candidate_epoch", m.candidate_epoch, 1);
}
template <class V>
void fields(V& v, Of<V, PreVoteReply>& m) {
    v.value("candidate_epoch", m.candidate_epoch);
    v.value("is_yes", m.is_yes);
    v.value("is_blank", m.is_blank);
    leader_epoch(v, "promised_epoch", m.promised_epoch);
}
template <class V>
void fields(V& v, Of<V, Prepare>& m) {
    leader_epoch(v, "leader_epoch", m.leader_epoch, 1);
}

constexpr std::size_t COPY_BYTES = 4 + 16 + 8 + 1 + 8;
template <class V>
void fields(V& v, Of<V, PromiseGiven>& m) {
    v.value("leader_epoch", m.leader_epoch);
    v.value("installed_epoch", m.installed_epoch);
    v.value("cluster_id", m.cluster_id);
    v.value("is_blank", m.is_blank);
    v.list("copies", m.copies, COPY_BYTES, [&v](Of<V, CopyReport>& copy) {
        part(v, "copies.log", copy.log);
        part(v, "copies.end", copy.end);
        v.value("copies.commit_seq", copy.commit_seq);
        v.one_of("copies.state", copy.state, CopyState::FAULTY_UNCERTAIN);
        v.value("copies.faulty_from", copy.faulty_from);
        v.check("copies.faulty_from", is_faulty(copy.state) == (copy.faulty_from != Sequence()),
                "does not go with the state");
    });
    check_order(v, "copies", m.copies);
}

constexpr std::size_t BASE_BYTES = 4 + 16;
template <class V>
void base_list(V& v, const char* field, Of<V, std::vector<InstallBase>>& list) {
    v.list(field, list, BASE_BYTES, [&v, field](Of<V, InstallBase>& base) {
        part(v, field, base.log);
        part(v, field, base.end);
    });
    check_order(v, field, list);
}
template <class V>
void fields(V& v, Of<V, Install>& m) {
    leader_epoch(v, "leader_epoch", m.leader_epoch, 1);
    v.value("cluster_id", m.cluster_id);
    v.value("metadata_commit_seq", m.metadata_commit_seq);
    v.list("heard", m.heard, sizeof(std::uint64_t),
           [&v](Of<V, std::uint64_t>& incarnation) { v.value("heard", incarnation); });
    base_list(v, "base", m.base);
}
template <class V>
void fields(V& v, Of<V, Installed>& m) {
    v.value("leader_epoch", m.leader_epoch);
    base_list(v, "positions", m.positions);
}
template <class V>
void fields(V& v, Of<V, Refused>& m) {
    v.op("op", m.op);
    leader_epoch(v, "promised_epoch", m.promised_epoch);
}

// How many bytes its records have, and what else stands before all records.
template <class V, class Section, class Size>
void section_head(V& v, Section& section, Size& records_bytes) {
    part(v, "sections.log", section.log);
    part(v, "sections.previous", section.previous);
    v.value("sections.commit_seq", section.commit_seq);
    v.value("sections.records_bytes", records_bytes);
}
template <class V>
void fields(V& v, Of<V, Append>& m) {
    v.value("leader_epoch", m.leader_epoch);
    v.value("metadata_commit_seq", m.metadata_commit_seq);
    std::vector<std::uint32_t> sizes;
    v.list("sections", m.sections, APPEND_SECTION_BYTES, [&](Of<V, AppendSection>& section) {
        auto size = static_cast<std::uint32_t>(section.records.size());
        section_head(v, section, size);
        sizes.push_back(size);
    });
    v.check("sections", !m.sections.empty(), "there is none");
    for (std::size_t i = 0; i < sizes.size(); ++i)
        v.blob("sections.records", m.sections[i].records, sizes[i]);
}
template <class V>
void fields(V& v, Of<V, Flushed>& m) {
    v.value("leader_epoch", m.leader_epoch);
    constexpr std::size_t FLUSHED_BYTES = 4 + 8;
    v.list("logs", m.logs, FLUSHED_BYTES, [&v](Of<V, FlushedLog>& log) {
        part(v, "logs.log", log.log);
        v.value("logs.flushed", log.flushed);
    });
}
template <class V>
void fields(V& v, Of<V, LogGap>& m) {
    v.value("leader_epoch", m.leader_epoch);
    part(v, "log", m.log);
    part(v, "end", m.end);
}
template <class V>
void fields(V& v, Of<V, Fetch>& m) {
    v.value("request_id", m.request_id);
    v.value("leader_epoch", m.leader_epoch);
    part(v, "log", m.log);
    v.value("from", m.from);
    v.value("through", m.through);
    v.value("bytes_max", m.bytes_max);
}
template <class V>
void fields(V& v, Of<V, Fetched>& m) {
    v.value("request_id", m.request_id);
    v.one_of("outcome", m.outcome, FetchOutcome::FAILED);
    v.value("last", m.last);
    v.bytes("records", m.records);
}
template <class V>
void fields(V& v, Of<V, EpochEnd>& m) {
    v.value("request_id", m.request_id);
    v.value("leader_epoch", m.leader_epoch);
    part(v, "log", m.log);
    v.value("at_most", m.at_most);
}
template <class V>
void fields(V& v, Of<V, EpochEndReply>& m) {
    v.value("request_id", m.request_id);
    v.one_of("outcome", m.outcome, FetchOutcome::FAILED);
    part(v, "end", m.end);
}
template <class V>
void fields(V& v, Of<V, Snapshot>& m) {
    v.value("request_id", m.request_id);
    v.value("leader_epoch", m.leader_epoch);
    v.value("file_offset", m.file_offset);
    v.value("through", m.through);
}
template <class V>
void fields(V& v, Of<V, SnapshotReply>& m) {
    v.value("request_id", m.request_id);
    v.one_of("outcome", m.outcome, FetchOutcome::FAILED);
    v.value("through", m.through);
    v.value("total_bytes", m.total_bytes);
    v.bytes("bytes", m.bytes);
}

// Fills in length, op and checksum of a frame whose payload is head behind PEER_HEAD_BYTES, then parts.
void seal(Op op, ByteVector& head, std::span<const ByteSpan> parts) {
    std::size_t total_bytes = head.size() - PEER_LENGTH_BYTES;
    head[PEER_LENGTH_BYTES] = static_cast<std::byte>(op);
    const ByteSpan view(head);
    std::uint32_t crc = crc32c(view.subspan(PEER_LENGTH_BYTES, 1));
    crc = crc32c(view.subspan(PEER_HEAD_BYTES), crc);
    for (const ByteSpan bytes : parts) {
        crc = crc32c(bytes, crc);
        total_bytes += bytes.size();
    }
    MORTAR_ASSERT(total_bytes <= PEER_FRAME_LEN_MAX);
    store_be(head.data(), static_cast<std::uint32_t>(total_bytes));
    store_be(head.data() + CRC_AT, crc);
}

void share(PeerFrame& frame, RecordBytes records) {
    std::size_t size_bytes = 0;
    for (const ByteSpan bytes : records.parts)
        size_bytes += bytes.size();
    MORTAR_ASSERT(size_bytes == records.size_bytes);
    frame.parts.insert(frame.parts.end(), records.parts.begin(), records.parts.end());
    for (auto& owner : records.owners)
        frame.owners.push_back(std::move(owner));
}

}  // namespace

bool is_known_op(std::uint8_t op) {
    return op_name(static_cast<Op>(op)) != "?";
}

std::string_view op_name(Op op) {
    switch (op) {
        case Op::HELLO:
            return "HELLO";
        case Op::CHALLENGE:
            return "CHALLENGE";
        case Op::PROOF:
            return "PROOF";
        case Op::WELCOME:
            return "WELCOME";
        case Op::IDENTITY:
            return "IDENTITY";
        case Op::PING:
            return "PING";
        case Op::HEARTBEAT:
            return "HEARTBEAT";
        case Op::HEARTBEAT_OK:
            return "HEARTBEAT_OK";
        case Op::RELEASE:
            return "RELEASE";
        case Op::PRE_VOTE:
            return "PRE_VOTE";
        case Op::PRE_VOTE_REPLY:
            return "PRE_VOTE_REPLY";
        case Op::PREPARE:
            return "PREPARE";
        case Op::PROMISE:
            return "PROMISE";
        case Op::INSTALL:
            return "INSTALL";
        case Op::INSTALLED:
            return "INSTALLED";
        case Op::REFUSED:
            return "REFUSED";
        case Op::APPEND:
            return "APPEND";
        case Op::FLUSHED:
            return "FLUSHED";
        case Op::LOG_GAP:
            return "LOG_GAP";
        case Op::FETCH:
            return "FETCH";
        case Op::FETCHED:
            return "FETCHED";
        case Op::EPOCH_END:
            return "EPOCH_END";
        case Op::EPOCH_END_REPLY:
            return "EPOCH_END_REPLY";
        case Op::SNAPSHOT:
            return "SNAPSHOT";
        case Op::SNAPSHOT_REPLY:
            return "SNAPSHOT_REPLY";
    }
    return "?";
}

template <class Message>
ByteVector encode(const Message& message) {
    ByteVector frame(PEER_HEAD_BYTES);
    Encoder encoder(frame);
    fields(encoder, message);
    seal(OP_OF<Message>, frame, {});
    return frame;
}

template <class Message>
Result<Message> decode(ByteSpan payload) {
    Message message;
    Decoder decoder(OP_OF<Message>, payload);
    fields(decoder, message);
    MORTAR_TRY(decoder.finish());
    return message;
}

#define MORTAR_PEER_MESSAGE(Message)            \
    template ByteVector encode(const Message&); \
    template Result<Message> decode<Message>(ByteSpan)
MORTAR_PEER_MESSAGE(Hello);
MORTAR_PEER_MESSAGE(Challenge);
MORTAR_PEER_MESSAGE(Proof);
MORTAR_PEER_MESSAGE(Welcome);
MORTAR_PEER_MESSAGE(Identity);
MORTAR_PEER_MESSAGE(Ping);
MORTAR_PEER_MESSAGE(Heartbeat);
MORTAR_PEER_MESSAGE(HeartbeatOk);
MORTAR_PEER_MESSAGE(Release);
MORTAR_PEER_MESSAGE(PreVote);
MORTAR_PEER_MESSAGE(PreVoteReply);
MORTAR_PEER_MESSAGE(Prepare);
MORTAR_PEER_MESSAGE(PromiseGiven);
MORTAR_PEER_MESSAGE(Install);
MORTAR_PEER_MESSAGE(Installed);
MORTAR_PEER_MESSAGE(Refused);
MORTAR_PEER_MESSAGE(Append);
MORTAR_PEER_MESSAGE(Flushed);
MORTAR_PEER_MESSAGE(LogGap);
MORTAR_PEER_MESSAGE(Fetch);
MORTAR_PEER_MESSAGE(Fetched);
MORTAR_PEER_MESSAGE(EpochEnd);
MORTAR_PEER_MESSAGE(EpochEndReply);
MORTAR_PEER_MESSAGE(Snapshot);
MORTAR_PEER_MESSAGE(SnapshotReply);
#undef MORTAR_PEER_MESSAGE

Result<Append> decode_append(ByteSpan payload, std::uint16_t version) {
    Append append = MORTAR_TRY(decode<Append>(payload));
    if (version == 1 && append.sections.size() != 1) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          "APPEND sections: protocol v1 has exactly one");
    }
    return append;
}

PeerFrame encode_append(OutAppend append, std::uint16_t version) {
    MORTAR_ASSERT(!append.sections.empty());
    MORTAR_ASSERT(version > 1 || append.sections.size() == 1);
    PeerFrame frame;
    frame.head.reserve(APPEND_FIXED_BYTES + append.sections.size() * APPEND_SECTION_BYTES);
    frame.head.resize(PEER_HEAD_BYTES);
    Encoder encoder(frame.head);
    encoder.value("leader_epoch", append.leader_epoch);
    encoder.value("metadata_commit_seq", append.metadata_commit_seq);
    encoder.value("sections", static_cast<std::uint32_t>(append.sections.size()));
    for (OutSection& section : append.sections) {
        const auto size = static_cast<std::uint32_t>(section.records.size_bytes);
        section_head(encoder, std::as_const(section), size);
        share(frame, std::move(section.records));
    }
    seal(Op::APPEND, frame.head, frame.parts);
    return frame;
}

PeerFrame encode_fetched(std::uint32_t request_id, RecordBytes records) {
    PeerFrame frame;
    frame.head.reserve(FETCHED_FIXED_BYTES);
    frame.head.resize(PEER_HEAD_BYTES);
    Encoder encoder(frame.head);
    encoder.value("request_id", request_id);
    encoder.one_of("outcome", FetchOutcome::OK, FetchOutcome::FAILED);
    encoder.value("last", records.last);
    encoder.value("records", static_cast<std::uint32_t>(records.size_bytes));
    share(frame, std::move(records));
    seal(Op::FETCHED, frame.head, frame.parts);
    return frame;
}

Result<std::size_t> frame_bytes(ByteSpan length_bytes, std::uint32_t frame_len_max) {
    MORTAR_ASSERT(length_bytes.size() >= PEER_LENGTH_BYTES);
    const auto length = load_be<std::uint32_t>(length_bytes.data());
    if (length < PEER_FRAME_LEN_MIN || length > frame_len_max) {
        return make_error(ErrorCode::BAD_LENGTH, "frame length " + std::to_string(length));
    }
    return PEER_LENGTH_BYTES + length;
}

Result<FrameView> open_frame(ByteSpan frame) {
    if (frame.size() < PEER_HEAD_BYTES ||
        load_be<std::uint32_t>(frame.data()) != frame.size() - PEER_LENGTH_BYTES) {
        return make_error(ErrorCode::BAD_LENGTH, "not one whole frame");
    }
    const ByteSpan payload = frame.subspan(PEER_HEAD_BYTES);
    const std::uint32_t crc = crc32c(payload, crc32c(frame.subspan(PEER_LENGTH_BYTES, 1)));
    if (crc != load_be<std::uint32_t>(frame.data() + CRC_AT)) {
        return make_error(ErrorCode::CHECKSUM_MISMATCH, "a frame is not as it was sent");
    }
    const auto op = std::to_integer<std::uint8_t>(frame[PEER_LENGTH_BYTES]);
    if (!is_known_op(op)) return make_error(ErrorCode::UNKNOWN_OP, "op " + std::to_string(op));
    return FrameView{static_cast<Op>(op), payload};
}

}  // namespace mortar::peer
