#include "core/produce/producer_window.h"

#include <algorithm>
#include <string>

#include "core/base/hash.h"

namespace mortar {
namespace {

constexpr std::size_t CHECKED_FROM_BYTES = 4 + 1 + 4;  // magic, version, crc32c

Error damaged(std::string_view path, std::string_view what) {
    return make_error(ErrorCode::DAMAGED, std::string(path).append(": ").append(what));
}

}  // namespace

WindowVerdict ProducerWindows::check(ProducerId producer_id, ProducerSeq producer_seq) const {
    using Kind = WindowVerdict::Kind;
    if (producer_id == ProducerId(0)) return {Kind::NEXT, {}, {}};
    const auto found = by_id_.find(producer_id);
    if (found == by_id_.end())
        return {producer_seq == ProducerSeq(1) ? Kind::NEXT : Kind::EXPIRED, {}, {}};
    const Producer& producer = *found->second;
    const ProducerSeq expected = producer.last_seq.next();
    if (producer_seq == expected) return {Kind::NEXT, {}, {}};
    if (producer_seq > expected) return {Kind::GAP, {}, expected};
    if (producer_seq < producer.runs.front().first_seq) return {Kind::EXPIRED, {}, {}};
    const auto behind =
        std::upper_bound(producer.runs.begin(), producer.runs.end(), producer_seq,
                         [](ProducerSeq wanted, const Run& run) { return wanted < run.first_seq; });
    const Run& run = *std::prev(behind);
    MORTAR_ASSERT(producer_seq.value - run.first_seq.value < run.count);
    return {Kind::DUPLICATE, run.first_sequence.plus(producer_seq.value - run.first_seq.value), {}};
}

void ProducerWindows::on_record(ProducerId producer_id, ProducerSeq producer_seq,
                                Sequence sequence) {
    if (producer_id == ProducerId(0)) return;
    const auto found = by_id_.find(producer_id);
    if (found != by_id_.end()) {
        producers_.splice(producers_.end(), producers_, found->second);
    } else {
        producers_.push_back({producer_id, {}, 0, {}});
        by_id_.emplace(producer_id, std::prev(producers_.end()));
    }
    remember(producers_.back(), producer_seq, sequence);
    if (producers_.size() <= PRODUCER_COUNT_MAX) return;
    by_id_.erase(producers_.front().producer_id);
    producers_.pop_front();
}

void ProducerWindows::remember(Producer& producer, ProducerSeq producer_seq, Sequence sequence) {
    if (!producer.runs.empty() && producer_seq != producer.last_seq.next()) {
        producer.runs.clear();
        producer.remembered_count = 0;
    }
    producer.last_seq = producer_seq;
    ++producer.remembered_count;
    if (!producer.runs.empty() &&
        producer.runs.back().first_sequence.plus(producer.runs.back().count) == sequence) {
        ++producer.runs.back().count;
    } else {
        producer.runs.push_back({producer_seq, sequence, 1});
    }
    if (producer.remembered_count <= PRODUCER_WINDOW_COUNT) return;
    Run& oldest = producer.runs.front();
    --producer.remembered_count;
    oldest.first_seq = oldest.first_seq.next();
    oldest.first_sequence = oldest.first_sequence.next();
    if (--oldest.count == 0) producer.runs.pop_front();
}

ByteVector ProducerWindows::encode(Sequence through) const {
    ByteVector file;
    ByteWriter writer(file);
    writer.bytes(as_byte_span(PRODUCER_WINDOWS_MAGIC));
    writer.u8(PRODUCER_WINDOWS_VERSION);
    writer.u32(0);
    writer.id(through);
    writer.u32(static_cast<std::uint32_t>(producers_.size()));
    for (const Producer& producer : producers_) {
        writer.id(producer.producer_id);
        writer.id(producer.last_seq);
        writer.u32(static_cast<std::uint32_t>(producer.runs.size()));
        for (const Run& run : producer.runs) {
            writer.id(run.first_seq);
            writer.id(run.first_sequence);
            writer.u32(run.count);
        }
    }
    store_be(file.data() + CHECKED_FROM_BYTES - sizeof(std::uint32_t),
             crc32c(ByteSpan(file).subspan(CHECKED_FROM_BYTES)));
    return file;
}

void ProducerWindows::for_each_run(const std::function<void(const RunView& run)>& see) const {
    for (const Producer& producer : producers_) {
        for (const Run& run : producer.runs)
            see({producer.producer_id, run.first_seq, run.first_sequence, run.count});
    }
}

Result<ProducerWindows::Decoded> ProducerWindows::decode(ByteSpan file, std::string_view path) {
    ByteReader reader(file);
    const ByteSpan magic = reader.bytes(PRODUCER_WINDOWS_MAGIC.size());
    const std::uint8_t version = reader.u8();
    const std::uint32_t checksum = reader.u32();
    if (reader.failed() || as_string_view(magic) != PRODUCER_WINDOWS_MAGIC)
        return damaged(path, "no producer window file");
    if (version != PRODUCER_WINDOWS_VERSION) {
        return make_error(ErrorCode::UNSUPPORTED_FORMAT,
                          std::string(path)
                              .append(": producer windows of version ")
                              .append(std::to_string(version)));
    }
    if (crc32c(file.subspan(CHECKED_FROM_BYTES)) != checksum)
        return damaged(path, "wrong checksum");

    Decoded decoded;
    decoded.through = reader.id<Sequence>();
    const std::uint32_t producer_count = reader.u32();
    if (producer_count > PRODUCER_COUNT_MAX) return damaged(path, "too many producers");
    for (std::uint32_t i = 0; i < producer_count; ++i) {
        Producer producer;
        producer.producer_id = reader.id<ProducerId>();
        producer.last_seq = reader.id<ProducerSeq>();
        const std::uint32_t run_count = reader.u32();
        if (reader.failed() || run_count == 0 || run_count > PRODUCER_WINDOW_COUNT)
            return damaged(path, "bad run count");
        for (std::uint32_t r = 0; r < run_count; ++r) {
            Run run;
            run.first_seq = reader.id<ProducerSeq>();
            run.first_sequence = reader.id<Sequence>();
            run.count = reader.u32();
            const bool dense =
                producer.runs.empty() ||
                run.first_seq == producer.runs.back().first_seq.plus(producer.runs.back().count);
            if (run.count == 0 || run.count > PRODUCER_WINDOW_COUNT || !dense)
                return damaged(path, "bad run");
            producer.remembered_count += run.count;
            producer.runs.push_back(run);
        }
        const Run& last = producer.runs.back();
        if (producer.remembered_count > PRODUCER_WINDOW_COUNT ||
            producer.producer_id == ProducerId(0) ||
            last.first_seq.plus(last.count - 1) != producer.last_seq) {
            return damaged(path, "bad producer");
        }
        decoded.windows.producers_.push_back(std::move(producer));
        const auto placed = std::prev(decoded.windows.producers_.end());
        if (!decoded.windows.by_id_.emplace(placed->producer_id, placed).second)
            return damaged(path, "producer twice");
    }
    if (!reader.finished()) return damaged(path, "wrong length");
    return decoded;
}

}  // namespace mortar
