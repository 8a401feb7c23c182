#include "core/produce/partition.h"

#include <gtest/gtest.h>

#include "tests/unit/log/fake_disk.h"
#include "tests/unit/replica/sole_node.h"

namespace mortar {
namespace {

using testing::DiskWorld;
using testing::FakeDisk;

constexpr PartitionKey KEY{TopicId(1), PartitionIndex(0)};
const std::string SEGMENT = "topics/1/0/00000000000000000001.seg";

// What a replica hears, as text.
struct Heard : ReplicatedLogObserver {
    void on_appended(ReplicatedLog& log) override { note("appended", log); }
    void on_flushed(ReplicatedLog& log) override {
        note("flushed", log);
        if (then) std::exchange(then, {})();
    }
    void on_state_changed(ReplicatedLog& log) override { note("changed", log); }
    void on_opened(ReplicatedLog& log) override { note("opened", log); }
    void on_retired(PartitionKey key) override { events.push_back("retired " + log_name(key)); }
    void note(const char* what, ReplicatedLog& log) {
        const char* state = log.is_closed() ? " closed" : log.faulty_from() ? " faulty" : "";
        events.push_back(std::string(what) + " " + std::to_string(log.end().last.value) + state);
    }
    std::vector<std::string> events;
    std::function<void()> then;
};

struct Written {
    ProducerId producer_id;
    ProducerSeq producer_seq;
    LeaderEpoch leader_epoch;
    std::size_t value_bytes;
};

// One partition on a disk that outlives the node, and the records it should hold.
struct PartitionWorld {
    explicit PartitionWorld(std::uint64_t seed = 1) : disk(seed) {
        options.checkpoint_every_bytes = 3000;
        options.segment_max_bytes = 10000;
        topic.topic_id = KEY.topic_id;
        topic.partition_count = 1;
        start();
    }
    ~PartitionWorld() { kill(); }
    void start() {
        life = std::make_unique<DiskWorld>(disk);
        table = std::make_unique<PartitionTable>(life->env, options);
        table->set_replication(&heard);
    }
    void kill() {
        if (life != nullptr) life->manual.scheduler.kill_all();
        table = nullptr;
        life = nullptr;
        disk.process_killed();
    }
    void restart(bool power) {
        kill();
        if (power) disk.power_loss();
        start();
    }
    bool run(std::function<void(Fiber&)> body) { return life->run(std::move(body)); }
    void open(Fiber& fiber) { ASSERT_TRUE(table->open_topic(fiber, topic).ok()); }
    Partition& partition() { return *table->find(KEY); }

    Record next_record(ProducerId producer_id, std::size_t value_bytes) {
        Record record;
        record.sequence = Sequence(model.size() + 1);
        record.producer_id = producer_id;
        record.producer_seq = ProducerSeq(++producer_seqs[producer_id]);
        record.leader_epoch = leader_epoch;
        value.assign(value_bytes, 'v');
        record.value = as_byte_span(value);
        model.push_back({record.producer_id, record.producer_seq, leader_epoch, value_bytes});
        return record;
    }
    void append(std::size_t value_bytes = 20, ProducerId producer_id = ProducerId(7)) {
        const Record record = next_record(producer_id, value_bytes);
        ASSERT_TRUE(partition().append(record).ok());
    }
    void append_bytes(std::size_t count, std::size_t value_bytes = 20,
                      ProducerId producer_id = ProducerId(7)) {
        ByteVector bytes;
        for (std::size_t i = 0; i < count; ++i)
            encode_record(bytes, next_record(producer_id, value_bytes));
        ASSERT_TRUE(partition().append_bytes(bytes).ok());
    }
    void wait_flushed(Fiber& fiber) {
        while (partition().flushed() < partition().end().last)
            ASSERT_TRUE(partition().committed().wait(fiber).ok());
    }
    // The model is as long as the log again: what is behind it is gone.
    void forget_behind(std::uint64_t last) {
        model.resize(last);
        producer_seqs.clear();
        for (const Written& written : model)
            producer_seqs[written.producer_id] = written.producer_seq.value;
    }
    ByteVector windows_of_model() const {
        ProducerWindows windows;
        for (std::size_t i = 0; i < model.size(); ++i)
            windows.on_record(model[i].producer_id, model[i].producer_seq, Sequence(i + 1));
        return windows.encode(Sequence(model.size()));
    }
    void expect_windows() {
        ASSERT_EQ(partition().end().last.value, model.size());
        ASSERT_EQ(partition().windows().encode(Sequence(model.size())), windows_of_model());
    }

    FakeDisk disk;
    LogOptions options;
    Topic topic;
    Heard heard;
    std::unique_ptr<DiskWorld> life;
    std::unique_ptr<PartitionTable> table;
    std::vector<Written> model;
    std::map<ProducerId, std::uint64_t> producer_seqs;
    LeaderEpoch leader_epoch{1};
    std::string value;
};

TEST(Partition, tells_a_replica_what_happens_to_its_log) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append();
        world.append_bytes(2);
        world.wait_flushed(fiber);
    }));
    EXPECT_EQ(world.table->keys(), std::vector<PartitionKey>{KEY});
    EXPECT_EQ(world.heard.events,
              (std::vector<std::string>{"opened 0", "appended 1", "flushed 3"}));
    world.heard.events.clear();
    world.disk.fail_syncs = 1;
    ASSERT_TRUE(world.run([&](Fiber&) { world.append(); }));
    EXPECT_EQ(world.heard.events, (std::vector<std::string>{"appended 4", "flushed 4 closed",
                                                            "changed 4 closed", "changed 4"}));
    world.heard.events.clear();
    world.table->retire_topic(KEY.topic_id);
    EXPECT_EQ(world.heard.events, std::vector<std::string>{"retired 1/0"});
    EXPECT_TRUE(world.table->keys().empty());
}

// A creation that was cut away with the metadata's tail leaves its number to the next one.
TEST(Partition, of_a_topic_with_a_used_number_begins_empty_and_outlives_the_others_removal) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append();
        world.append();
        world.wait_flushed(fiber);
        world.table->retire_topic(KEY.topic_id);
        world.forget_behind(0);
        world.open(fiber);
        EXPECT_EQ(world.partition().end().last, Sequence(0));
        EXPECT_TRUE(world.table->remove_topic(fiber, KEY.topic_id).ok());
        ASSERT_NE(world.table->find(KEY), nullptr);
        world.append();
        world.wait_flushed(fiber);
        EXPECT_EQ(world.partition().flushed(), Sequence(1));
    }));
}

TEST(Partition, commits_what_it_is_told_as_far_as_the_log_reaches_and_never_back) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        Partition& partition = world.partition();
        for (int i = 0; i < 5; ++i)
            world.append();
        // Two other nodes were faster than this disk.
        partition.advance_commit(Sequence(3));
        EXPECT_EQ(partition.commit_seq(), Sequence(3));
        EXPECT_EQ(partition.readable_seq(), Sequence(0));
        world.wait_flushed(fiber);
        EXPECT_EQ(partition.commit_seq(), Sequence(3));
        EXPECT_EQ(partition.readable_seq(), Sequence(3));
        partition.advance_commit(Sequence(2));
        EXPECT_EQ(partition.commit_seq(), Sequence(3));
        partition.advance_commit(Sequence(100));
        EXPECT_EQ(partition.commit_seq(), Sequence(5));
    }));
}

TEST(Partition, alone_commits_what_it_has_synced) {
    PartitionWorld world;
    SoleNode sole_node;
    world.table->set_replication(&sole_node);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append();
        EXPECT_EQ(world.partition().commit_seq(), Sequence(0));
        world.wait_flushed(fiber);
        EXPECT_EQ(world.partition().commit_seq(), Sequence(1));
    }));
    world.restart(true);
    world.table->set_replication(&sole_node);
    ASSERT_TRUE(world.run([&](Fiber& fiber) { world.open(fiber); }));
    EXPECT_EQ(world.partition().commit_seq(), Sequence(1));
    EXPECT_EQ(world.partition().readable_seq(), Sequence(1));
}

// What others have synced and this disk lost is no lost promise of this disk.
TEST(Partition, that_comes_back_behind_its_commit_serves_what_it_has_and_takes_the_rest) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append_bytes(3);
        world.wait_flushed(fiber);
        world.partition().advance_commit(Sequence(3));
        world.disk.space_bytes = 100000;  // the next write does not get to its end
        world.append_bytes(4, 70000);
        world.partition().advance_commit(Sequence(7));
        while (!world.partition().is_closed())
            ASSERT_TRUE(world.partition().committed().wait(fiber).ok());
        world.disk.space_bytes = UINT64_MAX;
    }));
    Partition& partition = world.partition();
    ASSERT_FALSE(partition.is_closed());
    EXPECT_FALSE(partition.is_quarantined());
    const std::uint64_t last = partition.end().last.value;
    ASSERT_GE(last, 3u);
    ASSERT_LT(last, 7u);
    EXPECT_EQ(partition.commit_seq().value, last);
    EXPECT_EQ(partition.readable_seq().value, last);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.forget_behind(last);
        world.append_bytes(7 - last, 10);
        EXPECT_EQ(partition.commit_seq(), Sequence(7));
        world.wait_flushed(fiber);
        EXPECT_EQ(partition.readable_seq(), Sequence(7));
        world.expect_windows();
    }));
}

TEST(Partition, that_lost_what_it_had_synced_is_uncertain_until_a_leader_brought_it_back) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append_bytes(3);
        world.wait_flushed(fiber);
        world.partition().advance_commit(Sequence(3));
        world.table->note_committed(KEY, Sequence(5));
        EXPECT_TRUE(world.partition().is_quarantined());
        EXPECT_TRUE(world.partition().is_uncertain());
        EXPECT_FALSE(world.partition().faulty_from().has_value());
        EXPECT_EQ(world.partition().commit_seq(), Sequence(5));
        world.append_bytes(1);
        world.wait_flushed(fiber);
        EXPECT_TRUE(world.partition().is_quarantined());
        world.append_bytes(1);
        world.wait_flushed(fiber);
        EXPECT_FALSE(world.partition().is_quarantined());
        EXPECT_FALSE(world.partition().is_uncertain());
        EXPECT_EQ(world.partition().readable_seq(), Sequence(5));
    }));
}

TEST(Partition, windows_go_back_with_a_cut) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append_bytes(10, 20, ProducerId(7));
        world.partition().advance_commit(Sequence(6));
        world.append_bytes(5, 20, ProducerId(8));
        ASSERT_TRUE(world.partition().cut(fiber, Sequence(8)).ok());
        EXPECT_EQ(world.partition().windows().check(ProducerId(7), ProducerSeq(9)).kind,
                  WindowVerdict::Kind::NEXT);
        EXPECT_EQ(world.partition().windows().check(ProducerId(8), ProducerSeq(1)).kind,
                  WindowVerdict::Kind::NEXT);
        world.forget_behind(8);
        world.expect_windows();
        world.leader_epoch = LeaderEpoch(2);
        world.append_bytes(3, 20, ProducerId(8));
        world.expect_windows();
        world.wait_flushed(fiber);
    }));
    world.restart(true);
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.expect_windows();
    }));
}

// A checkpoint must not wait for a commit that only comes after it.
TEST(Partition, is_cut_made_durable_and_closed_while_its_windows_wait_for_a_commit) {
    for (int what = 0; what < 3; ++what) {
        PartitionWorld world;
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            world.open(fiber);
            world.append_bytes(60, 100);  // wants a checkpoint
            world.wait_flushed(fiber);
        }));
        EXPECT_FALSE(world.disk.exists("topics/1/0/producers.mqp"));
        EXPECT_TRUE(world.disk.exists("topics/1/0/producers.mqp.tmp"));
        EXPECT_FALSE(world.disk.exists("topics/1/0/checkpoint.mqc"));
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            if (what == 0) {
                ASSERT_TRUE(world.partition().cut(fiber, Sequence(40)).ok());
            }
            if (what == 1) {
                ASSERT_TRUE(world.partition().make_durable(fiber).ok());
            }
            if (what == 2) {
                ASSERT_TRUE(world.table->close(fiber).ok());
            }
        }));
        EXPECT_TRUE(world.disk.exists("topics/1/0/checkpoint.mqc"));
        EXPECT_FALSE(world.disk.exists("topics/1/0/producers.mqp"));
    }
}

// A window file tells the next life what was synced here: what only others have synced must not be in it.
TEST(Partition, windows_are_not_saved_for_what_is_committed_and_not_yet_synced_here) {
    bool was_saved = false;
    for (std::uint64_t stop = 20; stop < 60; ++stop) {
        PartitionWorld world(stop);
        world.disk.stop_at = stop;
        world.run([&](Fiber& fiber) {
            world.open(fiber);
            world.append_bytes(60, 100);
            // Before the checkpoint that this flush asks for.
            world.heard.then = [&] {
                world.append_bytes(3, 3000);
                world.partition().advance_commit(Sequence(63));
            };
            world.wait_flushed(fiber);
        });
        world.restart(true);
        was_saved = was_saved || world.disk.exists("topics/1/0/producers.mqp");
        ASSERT_TRUE(world.run([&](Fiber& fiber) { world.open(fiber); }));
        EXPECT_FALSE(world.partition().is_quarantined()) << stop;
    }
    EXPECT_TRUE(was_saved);
}

TEST(Partition, tells_of_a_torn_tail_before_it_is_left_behind) {
    PartitionWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.open(fiber);
        world.append_bytes(2, 100);
        world.wait_flushed(fiber);
    }));
    world.restart(false);
    world.disk.flip(SEGMENT, SEGMENT_HEAD_BYTES + 156 + 100);
    std::vector<PartitionKey> told;
    world.table->set_before_repair([&](Fiber&, PartitionKey key) -> Result<void> {
        told.push_back(key);
        return {};
    });
    ASSERT_TRUE(world.run([&](Fiber& fiber) { world.open(fiber); }));
    EXPECT_EQ(told, std::vector<PartitionKey>{KEY});
    // Who was told remembers it, until a leader has made this copy whole; that comes to pass without another open.
    EXPECT_FALSE(world.partition().is_uncertain());
    EXPECT_EQ(world.partition().end().last, Sequence(1));
}

// The process lives on, so nobody may take for lost, or for never synced, what it knows better.
TEST(Partition, that_is_opened_again_remembers_what_it_had_synced) {
    for (const bool is_bad : {false, true}) {
        PartitionWorld world;
        std::size_t told_count = 0;
        world.table->set_before_repair([&](Fiber&, PartitionKey) -> Result<void> {
            ++told_count;
            return {};
        });
        ASSERT_TRUE(world.run([&](Fiber& fiber) {
            world.open(fiber);
            world.append_bytes(3, 100);
            world.wait_flushed(fiber);
            world.partition().advance_commit(Sequence(3));
            world.disk.fail_syncs = 1;
            world.append_bytes(2, 1000);
            while (!world.partition().is_closed())
                ASSERT_TRUE(world.partition().committed().wait(fiber).ok());
            // The failed batch is gone but for its end.
            ByteVector& bytes = world.disk.bytes(SEGMENT);
            std::fill(bytes.begin() + 512, bytes.begin() + 2048, std::byte{0});
            bytes.resize(2048 + 512, std::byte{0x77});
            if (is_bad) world.disk.flip(SEGMENT, SEGMENT_HEAD_BYTES + 156 + 100);
        }));
        const Partition& partition = world.partition();
        ASSERT_FALSE(partition.is_closed());
        EXPECT_EQ(told_count, 0u);
        EXPECT_EQ(partition.end(), (LogEnd{Sequence(3), LeaderEpoch(1)}));
        EXPECT_EQ(partition.is_quarantined(), is_bad);
        EXPECT_EQ(partition.faulty_from().has_value(), is_bad);
        if (is_bad) {
            EXPECT_EQ(*partition.faulty_from(), Sequence(2));
        }
    }
}

// Both kinds of append, commits ahead of the disk and behind it, cuts, checkpoints, crashes: the windows are always those of
// the records that are there, and what the window file says of commits is never more than a log keeps.
void run_model(std::uint64_t seed) {
    Rng rng(seed);
    PartitionWorld world(seed);
    for (int life = 0; life < 6; ++life) {
        world.disk.stop_at = world.disk.operations + 1 + rng.below(500);
        world.run([&](Fiber& fiber) {
            world.open(fiber);
            ASSERT_FALSE(world.partition().is_quarantined()) << world.life->log.lines.back();
            ASSERT_LE(world.partition().end().last.value, world.model.size());
            world.forget_behind(world.partition().end().last.value);
            world.expect_windows();
            for (int step = 0; step < 40; ++step) {
                Partition& partition = world.partition();
                if (rng.one_in(4)) world.leader_epoch = world.leader_epoch.next();
                const ProducerId producer_id(rng.below(4));
                const std::size_t value_bytes = rng.below(400);
                const std::uint64_t last = world.model.size();
                switch (rng.below(7)) {
                    case 0:
                    case 1:
                        world.append(value_bytes, producer_id);
                        break;
                    case 2:
                        world.append_bytes(1 + rng.below(8), value_bytes, producer_id);
                        break;
                    case 3:
                        partition.advance_commit(Sequence(rng.below(last + 1)));
                        break;
                    case 4:
                        partition.advance_commit(Sequence(last));
                        break;
                    case 5: {
                        const std::uint64_t keep =
                            partition.commit_seq().value +
                            rng.below(last - partition.commit_seq().value + 1);
                        ASSERT_TRUE(partition.cut(fiber, Sequence(keep)).ok());
                        world.forget_behind(keep);
                        break;
                    }
                    default: {
                        if (rng.one_in(3)) {
                            ASSERT_TRUE(partition.make_durable(fiber).ok());
                        }
                        if (rng.one_in(2)) world.wait_flushed(fiber);
                    }
                }
                world.expect_windows();
            }
            if (rng.one_in(2)) {
                ASSERT_TRUE(world.table->close(fiber).ok());
            }
        });
        if (::testing::Test::HasFatalFailure()) return;
        world.restart(rng.one_in(2));
    }
}

TEST(Partition, windows_are_those_of_its_records_whatever_happens) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        run_model(seed);
        if (::testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace mortar
