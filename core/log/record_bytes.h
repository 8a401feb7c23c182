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
