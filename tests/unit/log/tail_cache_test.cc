#include "core/log/tail_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "core/log/partition_log.h"
#include "tests/unit/log/fake_disk.h"

namespace mortar {
namespace {

using testing::DiskWorld;
using testing::FakeDisk;

constexpr std::uint64_t BUDGET_BYTES = 128u << 10;
constexpr std::size_t VALUE_BYTES = 1000;

// Many logs of one node, which share one budget.
struct TailCacheLogs : ::testing::Test {
    ~TailCacheLogs() override { world.manual.scheduler.kill_all(); }

    void open(std::size_t count) {
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            for (std::size_t i = 0; i < count; ++i) {
                Result<std::unique_ptr<PartitionLog>> log =
                    PartitionLog::open(fiber, world.env, "topics/1/" + std::to_string(i),
                                       "1/" + std::to_string(i), LogOptions{}, budget);
                ASSERT_TRUE(log.ok()) << log.error().to_string();
                logs.push_back(std::move(log).value());
            }
        }));
    }
    // Flushed when it returns.
    void append(PartitionLog& log, std::size_t count = 1) {
        ASSERT_TRUE(world.run([&](Fiber&) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::string value(VALUE_BYTES, 'v');
                Record record;
                record.value = as_byte_span(value);
                ASSERT_TRUE(log.append(record).ok());
            }
        }));
        ASSERT_EQ(log.flushed_sequence(), log.last_sequence());
    }
    bool is_readable(PartitionLog& log, Sequence sequence) {
        bool is_read = false;
        EXPECT_TRUE(world.run([&](Fiber& fiber) {
            const Result<RecordBatch> batch = log.read(fiber, sequence, sequence, 1);
            is_read = batch.ok() && batch->records.at(0).sequence == sequence;
            EXPECT_TRUE(batch.ok() || batch.is(ErrorCode::IO_ERROR)) << batch.error().to_string();
        }));
        return is_read;
    }

    FakeDisk disk;
    DiskWorld world{disk};
    std::shared_ptr<TailBudget> budget = std::make_shared<TailBudget>(BUDGET_BYTES);
    std::vector<std::unique_ptr<PartitionLog>> logs;
};

TEST_F(TailCacheLogs, hold_no_more_together_than_the_budget_and_the_newest_records_stay) {
    open(64);
    std::uint64_t seen_bytes_max = 0;
    for (std::uint64_t round = 1; round <= 40; ++round) {
        for (const std::unique_ptr<PartitionLog>& log : logs) {
            append(*log);
            ASSERT_LE(budget->held_bytes(), BUDGET_BYTES);
            seen_bytes_max = std::max(seen_bytes_max, budget->held_bytes());
            disk.fail_reads = true;  // only memory answers
            EXPECT_TRUE(is_readable(*log, Sequence(round)));
            disk.fail_reads = false;
        }
    }
    EXPECT_GT(seen_bytes_max, BUDGET_BYTES / 2);
    disk.fail_reads = true;
    EXPECT_FALSE(is_readable(*logs.front(), Sequence(1)));
    disk.fail_reads = false;
    for (const std::unique_ptr<PartitionLog>& log : logs) {
        for (std::uint64_t i = 1; i <= 40; ++i)
            ASSERT_TRUE(is_readable(*log, Sequence(i))) << i;
    }
}

TEST_F(TailCacheLogs, lose_the_oldest_of_all_first_whichever_log_it_is_in) {
    open(3);
    append(*logs[0], 3);
    append(*logs[1], 3);
    append(*logs[2], 60);  // takes all but one of their chunks
    disk.fail_reads = true;
    EXPECT_FALSE(is_readable(*logs[0], Sequence(1)));
    EXPECT_TRUE(is_readable(*logs[1], Sequence(1)));
    EXPECT_TRUE(is_readable(*logs[2], Sequence(1)));
    disk.fail_reads = false;
    append(*logs[0], 2);
    disk.fail_reads = true;
    EXPECT_FALSE(is_readable(*logs[0], Sequence(3)));
    EXPECT_TRUE(is_readable(*logs[0], Sequence(4)));
    EXPECT_TRUE(is_readable(*logs[0], Sequence(5)));
    EXPECT_FALSE(is_readable(*logs[1], Sequence(1)));
    EXPECT_TRUE(is_readable(*logs[2], Sequence(1)));
}

TEST_F(TailCacheLogs, give_their_share_back_when_they_go) {
    open(3);
    for (const std::unique_ptr<PartitionLog>& log : logs)
        append(*log, 10);
    EXPECT_GT(budget->held_bytes(), 0u);
    for (const std::unique_ptr<PartitionLog>& log : logs) {
        ASSERT_TRUE(world.run([&](Fiber& fiber) { ASSERT_TRUE(log->close(fiber).ok()); }));
    }
    logs.clear();
    EXPECT_EQ(budget->held_bytes(), 0u);
}

TEST(TailCache, what_it_drops_the_writer_does_not_keep_either) {
    FakeDisk disk;
    DiskWorld world(disk);
    LogWriter writer(world.env, "test");
    const auto budget = std::make_shared<TailBudget>(WRITE_CHUNK_BYTES_MIN);
    TailCache cache(writer, BUDGET_BYTES, budget);
    LogWriter other_writer(world.env, "other");
    TailCache other(other_writer, BUDGET_BYTES, budget);
    const auto append = [&](LogWriter& to, const std::string& path) {
        LogWriter::NextFile next;
        next.open = [&world, path](Fiber& fiber) -> Result<std::shared_ptr<File>> {
            return std::shared_ptr<File>(
                MORTAR_TRY(world.env.disk.open(fiber, path, OpenMode::CREATE)));
        };
        to.switch_file(std::move(next));
        return to.append(ByteVector(100));
    };
    std::weak_ptr<WriteChunk> chunk;
    ASSERT_TRUE(world.run([&](Fiber&) {
        const Result<LogWriter::Appended> appended = append(writer, "a");
        ASSERT_TRUE(appended.ok());
        cache.add(Sequence(1), *appended);
        chunk = appended->chunk;
    }));
    EXPECT_FALSE(chunk.expired());
    ASSERT_TRUE(world.run([&](Fiber&) {
        const Result<LogWriter::Appended> appended = append(other_writer, "b");
        ASSERT_TRUE(appended.ok());
        other.add(Sequence(1), *appended);
    }));
    EXPECT_TRUE(chunk.expired());
    EXPECT_FALSE(cache.holds(Sequence(1)));
    EXPECT_TRUE(other.holds(Sequence(1)));
    EXPECT_EQ(budget->held_bytes(), WRITE_CHUNK_BYTES_MIN);
    // Goes on with a chunk of its own.
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const Result<LogWriter::Appended> appended = writer.append(ByteVector(100));
        ASSERT_TRUE(appended.ok());
        cache.add(Sequence(2), *appended);
        EXPECT_TRUE(cache.holds(Sequence(2)));
        ASSERT_TRUE(writer.close(fiber).ok());
        ASSERT_TRUE(other_writer.close(fiber).ok());
    }));
}

}  // namespace
}  // namespace mortar
