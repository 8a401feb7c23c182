// tail_cache: the latest records of a log in memory: the same bytes that the writer wrote, not copied again.
// Shape:     records are dense: the first in the cache, then each that was appended after it. Whole chunks are dropped, oldest
//            first: of this log when they are more than bytes_max, of whichever log holds the oldest when all logs of the
//            budget hold more than that allows. The newest chunk stays, however large.
// Owns:      its share of the writer's chunks; batches handed out share them further.
// Invariant: add is called with every record appended, in order, and cut with every cut. A chunk dropped is kept by no writer for its next records.
// Source:    design 6 (bounds: memory <= budget), 7 (consuming reads from the tail cache; no scan).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "core/log/record.h"
#include "core/log/segment.h"
#include "core/log/writer.h"

namespace mortar {

inline constexpr std::uint64_t TAIL_BUDGET_BYTES = 256u << 20;  // of all logs of a node together

class TailCache;

// What the caches of a node share: the chunks they hold, in the order in which they came.
class TailBudget {
  public:
    explicit TailBudget(std::uint64_t bytes_max = TAIL_BUDGET_BYTES) : bytes_max_(bytes_max) {}
    TailBudget(const TailBudget&) = delete;
    TailBudget& operator=(const TailBudget&) = delete;

    std::uint64_t held_bytes() const { return bytes_; }

  private:
    friend class TailCache;
    struct Held {
        TailCache* cache;
        std::uint64_t bytes;
    };
    using Place = std::list<Held>::iterator;
    Place add(TailCache& cache, std::uint64_t bytes);
    void remove(Place place);

    std::uint64_t bytes_max_;
    std::uint64_t bytes_ = 0;
    std::list<Held> held_;
};

class TailCache {
  public:
    TailCache(LogWriter& writer, std::uint64_t bytes_max, std::shared_ptr<TailBudget> budget)
        : writer_(writer), bytes_max_(bytes_max), budget_(std::move(budget)) {}
    ~TailCache();
    TailCache(const TailCache&) = delete;
    TailCache& operator=(const TailCache&) = delete;

    void add(Sequence sequence, const LogWriter::Appended& appended);
    bool holds(Sequence sequence) const;
    // from must be held. About bytes_max of records, at least one. CHECKSUM_MISMATCH if memory went bad.
    Result<RecordBatch> read(Sequence from, Sequence last, std::uint64_t bytes_max) const;
    // The same records as spans into the writer's chunks.
    Result<RecordBytes> read_bytes(Sequence from, Sequence last, std::uint64_t bytes_max) const;
    // Forgets the records behind last.
    void cut(Sequence last);

  private:
    friend class TailBudget;
    struct Held {
        std::shared_ptr<WriteChunk> chunk;
        Sequence first;
        std::vector<ByteSpan> records;
        TailBudget::Place place;
    };
    void drop_oldest();
    // take(record, its bytes, the chunk that they are in) is called with each record in turn.
    template <class Take>
    Result<void> read_each(Sequence from, Sequence last, std::uint64_t bytes_max,
                           const Take& take) const;

    LogWriter& writer_;
    std::uint64_t bytes_max_;
    std::shared_ptr<TailBudget> budget_;
    std::uint64_t bytes_ = 0;  // capacity of the chunks held
    std::deque<Held> held_;
};

}  // namespace mortar
