#include "core/log/record.h"

#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/env/rng.h"
#include "core/log/checkpoint.h"
#include "core/log/index.h"

namespace mortar {
namespace {

ByteVector sample(std::string_view key, std::string_view value) {
    Record record;
    record.sequence = Sequence(0x0102030405060708);
    record.producer_id = ProducerId(0x1112131415161718);
    record.producer_seq = ProducerSeq(0x2122232425262728);
    record.timestamp_unix_ms = 0x3132333435363738;
    record.leader_epoch = LeaderEpoch(0x41424344);
    record.kind = RecordKind::REPLAY;
    record.key = as_byte_span(key);
    record.value = as_byte_span(value);
    ByteVector bytes;
    encode_record(bytes, record);
    return bytes;
}

// The checksum right again after a change, so that the field itself is judged.
void seal(ByteVector& bytes) {
    store_be(bytes.data() + 4, crc32c(ByteSpan(bytes).subspan(8)));
}

TEST(Record, stands_on_disk_as_the_contract_says) {
    const ByteVector bytes = sample("ke", "val");
    EXPECT_EQ(to_hex(ByteSpan(bytes).first(4)), "00000039");
    EXPECT_EQ(load_be<std::uint32_t>(bytes.data() + 4), crc32c(ByteSpan(bytes).subspan(8)));
    EXPECT_EQ(to_hex(ByteSpan(bytes).subspan(8)),
              "0001"
              "0002"
              "00000003"
              "0102030405060708"
              "1112131415161718"
              "2122232425262728"
              "3132333435363738"
              "41424344"
              "02"
              "000000"
              "6b65"
              "76616c");
    EXPECT_EQ(bytes.size(), record_bytes(2, 3));
}

TEST(Record, is_read_back_as_written) {
    for (const auto& [key, value] :
         {std::pair("", ""), std::pair("k", ""), std::pair("", "v"), std::pair("key", "value")}) {
        const ByteVector bytes = sample(key, value);
        const auto record = parse_record(bytes);
        ASSERT_TRUE(record.ok());
        EXPECT_EQ(as_string_view(record->key), key);
        EXPECT_EQ(as_string_view(record->value), value);
        EXPECT_EQ(record->sequence, Sequence(0x0102030405060708));
        EXPECT_EQ(record->leader_epoch, LeaderEpoch(0x41424344));
        EXPECT_EQ(record->kind, RecordKind::REPLAY);
    }
}

TEST(Record, any_flipped_bit_is_refused) {
    const ByteVector bytes = sample("key", "value");
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        ByteVector bad = bytes;
        bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
        EXPECT_FALSE(parse_record(bad).ok()) << bit;
    }
}

TEST(Record, a_part_of_one_is_a_torn_tail) {
    const ByteVector bytes = sample("key", "value");
    for (std::size_t count = 0; count < bytes.size(); ++count) {
        EXPECT_TRUE(parse_record(ByteSpan(bytes).first(count)).is(ErrorCode::TORN_TAIL)) << count;
    }
    EXPECT_TRUE(parse_record(ByteVector(100)).is(ErrorCode::TORN_TAIL));
}

TEST(Record, fields_that_no_writer_makes_are_refused_with_a_right_checksum_too) {
    struct Change {
        std::size_t at;
        unsigned char to;
    };
    for (const Change change :
         {Change{9, 3}, Change{9, 0}, Change{8, 1}, Change{11, 4}, Change{15, 4}, Change{52, 3},
          Change{53, 1}, Change{54, 1}, Change{55, 1}}) {
        ByteVector bytes = sample("key", "value");
        ASSERT_NE(bytes[change.at], std::byte{change.to});
        bytes[change.at] = std::byte{change.to};
        seal(bytes);
        EXPECT_TRUE(parse_record(bytes).is(ErrorCode::CHECKSUM_MISMATCH)) << change.at;
    }
    ByteVector zero_sequence = sample("", "");
    std::fill_n(zero_sequence.begin() + 16, 8, std::byte{0});
    seal(zero_sequence);
    EXPECT_TRUE(parse_record(zero_sequence).is(ErrorCode::CHECKSUM_MISMATCH));
}

TEST(Record, random_bytes_are_never_a_record) {
    Rng rng(1);
    for (int i = 0; i < 20000; ++i) {
        ByteVector bytes(56 + rng.below(40));
        for (std::byte& b : bytes)
            b = static_cast<std::byte>(rng.next());
        if (rng.one_in(2)) store_be(bytes.data(), static_cast<std::uint32_t>(bytes.size() - 4));
        EXPECT_FALSE(parse_record(bytes).ok());
    }
}

TEST(Checkpoint, is_21_bytes_and_any_flipped_bit_is_noticed) {
    ByteVector bytes;
    encode_checkpoint(bytes, {Sequence(0x1122334455667788), 0x01020304});
    ASSERT_EQ(bytes.size(), CHECKPOINT_BYTES);
    EXPECT_EQ(to_hex(ByteSpan(bytes).first(5)), "4d4d514301");
    EXPECT_EQ(to_hex(ByteSpan(bytes).subspan(9)), "112233445566778801020304");
    const auto read = decode_checkpoint(bytes, "x");
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->next_sequence, Sequence(0x1122334455667788));
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        ByteVector bad = bytes;
        bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
        EXPECT_FALSE(decode_checkpoint(bad, "x").ok()) << bit;
    }
    ByteVector longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_TRUE(decode_checkpoint(longer, "x").is(ErrorCode::CHECKSUM_MISMATCH));
}

TEST(SparseIndex, keeps_one_entry_in_64_kib_in_any_order_and_finds_the_one_before) {
    SparseIndex index;
    EXPECT_TRUE(index.add({Sequence(100), 5, 200000, 60}));
    EXPECT_TRUE(index.add({Sequence(1), 5, 6, 60}));
    EXPECT_FALSE(index.add({Sequence(2), 5, 66, 60}));
    EXPECT_FALSE(index.add({Sequence(90), 5, 190000, 60}));
    EXPECT_FALSE(index.add({Sequence(100), 5, 200000, 60}));
    EXPECT_TRUE(index.add({Sequence(50), 5, 100000, 60}));
    EXPECT_EQ(index.find(Sequence(99))->sequence, Sequence(50));
    EXPECT_EQ(index.find(Sequence(100))->sequence, Sequence(100));
    EXPECT_FALSE(index.find(Sequence(0)).has_value());
    ByteVector bytes;
    index.encode(bytes);
    EXPECT_EQ(bytes.size(), 3 * INDEX_ENTRY_BYTES);
    EXPECT_EQ(SparseIndex::decode(bytes).entries(), index.entries());
    bytes[31] = std::byte{1};
    EXPECT_TRUE(SparseIndex::decode(bytes).entries().empty());
    // covers COR-12: zero is never a valid entry
    EXPECT_TRUE(SparseIndex::decode(ByteVector(64)).entries().empty());
}

}  // namespace
}  // namespace mortar
