// log_world: a PartitionLog on a FakeDisk through many lives, with what its users were promised.
#pragma once

#include <gtest/gtest.h>

#include "core/log/partition_log.h"
#include "core/log/tail_cache.h"
#include "tests/unit/log/fake_disk.h"

namespace mortar::testing {

inline constexpr const char* FOLDER = "topics/1/0";

inline std::string value_of(std::uint64_t sequence, std::size_t size_bytes) {
    std::string value = "v" + std::to_string(sequence) + ":";
    while (value.size() < size_bytes)
        value.push_back(static_cast<char>('a' + (sequence + value.size()) % 26));
    return value;
}

struct LogWorld {
    explicit LogWorld(std::uint64_t seed = 1, LogOptions with = {}) : disk(seed), options(with) {
        start();
    }
    ~LogWorld() { kill(); }

    void start() { life = std::make_unique<DiskWorld>(disk); }
    // The process dies; what it held in memory is gone.
    void kill() {
        if (life != nullptr) life->manual.scheduler.kill_all();
        log = nullptr;
        life = nullptr;
        disk.process_killed();
    }
    void restart(bool power) {
        kill();
        if (power) disk.power_loss();
        start();
    }
    bool run(std::function<void(Fiber&)> body) { return life->run(std::move(body)); }

    // For use in fibers.
    Result<void> open_in(Fiber& fiber) {
        log = MORTAR_TRY(PartitionLog::open(fiber, life->env, FOLDER, "1/0", options, tails));
        log->set_on_flushed([this] {
            promised = std::max(promised, log->flushed_sequence().value);
            flushed.notify_all();
        });
        return {};
    }
    Sequence append(std::size_t value_bytes, std::string_view key = {}) {
        const std::uint64_t next = log->last_sequence().value + 1;
        const std::string value = value_of(next, value_bytes);
        Record record;
        record.producer_id = ProducerId(9);
        record.producer_seq = ProducerSeq(next);
        record.timestamp_unix_ms = 1000 + next;
        record.leader_epoch = LeaderEpoch(3);
        record.key = as_byte_span(key);
        record.value = as_byte_span(value);
        const Result<Sequence> sequence = log->append(record);
        EXPECT_TRUE(sequence.ok()) << sequence.error().to_string();
        if (!sequence.ok()) return Sequence();
        EXPECT_EQ(sequence->value, next);
        return *sequence;
    }
    void wait_flushed(Fiber& fiber) {
        while (log->flushed_sequence() < log->last_sequence() && !log->failure()) {
            ASSERT_TRUE(flushed.wait(fiber).ok());
        }
    }
    // Every record from 1 to flushed: there, in order, as appended.
    void expect_all(Fiber& fiber, std::uint64_t max_bytes = 5000) {
        std::uint64_t next = 1;
        while (next <= log->flushed_sequence().value) {
            const auto batch = log->read(fiber, Sequence(next), log->flushed_sequence(), max_bytes);
            ASSERT_TRUE(batch.ok()) << batch.error().to_string();
            ASSERT_FALSE(batch->records.empty());
            for (const Record& record : batch->records) {
                ASSERT_EQ(record.sequence.value, next);
                ASSERT_EQ(as_string_view(record.value), value_of(next, record.value.size()));
                ++next;
            }
        }
    }

    // In the same life, as after a failed sync: the process knows what it had synced.
    void open_in_same_life() {
        ASSERT_TRUE(run([&](Fiber& fiber) {
            (void)log->close(fiber);
            options.known_synced = log->known_synced();
            const auto opened = open_in(fiber);
            options.known_synced = {};
            ASSERT_TRUE(opened.ok()) << opened.error().to_string();
        }));
    }

    // Whole lives in one call, for tests that run outside of fibers.
    void open() {
        ASSERT_TRUE(run([&](Fiber& fiber) {
            const auto opened = open_in(fiber);
            ASSERT_TRUE(opened.ok()) << opened.error().to_string();
        }));
    }
    // One batch each: waits for the flush between them.
    void append_batches(std::initializer_list<std::size_t> counts, std::size_t value_bytes = 100) {
        for (const std::size_t count : counts) {
            ASSERT_TRUE(run([&](Fiber& fiber) {
                for (std::size_t i = 0; i < count; ++i)
                    append(value_bytes);
                wait_flushed(fiber);
            }));
        }
    }
    void close() {
        ASSERT_TRUE(run([&](Fiber& fiber) { ASSERT_TRUE(log->close(fiber).ok()); }));
    }
    void reopen(bool power) {
        restart(power);
        open();
    }
    void expect_readable(std::uint64_t count) {
        EXPECT_FALSE(log->faulty_from().has_value());
        EXPECT_EQ(log->last_sequence().value, count);
        EXPECT_EQ(log->flushed_sequence().value, count);
        ASSERT_TRUE(run([&](Fiber& fiber) { expect_all(fiber); }));
    }
    std::vector<std::string> segments() const {
        std::vector<std::string> found;
        for (const std::string& path : disk.paths()) {
            if (path.ends_with(".seg")) found.push_back(path);
        }
        return found;
    }
    // Where the record stands in its segment.
    std::uint64_t offset_of(const std::string& path, std::uint64_t sequence) {
        const ByteVector& bytes = disk.bytes(path);
        for (std::size_t at = SEGMENT_HEAD_BYTES; at + RECORD_FIXED_BYTES <= bytes.size(); ++at) {
            const auto record = parse_record(ByteSpan(bytes).subspan(at));
            if (record.ok() && record->sequence.value == sequence) return at;
        }
        ADD_FAILURE() << "no record " << sequence << " in " << path;
        return 0;
    }

    Event flushed;
    FakeDisk disk;
    LogOptions options;
    std::shared_ptr<TailBudget> tails = std::make_shared<TailBudget>();
    std::unique_ptr<DiskWorld> life;
    std::unique_ptr<PartitionLog> log;
    std::uint64_t promised = 0;  // flushed in any life
};

}  // namespace mortar::testing
