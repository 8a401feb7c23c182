#include "core/log/writer.h"

#include <gtest/gtest.h>

#include "tests/unit/log/fake_disk.h"

namespace mortar {
namespace {

using testing::DiskWorld;
using testing::FakeDisk;

LogWriter::NextFile at_path(Env& env, std::string path, std::uint64_t first_offset) {
    LogWriter::NextFile next;
    next.first_offset = first_offset;
    next.open = [&env, path](Fiber& fiber) -> Result<std::shared_ptr<File>> {
        return std::shared_ptr<File>(MORTAR_TRY(env.disk.open(fiber, path, OpenMode::CREATE)));
    };
    return next;
}

// Waits as the owners of a writer do: for what on_flushed tells.
struct WatchedWriter : LogWriter {
    explicit WatchedWriter(Env& env) : LogWriter(env, "test") {
        set_on_flushed([this] {
            ++told_count;
            told.notify_all();
        });
    }
    // False when it failed before.
    bool wait_flushed(Fiber& fiber, std::uint64_t mark) {
        while (flushed_mark() < mark && !failure())
            EXPECT_TRUE(told.wait(fiber).ok());
        return flushed_mark() >= mark;
    }
    Event told;
    int told_count = 0;
};

ByteVector filled(std::size_t count, unsigned char with) {
    return ByteVector(count, std::byte{with});
}

TEST(Layout, a_gap_is_never_shorter_than_a_length) {
    EXPECT_EQ(batch_start_after(512), 512u);
    EXPECT_EQ(batch_start_after(513), 1024u);
    EXPECT_EQ(batch_start_after(1020), 1024u);
    EXPECT_EQ(batch_start_after(1021), 1536u);
    for (std::uint64_t end = 513; end < 2048; ++end) {
        if (end % SECTOR_BYTES == 0) continue;
        EXPECT_EQ(place_after_zero(end), batch_start_after(end)) << end;
    }
    EXPECT_EQ(place_after_zero(1024), 1032u);
}

TEST(LogWriter, gathers_what_is_appended_together_into_one_write_and_one_sync) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        writer.switch_file(at_path(world.env, "a", 6));
        for (int i = 0; i < 100; ++i)
            ASSERT_TRUE(writer.append(filled(10, 7)).ok());
        EXPECT_EQ(writer.flushed_mark(), 0u);
        EXPECT_EQ(writer.unflushed_bytes(), 1000u);
        ASSERT_TRUE(writer.wait_flushed(fiber, writer.appended_mark()));
        EXPECT_EQ(writer.stats().write_count, 1u);
        EXPECT_EQ(writer.stats().sync_count, 1u);
        ASSERT_TRUE(writer.close(fiber).ok());
        EXPECT_TRUE(writer.append(filled(1, 1)).is(ErrorCode::LOG_CLOSED));
    }));
    EXPECT_EQ(world.manual.scheduler.fiber_count(), 0u);
}

TEST(LogWriter, a_batch_never_starts_in_a_sector_that_was_synced_and_no_other_record_starts_one) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        writer.switch_file(at_path(world.env, "a", 6));
        Rng rng(3);
        for (int batch = 0; batch < 50; ++batch) {
            const std::uint64_t records = 1 + rng.below(5);
            for (std::uint64_t i = 0; i < records; ++i) {
                const std::size_t size = rng.one_in(2) ? 512 : 1 + rng.below(1500);
                const std::uint64_t promised = writer.next_offset(size);
                const auto appended = writer.append(filled(size, 0xff));
                ASSERT_TRUE(appended.ok());
                EXPECT_EQ(appended->file_offset, promised);
                EXPECT_EQ(starts_batch(appended->file_offset, 6), i == 0);
            }
            ASSERT_TRUE(writer.wait_flushed(fiber, writer.appended_mark()));
        }
        ASSERT_TRUE(writer.close(fiber).ok());
        EXPECT_EQ(writer.stats().sync_count, 50u);
    }));
}

TEST(LogWriter, grows_the_file_ahead_with_zeros_and_never_over_data) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    std::vector<std::pair<std::uint64_t, std::size_t>> places;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        writer.switch_file(at_path(world.env, "a", 6));
        Rng rng(5);
        for (int i = 0; i < 400; ++i) {
            const std::size_t size = 1 + rng.below(20000);
            const auto appended = writer.append(filled(size, 0xee));
            ASSERT_TRUE(appended.ok());
            places.emplace_back(appended->file_offset, size);
            if (rng.one_in(3)) {
                ASSERT_TRUE(writer.wait_flushed(fiber, appended->mark));
            }
        }
        ASSERT_TRUE(writer.close(fiber).ok());
    }));
    const ByteVector& bytes = disk.bytes("a");
    std::uint64_t sum = 0;
    for (const auto& [offset, size] : places) {
        for (std::size_t i = 0; i < size; ++i)
            ASSERT_EQ(bytes[offset + i], std::byte{0xee});
        sum += size;
    }
    const auto set = std::count(bytes.begin(), bytes.end(), std::byte{0xee});
    EXPECT_EQ(static_cast<std::uint64_t>(set), sum);
    EXPECT_GE(bytes.size(), places.back().first + places.back().second + GROW_BYTES_MIN);
}

TEST(LogWriter, a_quiet_file_is_grown_by_64_kib_and_not_beyond_its_bound) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    ASSERT_TRUE(world.run([&](Fiber&) {
        LogWriter::NextFile next = at_path(world.env, "a", 6);
        next.grow_bytes_max = 10000;
        writer.switch_file(next);
        ASSERT_TRUE(writer.append(filled(10, 1)).ok());
    }));
    EXPECT_EQ(disk.bytes("a").size(), 10000u);
    ASSERT_TRUE(world.run([&](Fiber&) {
        writer.switch_file(at_path(world.env, "b", 6));
        ASSERT_TRUE(writer.append(filled(10, 1)).ok());
    }));
    EXPECT_EQ(disk.bytes("b").size(), 512 + GROW_BYTES_MIN);
    ASSERT_TRUE(world.run([&](Fiber& fiber) { ASSERT_TRUE(writer.close(fiber).ok()); }));
}

TEST(LogWriter, switches_files_at_a_batch_boundary_after_all_before_is_flushed) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    std::uint64_t flushed_at_open = 0;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        writer.switch_file(at_path(world.env, "a", 6));
        ASSERT_TRUE(writer.append(filled(100, 1)).ok());
        LogWriter::NextFile next = at_path(world.env, "b", 6);
        next.open = [&, open = next.open](Fiber& inner) {
            flushed_at_open = writer.flushed_mark();
            return open(inner);
        };
        writer.switch_file(next);
        EXPECT_EQ(writer.next_offset(1), 6u);
        ASSERT_TRUE(writer.append(filled(50, 2)).ok());
        ASSERT_TRUE(writer.close(fiber).ok());
    }));
    EXPECT_EQ(flushed_at_open, 100u);
    EXPECT_EQ(writer.flushed_mark(), 150u);
    EXPECT_EQ(disk.bytes("a")[6], std::byte{1});
    EXPECT_EQ(disk.bytes("b")[6], std::byte{2});
}

TEST(LogWriter, a_failed_sync_ends_it_and_nothing_is_written_or_synced_again) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        writer.switch_file(at_path(world.env, "a", 6));
        ASSERT_TRUE(writer.append(filled(10, 1)).ok());
        disk.fail_syncs = 1;
        EXPECT_FALSE(writer.wait_flushed(fiber, 10));
        ASSERT_TRUE(writer.failure().has_value());
        EXPECT_EQ(writer.failure()->code, ErrorCode::IO_ERROR);
        EXPECT_TRUE(writer.append(filled(10, 1)).is(ErrorCode::LOG_CLOSED));
        const int syncs = disk.sync_count;
        const int writes = disk.write_count;
        EXPECT_TRUE(writer.close(fiber).is(ErrorCode::IO_ERROR));
        EXPECT_EQ(disk.sync_count, syncs);
        EXPECT_EQ(disk.write_count, writes);
    }));
    EXPECT_EQ(writer.flushed_mark(), 0u);
    EXPECT_EQ(writer.told_count, 1);
}

TEST(LogWriter, a_full_disk_fails_the_batch_that_does_not_fit_but_not_the_growth) {
    FakeDisk disk;
    DiskWorld world(disk);
    WatchedWriter writer(world.env);
    disk.space_bytes = 4096;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        writer.switch_file(at_path(world.env, "a", 6));
        ASSERT_TRUE(writer.append(filled(10, 1)).ok());
        EXPECT_TRUE(writer.wait_flushed(fiber, 10));
    }));
    EXPECT_FALSE(writer.failure().has_value());
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(writer.append(filled(100000, 1)).ok());
        EXPECT_FALSE(writer.wait_flushed(fiber, 100010));
        EXPECT_TRUE(writer.close(fiber).is(ErrorCode::NO_SPACE));
    }));
}

// A crash at every operation: what was flushed is there, byte for byte.
TEST(LogWriter, what_was_flushed_survives_a_power_loss_at_any_operation) {
    for (std::uint64_t stop = 1; stop < 120; ++stop) {
        FakeDisk disk(stop);
        std::uint64_t flushed = 0;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> places;  // offset, mark
        {
            DiskWorld world(disk);
            WatchedWriter writer(world.env);
            ASSERT_TRUE(world.run([&](Fiber& fiber) {
                ASSERT_TRUE(world.env.disk.open(fiber, "a", OpenMode::CREATE).ok());
                ASSERT_TRUE(world.env.disk.sync_folder(fiber, "").ok());
            }));
            disk.stop_at = disk.operations + stop;
            world.run([&](Fiber& fiber) {
                writer.switch_file(at_path(world.env, "a", 6));
                Rng rng(stop);
                for (int i = 0; i < 40; ++i) {
                    const auto appended = writer.append(filled(300, 0xab));
                    places.emplace_back(appended->file_offset, appended->mark);
                    if (rng.one_in(2)) {
                        ASSERT_TRUE(writer.wait_flushed(fiber, appended->mark));
                    }
                }
                ASSERT_TRUE(writer.close(fiber).ok());
            });
            flushed = writer.flushed_mark();
            world.manual.scheduler.kill_all();
        }
        disk.power_loss();
        for (const auto& [offset, mark] : places) {
            if (mark > flushed) break;
            for (std::size_t i = 0; i < 300; ++i)
                ASSERT_EQ(disk.bytes("a").at(offset + i), std::byte{0xab});
        }
    }
}

}  // namespace
}  // namespace mortar
