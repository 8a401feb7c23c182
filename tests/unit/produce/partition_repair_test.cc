// A damaged partition that is repaired in place: out of service before, in service after, without a restart.
#include <gtest/gtest.h>

#include "core/produce/partition.h"
#include "tests/unit/log/fake_disk.h"
#include "tests/unit/replica/sole_node.h"

namespace mortar {
namespace {

using testing::DiskWorld;
using testing::FakeDisk;

constexpr PartitionKey KEY{TopicId(1), PartitionIndex(0)};
constexpr std::uint64_t RECORDS = 30;
const std::string FIRST_SEGMENT = "topics/1/0/00000000000000000001.seg";

struct RepairWorld {
    RepairWorld() {
        options.segment_max_bytes = 2000;
        topic.topic_id = KEY.topic_id;
        topic.partition_count = 1;
        table = std::make_unique<PartitionTable>(life.env, options);
        table->set_replication(&replica);
        EXPECT_TRUE(run([&](Fiber& fiber) {
            ASSERT_TRUE(table->open_topic(fiber, topic).ok());
            for (std::uint64_t i = 1; i <= RECORDS; ++i)
                append(fiber, i);
            for (std::uint64_t i = 1; i <= RECORDS; ++i) {
                const auto one = partition().read_bytes(fiber, Sequence(i), Sequence(i), 1);
                peer.insert(peer.end(), one->parts.front().begin(), one->parts.front().end());
            }
        }));
        // Of the first record's value.
        life_disk().flip(FIRST_SEGMENT, SEGMENT_HEAD_BYTES + RECORD_FIXED_BYTES + 2);
    }
    ~RepairWorld() {
        life.manual.scheduler.kill_all();
        table = nullptr;
    }
    FakeDisk& life_disk() { return disk; }
    bool run(std::function<void(Fiber&)> body) { return life.run(std::move(body)); }
    Partition& partition() { return *table->find(KEY); }
    Record record_of(std::uint64_t i) {
        value.assign(100, 'v');
        Record record;
        record.producer_id = ProducerId(7);
        record.producer_seq = ProducerSeq(i);
        record.leader_epoch = LeaderEpoch(1);
        record.value = as_byte_span(value);
        return record;
    }
    void append(Fiber& fiber, std::uint64_t i) {
        ASSERT_TRUE(partition().append(record_of(i)).ok());
        while (partition().flushed() < partition().end().last)
            ASSERT_TRUE(partition().committed().wait(fiber).ok());
    }
    void meet_damage(Fiber& fiber) {
        ASSERT_TRUE(partition().scrub(fiber, Sequence(1), 1000).is(ErrorCode::CHECKSUM_MISMATCH));
    }
    FetchRecords fetch() {
        return [this](Fiber&, Sequence from, Sequence through) -> Result<ByteVector> {
            ++fetch_count;
            if (on_fetch) on_fetch();
            ByteVector given;
            for (ByteSpan rest(peer); !rest.empty();) {
                const Record record = parse_record(rest).value();
                const ByteSpan one = rest.first(record_bytes(record));
                rest = rest.subspan(one.size());
                if (record.sequence >= from && record.sequence <= through)
                    given.insert(given.end(), one.begin(), one.end());
            }
            return given;
        };
    }

    FakeDisk disk{1};
    DiskWorld life{disk};
    LogOptions options;
    Topic topic;
    std::string value;
    ByteVector peer;
    std::uint64_t fetch_count = 0;
    std::function<void()> on_fetch;
    SoleNode replica;
    std::unique_ptr<PartitionTable> table;
};

TEST(PartitionRepair, puts_it_back_into_service_with_all_it_had) {
    RepairWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.meet_damage(fiber);
        EXPECT_TRUE(world.partition().is_quarantined());
        EXPECT_EQ(world.table->unserved_count(), 1u);
        EXPECT_TRUE(world.partition().append(world.record_of(31)).is(ErrorCode::DAMAGED));
        const Sequence through = world.partition().damaged_part()->last;
        const Result<void> repaired = world.partition().repair(fiber, through, world.fetch());
        ASSERT_TRUE(repaired.ok()) << repaired.error().to_string();
        EXPECT_FALSE(world.partition().is_quarantined());
        EXPECT_FALSE(world.partition().is_uncertain());
        EXPECT_EQ(world.table->unserved_count(), 0u);
        EXPECT_EQ(world.partition().commit_seq(), Sequence(RECORDS));
        EXPECT_EQ(world.partition().readable_seq(), Sequence(RECORDS));
        const auto first = world.partition().read(fiber, Sequence(1), Sequence(RECORDS), 1u << 20);
        ASSERT_TRUE(first.ok()) << first.error().to_string();
        world.append(fiber, 31);
        EXPECT_EQ(world.partition().end().last, Sequence(31));
        ProducerWindows expected;
        for (std::uint64_t i = 1; i <= 31; ++i)
            expected.on_record(ProducerId(7), ProducerSeq(i), Sequence(i));
        EXPECT_EQ(world.partition().windows().encode(Sequence(31)), expected.encode(Sequence(31)));
    }));
}

TEST(PartitionRepair, that_fails_leaves_it_out_of_service) {
    RepairWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.meet_damage(fiber);
        const Sequence through = world.partition().damaged_part()->last;
        const auto nobody = [](Fiber&, Sequence, Sequence) -> Result<ByteVector> {
            return make_error(ErrorCode::DAMAGED, "there too");
        };
        EXPECT_TRUE(world.partition().repair(fiber, through, nobody).is(ErrorCode::DAMAGED));
        EXPECT_TRUE(world.partition().is_quarantined());
        world.disk.fail_syncs = 1;
        EXPECT_FALSE(world.partition().repair(fiber, through, world.fetch()).ok());
        EXPECT_TRUE(world.partition().is_quarantined());
        EXPECT_TRUE(world.partition().repair(fiber, through, world.fetch()).ok());
        EXPECT_FALSE(world.partition().is_quarantined());
    }));
}

TEST(PartitionRepair, is_given_up_when_the_topic_is_deleted_meanwhile) {
    RepairWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.meet_damage(fiber);
        const Sequence through = world.partition().damaged_part()->last;
        world.on_fetch = [&] { world.table->retire_topic(KEY.topic_id); };
        EXPECT_TRUE(
            world.partition().repair(fiber, through, world.fetch()).is(ErrorCode::LOG_CLOSED));
        EXPECT_TRUE(world.table->remove_topic(fiber, KEY.topic_id).ok());
        EXPECT_TRUE(world.disk.paths().empty());
    }));
}

TEST(PartitionRepair, is_one_at_a_time) {
    RepairWorld world;
    ASSERT_TRUE(world.run([&](Fiber& fiber) {
        world.meet_damage(fiber);
        const Sequence through = world.partition().damaged_part()->last;
        const auto twice = [&](Fiber& own, Sequence from, Sequence last) {
            EXPECT_TRUE(
                world.partition().repair(own, through, world.fetch()).is(ErrorCode::LOG_CLOSED));
            return world.fetch()(own, from, last);
        };
        EXPECT_TRUE(world.partition().repair(fiber, through, twice).ok());
        EXPECT_FALSE(world.partition().is_quarantined());
    }));
}

}  // namespace
}  // namespace mortar
