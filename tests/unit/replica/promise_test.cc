#include "core/replica/promise.h"

#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "tests/unit/produce/fakes.h"

namespace mortar {
namespace {

Promise sample() {
    Promise promise;
    promise.node_id = NodeId(2);
    promise.cluster_id[0] = std::byte{0xab};
    promise.leader_epoch = LeaderEpoch(7);
    return promise;
}

TEST(Promise, is_the_bytes_that_its_header_names) {
    const ByteVector file = encode_promise(sample());
    EXPECT_EQ(to_hex(ByteSpan(file).first(5)), "4d4d525301");
    EXPECT_EQ(to_hex(ByteSpan(file).subspan(9)),
              "0002ab0000000000000000000000000000000000000000000007");
}

TEST(Promise, is_read_back_as_it_was_saved) {
    testing::FakeWorld world;
    world.in_fiber([&world](Fiber& fiber) {
        const auto none = load_promise(fiber, world.disk);
        ASSERT_TRUE(none.ok());
        EXPECT_FALSE(none->has_value());
        ASSERT_TRUE(save_promise(fiber, world.disk, sample()).ok());
        const auto loaded = load_promise(fiber, world.disk);
        ASSERT_TRUE(loaded.ok());
        EXPECT_EQ(*loaded, sample());
    });
}

// A guessed epoch could come twice, and delivery ids with it.
TEST(Promise, refuses_every_cut_every_flipped_byte_and_a_longer_file) {
    const ByteVector file = encode_promise(sample());
    for (std::size_t size = 0; size < file.size(); ++size) {
        EXPECT_TRUE(decode_promise(ByteSpan(file).first(size)).is(ErrorCode::DAMAGED)) << size;
    }
    for (std::size_t at = 0; at < file.size(); ++at) {
        ByteVector bad = file;
        bad[at] ^= std::byte{0x10};
        EXPECT_FALSE(decode_promise(bad).ok()) << at;
    }
    ByteVector longer = file;
    longer.push_back(std::byte{0});
    EXPECT_TRUE(decode_promise(longer).is(ErrorCode::DAMAGED));
    ByteVector newer = file;
    newer[4] = std::byte{2};
    EXPECT_TRUE(decode_promise(newer).is(ErrorCode::UNSUPPORTED_FORMAT));
}

}  // namespace
}  // namespace mortar
