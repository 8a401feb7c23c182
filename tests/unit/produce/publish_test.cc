#include "core/produce/publish.h"

#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "tests/unit/produce/fakes.h"
#include "tests/unit/replica/sole_node.h"

namespace mortar {
namespace {

using testing::Answer;
using testing::decode_answers;
using testing::FakeWorld;
using testing::NO_ERROR;

constexpr TopicId ORDERS{1};

// One topic with two partitions, and a connection's answers.
struct PublishWorld : FakeWorld {
    PublishWorld() {
        table.set_replication(&sole_node);
        metadata.state.apply({MutationId(1), LeaderEpoch(1), 0, TopicCreated{"orders", 2}});
        in_fiber([this](Fiber& fiber) {
            for (const auto& [id, topic] : metadata.state.topics())
                EXPECT_TRUE(table.open_topic(fiber, topic).ok());
        });
        publisher.start(background);
        reconnect();
        scheduler.run_all(clock.time);
    }
    ~PublishWorld() { scheduler.kill_all(); }

    Publisher::Term term() {
        Publisher::Term term;
        term.leader_epoch = LeaderEpoch(9);
        term.check_append = [this](const Partition&) -> Result<void> {
            if (append_error) return make_error(*append_error);
            return {};
        };
        term.on_overdue = [this](const Partition& late) { overdue.push_back(late.key()); };
        return term;
    }
    void reconnect() {
        outbox = std::make_unique<Outbox>();
        queue = std::make_shared<ReplyQueue>(*outbox);
    }
    void pub(std::uint64_t producer, std::uint64_t seq, std::string_view value = "v",
             PartitionIndex partition = {}, std::string_view key = {}) {
        wire::Pub request;
        request.topic_id = ORDERS;
        request.partition = partition;
        request.producer_id = ProducerId(producer);
        request.producer_seq = ProducerSeq(seq);
        request.key = as_byte_span(key);
        request.value = as_byte_span(value);
        pub(request);
    }
    void pub(const wire::Pub& request) {
        publisher.handle_pub(request, queue->open(wire::Op::PUB, request.value.size()));
    }
    std::vector<Answer> answers() {
        ByteVector bytes;
        for (const Outbox::Part& part : outbox->take()) {
            const ByteSpan view = part.view();
            bytes.insert(bytes.end(), view.begin(), view.end());
        }
        outbox->done_writing(bytes.size());
        return decode_answers(bytes);
    }
    Answer only_answer() {
        std::vector<Answer> all = answers();
        EXPECT_EQ(all.size(), 1u);
        return all.empty() ? Answer{} : all.front();
    }
    testing::FakeLog& fake_log(std::string folder = "topics/1/0") { return *logs.logs.at(folder); }

    Group background{scheduler};
    PartitionTable table{env, [this](Fiber& fiber, const std::string& folder, const std::string&) {
                             return logs.open(fiber, folder);
                         }};
    SoleNode sole_node;
    std::optional<ErrorCode> append_error;  // what the term says of every log
    std::vector<PartitionKey> overdue;      // what the term was told
    Publisher publisher{env, metadata, table, term()};
    std::unique_ptr<Outbox> outbox;
    std::shared_ptr<ReplyQueue> queue;
};

TEST(Publish, answers_ok_only_after_the_flush) {
    PublishWorld world;
    world.pub(5, 1, "hello", PartitionIndex(0), "k");
    EXPECT_TRUE(world.answers().empty());
    world.fake_log().flush();
    const Answer answer = world.only_answer();
    EXPECT_EQ(answer.code, NO_ERROR);
    EXPECT_EQ(answer.pub.sequence, Sequence(1));
    EXPECT_EQ(answer.pub.durability, wire::Durability::LOCAL);
    EXPECT_EQ(answer.pub.leader_epoch, LeaderEpoch(9));
    EXPECT_EQ(answer.pub.commit_seq, Sequence(1));
    EXPECT_EQ(answer.pub.result_flags, 0);
    const testing::StoredRecord& stored = world.logs.disks["topics/1/0"].records.at(0);
    EXPECT_EQ(as_string_view(stored.value), "hello");
    EXPECT_EQ(as_string_view(stored.key), "k");
    EXPECT_EQ(stored.record.producer_id, ProducerId(5));
    EXPECT_EQ(stored.record.leader_epoch, LeaderEpoch(9));
    EXPECT_EQ(stored.record.kind, RecordKind::CLIENT);
}

TEST(Contract, P4_commit_seq_is_at_least_sequence) {
    PublishWorld world;
    for (std::uint64_t seq = 1; seq <= 3; ++seq)
        world.pub(5, seq);
    world.fake_log().flush(2);
    std::vector<Answer> answers = world.answers();
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[0].pub.sequence, Sequence(1));
    EXPECT_EQ(answers[0].pub.commit_seq, Sequence(2));
    world.fake_log().flush();
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(3));
}

TEST(Contract, P2_duplicate_gets_the_original_sequence_once_committed) {
    PublishWorld world;
    world.pub(5, 1);
    world.pub(5, 1);  // retry before the commit
    EXPECT_TRUE(world.answers().empty());
    world.fake_log().flush();
    std::vector<Answer> answers = world.answers();
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[1].pub.sequence, Sequence(1));
    EXPECT_EQ(answers[1].pub.result_flags, wire::RESULT_FLAG_DEDUPLICATED);
    world.pub(5, 1);  // and after it
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(1));
    EXPECT_EQ(world.logs.disks["topics/1/0"].records.size(), 1u);
}

TEST(Contract, P4_a_retry_does_not_wait_for_what_is_newer_than_its_original) {
    PublishWorld world;
    world.pub(5, 1);
    world.pub(6, 1);
    const std::unique_ptr<Outbox> first_connection = std::move(world.outbox);
    world.reconnect();
    world.pub(5, 1);
    world.fake_log().flush(1);
    const Answer answer = world.only_answer();
    EXPECT_EQ(answer.pub.sequence, Sequence(1));
    EXPECT_EQ(answer.pub.result_flags, wire::RESULT_FLAG_DEDUPLICATED);
}

TEST(Contract, R2_a_retry_keeps_nobody_waiting_beyond_two_seconds) {
    PublishWorld world;
    world.pub(5, 1);
    world.pass(milliseconds(1000));
    world.pub(6, 1);
    world.pass(milliseconds(500));
    world.pub(5, 1);  // its place is before that of (6, 1), its time would be later
    world.pass(milliseconds(500));
    EXPECT_EQ(world.only_answer().code, ErrorCode::READ_ONLY_DEGRADED);
    world.pass(milliseconds(1000));
    EXPECT_EQ(world.answers().size(), 2u);
}

TEST(Contract, P2_gap_is_0010_and_expired_is_0011) {
    PublishWorld world;
    world.pub(5, 2);
    EXPECT_EQ(world.only_answer().code, ErrorCode::SEQ_EXPIRED);
    world.pub(5, 1);
    world.pub(5, 3);
    world.fake_log().flush();
    std::vector<Answer> answers = world.answers();
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[1].code, ErrorCode::SEQ_GAP);
    EXPECT_EQ(answers[1].text, "the next producer_seq here is 2: send what is missing first");
}

TEST(Contract, P1_broker_routes_by_key_or_round_robin) {
    PublishWorld world;
    const std::string_view key = "customer-17";
    const auto expected = static_cast<std::uint16_t>(fnv1a32(as_byte_span(key)) % 2);
    for (int i = 0; i < 3; ++i)
        world.pub(0, 0, "v", ANY_PARTITION, key);
    const auto& of_key = world.logs.disks["topics/1/" + std::to_string(expected)].records;
    EXPECT_EQ(of_key.size(), 3u);
    const std::size_t before[] = {world.logs.disks["topics/1/0"].records.size(),
                                  world.logs.disks["topics/1/1"].records.size()};
    for (int i = 0; i < 4; ++i)
        world.pub(0, 0, "v", ANY_PARTITION);
    EXPECT_EQ(world.logs.disks["topics/1/0"].records.size(), before[0] + 2);
    EXPECT_EQ(world.logs.disks["topics/1/1"].records.size(), before[1] + 2);
    world.pub(5, 1, "v", ANY_PARTITION);
    for (auto& [folder, log] : world.logs.logs)
        log->flush();
    EXPECT_EQ(world.answers().back().code, ErrorCode::UNKNOWN_PARTITION);
}

TEST(Contract, P5_and_the_rules_of_a_request) {
    PublishWorld world;
    const auto code_of = [&world](const wire::Pub& request) {
        world.pub(request);
        const ErrorCode code = world.only_answer().code;
        world.reconnect();  // some of these close
        return code;
    };
    wire::Pub good;
    good.topic_id = ORDERS;
    wire::Pub request = good;
    request.topic_id = TopicId(77);
    EXPECT_EQ(code_of(request), ErrorCode::UNKNOWN_TOPIC);
    request = good;
    request.partition = PartitionIndex(2);
    EXPECT_EQ(code_of(request), ErrorCode::UNKNOWN_PARTITION);
    request = good;
    request.topic_id = TopicId(2);
    EXPECT_EQ(code_of(request), ErrorCode::INVALID_TOPIC);  // contract L1
    request = good;
    request.producer_seq = ProducerSeq(1);
    EXPECT_EQ(code_of(request), ErrorCode::PRODUCER_SEQ_INVALID);
    request = good;
    request.producer_id = ProducerId(1);
    EXPECT_EQ(code_of(request), ErrorCode::PRODUCER_SEQ_INVALID);
    request = good;
    request.flags = wire::PUB_FLAG_REPLAY;
    EXPECT_EQ(code_of(request), ErrorCode::MALFORMED_PAYLOAD);
    const std::string long_key(wire::MAX_KEY_LEN + 1, 'k');
    request = good;
    request.key = as_byte_span(long_key);
    EXPECT_EQ(code_of(request), ErrorCode::MALFORMED_PAYLOAD);
    const std::string long_value(wire::MAX_VALUE_LEN + 1, 'v');
    request = good;
    request.value = as_byte_span(long_value);
    EXPECT_EQ(code_of(request), ErrorCode::MALFORMED_PAYLOAD);
    world.metadata.quarantined = true;
    request = good;
    request.topic_id = TopicId(77);
    EXPECT_EQ(code_of(request), ErrorCode::METADATA_QUARANTINED);  // covers DUR-02
    EXPECT_TRUE(world.logs.disks["topics/1/0"].records.empty());
}

TEST(Contract, R2_slow_flush_is_answered_6002_and_the_retry_gets_the_original) {
    PublishWorld world;
    world.pub(5, 1);
    world.pass(milliseconds(1000));
    world.pub(5, 2);
    world.pass(milliseconds(999));
    EXPECT_TRUE(world.answers().empty());
    world.pass(milliseconds(1));
    EXPECT_EQ(world.only_answer().code, ErrorCode::READ_ONLY_DEGRADED);
    world.pass(milliseconds(1000));
    EXPECT_EQ(world.only_answer().code, ErrorCode::READ_ONLY_DEGRADED);
    world.fake_log().flush();
    EXPECT_TRUE(world.answers().empty());  // one answer a request
    world.pub(5, 1);
    const Answer answer = world.only_answer();
    EXPECT_EQ(answer.pub.sequence, Sequence(1));
    EXPECT_EQ(answer.pub.result_flags, wire::RESULT_FLAG_DEDUPLICATED);
    // The next one has its own two seconds.
    world.pub(5, 3);
    world.pass(milliseconds(1999));
    EXPECT_TRUE(world.answers().empty());
    world.pass(milliseconds(1));
    EXPECT_EQ(world.only_answer().code, ErrorCode::READ_ONLY_DEGRADED);
}

TEST(Publish, asks_the_term_before_anything_new_is_appended) {
    PublishWorld world;
    world.pub(5, 1);
    world.fake_log().flush();
    world.pub(5, 2);
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(1));
    const std::unique_ptr<Outbox> first_connection = std::move(world.outbox);
    world.reconnect();
    world.append_error = ErrorCode::QUORUM_LOST;
    world.pub(5, 3);
    EXPECT_EQ(world.only_answer().code, ErrorCode::QUORUM_LOST);
    world.pub(5, 1);  // it is committed
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(1));
    world.pub(5, 2);  // it waits
    EXPECT_TRUE(world.answers().empty());
    EXPECT_TRUE(world.overdue.empty());
    world.pass(seconds(2));
    EXPECT_EQ(world.only_answer().code, ErrorCode::READ_ONLY_DEGRADED);
    EXPECT_EQ(world.overdue, (std::vector{PartitionKey{ORDERS, PartitionIndex(0)}}));
    world.append_error.reset();
    world.fake_log().flush();
    world.pub(5, 3);
    world.fake_log().flush();
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(3));
}

TEST(Publish, comes_back_by_itself_after_the_log_failed) {
    PublishWorld world;
    world.pub(5, 1);
    world.fake_log().flush();
    world.pub(5, 2);
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(1));
    world.fake_log().fail();
    EXPECT_EQ(world.only_answer().code,
              ErrorCode::READ_ONLY_DEGRADED);  // was pending: outcome unknown
    world.pub(5, 3);
    EXPECT_EQ(world.only_answer().code, ErrorCode::QUORUM_LOST);  // not executed
    world.pub(5, 1);
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(1));  // committed stays committed
    world.pub(5, 2);
    EXPECT_EQ(world.only_answer().code, ErrorCode::READ_ONLY_DEGRADED);  // still unknown
    world.logs.open_error = make_error(ErrorCode::IO_ERROR, "still broken");
    world.pass(milliseconds(150));
    EXPECT_TRUE(world.log.saw("partition_reopen_failed"));
    world.logs.open_error.reset();
    world.pass(milliseconds(300));
    EXPECT_TRUE(world.log.saw("partition_reopened"));
    world.pub(5, 2);  // it was lost with the failed log, so it is new
    world.fake_log().flush();
    const Answer answer = world.only_answer();
    EXPECT_EQ(answer.pub.sequence, Sequence(2));
    EXPECT_EQ(answer.pub.result_flags, 0);
}

TEST(Publish, quarantines_a_partition_whose_log_came_back_without_committed_records) {
    PublishWorld world;
    world.pub(5, 1);
    world.fake_log().flush();
    world.fake_log().fail();
    world.logs.disks["topics/1/0"].flushed_count = 0;
    world.pass(milliseconds(200));
    world.answers();
    world.pub(5, 2);
    EXPECT_EQ(world.only_answer().code, ErrorCode::DIVERGENT_COMMITTED);
    EXPECT_EQ(world.table.find({ORDERS, PartitionIndex(0)})->commit_seq(),
              Sequence(1));  // never back
    EXPECT_EQ(world.table.unserved_count(), 1u);
}

TEST(Publish, refuses_a_quarantined_partition_and_serves_its_neighbour) {
    PublishWorld world;
    world.metadata.state.apply({MutationId(2), LeaderEpoch(1), 0, TopicCreated{"other", 2}});
    world.logs.faulty_folder = "topics/3/0";
    world.in_fiber([&world](Fiber& fiber) {
        EXPECT_TRUE(world.table.open_topic(fiber, *world.metadata.state.find_topic("other")).ok());
    });
    wire::Pub request;
    request.topic_id = TopicId(3);
    world.pub(request);
    EXPECT_EQ(world.only_answer().code, ErrorCode::DIVERGENT_COMMITTED);
    request.partition = PartitionIndex(1);
    world.pub(request);
    world.fake_log("topics/3/1").flush();
    EXPECT_EQ(world.only_answer().code, NO_ERROR);
}

TEST(Contract, R1_4001_only_when_the_budget_of_unflushed_bytes_is_full) {
    PublishWorld world;
    const std::string value(16u << 20, 'v');
    wire::Pub request;
    request.topic_id = ORDERS;
    request.value = ByteSpan(as_byte_span(value)).first(wire::MAX_VALUE_LEN);
    for (int i = 0; i < 4; ++i)
        world.pub(request);
    EXPECT_TRUE(world.answers().empty());
    world.pub(request);
    world.fake_log().flush();
    std::vector<Answer> answers = world.answers();
    ASSERT_EQ(answers.size(), 5u);
    EXPECT_EQ(answers[3].code, NO_ERROR);
    EXPECT_EQ(answers[4].code, ErrorCode::BACKPRESSURE);
    EXPECT_EQ(world.table.unflushed_bytes(), 0u);
    world.pub(request);
    world.fake_log().flush();
    EXPECT_EQ(world.only_answer().code, NO_ERROR);
}

// covers DSK-02, DSK-03
TEST(Publish, refuses_on_a_full_disk_and_goes_on_when_space_is_back) {
    PublishWorld world;
    world.pub(5, 1);
    world.fake_log().flush();
    world.answers();
    world.disk.free_space = {FREE_SPACE_BYTES_MIN - 1, 1u << 30};
    world.pass(SPACE_SAMPLE_INTERVAL);
    world.pub(5, 2);
    EXPECT_EQ(world.only_answer().code, ErrorCode::STORAGE_HIGH_WATERMARK);
    world.pub(5, 1);
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(1));
    world.disk.free_space = {FREE_SPACE_BYTES_MIN, 1u << 30};
    world.pass(SPACE_SAMPLE_INTERVAL);
    world.pub(5, 2);
    world.fake_log().flush();
    EXPECT_EQ(world.only_answer().pub.sequence, Sequence(2));
}

TEST(Admission, space_is_low_below_the_larger_of_5_percent_and_256_mib) {
    EXPECT_TRUE(is_space_low({FREE_SPACE_BYTES_MIN - 1, 1u << 30}));
    EXPECT_FALSE(is_space_low({FREE_SPACE_BYTES_MIN, 1u << 30}));
    EXPECT_TRUE(is_space_low({49ull << 30, 1000ull << 30}));
    EXPECT_FALSE(is_space_low({50ull << 30, 1000ull << 30}));
}

TEST(Contract, T4_pending_pubs_of_a_deleted_topic_get_0008) {
    PublishWorld world;
    world.pub(5, 1);
    world.table.retire_topic(ORDERS);
    EXPECT_EQ(world.only_answer().code, ErrorCode::UNKNOWN_TOPIC);
    EXPECT_EQ(world.table.find({ORDERS, PartitionIndex(0)}), nullptr);
    world.fake_log().flush();  // what was under way still ends
    world.in_fiber(
        [&world](Fiber& fiber) { EXPECT_TRUE(world.table.remove_topic(fiber, ORDERS).ok()); });
    EXPECT_EQ(world.table.unflushed_bytes(), 0u);
    world.pass(seconds(3));  // nothing is overdue any more
    EXPECT_TRUE(world.answers().empty());
}

TEST(PartitionTable, does_not_serve_a_topic_that_was_deleted_while_it_was_opened) {
    PublishWorld world;
    world.metadata.state.apply({MutationId(2), LeaderEpoch(1), 0, TopicCreated{"other", 2}});
    const Topic other = *world.metadata.state.find_topic("other");
    world.logs.is_opening_stalled = true;
    bool opened = false;
    world.in_fiber([&](Fiber& fiber) {
        EXPECT_TRUE(world.table.open_topic(fiber, other).ok());
        opened = true;
    });
    EXPECT_FALSE(opened);
    world.table.retire_topic(other.topic_id);
    world.logs.is_opening_stalled = false;
    world.logs.opening_goes_on.notify_all();
    world.scheduler.run_all(world.clock.time);
    EXPECT_TRUE(opened);
    EXPECT_EQ(world.table.partition_count(other.topic_id), 0);
    EXPECT_EQ(world.table.opened_count(), 4u);
    world.in_fiber(
        [&](Fiber& fiber) { EXPECT_TRUE(world.table.remove_topic(fiber, other.topic_id).ok()); });
}

TEST(PartitionTable, opens_all_partitions_of_a_topic_or_none) {
    PublishWorld world;
    world.metadata.state.apply({MutationId(2), LeaderEpoch(1), 0, TopicCreated{"other", 2}});
    world.logs.open_error = make_error(ErrorCode::IO_ERROR, "no");
    world.in_fiber([&world](Fiber& fiber) {
        EXPECT_TRUE(world.table.open_topic(fiber, *world.metadata.state.find_topic("other"))
                        .is(ErrorCode::IO_ERROR));
    });
    EXPECT_EQ(world.table.partition_count(TopicId(3)), 0);
    wire::Pub request;
    request.topic_id = TopicId(3);
    world.pub(request);
    EXPECT_EQ(world.only_answer().code, ErrorCode::QUORUM_LOST);  // exists, not served yet
    EXPECT_EQ(world.table.opened_count(), 4u);                    // two partitions and their twins
}

}  // namespace
}  // namespace mortar
