// producer_window: which (producer_id, producer_seq) a partition remembers, and the sequence that
// each of them got.
// Shape:     per producer its last producer_seq and, for the last 4,096 of them, runs producer_seq
//            -> sequence. Producers stand in the order of their last append; beyond 1,024 the one
//            that appended longest ago is forgotten.
// Owns:      its state. A pure function of the log prefix that was fed: on_record for each record,
//            in log order.
// Errors:    decode: DAMAGED, UNSUPPORTED_FORMAT.
// Invariant: last producer_seq and runs of a producer end at the same number; runs are dense in
//            producer_seq.
// Source:    contract P2, P3, 7 (MMPW).
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <string_view>
#include <unordered_map>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace mortar {

inline constexpr std::size_t PRODUCER_COUNT_MAX = 1024;       // remembered a partition
inline constexpr std::uint64_t PRODUCER_WINDOW_COUNT = 4096;  // producer_seqs remembered a producer
inline constexpr std::string_view PRODUCER_WINDOWS_MAGIC = "MMPW";
inline constexpr std::uint8_t PRODUCER_WINDOWS_VERSION = 1;

struct WindowVerdict {
    enum class Kind : std::uint8_t {
        NEXT,       // append it
        DUPLICATE,  // it is the record at sequence
        GAP,        // above last + 1: SEQ_GAP
        // below what is remembered, or an unknown producer that does not start at 1: SEQ_EXPIRED
        EXPIRED,
    };
    Kind kind = Kind::NEXT;
    Sequence sequence;
    ProducerSeq expected;  // with GAP: last + 1
};

class ProducerWindows {
  public:
    // producer_id 0 (no idempotence) is always NEXT.
    WindowVerdict check(ProducerId producer_id, ProducerSeq producer_seq) const;
    // The record is in the log at this sequence. Total: what check would have refused starts the
    // producer anew.
    void on_record(ProducerId producer_id, ProducerSeq producer_seq, Sequence sequence);
    std::size_t producer_count() const { return producers_.size(); }

    // MMPW: magic, u8 version, u32 crc32c of all after it, u64 through_sequence, u32 producer
    // count; per producer in the order of last appends u64 producer_id, u64 last producer_seq, u32
    // run count; per run u64 first producer_seq, u64 first sequence, u32 count.
    ByteVector encode(Sequence through) const;
    // For people who look at the file: every run, producers in the order of their last appends.
    struct RunView {
        ProducerId producer_id;
        ProducerSeq first_seq;
        Sequence first_sequence;
        std::uint32_t count = 0;
    };
    void for_each_run(const std::function<void(const RunView& run)>& see) const;
    struct Decoded;
    // path: for the error text.
    static Result<Decoded> decode(ByteSpan file, std::string_view path);

  private:
    struct Run {
        ProducerSeq first_seq;
        Sequence first_sequence;
        std::uint32_t count = 0;
    };
    struct Producer {
        ProducerId producer_id;
        ProducerSeq last_seq;
        std::uint64_t remembered_count = 0;  // over all runs
        std::deque<Run> runs;
    };
    void remember(Producer& producer, ProducerSeq producer_seq, Sequence sequence);

    std::list<Producer> producers_;  // front: appended longest ago
    std::unordered_map<ProducerId, std::list<Producer>::iterator> by_id_;
};

struct ProducerWindows::Decoded {
    ProducerWindows windows;
    Sequence through;
};

}  // namespace mortar
