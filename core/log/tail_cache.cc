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

Result<RecordBatch> TailCache::read(Sequence from, Sequence last, std::uint64_t bytes_max) const {
    MORTAR_ASSERT(holds(from));
    auto chunk = std::upper_bound(held_.begin(), held_.end(), from,
                                  [](Sequence s, const Held& held) { return s < held.first; });
    RecordBatch batch;
    std::uint64_t bytes = 0;
    for (--chunk; chunk != held_.end(); ++chunk) {
        const std::uint64_t skip = from > chunk->first ? sequence_distance(chunk->first, from) : 0;
        for (std::size_t i = static_cast<std::size_t>(skip); i < chunk->records.size(); ++i) {
            const Sequence sequence = chunk->first.plus(i);
            if (sequence > last || (bytes >= bytes_max && !batch.records.empty())) return batch;
            const Record record = MORTAR_TRY(parse_record(chunk->records[i]));
            if (record.sequence != sequence) {
                return make_error(ErrorCode::CHECKSUM_MISMATCH, "tail cache: wrong record");
            }
            if (batch.owners.empty() || batch.owners.back() != chunk->chunk) {
                batch.owners.push_back(chunk->chunk);
            }
            bytes += chunk->records[i].size();
            batch.records.push_back(record);
        }
    }
    return batch;
}

}  // namespace mortar
