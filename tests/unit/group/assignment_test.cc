#include "core/group/assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/env/rng.h"

namespace mortar {
namespace {

std::map<MemberId, std::size_t> counts_of(const std::vector<MemberId>& owners) {
    std::map<MemberId, std::size_t> counts;
    for (const MemberId owner : owners)
        ++counts[owner];
    return counts;
}

// How many partitions can stay at best: the largest former shares keep the largest quotas.
std::size_t most_that_can_stay(const std::vector<MemberId>& members,
                               const std::vector<MemberId>& previous) {
    std::vector<std::size_t> owned;
    for (const MemberId member : members)
        owned.push_back(
            static_cast<std::size_t>(std::count(previous.begin(), previous.end(), member)));
    std::sort(owned.rbegin(), owned.rend());
    const std::size_t small = previous.size() / members.size();
    const std::size_t large_count = previous.size() % members.size();
    std::size_t stay = 0;
    for (std::size_t i = 0; i < owned.size(); ++i)
        stay += std::min(owned[i], small + (i < large_count ? 1u : 0u));
    return stay;
}

TEST(Assignment, gives_everything_to_the_only_member) {
    const std::vector<MemberId> members{MemberId(7)};
    const std::vector<MemberId> previous(5, NO_MEMBER);
    EXPECT_EQ(assign(members, previous), std::vector<MemberId>(5, MemberId(7)));
}

TEST(Assignment, leaves_partitions_without_members_to_nobody) {
    EXPECT_EQ(assign({}, std::vector<MemberId>(3, MemberId(4))),
              std::vector<MemberId>(3, NO_MEMBER));
}

TEST(Assignment, moves_only_what_the_newcomer_takes) {
    const std::vector<MemberId> previous(4, MemberId(1));
    const std::vector<MemberId> members{MemberId(1), MemberId(2)};
    const auto owners = assign(members, previous);
    EXPECT_EQ(owners, (std::vector<MemberId>{MemberId(1), MemberId(1), MemberId(2), MemberId(2)}));
}

TEST(Assignment, is_balanced_and_moves_the_fewest_for_any_history) {
    Rng rng(11);
    for (int round = 0; round < 3000; ++round) {
        std::vector<MemberId> members;
        const std::uint64_t member_count = 1 + rng.below(10);
        for (std::uint64_t i = 0; i < 12; ++i)
            members.emplace_back(i);
        while (members.size() > member_count)
            members.erase(members.begin() + static_cast<std::ptrdiff_t>(rng.below(members.size())));
        std::vector<MemberId> previous;
        const std::uint64_t partition_count = 1 + rng.below(30);
        for (std::uint64_t i = 0; i < partition_count; ++i)
            previous.emplace_back(rng.below(12));

        const auto owners = assign(members, previous);
        const auto counts = counts_of(owners);
        for (const auto& [owner, count] : counts)
            ASSERT_TRUE(std::find(members.begin(), members.end(), owner) != members.end());
        for (const MemberId member : members) {
            const auto it = counts.find(member);
            const std::size_t count = it == counts.end() ? 0 : it->second;
            ASSERT_GE(count, partition_count / member_count);
            ASSERT_LE(count, (partition_count + member_count - 1) / member_count);
        }
        std::size_t stayed = 0;
        for (std::size_t i = 0; i < owners.size(); ++i)
            stayed += owners[i] == previous[i] ? 1u : 0u;
        ASSERT_EQ(stayed, most_that_can_stay(members, previous));
        // What came out is stable: nothing moves without a change of members.
        ASSERT_EQ(assign(members, owners), owners);
    }
}

}  // namespace
}  // namespace mortar
