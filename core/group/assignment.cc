#include "core/group/assignment.h"

#include <algorithm>

#include "core/base/assert.h"

namespace mortar {
namespace {

struct Share {
    MemberId member_id;
    std::size_t owned_count = 0;  // before
    std::size_t quota = 0;
    std::size_t kept_count = 0;
};

Share* find_share(std::vector<Share>& shares, MemberId member_id) {
    const auto it =
        std::lower_bound(shares.begin(), shares.end(), member_id,
                         [](const Share& share, MemberId id) { return share.member_id < id; });
    return it != shares.end() && it->member_id == member_id ? &*it : nullptr;
}

// The larger shares go to those who own most already: each partition above the smaller share that stays is one move less.
void set_quotas(std::vector<Share>& shares, std::size_t partition_count) {
    std::vector<Share*> by_owned;
    for (Share& share : shares)
        by_owned.push_back(&share);
    std::stable_sort(by_owned.begin(), by_owned.end(), [](const Share* a, const Share* b) {
        return a->owned_count > b->owned_count;
    });
    const std::size_t small = partition_count / shares.size();
    std::size_t large_count = partition_count % shares.size();
    for (Share* share : by_owned) {
        share->quota = small + (large_count > 0 ? 1 : 0);
        if (large_count > 0) --large_count;
    }
}

}  // namespace

std::vector<MemberId> assign(std::span<const MemberId> members,
                             std::span<const MemberId> previous) {
    MORTAR_ASSERT(std::is_sorted(members.begin(), members.end()));
    std::vector<MemberId> owners(previous.size(), NO_MEMBER);
    if (members.empty()) return owners;

    std::vector<Share> shares;
    for (const MemberId member_id : members)
        shares.push_back(Share{member_id});
    for (const MemberId owner : previous) {
        if (Share* share = find_share(shares, owner)) ++share->owned_count;
    }
    set_quotas(shares, previous.size());

    std::vector<bool> is_kept(previous.size(), false);
    for (std::size_t i = 0; i < previous.size(); ++i) {
        Share* share = find_share(shares, previous[i]);
        if (share == nullptr || share->kept_count == share->quota) continue;
        owners[i] = previous[i];
        is_kept[i] = true;
        ++share->kept_count;
    }
    auto taker = shares.begin();
    for (std::size_t i = 0; i < previous.size(); ++i) {
        if (is_kept[i]) continue;
        while (taker->kept_count == taker->quota)
            ++taker;
        owners[i] = taker->member_id;
        ++taker->kept_count;
    }
    return owners;
}

}  // namespace mortar
