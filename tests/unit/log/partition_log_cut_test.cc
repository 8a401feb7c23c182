// What replication does with a log: bytes in and out, cut, what it says of its end.
#include <gtest/gtest.h>

#include "core/log/checkpoint.h"
#include "core/log/partition_log.h"
#include "tests/unit/log/log_world.h"

namespace mortar {
namespace {

using testing::FOLDER;
using testing::LogWorld;

const std::string FIRST_SEGMENT = std::string(FOLDER) + "/00000000000000000001.seg";

// What a record is known by: two of the same sequence differ.
struct Entry {
    LeaderEpoch leader_epoch;
    std::string value;
    bool operator==(const Entry&) const = default;
};
using Entries = std::vector<Entry>;

Record record_of(const Entry& entry, std::uint64_t sequence) {
    Record record;
    record.sequence = Sequence(sequence);
    record.timestamp_unix_ms = 1000 + sequence;
    record.leader_epoch = entry.leader_epoch;
    record.value = as_byte_span(entry.value);
    return record;
}

ByteVector bytes_of(const Entries& entries, std::uint64_t first_sequence) {
    ByteVector bytes;
    for (const Entry& entry : entries)
        encode_record(bytes, record_of(entry, first_sequence++));
    return bytes;
}

ByteVector joined(const RecordBytes& bytes) {
    ByteVector all;
    for (const ByteSpan part : bytes.parts)
        all.insert(all.end(), part.begin(), part.end());
    EXPECT_EQ(all.size(), bytes.size_bytes);
    return all;
}

// A log, and what it should hold.
struct CutWorld : LogWorld {
    using LogWorld::LogWorld;

    Entry make(std::size_t value_bytes) {
        std::string value = "r" + std::to_string(++made_count) + ":";
        value.resize(std::max(value_bytes, value.size()), 'x');
        return {leader_epoch, value};
    }
    void append_one(std::size_t value_bytes) {
        const Entry entry = make(value_bytes);
        const auto sequence = log->append(record_of(entry, model.size() + 1));
        ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
        model.push_back(entry);
        ASSERT_EQ(sequence->value, model.size());
    }
    // A batch for each count.
    void append_all(Fiber& fiber, std::initializer_list<std::size_t> counts,
                    std::size_t value_bytes) {
        for (const std::size_t count : counts) {
            for (std::size_t i = 0; i < count; ++i)
                append_one(value_bytes);
            wait_flushed(fiber);
        }
    }
    Result<void> cut_to(Fiber& fiber, std::uint64_t keep_through) {
        MORTAR_TRY(log->cut(fiber, Sequence(keep_through)));
        model.resize(keep_through);
        return {};
    }
    Entries read_all(Fiber& fiber) {
        Entries all;
        while (all.size() < log->flushed_sequence().value) {
            const auto batch =
                log->read(fiber, Sequence(all.size() + 1), log->flushed_sequence(), 3000);
            EXPECT_TRUE(batch.ok()) << batch.error().to_string();
            if (!batch.ok()) return all;
            for (const Record& record : batch->records) {
                EXPECT_EQ(record.sequence.value, all.size() + 1);
                all.push_back({record.leader_epoch, std::string(as_string_view(record.value))});
            }
        }
        return all;
    }
    // The log is as long as the model and has the same records.
    void expect_model(Fiber& fiber) {
        ASSERT_FALSE(log->faulty_from().has_value()) << life->log.lines.back();
        ASSERT_EQ(log->last_sequence().value, model.size());
        ASSERT_EQ(log->end(), (LogEnd{Sequence(model.size()),
                                      model.empty() ? LeaderEpoch() : model.back().leader_epoch}));
        wait_flushed(fiber);
        ASSERT_TRUE(read_all(fiber) == model);
    }
    void expect_model() {
        ASSERT_TRUE(run([&](Fiber& fiber) { expect_model(fiber); }));
    }

    Entries model;
    LeaderEpoch leader_epoch{1};
    std::uint64_t made_count = 0;
};

LogOptions small_segments() {
    LogOptions options;
    options.segment_max_bytes = 4096;
    options.checkpoint_every_bytes = 3000;
    options.tail_cache_bytes = 1;
    return options;
}

// Several segments of short records, and behind the end of two of them what earlier cuts took away.
void fill(CutWorld& world) {
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(world.open_in(fiber).ok());
        world.append_all(fiber, {20, 20, 20, 20}, 70);
        ASSERT_TRUE(world.cut_to(fiber, 33).ok());
        world.leader_epoch = LeaderEpoch(2);
        world.append_all(fiber, {9, 30, 9}, 5);
        ASSERT_TRUE(world.cut_to(fiber, 50).ok());
        world.leader_epoch = LeaderEpoch(3);
        world.append_all(fiber, {30, 30}, 60);
    }));
    ASSERT_GE(world.segments().size(), 4u);
    world.expect_model();
}

// covers DUR-09 for cut: at each disk operation the process dies or the power fails.
TEST(PartitionLogCut, leaves_the_old_log_or_a_prefix_that_keeps_what_it_must_at_any_crash) {
    for (const std::uint64_t keep : {0u, 20u, 33u, 41u, 50u, 66u, 109u}) {
        for (std::uint64_t stop = 1;; ++stop) {
            SCOPED_TRACE("keep " + std::to_string(keep) + " stop " + std::to_string(stop));
            bool was_cut = false;
            for (const bool power : {false, true}) {
                CutWorld world(1000 * keep + stop, small_segments());
                fill(world);
                const Entries old = world.model;
                world.disk.stop_at = world.disk.operations + stop;
                was_cut =
                    world.run([&](Fiber& fiber) { ASSERT_TRUE(world.cut_to(fiber, keep).ok()); });
                world.reopen(power);
                const std::uint64_t last = world.log->last_sequence().value;
                ASSERT_GE(last, keep);
                ASSERT_LE(last, old.size());
                if (was_cut) {
                    ASSERT_EQ(last, keep);
                }
                world.model.assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(last));
                world.expect_model();
                world.leader_epoch = LeaderEpoch(4);
                ASSERT_TRUE(world.run([&](Fiber& fiber) {
                    ASSERT_TRUE(world.cut_to(fiber, keep).ok());
                    world.append_all(fiber, {3}, 20);
                }));
                world.reopen(true);
                world.expect_model();
                if (::testing::Test::HasFatalFailure()) return;
            }
            if (was_cut) break;
        }
    }
}

TEST(PartitionLogCut, takes_records_again_without_being_opened_again) {
    for (const std::size_t cache_bytes : {1u, 1u << 20}) {
        LogOptions options = small_segments();
        options.tail_cache_bytes = cache_bytes;
        CutWorld world(1, options);
        fill(world);
        for (const std::uint64_t keep : {100u, 100u, 51u, 20u, 0u}) {
            ASSERT_TRUE(world.run([&](Fiber& fiber) {
                ASSERT_TRUE(world.cut_to(fiber, keep).ok());
                world.expect_model(fiber);
                world.leader_epoch = world.leader_epoch.next();
                world.append_all(fiber, {4, 1}, 30);
                world.expect_model(fiber);
            }));
        }
        ASSERT_TRUE(world.run([&](Fiber& fiber) { world.append_all(fiber, {40, 40}, 100); }));
        world.expect_model();
        world.close();
        world.reopen(true);
        world.expect_model();
    }
}

TEST(PartitionLogCut, of_what_is_not_flushed_yet) {
    CutWorld world(1, small_segments());
    fill(world);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        for (int i = 0; i < 10; ++i)
            world.append_one(900);
        ASSERT_LT(world.log->flushed_sequence(), world.log->last_sequence());
        ASSERT_TRUE(world.cut_to(fiber, world.model.size() - 5).ok());
        world.expect_model(fiber);
    }));
    world.reopen(true);
    world.expect_model();
}

TEST(PartitionLogCut, a_failed_sync_closes_the_log_and_what_it_holds_is_a_prefix) {
    for (int failed = 1; failed <= 2; ++failed) {
        CutWorld world(1, small_segments());
        fill(world);
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            world.disk.fail_syncs = failed;
            EXPECT_TRUE(world.log->cut(fiber, Sequence(40)).is(ErrorCode::IO_ERROR));
            EXPECT_TRUE(world.log->failure().has_value());
            world.disk.fail_syncs = 0;
            EXPECT_TRUE(world.log->append(Record{}).is(ErrorCode::LOG_CLOSED));
            EXPECT_TRUE(world.log->cut(fiber, Sequence(40)).is(ErrorCode::LOG_CLOSED));
            EXPECT_FALSE(world.log->close(fiber).ok());
            ASSERT_TRUE(world.open_in(fiber).ok());
            ASSERT_GE(world.log->last_sequence(), Sequence(40));
            world.model.resize(world.log->last_sequence().value);
            world.expect_model(fiber);
        }));
    }
}

TEST(PartitionLogCut, takes_damage_away_that_is_behind_what_it_keeps_and_refuses_else) {
    CutWorld world(1, small_segments());
    fill(world);
    const std::string last_segment = world.segments().back();
    const auto base =
        parse_log_file_name(last_segment.substr(std::string(FOLDER).size() + 1), ".seg");
    ASSERT_TRUE(base.has_value());
    world.close();
    world.kill();
    const std::uint64_t bad = base->value + 2;
    world.disk.flip(last_segment, world.offset_of(last_segment, bad) + 60);
    world.start();
    world.open();
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        EXPECT_TRUE(world.log->read(fiber, Sequence(bad), Sequence(bad), 1)
                        .is(ErrorCode::CHECKSUM_MISMATCH));
        ASSERT_EQ(world.log->faulty_from(), Sequence(bad));
        EXPECT_TRUE(world.log->cut(fiber, Sequence(bad)).is(ErrorCode::DAMAGED));
        EXPECT_TRUE(world.log->make_durable(fiber).is(ErrorCode::DAMAGED));
        ASSERT_TRUE(world.cut_to(fiber, bad - 1).ok());
        world.append_all(fiber, {3}, 10);
        world.expect_model(fiber);
    }));
    world.reopen(true);
    world.expect_model();
}

// The cut that failed may have taken away what had been synced behind its end.
TEST(PartitionLogCut, that_failed_leaves_no_claim_to_what_it_took_away) {
    std::size_t shorter_count = 0;
    for (int failing = 1; failing <= 4; ++failing) {
        CutWorld world(1, small_segments());
        fill(world);
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            world.disk.folder_sync_that_fails = failing;
            EXPECT_TRUE(world.log->cut(fiber, Sequence(40)).is(ErrorCode::IO_ERROR)) << failing;
        }));
        world.open_in_same_life();
        EXPECT_FALSE(world.log->faulty_from().has_value()) << failing;
        EXPECT_GE(world.log->last_sequence(), Sequence(40));
        if (world.log->last_sequence().value < world.model.size()) ++shorter_count;
        world.model.resize(world.log->last_sequence().value);
        world.expect_model();
    }
    EXPECT_GT(shorter_count, 0u);
}

// The page of a torn first batch is a file that the log does not count; it must not outlive a cut below it.
TEST(PartitionLogCut, goes_below_a_segment_that_a_torn_tail_left_behind) {
    CutWorld world(1, small_segments());
    fill(world);
    world.close();
    world.kill();
    const std::uint64_t last = world.model.size();
    world.disk.put(std::string(FOLDER) + "/" + segment_file_name(Sequence(last + 1)),
                   ByteVector(SECTOR_BYTES, std::byte{0x77}));
    world.start();
    world.open();
    world.expect_model();
    ASSERT_TRUE(world.run([&](Fiber& fiber) { ASSERT_TRUE(world.cut_to(fiber, last - 3).ok()); }));
    world.reopen(false);
    world.expect_model();
}

TEST(PartitionLogCut, a_reader_gets_what_stayed_or_hears_of_the_cut) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CutWorld world(seed, small_segments());
        fill(world);
        Rng rng(seed);
        bool heard = false;
        for (int i = 0; i < 6; ++i) {
            const std::uint64_t from = 1 + rng.below(world.model.size());
            world.life->manual.scheduler.spawn("reader", [&world, &heard, from](Fiber& fiber) {
                const Entries old = world.model;
                const auto bytes =
                    world.log->read_bytes(fiber, Sequence(from), Sequence(old.size()), 2000);
                if (bytes.is(ErrorCode::NOT_FOUND)) {
                    heard = true;
                    return;
                }
                ASSERT_TRUE(bytes.ok()) << bytes.error().to_string();
                const auto first = static_cast<std::ptrdiff_t>(from - 1);
                const auto end = static_cast<std::ptrdiff_t>(bytes->last.value);
                EXPECT_EQ(joined(*bytes), bytes_of({old.begin() + first, old.begin() + end}, from));
            });
        }
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            ASSERT_TRUE(world.cut_to(fiber, 40).ok());
            world.leader_epoch = LeaderEpoch(9);
            world.append_all(fiber, {20}, 40);
        }));
        world.expect_model();
    }
}

TEST(PartitionLogBytes, are_spans_into_what_the_writer_wrote_and_another_log_takes_them) {
    CutWorld leader(1);
    CutWorld follower(2);
    ASSERT_TRUE(leader.run([&](Fiber& fiber) {
        ASSERT_TRUE(leader.open_in(fiber).ok());
        for (int i = 0; i < 30; ++i)
            leader.append_one(200);
        ASSERT_EQ(leader.log->flushed_sequence(), Sequence(0));
        const auto bytes = leader.log->read_bytes(fiber, Sequence(1), Sequence(30), 1u << 20);
        ASSERT_TRUE(bytes.ok());
        const auto again = leader.log->read_bytes(fiber, Sequence(1), Sequence(30), 1u << 20);
        EXPECT_EQ(bytes->first, Sequence(1));
        EXPECT_EQ(bytes->last, Sequence(30));
        EXPECT_EQ(bytes->parts.front().data(), again->parts.front().data());
        EXPECT_LE(bytes->parts.size(), 3u);  // a chunk each
        EXPECT_EQ(joined(*bytes), bytes_of(leader.model, 1));
        const auto few = leader.log->read_bytes(fiber, Sequence(4), Sequence(30), 1);
        EXPECT_EQ(few->last, Sequence(4));
        leader.wait_flushed(fiber);
    }));
    std::vector<Sequence> seen;
    ASSERT_TRUE(follower.run([&](Fiber& fiber) {
        ASSERT_TRUE(follower.open_in(fiber).ok());
        ASSERT_TRUE(follower.log
                        ->append_bytes(bytes_of(leader.model, 1),
                                       [&](const Record& r) { seen.push_back(r.sequence); })
                        .ok());
        follower.model = leader.model;
        follower.expect_model(fiber);
        EXPECT_EQ(follower.log->stats().write_count, 1u);
    }));
    EXPECT_EQ(seen.size(), 30u);
    EXPECT_EQ(seen.back(), Sequence(30));
    EXPECT_EQ(follower.disk.bytes(FIRST_SEGMENT), leader.disk.bytes(FIRST_SEGMENT));
    // From the files, the gaps between batches left out.
    ASSERT_TRUE(leader.run([&](Fiber& fiber) { leader.append_all(fiber, {3, 2}, 100); }));
    leader.reopen(true);
    ASSERT_TRUE(leader.run([&](Fiber& fiber) {
        ByteVector all;
        for (Sequence from(1); from.value <= leader.model.size();) {
            const auto bytes = leader.log->read_bytes(fiber, from, Sequence(35), 3000);
            ASSERT_TRUE(bytes.ok());
            const ByteVector piece = joined(*bytes);
            all.insert(all.end(), piece.begin(), piece.end());
            from = bytes->last.next();
        }
        EXPECT_EQ(all, bytes_of(leader.model, 1));
    }));
}

TEST(PartitionLogBytes, that_are_not_the_next_records_are_refused_and_nothing_is_appended) {
    CutWorld world;
    world.leader_epoch = LeaderEpoch(5);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(world.open_in(fiber).ok());
        world.append_all(fiber, {4}, 30);
    }));
    const Entries three{world.make(10), world.make(20), world.make(30)};
    Entries falling = three;
    falling[1].leader_epoch = LeaderEpoch(6);
    Entries older = three;
    for (Entry& entry : older)
        entry.leader_epoch = LeaderEpoch(4);
    const ByteVector good = bytes_of(three, 5);
    const std::size_t first_bytes = record_bytes(record_of(three[0], 5));
    std::vector<std::pair<const char*, ByteVector>> bad;
    for (std::size_t at : {first_bytes + 70, good.size() - 1, std::size_t{60}, std::size_t{20}}) {
        bad.emplace_back("a flipped byte", good);
        bad.back().second[at] ^= std::byte{4};
    }
    bad.emplace_back("cut off", ByteVector(good.begin(), good.end() - 1));
    bad.emplace_back("cut in a length", ByteVector(good.begin(), good.begin() + 2));
    bad.emplace_back("zeros behind", good);
    bad.back().second.resize(good.size() + 8);
    bad.emplace_back("a gap before", bytes_of(three, 6));
    bad.emplace_back("there already", bytes_of(three, 4));
    bad.emplace_back("a gap within", bytes_of({three[0]}, 5));
    const ByteVector late = bytes_of({three[2]}, 7);
    bad.back().second.insert(bad.back().second.end(), late.begin(), late.end());
    bad.emplace_back("an epoch that falls within", bytes_of(falling, 5));
    bad.emplace_back("an epoch older than the log's", bytes_of(older, 5));
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        int seen_count = 0;
        for (const auto& [what, bytes] : bad) {
            EXPECT_TRUE(world.log->append_bytes(bytes, [&](const Record&) { ++seen_count; })
                            .is(ErrorCode::CHECKSUM_MISMATCH))
                << what;
            EXPECT_EQ(world.log->last_sequence(), Sequence(4)) << what;
        }
        EXPECT_EQ(seen_count, 0);
        EXPECT_TRUE(world.log->append_bytes({}, {}).ok());
        ASSERT_TRUE(world.log->append_bytes(good, {}).ok());
        world.model.insert(world.model.end(), three.begin(), three.end());
        world.expect_model(fiber);
        world.append_all(fiber, {1}, 10);
    }));
    world.reopen(true);
    world.expect_model();
}

TEST(PartitionLogBytes, of_a_damaged_record_are_not_handed_out) {
    CutWorld world(1, small_segments());
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(world.open_in(fiber).ok());
        world.append_all(fiber, {10, 10}, 50);
    }));
    world.close();
    world.restart(false);
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 6) + 60);
    world.open();
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        const auto before = world.log->read_bytes(fiber, Sequence(1), Sequence(20), 1u << 20);
        ASSERT_TRUE(before.ok());
        EXPECT_EQ(before->last, Sequence(5));
        EXPECT_TRUE(world.log->read_bytes(fiber, Sequence(6), Sequence(20), 1)
                        .is(ErrorCode::CHECKSUM_MISMATCH));
        EXPECT_TRUE(
            world.log->append_bytes(bytes_of({world.make(1)}, 21), {}).is(ErrorCode::DAMAGED));
    }));
    EXPECT_EQ(world.log->faulty_from(), Sequence(6));
    EXPECT_EQ(world.log->end().last, Sequence(20));
}

TEST(PartitionLogEnd, names_the_epoch_of_each_record) {
    CutWorld world(1, small_segments());
    fill(world);
    const auto expect_epochs = [&world](Fiber& fiber) {
        for (std::uint64_t s = 1; s <= world.model.size(); ++s) {
            const auto leader_epoch = world.log->epoch_at(fiber, Sequence(s));
            ASSERT_TRUE(leader_epoch.ok());
            ASSERT_EQ(*leader_epoch, world.model[s - 1].leader_epoch) << s;
        }
    };
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        expect_epochs(fiber);
        world.append_one(5);
        expect_epochs(fiber);
    }));
    world.close();
    world.reopen(true);  // the checkpoint covers all: nothing is walked
    world.expect_model();
    ASSERT_TRUE(world.run(expect_epochs));
}

TEST(PartitionLogEnd, of_a_log_opened_damaged_is_the_last_record_that_it_held_for_certain) {
    struct Case {
        std::uint64_t bad;
        std::uint64_t bad_too;
        std::uint64_t end;
        bool is_tail_torn;
    };
    for (const Case& c : {Case{7, 7, 15, false}, Case{7, 14, 15, false}, Case{7, 15, 14, true}}) {
        LogWorld world;
        world.open();
        world.append_batches({5, 5, 5});
        world.kill();
        for (const std::uint64_t bad : std::set<std::uint64_t>{c.bad, c.bad_too})
            world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, bad) + 60);
        world.start();
        world.open();
        EXPECT_EQ(world.log->faulty_from(), Sequence(c.bad));
        EXPECT_EQ(world.log->last_sequence().value, c.bad - 1);
        EXPECT_EQ(world.log->end(), (LogEnd{Sequence(c.end), LeaderEpoch(3)}));
        EXPECT_EQ(world.log->is_tail_torn(), c.is_tail_torn);
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            EXPECT_TRUE(world.log->read_bytes(fiber, Sequence(c.end), Sequence(c.end), 1)
                            .is(ErrorCode::CHECKSUM_MISMATCH));
        }));
    }
}

TEST(PartitionLogEnd, of_a_log_that_lost_its_tail_is_what_the_checkpoint_covers) {
    LogWorld world;
    world.open();
    world.append_batches({5, 5, 5});
    world.close();
    const std::uint64_t from = world.offset_of(FIRST_SEGMENT, 13);
    ByteVector& bytes = world.disk.bytes(FIRST_SEGMENT);
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.end(), std::byte{0});
    world.restart(false);
    world.open();
    EXPECT_EQ(world.log->faulty_from(), Sequence(13));
    EXPECT_EQ(world.log->end(), (LogEnd{Sequence(15), LeaderEpoch(3)}));
}

TEST(PartitionLogEnd, is_told_to_be_torn_before_anything_is_repaired) {
    LogWorld world;
    world.open();
    world.append_batches({10, 10});
    world.kill();
    world.disk.flip(FIRST_SEGMENT, world.offset_of(FIRST_SEGMENT, 17) + 70);
    int told_count = 0;
    bool fails = true;
    world.options.before_repair = [&](Fiber&) -> Result<void> {
        ++told_count;
        EXPECT_EQ(world.segments().size(), 1u);
        if (fails) return make_error(ErrorCode::NO_SPACE, "mark");
        return {};
    };
    const ByteVector before = world.disk.bytes(FIRST_SEGMENT);
    world.start();
    ASSERT_TRUE(world.run(
        [&](Fiber& fiber) { EXPECT_TRUE(world.open_in(fiber).is(ErrorCode::NO_SPACE)); }));
    EXPECT_EQ(world.disk.bytes(FIRST_SEGMENT), before);
    EXPECT_EQ(world.segments().size(), 1u);
    fails = false;
    world.open();
    EXPECT_EQ(told_count, 2);
    EXPECT_TRUE(world.log->is_tail_torn());
    world.expect_readable(16);
    world.append_batches({1});
    world.reopen(true);
    EXPECT_FALSE(world.log->is_tail_torn());
    EXPECT_EQ(told_count, 2);
}

TEST(PartitionLogEnd, is_told_to_be_torn_once) {
    for (const bool power : {false, true}) {
        LogWorld world;
        int told_count = 0;
        world.options.before_repair = [&](Fiber&) -> Result<void> {
            ++told_count;
            return {};
        };
        world.open();
        world.append_batches({10, 10});
        world.kill();
        world.disk.flip(FIRST_SEGMENT,
                        world.offset_of(FIRST_SEGMENT, 11) + 70);  // no record is left
        world.start();
        world.open();
        EXPECT_TRUE(world.log->is_tail_torn());
        world.expect_readable(10);
        world.reopen(power);
        EXPECT_FALSE(world.log->is_tail_torn());
        world.expect_readable(10);
        EXPECT_EQ(told_count, 1);
        world.append_batches({3});
        world.reopen(power);
        world.expect_readable(13);
    }
}

TEST(PartitionLogEnd, once_made_durable_is_damage_when_it_turns_out_bad) {
    CutWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        ASSERT_TRUE(world.open_in(fiber).ok());
        for (int i = 0; i < 5; ++i)
            world.append_one(40);
        ASSERT_TRUE(world.log->make_durable(fiber).ok());
        EXPECT_EQ(world.log->flushed_sequence(), Sequence(5));
        ASSERT_TRUE(world.log->make_durable(fiber).ok());
    }));
    world.restart(true);
    const std::uint64_t from = world.offset_of(FIRST_SEGMENT, 4);
    ByteVector& bytes = world.disk.bytes(FIRST_SEGMENT);
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.end(), std::byte{0});
    world.open();
    EXPECT_EQ(world.log->faulty_from(), Sequence(4));
    EXPECT_EQ(world.log->end().last, Sequence(5));
}

// Appends, bytes of a leader, cuts, kills and power losses in any order, against a vector.
void run_model(std::uint64_t seed) {
    Rng rng(seed);
    LogOptions options;
    options.segment_max_bytes = rng.one_in(2) ? 3000 : 20000;
    options.checkpoint_every_bytes = rng.one_in(2) ? 2000 : 50000;
    options.tail_cache_bytes = rng.one_in(2) ? 1 : 50000;
    CutWorld world(seed, options);
    std::uint64_t keeps = 0;  // what must be there whatever happens
    for (int life = 0; life < 6; ++life) {
        world.disk.stop_at = world.disk.operations + 1 + rng.below(400);
        world.run([&](Fiber& fiber) {
            ASSERT_TRUE(world.open_in(fiber).ok());
            ASSERT_FALSE(world.log->faulty_from().has_value()) << world.life->log.lines.back();
            ASSERT_GE(world.log->last_sequence().value, keeps);
            ASSERT_LE(world.log->last_sequence().value, world.model.size());
            world.model.resize(world.log->last_sequence().value);
            keeps = world.model.size();
            world.expect_model(fiber);
            for (int step = 0; step < 25; ++step) {
                if (rng.one_in(3)) world.leader_epoch = world.leader_epoch.next();
                const std::uint64_t what = rng.below(10);
                const std::size_t value_bytes = rng.below(rng.one_in(10) ? 4000 : 300);
                if (what < 4) {
                    for (std::uint64_t i = 1 + rng.below(8); i > 0; --i)
                        world.append_one(value_bytes);
                } else if (what < 7) {
                    Entries next;
                    for (std::uint64_t i = 1 + rng.below(8); i > 0; --i)
                        next.push_back(world.make(value_bytes));
                    ASSERT_TRUE(
                        world.log->append_bytes(bytes_of(next, world.model.size() + 1), {}).ok());
                    world.model.insert(world.model.end(), next.begin(), next.end());
                } else if (what < 9) {
                    const std::uint64_t keep =
                        rng.one_in(8) ? 0 : rng.below(world.model.size() + 1);
                    const bool cuts = keep < world.model.size();
                    keeps = std::min(keep, world.log->flushed_sequence().value);
                    ASSERT_TRUE(world.cut_to(fiber, keep).ok());
                    if (cuts) keeps = keep;
                } else {
                    ASSERT_TRUE(world.log->make_durable(fiber).ok());
                    keeps = world.model.size();
                }
                if (rng.one_in(2)) {
                    world.wait_flushed(fiber);
                    keeps = world.model.size();
                }
                if (rng.one_in(4)) world.expect_model(fiber);
                keeps = std::max(keeps, world.log->flushed_sequence().value);
            }
            world.expect_model(fiber);
            keeps = world.model.size();
            if (rng.one_in(2)) {
                ASSERT_TRUE(world.log->close(fiber).ok());
            }
        });
        if (::testing::Test::HasFatalFailure()) return;
        world.restart(rng.one_in(2));
    }
}

TEST(PartitionLogCut,
     any_history_of_appends_bytes_cuts_and_crashes_gives_the_records_of_the_model) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        run_model(seed);
        if (::testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace mortar
