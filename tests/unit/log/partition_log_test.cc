#include "core/log/partition_log.h"

#include <gtest/gtest.h>

#include "core/log/checkpoint.h"
#include "core/log/writer.h"
#include "tests/unit/log/log_world.h"

namespace mortar {
namespace {

using testing::FOLDER;
using testing::LogWorld;

const std::string FIRST_SEGMENT = std::string(FOLDER) + "/00000000000000000001.seg";
const std::string FIRST_INDEX = std::string(FOLDER) + "/00000000000000000001.idx";
const std::string CHECKPOINT = std::string(FOLDER) + "/checkpoint.mqc";

LogOptions small_segments(std::uint64_t segment_max_bytes = 16u << 10) {
    LogOptions options;
    options.segment_max_bytes = segment_max_bytes;
    options.checkpoint_every_bytes = 8u << 10;
    options.tail_cache_bytes = 1;  // reads go to the files
    return options;
}

TEST(PartitionLog, an_untouched_log_makes_no_files) {
    LogWorld world;
    world.open();
    world.expect_readable(0);
    world.close();
    EXPECT_TRUE(world.disk.paths().empty());
}

TEST(PartitionLog, many_appends_become_one_write_and_one_sync) {
    LogWorld world;
    world.open();
    world.append_batches({200});
    EXPECT_EQ(world.log->stats().write_count, 1u);
    EXPECT_EQ(world.log->stats().sync_count, 1u);
    world.expect_readable(200);
    world.close();
}

TEST(PartitionLog, the_first_record_stands_behind_the_head_as_the_contract_says) {
    LogWorld world;
    world.open();
    world.append_batches({1});
    world.close();
    const ByteVector& bytes = world.disk.bytes(FIRST_SEGMENT);
    EXPECT_EQ(as_string_view(ByteSpan(bytes).first(4)), "MMQS");
    EXPECT_EQ(bytes[4], std::byte{1});
    EXPECT_EQ(bytes[5], std::byte{1});
    const auto record = parse_record(ByteSpan(bytes).subspan(6));
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->sequence, Sequence(1));
    EXPECT_EQ(record->producer_id, ProducerId(9));
    EXPECT_EQ(record->leader_epoch, LeaderEpoch(3));
    EXPECT_EQ(bytes.size() % SECTOR_BYTES, 0u);
    EXPECT_LE(bytes.size(), 2 * SECTOR_BYTES);  // zeros ahead are gone
}

TEST(PartitionLog, is_read_again_after_close_from_the_cache_and_from_the_files) {
    LogWorld world;
    world.open();
    world.append_batches({3, 1, 50});
    world.expect_readable(54);
    world.close();
    world.reopen(true);
    EXPECT_EQ(world.log->stats().segment_count, 1u);
    world.expect_readable(54);
    world.append_batches({2});
    EXPECT_EQ(world.log->stats().segment_count, 1u);
    world.expect_readable(56);
    world.close();
}

TEST(PartitionLog, rolls_at_segment_max_bytes_and_gives_a_larger_record_its_own_segment) {
    LogWorld world(1, small_segments());
    world.open();
    world.append_batches({5, 70, 70});
    const std::size_t before = world.segments().size();
    EXPECT_GE(before, 2u);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.append(100000);
        world.append(10);
        world.wait_flushed(fiber);
    }));
    EXPECT_EQ(world.segments().size(), before + 2);
    world.expect_readable(147);
    world.close();
    for (const std::string& path : world.segments()) {
        const ByteVector& bytes = world.disk.bytes(path);
        const std::size_t limit =
            bytes.size() >= 100000 ? 100000 + 2 * SECTOR_BYTES : (16u << 10) + SECTOR_BYTES;
        EXPECT_LE(bytes.size(), limit) << path;
    }
    world.reopen(true);
    world.expect_readable(147);
    world.close();
}

TEST(PartitionLog, recovery_reads_what_is_behind_the_checkpoint_and_not_the_whole_log) {
    LogOptions options;
    options.checkpoint_every_bytes = 1u << 20;
    LogWorld world(1, options);
    world.open();
    for (int i = 0; i < 40; ++i)
        world.append_batches({100}, 1000);  // 4 MB
    world.append_batches({5}, 1000);
    world.kill();
    world.start();
    world.disk.bytes_read = 0;
    world.open();
    // Behind the checkpoint at most 1 MiB and a batch, and the zeros that were written ahead.
    EXPECT_LT(world.disk.bytes_read, (1u << 20) + 200000 + 2 * GROW_BYTES_MAX);
    EXPECT_LT(world.log->stats().recovered_bytes, (1u << 20) + 200000 + 2 * GROW_BYTES_MAX);
    world.expect_readable(4005);
    world.close();
    world.reopen(false);
    EXPECT_LT(world.log->stats().recovered_bytes, 2000u);
    world.close();
}

// covers COR-07, COR-12
TEST(PartitionLog, a_deleted_index_is_made_again) {
    LogWorld world(1, small_segments(1u << 20));
    world.open();
    for (int i = 0; i < 10; ++i)
        world.append_batches({200}, 200);
    world.close();
    const ByteVector index = world.disk.bytes(FIRST_INDEX);
    EXPECT_GE(index.size(), 5 * INDEX_ENTRY_BYTES);
    EXPECT_EQ(index.size() % INDEX_ENTRY_BYTES, 0u);
    world.restart(false);
    world.disk.erase(FIRST_INDEX);
    world.open();
    world.expect_readable(2000);
    world.append_batches({1});
    world.close();
    EXPECT_EQ(SparseIndex::decode(world.disk.bytes(FIRST_INDEX)).entries(),
              SparseIndex::decode(index).entries());
}

// covers COR-12, COR-13: no bytes of an index are ever believed.
TEST(PartitionLog, an_index_of_any_bytes_changes_nothing_that_is_read) {
    LogWorld world(1, small_segments(1u << 20));
    world.open();
    for (int i = 0; i < 10; ++i)
        world.append_batches({200}, 200);
    world.close();
    Rng rng(11);
    const ByteVector good = world.disk.bytes(FIRST_INDEX);
    for (int round = 0; round < 30; ++round) {
        ByteVector bad = good;
        if (round == 0) bad.assign(bad.size(), std::byte{0});
        if (round == 1) bad.resize(bad.size() - 5);
        if (round == 2) bad.clear();
        for (int i = 0; round > 2 && i < 8; ++i)
            bad[rng.below(bad.size())] = static_cast<std::byte>(rng.next());
        world.restart(false);
        world.disk.put(FIRST_INDEX, bad);
        world.open();
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            for (int i = 0; i < 20; ++i) {
                const Sequence from(1 + rng.below(2000));
                const auto batch = world.log->read(fiber, from, Sequence(2000), 1);
                ASSERT_TRUE(batch.ok()) << batch.error().to_string();
                ASSERT_EQ(batch->records.front().sequence, from);
            }
        }));
    }
}

TEST(PartitionLog, a_missing_or_garbage_checkpoint_costs_only_a_longer_recovery) {
    for (int how = 0; how < 4; ++how) {
        LogWorld world(1, small_segments());
        world.open();
        world.append_batches({40, 40, 40, 40});
        world.close();
        world.kill();
        if (how == 0) world.disk.erase(CHECKPOINT);
        if (how == 1) world.disk.flip(CHECKPOINT, 6);
        if (how == 2) world.disk.put(CHECKPOINT, ByteVector(40, std::byte{0x55}));
        if (how == 3) {
            ByteVector lying;
            encode_checkpoint(lying, {Sequence(100), 77});
            world.disk.put(CHECKPOINT, lying);
        }
        world.start();
        world.open();
        world.expect_readable(160);
        world.append_batches({1});
        world.expect_readable(161);
        world.close();
    }
}

TEST(PartitionLog, a_checkpoint_ahead_of_the_log_is_damage_and_not_an_end) {
    LogWorld world;
    world.open();
    world.append_batches({10});
    world.close();
    ByteVector ahead;
    encode_checkpoint(ahead, {Sequence(50), 8000});
    world.kill();
    world.disk.put(CHECKPOINT, ahead);
    world.start();
    world.open();
    EXPECT_EQ(world.log->faulty_from(), Sequence(11));
}

// F3: covers contract 7, "unknown version: refuse, naming path and version".
TEST(Contract, F3_a_newer_segment_or_checkpoint_is_refused_and_nothing_is_changed) {
    for (const auto& [path, at] :
         {std::pair(FIRST_SEGMENT, 4), std::pair(FIRST_SEGMENT, 5), std::pair(CHECKPOINT, 4)}) {
        LogWorld world;
        world.open();
        world.append_batches({10});
        world.kill();
        world.start();
        world.open();
        world.close();
        world.kill();
        world.disk.bytes(path)[static_cast<std::size_t>(at)] = std::byte{2};
        const int writes = world.disk.write_count;
        world.start();
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            const auto opened = world.open_in(fiber);
            ASSERT_TRUE(opened.is(ErrorCode::UNSUPPORTED_FORMAT));
            EXPECT_NE(opened.error().detail.find(path), std::string::npos);
            EXPECT_NE(opened.error().detail.find("version 2"), std::string::npos);
        }));
        EXPECT_EQ(world.disk.write_count, writes);
    }
}

TEST(PartitionLog, a_failed_sync_closes_it_for_good_and_the_next_open_reads_again) {
    LogWorld world;
    world.open();
    world.append_batches({3});
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.disk.fail_syncs = 1;
        world.append(10);
        world.wait_flushed(fiber);
        ASSERT_TRUE(world.log->failure().has_value());
        EXPECT_EQ(world.log->flushed_sequence(), Sequence(3));
        Record record;
        EXPECT_TRUE(world.log->append(record).is(ErrorCode::LOG_CLOSED));
        EXPECT_TRUE(world.log->close(fiber).is(ErrorCode::IO_ERROR));
        ASSERT_TRUE(world.open_in(fiber).ok());
        // It may be there or not; if it is served it is durable.
        EXPECT_GE(world.log->flushed_sequence(), Sequence(3));
        world.append(10);
        world.wait_flushed(fiber);
    }));
    const std::uint64_t count = world.log->flushed_sequence().value;
    world.reopen(true);
    world.expect_readable(count);
    world.close();
}

TEST(PartitionLog, a_full_disk_closes_it_and_a_new_open_goes_on_when_there_is_space) {
    LogWorld world;
    world.open();
    world.append_batches({3});
    world.disk.space_bytes = 200000;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        for (int i = 0; i < 10; ++i)
            world.append(50000);
        world.wait_flushed(fiber);
        ASSERT_TRUE(world.log->failure().has_value());
        EXPECT_EQ(world.log->failure()->code, ErrorCode::NO_SPACE);
        EXPECT_TRUE(world.log->close(fiber).is(ErrorCode::NO_SPACE));
        world.disk.space_bytes = UINT64_MAX;
        ASSERT_TRUE(world.open_in(fiber).ok());
        EXPECT_FALSE(world.log->faulty_from().has_value());
        EXPECT_GE(world.log->flushed_sequence(), Sequence(3));
        world.append(10);
        world.wait_flushed(fiber);
        world.expect_all(fiber);
        ASSERT_TRUE(world.log->close(fiber).ok());
    }));
}

TEST(PartitionLog, a_read_of_damaged_bytes_says_so_and_the_records_around_them_are_read) {
    LogWorld world(1, small_segments(1u << 20));
    world.open();
    for (int i = 0; i < 20; ++i)
        world.append_batches({10}, 300);
    world.close();
    world.restart(false);
    const std::uint64_t at = world.offset_of(FIRST_SEGMENT, 77);
    world.disk.flip(FIRST_SEGMENT, at + 100);
    world.disk.erase(FIRST_INDEX);
    world.open();
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const auto before = world.log->read(fiber, Sequence(70), Sequence(200), 1u << 20);
        ASSERT_TRUE(before.ok());
        EXPECT_EQ(before->records.back().sequence, Sequence(76));
        const auto bad = world.log->read(fiber, Sequence(77), Sequence(200), 1);
        ASSERT_TRUE(bad.is(ErrorCode::CHECKSUM_MISMATCH));
        EXPECT_NE(bad.error().detail.find(std::to_string(at)), std::string::npos)
            << bad.error().detail;
        const auto after = world.log->read(fiber, Sequence(78), Sequence(200), 1u << 20);
        ASSERT_TRUE(after.ok()) << after.error().to_string();
        EXPECT_EQ(after->records.size(), 123u);
    }));
    EXPECT_EQ(world.log->faulty_from(), Sequence(77));
    EXPECT_TRUE(world.log->append(Record{}).is(ErrorCode::DAMAGED));
}

TEST(PartitionLog, no_checkpoint_covers_damage_that_was_met) {
    LogWorld world(1, small_segments(1u << 20));
    world.open();
    for (int i = 0; i < 20; ++i)
        world.append_batches({10}, 300);
    world.close();
    world.restart(false);
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 77) + 100);
    world.open();
    world.append_batches({10});
    const ByteVector before = world.disk.bytes(CHECKPOINT);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        EXPECT_TRUE(
            world.log->read(fiber, Sequence(77), Sequence(77), 1).is(ErrorCode::CHECKSUM_MISMATCH));
    }));
    EXPECT_EQ(world.log->faulty_from(), Sequence(77));
    world.close();
    EXPECT_EQ(world.disk.bytes(CHECKPOINT), before);
}

TEST(PartitionLog, the_hook_runs_before_each_checkpoint_and_its_failure_keeps_the_old_one) {
    LogWorld world(1, small_segments(1u << 20));
    world.open();
    std::vector<Sequence> saved;
    bool fails = false;
    world.log->set_before_checkpoint([&](Fiber&, Sequence through) -> Result<void> {
        EXPECT_LE(through, world.log->flushed_sequence());
        saved.push_back(through);
        if (fails) return make_error(ErrorCode::IO_ERROR, "windows");
        return {};
    });
    for (int i = 0; i < 4; ++i)
        world.append_batches({100});
    ASSERT_GE(saved.size(), 2u);
    const ByteVector kept = world.disk.bytes(CHECKPOINT);
    EXPECT_EQ(decode_checkpoint(kept, "").value().next_sequence, saved.back().next());
    fails = true;
    world.append_batches({100});
    EXPECT_EQ(world.disk.bytes(CHECKPOINT), kept);
    fails = false;
    world.close();
    EXPECT_EQ(saved.back(), Sequence(500));
    EXPECT_EQ(decode_checkpoint(world.disk.bytes(CHECKPOINT), "").value().next_sequence,
              Sequence(501));
}

TEST(PartitionLog, is_whole_or_gone_when_a_crash_cuts_its_removal_short) {
    bool was_removed = false;
    for (std::uint64_t stop = 1; !was_removed; ++stop) {
        for (const bool power : {false, true}) {
            SCOPED_TRACE("stop " + std::to_string(stop));
            LogWorld world(stop, small_segments());
            world.open();
            world.append_batches({100, 100});
            world.close();
            world.disk.stop_at = world.disk.operations + stop;
            was_removed =
                world.run([&](Fiber& fiber) { ASSERT_TRUE(world.log->remove_files(fiber).ok()); });
            world.reopen(power);
            EXPECT_FALSE(world.log->faulty_from().has_value());
            const std::uint64_t last = world.log->last_sequence().value;
            EXPECT_TRUE(last == 0 || last == 200) << last;
            if (::testing::Test::HasFailure()) return;
        }
    }
}

TEST(PartitionLog, remove_files_leaves_unknown_files_alone_and_reports_them) {
    LogWorld world(1, small_segments());
    world.open();
    world.append_batches({100, 100});
    world.close();
    const std::string foreign = std::string(FOLDER) + "/notes.txt";
    world.disk.put(foreign, ByteVector(3));
    ASSERT_TRUE(world.run([&](Fiber& fiber) { ASSERT_TRUE(world.log->remove_files(fiber).ok()); }));
    EXPECT_EQ(world.disk.paths(), std::vector<std::string>{foreign});
    EXPECT_NE(world.life->log.lines.back().find("notes.txt"), std::string::npos);
    world.disk.erase(foreign);
    ASSERT_TRUE(world.run([&](Fiber& fiber) { ASSERT_TRUE(world.log->remove_files(fiber).ok()); }));
    EXPECT_FALSE(world.disk.exists(FOLDER));
}

}  // namespace
}  // namespace mortar
