#include "core/deliver/cursor.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/hash.h"
#include "core/env/rng.h"

namespace mortar {
namespace {

ByteVector bytes_of(const SettledSet& set) {
    ByteVector bytes;
    set.encode(bytes);
    return bytes;
}

TEST(SettledSet, agrees_with_a_plain_set) {
    for (const std::uint64_t start :
         {std::uint64_t{0}, (std::uint64_t{1} << 32) - 150, std::uint64_t{1} << 40}) {
        Rng rng(start + 3);
        SettledSet set{Sequence(start)};
        std::set<std::uint64_t> model;
        std::uint64_t floor = start;
        for (int i = 0; i < 4000; ++i) {
            const std::uint64_t sequence = start + 1 + rng.below(600);
            const bool is_new = sequence > floor && model.insert(sequence).second;
            ASSERT_EQ(set.add(Sequence(sequence)), is_new);
            while (model.contains(floor + 1))
                model.erase(++floor);
            ASSERT_EQ(set.ack_floor(), Sequence(floor));
            ASSERT_EQ(set.count_above_floor(), model.size());
            ASSERT_EQ(set.highest(), Sequence(model.empty() ? floor : *model.rbegin()));
            const std::uint64_t asked = start + rng.below(620);
            ASSERT_EQ(set.contains(Sequence(asked)), asked <= floor || model.contains(asked));
        }
        for (std::uint64_t i = 600; i > 0; --i)
            set.add(Sequence(start + i));
        EXPECT_EQ(set.ack_floor(), Sequence(start + 600));
        EXPECT_EQ(set.count_above_floor(), 0u);
    }
}

TEST(SettledSet, one_hole_in_a_million_closes_at_once) {
    SettledSet set;
    for (std::uint64_t i = 2; i <= 1'000'000; ++i)
        set.add(Sequence(i));
    EXPECT_EQ(set.ack_floor(), Sequence(0));
    // covers DSK-08: space depends on what is open, not on the traffic behind it
    EXPECT_LT(bytes_of(set).size(), 1000u);
    set.add(Sequence(1));
    EXPECT_EQ(set.ack_floor(), Sequence(1'000'000));
    EXPECT_EQ(set.count_above_floor(), 0u);
}

TEST(SettledSet, equal_sets_have_equal_bytes) {
    Rng rng(8);
    SettledSet up;
    SettledSet down;
    for (std::uint64_t i = 2; i < 3000; i += 1 + i % 3)
        up.add(Sequence(i));
    for (std::uint64_t i = 3000; i > 1; --i) {
        if (up.contains(Sequence(i))) down.add(Sequence(i));
        if (rng.one_in(100)) (void)bytes_of(down);
    }
    EXPECT_EQ(bytes_of(up), bytes_of(down));
    const ByteVector bytes = bytes_of(up);
    ByteReader reader(bytes);
    const Result<SettledSet> again = SettledSet::decode(reader);
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(reader.finished());
    EXPECT_EQ(again->count_above_floor(), up.count_above_floor());
    EXPECT_EQ(bytes_of(*again), bytes);
}

ByteVector example_cursor() {
    SettledSet settled(Sequence(10));
    for (const std::uint64_t s : {12u, 13u, 17u})
        settled.add(Sequence(s));
    settled.add(Sequence((std::uint64_t{1} << 33) + 1));
    ByteVector bytes;
    encode_cursor(bytes, 6, settled, {{Sequence(11), 2, 3, true}, {Sequence(14), 0, 1, false}});
    return bytes;
}

TEST(Cursor, comes_back_as_written) {
    const Result<CursorImage> image = decode_cursor(example_cursor());
    ASSERT_TRUE(image.ok());
    EXPECT_EQ(image->cursor_epoch, 6u);
    EXPECT_EQ(image->settled.ack_floor(), Sequence(10));
    EXPECT_TRUE(image->settled.contains(Sequence(13)));
    EXPECT_FALSE(image->settled.contains(Sequence(14)));
    EXPECT_EQ(image->settled.count_above_floor(), 4u);
    const std::vector<UnsettledImage> unsettled{{Sequence(11), 2, 3, true},
                                                {Sequence(14), 0, 1, false}};
    EXPECT_EQ(image->unsettled, unsettled);
}

TEST(Cursor, refuses_every_flipped_byte_and_every_prefix) {
    const ByteVector good = example_cursor();
    for (std::size_t i = 0; i < good.size(); ++i) {
        ByteVector bad = good;
        bad[i] ^= std::byte{0x41};
        const Result<CursorImage> image = decode_cursor(bad);
        ASSERT_TRUE(image.is(ErrorCode::DAMAGED) || image.is(ErrorCode::UNSUPPORTED_FORMAT)) << i;
        ASSERT_FALSE(decode_cursor(ByteSpan(good).first(i)).ok()) << i;
    }
}

TEST(Cursor, names_a_newer_version) {
    ByteVector bytes = example_cursor();
    bytes[4] = std::byte{CURSOR_VERSION + 1};
    const Result<CursorImage> image = decode_cursor(bytes);
    ASSERT_TRUE(image.is(ErrorCode::UNSUPPORTED_FORMAT));
    EXPECT_NE(image.error().detail.find("2"), std::string::npos);
}

TEST(Cursor, refuses_contradictions_under_a_right_checksum) {
    SettledSet settled(Sequence(10));
    for (const auto& unsettled :
         {std::vector<UnsettledImage>{{Sequence(9), 0, 1, false}},
          std::vector<UnsettledImage>{{Sequence(12), 0, 1, false}, {Sequence(11), 0, 1, false}}}) {
        ByteVector bytes;
        encode_cursor(bytes, 1, settled, unsettled);
        EXPECT_TRUE(decode_cursor(bytes).is(ErrorCode::DAMAGED));
    }
}

}  // namespace
}  // namespace mortar
