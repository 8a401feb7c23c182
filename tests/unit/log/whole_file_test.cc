#include "core/log/whole_file.h"

#include <gtest/gtest.h>

#include "tests/unit/log/fake_disk.h"

namespace mortar {
namespace {

using testing::DiskWorld;
using testing::FakeDisk;

TEST(WholeFile, is_read_whole_or_not_at_all_and_its_start_as_far_as_it_goes) {
    FakeDisk disk;
    DiskWorld world(disk);
    const std::string text = "0123456789";
    disk.put("d/f", ByteVector(as_byte_span(text).begin(), as_byte_span(text).end()));
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const Result<ByteVector> whole = read_whole_file(fiber, disk, "d/f", 10);
        ASSERT_TRUE(whole.ok());
        EXPECT_EQ(as_string_view(*whole), text);
        const Result<ByteVector> refused = read_whole_file(fiber, disk, "d/f", 9);
        ASSERT_TRUE(refused.is(ErrorCode::DAMAGED));
        EXPECT_EQ(refused.error().detail, "d/f has 10 bytes, at most 9 are read");
        EXPECT_EQ(as_string_view(*read_file_start(fiber, disk, "d/f", 4)), "0123");
        EXPECT_EQ(as_string_view(*read_file_start(fiber, disk, "d/f", 100)), text);
        EXPECT_TRUE(read_file_start(fiber, disk, "d/g", 4).is(ErrorCode::NOT_FOUND));
    }));
}

// covers DUR-15
TEST(WholeFile, replaced_is_the_old_one_or_the_new_one_after_a_power_loss_at_any_operation) {
    const ByteVector old_bytes(3000, std::byte{1});
    const ByteVector new_bytes(2000, std::byte{2});
    int kept_count = 0;
    int replaced_count = 0;
    for (std::uint64_t stop = 1; stop < 60; ++stop) {
        FakeDisk disk(stop);
        disk.put("d/f", old_bytes);
        disk.put("d/f.tmp", ByteVector(5000, std::byte{3}));  // of an earlier crash
        bool is_done = false;
        {
            DiskWorld world(disk);
            disk.stop_at = stop;
            world.run([&](Fiber& fiber) {
                is_done = replace_file(fiber, disk, "d", "f", new_bytes).ok();
            });
            world.manual.scheduler.kill_all();
        }
        disk.power_loss();
        const bool is_new = disk.bytes("d/f") == new_bytes;
        EXPECT_TRUE(is_new || disk.bytes("d/f") == old_bytes) << stop;
        EXPECT_TRUE(is_new || !is_done) << stop;
        ++(is_new ? replaced_count : kept_count);
    }
    EXPECT_GT(kept_count, 0);
    EXPECT_GT(replaced_count, 0);
}

TEST(WholeFile, a_version_that_is_not_known_is_refused_with_path_and_version) {
    const Error error = unsupported_version("metadata/1.mml", 7, 1);
    EXPECT_EQ(error.code, ErrorCode::UNSUPPORTED_FORMAT);
    EXPECT_EQ(error.detail,
              "metadata/1.mml: version 7, this program reads version 1: start a newer program");
}

}  // namespace
}  // namespace mortar
