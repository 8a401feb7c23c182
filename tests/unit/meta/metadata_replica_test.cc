// MetadataLog as one copy of several: records from a leader, commits, cuts, snapshots of a peer; and crashes in all of it.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"
#include "core/meta/metadata_log.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/meta/open_alone.h"
#include "tests/unit/meta/random_mutations.h"

namespace mortar {
namespace {
using sim::DiskOperation;
using sim::HeapStackPool;
using sim::OperationPoint;
using sim::PowerImage;
using sim::SimNode;
using sim::SimWorld;
using testing::catalog_bytes;
using testing::random_mutation;

constexpr std::uint32_t SNAPSHOT_RECORDS = 4;

// What a leader once appended: a history, and the state after each of its mutations.
struct Story {
    std::vector<Mutation> mutations;
    std::vector<ByteVector> states{catalog_bytes(Catalog{})};
    Catalog catalog;

    void grow(Rng& rng, LeaderEpoch leader_epoch) {
        const Mutation next{catalog.last_mutation().next(), leader_epoch, 0,
                            random_mutation(rng, catalog)};
        catalog.apply(next);
        mutations.push_back(next);
        states.push_back(catalog_bytes(catalog));
    }
    // Another leader goes on from there.
    Story branch(std::size_t keep) const {
        Story other;
        for (std::size_t i = 0; i < keep; ++i) {
            other.mutations.push_back(mutations[i]);
            other.catalog.apply(mutations[i]);
            other.states.push_back(states[i + 1]);
        }
        return other;
    }
    std::size_t size() const { return mutations.size(); }
    ByteVector bytes(std::size_t from, std::size_t through) const {
        ByteVector all;
        for (std::size_t i = from; i <= through; ++i) {
            const ByteVector padded = encode_metadata_record(mutations[i - 1]);
            const std::size_t size = parse_metadata_record(padded)->record_bytes();
            all.insert(all.end(), padded.begin(),
                       padded.begin() + static_cast<std::ptrdiff_t>(size));
        }
        return all;
    }
    ByteVector snapshot(std::size_t through) const {
        return encode_metadata_snapshot(branch(through).catalog);
    }
};

Story story_of(std::size_t count, std::uint64_t seed = 3) {
    Story story;
    Rng rng(seed);
    for (std::size_t i = 0; i < count; ++i)
        story.grow(rng, LeaderEpoch(1 + i / 5));
    return story;
}

ByteVector joined(const RecordBytes& read) {
    ByteVector all;
    for (const ByteSpan part : read.parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

class Node {
  public:
    explicit Node(std::uint64_t seed = 1)
        : world(seed, stacks), node(world.add_node("n")), env(node.env()) {}
    ~Node() {
        if (node.alive()) node.kill();
        log.reset();
    }
    // False when the node died in it.
    bool run(FiberBody body) {
        bool is_done = false;
        node.scheduler().spawn("test.body", [&](Fiber& fiber) {
            body(fiber);
            is_done = true;
        });
        while (!is_done && node.alive() && world.step()) {
        }
        return is_done;
    }
    void open(Fiber& fiber) {
        log.reset();
        auto opened = MetadataLog::open(fiber, env, "metadata", SNAPSHOT_RECORDS);
        if (!opened.ok()) FAIL() << opened.error().to_string();
        log = std::move(opened).value();
        replaced = 0;
        log->set_on_replaced([this] { ++replaced; });
    }
    void reopen() {
        ASSERT_TRUE(run([this](Fiber& fiber) {
            if (log != nullptr) {
                EXPECT_TRUE(log->close(fiber).ok());
            }
            open(fiber);
        }));
    }
    void restart() {
        log.reset();
        node.restart();
    }
    static Result<void> flush(Fiber& fiber, Env& e, MetadataLog& log) {
        while (log.flushed() < log.end().last) {
            if (log.is_closed()) return make_error(ErrorCode::LOG_CLOSED);
            MORTAR_TRY(e.scheduler.sleep_until(fiber, e.clock.now() + microseconds(100)));
        }
        return {};
    }
    Result<void> flush(Fiber& fiber) { return flush(fiber, env, *log); }

    HeapStackPool stacks;
    SimWorld world;
    SimNode& node;
    Env env;
    std::unique_ptr<MetadataLog> log;
    int replaced = 0;
};

TEST(MetadataReplica, a_follower_applies_only_what_is_committed) {
    const Story story = story_of(8);
    Node node;
    node.reopen();
    std::vector<std::uint64_t> applied;
    node.log->set_on_applied([&](const Mutation& m) { applied.push_back(m.mutation_id.value); });
    ASSERT_TRUE(node.run([&](Fiber& fiber) {
        ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 6)).ok());
        ASSERT_TRUE(node.flush(fiber).ok());
        EXPECT_EQ(node.log->commit_seq(), Sequence(0));
        EXPECT_EQ(catalog_bytes(node.log->catalog()), story.states[0]);
        EXPECT_TRUE(applied.empty());
        node.log->advance_commit(Sequence(3));
        EXPECT_EQ(catalog_bytes(node.log->catalog()), story.states[3]);
        node.log->advance_commit(Sequence(100));
        EXPECT_EQ(catalog_bytes(node.log->catalog()), story.states[6]);
        EXPECT_EQ(applied, (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}));
        EXPECT_EQ(node.log->epoch_at(fiber, Sequence(5)).value(), LeaderEpoch(1));
        EXPECT_EQ(node.log->epoch_at(fiber, Sequence(6)).value(), LeaderEpoch(2));
    }));
}

TEST(MetadataReplica, takes_nothing_that_does_not_follow) {
    const Story story = story_of(8);
    Node node;
    node.reopen();
    ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 6)).ok());
    ByteVector altered = story.bytes(7, 8);
    altered[altered.size() - 1] ^= std::byte{1};
    EXPECT_TRUE(node.log->append_bytes(altered).is(ErrorCode::CHECKSUM_MISMATCH));
    EXPECT_TRUE(node.log->append_bytes(story.bytes(8, 8)).is(ErrorCode::CHECKSUM_MISMATCH));
    EXPECT_TRUE(node.log->append_bytes(story.bytes(6, 7)).is(ErrorCode::CHECKSUM_MISMATCH));
    Mutation older = story.mutations[6];
    older.leader_epoch = LeaderEpoch(1);
    EXPECT_TRUE(
        node.log->append_bytes(encode_metadata_record(older)).is(ErrorCode::CHECKSUM_MISMATCH));
    EXPECT_EQ(node.log->end(), (LogEnd{Sequence(6), LeaderEpoch(2)}));
}

// Records of a lost tail are known to nobody as committed after a restart.
TEST(MetadataReplica, a_tail_is_there_after_a_restart_and_not_committed) {
    const Story story = story_of(12);
    Node node;
    node.reopen();
    ASSERT_TRUE(node.run([&](Fiber& fiber) {
        ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 11)).ok());
        ASSERT_TRUE(node.flush(fiber).ok());
        node.log->advance_commit(Sequence(9));
    }));
    node.reopen();
    EXPECT_EQ(node.log->end(), (LogEnd{Sequence(11), LeaderEpoch(3)}));
    EXPECT_EQ(node.log->flushed(), Sequence(11));
    EXPECT_EQ(node.log->commit_seq(), Sequence(9));  // with which the newest generation began
    EXPECT_EQ(catalog_bytes(node.log->catalog()), story.states[9]);
    node.log->advance_commit(Sequence(11));
    EXPECT_EQ(catalog_bytes(node.log->catalog()), story.states[11]);
}

class Recorder : public ReplicatedLogObserver {
  public:
    void on_appended(ReplicatedLog& log) override {
        told = log.end();
        flushed_when_told = log.flushed();
    }
    void on_flushed(ReplicatedLog&) override {}
    void on_state_changed(ReplicatedLog&) override {}
    void on_opened(ReplicatedLog&) override {}
    void on_retired(PartitionKey) override {}
    LogEnd told;
    Sequence flushed_when_told{99};
};

TEST(MetadataReplica, a_leader_tells_others_before_its_own_sync_and_answers_at_the_commit) {
    Node node;
    node.reopen();
    Recorder recorder;
    node.log->set_observer(&recorder);
    std::optional<Result<MutationId>> done;
    EXPECT_TRUE(node.run([&](Fiber& fiber) {
        EXPECT_TRUE(
            node.log->propose(fiber, TopicCreated{"x", 1}).is(ErrorCode::METADATA_READ_ONLY));
    }));
    ASSERT_TRUE(node.log->begin_term(LeaderEpoch(4)).ok());
    node.node.scheduler().spawn("test.propose", [&](Fiber& fiber) {
        done.emplace(node.log->propose(fiber, TopicCreated{"a", 1}));
    });
    node.world.run_for(seconds(1));
    EXPECT_EQ(recorder.told, (LogEnd{Sequence(1), LeaderEpoch(4)}));
    EXPECT_EQ(recorder.flushed_when_told, Sequence(0));
    EXPECT_FALSE(done.has_value());
    EXPECT_TRUE(node.log->catalog().topics().empty());
    EXPECT_EQ(node.log->topics_in_tail().size(), 2u);
    node.log->advance_commit(Sequence(1));
    node.world.run_for(milliseconds(1));
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->value(), MutationId(1));
}

TEST(MetadataReplica, without_a_majority_the_first_is_fenced_and_the_next_is_not_executed) {
    Node node;
    node.reopen();
    ASSERT_TRUE(node.log->begin_term(LeaderEpoch(1)).ok());
    ASSERT_TRUE(node.run([&](Fiber& fiber) {
        EXPECT_TRUE(node.log->propose(fiber, TopicCreated{"a", 1}).is(ErrorCode::MUTATION_FENCED));
        EXPECT_TRUE(
            node.log->propose(fiber, TopicCreated{"b", 1}).is(ErrorCode::METADATA_READ_ONLY));
        EXPECT_EQ(node.log->end().last, Sequence(1));
    }));
    std::optional<Result<MutationId>> done;
    node.log->advance_commit(Sequence(1));  // late, and good
    node.node.scheduler().spawn("test.propose", [&](Fiber& fiber) {
        done.emplace(node.log->propose(fiber, TopicCreated{"c", 1}));
    });
    node.world.run_for(milliseconds(100));
    node.log->end_term();
    node.log->advance_commit(Sequence(2));
    node.world.run_for(milliseconds(1));
    ASSERT_TRUE(done.has_value());
    EXPECT_TRUE(done->is(ErrorCode::MUTATION_FENCED));
    EXPECT_TRUE(node.log->begin_term(LeaderEpoch(0)).is(ErrorCode::INVALID_ARGUMENT));
}

TEST(MetadataReplica, what_was_made_durable_and_is_gone_is_damage) {
    for (const bool is_marked : {false, true}) {
        const Story story = story_of(3);
        Node node;
        node.reopen();
        ASSERT_TRUE(node.run([&](Fiber& fiber) {
            ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 3)).ok());
            ASSERT_TRUE(node.flush(fiber).ok());
            if (is_marked) {
                ASSERT_TRUE(node.log->make_durable(fiber).ok());
            }
            ASSERT_TRUE(node.log->close(fiber).ok());
        }));
        node.node.kill();
        ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-1.mml", 512 * 3 + 20, 1));
        node.restart();
        node.reopen();
        EXPECT_EQ(node.log->is_quarantined(), is_marked);
        EXPECT_EQ(node.log->end().last, Sequence(is_marked ? 0 : 2));
    }
}

// A record that was synced, and whose bits flipped since, looks like one that was never finished.
TEST(MetadataReplica, tells_of_a_torn_tail_before_it_writes_over_it) {
    const Story story = story_of(3);
    Node node;
    node.reopen();
    ASSERT_TRUE(node.run([&](Fiber& fiber) {
        ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 3)).ok());
        ASSERT_TRUE(node.flush(fiber).ok());
        ASSERT_TRUE(node.log->close(fiber).ok());
        node.log.reset();
    }));
    int told = 0;
    bool can_write_it_down = true;
    std::vector<std::string> as_found;  // the folder, when it was told
    const auto open = [&](bool opens) {
        ASSERT_TRUE(node.run([&](Fiber& fiber) {
            auto opened = MetadataLog::open(
                fiber, node.env, "metadata", SNAPSHOT_RECORDS, [&](Fiber&) -> Result<void> {
                    ++told;
                    as_found = node.node.disk().durable_files("metadata");
                    if (!can_write_it_down) return make_error(ErrorCode::IO_ERROR, "no");
                    return {};
                });
            ASSERT_EQ(opened.ok(), opens);
            if (!opens) return;
            node.log = std::move(opened).value();
            ASSERT_TRUE(node.log->close(fiber).ok());
        }));
    };
    const std::vector<std::string> before = node.node.disk().durable_files("metadata");
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-1.mml", 512 * 3 + 20, 1));
    // Not written down, not repaired: the next start sees it again.
    can_write_it_down = false;
    open(false);
    EXPECT_EQ(told, 1);
    can_write_it_down = true;
    open(true);
    EXPECT_EQ(told, 2);
    EXPECT_EQ(as_found, before);
    EXPECT_EQ(node.log->end().last, Sequence(2));
    open(true);
    EXPECT_EQ(told, 2);
}

TEST(MetadataReplica, in_quarantine_is_filled_by_a_snapshot_and_records_of_a_peer) {
    for (const std::size_t covered : {0u, 7u}) {
        const Story story = story_of(12);
        Node node;
        node.reopen();
        ASSERT_TRUE(node.run([&](Fiber& fiber) {
            ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 10)).ok());
            ASSERT_TRUE(node.flush(fiber).ok());
            ASSERT_TRUE(node.log->close(fiber).ok());
        }));
        node.node.kill();
        ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-1.mml", 512 + 20, 1));
        node.restart();
        node.reopen();
        ASSERT_TRUE(node.log->is_quarantined());
        EXPECT_EQ(node.log->faulty_from(), Sequence(1));
        ASSERT_TRUE(node.run([&](Fiber& fiber) {
            if (covered > 0) {
                ASSERT_TRUE(node.log->install_snapshot(fiber, story.snapshot(covered)).ok());
                EXPECT_EQ(node.replaced, 1);
                EXPECT_EQ(node.log->commit_seq(), Sequence(covered));
            }
            ASSERT_TRUE(node.log->append_bytes(story.bytes(covered + 1, 12)).ok());
            ASSERT_TRUE(node.flush(fiber).ok());
            EXPECT_FALSE(node.log->is_quarantined());
            node.log->advance_commit(Sequence(12));
            EXPECT_EQ(catalog_bytes(node.log->catalog()), story.states[12]);
        }));
        node.reopen();
        EXPECT_FALSE(node.log->is_quarantined());
        EXPECT_EQ(node.log->end().last, Sequence(12));
    }
}

// A file that rotted while the node runs: peers take the snapshot, and the next start finds a sound folder.
TEST(MetadataReplica, an_unreadable_file_is_replaced_from_memory) {
    const Story story = story_of(7);
    Node node;
    node.reopen();
    ASSERT_TRUE(node.run([&](Fiber& fiber) {
        ASSERT_TRUE(node.log->append_bytes(story.bytes(1, 7)).ok());
        ASSERT_TRUE(node.flush(fiber).ok());
        node.log->advance_commit(Sequence(3));
        const auto read = node.log->read_bytes(fiber, Sequence(1), Sequence(2), 1 << 20);
        EXPECT_EQ(joined(*read), story.bytes(1, 2));
        ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-1.mml", 512 + 20, 1));
        EXPECT_TRUE(node.log->read_bytes(fiber, Sequence(1), Sequence(2), 1 << 20)
                        .is(ErrorCode::NOT_FOUND));
        EXPECT_EQ(node.log->snapshot()->through, Sequence(3));
    }));
    node.reopen();
    EXPECT_FALSE(node.log->is_quarantined());
    EXPECT_EQ(node.log->end().last, Sequence(7));
    EXPECT_EQ(node.log->commit_seq(), Sequence(3));
}

// --- crashes

std::vector<std::optional<PowerImage>> images(std::uint64_t seed) {
    using Kind = PowerImage::Kind;
    return {std::nullopt,
            PowerImage{Kind::NONE},
            PowerImage{Kind::ALL},
            PowerImage{Kind::TORN_SECTOR, 0},
            PowerImage{Kind::METADATA_ONLY},
            PowerImage{Kind::DATA_ONLY},
            PowerImage::random(seed, true)};
}

// A follower of a first leader, then of a second one that had less of it, then a snapshot of a third. Dies at every disk
// operation. What it must still hold is told by the last thing that came back.
std::string crash_at(std::uint64_t operation, OperationPoint point,
                     const std::optional<PowerImage>& image, bool& is_over) {
    const Story first = story_of(9);
    Story second = first.branch(6);
    Rng rng(11);
    while (second.size() < 10)
        second.grow(rng, LeaderEpoch(7));
    Story third = second.branch(10);
    while (third.size() < 14)
        third.grow(rng, LeaderEpoch(8));

    Node node(operation);
    const Story* story = &first;   // whose prefix the log is
    const Story* before = &first;  // or of this one
    std::size_t held_min = 0;      // flushed() said so
    std::size_t committed = 0;
    const auto took = [&](std::size_t flushed) { held_min = flushed; };
    const std::uint64_t start = node.node.disk().operation_count();
    node.node.disk().set_operation_hook([&](OperationPoint at, const DiskOperation& done) {
        if (node.node.stopping() || done.number - start != operation || at != point) return;
        node.node.stop_after_step([&node, image] {
            if (image.has_value()) {
                node.node.power_loss(*image);
            } else {
                node.node.kill();
            }
        });
    });
    const bool survived = node.run([&](Fiber& fiber) {
        node.open(fiber);
        MetadataLog& log = *node.log;
        const auto append = [&](std::size_t from, std::size_t through) {
            ASSERT_TRUE(log.append_bytes(story->bytes(from, through)).ok());
            ASSERT_TRUE(node.flush(fiber).ok());
            took(through);
        };
        append(1, 5);
        log.advance_commit(Sequence(4));
        committed = 4;
        append(6, 9);
        ASSERT_TRUE(log.make_durable(fiber).ok());
        story = &second;
        held_min = 6;
        ASSERT_TRUE(log.cut(fiber, Sequence(6)).ok());
        before = &second;
        append(7, 8);
        log.advance_commit(Sequence(6));
        committed = 6;
        story = &third;
        ASSERT_TRUE(log.install_snapshot(fiber, third.snapshot(12)).ok());
        before = &third;
        took(12);
        committed = 12;
        append(13, 14);
        ASSERT_TRUE(log.close(fiber).ok());
    });
    node.node.disk().set_operation_hook({});
    if (!survived) is_over = false;
    if (!survived) node.restart();
    std::string wrong;
    node.run([&](Fiber& fiber) {
        auto opened = MetadataLog::open(fiber, node.env, "metadata", SNAPSHOT_RECORDS);
        if (!opened.ok()) {
            wrong = opened.error().to_string();
            return;
        }
        node.log = std::move(opened).value();
        MetadataLog& log = *node.log;
        const std::size_t end = log.end().last.value;
        if (log.is_quarantined()) wrong = "quarantined";
        if (end < held_min)
            wrong = "holds " + std::to_string(end) + " of " + std::to_string(held_min);
        if (log.commit_seq().value > std::max(committed, end)) wrong = "committed too much";
        log.advance_commit(Sequence(end));
        const ByteVector state = catalog_bytes(log.catalog());
        const auto is_prefix = [&](const Story& of) {
            return end <= of.size() && of.states[end] == state;
        };
        if (!is_prefix(*story) && !is_prefix(*before)) wrong = "a state that nobody had";
        (void)log.close(fiber);
    });
    return wrong;
}

TEST(MetadataReplica, a_crash_at_every_disk_operation_leaves_a_prefix_of_what_it_followed) {
    bool is_over = false;
    std::uint64_t operation = 1;
    for (; !is_over; ++operation) {
        is_over = true;
        for (const OperationPoint point : {OperationPoint::BEFORE, OperationPoint::AFTER}) {
            for (const auto& image : images(operation)) {
                ASSERT_EQ(crash_at(operation, point, image, is_over), "")
                    << "operation " << operation
                    << (image.has_value() ? ", " + to_string(*image) : ", kill");
            }
        }
    }
    EXPECT_GT(operation, 60u);
}

// --- a model

struct Copy {
    Node node;
    std::size_t committed = 0;

    explicit Copy(std::uint64_t seed) : node(seed) { node.reopen(); }
};

// Two copies of what one leader after the other wrote: at each step the catalog is the replay of the committed prefix, and
// what is read is what was written.
TEST(MetadataReplica, random_steps_keep_the_catalog_the_replay_of_the_committed_prefix) {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        Rng rng(seed);
        Story story;
        LeaderEpoch leader_epoch(1);
        std::size_t committed = 0;  // by the cluster
        std::vector<std::unique_ptr<Copy>> copies;
        copies.push_back(std::make_unique<Copy>(seed));
        copies.push_back(std::make_unique<Copy>(seed + 1000));
        for (int step = 0; step < 120; ++step) {
            Copy& copy = *copies[rng.below(2)];
            MetadataLog& log = *copy.node.log;
            const std::size_t end = log.end().last.value;
            ASSERT_TRUE(copy.node.run([&](Fiber& fiber) {
                switch (rng.below(7)) {
                    case 0:
                    case 1: {
                        const std::size_t more = 1 + rng.below(rng.one_in(6) ? 60 : 4);
                        for (std::size_t i = 0; i < more && story.size() < 400; ++i)
                            story.grow(rng, leader_epoch);
                        [[fallthrough]];
                    }
                    case 2: {
                        if (end == story.size()) break;
                        const std::size_t through = end + 1 + rng.below(story.size() - end);
                        ASSERT_TRUE(log.append_bytes(story.bytes(end + 1, through)).ok());
                        if (rng.one_in(2)) {
                            ASSERT_TRUE(copy.node.flush(fiber).ok());
                        }
                        break;
                    }
                    case 3:
                        if (rng.one_in(2))
                            committed = std::max(committed, end - rng.below(end + 1));
                        log.advance_commit(Sequence(committed));
                        copy.committed = std::max(copy.committed, std::min(committed, end));
                        break;
                    case 4: {  // a new leader, who has what is committed and perhaps more
                        const std::size_t keep =
                            committed + rng.below(story.size() - committed + 1);
                        leader_epoch = leader_epoch.next();
                        story = story.branch(keep);
                        for (const auto& each : copies) {
                            if (each->node.log->end().last.value <= keep) continue;
                            if (each.get() == &copy) {
                                ASSERT_TRUE(log.cut(fiber, Sequence(keep)).ok());
                            } else {
                                each->node.run([&](Fiber& other) {
                                    ASSERT_TRUE(each->node.log->cut(other, Sequence(keep)).ok());
                                });
                            }
                        }
                        break;
                    }
                    case 5: {
                        Copy& source = *copies[copies[0].get() == &copy ? 1 : 0];
                        const auto snapshot = source.node.log->snapshot();
                        if (!snapshot.ok() || snapshot->through.value <= end) break;
                        ASSERT_TRUE(log.install_snapshot(fiber, *snapshot->bytes).ok());
                        copy.committed = snapshot->through.value;
                        EXPECT_EQ(log.end().last, snapshot->through);
                        break;
                    }
                    default: {
                        if (end == 0) break;
                        const Sequence from(1 + rng.below(end));
                        const auto read = log.read_bytes(fiber, from, Sequence(end), 2000);
                        if (read.is(ErrorCode::NOT_FOUND)) {
                            ASSERT_TRUE(log.snapshot().ok());
                            ASSERT_GE(log.snapshot()->through, from);
                            break;
                        }
                        ASSERT_TRUE(read.ok()) << read.error().to_string();
                        ASSERT_EQ(joined(*read), story.bytes(from.value, read->last.value));
                    }
                }
            }));
            if (rng.one_in(12)) {
                ASSERT_TRUE(
                    copy.node.run([&](Fiber& fiber) { ASSERT_TRUE(copy.node.flush(fiber).ok()); }));
                const std::size_t held = copy.node.log->end().last.value;
                if (rng.one_in(2)) {
                    copy.node.node.power_loss(PowerImage::random(rng.next(), true));
                    copy.node.restart();
                }
                copy.node.reopen();
                ASSERT_EQ(copy.node.log->end().last.value, held);
                ASSERT_LE(copy.node.log->commit_seq().value, copy.committed);
                copy.committed = copy.node.log->commit_seq().value;
            }
            for (const auto& each : copies) {
                const MetadataLog& seen = *each->node.log;
                ASSERT_EQ(seen.commit_seq().value, each->committed) << seed << " " << step;
                ASSERT_EQ(catalog_bytes(seen.catalog()), story.states[each->committed]);
                const std::size_t last = seen.end().last.value;
                if (last == 0) continue;
                ASSERT_EQ(seen.end().leader_epoch, story.mutations[last - 1].leader_epoch);
            }
        }
    }
}

}  // namespace
}  // namespace mortar
