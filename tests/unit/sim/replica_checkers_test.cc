// The checkers of several brokers: each gets a violating history and one that only looks like it.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "core/log/record.h"
#include "core/log/segment.h"
#include "sim/checker.h"

namespace mortar::sim {
namespace {

constexpr PartitionKey KEY{TopicId(1), PartitionIndex(0)};
constexpr std::size_t BROKERS = 3;

class ReplicaCheckers : public ::testing::Test {
  protected:
    ReplicaCheckers() {
        for (std::size_t i = 0; i < BROKERS; ++i)
            view_.durable.push_back(image_of(i));
        checkers_ = make_checkers(view_, violations_);
        for (auto& checker : make_replica_checkers(view_, violations_))
            checkers_.push_back(std::move(checker));
    }
    Checker& checker(int number) {
        const auto found = std::find_if(checkers_.begin(), checkers_.end(),
                                        [&](const auto& each) { return each->number() == number; });
        EXPECT_NE(found, checkers_.end());
        return **found;
    }
    testing::AssertionResult fired(int number) {
        if (violations_.all().size() != 1)
            return testing::AssertionFailure() << violations_.all().size() << " violations";
        const Violation& only = violations_.all().front();
        if (only.checker != number || only.promise.empty() || only.seen.empty())
            return testing::AssertionFailure()
                   << only.checker << ": " << only.promise << ": " << only.seen;
        return testing::AssertionSuccess();
    }
    testing::AssertionResult clean(int number) {
        if (violations_.any()) return testing::AssertionFailure() << violations_.all().front().seen;
        if (checker(number).checks() == 0)
            return testing::AssertionFailure() << "it judged nothing";
        return testing::AssertionSuccess();
    }

    static ReplicaView leads(std::size_t broker, std::uint64_t epoch, std::int64_t lease_left_ms,
                             std::uint64_t life = 1) {
        const MonoTime now = MonoTime{} + seconds(10);
        return {broker, life, now, true, LeaderEpoch(epoch), now + milliseconds(lease_left_ms)};
    }
    static ReplicaView follows(std::size_t broker) {
        return {broker, 1, MonoTime{} + seconds(10), false, LeaderEpoch(9), {}};
    }
    using Records = std::map<std::uint64_t, SeenRecord>;
    static Records log_of(std::uint64_t count) {
        Records records;
        for (std::uint64_t s = 1; s <= count; ++s)
            records[s] = {s, 7, s, 1, s * 100};
        return records;
    }
    void compare(std::uint64_t commit_seq, const std::vector<Records>& copies) {
        std::vector<ReplicaLog> logs;
        for (std::size_t i = 0; i < copies.size(); ++i)
            logs.push_back({i, &copies[i]});
        checker(9).on_replica_logs(KEY, Sequence(commit_seq), logs);
    }

    // --- durable images
    Image image_of(std::size_t broker) {
        return {[this, broker](const std::string& folder) {
                    std::vector<std::string> names;
                    for (const auto& [path, bytes] : files_[broker]) {
                        if (path.starts_with(folder + "/"))
                            names.push_back(path.substr(folder.size() + 1));
                    }
                    return names;
                },
                [this, broker](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                    const auto found = files_[broker].find(path);
                    if (found == files_[broker].end() || offset >= found->second.size())
                        return ByteVector();
                    const ByteSpan rest =
                        ByteSpan(found->second).subspan(static_cast<std::size_t>(offset));
                    const ByteSpan part = rest.first(std::min<std::size_t>(rest.size(), count));
                    return ByteVector(part.begin(), part.end());
                }};
    }
    void make_durable(std::size_t broker, std::uint64_t sequence, std::string_view value) {
        ByteVector& file =
            files_[broker][partition_folder(1, 0) + "/" + segment_file_name(Sequence(1))];
        if (file.empty()) {
            const auto head = segment_head();
            file.assign(head.begin(), head.end());
        }
        Record made;
        made.sequence = Sequence(sequence);
        made.producer_id = ProducerId(7);
        made.producer_seq = ProducerSeq(sequence);
        made.value = as_byte_span(value);
        encode_record(file, made);
    }
    void answer(std::uint64_t sequence, std::string_view value,
                PartitionIndex asked = KEY.partition) {
        const ByteSpan bytes = as_byte_span(value);
        wire::PubResult result;
        result.sequence = result.commit_seq = Sequence(sequence);
        result.leader_epoch = LeaderEpoch(1);
        checker(1).on_pub_ok({1,
                              {KEY.topic_id, asked},
                              ProducerId(7),
                              ProducerSeq(sequence),
                              payload_digest(nullptr, 0, bytes.data(), bytes.size())},
                             result);
    }

    std::map<std::string, ByteVector> files_[BROKERS];
    Violations violations_{[] { return MonoTime{}; }};
    WorldView view_;
    std::vector<std::unique_ptr<Checker>> checkers_;
};

TEST_F(ReplicaCheckers, acked_durable_fires_when_only_one_of_three_holds_the_record) {
    make_durable(0, 1, "value");
    make_durable(1, 1, "other");
    answer(1, "value");
    EXPECT_TRUE(fired(1));
}

TEST_F(ReplicaCheckers, acked_durable_fires_when_no_one_partition_has_a_majority) {
    make_durable(2, 1, "value");
    answer(1, "value", ANY_PARTITION);
    EXPECT_TRUE(fired(1));
}

TEST_F(ReplicaCheckers, acked_durable_fires_when_a_copy_was_cut_again) {
    make_durable(0, 1, "value");
    make_durable(2, 1, "value");
    answer(1, "value");
    EXPECT_TRUE(clean(1));
    files_[2].clear();
    checker(1).on_log_rewritten(2, KEY, 1);
    answer(1, "value");
    EXPECT_TRUE(fired(1));
}

TEST_F(ReplicaCheckers, acked_durable_is_content_with_any_two_also_when_one_was_written_anew) {
    make_durable(0, 1, "value");
    make_durable(1, 1, "replaced later");
    make_durable(2, 1, "value");
    answer(1, "value");
    answer(1, "value", ANY_PARTITION);
    files_[0].clear();
    checker(1).on_log_rewritten(0, KEY, 1);
    files_[1].clear();
    make_durable(1, 1, "value");
    answer(1, "value");
    EXPECT_TRUE(clean(1));
}

TEST_F(ReplicaCheckers, acked_durable_counts_a_copy_that_rotted_since) {
    make_durable(0, 1, "value");
    view_.rotten.insert({1, KEY});
    answer(1, "value");
    EXPECT_TRUE(clean(1));
    files_[0].clear();
    checker(1).on_log_rewritten(0, KEY, 1);
    answer(1, "value");
    EXPECT_TRUE(fired(1));
}

TEST_F(ReplicaCheckers, one_leader_fires_when_two_lead_in_one_epoch) {
    checker(7).on_replica_views({leads(0, 3, -1), follows(1)});
    checker(7).on_replica_views({follows(0), leads(1, 3, 500)});
    EXPECT_TRUE(fired(7));
}

TEST_F(ReplicaCheckers, one_leader_fires_when_a_restarted_leader_resumes_its_epoch) {
    checker(7).on_replica_views({leads(0, 3, 500)});
    checker(7).on_replica_views({leads(0, 3, 500, 2)});
    EXPECT_TRUE(fired(7));
}

TEST_F(ReplicaCheckers, one_leader_fires_when_two_leases_are_valid_at_one_instant) {
    checker(7).on_replica_views({leads(0, 3, 1), leads(1, 4, 900)});
    EXPECT_TRUE(fired(7));
}

TEST_F(ReplicaCheckers, one_leader_lets_a_deposed_one_without_lease_believe_what_it_likes) {
    checker(7).on_replica_views({leads(0, 3, 500), follows(1), follows(2)});
    checker(7).on_replica_views({leads(0, 3, 0), leads(1, 4, 900)});
    checker(7).on_replica_views({leads(0, 5, 900, 2), leads(1, 4, -20)});
    EXPECT_TRUE(clean(7));
}

TEST_F(ReplicaCheckers, one_leader_does_not_judge_leases_when_clocks_are_beyond_the_margin) {
    view_.clocks_keep_margin = false;
    checker(7).on_replica_views({leads(0, 3, 1), leads(1, 4, 900)});
    EXPECT_TRUE(clean(7));
    checker(7).on_replica_views({leads(2, 4, 900)});
    EXPECT_TRUE(fired(7)) << "an epoch has one leader all the same";
}

TEST_F(ReplicaCheckers, never_back_fires_when_a_broker_takes_office_in_an_older_epoch) {
    checker(8).on_replica_views({leads(0, 5, 500), leads(1, 4, -1)});
    checker(8).on_replica_views({leads(0, 4, 500, 2)});
    EXPECT_TRUE(fired(8));
}

TEST_F(ReplicaCheckers,
       never_back_lets_an_old_leader_tell_on_another_connection_what_it_committed) {
    wire::PubResult result;
    result.sequence = result.commit_seq = Sequence(1);
    result.leader_epoch = LeaderEpoch(5);
    checker(8).on_pub_ok({1, KEY, ProducerId(7), ProducerSeq(1), 100}, result);
    result.leader_epoch = LeaderEpoch(4);
    checker(8).on_pub_ok({2, KEY, ProducerId(7), ProducerSeq(1), 100}, result);
    EXPECT_TRUE(clean(8));
    checker(8).on_pub_ok({1, KEY, ProducerId(7), ProducerSeq(1), 100}, result);
    EXPECT_TRUE(fired(8));
}

TEST_F(ReplicaCheckers, replicas_equal_fires_when_a_committed_record_differs) {
    Records other = log_of(3);
    other[2].digest = 1;
    compare(3, {log_of(3), log_of(3), other});
    EXPECT_TRUE(fired(9));
}

TEST_F(ReplicaCheckers, replicas_equal_fires_when_only_the_epoch_of_a_record_differs) {
    Records other = log_of(3);
    other[3].leader_epoch = 2;
    compare(3, {log_of(3), log_of(3), other});
    EXPECT_TRUE(fired(9));
}

TEST_F(ReplicaCheckers, replicas_equal_fires_when_a_committed_record_is_missing) {
    compare(3, {log_of(3), log_of(2), log_of(3)});
    EXPECT_TRUE(fired(9));
}

TEST_F(ReplicaCheckers, replicas_equal_forgives_what_is_not_committed) {
    Records longer = log_of(4);
    longer[4].digest = 1;
    compare(3, {log_of(4), longer, log_of(3)});
    EXPECT_TRUE(clean(9));
}

}  // namespace
}  // namespace mortar::sim
