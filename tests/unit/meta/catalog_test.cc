// Catalog: names, pairs of ids, groups and epochs; encode and decode.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/env/rng.h"
#include "core/meta/catalog.h"
#include "tests/unit/meta/random_mutations.h"

namespace mortar {
namespace {
using testing::catalog_bytes;
using testing::random_mutation;

// Validates and applies as the next mutation; its id.
MutationId commit(Catalog& catalog, MutationBody body) {
    const Result<void> valid = catalog.validate(body);
    EXPECT_TRUE(valid.ok()) << valid.error().to_string();
    Mutation mutation;
    mutation.mutation_id = catalog.last_mutation().next();
    mutation.leader_epoch = std::max(LeaderEpoch(3), catalog.last_leader_epoch());
    mutation.body = std::move(body);
    catalog.apply(mutation);
    return mutation.mutation_id;
}

TEST(Contract, T1_topic_names) {
    const std::string longest(251, 'a');
    for (const std::string& name :
         {std::string("orders"), std::string("a.b.c"), std::string("a$"), longest,
          std::string("bestellungen.gr\xC3\xBC\xC3\x9F"), std::string("a.dlqx")}) {
        EXPECT_TRUE(check_topic_name(name, false).ok()) << name;
    }
    for (const std::string& name : {std::string(),
                                    std::string("."),
                                    std::string("a..b"),
                                    std::string(".a"),
                                    std::string("a."),
                                    std::string("$sys"),
                                    std::string("a*"),
                                    std::string("a.>"),
                                    std::string("+"),
                                    std::string("a#b"),
                                    std::string("a b"),
                                    std::string("a\nb"),
                                    std::string("a\0b", 3),
                                    std::string("a\x7F"),
                                    std::string("a\xC2\x85"),
                                    std::string("\xFF"),
                                    std::string("\xC0\xAF"),
                                    std::string("\xED\xA0\x80"),
                                    std::string("\xF4\x90\x80\x80"),
                                    std::string("\xC3"),
                                    longest + "a"}) {
        EXPECT_TRUE(check_topic_name(name, true).is(ErrorCode::INVALID_TOPIC)) << name;
    }
    EXPECT_TRUE(check_topic_name("orders.dlq", false).is(ErrorCode::INVALID_TOPIC));
    EXPECT_TRUE(check_topic_name("orders.dlq", true).ok());
    EXPECT_TRUE(check_topic_name(longest + ".dlq", true).ok());
    EXPECT_FALSE(check_topic_name(longest + "a.dlq", true).ok());
    EXPECT_FALSE(check_topic_name(".dlq", true).ok());
}

TEST(Contract, G1_group_names) {
    EXPECT_TRUE(check_group_name("billing.dlq").ok());
    EXPECT_TRUE(check_group_name(std::string(255, 'g')).ok());
    EXPECT_TRUE(check_group_name(std::string(256, 'g')).is(ErrorCode::INVALID_TOPIC));
    EXPECT_TRUE(check_group_name("").is(ErrorCode::INVALID_TOPIC));
    EXPECT_TRUE(check_group_name("a b").is(ErrorCode::INVALID_TOPIC));
}

TEST(Catalog, gives_ids_in_pairs_and_never_again) {
    Catalog catalog;
    commit(catalog, TopicCreated{"a", 2});
    commit(catalog, TopicCreated{"b", 3});
    EXPECT_EQ(catalog.find_topic("a")->topic_id, TopicId(1));
    EXPECT_EQ(catalog.find_topic("b")->topic_id, TopicId(3));
    const Topic* twin = catalog.find_topic("b.dlq");
    ASSERT_NE(twin, nullptr);
    EXPECT_EQ(twin->topic_id, TopicId(4));
    EXPECT_EQ(twin->partition_count, 3);
    EXPECT_TRUE(twin->is_twin());
    EXPECT_EQ(catalog.topics().size(), 4u);
    commit(catalog, TopicDeleted{TopicId(3)});
    EXPECT_EQ(catalog.find_topic("b"), nullptr);
    EXPECT_EQ(catalog.find_topic("b.dlq"), nullptr);
    EXPECT_EQ(catalog.find_topic(TopicId(4)), nullptr);
    commit(catalog, TopicCreated{"b", 1});
    EXPECT_EQ(catalog.find_topic("b")->topic_id, TopicId(5));
}

TEST(Catalog, refuses_impossible_topics) {
    Catalog catalog;
    commit(catalog, TopicCreated{"a", 2});
    EXPECT_TRUE(catalog.validate(TopicCreated{"a", 2}).is(ErrorCode::TOPIC_EXISTS_MISMATCH));
    EXPECT_TRUE(catalog.validate(TopicCreated{"x.dlq", 2}).is(ErrorCode::INVALID_TOPIC));
    EXPECT_TRUE(catalog.validate(TopicCreated{"x", 1025}).is(ErrorCode::QUOTA_EXCEEDED));
    EXPECT_TRUE(catalog.validate(TopicCreated{"x", 0}).is(ErrorCode::INVALID_ARGUMENT));
    EXPECT_TRUE(catalog.validate(TopicDeleted{TopicId(3)}).is(ErrorCode::UNKNOWN_TOPIC));
    EXPECT_TRUE(catalog.validate(TopicDeleted{TopicId(2)}).is(ErrorCode::INVALID_TOPIC));
}

TEST(Contract, T5_a_mutation_over_64_kib_is_2007) {
    Catalog catalog;
    EXPECT_TRUE(catalog.validate(TopicCreated{std::string(65535, 'a'), 1})
                    .is(ErrorCode::MUTATION_NOT_PACKABLE));
    EXPECT_TRUE(
        catalog.validate(TopicCreated{std::string(65532, 'a'), 1}).is(ErrorCode::INVALID_TOPIC));
}

TEST(Contract, T5_topic_pairs_run_out) {
    Catalog catalog;
    for (std::size_t i = 0; i < TOPIC_PAIR_COUNT_MAX; ++i) {
        Mutation mutation;
        mutation.mutation_id = catalog.last_mutation().next();
        if (i % 2 == 0) {
            mutation.body = TopicCreated{"t", 1};
            catalog.apply(mutation);
            mutation.mutation_id = mutation.mutation_id.next();
            mutation.body = TopicDeleted{catalog.find_topic("t")->topic_id};
        } else {
            mutation.body = TopicCreated{"u" + std::to_string(i), 1};
        }
        catalog.apply(mutation);
    }
    EXPECT_EQ(catalog.topics().rbegin()->first.value % 2, 0);
    EXPECT_TRUE(catalog.validate(TopicCreated{"one.more", 1}).is(ErrorCode::QUOTA_EXCEEDED));
    EXPECT_TRUE(Catalog::decode(catalog_bytes(catalog)).ok());
}

TEST(Catalog, deletes_the_groups_of_topic_and_twin_with_it) {
    Catalog catalog;
    commit(catalog, TopicCreated{"a", 1});
    commit(catalog, TopicCreated{"b", 1});
    commit(catalog, GroupCreated{"ga", TopicId(1), {Sequence(7)}});
    commit(catalog, GroupCreated{"gd", TopicId(2), {Sequence(0)}});
    commit(catalog, GroupCreated{"gb", TopicId(3), {Sequence(0)}});
    commit(catalog, MemberJoined{GroupId(1), {MemberId(0)}});
    EXPECT_EQ(catalog.find_group("ga")->start_after[0], Sequence(7));
    EXPECT_TRUE(catalog.validate(GroupDeleted{GroupId(1)}).is(ErrorCode::GROUP_EXISTS_MISMATCH));
    commit(catalog, TopicDeleted{TopicId(1)});
    EXPECT_EQ(catalog.find_group("ga"), nullptr);
    EXPECT_EQ(catalog.find_group("gd"), nullptr);
    ASSERT_NE(catalog.find_group("gb"), nullptr);
    commit(catalog, GroupDeleted{GroupId(3)});
    commit(catalog, GroupCreated{"ga", TopicId(3), {Sequence(0)}});
    EXPECT_EQ(catalog.find_group("ga")->group_id, GroupId(4));
}

TEST(Catalog, refuses_impossible_groups) {
    Catalog catalog;
    commit(catalog, TopicCreated{"a", 2});
    const std::vector<Sequence> starts{Sequence(0), Sequence(0)};
    EXPECT_TRUE(
        catalog.validate(GroupCreated{"g", TopicId(9), starts}).is(ErrorCode::UNKNOWN_TOPIC));
    EXPECT_TRUE(
        catalog.validate(GroupCreated{"", TopicId(1), starts}).is(ErrorCode::INVALID_TOPIC));
    EXPECT_TRUE(catalog.validate(GroupCreated{"g", TopicId(1), {Sequence(0)}})
                    .is(ErrorCode::INVALID_ARGUMENT));
    commit(catalog, GroupCreated{"g", TopicId(1), starts});
    EXPECT_TRUE(catalog.validate(GroupCreated{"g", TopicId(1), starts})
                    .is(ErrorCode::GROUP_EXISTS_MISMATCH));
    const std::vector<MemberId> nobody(2);
    EXPECT_TRUE(catalog.validate(MemberJoined{GroupId(5), nobody}).is(ErrorCode::UNKNOWN_GROUP));
    EXPECT_TRUE(
        catalog.validate(MemberJoined{GroupId(1), {MemberId(0)}}).is(ErrorCode::INVALID_ARGUMENT));
    EXPECT_TRUE(catalog.validate(MemberJoined{GroupId(1), {MemberId(0), MemberId(1)}})
                    .is(ErrorCode::UNKNOWN_MEMBER));
    EXPECT_TRUE(
        catalog.validate(MembersLeft{GroupId(1), {}, nobody}).is(ErrorCode::INVALID_ARGUMENT));
    EXPECT_TRUE(catalog.validate(MembersLeft{GroupId(1), {MemberId(1)}, nobody})
                    .is(ErrorCode::UNKNOWN_MEMBER));
    EXPECT_TRUE(catalog.validate(GroupDeleted{GroupId(2)}).is(ErrorCode::UNKNOWN_GROUP));
}

TEST(Contract, G1_a_group_has_at_most_10_members) {
    Catalog catalog;
    commit(catalog, TopicCreated{"a", 1});
    commit(catalog, GroupCreated{"g", TopicId(1), {Sequence(0)}});
    for (int i = 0; i < 10; ++i)
        commit(catalog, MemberJoined{GroupId(1), {MemberId(0)}});
    EXPECT_TRUE(catalog.validate(MemberJoined{GroupId(1), {MemberId(0)}})
                    .is(ErrorCode::GROUP_MEMBER_LIMIT));
}

TEST(Catalog, moves_epochs_only_up_and_only_for_what_changed) {
    Catalog catalog;
    commit(catalog, TopicCreated{"a", 2});
    commit(catalog, GroupCreated{"g", TopicId(1), {Sequence(0), Sequence(0)}});
    const ConsumerGroup* group = catalog.find_group(GroupId(1));
    EXPECT_EQ(group->membership_epoch, MembershipEpoch(0));

    const MemberId first(
        commit(catalog, MemberJoined{GroupId(1), {MemberId(0), MemberId(0)}}).value);
    group = catalog.find_group(GroupId(1));
    EXPECT_EQ(group->membership_epoch, MembershipEpoch(1));
    EXPECT_EQ(group->assignment_epoch, AssignmentEpoch(1));
    EXPECT_EQ(group->ownership[0], (Ownership{first, OwnershipEpoch(1)}));

    const MemberId second(commit(catalog, MemberJoined{GroupId(1), {first, MemberId(0)}}).value);
    group = catalog.find_group(GroupId(1));
    EXPECT_EQ(group->membership_epoch, MembershipEpoch(2));
    EXPECT_EQ(group->assignment_epoch, AssignmentEpoch(2));
    EXPECT_EQ(group->ownership[0], (Ownership{first, OwnershipEpoch(1)}));
    EXPECT_EQ(group->ownership[1], (Ownership{second, OwnershipEpoch(2)}));
    EXPECT_EQ(group->members.at(second).joined_at, MembershipEpoch(2));

    // A third that gets nothing moves no assignment.
    const MemberId third(commit(catalog, MemberJoined{GroupId(1), {first, second}}).value);
    EXPECT_EQ(catalog.find_group(GroupId(1))->assignment_epoch, AssignmentEpoch(2));

    // To lose an owner is a change of assignment; the number that fences moves when the next owner comes.
    commit(catalog, MembersLeft{GroupId(1), {third, second}, {first, MemberId(0)}});
    group = catalog.find_group(GroupId(1));
    EXPECT_EQ(group->assignment_epoch, AssignmentEpoch(3));
    EXPECT_EQ(group->ownership[1], (Ownership{MemberId(0), OwnershipEpoch(2)}));
    EXPECT_EQ(group->members.size(), 1u);

    const MemberId fourth(commit(catalog, MemberJoined{GroupId(1), {first, MemberId(0)}}).value);
    EXPECT_GT(fourth, third);
    EXPECT_EQ(catalog.find_group(GroupId(1))->ownership[1], (Ownership{fourth, OwnershipEpoch(3)}));
}

TEST(CatalogBytes, mutation_is_the_same_after_decode_and_no_prefix_decodes) {
    const MutationBody bodies[] = {
        TopicCreated{"orders", 4},
        TopicDeleted{TopicId(7)},
        GroupCreated{"g", TopicId(1), {Sequence(3), Sequence(9)}},
        GroupDeleted{GroupId(2)},
        MemberJoined{GroupId(2), {MemberId(0), MemberId(8)}},
        MembersLeft{GroupId(2), {MemberId(8)}, {MemberId(0), MemberId(9)}},
    };
    for (const MutationBody& body : bodies) {
        ByteVector bytes;
        encode_mutation(bytes, body);
        const Result<MutationBody> decoded = decode_mutation(mutation_type(body), bytes);
        ASSERT_TRUE(decoded.ok());
        EXPECT_EQ(*decoded, body);
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            EXPECT_TRUE(decode_mutation(mutation_type(body), ByteSpan(bytes).first(size))
                            .is(ErrorCode::DAMAGED));
        }
        bytes.push_back(std::byte{0});
        EXPECT_TRUE(decode_mutation(mutation_type(body), bytes).is(ErrorCode::DAMAGED));
    }
    EXPECT_TRUE(decode_mutation(0, {}).is(ErrorCode::DAMAGED));
    EXPECT_TRUE(decode_mutation(7, {}).is(ErrorCode::DAMAGED));
}

TEST(CatalogBytes, state_is_canonical_and_no_prefix_decodes) {
    Rng rng(11);
    Catalog catalog;
    for (int i = 0; i < 200; ++i)
        commit(catalog, random_mutation(rng, catalog));
    const ByteVector bytes = catalog_bytes(catalog);
    const Result<Catalog> decoded = Catalog::decode(bytes);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(catalog_bytes(*decoded), bytes);
    EXPECT_EQ(decoded->topics(), catalog.topics());
    EXPECT_EQ(decoded->groups(), catalog.groups());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(Catalog::decode(ByteSpan(bytes).first(size)).ok());
    }
    ByteVector longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Catalog::decode(longer).ok());
}

// Whatever decodes from altered bytes is a state that encodes to just those bytes and takes more mutations.
TEST(CatalogBytes, altered_state_is_refused_or_whole) {
    Rng rng(12);
    Catalog catalog;
    for (int i = 0; i < 60; ++i)
        commit(catalog, random_mutation(rng, catalog));
    const ByteVector bytes = catalog_bytes(catalog);
    int refused = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        ByteVector altered = bytes;
        altered[at] ^= std::byte{static_cast<unsigned char>(1u << rng.below(8))};
        Result<Catalog> decoded = Catalog::decode(altered);
        if (!decoded.ok()) {
            ++refused;
            continue;
        }
        EXPECT_EQ(catalog_bytes(*decoded), altered);
        for (int i = 0; i < 5; ++i)
            commit(*decoded, random_mutation(rng, *decoded));
    }
    EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace mortar
