// MetadataLog on a simulated disk: crashes at every disk operation, damage, full disks, newer versions.
#include "core/meta/metadata_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "core/base/hash.h"
#include "core/log/whole_file.h"
#include "core/meta/metadata_format.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/meta/open_alone.h"
#include "tests/unit/meta/random_mutations.h"

namespace mortar {
namespace {
using sim::DiskOp;
using sim::DiskOperation;
using sim::HeapStackPool;
using sim::OperationPoint;
using sim::PowerImage;
using sim::SimNode;
using sim::SimWorld;
using testing::catalog_bytes;
using testing::open_alone;
using testing::random_mutation;

constexpr std::uint32_t SNAPSHOT_RECORDS = 4;

// A fixed history: what is proposed as the n-th mutation, and the state after each.
struct History {
    std::vector<MutationBody> bodies;
    std::vector<ByteVector> states;

    explicit History(std::size_t count, std::uint64_t seed = 5) {
        Rng rng(seed);
        Catalog catalog;
        states.push_back(catalog_bytes(catalog));
        for (std::size_t i = 0; i < count; ++i) {
            Mutation mutation;
            mutation.mutation_id = MutationId(i + 1);
            mutation.leader_epoch = LeaderEpoch(1);
            mutation.body = random_mutation(rng, catalog);
            catalog.apply(mutation);
            bodies.push_back(mutation.body);
            states.push_back(catalog_bytes(catalog));
        }
    }
};

struct Crash {
    std::uint64_t operation = 0;  // counted from the start of the life
    OperationPoint point = OperationPoint::BEFORE;
    std::optional<PowerImage> power;  // else a kill: the page cache survives
};

// One node over several lives.
class Node {
  public:
    explicit Node(std::uint64_t seed = 1)
        : world(seed, stacks), node(world.add_node("n")), env(node.env()) {}

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

    // Opens the log, compares, proposes what is missing up to goal, closes.
    bool live(const History& history, std::size_t goal, std::optional<Crash> crash = {}) {
        const std::uint64_t start = node.disk().operation_count();
        node.disk().set_operation_hook(
            [&, start](OperationPoint point, const DiskOperation& operation) {
                if (!crash.has_value() || node.stopping()) return;
                if (operation.number - start != crash->operation || point != crash->point) return;
                node.stop_after_step([this, crash] {
                    if (crash->power.has_value()) {
                        node.power_loss(*crash->power);
                    } else {
                        node.kill();
                    }
                });
            });
        const bool survived = run([&](Fiber& fiber) { workload(fiber, history, goal); });
        life_operations = node.disk().operation_count() - start;
        node.disk().set_operation_hook({});
        if (!survived) node.restart();
        return survived;
    }

    void workload(Fiber& fiber, const History& history, std::size_t goal) {
        auto log = open_alone(fiber, env, "metadata", SNAPSHOT_RECORDS, LeaderEpoch(1));
        if (!log.ok()) return violate("open: " + log.error().to_string());
        if ((*log)->is_quarantined()) return violate("quarantined");
        std::size_t at = (*log)->catalog().last_mutation().value;
        if (at < acknowledged) return violate("an acknowledged mutation is gone");
        if (at > proposed) return violate("a mutation that nobody proposed");
        if (catalog_bytes((*log)->catalog()) != history.states[at]) return violate("another state");
        while (at < goal) {
            proposed = std::max(proposed, at + 1);
            const Result<MutationId> done = (*log)->propose(fiber, history.bodies[at]);
            if (!done.ok()) return violate("propose: " + done.error().to_string());
            at = done->value;
            acknowledged = at;
        }
        (void)(*log)->close(fiber);
    }

    void violate(std::string what) {
        if (violation.empty()) violation = std::move(what);
    }

    std::vector<std::string> names(const std::string& folder) {
        return node.disk().cached_names(folder);
    }
    std::string newest_snapshot() {
        std::string newest;
        std::uint64_t offset = 0;
        for (const std::string& name : names("metadata")) {
            const auto parsed = parse_metadata_snapshot_name(name);
            if (parsed.has_value() && parsed->offset.value >= offset) {
                newest = name;
                offset = parsed->offset.value;
            }
        }
        return newest;
    }
    void write_file(const std::string& path, ByteSpan bytes) {
        ASSERT_TRUE(run(
            [&](Fiber& fiber) { EXPECT_TRUE(write_new_file(fiber, env.disk, path, bytes).ok()); }));
    }

    HeapStackPool stacks;
    SimWorld world;
    SimNode& node;
    Env env;
    std::size_t acknowledged = 0;
    std::size_t proposed = 0;
    std::uint64_t life_operations = 0;
    std::string violation;
};

std::vector<std::optional<PowerImage>> images(std::uint64_t seed) {
    using Kind = PowerImage::Kind;
    return {std::nullopt,
            PowerImage{Kind::NONE},
            PowerImage{Kind::ALL},
            PowerImage{Kind::PREFIX, 1},
            PowerImage{Kind::ALL_BUT, 0},
            PowerImage{Kind::ONLY, 1},
            PowerImage{Kind::TORN_SECTOR, 0},
            PowerImage{Kind::METADATA_ONLY},
            PowerImage{Kind::DATA_ONLY},
            PowerImage::random(seed, true),
            PowerImage::random(seed + 1, false)};
}

// Crashes at every disk operation of a life of 10 mutations, then somewhere in the next life, then lives to the end.
// The first violation; empty when there is none.
std::string crash_everywhere(std::function<bool(const sim::SyncCall&)> drop_sync,
                             std::uint64_t& explored) {
    const History history(14);
    for (std::uint64_t operation = 1;; ++operation) {
        bool is_over = true;
        for (const OperationPoint point : {OperationPoint::BEFORE, OperationPoint::AFTER}) {
            for (const auto& image : images(operation)) {
                Node node(operation);
                Rng rng(operation * 31 + explored);
                node.node.disk().faults().drop_sync = drop_sync;
                if (!node.live(history, 10, Crash{operation, point, image})) is_over = false;
                const std::uint64_t second = 1 + rng.below(40);
                const auto power = PowerImage::random(rng.next(), true);
                node.live(history, 12, Crash{second, point, power});
                node.live(history, 14);
                ++explored;
                if (!node.violation.empty()) {
                    return node.violation + " after a crash at operation " +
                           std::to_string(operation) +
                           (image.has_value() ? ", " + to_string(*image) : ", kill") +
                           ", then at " + std::to_string(second);
                }
            }
        }
        if (is_over) return {};
    }
}

// covers DUR-02, DUR-15
TEST(MetadataCrash, at_every_disk_operation_loses_nothing_acknowledged) {
    std::uint64_t explored = 0;
    EXPECT_EQ(crash_everywhere({}, explored), "");
    EXPECT_GT(explored, 1000u);
}

TEST(MetadataCrash, every_kind_of_sync_is_needed) {
    using sim::SyncCall;
    const std::pair<const char*, std::function<bool(const SyncCall&)>> dropped[] = {
        {"records", [](const SyncCall& call) { return call.path.ends_with(".mml"); }},
        {"snapshot", [](const SyncCall& call) { return call.path.ends_with("snapshot.tmp"); }},
        {"log head", [](const SyncCall& call) { return call.path.ends_with("log.tmp"); }},
        {"folder", [](const SyncCall& call) { return call.op == DiskOp::SYNC_FOLDER; }},
    };
    for (const auto& [name, drop] : dropped) {
        std::uint64_t explored = 0;
        EXPECT_NE(crash_everywhere(drop, explored), "") << name;
    }
}

// State from snapshot + tail equals the state from the whole log, wherever the restarts fall.
TEST(MetadataProperty, snapshot_and_tail_are_the_whole_log) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        const History history(160, seed);
        Rng rng(seed);
        Node node(seed);
        while (node.acknowledged < history.bodies.size()) {
            const std::size_t goal = node.acknowledged + rng.below(25);
            ASSERT_TRUE(node.live(history, std::min(goal, history.bodies.size())));
            ASSERT_EQ(node.violation, "");
        }
    }
}

// covers DSK-09
TEST(MetadataLog, keeps_two_generations_and_no_more) {
    const History history(120);
    Node node;
    ASSERT_TRUE(node.live(history, 120));
    std::size_t logs = 0;
    std::size_t snapshots = 0;
    for (const std::string& name : node.names("metadata")) {
        logs += parse_metadata_log_name(name).has_value();
        snapshots += parse_metadata_snapshot_name(name).has_value();
    }
    EXPECT_EQ(logs, 2u);
    EXPECT_EQ(snapshots, 2u);
    EXPECT_EQ(node.newest_snapshot(), "mmms-120-1.bin");
}

TEST(MetadataLog, applies_in_order_and_makes_the_body_when_it_is_its_turn) {
    Node node;
    std::vector<std::uint64_t> applied;
    std::unique_ptr<MetadataLog> log;
    node.run([&](Fiber& fiber) {
        log = open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(1)).value();
        log->set_on_applied([&](const Mutation& m) { applied.push_back(m.mutation_id.value); });
    });
    int ended = 0;
    int mismatches = 0;
    for (int i = 0; i < 8; ++i) {
        node.node.scheduler().spawn("test.propose", [&, i](Fiber& fiber) {
            const std::string name = i % 2 == 0 ? "same" : "other" + std::to_string(i);
            const auto done =
                log->propose(fiber, [&](const Catalog& catalog) -> Result<MutationBody> {
                    if (catalog.find_topic(std::string_view(name)) != nullptr) {
                        return make_error(ErrorCode::TOPIC_EXISTS_MISMATCH);
                    }
                    return MutationBody(TopicCreated{name, 1});
                });
            if (!done.ok()) ++mismatches;
            ++ended;
        });
    }
    while (ended < 8 && node.world.step()) {
    }
    EXPECT_EQ(mismatches, 3);
    EXPECT_EQ(applied, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
    node.run([&](Fiber& fiber) {
        EXPECT_TRUE(log->close(fiber).ok());
        EXPECT_TRUE(log->propose(fiber, TopicCreated{"late", 1}).is(ErrorCode::METADATA_READ_ONLY));
    });
    log.reset();
}

// covers COR-02
TEST(MetadataDamage, newest_snapshot_is_replaced_by_the_older_one_and_its_log) {
    const History history(12);
    Node node;
    ASSERT_TRUE(node.live(history, 10));
    const std::string snapshot = node.newest_snapshot();
    ASSERT_EQ(snapshot, "mmms-8-1.bin");
    for (const std::uint64_t at : {0u, 6u, 30u, 60u}) {
        Node again;
        again.acknowledged = again.proposed = 10;
        again.node.kill();
        again.node.disk().restore(node.node.disk().image());
        ASSERT_TRUE(again.node.disk().flip_bit("metadata/" + snapshot, at, 3));
        const auto bytes = again.node.disk().cached_read("metadata/" + snapshot);
        again.node.restart();
        EXPECT_TRUE(again.live(history, 12));
        EXPECT_EQ(again.violation, "");
        EXPECT_EQ(again.node.disk().cached_read("metadata/quarantine/1/" + snapshot), bytes);
        EXPECT_TRUE(again.live(history, 12));
        EXPECT_EQ(again.violation, "");
    }
}

class MetadataQuarantine : public ::testing::Test {
  protected:
    // A node with 10 mutations: snapshots of 4 and 8, logs from 5 and from 9.
    void SetUp() override {
        ASSERT_TRUE(node.live(history, 10));
        ASSERT_EQ(
            node.names("metadata"),
            (std::vector<std::string>{"log-5.mml", "log-9.mml", "mmms-4-1.bin", "mmms-8-1.bin"}));
        node.node.kill();
    }
    // Opens quarantined, refuses everything, keeps every byte; also after one more restart.
    void expect_quarantined() {
        std::map<std::string, std::optional<ByteVector>> before;
        for (const std::string& name : node.names("metadata")) {
            before[name] = node.node.disk().cached_read("metadata/" + name);
        }
        node.node.restart();
        for (int life = 0; life < 2; ++life) {
            node.run([&](Fiber& fiber) {
                auto log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1));
                ASSERT_TRUE(log.ok()) << log.error().to_string();
                EXPECT_TRUE((*log)->is_quarantined());
                EXPECT_TRUE((*log)->catalog().topics().empty());
                EXPECT_TRUE((*log)
                                ->propose(fiber, TopicCreated{"x", 1})
                                .is(ErrorCode::METADATA_QUARANTINED));
            });
        }
        EXPECT_EQ(node.names("metadata"), (std::vector<std::string>{"quarantine"}));
        for (const auto& [name, bytes] : before) {
            EXPECT_EQ(node.node.disk().cached_read("metadata/quarantine/1/" + name), bytes) << name;
        }
        EXPECT_TRUE(
            node.node.disk().cached_read("metadata/quarantine/1/quarantine-1.txt").has_value());
    }

    const History history{12};
    Node node;
};

TEST_F(MetadataQuarantine, on_a_damaged_record_with_a_sound_one_behind_it) {
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-9.mml", 512 + 20, 1));
    expect_quarantined();
}

TEST_F(MetadataQuarantine, on_a_damaged_log_head) {
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-9.mml", 1, 1));
    expect_quarantined();
}

TEST_F(MetadataQuarantine, when_snapshot_and_the_log_before_it_are_damaged) {
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/mmms-8-1.bin", 40, 1));
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-5.mml", 512 + 20, 1));
    expect_quarantined();
}

TEST_F(MetadataQuarantine, when_both_snapshots_are_damaged) {
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/mmms-8-1.bin", 40, 1));
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/mmms-4-1.bin", 40, 1));
    expect_quarantined();
}

TEST_F(MetadataQuarantine, when_the_newest_log_and_snapshot_lead_nowhere) {
    node.node.restart();
    node.run([&](Fiber& fiber) {
        ASSERT_TRUE(node.env.disk.remove(fiber, "metadata/log-9.mml").ok());
        ASSERT_TRUE(node.env.disk.remove(fiber, "metadata/log-5.mml").ok());
    });
    node.node.kill();
    expect_quarantined();
}

// Damage to what the newest snapshot covers harms nobody.
TEST_F(MetadataQuarantine, not_on_damage_below_the_newest_snapshot) {
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-5.mml", 512 + 20, 1));
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/mmms-4-1.bin", 40, 1));
    node.node.restart();
    EXPECT_TRUE(node.live(history, 12));
    EXPECT_EQ(node.violation, "");
}

// covers DUR-02, COR-02
TEST_F(MetadataQuarantine, when_metadata_is_gone_but_topics_are_there) {
    node.node.disk().wipe();
    node.node.restart();
    node.run([&](Fiber& fiber) {
        ASSERT_TRUE(node.env.disk.make_folders(fiber, "topics/1/0").ok());
        auto log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1)).value();
        EXPECT_TRUE(log->is_quarantined());
        EXPECT_TRUE(log->propose(fiber, TopicCreated{"x", 1}).is(ErrorCode::METADATA_QUARANTINED));
    });
    EXPECT_EQ(node.names("topics"), (std::vector<std::string>{"1"}));
}

TEST_F(MetadataQuarantine, survives_a_crash_at_every_step_of_the_move) {
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/mmms-8-1.bin", 40, 1));
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-5.mml", 512 + 20, 1));
    const sim::DiskState image = node.node.disk().image();
    bool is_over = false;
    for (std::uint64_t operation = 1; !is_over; ++operation) {
        for (const auto& power : images(operation)) {
            Node again(operation);
            again.node.kill();
            again.node.disk().restore(image);
            again.node.restart();
            is_over = again.live(history, 0, Crash{operation, OperationPoint::AFTER, power});
            again.violation.clear();
            again.run([&](Fiber& fiber) {
                auto log = open_alone(fiber, again.env, "metadata", 4, LeaderEpoch(1)).value();
                EXPECT_TRUE(log->is_quarantined()) << operation;
            });
            std::vector<std::string> kept = again.names("metadata/quarantine/1");
            // Neither left-overs nor log-1.mml, whose removal no sync had to make durable.
            std::erase_if(kept, [](const std::string& name) {
                return name.ends_with(".tmp") || name == "log-1.mml";
            });
            EXPECT_EQ(kept, (std::vector<std::string>{"log-5.mml", "log-9.mml", "mmms-4-1.bin",
                                                      "mmms-8-1.bin", "quarantine-1.txt"}));
        }
    }
}

TEST_F(MetadataQuarantine, ends_when_a_human_puts_sound_files_back) {
    const sim::DiskState sound = node.node.disk().image();
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-9.mml", 512 + 20, 1));
    expect_quarantined();
    node.run([&](Fiber& fiber) {
        for (const char* name : {"log-5.mml", "log-9.mml", "mmms-4-1.bin", "mmms-8-1.bin"}) {
            ASSERT_TRUE(node.env.disk
                            .rename(fiber, std::string("metadata/quarantine/1/") + name,
                                    std::string("metadata/") + name)
                            .ok());
        }
    });
    ASSERT_TRUE(node.node.disk().flip_bit("metadata/log-9.mml", 512 + 20, 1));
    EXPECT_TRUE(node.live(history, 12));
    EXPECT_EQ(node.violation, "");
}

TEST_F(MetadataQuarantine, is_not_the_answer_to_a_newer_version) {
    for (const char* name : {"log-9.mml", "mmms-8-1.bin", "log-5.mml"}) {
        const std::string path = std::string("metadata/") + name;
        ASSERT_TRUE(node.node.disk().flip_bit(path, 4, 1));  // version 1 becomes 3
        const std::uint64_t digest = node.node.disk().digest();
        node.node.restart();
        node.run([&](Fiber& fiber) {
            auto log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1));
            ASSERT_TRUE(log.is(ErrorCode::UNSUPPORTED_FORMAT));
            EXPECT_NE(log.error().detail.find(path), std::string::npos) << log.error().detail;
            EXPECT_NE(log.error().detail.find("version 3"), std::string::npos)
                << log.error().detail;
        });
        node.node.kill();
        EXPECT_EQ(node.node.disk().digest(), digest) << name;
        ASSERT_TRUE(node.node.disk().flip_bit(path, 4, 1));
    }
}

TEST_F(MetadataQuarantine, is_not_the_answer_to_a_read_error) {
    node.node.disk().faults().read_error_per_mille = 1000;
    const std::uint64_t digest = node.node.disk().digest();
    node.node.restart();
    node.run([&](Fiber& fiber) {
        auto log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1));
        EXPECT_TRUE(log.is(ErrorCode::IO_ERROR));
    });
    node.node.kill();
    EXPECT_EQ(node.node.disk().digest(), digest);
}

TEST_F(MetadataQuarantine, leaves_unknown_files_alone) {
    node.node.restart();
    node.write_file("metadata/notes", as_byte_span("mine"));
    EXPECT_TRUE(node.live(history, 12));
    EXPECT_EQ(node.violation, "");
    EXPECT_EQ(node.node.disk().cached_read("metadata/notes")->size(), 4u);
}

TEST(MetadataDisk, a_failed_sync_makes_it_read_only_until_it_was_read_again) {
    for (const auto personality : {sim::FailedSync::PAGES_GONE, sim::FailedSync::MARKED_CLEAN,
                                   sim::FailedSync::KEPT_DIRTY, sim::FailedSync::UNKNOWN}) {
        const History history(12);
        Node node;
        ASSERT_TRUE(node.live(history, 6));
        node.node.disk().faults().failed_sync = personality;
        std::unique_ptr<MetadataLog> log;
        std::vector<std::uint64_t> applied;
        node.run([&](Fiber& fiber) {
            log = open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(1)).value();
            log->set_on_applied([&](const Mutation& m) { applied.push_back(m.mutation_id.value); });
            node.node.disk().faults().sync_error_per_mille = 1000;
            EXPECT_TRUE(log->propose(fiber, history.bodies[6]).is(ErrorCode::MUTATION_FENCED));
            EXPECT_TRUE(log->is_read_only());
            EXPECT_TRUE(log->propose(fiber, history.bodies[6]).is(ErrorCode::METADATA_READ_ONLY));
        });
        node.world.run_for(seconds(20));  // the disk goes on failing
        EXPECT_TRUE(log->is_read_only());
        node.node.disk().faults().sync_error_per_mille = 0;
        node.world.run_for(METADATA_REOPEN_BACKOFF_MAX + seconds(1));
        EXPECT_FALSE(log->is_read_only());
        // It had been appended, and others may have it: it stays.
        EXPECT_EQ(applied, std::vector<std::uint64_t>{7});
        node.run([&](Fiber& fiber) {
            EXPECT_EQ(log->propose(fiber, history.bodies[7]).value(), MutationId(8));
            EXPECT_TRUE(log->close(fiber).ok());
        });
        log.reset();
        EXPECT_EQ(applied, (std::vector<std::uint64_t>{7, 8}));
        node.acknowledged = node.proposed = 8;
        node.node.power_loss(PowerImage{PowerImage::Kind::NONE});
        node.node.restart();
        ASSERT_TRUE(node.live(history, 12));
        EXPECT_EQ(node.violation, "");
    }
}

// The name of a new log file that may or may not be there.
TEST(MetadataDisk, a_failed_rotation_is_read_again_too) {
    const History history(12);
    Node node;
    std::unique_ptr<MetadataLog> log;
    node.run([&](Fiber& fiber) {
        log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1)).value();
        bool has_renamed = false;
        node.node.disk().faults().fails = [&has_renamed](const DiskOperation& operation) {
            if (operation.op == DiskOp::RENAME && operation.path.ends_with("log.tmp"))
                has_renamed = true;
            return has_renamed && operation.op == DiskOp::SYNC_FOLDER;
        };
        for (std::size_t i = 0; i < 4; ++i)
            EXPECT_TRUE(log->propose(fiber, history.bodies[i]).ok());
    });
    node.world.run_for(milliseconds(50));
    EXPECT_TRUE(log->is_read_only());
    node.node.disk().faults().fails = nullptr;
    node.world.run_for(METADATA_REOPEN_BACKOFF_MAX + seconds(1));
    EXPECT_FALSE(log->is_read_only());
    node.run([&](Fiber& fiber) {
        EXPECT_TRUE(log->propose(fiber, history.bodies[4]).ok());
        EXPECT_TRUE(log->close(fiber).ok());
    });
    log.reset();
    node.acknowledged = node.proposed = 5;
    EXPECT_TRUE(node.live(history, 12));
    EXPECT_EQ(node.violation, "");
}

TEST(MetadataDisk, a_failed_sync_ends_the_log_and_a_restart_decides) {
    for (const auto personality : {sim::FailedSync::PAGES_GONE, sim::FailedSync::MARKED_CLEAN,
                                   sim::FailedSync::KEPT_DIRTY, sim::FailedSync::UNKNOWN}) {
        const History history(12);
        Node node;
        ASSERT_TRUE(node.live(history, 6));
        node.node.disk().faults().failed_sync = personality;
        std::unique_ptr<MetadataLog> kept;  // as long as its node: it is being opened again
        node.run([&](Fiber& fiber) {
            auto log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1)).value();
            node.node.disk().faults().sync_error_per_mille = 1000;
            EXPECT_TRUE(log->propose(fiber, history.bodies[6]).is(ErrorCode::MUTATION_FENCED));
            node.node.disk().faults().sync_error_per_mille = 0;
            EXPECT_TRUE(log->propose(fiber, history.bodies[6]).is(ErrorCode::METADATA_READ_ONLY));
            kept = std::move(log);
        });
        node.proposed = 7;
        node.node.kill();
        kept.reset();
        node.node.restart();
        ASSERT_TRUE(node.live(history, 10));
        node.node.power_loss(PowerImage{PowerImage::Kind::NONE});
        node.node.restart();
        ASSERT_TRUE(node.live(history, 12));
        EXPECT_EQ(node.violation, "");
    }
}

// "Not executed" must stay true, also when all of the bytes reached the disk.
TEST(MetadataDisk, a_failed_write_is_undone_before_it_is_answered) {
    const History history(12);
    Node node;
    ASSERT_TRUE(node.live(history, 6));
    std::unique_ptr<MetadataLog> kept;
    node.run([&](Fiber& fiber) {
        auto log = open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(1)).value();
        bool is_broken = true;
        node.node.disk().faults().fails = [&](const DiskOperation& operation) {
            return is_broken && operation.op == DiskOp::WRITE;
        };
        EXPECT_TRUE(log->propose(fiber, history.bodies[6]).is(ErrorCode::METADATA_READ_ONLY));
        EXPECT_EQ(log->catalog().last_mutation(), MutationId(6));
        is_broken = false;
        EXPECT_TRUE(log->propose(fiber, history.bodies[6]).ok());
        // When the cut fails too, nobody can know.
        node.node.disk().faults().fails = [](const DiskOperation& operation) {
            return operation.op == DiskOp::WRITE || operation.op == DiskOp::TRUNCATE;
        };
        EXPECT_TRUE(log->propose(fiber, history.bodies[7]).is(ErrorCode::MUTATION_FENCED));
        node.node.disk().faults().fails = nullptr;
        EXPECT_TRUE(log->propose(fiber, history.bodies[7]).is(ErrorCode::METADATA_READ_ONLY));
        kept = std::move(log);
    });
    node.acknowledged = 7;
    node.proposed = 8;
    node.node.kill();
    kept.reset();
    node.node.restart();
    EXPECT_TRUE(node.live(history, 12));
    EXPECT_EQ(node.violation, "");
}

TEST(MetadataDisk, a_full_disk_takes_only_what_makes_room_and_ends_by_itself) {
    Node node;
    node.run([&](Fiber& fiber) {
        auto log = open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(1)).value();
        EXPECT_TRUE(log->propose(fiber, TopicCreated{"a", 1}).ok());
        node.node.disk().faults().capacity_bytes = METADATA_SPACE_RESERVE_BYTES;
        EXPECT_TRUE(log->propose(fiber, TopicCreated{"b", 1}).is(ErrorCode::METADATA_READ_ONLY));
        EXPECT_TRUE(log->propose(fiber, TopicDeleted{TopicId(1)}).ok());
        node.node.disk().faults().capacity_bytes = 1024;  // not even the reserve
        EXPECT_TRUE(log->propose(fiber, TopicCreated{"b", 1}).is(ErrorCode::METADATA_READ_ONLY));
        node.node.disk().faults().capacity_bytes = 2 * METADATA_SPACE_RESERVE_BYTES;
        EXPECT_TRUE(log->propose(fiber, TopicCreated{"b", 1}).ok());
    });
}

// The short write of a really full disk: undone, and taken when space is back.
TEST(MetadataDisk, a_short_write_is_undone) {
    Node node;
    node.run([&](Fiber& fiber) {
        auto log = open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(1)).value();
        ASSERT_TRUE(log->propose(fiber, TopicCreated{"a", 1}).ok());
        std::vector<Sequence> starts{Sequence(0)};
        ASSERT_TRUE(log->propose(fiber, GroupCreated{"g", TopicId(1), starts}).ok());
        const MutationId joined =
            log->propose(fiber, MemberJoined{GroupId(1), {MemberId(0)}}).value();
        const MutationBody left = MembersLeft{GroupId(1), {MemberId(joined.value)}, {MemberId(0)}};
        node.node.disk().faults().capacity_bytes = 0;
        EXPECT_TRUE(log->propose(fiber, left).is(ErrorCode::METADATA_READ_ONLY));
        node.node.disk().faults().capacity_bytes = 2 * METADATA_SPACE_RESERVE_BYTES;
        EXPECT_TRUE(log->propose(fiber, left).ok());
    });
}

TEST(MetadataLog, goes_on_in_the_present_file_when_a_snapshot_fails) {
    const History history(80);
    Node node;
    node.run([&](Fiber& fiber) {
        auto log = open_alone(fiber, node.env, "metadata", 4, LeaderEpoch(1)).value();
        node.node.disk().faults().fails = [](const DiskOperation& operation) {
            return operation.path.ends_with("snapshot.tmp") && operation.op == DiskOp::WRITE;
        };
        for (std::size_t i = 0; i < 10; ++i)
            ASSERT_TRUE(log->propose(fiber, history.bodies[i]).ok());
        node.node.disk().faults().fails = [](const DiskOperation& operation) {
            return operation.path.ends_with("log.tmp") && operation.op == DiskOp::WRITE;
        };
        for (std::size_t i = 10; i < 70; ++i) {
            const auto done = log->propose(fiber, history.bodies[i]);
            ASSERT_TRUE(done.ok()) << i << done.error().to_string();
        }
        EXPECT_TRUE(log->close(fiber).ok());
    });
    node.node.disk().faults().fails = nullptr;
    node.acknowledged = node.proposed = 70;
    EXPECT_TRUE(node.live(history, 80));
    EXPECT_EQ(node.violation, "");
}

TEST(MetadataLog, refuses_an_older_leader_epoch) {
    Node node;
    node.run([&](Fiber& fiber) {
        auto log = open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(4)).value();
        ASSERT_TRUE(log->propose(fiber, TopicCreated{"a", 1}).ok());
        log.reset();
        EXPECT_TRUE(open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(3))
                        .is(ErrorCode::INVALID_ARGUMENT));
        EXPECT_TRUE(open_alone(fiber, node.env, "metadata", 64, LeaderEpoch(5)).ok());
    });
}

TEST(MetadataFormat, record_is_laid_out_as_the_contract_says) {
    Mutation mutation{MutationId(0x0102), LeaderEpoch(3), 0x0405, TopicCreated{"ab", 4}};
    const ByteVector bytes = encode_metadata_record(mutation);
    ASSERT_EQ(bytes.size(), 512u);
    EXPECT_EQ(to_hex(ByteSpan(bytes).first(4)), "00000024");
    EXPECT_EQ(to_hex(ByteSpan(bytes).subspan(8, 32)),
              "0001"
              "0000000000000102"
              "0000000000000003"
              "0000000000000405"
              "0002"
              "6162"
              "0004");
    EXPECT_EQ(load_be<std::uint32_t>(bytes.data() + 4), crc32c(ByteSpan(bytes).subspan(8, 32)));
    EXPECT_EQ(to_hex(encode_metadata_log_head()), "4d4d4d4c0101");
    const auto parsed = parse_metadata_record(bytes);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(decode_metadata_record(*parsed).value(), mutation);
    for (std::size_t size = 0; size < 40; ++size) {
        EXPECT_FALSE(parse_metadata_record(ByteSpan(bytes).first(size)).ok());
    }
    for (std::size_t bit = 0; bit < 40 * 8; ++bit) {
        ByteVector altered = bytes;
        altered[bit / 8] ^= std::byte{static_cast<unsigned char>(1u << bit % 8)};
        EXPECT_FALSE(parse_metadata_record(altered).ok()) << bit;
    }
}

TEST(MetadataFormat, names_are_canonical) {
    EXPECT_EQ(parse_metadata_log_name("log-12.mml"), MutationId(12));
    for (const char* name : {"log-.mml", "log-0.mml", "log-01.mml", "log-1.mml.tmp", "log--1.mml",
                             "log-x.mml", "log-18446744073709551616.mml", "xlog-1.mml"}) {
        EXPECT_FALSE(parse_metadata_log_name(name).has_value()) << name;
    }
    const auto snapshot =
        parse_metadata_snapshot_name(metadata_snapshot_name(MutationId(8), LeaderEpoch(0)));
    ASSERT_TRUE(snapshot.has_value());
    EXPECT_EQ(snapshot->offset, MutationId(8));
    for (const char* name :
         {"mmms-8.bin", "mmms-8-1", "mmms--1.bin", "mmms-8-01.bin", "snapshot.tmp"}) {
        EXPECT_FALSE(parse_metadata_snapshot_name(name).has_value()) << name;
    }
}

}  // namespace
}  // namespace mortar
