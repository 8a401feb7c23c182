#include "core/replica/promise.h"

#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar {
namespace {

using peer::ClusterId;
using peer::CopyState;

constexpr NodeId SELF{2};
constexpr NodeId OTHER{3};
constexpr PartitionKey LOW{TopicId(1), PartitionIndex(4)};
constexpr PartitionKey HIGH{TopicId(5), PartitionIndex(0)};
const std::string PATH = "replica/state";

ClusterId cluster() {
    ClusterId id{};
    id[0] = std::byte{0xab};
    return id;
}

Promise sample() {
    Promise promise;
    promise.node_id = SELF;
    promise.cluster_id = cluster();
    promise.promised_epoch = LeaderEpoch(7);
    promise.promised_to = OTHER;
    promise.installed_epoch = LeaderEpoch(6);
    promise.member_count = 3;
    promise.marks = {{LOW, true, Sequence(0)}, {HIGH, true, Sequence(9)}};
    return promise;
}

const std::string SAMPLE_CHECKED =
    "0002ab000000000000000000000000000000000000000000000700030000000000000006000300000002"
    "00010004010000000000000000"
    "00050000030000000000000009";

ByteVector from_hex(std::string_view hex) {
    ByteVector bytes;
    for (std::size_t at = 0; at + 1 < hex.size(); at += 2)
        bytes.push_back(std::byte(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16)));
    return bytes;
}
ByteVector file_of(std::uint8_t version, std::string_view checked_hex) {
    const ByteVector checked = from_hex(checked_hex);
    ByteVector file;
    ByteWriter writer(file);
    writer.bytes(as_byte_span(PROMISE_MAGIC));
    writer.u8(version);
    writer.u32(crc32c(checked));
    writer.bytes(checked);
    return file;
}

TEST(Promise, is_the_bytes_that_its_header_names) {
    EXPECT_EQ(to_hex(encode_promise(sample())), to_hex(file_of(2, SAMPLE_CHECKED)));
    EXPECT_EQ(decode_promise(file_of(2, SAMPLE_CHECKED)).value(), sample());
}

// A one-node folder of the first version: its node was its own leader.
TEST(Promise, of_version_1_was_made_to_the_node_itself_and_installed) {
    const ByteVector file = file_of(1, "0002ab0000000000000000000000000000000000000000000007");
    const Promise promise = decode_promise(file).value();
    EXPECT_EQ(promise.node_id, SELF);
    EXPECT_EQ(promise.cluster_id, cluster());
    EXPECT_EQ(promise.promised_epoch, LeaderEpoch(7));
    EXPECT_EQ(promise.promised_to, SELF);
    EXPECT_EQ(promise.installed_epoch, LeaderEpoch(7));
    EXPECT_TRUE(promise.marks.empty());
    ByteVector longer = file;
    longer.push_back(std::byte{0});
    EXPECT_TRUE(decode_promise(longer).is(ErrorCode::DAMAGED));
}

// A guessed epoch could come twice, and delivery ids with it.
TEST(Promise, refuses_every_cut_every_flipped_byte_and_a_longer_file) {
    const ByteVector file = encode_promise(sample());
    for (std::size_t size = 0; size < file.size(); ++size) {
        EXPECT_TRUE(decode_promise(ByteSpan(file).first(size)).is(ErrorCode::DAMAGED)) << size;
    }
    for (std::size_t at = 0; at < file.size(); ++at) {
        ByteVector bad = file;
        bad[at] ^= std::byte{0x10};
        EXPECT_FALSE(decode_promise(bad).ok()) << at;
    }
    ByteVector longer = file;
    longer.push_back(std::byte{0});
    EXPECT_TRUE(decode_promise(longer).is(ErrorCode::DAMAGED));
    ByteVector newer = file;
    newer[4] = std::byte{3};
    EXPECT_TRUE(decode_promise(newer).is(ErrorCode::UNSUPPORTED_FORMAT));
    ByteVector zero = file;
    zero[4] = std::byte{0};
    EXPECT_TRUE(decode_promise(zero).is(ErrorCode::DAMAGED));
}

// With a right checksum: written by something else than this program.
TEST(Promise, refuses_what_contradicts_itself) {
    const auto with = [](std::size_t at, std::uint8_t value) {
        ByteVector file = encode_promise(sample());
        file[at] = std::byte{value};
        store_be(file.data() + 5, crc32c(ByteSpan(file).subspan(9)));
        return decode_promise(file);
    };
    constexpr std::size_t INSTALLED_LAST = 44;  // then u16 member_count
    constexpr std::size_t COUNT_LAST = 50;
    constexpr std::size_t MARK = 51;
    constexpr std::size_t MARK_FLAGS = MARK + 4;
    constexpr std::size_t MARK_FAULTY_LAST = MARK + 12;
    ASSERT_EQ(with(INSTALLED_LAST, 7)->installed_epoch, LeaderEpoch(7));
    EXPECT_TRUE(with(INSTALLED_LAST, 8).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(COUNT_LAST, 1).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(COUNT_LAST, 3).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(COUNT_LAST - 3, 255).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(MARK + 1, 4).ok());
    EXPECT_TRUE(with(MARK + 1, 5).is(ErrorCode::DAMAGED));  // 5/4 before 5/0
    EXPECT_TRUE(with(MARK_FLAGS, 0).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(MARK_FLAGS, 4).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(MARK_FLAGS, 2).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(with(MARK_FAULTY_LAST, 1).is(ErrorCode::DAMAGED));
}

TEST(Promise, calls_a_copy_uncertain_whose_damage_went_with_its_end) {
    EXPECT_EQ(copy_state({LOW, false, Sequence(0)}, Sequence(5)), CopyState::INTACT);
    EXPECT_EQ(copy_state({LOW, true, Sequence(0)}, Sequence(5)), CopyState::UNCERTAIN);
    EXPECT_EQ(copy_state({LOW, false, Sequence(5)}, Sequence(5)), CopyState::FAULTY);
    EXPECT_EQ(copy_state({LOW, true, Sequence(5)}, Sequence(5)), CopyState::FAULTY_UNCERTAIN);
    EXPECT_EQ(copy_state({LOW, false, Sequence(6)}, Sequence(5)), CopyState::UNCERTAIN);
}

class PromiseStoreTest : public sim::SimFixture {
  protected:
    sim::SimNode& node = world.add_node("n");
    sim::SimDisk& disk = node.disk();
    std::unique_ptr<PromiseStore> store;

    void SetUp() override { open(); }
    void open(std::uint16_t member_count = 3) {
        run_on(node, [this, member_count](Fiber& fiber) {
            auto opened = PromiseStore::open(fiber, disk, SELF, member_count);
            ASSERT_TRUE(opened.ok()) << opened.error().to_string();
            store = std::move(*opened);
        });
    }
    // What a power loss leaves for certain.
    std::optional<Promise> durable() const {
        const auto bytes = disk.durable_read(PATH);
        if (!bytes.has_value()) return std::nullopt;
        return decode_promise(*bytes).value();
    }
    void lose_power_and_open() {
        store.reset();
        node.power_loss({});
        node.restart();
        open();
    }
    // A node that has joined, in epoch 1.
    void join() {
        run_on(node, [this](Fiber& fiber) {
            ASSERT_TRUE(store->promise(fiber, LeaderEpoch(1), OTHER).ok());
            ASSERT_TRUE(store->install(fiber, LeaderEpoch(1), cluster()).ok());
        });
    }
};

TEST_F(PromiseStoreTest, is_blank_until_it_has_installed) {
    EXPECT_TRUE(store->is_blank());
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(4), OTHER).ok());
        EXPECT_TRUE(store->is_blank());
        EXPECT_FALSE(disk.cached_read(PATH).has_value());
        EXPECT_EQ(store->promised_epoch(), LeaderEpoch(4));
        // It keeps what it promised as long as it lives.
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(4), SELF).is(ErrorCode::STALE_LEADER_EPOCH));
        ASSERT_TRUE(store->install(fiber, LeaderEpoch(4), cluster()).ok());
        EXPECT_FALSE(store->is_blank());
    });
    lose_power_and_open();
    EXPECT_FALSE(store->is_blank());
    EXPECT_EQ(store->cluster_id(), cluster());
    EXPECT_EQ(store->installed_epoch(), LeaderEpoch(4));
}

TEST_F(PromiseStoreTest, has_a_promise_on_disk_before_it_says_so) {
    join();
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(3), OTHER).ok());
        ASSERT_TRUE(durable().has_value());
        EXPECT_EQ(durable()->promised_epoch, LeaderEpoch(3));
        EXPECT_EQ(durable()->promised_to, OTHER);
        EXPECT_EQ(durable()->installed_epoch, LeaderEpoch(1));
    });
    lose_power_and_open();
    EXPECT_EQ(store->promised_epoch(), LeaderEpoch(3));
    EXPECT_EQ(store->promised_to(), OTHER);
    EXPECT_EQ(store->installed_epoch(), LeaderEpoch(1));
}

TEST_F(PromiseStoreTest, promises_each_epoch_once_and_never_a_lower_one) {
    join();
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(5), OTHER).ok());
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(5), OTHER).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(5), SELF).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(4), SELF).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_EQ(store->promised_to(), OTHER);
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(LEADER_EPOCH_MAX + 1), SELF)
                        .is(ErrorCode::LIMIT_REACHED));
        EXPECT_EQ(store->promised_epoch(), LeaderEpoch(5));
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(LEADER_EPOCH_MAX), SELF).ok());
    });
}

// A heartbeat is answered, or an election won, while the promise waits for another save.
TEST_F(PromiseStoreTest, asks_again_whether_it_may_promise_when_its_turn_has_come) {
    join();
    bool may = true;
    std::vector<Result<void>> answers;
    node.scheduler().spawn("test.mark", [&](Fiber& fiber) {
        EXPECT_TRUE(store->mark(fiber, {LogMark{LOW, true, Sequence(0)}}).ok());
        may = false;
    });
    node.scheduler().spawn("test.candidate", [&](Fiber& fiber) {
        answers.push_back(store->promise(fiber, LeaderEpoch(2), OTHER, [&] { return may; }));
        EXPECT_EQ(store->promised_epoch(), LeaderEpoch(1));
        may = true;
        answers.push_back(store->promise(fiber, LeaderEpoch(2), OTHER, [&] { return may; }));
    });
    while (answers.size() < 2 && world.step(world.now() + seconds(10))) {
    }
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_TRUE(answers[0].is(ErrorCode::STALE_LEADER_EPOCH));
    EXPECT_TRUE(answers[1].ok());
    EXPECT_EQ(durable()->promised_epoch, LeaderEpoch(2));
}

// Two candidates ask in one moment: both find the epoch free before either is on disk.
TEST_F(PromiseStoreTest, promises_an_epoch_to_one_of_two_that_ask_at_once) {
    join();
    std::vector<bool> answers;
    int ended = 0;
    for (const NodeId candidate : {OTHER, SELF}) {
        node.scheduler().spawn("test.candidate", [&, candidate](Fiber& fiber) {
            answers.push_back(store->promise(fiber, LeaderEpoch(2), candidate).ok());
            ++ended;
        });
    }
    while (ended < 2 && world.step(world.now() + seconds(10))) {
    }
    EXPECT_EQ(answers, (std::vector<bool>{true, false}));
    EXPECT_EQ(store->promised_to(), OTHER);
    EXPECT_EQ(durable()->promised_to, OTHER);
}

// Older leaders are refused from the moment the save begins; an install counts from when it is saved.
TEST_F(PromiseStoreTest, shows_a_promise_before_and_an_install_after_it_is_saved) {
    join();
    bool ended = false;
    node.scheduler().spawn("test.promise", [&](Fiber& fiber) {
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(2), OTHER).ok());
        ASSERT_TRUE(store->install(fiber, LeaderEpoch(2), cluster()).ok());
        ended = true;
    });
    bool seen_before_durable = false;
    while (!ended && world.step(world.now() + seconds(10))) {
        const Promise on_disk = *durable();
        if (store->promised_epoch() > on_disk.promised_epoch) seen_before_durable = true;
        EXPECT_GE(store->promised_epoch(), on_disk.promised_epoch);
        EXPECT_LE(store->installed_epoch(), on_disk.installed_epoch);
    }
    EXPECT_TRUE(seen_before_durable);
    EXPECT_EQ(store->installed_epoch(), LeaderEpoch(2));
}

TEST_F(PromiseStoreTest, installs_only_what_is_promised_still) {
    join();
    run_on(node, [this](Fiber& fiber) {
        EXPECT_TRUE(
            store->install(fiber, LeaderEpoch(2), cluster()).is(ErrorCode::STALE_LEADER_EPOCH));
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(3), OTHER).ok());
        EXPECT_TRUE(
            store->install(fiber, LeaderEpoch(2), cluster()).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_TRUE(
            store->install(fiber, LeaderEpoch(1), cluster()).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_EQ(store->installed_epoch(), LeaderEpoch(1));
        EXPECT_TRUE(
            store->install(fiber, LeaderEpoch(3), ClusterId{}).is(ErrorCode::INVALID_ARGUMENT));
        ASSERT_TRUE(store->install(fiber, LeaderEpoch(3), cluster()).ok());
        const std::uint64_t operations = disk.operation_count();
        ASSERT_TRUE(store->install(fiber, LeaderEpoch(3), cluster()).ok());
        EXPECT_EQ(disk.operation_count(), operations);
    });
}

TEST_F(PromiseStoreTest, a_blank_node_installs_nothing_that_it_was_not_asked_for) {
    run_on(node, [this](Fiber& fiber) {
        EXPECT_TRUE(
            store->install(fiber, LeaderEpoch(0), cluster()).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_TRUE(
            store->install(fiber, LeaderEpoch(1), cluster()).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_TRUE(store->is_blank());
    });
}

// A promise that may or may not be on disk is kept, an install that may be there is not relied upon.
TEST_F(PromiseStoreTest, stays_careful_after_a_save_that_failed) {
    join();
    disk.faults().fails = [](const sim::DiskOperation& operation) {
        return operation.op == sim::DiskOp::SYNC_DATA;
    };
    run_on(node, [this](Fiber& fiber) {
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(2), OTHER).is(ErrorCode::IO_ERROR));
        EXPECT_EQ(store->promised_epoch(), LeaderEpoch(2));
        EXPECT_TRUE(store->promise(fiber, LeaderEpoch(2), SELF).is(ErrorCode::STALE_LEADER_EPOCH));
        EXPECT_TRUE(store->install(fiber, LeaderEpoch(2), cluster()).is(ErrorCode::IO_ERROR));
        EXPECT_EQ(store->installed_epoch(), LeaderEpoch(1));
        EXPECT_TRUE(store->mark(fiber, {{LOW, true, Sequence(0)}}).is(ErrorCode::IO_ERROR));
        EXPECT_TRUE(store->mark_of(LOW).is_uncertain);
        EXPECT_TRUE(store->forget(fiber, LOW).is(ErrorCode::IO_ERROR));
        EXPECT_TRUE(store->mark_of(LOW).is_uncertain);
        disk.faults().fails = nullptr;
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(3), SELF).ok());
        EXPECT_EQ(durable()->promised_epoch, LeaderEpoch(3));
        EXPECT_EQ(durable()->marks.size(), 1u);
    });
}

TEST_F(PromiseStoreTest, keeps_marks_until_it_is_installed_again) {
    join();
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(
            store->mark(fiber, {{HIGH, false, Sequence(9)}, {LOW, true, Sequence(0)}}).ok());
        ASSERT_TRUE(store->promise(fiber, LeaderEpoch(2), OTHER).ok());
    });
    lose_power_and_open();
    EXPECT_EQ(store->marks(),
              (std::vector<LogMark>{{LOW, true, Sequence(0)}, {HIGH, false, Sequence(9)}}));
    EXPECT_EQ(store->mark_of(PartitionKey{TopicId(2), PartitionIndex(0)}),
              (LogMark{{TopicId(2), PartitionIndex(0)}, false, Sequence(0)}));
    // Installing gives a torn copy its end back, but repairs nothing in the middle.
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(store->install(fiber, LeaderEpoch(2), cluster()).ok());
        EXPECT_EQ(durable()->marks, (std::vector<LogMark>{{HIGH, false, Sequence(9)}}));
        ASSERT_TRUE(store->clear_faulty(fiber, HIGH).ok());
        EXPECT_TRUE(durable()->marks.empty());
    });
}

TEST_F(PromiseStoreTest, adds_marks_up_and_lifts_each_alone) {
    join();
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(store->mark(fiber, {{LOW, false, Sequence(9)}}).ok());
        ASSERT_TRUE(store->mark(fiber, {{LOW, true, Sequence(0)}}).ok());
        ASSERT_TRUE(store->mark(fiber, {{LOW, false, Sequence(12)}}).ok());
        EXPECT_EQ(store->mark_of(LOW), (LogMark{LOW, true, Sequence(9)}));
        ASSERT_TRUE(store->mark(fiber, {{LOW, false, Sequence(4)}}).ok());
        EXPECT_EQ(durable()->marks, (std::vector<LogMark>{{LOW, true, Sequence(4)}}));
        const std::uint64_t operations = disk.operation_count();
        ASSERT_TRUE(store->mark(fiber, {{LOW, false, Sequence(4)}}).ok());
        EXPECT_EQ(disk.operation_count(), operations);
        ASSERT_TRUE(store->clear_faulty(fiber, LOW).ok());
        EXPECT_EQ(durable()->marks, (std::vector<LogMark>{{LOW, true, Sequence(0)}}));
        ASSERT_TRUE(store->forget(fiber, LOW).ok());
        EXPECT_TRUE(durable()->marks.empty());
    });
}

TEST_F(PromiseStoreTest, refuses_more_marks_than_it_can_keep) {
    join();
    std::vector<LogMark> marks;
    for (std::uint32_t count = 0; count <= LOG_MARK_COUNT_MAX; ++count) {
        const PartitionKey log{TopicId(static_cast<std::uint16_t>(1 + count / 1024)),
                               PartitionIndex(static_cast<std::uint16_t>(count % 1024))};
        marks.push_back({log, true, Sequence(0)});
    }
    run_on(node, [&](Fiber& fiber) {
        EXPECT_TRUE(store->mark(fiber, marks).is(ErrorCode::LIMIT_REACHED));
        EXPECT_TRUE(store->marks().empty());
        marks.pop_back();
        ASSERT_TRUE(store->mark(fiber, marks).ok());
    });
    lose_power_and_open();
    EXPECT_EQ(store->marks(), marks);
}

TEST_F(PromiseStoreTest, upgrades_the_file_of_a_one_node_folder) {
    run_on(node, [this](Fiber& fiber) {
        ASSERT_TRUE(disk.make_folders(fiber, "replica").ok());
        const auto file = disk.open(fiber, PATH, OpenMode::CREATE).value();
        const ByteVector bytes = file_of(1, "0002ab0000000000000000000000000000000000000000000007");
        const ByteSpan part(bytes);
        ASSERT_TRUE(file->write_at(fiber, 0, {&part, 1}).ok());
    });
    open(1);
    EXPECT_FALSE(store->is_blank());
    EXPECT_EQ(store->installed_epoch(), LeaderEpoch(7));
    run_on(node,
           [this](Fiber& fiber) { ASSERT_TRUE(store->promise(fiber, LeaderEpoch(8), SELF).ok()); });
    EXPECT_EQ((*disk.durable_read(PATH))[4], std::byte{2});
    EXPECT_EQ(durable()->installed_epoch, LeaderEpoch(7));
}

TEST_F(PromiseStoreTest, does_not_open_the_file_of_another_node) {
    join();
    run_on(node, [this](Fiber& fiber) {
        EXPECT_TRUE(PromiseStore::open(fiber, disk, OTHER, 3).is(ErrorCode::INVALID_CONFIG));
    });
}

// Alone it would lead at once, and what it took would win over what the others had acknowledged.
TEST_F(PromiseStoreTest, does_not_open_the_file_of_a_cluster_of_another_size) {
    join();
    run_on(node, [this](Fiber& fiber) {
        const auto opened = PromiseStore::open(fiber, disk, SELF, 1);
        EXPECT_TRUE(opened.is(ErrorCode::INVALID_CONFIG));
        EXPECT_NE(opened.error().to_string().find("one of 3 nodes, but peers names 1"),
                  std::string::npos);
    });
}

}  // namespace
}  // namespace mortar
