#include "core/log/tail_cache.h"

#include <algorithm>

namespace mortar {

TailBudget::Place TailBudget::add(TailCache& cache, std::uint64_t bytes) {
    const Place place = held_.insert(held_.end(), {&cache, bytes});
    bytes_ += bytes;
    // The oldest of all is the oldest of its own cache.
    while (bytes_ > bytes_max_ && held_.begin() != place)
        held_.front().cache->drop_oldest();
    return place;
}

void TailBudget::remove(Place place) {
    bytes_ -= place->bytes;
    held_.erase(place);
}

TailCache::~TailCache() {
    for (const Held& held : held_)
        budget_->remove(held.place);
}

void TailCache::drop_oldest() {
    Held& oldest = held_.front();
    bytes_ -= oldest.chunk->capacity;
    budget_->remove(oldest.place);
    writer_.let_go(*oldest.chunk);
    held_.pop_front();
}

void TailCache::add(Sequence sequence, const LogWriter::Appended& appended) {
    if (held_.empty() || held_.back().chunk != appended.chunk) {
        const std::uint64_t chunk_bytes = appended.chunk->capacity;
        while (!held_.empty() && bytes_ + chunk_bytes > bytes_max_)
            drop_oldest();
        const TailBudget::Place place = budget_->add(*this, chunk_bytes);
        held_.push_back({appended.chunk, sequence, {}, place});
        bytes_ += chunk_bytes;
    }
    Held& last = held_.back();
    MORTAR_ASSERT(sequence_distance(last.first, sequence) == last.records.size());
    last.records.push_back(appended.bytes);
}

bool TailCache::holds(Sequence sequence) const {
    return !held_.empty() && sequence >= held_.front().first &&
           sequence < held_.back().first.plus(held_.back().records.size());
}

void TailCache::cut(Sequence last) {
    while (!held_.empty() && held_.back().first > last) {
        bytes_ -= held_.back().chunk->capacity;
        budget_->remove(held_.back().place);
        writer_.let_go(*held_.back().chunk);
        held_.pop_back();
    }
    if (!held_.empty() && holds(last)) {
        std::vector<ByteSpan>& records = held_.back().records;
        records.resize(static_cast<std::size_t>(sequence_distance(held_.back().first, last)) + 1);
    }
}

Result<RecordBatch> TailCache::read(Sequence from, Sequence last, std::uint64_t bytes_max) const {
    RecordBatch batch;
    MORTAR_TRY(read_each(
        from, last, bytes_max,
        [&batch](const Record& record, ByteSpan, const std::shared_ptr<WriteChunk>& chunk) {
            if (batch.owners.empty() || batch.owners.back() != chunk) batch.owners.push_back(chunk);
            batch.records.push_back(record);
        }));
    return batch;
}

Result<RecordBytes> TailCache::read_bytes(Sequence from, Sequence last,
                                          std::uint64_t bytes_max) const {
    RecordBytes bytes;
    MORTAR_TRY(read_each(from, last, bytes_max,
                         [&bytes](const Record& record, ByteSpan record_bytes,
                                  const std::shared_ptr<WriteChunk>& chunk) {
                             bytes.add(record.sequence, record_bytes, chunk);
                         }));
    return bytes;
}

template <class Take>
Result<void> TailCache::read_each(Sequence from, Sequence last, std::uint64_t bytes_max,
                                  const Take& take) const {
    MORTAR_ASSERT(holds(from));
    auto chunk = std::upper_bound(held_.begin(), held_.end(), from,
                                  [](Sequence s, const Held& held) { return s < held.first; });
    std::uint64_t bytes = 0;
    for (--chunk; chunk != held_.end(); ++chunk) {
        const std::uint64_t skip = from > chunk->first ? sequence_distance(chunk->first, from) : 0;
        for (std::size_t i = static_cast<std::size_t>(skip); i < chunk->records.size(); ++i) {
            const Sequence sequence = chunk->first.plus(i);
            if (sequence > last || (bytes >= bytes_max && sequence != from)) return {};
            const Record record = MORTAR_TRY(parse_record(chunk->records[i]));
            if (record.sequence != sequence) {
                return make_error(ErrorCode::CHECKSUM_MISMATCH, "tail cache: wrong record");
            }
            bytes += chunk->records[i].size();
            take(record, chunk->records[i], chunk->chunk);
        }
    }
    return {};
}

}  // namespace mortar
