#include "io-sim/sim_disk.h"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar::sim {
namespace {

using Kind = PowerImage::Kind;

class SimDiskTest : public SimFixture {
  protected:
    SimNode& node = world.add_node("n");
    SimDisk& disk = node.disk();

    std::string cached(const std::string& path) {
        return text_of(disk.cached_read(path).value_or(ByteVector()));
    }
    std::string durable(const std::string& path) {
        return text_of(disk.durable_read(path).value_or(ByteVector()));
    }
    void lose_power(const PowerImage& image) {
        node.power_loss(image);
        node.restart();
    }
    // A file with this text, durable with its name.
    void make_durable(const std::string& path, std::string_view text) {
        run_on(node, [&](Fiber& fiber) {
            const auto file = disk.open(fiber, path, OpenMode::CREATE).value();
            ASSERT_TRUE(write_text(fiber, *file, 0, text).ok());
            ASSERT_TRUE(file->sync_data(fiber).ok());
            ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
        });
    }
    void write_unsynced(const std::string& path, std::uint64_t file_offset, std::string_view text) {
        run_on(node, [&](Fiber& fiber) {
            const auto file = disk.open(fiber, path, OpenMode::CREATE).value();
            ASSERT_TRUE(write_text(fiber, *file, file_offset, text).ok());
        });
    }
};

TEST_F(SimDiskTest, reads_back_what_was_written_across_pages_and_past_the_end) {
    run_on(node, [&](Fiber& fiber) {
        const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
        const ByteSpan parts[] = {as_byte_span("abc"), as_byte_span(""), as_byte_span("defg")};
        ASSERT_TRUE(file->write_at(fiber, 4093, parts).ok());
        ByteVector into(10);
        EXPECT_EQ(file->read_at(fiber, 4090, into).value(), 10u);
        EXPECT_EQ(text_of(into), std::string("\0\0\0abcdefg", 10));
        EXPECT_EQ(file->read_at(fiber, 4095, into).value(), 5u);
        EXPECT_EQ(file->read_at(fiber, 4100, into).value(), 0u);
        EXPECT_EQ(file->read_at(fiber, 9000, into).value(), 0u);
        EXPECT_EQ(file->size(fiber).value(), 4100u);
        ASSERT_TRUE(file->truncate(fiber, 4094).ok());
        ASSERT_TRUE(file->truncate(fiber, 4098).ok());
        EXPECT_EQ(file->read_at(fiber, 4093, into).value(), 5u);
        EXPECT_EQ(std::string(text_of(into)).substr(0, 5), std::string("a\0\0\0\0", 5));
    });
}

TEST_F(SimDiskTest, names_are_found_listed_replaced_and_refused) {
    run_on(node, [&](Fiber& fiber) {
        EXPECT_TRUE(disk.open(fiber, "f", OpenMode::READ).is(ErrorCode::NOT_FOUND));
        EXPECT_TRUE(disk.open(fiber, "d/f", OpenMode::CREATE).is(ErrorCode::NOT_FOUND));
        ASSERT_TRUE(disk.make_folders(fiber, "d/e").ok());
        ASSERT_TRUE(disk.make_folders(fiber, "d/e").ok());
        const auto file = disk.open(fiber, "d/f", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "12345").ok());
        EXPECT_TRUE(disk.make_folders(fiber, "d/f/g").is(ErrorCode::ALREADY_EXISTS));
        const auto entries = disk.list(fiber, "d").value();
        ASSERT_EQ(entries.size(), 2u);
        EXPECT_EQ(entries[0].name, "e");
        EXPECT_TRUE(entries[0].is_folder);
        EXPECT_EQ(entries[1].name, "f");
        EXPECT_EQ(entries[1].size_bytes, 5u);
        EXPECT_TRUE(disk.list(fiber, "x").is(ErrorCode::NOT_FOUND));
        EXPECT_TRUE(disk.remove(fiber, "d").is(ErrorCode::IO_ERROR)) << "not empty";
        EXPECT_TRUE(disk.rename(fiber, "x", "y").is(ErrorCode::NOT_FOUND));
        ASSERT_TRUE(disk.rename(fiber, "d/f", "g").ok());
        ASSERT_TRUE(disk.remove(fiber, "d/e").ok());
        ASSERT_TRUE(disk.remove(fiber, "d").ok());
        EXPECT_EQ(disk.cached_names(""), (std::vector<std::string>{"g"}));
        // An unlinked file lives on for its handle.
        ASSERT_TRUE(disk.remove(fiber, "g").ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
        EXPECT_EQ(file->size(fiber).value(), 5u);
        EXPECT_TRUE(disk.remove(fiber, "g").is(ErrorCode::NOT_FOUND));
    });
}

TEST_F(SimDiskTest, synced_bytes_under_a_synced_name_survive_every_image) {
    for (const Kind kind : {Kind::NONE, Kind::ALL, Kind::METADATA_ONLY, Kind::DATA_ONLY}) {
        make_durable("f", "synced");
        lose_power({kind});
        EXPECT_EQ(cached("f"), "synced");
    }
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        lose_power(PowerImage::random(seed, true));
        EXPECT_EQ(cached("f"), "synced");
    }
}

TEST_F(SimDiskTest, a_kill_keeps_what_was_not_synced) {
    write_unsynced("f", 0, "cached");
    node.kill();
    node.restart();
    EXPECT_EQ(cached("f"), "cached");
    EXPECT_EQ(disk.durable_names(""), std::vector<std::string>());
}

TEST_F(SimDiskTest, a_name_is_lost_without_a_sync_of_its_folder_although_its_bytes_were_synced) {
    run_on(node, [&](Fiber& fiber) {
        const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "bytes").ok());
        ASSERT_TRUE(file->sync_data(fiber).ok());
    });
    EXPECT_EQ(disk.durable_read("f"), std::nullopt);
    lose_power({Kind::NONE});
    EXPECT_EQ(disk.cached_names(""), std::vector<std::string>());
}

TEST_F(SimDiskTest, a_file_in_a_folder_whose_name_is_lost_is_lost_with_it) {
    run_on(node, [&](Fiber& fiber) {
        disk.faults().drop_sync = [](const SyncCall& call) {
            return call.op == DiskOp::SYNC_FOLDER && call.path.empty();
        };
        ASSERT_TRUE(disk.make_folders(fiber, "d").ok());
        const auto file = disk.open(fiber, "d/f", OpenMode::CREATE).value();
        ASSERT_TRUE(file->sync_data(fiber).ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "d").ok());
    });
    EXPECT_EQ(disk.durable_names("d"), std::vector<std::string>());
    lose_power({Kind::NONE});
    EXPECT_EQ(disk.cached_names(""), std::vector<std::string>());
}

TEST_F(SimDiskTest, unsynced_sectors_survive_in_any_subset) {
    std::set<std::string> seen;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        make_durable("f", std::string(4 * SECTOR_BYTES, '.'));
        write_unsynced("f", 0, std::string(4 * SECTOR_BYTES, 'x'));
        EXPECT_EQ(disk.unsynced_count(), 4u);
        lose_power(PowerImage::random(seed, false));
        const std::string text = cached("f");
        std::string shape;
        for (std::size_t s = 0; s < 4; ++s) {
            const std::string sector = text.substr(s * SECTOR_BYTES, SECTOR_BYTES);
            EXPECT_EQ(sector, std::string(SECTOR_BYTES, sector[0])) << "torn without being asked";
            shape += sector[0];
        }
        seen.insert(shape);
    }
    EXPECT_EQ(seen.size(), 16u);
}

TEST_F(SimDiskTest, torn_sectors_damage_only_what_was_being_changed) {
    int mixed = 0;
    int garbage = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        make_durable("f", std::string(100, 'a') + std::string(100, '.'));
        write_unsynced("f", 100, std::string(50, 'x'));
        lose_power(PowerImage::random(seed, true));
        const std::string text = cached("f");
        EXPECT_EQ(text.substr(0, 100), std::string(100, 'a'));
        EXPECT_EQ(text.substr(150), std::string(50, '.'));
        const std::string changed = text.substr(100, 50);
        const auto fresh = std::count(changed.begin(), changed.end(), 'x');
        const auto old = std::count(changed.begin(), changed.end(), '.');
        if (fresh + old < 40) {
            ++garbage;
        } else if (fresh > 0 && old > 0) {
            ++mixed;
        }
    }
    EXPECT_GT(mixed, 10);
    EXPECT_GT(garbage, 5);
}

TEST_F(SimDiskTest, the_file_size_may_outrun_the_data) {
    make_durable("f", "head");
    write_unsynced("f", 4, std::string(2000, 'x'));
    lose_power({Kind::METADATA_ONLY});
    EXPECT_EQ(cached("f"), "head" + std::string(2000, '\0'));

    make_durable("g", "head");
    write_unsynced("g", 4, std::string(2000, 'x'));
    lose_power({Kind::NONE});
    EXPECT_EQ(cached("g"), "head");
}

TEST_F(SimDiskTest, a_rename_is_old_or_new_and_nothing_between) {
    int old_count = 0;
    int new_count = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        make_durable("f", "old");
        make_durable("f.tmp", "new");
        run_on(node, [&](Fiber& fiber) { ASSERT_TRUE(disk.rename(fiber, "f.tmp", "f").ok()); });
        EXPECT_EQ(cached("f"), "new");
        EXPECT_EQ(durable("f"), "old");
        lose_power(PowerImage::random(seed, true));
        if (cached("f") == "old") {
            ++old_count;
            EXPECT_EQ(cached("f.tmp"), "new");
        } else {
            ++new_count;
            EXPECT_EQ(cached("f"), "new");
            EXPECT_EQ(disk.cached_read("f.tmp"), std::nullopt);
        }
    }
    EXPECT_GT(old_count, 10);
    EXPECT_GT(new_count, 10);
}

TEST_F(SimDiskTest, a_rename_between_folders_is_certain_when_both_are_synced) {
    make_durable("f", "text");
    run_on(node, [&](Fiber& fiber) {
        ASSERT_TRUE(disk.make_folders(fiber, "d").ok());
        ASSERT_TRUE(disk.rename(fiber, "f", "d/f").ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "d").ok());
        EXPECT_EQ(durable("f"), "text");
        // A new file under the old name is not taken away by what is left of the rename.
        const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "second").ok());
        ASSERT_TRUE(file->sync_data(fiber).ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
    });
    lose_power({Kind::NONE});
    EXPECT_EQ(cached("f"), "second");
    EXPECT_EQ(cached("d/f"), "text");
}

TEST_F(SimDiskTest, a_sync_covers_what_was_written_before_it_began_and_no_more) {
    DiskSpeed slow;
    slow.sync = milliseconds(50);
    slow.hiccup_one_in = 1'000'000;
    disk.set_speed(slow);
    make_durable("f", std::string(600, '.'));
    std::unique_ptr<File> file;
    run_on(node, [&](Fiber& fiber) { file = disk.open(fiber, "f", OpenMode::READ_WRITE).value(); });
    bool synced = false;
    node.scheduler().spawn("sync", [&](Fiber& fiber) {
        EXPECT_TRUE(write_text(fiber, *file, 0, "before").ok());
        EXPECT_TRUE(file->sync_data(fiber).ok());
        synced = true;
    });
    node.scheduler().spawn("write", [&](Fiber& fiber) {
        const MonoTime later = node.clock().now() + milliseconds(10);
        EXPECT_TRUE(fiber.scheduler().sleep_until(fiber, later).ok());
        EXPECT_FALSE(synced);
        EXPECT_TRUE(
            write_text(fiber, *file, 6, "after").ok());  // into the sector that is being synced
        EXPECT_FALSE(synced);
    });
    world.run_for(seconds(1));
    ASSERT_TRUE(synced);
    EXPECT_EQ(durable("f").substr(0, 12), "before......");
    EXPECT_EQ(disk.unsynced_count(), 1u);
    file.reset();
    lose_power({Kind::NONE});
    EXPECT_EQ(cached("f").substr(0, 12), "before......");
}

TEST_F(SimDiskTest, overlapping_syncs_never_take_a_file_back) {
    DiskSpeed uneven;
    uneven.sync = milliseconds(20);
    uneven.hiccup_one_in = 2;
    disk.set_speed(uneven);
    for (int round = 0; round < 20; ++round) {
        run_on(node, [&](Fiber& fiber) {
            const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
            ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
            int running = 2;
            for (const char* text : {"1", "2"}) {
                node.scheduler().spawn("sync", [&, text](Fiber& own) {
                    EXPECT_TRUE(write_text(own, *file, 0, text).ok());
                    const std::string now = cached("f");
                    EXPECT_TRUE(file->sync_data(own).ok());
                    if (now == cached("f")) {
                        EXPECT_EQ(durable("f"), now);
                    }
                    --running;
                });
            }
            while (running > 0) {
                const MonoTime next = node.clock().now() + milliseconds(10);
                ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, next).ok());
            }
            EXPECT_EQ(durable("f"), cached("f"));
        });
    }
}

TEST_F(SimDiskTest, a_full_disk_takes_a_short_write_and_gives_space_back) {
    disk.faults().capacity_bytes = 10;
    run_on(node, [&](Fiber& fiber) {
        const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "123456").ok());
        EXPECT_EQ(disk.space(fiber).value().free_bytes, 4u);
        EXPECT_TRUE(write_text(fiber, *file, 6, "789012").is(ErrorCode::NO_SPACE));
        EXPECT_EQ(cached("f"), "1234567890");
        EXPECT_TRUE(write_text(fiber, *file, 0, "ABC").ok()) << "overwriting needs no space";
        EXPECT_TRUE(write_text(fiber, *file, 10, "x").is(ErrorCode::NO_SPACE));
        ASSERT_TRUE(file->truncate(fiber, 3).ok());
        EXPECT_EQ(disk.space(fiber).value().free_bytes, 7u);
        ASSERT_TRUE(disk.remove(fiber, "f").ok());
        EXPECT_EQ(disk.space(fiber).value().free_bytes, 7u) << "the handle keeps it";
    });
    node.kill();
    node.restart();
    run_on(node, [&](Fiber& fiber) { EXPECT_EQ(disk.space(fiber).value().free_bytes, 10u); });
}

TEST_F(SimDiskTest, errors_come_where_the_knobs_say_and_name_the_place) {
    run_on(node, [&](Fiber& fiber) {
        const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "text").ok());
        disk.faults().fails = [](const DiskOperation& operation) {
            return operation.op == DiskOp::READ;
        };
        ByteVector into(4);
        const auto read = file->read_at(fiber, 2, into);
        ASSERT_TRUE(read.is(ErrorCode::IO_ERROR));
        EXPECT_EQ(read.error().detail, "read of f at 2 (4 bytes): Input/output error");
        disk.faults().fails = nullptr;
        disk.faults().write_error_per_mille = 1000;
        EXPECT_TRUE(write_text(fiber, *file, 0, "more").is(ErrorCode::IO_ERROR));
        EXPECT_TRUE(file->truncate(fiber, 0).is(ErrorCode::IO_ERROR));
        disk.faults().write_error_per_mille = 0;
        disk.faults().open_files_max = 1;
        EXPECT_TRUE(disk.open(fiber, "f", OpenMode::READ).is(ErrorCode::LIMIT_REACHED));
        disk.faults().open_files_max = 2;
        const auto reader = disk.open(fiber, "f", OpenMode::READ).value();
        EXPECT_TRUE(write_text(fiber, *reader, 0, "x").is(ErrorCode::IO_ERROR));
        EXPECT_EQ(disk.open_files(), 2u);
    });
    EXPECT_EQ(disk.open_files(), 0u);
}

TEST_F(SimDiskTest, a_failed_sync_leaves_the_pages_as_its_personality_says) {
    struct Case {
        FailedSync how;
        std::string read_after;     // right after the failed sync
        std::string durable_later;  // after one more sync that says OK
    };
    for (const Case& expected :
         {Case{FailedSync::PAGES_GONE, "old", "old"}, Case{FailedSync::MARKED_CLEAN, "new", "old"},
          Case{FailedSync::KEPT_DIRTY, "new", "new"}}) {
        disk.faults().sync_error_per_mille = 0;
        make_durable("f", "old");
        run_on(node, [&](Fiber& fiber) {
            const auto file = disk.open(fiber, "f", OpenMode::READ_WRITE).value();
            ASSERT_TRUE(write_text(fiber, *file, 0, "new").ok());
            disk.faults().failed_sync = expected.how;
            disk.faults().sync_error_per_mille = 1000;
            EXPECT_TRUE(file->sync_data(fiber).is(ErrorCode::IO_ERROR));
            EXPECT_TRUE(disk.sync_folder(fiber, "").is(ErrorCode::IO_ERROR));
            EXPECT_EQ(cached("f"), expected.read_after);
            EXPECT_EQ(durable("f"), "old");
            disk.faults().sync_error_per_mille = 0;
            EXPECT_TRUE(file->sync_data(fiber).ok());
            EXPECT_EQ(durable("f"), expected.durable_later);
        });
        lose_power({Kind::ALL});
        EXPECT_EQ(cached("f"), expected.durable_later);
    }
}

TEST_F(SimDiskTest, a_slow_or_stalled_disk_takes_its_time) {
    run_on(node, [&](Fiber& fiber) {
        const auto file = disk.open(fiber, "f", OpenMode::CREATE).value();
        disk.faults().stalled_until = world.now() + seconds(3);
        const MonoTime begun = world.now();
        ASSERT_TRUE(file->sync_data(fiber).ok());
        EXPECT_GE(world.now() - begun, seconds(3));
        disk.faults().slow_factor = 10'000;
        const MonoTime slow_begun = world.now();
        ASSERT_TRUE(file->sync_data(fiber).ok());
        EXPECT_GE(world.now() - slow_begun, milliseconds(700));
        disk.faults().slow_factor = 1;
        disk.faults().delay_max = seconds(1);
        const MonoTime queue_begun = world.now();
        for (int i = 0; i < 20; ++i)
            ASSERT_TRUE(file->size(fiber).ok() && file->sync_data(fiber).ok());
        EXPECT_GE(world.now() - queue_begun, seconds(5));
        EXPECT_LE(world.now() - queue_begun, seconds(21));
    });
}

TEST_F(SimDiskTest, a_dropped_sync_says_ok_and_does_nothing) {
    run_on(node, [&](Fiber& fiber) {
        disk.faults().drop_sync = [](const SyncCall& call) {
            return call.op == DiskOp::SYNC_DATA && call.path.ends_with(".seg");
        };
        for (const char* path : {"a.seg", "a.idx"}) {
            const auto file = disk.open(fiber, path, OpenMode::CREATE).value();
            ASSERT_TRUE(write_text(fiber, *file, 0, "x").ok());
            ASSERT_TRUE(file->sync_data(fiber).ok());
        }
        ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
    });
    EXPECT_EQ(durable("a.seg"), "");
    EXPECT_EQ(durable("a.idx"), "x");
}

TEST_F(SimDiskTest, a_lock_keeps_others_out_until_it_is_dropped_or_its_holder_dies) {
    run_on(node, [&](Fiber& fiber) {
        auto held = disk.lock(fiber, "lock").value();
        EXPECT_TRUE(disk.lock(fiber, "lock").is(ErrorCode::LOCKED));
        held.reset();
        EXPECT_TRUE(disk.lock(fiber, "lock").ok());
    });
    std::unique_ptr<DiskLock> outlives;
    run_on(node, [&](Fiber& fiber) { outlives = disk.lock(fiber, "lock").value(); });
    node.kill();
    node.restart();
    run_on(node, [&](Fiber& fiber) {
        const auto held = disk.lock(fiber, "lock");
        ASSERT_TRUE(held.ok());
        outlives.reset();  // of the dead life: must not free the new one
        EXPECT_TRUE(disk.lock(fiber, "lock").is(ErrorCode::LOCKED));
    });
}

TEST_F(SimDiskTest, a_file_of_a_dead_life_answers_an_error) {
    std::unique_ptr<File> outlives;
    run_on(node, [&](Fiber& fiber) { outlives = disk.open(fiber, "f", OpenMode::CREATE).value(); });
    node.kill();
    node.restart();
    run_on(node, [&](Fiber& fiber) { EXPECT_TRUE(outlives->size(fiber).is(ErrorCode::IO_ERROR)); });
    outlives.reset();
    EXPECT_EQ(disk.open_files(), 0u);
}

TEST_F(SimDiskTest, the_operation_hook_sees_every_operation_before_and_after) {
    std::vector<std::string> seen;
    disk.set_operation_hook([&](OperationPoint point, const DiskOperation& operation) {
        if (point == OperationPoint::AFTER) return;
        seen.push_back(std::string(disk_op_name(operation.op)) + " " + std::string(operation.path));
        EXPECT_EQ(operation.fiber, "test.body");
        EXPECT_EQ(operation.number, disk.operation_count());
    });
    run_on(node, [&](Fiber& fiber) {
        ASSERT_TRUE(disk.make_folders(fiber, "a/b").ok());
        const auto file = disk.open(fiber, "a/b/f", OpenMode::CREATE).value();
        ASSERT_TRUE(write_text(fiber, *file, 0, "x").ok());
        ASSERT_TRUE(file->sync_data(fiber).ok());
    });
    EXPECT_EQ(seen, (std::vector<std::string>{"make_folder a", "sync_folder ", "make_folder a/b",
                                              "sync_folder a", "open a/b/f", "write a/b/f",
                                              "sync_data a/b/f"}));
}

TEST_F(SimDiskTest, a_crash_before_a_sync_has_no_effect_and_one_after_it_has_all) {
    for (const OperationPoint point : {OperationPoint::BEFORE, OperationPoint::AFTER}) {
        make_durable("f", "old");
        disk.set_operation_hook([&, point](OperationPoint at, const DiskOperation& operation) {
            if (at == point && operation.op == DiskOp::SYNC_DATA) {
                node.stop_after_step([&] { node.power_loss({Kind::NONE}); });
            }
        });
        node.scheduler().spawn("writer", [&](Fiber& fiber) {
            const auto file = disk.open(fiber, "f", OpenMode::READ_WRITE).value();
            EXPECT_TRUE(write_text(fiber, *file, 0, "new").ok());
            const auto synced = file->sync_data(fiber);
            ADD_FAILURE() << "the node is dead";
        });
        world.run_for(seconds(1));
        disk.set_operation_hook(nullptr);
        EXPECT_FALSE(node.alive());
        EXPECT_EQ(cached("f"), point == OperationPoint::BEFORE ? "old" : "new");
        node.restart();
    }
}

TEST_F(SimDiskTest, an_image_restores_everything_and_gives_every_distinct_outcome) {
    make_durable("f", std::string(2 * SECTOR_BYTES, '.'));
    write_unsynced("f", 0, std::string(2 * SECTOR_BYTES, 'x'));
    write_unsynced("g", 0, "unsynced");
    node.kill();
    const DiskState image = disk.image();
    const std::uint64_t unsynced = disk.unsynced_count();
    EXPECT_EQ(unsynced, 5u) << "two sectors of f; name, size and sector of g";
    std::set<std::uint64_t> digests;
    const auto images = distinct_power_images(unsynced, 40, true);
    for (const PowerImage& power : images) {
        disk.restore(image);
        EXPECT_EQ(disk.unsynced_count(), unsynced);
        disk.lose_power(power);
        const std::uint64_t once = disk.digest();
        disk.restore(image);
        disk.lose_power(power);
        EXPECT_EQ(disk.digest(), once) << to_string(power);
        digests.insert(once);
    }
    EXPECT_LE(images.size(), 40u);
    EXPECT_GE(digests.size(), 12u);
    node.restart();
}

TEST_F(SimDiskTest, power_images_keep_to_their_bound) {
    EXPECT_EQ(distinct_power_images(0, 10, true).size(), 1u);
    EXPECT_EQ(distinct_power_images(1, 10, false).size(), 2u);
    for (const std::uint64_t unsynced : {2u, 3u, 10u, 1000u}) {
        for (const std::size_t bound : {4u, 16u, 64u}) {
            const auto images = distinct_power_images(unsynced, bound, true);
            EXPECT_LE(images.size(), bound);
            EXPECT_GT(images.size(), 3u);
            std::set<std::string> texts;
            for (const PowerImage& image : images)
                texts.insert(to_string(image));
            EXPECT_EQ(texts.size(), images.size());
        }
    }
}

TEST_F(SimDiskTest, growing_a_segment_by_zeros_holds_no_pages) {
    const std::string zeros(1 << 20, '\0');
    for (std::uint64_t i = 0; i < 4; ++i)
        write_unsynced("f", i << 20, zeros);
    EXPECT_EQ(disk.unsynced_count(), 2u) << "its name and its size";
    run_on(node, [&](Fiber& fiber) {
        EXPECT_EQ(disk.open(fiber, "f", OpenMode::READ).value()->size(fiber).value(), 4u << 20);
    });
}

TEST_F(SimDiskTest, a_flipped_bit_is_there_after_a_power_loss_and_a_wiped_disk_is_empty) {
    make_durable("f", "abc");
    EXPECT_TRUE(disk.flip_bit("f", 1, 0));
    EXPECT_FALSE(disk.flip_bit("f", 3, 0));
    EXPECT_FALSE(disk.flip_bit("g", 0, 0));
    EXPECT_EQ(disk.unsynced_count(), 0u);
    lose_power({Kind::NONE});
    EXPECT_EQ(cached("f"), "acc");
    node.kill();
    disk.wipe();
    EXPECT_EQ(disk.cached_names(""), std::vector<std::string>());
}

TEST_F(SimDiskTest, durable_files_are_listed_by_path_without_those_that_a_power_loss_may_take) {
    run_on(node, [&](Fiber& fiber) {
        ASSERT_TRUE(disk.make_folders(fiber, "a/b").ok());
        for (const char* path : {"a/b/2", "a/b/1", "a/z", "new"}) {
            const auto file = disk.open(fiber, path, OpenMode::CREATE).value();
            ASSERT_TRUE(file->sync_data(fiber).ok());
        }
        ASSERT_TRUE(disk.sync_folder(fiber, "a/b").ok());
        ASSERT_TRUE(disk.sync_folder(fiber, "a").ok());
    });
    EXPECT_EQ(disk.durable_files(""), (std::vector<std::string>{"a/b/1", "a/b/2", "a/z"}));
    EXPECT_EQ(disk.durable_files("a/b"), (std::vector<std::string>{"a/b/1", "a/b/2"}));
    EXPECT_EQ(disk.durable_files("none"), std::vector<std::string>());
}

// An independent account of what may be there: all contents since the last sync, all bindings of a
// name since the last sync of the folder.
class Reference {
  public:
    using FileId = std::size_t;  // 0 = no file
    std::vector<std::vector<std::string>> versions{
        {}};                                           // by file; [0] is what the last sync covered
    std::map<std::string, std::vector<FileId>> names;  // [0] is what the last sync covered

    FileId bound(const std::string& name) { return names[name].empty() ? 0 : names[name].back(); }
    void bind(const std::string& name, FileId file) {
        auto& history = names[name];
        if (history.empty()) history.push_back(0);
        history.push_back(file);
    }
    static void settle(auto& history) {
        if (history.size() > 1) history.erase(history.begin(), history.end() - 1);
    }
    FileId create(const std::string& name) {
        versions.push_back({""});
        bind(name, versions.size() - 1);
        return versions.size() - 1;
    }
    // Each sector is that of some version, the size within the range of sizes.
    bool allows(FileId file, const std::string& text) const {
        const auto& of_file = versions[file];
        const auto [low, high] =
            std::minmax_element(of_file.begin(), of_file.end(),
                                [](const auto& a, const auto& b) { return a.size() < b.size(); });
        if (text.size() < low->size() || text.size() > high->size()) return false;
        for (std::size_t at = 0; at < text.size(); at += 512) {
            const std::string sector = text.substr(at, 512);
            const bool found = std::any_of(of_file.begin(), of_file.end(), [&](std::string v) {
                v.resize(std::max(v.size(), at + 512));
                return v.compare(at, sector.size(), sector) == 0;
            });
            if (!found) return false;
        }
        return true;
    }
};

TEST_F(SimDiskTest, random_operations_and_power_losses_agree_with_an_independent_account) {
    Rng rng(99);
    Reference reference;
    int losses_that_lost = 0;
    for (int round = 0; round < 150; ++round) {
        run_on(node, [&](Fiber& fiber) {
            const auto count = rng.between(1, 25);
            for (std::int64_t i = 0; i < count; ++i) {
                const std::string name = "f" + std::to_string(rng.below(4));
                const std::uint64_t what = rng.below(10);
                const Reference::FileId id = reference.bound(name);
                if (id == 0 || what == 0) {
                    if (id != 0) {
                        ASSERT_TRUE(disk.remove(fiber, name).ok());
                        reference.bind(name, 0);
                    }
                    ASSERT_TRUE(disk.open(fiber, name, OpenMode::CREATE).ok());
                    reference.create(name);
                    continue;
                }
                if (what == 1) {
                    const std::string to = "f" + std::to_string(rng.below(4));
                    ASSERT_TRUE(disk.rename(fiber, name, to).ok());
                    if (to == name) continue;
                    reference.bind(name, 0);
                    reference.bind(to, id);
                    continue;
                }
                if (what == 2) {
                    ASSERT_TRUE(disk.sync_folder(fiber, "").ok());
                    for (auto& [known, history] : reference.names)
                        Reference::settle(history);
                    continue;
                }
                const auto file = disk.open(fiber, name, OpenMode::READ_WRITE).value();
                std::string text = reference.versions[id].back();
                if (what == 3) {
                    ASSERT_TRUE(file->sync_data(fiber).ok());
                    Reference::settle(reference.versions[id]);
                    ASSERT_EQ(cached(name), text);
                    continue;
                }
                if (what == 4) {
                    const std::uint64_t size = rng.below(10'000);
                    ASSERT_TRUE(file->truncate(fiber, size).ok());
                    text.resize(size);
                } else {
                    const std::uint64_t at = rng.below(6'000);
                    const char letter = static_cast<char>('a' + rng.below(26));
                    const std::string piece(rng.below(3'000) + 1, letter);
                    ASSERT_TRUE(write_text(fiber, *file, at, piece).ok());
                    text.resize(std::max<std::size_t>(text.size(), at + piece.size()));
                    text.replace(at, piece.size(), piece);
                }
                reference.versions[id].push_back(text);
                ASSERT_EQ(cached(name), text);
            }
        });
        if (rng.one_in(4)) {
            node.kill();
            node.restart();
            continue;
        }
        std::map<std::string, Reference::FileId> before;
        for (const auto& [name, history] : reference.names)
            before[name] = history.back();
        const auto certain = disk.durable_names("");
        lose_power(PowerImage::random(rng.next(), false));
        Reference next;
        for (auto& [name, history] : reference.names) {
            const auto bytes = disk.cached_read(name);
            const bool allowed =
                std::any_of(history.begin(), history.end(), [&](Reference::FileId id) {
                    if (id == 0 || !bytes) return id == 0 && !bytes;
                    return reference.allows(id, text_of(*bytes));
                });
            ASSERT_TRUE(allowed) << "round " << round << ", " << name;
            const std::string then =
                before[name] == 0 ? "" : reference.versions[before[name]].back();
            if ((bytes ? text_of(*bytes) : "") != then) ++losses_that_lost;
            if (!bytes) continue;
            const auto id = next.create(name);
            next.versions[id] = {text_of(*bytes)};
            Reference::settle(next.names[name]);
        }
        reference = std::move(next);
    }
    EXPECT_GT(losses_that_lost, 50);
}

}  // namespace
}  // namespace mortar::sim
