#include "core/log/tail_cache.h"

#include <algorithm>

namespace mortar {

void TailCache::add(Sequence sequence, const LogWriter::Appended& appended) {
    if (held_.empty() || held_.back().chunk != appended.chunk) {
        held_.push_back({appended.chunk, sequence, {}});
        bytes_ += appended.chunk->capacity;
        while (bytes_ > bytes_max_ && held_.size() > 1) {
            bytes_ -= held_.front().chunk->capacity;
            held_.pop_front();
        }
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
