#include "io-real/real_disk.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <unistd.h>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/io-real/real_world.h"

namespace mortar {
namespace {
using testing::RealWorld;

Result<void> write_text(Fiber& fiber, File& file, std::uint64_t file_offset,
                        const std::string& text) {
    const ByteSpan part = as_byte_span(text);
    return file.write_at(fiber, file_offset, std::span(&part, 1));
}

std::string read_text(Fiber& fiber, File& file, std::uint64_t file_offset, std::size_t count) {
    std::vector<std::byte> buffer(count);
    const std::size_t got = file.read_at(fiber, file_offset, buffer).value();
    return std::string(as_string_view(ByteSpan(buffer).first(got)));
}

TEST(RealDisk, reads_back_what_it_wrote_in_many_parts) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Disk& disk = world.env().disk;
        std::unique_ptr<File> file = disk.open(fiber, "a", OpenMode::CREATE).value();
        std::vector<std::string> texts;
        std::string expected;
        for (int i = 0; i < 1500; ++i) {
            texts.push_back(
                std::string(static_cast<std::size_t>(i % 300), static_cast<char>('a' + i % 26)));
            expected += texts.back();
        }
        std::vector<ByteSpan> parts;
        for (const std::string& text : texts)
            parts.push_back(as_byte_span(text));
        ASSERT_TRUE(file->write_at(fiber, 10, parts).ok());
        ASSERT_TRUE(file->write_at(fiber, 0, {}).ok());
        ASSERT_TRUE(file->sync_data(fiber).ok());
        EXPECT_EQ(file->size(fiber).value(), expected.size() + 10);
        EXPECT_EQ(read_text(fiber, *file, 10, expected.size()), expected);
        // Short only at the end, also when the cache has all of it.
        EXPECT_EQ(read_text(fiber, *file, 10, 1 << 20), expected);
        EXPECT_EQ(read_text(fiber, *file, 4 + expected.size(), 100).size(), 6u);
        EXPECT_EQ(read_text(fiber, *file, 1 << 30, 100), "");
        ASSERT_TRUE(file->truncate(fiber, 13).ok());
        EXPECT_EQ(file->size(fiber).value(), 13u);
        EXPECT_EQ(read_text(fiber, *file, 9, 100), std::string(1, '\0') + expected.substr(0, 3));
    });
}

TEST(RealDisk, writes_and_syncs_on_one_way_and_says_which_failed) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Disk& disk = world.env().disk;
        std::unique_ptr<File> file = disk.open(fiber, "a", OpenMode::CREATE).value();
        const std::string one = "abc";
        const std::string two = "defg";
        const ByteSpan parts[] = {as_byte_span(one), as_byte_span(two)};
        ASSERT_TRUE(file->write_and_sync(fiber, 2, parts).ok());
        EXPECT_EQ(read_text(fiber, *file, 2, 100), "abcdefg");
        std::unique_ptr<File> reader = disk.open(fiber, "a", OpenMode::READ).value();
        const Result<void> refused = reader->write_and_sync(fiber, 0, parts);
        ASSERT_TRUE(refused.is(ErrorCode::IO_ERROR));
        EXPECT_NE(refused.error().detail.find("cannot write at 0"), std::string::npos)
            << refused.error().detail;
        EXPECT_EQ(read_text(fiber, *file, 0, 100), std::string(2, '\0') + "abcdefg");
    });
}

TEST(RealDisk, opens_by_mode_and_names_what_is_missing) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Disk& disk = world.env().disk;
        const Result<std::unique_ptr<File>> missing = disk.open(fiber, "no/such", OpenMode::READ);
        ASSERT_TRUE(missing.is(ErrorCode::NOT_FOUND));
        EXPECT_NE(missing.error().detail.find(world.folder.path + "/no/such: No such file"),
                  std::string::npos);
        EXPECT_TRUE(disk.open(fiber, "a", OpenMode::READ_WRITE).is(ErrorCode::NOT_FOUND));
        std::unique_ptr<File> file = disk.open(fiber, "a", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "kept").ok());
        std::unique_ptr<File> reader = disk.open(fiber, "a", OpenMode::READ).value();
        EXPECT_EQ(read_text(fiber, *reader, 0, 10), "kept");
        const Result<void> refused = write_text(fiber, *reader, 0, "x");
        ASSERT_TRUE(refused.is(ErrorCode::IO_ERROR));
        EXPECT_NE(refused.error().detail.find("/a"), std::string::npos);
    });
}

TEST(RealDisk, tells_who_may_read_a_file_and_what_is_behind_a_link) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        const std::filesystem::path root = world.folder.path;
        std::ofstream(root / "key") << "k";
        std::filesystem::create_symlink("key", root / "link");
        std::filesystem::create_symlink("nothing", root / "loose");
        const auto told = [&](unsigned permissions, const char* name) {
            std::filesystem::permissions(root / "key", std::filesystem::perms{permissions});
            const auto entries = world.env().disk.list(fiber, "").value();
            for (const DirEntry& entry : entries) {
                if (entry.name == name) return entry.permissions;
            }
            return 0u;
        };
        for (const unsigned permissions : {0600u, 0644u, 0400u, 0777u}) {
            EXPECT_EQ(told(permissions, "key"), permissions);
            EXPECT_EQ(told(permissions, "link"), permissions);
        }
        EXPECT_EQ(told(0600, "loose"), 0777u);
    });
}

TEST(RealDisk, makes_lists_renames_and_removes) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Disk& disk = world.env().disk;
        ASSERT_TRUE(disk.make_folders(fiber, "topics/7/0").ok());
        ASSERT_TRUE(disk.make_folders(fiber, "topics/7/0").ok());
        ASSERT_TRUE(disk.make_folders(fiber, "").ok());
        for (const char* name : {"c", "a", "b", "B", "aa"}) {
            std::unique_ptr<File> file =
                disk.open(fiber, std::string("topics/7/") + name, OpenMode::CREATE).value();
            ASSERT_TRUE(write_text(fiber, *file, 0, std::string(name) + name).ok());
        }
        ASSERT_TRUE(disk.rename(fiber, "topics/7/c", "topics/7/b").ok());
        ASSERT_TRUE(disk.remove(fiber, "topics/7/B").ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "topics/7").ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
        const std::vector<DirEntry> entries = disk.list(fiber, "topics/7").value();
        ASSERT_EQ(entries.size(), 4u);
        EXPECT_EQ(entries[0].name, "0");
        EXPECT_TRUE(entries[0].is_folder);
        EXPECT_EQ(entries[1].name, "a");
        EXPECT_FALSE(entries[1].is_folder);
        EXPECT_EQ(entries[1].size_bytes, 2u);
        EXPECT_EQ(entries[2].name, "aa");
        EXPECT_EQ(entries[2].size_bytes, 4u);
        EXPECT_EQ(entries[3].name, "b");
        std::unique_ptr<File> renamed = disk.open(fiber, "topics/7/b", OpenMode::READ).value();
        EXPECT_EQ(read_text(fiber, *renamed, 0, 10), "cc");
        EXPECT_TRUE(disk.remove(fiber, "topics/7").is(ErrorCode::ALREADY_EXISTS));
        EXPECT_TRUE(disk.remove(fiber, "topics/7/0").ok());
        EXPECT_TRUE(disk.remove(fiber, "topics/7/0").is(ErrorCode::NOT_FOUND));
        EXPECT_TRUE(disk.list(fiber, "topics/8").is(ErrorCode::NOT_FOUND));
        EXPECT_TRUE(disk.sync_folder(fiber, "topics/8").is(ErrorCode::NOT_FOUND));
        EXPECT_TRUE(disk.rename(fiber, "x", "y").is(ErrorCode::NOT_FOUND));
        EXPECT_TRUE(disk.make_folders(fiber, "topics/7/a").is(ErrorCode::ALREADY_EXISTS));
    });
}

TEST(RealDisk, makes_the_root_with_its_parents) {
    const testing::TempFolder folder;
    RealWorld world(folder.path + "/deep/data");
    world.run_fiber([&](Fiber& fiber) {
        EXPECT_TRUE(world.env().disk.space(fiber).is(ErrorCode::NOT_FOUND));
        ASSERT_TRUE(world.env().disk.make_folders(fiber, "").ok());
        const DiskSpace space = world.env().disk.space(fiber).value();
        EXPECT_GT(space.total_bytes, 0u);
        EXPECT_LE(space.free_bytes, space.total_bytes);
    });
}

TEST(RealDisk, a_second_lock_is_refused_and_names_path_and_process) {
    RealWorld world;
    RealWorld other(world.folder.path);
    const auto try_lock = [](RealWorld& where, std::unique_ptr<DiskLock>& into) {
        Result<void> result;
        where.run_fiber([&](Fiber& fiber) {
            Result<std::unique_ptr<DiskLock>> lock = where.env().disk.lock(fiber, "LOCK");
            if (lock.ok()) {
                into = std::move(lock).value();
            } else {
                result = std::move(lock).error();
            }
        });
        return result;
    };
    std::unique_ptr<DiskLock> held;
    std::unique_ptr<DiskLock> second;
    ASSERT_TRUE(try_lock(world, held).ok());
    // Whoever only tries to start leaves no trace.
    EXPECT_EQ(std::filesystem::file_size(world.folder.path + "/LOCK"), 0u);
    world.run_fiber([&](Fiber& fiber) { EXPECT_TRUE(held->sign(fiber).ok()); });
    const Result<void> refused = try_lock(other, second);
    ASSERT_TRUE(refused.is(ErrorCode::LOCKED));
    EXPECT_NE(refused.error().detail.find(world.folder.path + "/LOCK"), std::string::npos);
    EXPECT_NE(refused.error().detail.find("process " + std::to_string(::getpid())),
              std::string::npos);
    held.reset();
    EXPECT_TRUE(try_lock(other, second).ok());
}

TEST(RealDisk, a_cancel_does_not_end_a_wait_for_the_disk) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        std::unique_ptr<File> file = world.env().disk.open(fiber, "a", OpenMode::CREATE).value();
        bool written = false;
        bool cancelled = false;
        const FiberId id = world.loop().spawn("writes", [&](Fiber& own) {
            const ByteVector bytes(32 << 20, std::byte{5});
            const ByteSpan part(bytes);
            written = file->write_at(own, 0, std::span(&part, 1)).ok();
            written = written && file->sync_data(own).ok();
            cancelled = own.is_cancelled();
        });
        fiber.scheduler().yield(fiber);
        world.loop().cancel(id);
        while (world.loop().fiber_count() > 1) {
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(1))).ok());
        }
        EXPECT_TRUE(written);
        EXPECT_TRUE(cancelled);
        EXPECT_EQ(file->size(fiber).value(), std::uint64_t{32} << 20);
    });
}

TEST(RealDisk, many_fibers_share_the_threads) {
    RealWorld world;
    constexpr int FIBERS = 50;
    int done = 0;
    world.run_fiber([&](Fiber& fiber) {
        for (int i = 0; i < FIBERS; ++i) {
            world.loop().spawn("works", [&, i](Fiber& own) {
                Disk& disk = world.env().disk;
                const std::string name = "f" + std::to_string(i);
                std::unique_ptr<File> file = disk.open(own, name, OpenMode::CREATE).value();
                for (std::uint64_t round = 0; round < 20; ++round) {
                    ASSERT_TRUE(write_text(own, *file, round * name.size(), name).ok());
                }
                ASSERT_TRUE(file->sync_data(own).ok());
                std::string expected;
                for (int round = 0; round < 20; ++round)
                    expected += name;
                ASSERT_EQ(read_text(own, *file, 0, 1000), expected);
                ++done;
            });
        }
        while (world.loop().fiber_count() > 1) {
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(1))).ok());
        }
        EXPECT_EQ(world.env().disk.list(fiber, "").value().size(), std::size_t{FIBERS});
    });
    EXPECT_EQ(done, FIBERS);
}

TEST(RealDisk, a_full_disk_says_no_space) {
    if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
    RealWorld world("/dev");
    world.run_fiber([&](Fiber& fiber) {
        std::unique_ptr<File> file =
            world.env().disk.open(fiber, "full", OpenMode::READ_WRITE).value();
        const Result<void> full = write_text(fiber, *file, 0, "x");
        ASSERT_TRUE(full.is(ErrorCode::NO_SPACE));
        EXPECT_NE(full.error().detail.find("/dev/full: No space left"), std::string::npos);
    });
}

}  // namespace
}  // namespace mortar
