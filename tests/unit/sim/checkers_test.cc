// A checker that has never fired is not trusted: each gets a violating history and one that only looks like it.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/log/record.h"
#include "core/log/segment.h"
#include "sim/checker.h"

namespace mortar::sim {
namespace {

constexpr PartitionKey KEY{TopicId(1), PartitionIndex(0)};
const GroupPartition WHERE{"g", KEY};

class CheckerFixture : public ::testing::Test {
  protected:
    Checker& checker(int number) {
        const auto found = std::find_if(checkers_.begin(), checkers_.end(),
                                        [&](const auto& each) { return each->number() == number; });
        EXPECT_NE(found, checkers_.end());
        return **found;
    }
    // The checker fired, and no other one was asked.
    testing::AssertionResult fired(int number) {
        if (violations_.all().size() != 1)
            return testing::AssertionFailure() << violations_.all().size() << " violations";
        const Violation& only = violations_.all().front();
        if (only.checker != number || only.promise.empty() || only.seen.empty())
            return testing::AssertionFailure()
                   << only.checker << ": " << only.promise << ": " << only.seen;
        return testing::AssertionSuccess();
    }
    // It judged, and found nothing.
    testing::AssertionResult clean(int number) {
        if (violations_.any()) return testing::AssertionFailure() << violations_.all().front().seen;
        if (checker(number).checks() == 0)
            return testing::AssertionFailure() << "it judged nothing";
        return testing::AssertionSuccess();
    }

    static PubRequest pub(std::uint64_t producer_seq, std::uint64_t digest, ConnId conn = 1) {
        return {conn, KEY, ProducerId(7), ProducerSeq(producer_seq), digest};
    }
    static wire::PubResult result(std::uint64_t sequence) {
        wire::PubResult result;
        result.sequence = result.commit_seq = Sequence(sequence);
        result.leader_epoch = LeaderEpoch(1);
        return result;
    }
    static SeenRecord record(std::uint64_t sequence, std::uint64_t producer_seq,
                             std::uint64_t digest) {
        return {sequence, 7, producer_seq, 1, digest};
    }
    static MsgSent msg(std::uint64_t sequence, std::uint64_t delivery_id,
                       std::uint16_t attempt = 1) {
        MsgSent sent;
        sent.where = WHERE;
        sent.sequence = Sequence(sequence);
        sent.delivery_id = DeliveryId(delivery_id);
        sent.attempt = attempt;
        sent.digest = sequence * 100;
        return sent;
    }
    static GroupView group(std::uint64_t ack_floor, std::uint64_t last,
                           std::uint64_t in_flight = 0) {
        GroupView view;
        view.group = WHERE.group;
        view.topic_id = KEY.topic_id;
        view.start_after = {Sequence(0)};
        Delivery::PartitionState state;
        state.partition = KEY.partition;
        state.ack_floor = Sequence(ack_floor);
        state.last_seq = Sequence(last);
        state.in_flight = state.unsettled = in_flight;
        state.next_first = Sequence(ack_floor + in_flight + 1);
        view.partitions = {state};
        return view;
    }
    static std::uint16_t code_of(ErrorCode code) { return static_cast<std::uint16_t>(code); }
    static void show_log(Checker& checker, const std::vector<SeenRecord>& records) {
        std::map<std::uint64_t, SeenRecord> by_sequence;
        for (const SeenRecord& each : records)
            by_sequence.emplace(each.sequence, each);
        checker.on_log_view(KEY, by_sequence, records);
    }

    std::map<std::string, ByteVector> durable_files_;
    Violations violations_{[] { return MonoTime{}; }};
    WorldView view_{{Image{
        [this](const std::string& folder) {
            std::vector<std::string> names;
            for (const auto& [path, bytes] : durable_files_) {
                if (path.starts_with(folder + "/")) names.push_back(path.substr(folder.size() + 1));
            }
            return names;
        },
        [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
            const auto found = durable_files_.find(path);
            if (found == durable_files_.end() || offset >= found->second.size())
                return ByteVector();
            const ByteSpan rest = ByteSpan(found->second).subspan(static_cast<std::size_t>(offset));
            const ByteSpan part = rest.first(std::min<std::size_t>(rest.size(), count));
            return ByteVector(part.begin(), part.end());
        }}}};
    std::vector<std::unique_ptr<Checker>> checkers_ = make_checkers(view_, violations_);
};

// --- 1

class AckedDurable : public CheckerFixture {
  protected:
    static constexpr const char* VALUE = "value";
    static std::uint64_t digest_of(std::string_view value) {
        const ByteSpan bytes = as_byte_span(value);
        return payload_digest(nullptr, 0, bytes.data(), bytes.size());
    }
    // What stands in the durable image: one record with this sequence.
    void make_durable(std::uint64_t sequence, std::string_view value, std::uint16_t partition = 0) {
        ByteVector& file =
            durable_files_[partition_folder(1, partition) + "/" + segment_file_name(Sequence(1))];
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
};

TEST_F(AckedDurable, fires_when_the_durable_image_is_empty) {
    checker(1).on_pub_ok(pub(1, digest_of(VALUE)), result(1));
    EXPECT_TRUE(fired(1));
}

TEST_F(AckedDurable, fires_when_the_durable_record_holds_other_bytes) {
    make_durable(1, "other");
    checker(1).on_pub_ok(pub(1, digest_of(VALUE)), result(1));
    EXPECT_TRUE(fired(1));
}

TEST_F(AckedDurable, fires_when_the_record_was_there_in_an_earlier_life_only) {
    make_durable(1, VALUE);
    checker(1).on_pub_ok(pub(1, digest_of(VALUE)), result(1));
    ASSERT_TRUE(clean(1));
    durable_files_.clear();
    checker(1).on_broker_down();
    checker(1).on_pub_ok(pub(1, digest_of(VALUE)), result(1));
    EXPECT_TRUE(fired(1));
}

TEST_F(AckedDurable, is_content_with_a_record_that_became_durable_just_before) {
    make_durable(1, VALUE);
    checker(1).on_pub_ok(pub(1, digest_of(VALUE)), result(1));
    make_durable(2, "second");
    checker(1).on_pub_ok(pub(2, digest_of("second")), result(2));
    EXPECT_TRUE(clean(1));
    EXPECT_EQ(checker(1).checks(), 2u);
}

TEST_F(AckedDurable, looks_in_every_partition_when_the_broker_chose_it) {
    PubRequest any = pub(1, digest_of(VALUE));
    any.asked.partition = ANY_PARTITION;
    make_durable(1, VALUE, 3);
    checker(1).on_pub_ok(any, result(1));
    ASSERT_TRUE(clean(1));
    any.digest = digest_of("nowhere");
    checker(1).on_pub_ok(any, result(1));
    EXPECT_TRUE(fired(1));
}

// --- 2

class AckedKept : public CheckerFixture {};

TEST_F(AckedKept, fires_when_an_acknowledged_record_is_gone) {
    checker(2).on_pub(pub(1, 100));
    checker(2).on_pub_ok(pub(1, 100), result(1));
    show_log(checker(2), {});
    EXPECT_TRUE(fired(2));
}

TEST_F(AckedKept, fires_when_an_acknowledged_record_was_altered) {
    checker(2).on_pub(pub(1, 100));
    checker(2).on_pub_ok(pub(1, 100), result(1));
    checker(2).on_pub(pub(2, 200));
    show_log(checker(2), {record(1, 1, 200)});
    EXPECT_TRUE(fired(2));
}

TEST_F(AckedKept, fires_when_a_refused_record_appears) {
    checker(2).on_pub(pub(1, 100));
    checker(2).on_pub_error(pub(1, 100), code_of(ErrorCode::SEQ_GAP));
    show_log(checker(2), {record(1, 1, 100)});
    EXPECT_TRUE(fired(2));
}

TEST_F(AckedKept, fires_when_one_sequence_is_acknowledged_for_two_payloads) {
    checker(2).on_pub_ok(pub(1, 100), result(1));
    checker(2).on_pub_ok(pub(2, 200), result(1));
    EXPECT_TRUE(fired(2));
}

TEST_F(AckedKept, accepts_what_was_acknowledged_unanswered_or_of_unknown_outcome) {
    for (std::uint64_t i = 1; i <= 3; ++i)
        checker(2).on_pub(pub(i, i * 100));
    checker(2).on_pub_ok(pub(1, 100), result(1));
    checker(2).on_pub_unanswered(pub(2, 200));
    checker(2).on_pub_error(pub(3, 300), code_of(ErrorCode::READ_ONLY_DEGRADED));
    show_log(checker(2), {record(1, 1, 100), record(2, 2, 200), record(3, 3, 300)});
    EXPECT_TRUE(clean(2));
}

// --- 3

class NoDuplicates : public CheckerFixture {};

TEST_F(NoDuplicates, fires_when_a_retry_gets_another_sequence) {
    checker(3).on_pub_ok(pub(1, 100), result(1));
    checker(3).on_pub_ok(pub(1, 100), result(2));
    EXPECT_TRUE(fired(3));
}

TEST_F(NoDuplicates, fires_when_a_log_holds_a_producer_seq_twice) {
    show_log(checker(3), {record(1, 1, 100), {2, 7, 1, 1, 100}});
    ASSERT_TRUE(violations_.any());
    EXPECT_EQ(violations_.all().front().checker, 3);
}

TEST_F(NoDuplicates, fires_when_a_sequence_is_left_out) {
    show_log(checker(3), {record(1, 1, 100), record(3, 2, 200)});
    EXPECT_TRUE(fired(3));
}

TEST_F(NoDuplicates, fires_when_a_producers_messages_change_their_order) {
    show_log(checker(3), {record(1, 2, 200), record(2, 3, 300)});
    EXPECT_TRUE(fired(3));
}

TEST_F(NoDuplicates, fires_when_one_sequence_stands_twice_in_a_log) {
    show_log(checker(3), {record(1, 1, 100), record(1, 1, 100)});
    EXPECT_TRUE(fired(3));
}

TEST_F(NoDuplicates, is_content_with_retries_and_producers_without_identity) {
    checker(3).on_pub_ok(pub(1, 100), result(1));
    checker(3).on_pub_ok(pub(1, 100), result(1));
    PubRequest plain = pub(0, 300);
    plain.producer_id = ProducerId(0);
    checker(3).on_pub_ok(plain, result(2));
    checker(3).on_pub_ok(plain, result(3));
    show_log(checker(3),
             {record(1, 1, 100), {2, 0, 0, 1, 300}, {3, 0, 0, 1, 300}, record(4, 2, 200)});
    EXPECT_TRUE(clean(3));
}

// --- 4

class DeliveryOrder : public CheckerFixture {};

TEST_F(DeliveryOrder, fires_when_other_bytes_are_delivered) {
    checker(4).on_pub_ok(pub(1, 999), result(1));
    checker(4).on_msg(msg(1, 1));
    EXPECT_TRUE(fired(4));
}

TEST_F(DeliveryOrder, fires_when_a_first_delivery_comes_after_a_later_one) {
    checker(4).on_group_view(group(0, 3));
    checker(4).on_msg(msg(2, 1));
    checker(4).on_msg(msg(1, 2));
    EXPECT_TRUE(fired(4));
}

TEST_F(DeliveryOrder, fires_when_what_was_passed_over_never_comes) {
    checker(4).on_group_view(group(0, 3));
    checker(4).on_msg(msg(2, 1));
    checker(4).on_end({{KEY, Sequence(2)}}, {WHERE.group});
    EXPECT_TRUE(fired(4));
}

TEST_F(DeliveryOrder, is_content_when_what_was_passed_over_comes_as_a_redelivery) {
    checker(4).on_group_view(group(0, 3));
    checker(4).on_pub_ok(pub(1, 100), result(1));
    checker(4).on_msg(msg(2, 2));
    checker(4).on_msg(msg(1, 3, 2));
    checker(4).on_msg(msg(3, 4));
    checker(4).on_msg(msg(2, 5, 2));
    checker(4).on_end({{KEY, Sequence(3)}}, {WHERE.group});
    EXPECT_TRUE(clean(4));
}

TEST_F(DeliveryOrder, forgives_a_broker_that_died_what_it_may_have_forgotten) {
    checker(4).on_group_view(group(0, 3));
    checker(4).on_msg(msg(2, 1));
    checker(4).on_broker_down();
    checker(4).on_msg(msg(1, 2));
    EXPECT_TRUE(clean(4));
}

// --- 5

class AtLeastOnce : public CheckerFixture {};

TEST_F(AtLeastOnce, fires_when_a_record_is_not_settled) {
    checker(5).on_msg(msg(1, 1));
    checker(5).on_group_view(group(0, 1));
    checker(5).on_end({{KEY, Sequence(1)}}, {WHERE.group});
    EXPECT_TRUE(fired(5));
}

TEST_F(AtLeastOnce, fires_when_a_record_is_settled_without_a_delivery) {
    checker(5).on_msg(msg(1, 1));
    checker(5).on_group_view(group(2, 2));
    checker(5).on_end({{KEY, Sequence(2)}}, {WHERE.group});
    EXPECT_TRUE(fired(5));
}

TEST_F(AtLeastOnce, fires_when_a_group_that_was_answered_is_gone) {
    checker(5).on_end({}, {WHERE.group});
    EXPECT_TRUE(fired(5));
}

TEST_F(AtLeastOnce, is_content_when_everything_was_delivered_and_settled) {
    checker(5).on_msg(msg(1, 1));
    checker(5).on_msg(msg(2, 2));
    checker(5).on_group_view(group(2, 2));
    checker(5).on_end({{KEY, Sequence(2)}}, {WHERE.group});
    EXPECT_TRUE(clean(5));
}

// --- 6

class AckedStaysAcked : public CheckerFixture {};

TEST_F(AckedStaysAcked, fires_when_a_message_is_sent_after_its_ack_got_ok) {
    checker(6).on_msg(msg(1, 1));
    checker(6).on_ack_ok(WHERE, Sequence(1));
    checker(6).on_broker_down();
    checker(6).on_msg(msg(1, 2, 2));
    EXPECT_TRUE(fired(6));
}

TEST_F(AckedStaysAcked, tells_groups_and_messages_apart) {
    checker(6).on_ack_ok(WHERE, Sequence(1));
    checker(6).on_msg(msg(2, 1));
    MsgSent other = msg(1, 2);
    other.where.group = "h";
    checker(6).on_msg(other);
    EXPECT_TRUE(clean(6));
}

// --- 8

class NeverBack : public CheckerFixture {};

TEST_F(NeverBack, fires_when_an_ack_floor_goes_back) {
    checker(8).on_group_view(group(5, 9));
    checker(8).on_group_view(group(4, 9));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_a_commit_seq_goes_back) {
    checker(8).on_group_view(group(5, 9));
    checker(8).on_group_view(group(5, 8));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_a_leader_epoch_goes_back) {
    wire::PubResult later = result(1);
    later.leader_epoch = LeaderEpoch(3);
    checker(8).on_pub_ok(pub(1, 100), later);
    checker(8).on_pub_ok(pub(2, 200), result(2));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_an_answer_is_not_covered_by_its_commit_seq) {
    wire::PubResult uncovered = result(5);
    uncovered.commit_seq = Sequence(4);
    checker(8).on_pub_ok(pub(1, 100), uncovered);
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_a_member_id_is_used_again) {
    wire::SubResult first;
    first.member_id = MemberId(4);
    first.membership_epoch = MembershipEpoch(1);
    wire::SubResult second = first;
    second.membership_epoch = MembershipEpoch(2);
    checker(8).on_sub_ok(1, "g", KEY.topic_id, first);
    ASSERT_TRUE(clean(8));
    checker(8).on_sub_ok(2, "g", KEY.topic_id, second);
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_a_membership_epoch_does_not_rise) {
    wire::SubResult first;
    first.member_id = MemberId(4);
    first.membership_epoch = MembershipEpoch(2);
    wire::SubResult second = first;
    second.member_id = MemberId(5);
    checker(8).on_sub_ok(1, "g", KEY.topic_id, first);
    checker(8).on_sub_ok(2, "g", KEY.topic_id, second);
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_a_delivery_id_is_used_again) {
    checker(8).on_msg(msg(1, 5));
    checker(8).on_msg(msg(2, 5));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_an_ownership_epoch_goes_back) {
    MsgSent first = msg(1, 1);
    first.ownership_epoch = OwnershipEpoch(3);
    checker(8).on_msg(first);
    checker(8).on_msg(msg(2, 2));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_a_message_stops_being_the_last_attempt) {
    MsgSent last = msg(1, 1, 2);
    last.is_last = true;
    checker(8).on_msg(last);
    checker(8).on_broker_down();
    checker(8).on_msg(msg(1, 2, 3));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, fires_when_an_attempt_forgets_a_nack_that_got_ok) {
    checker(8).on_msg(msg(1, 1, 1));
    checker(8).on_nack_ok(WHERE, Sequence(1));
    checker(8).on_msg(msg(1, 2, 1));
    EXPECT_TRUE(fired(8));
}

TEST_F(NeverBack, leaves_out_what_an_older_connection_still_held) {
    MsgSent last = msg(1, 2, 2);
    last.is_last = true;
    checker(8).on_msg(last);
    checker(8).on_nack_ok(WHERE, Sequence(1));
    checker(8).on_msg(msg(1, 1, 1));
    EXPECT_TRUE(clean(8));
}

TEST_F(NeverBack, is_content_when_everything_only_grows) {
    checker(8).on_pub_ok(pub(1, 100), result(1));
    checker(8).on_pub_ok(pub(2, 200), result(2));
    checker(8).on_group_view(group(1, 2));
    checker(8).on_group_view(group(2, 2));
    checker(8).on_msg(msg(1, 1));
    checker(8).on_nack_ok(WHERE, Sequence(1));
    checker(8).on_msg(msg(1, 2, 2));
    EXPECT_TRUE(clean(8));
}

// --- 11

class Conservation : public CheckerFixture {};

TEST_F(Conservation, fires_when_more_is_in_flight_than_was_committed) {
    checker(11).on_group_view(group(3, 5, 3));
    EXPECT_TRUE(fired(11));
}

TEST_F(Conservation, fires_when_a_message_is_settled_and_waits_as_well) {
    GroupView view = group(3, 5, 1);
    view.partitions[0].settled_above_floor = 1;
    view.partitions[0].waiting_retry = 1;
    checker(11).on_group_view(view);
    EXPECT_TRUE(fired(11));
}

TEST_F(Conservation, fires_when_more_is_settled_than_was_committed) {
    checker(11).on_group_view(group(6, 5));
    EXPECT_TRUE(fired(11));
}

TEST_F(Conservation, fires_when_a_message_that_was_sent_is_nowhere) {
    GroupView view = group(3, 6, 1);
    view.partitions[0].next_first = Sequence(6);
    checker(11).on_group_view(view);
    EXPECT_TRUE(fired(11));
}

TEST_F(Conservation, is_content_when_the_sum_fits) {
    checker(11).on_group_view(group(3, 5, 2));
    checker(11).on_group_view(group(5, 5));
    EXPECT_TRUE(clean(11));
}

// --- 12

class CreditBound : public CheckerFixture {};

TEST_F(CreditBound, fires_when_more_is_in_flight_than_was_granted) {
    checker(12).on_credit(1, WHERE, 4, 0);
    checker(12).on_group_view(group(0, 9, 5));
    EXPECT_TRUE(fired(12));
}

TEST_F(CreditBound, is_content_up_to_the_credit) {
    checker(12).on_group_view(group(0, 9, 9));  // nothing is known of its credit yet
    checker(12).on_credit(1, WHERE, 4, 0);
    checker(12).on_group_view(group(0, 9, 4));
    EXPECT_TRUE(clean(12));
}

// --- 14

class StrictFrames : public CheckerFixture {};

TEST_F(StrictFrames, fires_when_a_frame_does_not_decode) {
    checker(14).on_broker_frame(1);
    checker(14).on_malformed(1, "a MSG of 3 bytes");
    EXPECT_TRUE(fired(14));
}

TEST_F(StrictFrames, counts_frames_that_decode) {
    checker(14).on_broker_frame(1);
    EXPECT_TRUE(clean(14));
}

// --- 15

class BadInputHarmless : public CheckerFixture {};

TEST_F(BadInputHarmless, fires_when_a_log_holds_what_nobody_sent) {
    checker(15).on_pub(pub(1, 100));
    show_log(checker(15), {record(1, 1, 101)});
    EXPECT_TRUE(fired(15));
}

TEST_F(BadInputHarmless, fires_when_a_payload_stands_in_the_wrong_topic) {
    PubRequest other = pub(1, 100);
    other.asked.topic_id = TopicId(3);
    checker(15).on_pub(other);
    show_log(checker(15), {record(1, 1, 100)});
    EXPECT_TRUE(fired(15));
}

TEST_F(BadInputHarmless, is_content_with_what_was_sent) {
    checker(15).on_pub(pub(1, 100));
    show_log(checker(15), {record(1, 1, 100)});
    EXPECT_TRUE(clean(15));
}

// --- 18

class DeletedIsGone : public CheckerFixture {};

TEST_F(DeletedIsGone, fires_when_a_pub_that_came_after_the_deletion_gets_ok) {
    checker(18).on_topic_deleted(KEY.topic_id);
    checker(18).on_pub(pub(1, 100));
    checker(18).on_pub_ok(pub(1, 100), result(1));
    EXPECT_TRUE(fired(18));
}

TEST_F(DeletedIsGone, is_content_when_what_was_under_way_is_answered_and_what_came_later_refused) {
    checker(18).on_pub(pub(1, 100));
    checker(18).on_topic_deleted(KEY.topic_id);
    checker(18).on_pub_ok(pub(1, 100), result(1));
    checker(18).on_pub(pub(2, 200));
    checker(18).on_pub_error(pub(2, 200), code_of(ErrorCode::UNKNOWN_TOPIC));
    EXPECT_TRUE(clean(18));
}

// 1 cannot look for a record whose topic went meanwhile.
TEST_F(DeletedIsGone, frees_checker_1_of_its_topic_from_the_request_on) {
    checker(1).on_topic_delete_sent(KEY.topic_id);
    checker(1).on_pub_ok(pub(1, 100), result(1));
    EXPECT_FALSE(violations_.any());
}

// --- all of them: 13, 16 and 17 are judged by the run itself

TEST_F(CheckerFixture, has_a_test_for_every_checker_there_is) {
    std::vector<int> numbers;
    for (const auto& each : checkers_)
        numbers.push_back(each->number());
    EXPECT_EQ(numbers, (std::vector<int>{1, 2, 3, 4, 5, 6, 8, 11, 12, 14, 15, 18}));
}

}  // namespace
}  // namespace mortar::sim
