// The checkers' own reader of segment files sees what core/log wrote, in the cache and in the durable image.
#include "sim/image_reader.h"

#include <gtest/gtest.h>

#include "core/log/partition_log.h"
#include "core/log/tail_cache.h"
#include "io-sim/sim_disk.h"
#include "sim/log_views.h"
#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar::sim {
namespace {

const std::string FOLDER = partition_folder(1, 0);

class ImageReader : public SimFixture {
  protected:
    static LogOptions options() {
        return {.segment_max_bytes = 16384, .checkpoint_every_bytes = 8192, .before_repair = {}};
    }

    SimNode& node = world.add_node("broker");

    Image durable() {
        return {[this](const std::string& folder) { return node.disk().durable_names(folder); },
                [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                    return node.disk().durable_read_part(path, offset, count);
                }};
    }
    Image cached() {
        return {[this](const std::string& folder) { return node.disk().cached_names(folder); },
                [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                    return node.disk().cached_read_part(path, offset, count);
                }};
    }
    std::unique_ptr<PartitionLog> open_log(Fiber& fiber) {
        Result<std::unique_ptr<PartitionLog>> log = PartitionLog::open(
            fiber, env, FOLDER, "1/0", options(), std::make_shared<TailBudget>());
        EXPECT_TRUE(log.ok());
        return std::move(log).value();
    }
    static std::string value_of(std::uint64_t number) {
        return std::string(static_cast<std::size_t>(number * number % 3001),
                           static_cast<char>('a' + number % 26));
    }
    // Records of many sizes, in batches of some.
    void append(Fiber& fiber, PartitionLog& log, std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t i = first; i <= last; ++i) {
            const std::string key = i % 3 == 0 ? "key" + std::to_string(i) : "";
            const std::string value = value_of(i);
            Record record;
            record.producer_id = ProducerId(i % 2 + 1);
            record.producer_seq = ProducerSeq(i);
            record.leader_epoch = LeaderEpoch(4);
            record.key = as_byte_span(key);
            record.value = as_byte_span(value);
            ASSERT_TRUE(log.append(record).ok());
            if (i % 5 == 0) flush(fiber, log);
        }
        flush(fiber, log);
    }
    void flush(Fiber& fiber, PartitionLog& log) {
        while (log.flushed_sequence() < log.last_sequence()) {
            ASSERT_TRUE(env.scheduler.sleep_until(fiber, env.clock.now() + milliseconds(1)).ok());
        }
    }
    // The same records, by the reader of the log and by the follower.
    void expect_same(Fiber& fiber, PartitionLog& log, const LogFollower& follower) {
        ASSERT_EQ(follower.records().size(), log.flushed_sequence().value);
        for (const auto& [sequence, seen] : follower.records()) {
            const Result<RecordBatch> batch =
                log.read(fiber, Sequence(sequence), Sequence(sequence), 1);
            ASSERT_TRUE(batch.ok());
            const Record& record = batch->records.front();
            EXPECT_EQ(seen.sequence, record.sequence.value);
            EXPECT_EQ(seen.producer_id, record.producer_id.value);
            EXPECT_EQ(seen.producer_seq, record.producer_seq.value);
            EXPECT_EQ(seen.leader_epoch, record.leader_epoch.value);
            EXPECT_EQ(seen.digest, payload_digest(record.key.data(), record.key.size(),
                                                  record.value.data(), record.value.size()));
        }
    }

    Env env = node.env();
};

TEST_F(ImageReader, sees_the_records_of_all_segments) {
    run_on(node, [&](Fiber& fiber) {
        const auto log = open_log(fiber);
        append(fiber, *log, 1, 60);
        ASSERT_GT(log->stats().segment_count, 2u);
        LogFollower follower(FOLDER);
        EXPECT_EQ(follower.advance(durable()).size(), 60u);
        expect_same(fiber, *log, follower);
        ASSERT_TRUE(log->close(fiber).ok());
    });
}

TEST_F(ImageReader, finds_only_what_is_new_when_it_goes_on) {
    run_on(node, [&](Fiber& fiber) {
        const auto log = open_log(fiber);
        LogFollower follower(FOLDER);
        EXPECT_TRUE(follower.advance(durable()).empty());
        for (std::uint64_t i = 1; i <= 60; ++i) {
            append(fiber, *log, i, i);
            const std::vector<SeenRecord> found = follower.advance(durable());
            ASSERT_EQ(found.size(), 1u);
            EXPECT_EQ(found.front().sequence, i);
        }
        expect_same(fiber, *log, follower);
        follower.forget();
        EXPECT_TRUE(follower.records().empty());
        EXPECT_EQ(follower.advance(cached()).size(), 60u);
        ASSERT_TRUE(log->close(fiber).ok());
    });
}

TEST_F(ImageReader, does_not_see_in_the_durable_image_what_no_sync_covered) {
    run_on(node, [&](Fiber& fiber) {
        const auto log = open_log(fiber);
        append(fiber, *log, 1, 3);
        node.disk().faults().drop_sync = [](const SyncCall&) { return true; };
        append(fiber, *log, 4, 6);
        LogFollower durable_follower(FOLDER);
        LogFollower cached_follower(FOLDER);
        EXPECT_EQ(durable_follower.advance(durable()).size(), 3u);
        EXPECT_EQ(cached_follower.advance(cached()).size(), 6u);
        ASSERT_TRUE(log->close(fiber).ok());
    });
}

TEST_F(ImageReader, counts_records_once_that_recovery_copied_to_a_new_segment) {
    std::unique_ptr<PartitionLog> log;
    run_on(node, [&](Fiber& fiber) {
        log = open_log(fiber);
        append(fiber, *log, 1, 7);
    });
    node.kill();
    log.reset();
    node.restart();
    run_on(node, [&](Fiber& fiber) {
        const auto again = open_log(fiber);
        ASSERT_EQ(again->last_sequence(), Sequence(7));
        ASSERT_GT(again->stats().segment_count, 1u);
        append(fiber, *again, 8, 12);
        LogFollower follower(FOLDER);
        EXPECT_EQ(follower.advance(cached()).size(), 12u);
        expect_same(fiber, *again, follower);
        ASSERT_TRUE(again->close(fiber).ok());
    });
}

TEST_F(ImageReader, stops_at_a_damaged_record) {
    run_on(node, [&](Fiber& fiber) {
        const auto log = open_log(fiber);
        append(fiber, *log, 1, 9);
        ASSERT_TRUE(log->close(fiber).ok());
    });
    LogFollower whole(FOLDER);
    ASSERT_EQ(whole.advance(durable()).size(), 9u);
    const std::string path = FOLDER + "/" + segment_file_name(Sequence(1));
    ASSERT_TRUE(node.disk().flip_bit(path, SEGMENT_HEAD_BYTES + RECORD_FIXED_BYTES, 3));
    LogFollower follower(FOLDER);
    EXPECT_TRUE(follower.advance(durable()).empty());
}

TEST(PayloadDigest, tells_key_and_value_apart) {
    const ByteSpan bytes = as_byte_span("abcd");
    const std::uint64_t split_early = payload_digest(bytes.data(), 1, bytes.data() + 1, 3);
    const std::uint64_t split_late = payload_digest(bytes.data(), 2, bytes.data() + 2, 2);
    EXPECT_NE(split_early, split_late);
}

// Seed 103237: a follower had not cut yet what the leader before had sent it, and that passed for a record of the new term.
TEST(LogViews, others_hold_a_record_when_it_is_the_same_in_all_of_them) {
    using Log = std::map<std::uint64_t, SeenRecord>;
    const SeenRecord new_one{79, 2, 2, 15, 7};
    const SeenRecord old_one{79, 1, 10, 11, 8};
    const Log with_new{{79, new_one}};
    const Log with_old{{79, old_one}};
    const Log without;
    EXPECT_EQ(held_by_all({&with_new, &with_new}, 79, LeaderEpoch(15)), new_one);
    EXPECT_EQ(held_by_all({&with_new, &with_new}, 79, std::nullopt), new_one);
    EXPECT_EQ(held_by_all({&with_old, &with_new}, 79, std::nullopt), std::nullopt);
    EXPECT_EQ(held_by_all({&with_old, &with_old}, 79, LeaderEpoch(15)), std::nullopt);
    EXPECT_EQ(held_by_all({&with_new, &without}, 79, LeaderEpoch(15)), std::nullopt);
}

}  // namespace
}  // namespace mortar::sim
