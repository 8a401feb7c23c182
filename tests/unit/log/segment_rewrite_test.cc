// A damaged log made whole: what a rewrite leaves behind, whatever crashes in the middle; and the scrub that finds damage.
#include "core/log/segment_rewrite.h"

#include <gtest/gtest.h>

#include "core/log/partition_log.h"
#include "tests/unit/log/log_world.h"

namespace mortar {
namespace {

using testing::FOLDER;
using testing::LogWorld;

constexpr std::size_t VALUE_BYTES = 300;

LogOptions small_segments() {
    LogOptions options;
    options.segment_max_bytes = 4000;
    options.checkpoint_every_bytes = 1'000'000;  // only at a roll
    return options;
}

// A log of many segments, and its records as a peer has them.
struct RewriteWorld : LogWorld {
    explicit RewriteWorld(std::uint64_t seed = 1) : LogWorld(seed, small_segments()) {
        open();
        for (int i = 0; i < 10; ++i)
            append_batches({1, 3});
        EXPECT_TRUE(run([&](Fiber& fiber) {
            const auto all = log->read_bytes(fiber, Sequence(1), log->last_sequence(), UINT64_MAX);
            for (Sequence next(1); next <= log->last_sequence();) {
                const auto some = log->read_bytes(fiber, next, log->last_sequence(), 5000);
                ASSERT_TRUE(some.ok());
                for (const ByteSpan part : some->parts)
                    peer.insert(peer.end(), part.begin(), part.end());
                next = some->last.next();
            }
        }));
        count = log->last_sequence().value;
    }
    void append_batches(std::initializer_list<std::size_t> counts) {
        LogWorld::append_batches(counts, VALUE_BYTES);
    }
    // What a peer gives: at most three records at a time.
    ByteVector records(Sequence from, Sequence through) const {
        ByteSpan rest(peer);
        ByteVector given;
        for (int left = 3; !rest.empty() && left > 0;) {
            const Record record = parse_record(rest).value();
            const ByteSpan one = rest.first(record_bytes(record));
            rest = rest.subspan(one.size());
            if (record.sequence < from || record.sequence > through) continue;
            given.insert(given.end(), one.begin(), one.end());
            --left;
        }
        return given;
    }
    // The segment that holds the record, and a place in it.
    std::string segment_of(std::uint64_t sequence) const {
        std::string found;
        for (const std::string& path : segments()) {
            if (std::stoull(path.substr(path.rfind('/') + 1)) <= sequence) found = path;
        }
        return found;
    }
    void flip_record(std::uint64_t sequence) {
        const std::string path = segment_of(sequence);
        disk.flip(path, offset_of(path, sequence) + RECORD_FIXED_BYTES + 5);
    }
    // As a read that meets it: the log knows.
    void meet_damage() {
        ASSERT_TRUE(run([&](Fiber& fiber) {
            for (Sequence next(1); next <= log->flushed_sequence();) {
                const auto scrubbed = log->scrub(fiber, next, 1000);
                if (!scrubbed.ok() || scrubbed->record_count == 0) break;
                next = scrubbed->last.next();
            }
        }));
        ASSERT_TRUE(log->faulty_from().has_value());
    }
    // The whole way, as who owns the log goes it.
    Result<void> repair(Fiber& fiber, Sequence through) {
        SegmentRewrite rewrite =
            MORTAR_TRY(SegmentRewrite::begin(fiber, life->env, FOLDER, *log->damaged_part()));
        while (rewrite.last() < through)
            MORTAR_TRY(rewrite.add(fiber, records(rewrite.last().next(), through)));
        MORTAR_TRY(rewrite.sync(fiber));
        MORTAR_TRY(log->close(fiber));
        options.known_synced = log->known_synced();
        MORTAR_TRY(rewrite.put_in_place(fiber));
        Result<void> opened = open_in(fiber);
        options.known_synced = {};
        return opened;
    }
    void repair_all() {
        ASSERT_TRUE(run([&](Fiber& fiber) {
            while (log->faulty_from())
                ASSERT_TRUE(repair(fiber, log->damaged_part()->last).ok());
        }));
    }
    bool is_faulty_or_whole() {
        if (log->faulty_from()) {
            EXPECT_GE(log->end().last.value, count) << "it claims what it held";
            return true;
        }
        expect_readable(count);
        return !::testing::Test::HasFailure();
    }

    ByteVector peer;
    std::uint64_t count = 0;
};

TEST(SegmentRewrite, makes_a_damaged_segment_whole_and_the_log_goes_on) {
    RewriteWorld world;
    world.flip_record(6);
    world.flip_record(7);
    world.meet_damage();
    EXPECT_EQ(*world.log->faulty_from(), Sequence(6));
    const DamagedPart part = *world.log->damaged_part();
    EXPECT_LE(part.first.value, 6u);
    EXPECT_GE(part.last.value, 7u);
    EXPECT_FALSE(part.is_at_end);
    world.repair_all();
    world.expect_readable(world.count);
    world.append_batches({2});
    world.expect_readable(world.count + 2);
    world.reopen(true);
    world.expect_readable(world.count + 2);
}

TEST(SegmentRewrite, makes_the_segment_whole_that_is_written) {
    RewriteWorld world;
    world.append_batches({1, 1});
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const auto tail = world.log->read_bytes(fiber, Sequence(world.count + 1),
                                                world.log->last_sequence(), UINT64_MAX);
        for (const ByteSpan bytes : tail->parts)
            world.peer.insert(world.peer.end(), bytes.begin(), bytes.end());
    }));
    world.count += 2;
    world.flip_record(world.count - 1);
    world.meet_damage();
    EXPECT_TRUE(world.log->damaged_part()->is_at_end);
    EXPECT_EQ(world.log->damaged_part()->last.value, world.count);
    world.repair_all();
    world.expect_readable(world.count);
    // The checkpoint is at its new place: the next start does not read it all.
    world.reopen(true);
    EXPECT_LT(world.log->stats().recovered_bytes, 3000u);
    world.append_batches({1});
    world.reopen(true);
    world.expect_readable(world.count + 1);
}

// No checkpoint is written while the log is damaged, so its last batch stands without one.
TEST(SegmentRewrite, of_an_old_record_does_not_take_damage_in_the_last_batch_for_a_torn_tail) {
    RewriteWorld world;
    world.flip_record(6);
    world.flip_record(world.count - 1);
    world.meet_damage();
    ASSERT_EQ(*world.log->faulty_from(), Sequence(6));
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(world.repair(fiber, world.log->damaged_part()->last).ok());
    }));
    EXPECT_EQ(world.log->faulty_from(), Sequence(world.count - 1));
    EXPECT_EQ(world.log->end(), (LogEnd{Sequence(world.count), LeaderEpoch(3)}));
    world.repair_all();
    world.expect_readable(world.count);
}

TEST(SegmentRewrite, brings_a_segment_back_that_is_gone) {
    for (const bool is_first : {true, false}) {
        RewriteWorld world;
        world.close();
        const auto segments = world.segments();
        ASSERT_GT(segments.size(), 3u);
        const std::string path = is_first ? segments[0] : segments[1];
        world.disk.erase(path);
        // Recovery begins behind a checkpoint, and would not look.
        world.disk.erase(std::string(FOLDER) + "/checkpoint.mqc");
        world.reopen(false);
        ASSERT_TRUE(world.log->faulty_from().has_value());
        world.repair_all();
        world.expect_readable(world.count);
    }
}

TEST(SegmentRewrite, leaves_the_damaged_log_or_the_whole_one_wherever_it_crashes) {
    std::uint64_t whole_count = 0;
    for (std::uint64_t stop = 0; stop < 60; ++stop) {
        for (const bool is_at_end : {false, true}) {
            RewriteWorld world(stop + 1);
            world.flip_record(is_at_end ? world.count - 3 : 6);  // not in the last batch
            world.meet_damage();
            world.disk.stop_at = world.disk.operations + stop;
            (void)world.run(
                [&](Fiber& fiber) { (void)world.repair(fiber, world.log->damaged_part()->last); });
            // With power: what was not synced is lost in part.
            world.reopen(true);
            // A checkpoint covers it: found again by whoever reads there.
            if (!world.log->faulty_from() && !is_at_end) {
                ASSERT_TRUE(world.run(
                    [&](Fiber& fiber) { (void)world.log->scrub(fiber, Sequence(6), 1000); }));
            }
            ASSERT_TRUE(world.is_faulty_or_whole()) << stop << is_at_end;
            if (!world.log->faulty_from()) ++whole_count;
            world.repair_all();
            world.expect_readable(world.count);
            if (::testing::Test::HasFailure()) FAIL() << stop << is_at_end;
        }
    }
    EXPECT_GT(whole_count, 0u);
}

TEST(SegmentRewrite, that_ends_earlier_leaves_a_log_that_claims_the_rest_and_can_be_cut) {
    RewriteWorld world;
    world.flip_record(6);
    world.meet_damage();
    const DamagedPart part = *world.log->damaged_part();
    ASSERT_GT(part.last.value, 7u);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(world.repair(fiber, Sequence(7)).ok());
        ASSERT_TRUE(world.log->faulty_from().has_value());
        EXPECT_EQ(*world.log->faulty_from(), Sequence(8));
        EXPECT_EQ(world.log->end().last.value, world.count);
        ASSERT_TRUE(world.log->cut(fiber, Sequence(7)).ok());
    }));
    world.expect_readable(7);
    world.reopen(true);
    world.expect_readable(7);
}

TEST(SegmentRewrite, refuses_what_is_not_the_next_record_and_what_is_another_one) {
    RewriteWorld world;
    world.flip_record(6);
    world.meet_damage();
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const DamagedPart part = *world.log->damaged_part();
        SegmentRewrite rewrite =
            SegmentRewrite::begin(fiber, world.life->env, FOLDER, part).value();
        const ByteVector skipped = world.records(part.first.next(), part.last);
        EXPECT_TRUE(rewrite.add(fiber, skipped).is(ErrorCode::CHECKSUM_MISMATCH));
        ByteVector bad = world.records(part.first, part.first);
        bad.back() ^= std::byte{1};
        EXPECT_TRUE(rewrite.add(fiber, bad).is(ErrorCode::CHECKSUM_MISMATCH));
        Record other;
        other.sequence = part.first;
        other.leader_epoch = LeaderEpoch(3);
        ByteVector bytes;
        encode_record(bytes, other);
        EXPECT_TRUE(rewrite.add(fiber, bytes).is(ErrorCode::DIVERGENT_COMMITTED));
    }));
    world.reopen(false);
    EXPECT_EQ(world.log->last_sequence().value, world.count);
}

TEST(SegmentRewrite, names_what_is_readable_from_the_damaged_part_on) {
    RewriteWorld world;
    world.flip_record(6);
    world.meet_damage();
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const auto runs = world.log->runs_behind_damage(fiber);
        ASSERT_TRUE(runs.ok());
        const EpochRun all{LeaderEpoch(3), world.log->damaged_part()->first, Sequence(world.count)};
        EXPECT_EQ(*runs, std::vector<EpochRun>{all});
    }));
}

TEST(Scrub, reads_every_record_from_disk_and_meets_what_memory_hides) {
    RewriteWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        std::uint64_t records = 0;
        for (Sequence next(1);;) {
            const auto scrubbed = world.log->scrub(fiber, next, 1000);
            ASSERT_TRUE(scrubbed.ok());
            if (scrubbed->record_count == 0) break;
            EXPECT_LT(scrubbed->size_bytes, 3000u);
            records += scrubbed->record_count;
            next = scrubbed->last.next();
        }
        EXPECT_EQ(records, world.count);
    }));
    // The tail cache still holds it.
    world.flip_record(world.count);
    world.meet_damage();
    EXPECT_EQ(world.log->faulty_from()->value, world.count);
}

TEST(Scrub, meets_a_segment_head_that_is_none) {
    RewriteWorld world;
    world.disk.flip(world.segments().at(1), 2);
    world.meet_damage();
    const std::uint64_t base = world.log->faulty_from()->value;
    EXPECT_EQ(world.log->damaged_part()->first.value, base);
    EXPECT_GT(base, 1u);
    world.repair_all();
    world.expect_readable(world.count);
}

}  // namespace
}  // namespace mortar
