// Over random logs: the windows are a function of the log prefix, however it was fed, and a retry
// finds its original.
#include <gtest/gtest.h>

#include <map>

#include "core/env/rng.h"
#include "core/produce/producer_window.h"
#include "core/produce/window_file.h"
#include "tests/unit/produce/fakes.h"

namespace mortar {
namespace {

using testing::FakeWorld;
using Kind = WindowVerdict::Kind;

// A log as broker and producers would make it, with what every accepted PUB was answered.
struct History {
    std::vector<Record> records;
    std::map<std::pair<ProducerId, ProducerSeq>, Sequence> originals;
};

History random_history(Rng& rng, std::uint64_t producer_count, std::size_t steps) {
    History history;
    ProducerWindows windows;
    std::map<std::uint64_t, std::uint64_t> next_seq;
    for (std::size_t i = 0; i < steps; ++i) {
        const std::uint64_t producer = rng.below(producer_count + 1);
        std::uint64_t& next = next_seq.try_emplace(producer, 1).first->second;
        std::uint64_t seq = producer == 0 ? 0 : next;
        if (producer != 0 && rng.one_in(4) && next > 1) seq = 1 + rng.below(next - 1);  // a retry
        if (producer != 0 && rng.one_in(20)) seq = next + 1 + rng.below(3);             // a gap
        const WindowVerdict verdict = windows.check(ProducerId(producer), ProducerSeq(seq));
        const auto original = history.originals.find({ProducerId(producer), ProducerSeq(seq)});
        if (verdict.kind == Kind::DUPLICATE) {
            EXPECT_NE(original, history.originals.end());
            if (original != history.originals.end()) {
                EXPECT_EQ(verdict.sequence, original->second);
            }
        }
        if (verdict.kind == Kind::EXPIRED && rng.one_in(2))
            next = 1;  // a forgotten producer starts anew
        if (verdict.kind != Kind::NEXT) continue;
        Record record;
        record.sequence = Sequence(history.records.size() + 1);
        record.producer_id = ProducerId(producer);
        record.producer_seq = ProducerSeq(seq);
        windows.on_record(record.producer_id, record.producer_seq, record.sequence);
        history.records.push_back(record);
        history.originals[{record.producer_id, record.producer_seq}] = record.sequence;
        if (producer != 0) next = seq + 1;
    }
    return history;
}

ByteVector fed_whole(const History& history, std::size_t count) {
    ProducerWindows windows;
    for (std::size_t i = 0; i < count; ++i) {
        windows.on_record(history.records[i].producer_id, history.records[i].producer_seq,
                          history.records[i].sequence);
    }
    return windows.encode(Sequence(count));
}

// On one node, where what is flushed is committed.
Result<void> save_flushed(Fiber& fiber, Disk& disk, const ProducerWindows& windows,
                          PartitionLog& log, Event& flushed) {
    const Sequence through = log.last_sequence();
    return save_windows(fiber, disk, "f", windows, through, flushed, [&]() -> Result<WindowFate> {
        return log.flushed_sequence() >= through ? WindowFate::SAVE : WindowFate::WAIT;
    });
}

TEST(ProducerWindowProperty, file_and_tail_equal_the_whole_log) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        Rng rng(seed);
        const std::uint64_t producers = seed % 3 == 0 ? 1500 : 1 + rng.below(8);
        const History history = random_history(rng, producers, 3000 + rng.below(6000));
        FakeWorld world;
        testing::FakeLogDisk& disk = world.logs.disks["f"];
        const std::size_t cut = rng.below(history.records.size() + 1);
        ByteVector opened;
        world.in_fiber([&](Fiber& fiber) {
            testing::FakeLog log(disk);
            ProducerWindows windows;
            Event flushed;
            for (std::size_t i = 0; i < history.records.size(); ++i) {
                if (i == cut) {
                    log.flush();
                    EXPECT_TRUE(save_flushed(fiber, world.disk, windows, log, flushed).ok());
                }
                EXPECT_TRUE(log.append(history.records[i]).ok());
                windows.on_record(history.records[i].producer_id, history.records[i].producer_seq,
                                  Sequence(i + 1));
            }
            log.flush();
            const Result<OpenedWindows> again =
                open_windows(fiber, world.env, "f", log, log.flushed_sequence());
            ASSERT_TRUE(again.ok());
            opened = again->windows.encode(log.last_sequence());
        });
        EXPECT_EQ(world.disk.files.contains("f/producers.mqp"), cut > 0);
        EXPECT_EQ(opened, fed_whole(history, history.records.size())) << "seed " << seed;
    }
}

TEST(ProducerWindowProperty, decode_and_encode_are_inverse) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        Rng rng(seed);
        const History history = random_history(rng, seed * 200, 5000);
        const ByteVector file = fed_whole(history, history.records.size());
        const auto decoded = ProducerWindows::decode(file, "p");
        ASSERT_TRUE(decoded.ok());
        EXPECT_EQ(decoded->windows.encode(decoded->through), file);
    }
}

TEST(WindowFile, counts_a_damaged_file_as_absent) {
    FakeWorld world;
    testing::FakeLogDisk& disk = world.logs.disks["f"];
    world.disk.files["f/producers.mqp"] = ByteVector(50, std::byte{1});
    world.in_fiber([&](Fiber& fiber) {
        testing::FakeLog log(disk);
        Record record;
        record.producer_id = ProducerId(3);
        record.producer_seq = ProducerSeq(1);
        ASSERT_TRUE(log.append(record).ok());
        log.flush();
        const Result<OpenedWindows> windows =
            open_windows(fiber, world.env, "f", log, log.flushed_sequence());
        ASSERT_TRUE(windows.ok());
        EXPECT_EQ(windows->windows.check(ProducerId(3), ProducerSeq(1)).kind, Kind::DUPLICATE);
    });
    EXPECT_TRUE(world.log.saw("producer_windows_damaged"));
}

// A file that covers more than the log would answer OK for records that are gone; and gone they may not be.
TEST(WindowFile, ahead_of_the_log_proves_that_the_log_lost_records) {
    FakeWorld world;
    testing::FakeLogDisk& disk = world.logs.disks["f"];
    ProducerWindows ahead;
    ahead.on_record(ProducerId(3), ProducerSeq(1), Sequence(1));
    world.disk.files["f/producers.mqp"] = ahead.encode(Sequence(1));
    world.in_fiber([&](Fiber& fiber) {
        testing::FakeLog log(disk);
        const Result<OpenedWindows> windows =
            open_windows(fiber, world.env, "f", log, log.flushed_sequence());
        ASSERT_TRUE(windows.ok());
        EXPECT_EQ(windows->windows.check(ProducerId(3), ProducerSeq(1)).kind, Kind::NEXT);
        EXPECT_EQ(windows->known_committed, Sequence(1));
    });
}

TEST(WindowFile, is_renamed_only_when_all_that_it_covers_is_flushed) {
    FakeWorld world;
    testing::FakeLogDisk& disk = world.logs.disks["f"];
    Event flushed;
    testing::FakeLog log(disk);
    ProducerWindows windows;
    bool saved = false;
    ASSERT_TRUE(log.append(Record{}).ok());
    world.in_fiber([&](Fiber& fiber) {
        EXPECT_TRUE(save_flushed(fiber, world.disk, windows, log, flushed).ok());
        saved = true;
    });
    EXPECT_FALSE(saved);
    EXPECT_FALSE(world.disk.files.contains("f/producers.mqp"));
    log.flush();
    flushed.notify_all();
    world.pass(milliseconds(1));
    EXPECT_TRUE(saved);
    EXPECT_TRUE(world.disk.files.contains("f/producers.mqp"));
}

}  // namespace
}  // namespace mortar
