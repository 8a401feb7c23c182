// random_mutations: a mutation that the catalog accepts, drawn at random; and the catalog as bytes.
#pragma once

#include <string>
#include <vector>

#include "core/env/rng.h"
#include "core/meta/catalog.h"

namespace mortar::testing {

inline ByteVector catalog_bytes(const Catalog& catalog) {
    ByteVector bytes;
    catalog.encode(bytes);
    return bytes;
}

inline MutationBody random_body(Rng& rng, const Catalog& catalog) {
    const auto pick = [&rng](std::uint64_t bound) { return bound == 0 ? 0 : rng.below(bound); };
    const std::uint64_t kind = rng.below(10);
    if (kind < 3) {
        const std::string name = "topic" + std::to_string(rng.below(40));
        return TopicCreated{name, static_cast<std::uint16_t>(1 + rng.below(4))};
    }
    if (kind == 3) {
        const std::uint64_t pair = pick(catalog.topics().size() * 2);
        return TopicDeleted{TopicId(static_cast<std::uint16_t>(2 * pair + 1))};
    }
    if (kind < 6) {
        if (catalog.topics().empty()) return GroupDeleted{GroupId(1)};
        auto topic = catalog.topics().begin();
        std::advance(topic, static_cast<std::ptrdiff_t>(pick(catalog.topics().size())));
        std::vector<Sequence> starts;
        for (int i = 0; i < topic->second.partition_count; ++i)
            starts.push_back(Sequence(rng.below(100)));
        return GroupCreated{"group" + std::to_string(rng.below(40)), topic->first, starts};
    }
    if (catalog.groups().empty()) return GroupDeleted{GroupId(1)};
    auto at = catalog.groups().begin();
    std::advance(at, static_cast<std::ptrdiff_t>(pick(catalog.groups().size())));
    const ConsumerGroup& group = at->second;
    if (kind == 6) return GroupDeleted{group.group_id};
    std::vector<MemberId> stay;
    std::vector<MemberId> leave;
    for (const auto& [member_id, member] : group.members) {
        const bool leaves = kind == 9 && rng.one_in(2);
        (leaves ? leave : stay).push_back(member_id);
    }
    std::vector<MemberId> owners;
    stay.push_back(MemberId(0));
    for (std::size_t i = 0; i < group.ownership.size(); ++i)
        owners.push_back(stay[pick(stay.size())]);
    if (kind == 9) return MembersLeft{group.group_id, leave, owners};
    return MemberJoined{group.group_id, owners};
}

inline MutationBody random_mutation(Rng& rng, const Catalog& catalog) {
    while (true) {
        MutationBody body = random_body(rng, catalog);
        if (catalog.validate(body).ok()) return body;
    }
}

}  // namespace mortar::testing
