// record_bytes: records as bytes that are passed on as they are, and where a log ends.
// Shape:  parts are whole records back to back, without the gaps between batches; a part may hold many records, a record
//         stands in one part.
// Owns:   owners keep the parts' bytes alive.
// Source: design 4 (APPEND, FETCH, positions).
#pragma once

#include <memory>
#include <vector>

#include "core/base/bytes.h"

namespace mortar {

struct LogEnd {
    Sequence last;             // 0 = empty
    LeaderEpoch leader_epoch;  // of the last record; 0 when empty
    bool operator==(const LogEnd&) const = default;
};

// What a process still knows of a log that it had open before. Nothing when it has just started.
struct KnownSynced {
    LogEnd end;  // synced: what is bad up to here is damage
    // Nothing behind end was ever told to be synced: what is torn there is no loss.
    bool is_all = false;
};

// Of a log with a bad record: the records that are fetched anew together, those of one segment. last: as far as the log claims.
struct DamagedPart {
    Sequence first;
    Sequence last;
    bool is_at_end = false;  // of the last segment
    bool operator==(const DamagedPart&) const = default;
};
// Readable records of one leader_epoch, from the first to the last; there may be bad ones between them.
struct EpochRun {
    LeaderEpoch leader_epoch;
    Sequence first;
    Sequence last;
    bool operator==(const EpochRun&) const = default;
};
// What was read and found good.
struct Scrubbed {
    Sequence last;  // 0: nothing
    std::uint64_t record_count = 0;
    std::uint64_t size_bytes = 0;
};

struct RecordBytes {
    Sequence first;
    Sequence last;
    std::vector<ByteSpan> parts;
    std::vector<std::shared_ptr<const void>> owners;
    std::size_t size_bytes = 0;

    // The next record.
    void add(Sequence sequence, ByteSpan record, const std::shared_ptr<const void>& owner) {
        if (parts.empty()) first = sequence;
        last = sequence;
        size_bytes += record.size();
        if (owners.empty() || owners.back() != owner) owners.push_back(owner);
        if (!parts.empty() && parts.back().data() + parts.back().size() == record.data()) {
            parts.back() = ByteSpan(parts.back().data(), parts.back().size() + record.size());
        } else {
            parts.push_back(record);
        }
    }
};

}  // namespace mortar
