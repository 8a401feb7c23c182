#include "core/log/recovery.h"

#include <gtest/gtest.h>

#include "core/log/checkpoint.h"
#include "tests/unit/log/log_world.h"

namespace mortar {
namespace {

using testing::FOLDER;
using testing::LogWorld;
using testing::value_of;

const std::string FIRST_SEGMENT = std::string(FOLDER) + "/00000000000000000001.seg";

ByteVector record_of(std::uint64_t sequence, std::size_t value_bytes) {
    const std::string value = value_of(sequence, value_bytes);
    Record record;
    record.sequence = Sequence(sequence);
    record.value = as_byte_span(value);
    ByteVector bytes;
    encode_record(bytes, record);
    return bytes;
}

// Three batches (1..10, 11..20, 21..30), killed before any checkpoint.
struct KilledLog : LogWorld {
    KilledLog() {
        open();
        append_batches({10, 10, 10});
        kill();
    }
    void open_again() {
        start();
        open();
    }
};

TEST(Recovery, a_killed_log_keeps_all_that_was_written) {
    KilledLog world;
    world.open_again();
    world.expect_readable(30);
    world.append_batches({5});
    world.reopen(true);
    world.expect_readable(35);
    world.close();
}

TEST(Recovery, the_last_batch_is_copied_to_a_segment_of_its_own_and_no_old_sector_is_written) {
    KilledLog world;
    const ByteVector before = world.disk.bytes(FIRST_SEGMENT);
    world.open_again();
    const ByteVector& after = world.disk.bytes(FIRST_SEGMENT);
    const std::uint64_t second = world.offset_of(FIRST_SEGMENT, 11);
    ASSERT_GE(after.size(), second);
    EXPECT_TRUE(std::equal(after.begin(), after.end(), before.begin()));
    EXPECT_EQ(world.segments().size(), 2u);
    EXPECT_TRUE(world.disk.exists(std::string(FOLDER) + "/00000000000000000021.seg"));
    world.expect_readable(30);
}

// A sync that failed may leave bytes that read well and are not on the disk.
TEST(Recovery, what_is_served_after_a_failed_sync_survives_a_power_loss) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        LogWorld world(seed);
        world.open();
        world.append_batches({3});
        world.disk.fail_syncs = 1;
        world.append_batches({4});
        world.reopen(false);
        const std::uint64_t served = world.log->flushed_sequence().value;
        EXPECT_GE(served, 3u);
        world.reopen(true);
        EXPECT_GE(world.log->flushed_sequence().value, served);
        world.expect_readable(world.log->flushed_sequence().value);
    }
}

TEST(Recovery, what_the_same_process_had_synced_is_damage_when_it_is_bad_in_the_last_batch_too) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        LogWorld world(seed);
        world.open();
        world.append_batches({5, 5});
        world.disk.fail_syncs = 1;
        world.append_batches({3});
        ASSERT_TRUE(world.log->failure().has_value());
        EXPECT_EQ(world.log->known_synced().end, (LogEnd{Sequence(10), LeaderEpoch(3)}));
        world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 8) + 70);
        world.open_in_same_life();
        EXPECT_EQ(world.log->faulty_from(), Sequence(8)) << seed;
        EXPECT_GE(world.log->end().last, Sequence(10)) << seed;
        EXPECT_EQ(world.log->end().leader_epoch, LeaderEpoch(3));
    }
}

// What a failed sync left behind was never told to anybody, and a later start does not take it for a loss either.
TEST(Recovery, what_the_same_process_had_not_synced_is_no_torn_tail_now_or_later) {
    for (const bool power : {false, true}) {
        LogWorld world;
        std::size_t told_count = 0;
        world.options.before_repair = [&](Fiber&) -> Result<void> {
            ++told_count;
            return {};
        };
        world.open();
        world.append_batches({5, 5});
        const std::uint64_t end = sector_ceil(world.offset_of(FIRST_SEGMENT, 10) + 300);
        world.disk.fail_syncs = 1;
        world.append_batches({3});
        ByteVector& bytes = world.disk.bytes(FIRST_SEGMENT);
        bytes.resize(end + 2 * SECTOR_BYTES);
        std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(end), bytes.end(), std::byte{0x77});
        world.open_in_same_life();
        EXPECT_FALSE(world.log->is_tail_torn());
        world.expect_readable(10);
        world.reopen(power);
        EXPECT_FALSE(world.log->is_tail_torn());
        world.expect_readable(10);
        world.append_batches({2});
        world.reopen(power);
        world.expect_readable(12);
        EXPECT_EQ(told_count, 0u);
    }
}

// A log that was opened damaged does not know what was synced behind the bad place.
TEST(Recovery, a_torn_tail_behind_damage_is_told_when_the_damage_is_repaired) {
    KilledLog world;
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 5) + 70);
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 21) + 70);
    world.open_again();
    ASSERT_EQ(world.log->faulty_from(), Sequence(5));
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 4) + 156 + 70);  // flipped back
    world.open_in_same_life();
    EXPECT_TRUE(world.log->is_tail_torn());
    world.expect_readable(20);
}

TEST(Recovery, a_bad_last_batch_with_nothing_after_it_is_a_torn_tail) {
    KilledLog world;
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 24) + 70);
    world.open_again();
    world.expect_readable(23);
    world.append_batches({1});
    world.expect_readable(24);
    world.close();
    world.reopen(true);
    world.expect_readable(24);
}

// covers COR-01, COR-11
TEST(Recovery, a_bad_record_before_a_later_batch_is_damage) {
    for (const std::uint64_t bad : {1u, 5u, 10u, 11u, 20u}) {
        KilledLog world;
        world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, bad) + 70);
        world.open_again();
        ASSERT_EQ(world.log->faulty_from(), Sequence(bad)) << bad;
        EXPECT_EQ(world.log->last_sequence().value, bad - 1);
        EXPECT_TRUE(world.log->append(Record{}).is(ErrorCode::DAMAGED));
        ASSERT_TRUE(world.run([&](Fiber& fiber) { world.expect_all(fiber); }));
        const std::size_t files = world.segments().size();
        world.close();
        EXPECT_EQ(world.segments().size(), files);
        // And it is found again: nothing was made to look sound.
        world.reopen(false);
        EXPECT_EQ(world.log->faulty_from(), Sequence(bad));
    }
}

// covers COR-10
TEST(Recovery, every_bad_length_in_a_synced_record_is_damage_and_stops_there) {
    for (const std::uint32_t length :
         {0u, 1u, 51u, 151u, 153u, 0x7fffffffu, 0xffffffffu, 16777216u}) {
        KilledLog world;
        const std::uint64_t at = world.offset_of(FIRST_SEGMENT, 15);
        store_be(world.disk.bytes(FIRST_SEGMENT).data() + at, length);
        world.open_again();
        EXPECT_EQ(world.log->faulty_from(), Sequence(15)) << length;
    }
}

TEST(Recovery, a_bad_record_in_a_segment_with_a_successor_is_damage_even_at_its_end) {
    LogOptions options;
    options.segment_max_bytes = 4096;
    options.checkpoint_every_bytes = 1u << 30;
    LogWorld world(1, options);
    world.open();
    world.append_batches({1});
    world.disk.erase(std::string(FOLDER) + "/checkpoint.mqc");
    world.append_batches({30});
    world.append_batches({30});
    ASSERT_GE(world.segments().size(), 3u);
    world.kill();
    world.disk.erase(std::string(FOLDER) + "/checkpoint.mqc");
    const std::string second = world.segments().at(1);
    const Sequence third_base =
        *parse_log_file_name(world.segments().at(2).substr(std::string(FOLDER).size() + 1), ".seg");
    world.disk.flip(second, world.offset_of(second, third_base.value - 1) + 60);
    world.start();
    world.open();
    EXPECT_EQ(world.log->faulty_from(), Sequence(third_base.value - 1));
}

TEST(Recovery, a_lost_segment_is_damage) {
    LogOptions options;
    options.segment_max_bytes = 4096;
    for (const std::size_t lost : {0u, 2u}) {
        LogWorld world(1, options);
        world.open();
        world.append_batches({30, 30, 30});
        world.close();
        world.kill();
        const auto segments = world.segments();
        ASSERT_GE(segments.size(), 3u);
        world.disk.erase(lost == 0 ? segments.front() : segments.back());
        world.start();
        world.open();
        EXPECT_TRUE(world.log->faulty_from().has_value()) << lost;
    }
}

TEST(Recovery, a_damaged_head_is_damage_when_its_records_are_whole) {
    KilledLog world;
    world.disk.flip(FIRST_SEGMENT, 0);
    world.open_again();
    EXPECT_EQ(world.log->faulty_from(), Sequence(1));
}

TEST(Recovery, a_torn_first_batch_may_take_the_head_with_it) {
    LogWorld world;
    world.open();
    world.append_batches({2});
    world.kill();
    for (std::size_t i = 0; i < SECTOR_BYTES; ++i)
        world.disk.bytes(FIRST_SEGMENT)[i] = std::byte{0x77};
    world.start();
    world.open();
    world.expect_readable(0);
    world.append_batches({3});
    world.expect_readable(3);
    world.reopen(true);
    world.expect_readable(3);
}

// covers COR-12: old bytes that look like the right records are behind the end of their segment for ever.
TEST(Recovery, records_of_a_torn_tail_never_come_back) {
    KilledLog world;
    // Record 23 is torn, 24..30 are whole and stay in the file where it is not trimmed.
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 23) + 70);
    const ByteVector torn = world.disk.bytes(FIRST_SEGMENT);
    world.open_again();
    world.expect_readable(22);
    world.kill();
    world.disk.put(FIRST_SEGMENT, torn);  // as if trimming had been lost
    world.start();
    world.open();
    world.expect_readable(22);
    // A shorter record 23: the old 24 must not follow it.
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.append(99);
        world.wait_flushed(fiber);
    }));
    world.reopen(true);
    world.expect_readable(23);
    world.close();
}

TEST(Recovery, garbage_and_old_records_with_lower_sequences_behind_the_end_are_left_behind) {
    KilledLog world;
    world.open_again();
    world.close();
    world.kill();
    const std::string last = world.segments().back();
    ByteVector bytes = world.disk.bytes(last);
    const std::size_t end = bytes.size();
    bytes.resize(end + 4 * SECTOR_BYTES, std::byte{0xa5});
    const ByteVector old_record = record_of(3, 40);
    std::copy(old_record.begin(), old_record.end(),
              bytes.begin() + static_cast<std::ptrdiff_t>(end + 512));
    world.disk.put(last, bytes);
    world.start();
    world.open();
    world.expect_readable(30);
    world.append_batches({4});
    world.reopen(true);
    world.expect_readable(34);
}

// covers COR-01: a synced sector that reads as zeros or as its old self is damage, not the end of the log.
TEST(Recovery, a_lost_write_in_a_synced_batch_is_damage) {
    KilledLog world;
    const std::uint64_t from = world.offset_of(FIRST_SEGMENT, 11);
    const std::uint64_t to = world.offset_of(FIRST_SEGMENT, 21);
    ByteVector& bytes = world.disk.bytes(FIRST_SEGMENT);
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from),
              bytes.begin() + static_cast<std::ptrdiff_t>(to), std::byte{0});
    world.open_again();
    EXPECT_EQ(world.log->faulty_from(), Sequence(11));
}

TEST(Recovery, a_segment_whose_records_all_stand_back_to_back_is_read) {
    LogWorld world;
    ByteVector bytes;
    const auto head = segment_head();
    bytes.insert(bytes.end(), head.begin(), head.end());
    for (std::uint64_t s = 1; s <= 50; ++s) {
        const ByteVector record = record_of(s, 37 * s);
        bytes.insert(bytes.end(), record.begin(), record.end());
    }
    world.disk.put(FIRST_SEGMENT, bytes);
    world.restart(false);
    world.open();
    world.expect_readable(50);
    world.append_batches({3});
    world.reopen(true);
    world.expect_readable(53);
    world.close();
}

// Found by what_was_flushed_survives..., seed 125: the name of a segment whose maker was killed before the sync of the folder.
TEST(Recovery, a_segment_found_by_name_is_made_durable_before_it_is_appended_to) {
    for (std::uint64_t stop = 1; stop < 40; ++stop) {
        LogWorld world(stop);
        world.disk.stop_at = stop;
        world.run([&](Fiber& fiber) {
            ASSERT_TRUE(world.open_in(fiber).ok());
            world.append(10);
            world.wait_flushed(fiber);
        });
        world.reopen(false);
        world.append_batches({1, 1});
        const std::uint64_t count = world.log->flushed_sequence().value;
        world.reopen(true);
        world.expect_readable(count);
    }
}

// The promise itself: lives of appends, each ended at some disk operation by a kill or a power loss, recovery included.
// Whatever was flushed in any life is there in all later ones, dense and unchanged, and nothing honest is called damage.
void run_lives(std::uint64_t seed) {
    Rng rng(seed);
    LogOptions options;
    options.segment_max_bytes = rng.one_in(2) ? 8192 : 100000;
    options.checkpoint_every_bytes = rng.one_in(2) ? 4096 : 60000;
    options.tail_cache_bytes = rng.one_in(2) ? 1 : 100000;
    LogWorld world(seed, options);
    for (int life = 0; life < 8; ++life) {
        world.disk.stop_at = world.disk.operations + 1 + rng.below(life % 2 == 0 ? 120 : 25);
        const std::uint64_t promised_before = world.promised;
        world.run([&](Fiber& fiber) {
            const auto opened = world.open_in(fiber);
            ASSERT_TRUE(opened.ok()) << opened.error().to_string();
            ASSERT_FALSE(world.log->faulty_from().has_value()) << world.life->log.lines.back();
            ASSERT_GE(world.log->flushed_sequence().value, promised_before);
            world.promised = world.log->flushed_sequence().value;
            for (int i = 0; i < 60; ++i) {
                const std::uint64_t count = rng.one_in(3) ? 1 : 1 + rng.below(6);
                for (std::uint64_t k = 0; k < count; ++k) {
                    world.append(rng.one_in(4) ? 456 : 20 + rng.below(rng.one_in(20) ? 9000 : 700));
                }
                if (rng.one_in(2)) world.wait_flushed(fiber);
            }
            world.wait_flushed(fiber);
            if (rng.one_in(3)) {
                ASSERT_TRUE(world.log->close(fiber).ok());
            }
        });
        if (::testing::Test::HasFatalFailure()) return;
        world.restart(rng.one_in(2));
    }
    world.open();
    ASSERT_FALSE(world.log->faulty_from().has_value()) << world.life->log.lines.back();
    ASSERT_GE(world.log->flushed_sequence().value, world.promised);
    ASSERT_TRUE(world.run([&](Fiber& fiber) { world.expect_all(fiber); }));
}

TEST(Recovery, what_was_flushed_survives_crashes_at_any_operation_of_any_life) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        run_lives(seed);
        if (::testing::Test::HasFatalFailure()) return;
    }
}

// One scenario, every operation in turn, and every operation of the recovery after it.
TEST(Recovery, a_power_loss_at_each_operation_and_in_the_recovery_after_it_loses_nothing_flushed) {
    LogOptions options;
    options.segment_max_bytes = 4096;
    options.checkpoint_every_bytes = 3000;
    for (std::uint64_t stop = 1; stop < 90; ++stop) {
        SCOPED_TRACE("stop " + std::to_string(stop));
        LogWorld world(stop, options);
        world.disk.stop_at = stop;
        world.run([&](Fiber& fiber) {
            ASSERT_TRUE(world.open_in(fiber).ok());
            for (int i = 0; i < 12; ++i) {
                for (int k = 0; k < 3; ++k)
                    world.append(150);
                world.wait_flushed(fiber);
            }
            ASSERT_TRUE(world.log->close(fiber).ok());
        });
        for (std::uint64_t again = 1; again < 16; again += 1 + stop % 3) {
            world.restart(true);
            world.disk.stop_at = world.disk.operations + again;
            world.run([&](Fiber& fiber) {
                ASSERT_TRUE(world.open_in(fiber).ok());
                world.promised = std::max(world.promised, world.log->flushed_sequence().value);
            });
        }
        world.restart(true);
        world.open();
        ASSERT_FALSE(world.log->faulty_from().has_value()) << world.life->log.lines.back();
        ASSERT_GE(world.log->flushed_sequence().value, world.promised);
        ASSERT_TRUE(world.run([&](Fiber& fiber) { world.expect_all(fiber); }));
    }
}

}  // namespace
}  // namespace mortar
