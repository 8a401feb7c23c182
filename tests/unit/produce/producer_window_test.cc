#include "core/produce/producer_window.h"

#include <gtest/gtest.h>

#include "core/base/hash.h"

namespace mortar {
namespace {

using Kind = WindowVerdict::Kind;

constexpr ProducerId P{7};

TEST(Contract, P2_first_producer_seq_is_1_then_last_plus_1) {
    ProducerWindows windows;
    EXPECT_EQ(windows.check(P, ProducerSeq(1)).kind, Kind::NEXT);
    EXPECT_EQ(windows.check(P, ProducerSeq(2)).kind, Kind::EXPIRED);  // unknown producer above 1
    windows.on_record(P, ProducerSeq(1), Sequence(40));
    EXPECT_EQ(windows.check(P, ProducerSeq(2)).kind, Kind::NEXT);
}

TEST(Contract, P2_gap_names_what_is_expected) {
    ProducerWindows windows;
    windows.on_record(P, ProducerSeq(1), Sequence(1));
    const WindowVerdict verdict = windows.check(P, ProducerSeq(3));
    EXPECT_EQ(verdict.kind, Kind::GAP);
    EXPECT_EQ(verdict.expected, ProducerSeq(2));
}

TEST(ProducerWindow, answers_duplicate_with_original_sequence) {
    ProducerWindows windows;
    // Two producers interleave, so that runs are short.
    std::uint64_t sequence = 0;
    for (std::uint64_t seq = 1; seq <= 100; ++seq) {
        windows.on_record(P, ProducerSeq(seq), Sequence(++sequence));
        if (seq % 3 == 0)
            windows.on_record(ProducerId(8), ProducerSeq(seq / 3), Sequence(++sequence));
    }
    for (std::uint64_t seq = 1; seq <= 100; ++seq) {
        const WindowVerdict verdict = windows.check(P, ProducerSeq(seq));
        ASSERT_EQ(verdict.kind, Kind::DUPLICATE);
        EXPECT_EQ(verdict.sequence, Sequence(seq + (seq - 1) / 3));
    }
    EXPECT_EQ(windows.check(ProducerId(8), ProducerSeq(33)).sequence, Sequence(99 + 33));
}

TEST(Contract, P2_remembers_the_last_4096_and_no_more) {
    ProducerWindows windows;
    for (std::uint64_t seq = 1; seq <= PRODUCER_WINDOW_COUNT + 10; ++seq) {
        windows.on_record(P, ProducerSeq(seq),
                          Sequence(seq * 2));  // never two in a row: the most runs
    }
    EXPECT_EQ(windows.check(P, ProducerSeq(10)).kind, Kind::EXPIRED);
    EXPECT_EQ(windows.check(P, ProducerSeq(11)).sequence, Sequence(22));
    EXPECT_EQ(windows.check(P, ProducerSeq(PRODUCER_WINDOW_COUNT + 10)).kind, Kind::DUPLICATE);
    EXPECT_EQ(windows.check(P, ProducerSeq(PRODUCER_WINDOW_COUNT + 11)).kind, Kind::NEXT);
}

TEST(Contract, P3_forgets_the_producer_that_appended_longest_ago) {
    ProducerWindows windows;
    std::uint64_t sequence = 0;
    for (std::uint64_t id = 1; id <= PRODUCER_COUNT_MAX; ++id) {
        windows.on_record(ProducerId(id), ProducerSeq(1), Sequence(++sequence));
    }
    windows.on_record(ProducerId(1), ProducerSeq(2), Sequence(++sequence));  // 2 is the oldest now
    windows.on_record(ProducerId(9000), ProducerSeq(1), Sequence(++sequence));
    EXPECT_EQ(windows.producer_count(), PRODUCER_COUNT_MAX);
    EXPECT_EQ(windows.check(ProducerId(1), ProducerSeq(2)).kind, Kind::DUPLICATE);
    EXPECT_EQ(windows.check(ProducerId(2), ProducerSeq(2)).kind, Kind::EXPIRED);
    EXPECT_EQ(windows.check(ProducerId(2), ProducerSeq(1)).kind,
              Kind::NEXT);  // forgotten: it may start anew
    EXPECT_EQ(windows.check(ProducerId(3), ProducerSeq(1)).kind, Kind::DUPLICATE);
}

TEST(ProducerWindow, ignores_records_without_a_producer) {
    ProducerWindows windows;
    windows.on_record(ProducerId(0), ProducerSeq(0), Sequence(1));
    EXPECT_EQ(windows.producer_count(), 0u);
    EXPECT_EQ(windows.check(ProducerId(0), ProducerSeq(0)).kind, Kind::NEXT);
}

TEST(ProducerWindow, file_holds_the_bytes_that_the_contract_names) {
    ProducerWindows windows;
    windows.on_record(P, ProducerSeq(1), Sequence(5));
    windows.on_record(P, ProducerSeq(2), Sequence(6));
    const ByteVector file = windows.encode(Sequence(6));
    const std::string head = to_hex(ByteSpan(file).first(5));
    EXPECT_EQ(head, "4d4d505701");
    EXPECT_EQ(to_hex(ByteSpan(file).subspan(9)),
              "0000000000000006"
              "00000001"
              "0000000000000007"
              "0000000000000002"
              "00000001"
              "0000000000000001"
              "0000000000000005"
              "00000002");
    EXPECT_EQ(load_be<std::uint32_t>(file.data() + 5), crc32c(ByteSpan(file).subspan(9)));
}

// covers DED-03, COR-15: a damaged file is never half believed.
TEST(ProducerWindow, refuses_every_cut_and_every_flipped_byte) {
    ProducerWindows windows;
    windows.on_record(P, ProducerSeq(1), Sequence(5));
    windows.on_record(ProducerId(9), ProducerSeq(1), Sequence(6));
    const ByteVector file = windows.encode(Sequence(6));
    ASSERT_TRUE(ProducerWindows::decode(file, "p").ok());
    for (std::size_t size = 0; size < file.size(); ++size) {
        EXPECT_TRUE(ProducerWindows::decode(ByteSpan(file).first(size), "p").is(ErrorCode::DAMAGED))
            << size;
    }
    for (std::size_t at = 0; at < file.size(); ++at) {
        ByteVector bad = file;
        bad[at] ^= std::byte{0x40};
        EXPECT_FALSE(ProducerWindows::decode(bad, "p").ok()) << at;
    }
}

TEST(ProducerWindow, refuses_a_newer_file_by_path_and_version) {
    ByteVector file = ProducerWindows().encode(Sequence(0));
    file[4] = std::byte{2};
    const auto decoded = ProducerWindows::decode(file, "topics/1/0/producers.mqp");
    ASSERT_TRUE(decoded.is(ErrorCode::UNSUPPORTED_FORMAT));
    EXPECT_EQ(decoded.error().detail, "topics/1/0/producers.mqp: producer windows of version 2");
}

}  // namespace
}  // namespace mortar
