// tail_cache: the latest records of a log in memory: the same bytes that the writer wrote, not copied again.
// Shape:     records are dense: the first in the cache, then each that was appended after it. Whole chunks are dropped from the
//            front when the chunks held are more than bytes_max.
// Owns:      its share of the writer's chunks; batches handed out share them further.
// Invariant: add is called with every record appended, in order.
// Source:    design 7 (consuming reads from the tail cache).
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "core/log/record.h"
#include "core/log/segment.h"
#include "core/log/writer.h"

namespace mortar {

class TailCache {
  public:
    explicit TailCache(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

    void add(Sequence sequence, const LogWriter::Appended& appended);
    bool holds(Sequence sequence) const;
    // from must be held. About bytes_max of records, at least one. CHECKSUM_MISMATCH if memory went bad.
    Result<RecordBatch> read(Sequence from, Sequence last, std::uint64_t bytes_max) const;

  private:
    struct Held {
        std::shared_ptr<WriteChunk> chunk;
        Sequence first;
        std::vector<ByteSpan> records;
    };

    std::uint64_t bytes_max_;
    std::uint64_t bytes_ = 0;  // capacity of the chunks held
    std::deque<Held> held_;
};

}  // namespace mortar
