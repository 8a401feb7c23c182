#include "core/replica/choice.h"

#include <gtest/gtest.h>

namespace mortar {
namespace {

using peer::CopyReport;
using peer::CopyState;

constexpr PartitionKey LOG{TopicId(3), PartitionIndex(1)};
constexpr LeaderEpoch CANDIDATE_EPOCH{9};

struct Held {
    CopyState state = CopyState::INTACT;
    std::uint64_t last = 0;
    std::uint64_t leader_epoch = 1;  // of the last record
};

CopyReport report(PartitionKey log, Held held) {
    CopyReport copy;
    copy.log = log;
    if (held.last > 0) copy.end = {Sequence(held.last), LeaderEpoch(held.leader_epoch)};
    copy.state = held.state;
    if (peer::is_faulty(held.state)) copy.faulty_from = Sequence(1);
    return copy;
}

NodePromise promise(std::uint16_t node, std::uint64_t installed, std::vector<CopyReport> copies) {
    NodePromise given;
    given.node_id = NodeId(node);
    given.given.leader_epoch = CANDIDATE_EPOCH;
    given.given.installed_epoch = LeaderEpoch(installed);
    given.given.cluster_id[0] = std::byte{0x77};
    given.given.copies = std::move(copies);
    return given;
}
NodePromise holds(std::uint16_t node, std::uint64_t installed, Held held) {
    return promise(node, installed, {report(LOG, held)});
}
NodePromise blank(std::uint16_t node) {
    NodePromise given;
    given.node_id = NodeId(node);
    given.given.is_blank = true;
    return given;
}

Choice choose(const std::vector<NodePromise>& promises, std::uint16_t node_count = 3,
              std::uint16_t self = 1) {
    std::vector<NodeId> configured;
    for (std::uint16_t id = 1; id <= node_count; ++id)
        configured.push_back(NodeId(id));
    return choose_copies(promises, configured, NodeId(self));
}

// Of LOG, as "node:last", or the words that say why not.
std::string taken(const Choice& choice) {
    if (choice.outcome != ChoiceOutcome::CHOSEN) return choice.reason;
    EXPECT_EQ(choice.logs.size(), 2u);
    EXPECT_EQ(choice.logs.front().log, METADATA_LOG);
    EXPECT_EQ(choice.logs.back().log, LOG);
    return std::to_string(choice.logs.back().node_id.value) + ":" +
           std::to_string(choice.logs.back().end.last.value);
}

constexpr auto INTACT = CopyState::INTACT;
constexpr auto UNCERTAIN = CopyState::UNCERTAIN;
constexpr auto FAULTY = CopyState::FAULTY;
constexpr auto FAULTY_UNCERTAIN = CopyState::FAULTY_UNCERTAIN;

TEST(Choice, takes_the_longest_of_those_installed_last) {
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 10}), holds(2, 4, {INTACT, 12})})), "2:12");
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 99}), holds(2, 5, {INTACT, 12})})), "2:12");
    EXPECT_EQ(taken(choose(
                  {holds(1, 4, {INTACT, 1}), holds(2, 4, {INTACT, 2}), holds(3, 3, {INTACT, 9})})),
              "2:2");
}

TEST(Choice, of_equals_takes_the_candidates_own_then_the_lowest_node) {
    const std::vector<NodePromise> equal = {holds(1, 4, {INTACT, 10}), holds(2, 4, {INTACT, 10}),
                                            holds(3, 4, {INTACT, 10})};
    EXPECT_EQ(taken(choose(equal, 3, 2)), "2:10");
    EXPECT_EQ(taken(choose({equal[1], equal[2]}, 3, 1)), "2:10");
    // The other one may be torn again.
    EXPECT_EQ(taken(choose({holds(1, 4, {UNCERTAIN, 10}), holds(2, 4, {INTACT, 10}),
                            holds(3, 4, {INTACT, 3})})),
              "2:10");
}

TEST(Choice, is_made_for_each_log_that_occurs_and_the_metadata_log_by_the_same_rule) {
    constexpr PartitionKey OTHER{TopicId(3), PartitionIndex(2)};
    const Choice choice =
        choose({promise(1, 4, {report(METADATA_LOG, {INTACT, 7}), report(LOG, {INTACT, 1})}),
                promise(2, 4, {report(METADATA_LOG, {INTACT, 5}), report(OTHER, {INTACT, 2})})});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::CHOSEN);
    const std::vector<LogChoice> expected = {
        {METADATA_LOG, NodeId(1), {Sequence(7), LeaderEpoch(1)}},
        {LOG, NodeId(1), {Sequence(1), LeaderEpoch(1)}},
        {OTHER, NodeId(2), {Sequence(2), LeaderEpoch(1)}}};
    EXPECT_EQ(choice.logs, expected);
    EXPECT_EQ(choice.cluster_id[0], std::byte{0x77});
}

// The older copy is longer, but the newer leader has cut what stood there: an absent entry is an empty copy.
TEST(Choice, takes_an_empty_copy_that_is_newer) {
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 5}), promise(2, 5, {})})), "2:0");
}

TEST(Choice, waits_without_a_majority_and_names_who_is_missing) {
    const Choice choice = choose({holds(1, 4, {INTACT, 5})});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::WAIT);
    EXPECT_EQ(choice.missing, (std::vector<NodeId>{NodeId(2), NodeId(3)}));
    EXPECT_EQ(choice.reason, "1 of 3 nodes hold a state, 2 are needed; not heard: node 2, node 3");
}

TEST(Choice, does_not_hear_nodes_that_are_not_configured_nor_one_twice) {
    EXPECT_EQ(choose({holds(1, 4, {INTACT, 5}), holds(9, 4, {INTACT, 5})}).outcome,
              ChoiceOutcome::WAIT);
    EXPECT_EQ(choose({holds(1, 4, {INTACT, 5}), holds(1, 4, {INTACT, 5})}).outcome,
              ChoiceOutcome::WAIT);
}

// What a faulty copy claims decides, even though nothing is taken from it.
TEST(Choice, is_refused_while_a_faulty_copy_claims_more_than_the_best) {
    const Choice longer = choose({holds(1, 4, {INTACT, 5}), holds(2, 4, {FAULTY, 6})});
    EXPECT_EQ(longer.outcome, ChoiceOutcome::UNCLEAN);
    ASSERT_EQ(longer.obstacles.size(), 1u);
    EXPECT_EQ(longer.obstacles[0].log, LOG);
    EXPECT_EQ(longer.obstacles[0].node_id, NodeId(2));
    EXPECT_EQ(longer.reason,
              "log 3/1: node 2 has had 6 records, installed in leader epoch 4, but is damaged from "
              "record 1 on; the best whole copy, on node 1, has 5 records, installed in leader "
              "epoch 4; not heard: node 3");
    const Choice newer = choose({holds(1, 4, {INTACT, 5}), holds(2, 5, {FAULTY, 1})});
    EXPECT_EQ(newer.outcome, ChoiceOutcome::UNCLEAN);
    const Choice both = choose({holds(1, 4, {FAULTY, 5}), holds(2, 4, {FAULTY, 5})});
    EXPECT_EQ(both.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_NE(both.reason.find("no whole copy was heard"), std::string::npos) << both.reason;
}

TEST(Choice, goes_on_when_a_faulty_copy_claims_no_more_than_the_best) {
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 6}), holds(2, 4, {FAULTY, 6})})), "1:6");
    EXPECT_EQ(taken(choose({holds(1, 5, {INTACT, 1}), holds(2, 4, {FAULTY, 6})})), "1:1");
}

TEST(Choice, is_refused_while_an_uncertain_copy_is_as_new_as_the_best) {
    const Choice choice = choose({holds(1, 4, {INTACT, 6}), holds(2, 4, {UNCERTAIN, 5})});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_EQ(choice.obstacles.at(0).node_id, NodeId(2));
    EXPECT_NE(choice.reason.find("may have had more"), std::string::npos) << choice.reason;
    EXPECT_EQ(choose({holds(1, 4, {INTACT, 6}), holds(2, 5, {UNCERTAIN, 5})}).outcome,
              ChoiceOutcome::UNCLEAN);
    EXPECT_EQ(taken(choose({holds(1, 5, {INTACT, 6}), holds(2, 4, {UNCERTAIN, 9})})), "1:6");
}

// The torn end took a record along that the copy had flushed: what is left of it is no bound.
TEST(Choice, is_refused_while_a_faulty_copy_of_a_lost_end_is_as_new_as_the_best) {
    const Choice choice = choose({holds(1, 4, {INTACT, 64}), holds(2, 4, {FAULTY_UNCERTAIN, 64})});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_NE(choice.reason.find("damaged from record 1 on and lost the end of it"),
              std::string::npos)
        << choice.reason;
    EXPECT_EQ(taken(choose({holds(1, 5, {INTACT, 6}), holds(2, 4, {FAULTY_UNCERTAIN, 9})})), "1:6");
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 64}), holds(2, 4, {FAULTY_UNCERTAIN, 64}),
                            holds(3, 4, {INTACT, 65})})),
              "3:65");
}

TEST(Choice, is_decided_by_a_majority_of_intact_copies) {
    EXPECT_EQ(taken(choose(
                  {holds(1, 4, {INTACT, 5}), holds(2, 4, {INTACT, 4}), holds(3, 4, {FAULTY, 9})})),
              "1:5");
    // An uncertain copy is still good for what it holds.
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 5}), holds(2, 4, {INTACT, 4}),
                            holds(3, 4, {UNCERTAIN, 9})})),
              "3:9");
}

TEST(Choice, goes_on_when_all_were_heard_and_at_most_one_is_faulty) {
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 5}), holds(2, 4, {FAULTY, 6}),
                            holds(3, 4, {UNCERTAIN, 4})})),
              "1:5");
    EXPECT_EQ(taken(choose({holds(1, 4, {UNCERTAIN, 5}), holds(2, 4, {UNCERTAIN, 6}),
                            holds(3, 4, {UNCERTAIN, 4})})),
              "2:6");
    EXPECT_EQ(choose({holds(1, 4, {INTACT, 5}), holds(2, 4, {FAULTY, 6}), holds(3, 4, {FAULTY, 4})})
                  .outcome,
              ChoiceOutcome::UNCLEAN);
}

// A node that lost all is a second failure: what it had flushed must be on the faulty one.
TEST(Choice, does_not_count_a_blank_node_as_heard) {
    const Choice choice = choose({holds(1, 4, {INTACT, 5}), holds(2, 4, {FAULTY, 6}), blank(3)});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_NE(choice.reason.find("blank: node 3"), std::string::npos) << choice.reason;
    EXPECT_EQ(choose({holds(1, 4, {INTACT, 5}), blank(3)}).outcome, ChoiceOutcome::WAIT);
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 5}), holds(2, 4, {INTACT, 6}), blank(3)})), "2:6");
}

TEST(Choice, is_a_first_start_only_when_every_configured_node_is_blank) {
    EXPECT_EQ(choose({blank(1), blank(2), blank(3)}).outcome, ChoiceOutcome::FIRST_START);
    EXPECT_EQ(choose({blank(1)}, 1).outcome, ChoiceOutcome::FIRST_START);
    const Choice two = choose({blank(1), blank(2)});
    EXPECT_EQ(two.outcome, ChoiceOutcome::WAIT);
    EXPECT_EQ(two.reason,
              "0 of 3 nodes hold a state, 2 are needed; blank: node 1, node 2; not heard: node 3");
    // Nobody is missing: what two nodes have lost does not come back by waiting.
    const Choice two_lost = choose({blank(1), blank(2), holds(3, 4, {INTACT, 5})});
    EXPECT_EQ(two_lost.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_EQ(two_lost.reason, "1 of 3 nodes hold a state, 2 are needed; blank: node 1, node 2");
}

TEST(Choice, is_no_first_start_when_a_blank_node_holds_records) {
    NodePromise with_records = blank(2);
    with_records.given.copies = {report(LOG, {INTACT, 5})};
    const Choice choice = choose({blank(1), with_records, blank(3)});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_NE(choice.reason.find("node 2 holds log 3/1 with 5 records"), std::string::npos)
        << choice.reason;
}

// There is no other copy to wait for: the partition stays quarantined, the node serves the others.
TEST(Choice, takes_the_only_copy_of_a_cluster_of_one_as_it_is) {
    EXPECT_EQ(taken(choose({holds(1, 4, {FAULTY, 5})}, 1)), "1:5");
    EXPECT_EQ(taken(choose({holds(1, 4, {UNCERTAIN, 5})}, 1)), "1:5");
    EXPECT_EQ(taken(choose({holds(1, 4, {INTACT, 5})}, 1)), "1:5");
}

TEST(Choice, is_refused_when_equals_hold_different_records) {
    const Choice choice = choose(
        {holds(1, 4, {INTACT, 5, 3}), holds(2, 4, {INTACT, 5, 2}), holds(3, 4, {INTACT, 1})});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_EQ(choice.reason,
              "log 3/1: node 1 and node 2 hold different records at 5, both installed in leader "
              "epoch 4");
}

TEST(Choice, is_refused_between_two_clusters) {
    NodePromise stranger = holds(2, 4, {INTACT, 5});
    stranger.given.cluster_id[0] = std::byte{0x78};
    const Choice choice = choose({holds(1, 4, {INTACT, 5}), stranger});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    EXPECT_EQ(choice.reason, "node 1 and node 2 belong to different clusters");
}

// One log that cannot be taken does not hide the others: a deleted topic's hinders nobody.
TEST(Choice, tells_the_logs_that_could_be_taken_next_to_those_that_could_not) {
    constexpr PartitionKey BAD{TopicId(4), PartitionIndex(0)};
    constexpr PartitionKey WORSE{TopicId(5), PartitionIndex(0)};
    const Choice choice =
        choose({promise(1, 4, {report(LOG, {INTACT, 5})}),
                promise(2, 4, {report(BAD, {FAULTY, 2}), report(WORSE, {FAULTY, 2})})});
    EXPECT_EQ(choice.outcome, ChoiceOutcome::UNCLEAN);
    ASSERT_EQ(choice.obstacles.size(), 2u);
    EXPECT_EQ(choice.obstacles[0].log, BAD);
    EXPECT_EQ(choice.obstacles[1].log, WORSE);
    ASSERT_EQ(choice.logs.size(), 2u);
    EXPECT_EQ(choice.logs[1].log, LOG);
    EXPECT_NE(choice.reason.find("; and 1 more logs"), std::string::npos) << choice.reason;
}

}  // namespace
}  // namespace mortar
