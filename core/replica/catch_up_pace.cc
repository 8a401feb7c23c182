#include "core/replica/catch_up_pace.h"

#include <algorithm>

#include "core/base/assert.h"

namespace mortar {
namespace {

constexpr std::uint64_t NS_PER_MS = 1'000'000;
constexpr std::uint64_t MS_PER_SECOND = 1'000;

}  // namespace

CatchUpPace::Verdict CatchUpPace::on_sample(MonoTime now, std::uint64_t appended_bytes,
                                            const std::vector<FollowerStatus>& followers) {
    const std::uint64_t appended_now = appended_bytes - last_appended_bytes_;
    last_appended_bytes_ = appended_bytes;
    const std::optional<MonoTime> before = std::exchange(last_at_, now);
    if (!before) return {};
    const auto took_ms = static_cast<std::uint64_t>((now - *before).ns) / NS_PER_MS;
    if (held_to_ == 0 && took_ms > 0)
        rates_.push_back({now, appended_now * MS_PER_SECOND / took_ms});
    while (!rates_.empty() && rates_.front().at + REFERENCE_TIME < now && held_to_ == 0)
        rates_.pop_front();

    Verdict verdict;
    for (const FollowerStatus& follower : followers) {
        const Change change = judge(now, appended_now, follower);
        if (change == Change::NONE) continue;
        verdict.change = change;
        verdict.node_id = follower.node_id;
    }
    const bool was_held = held_to_ > 0;
    if (!holds_any()) {
        held_to_ = 0;
    } else if (!was_held) {
        held_to_ = rate_to_hold();
    }
    // What begins or ends for one follower changes nothing as long as they are held for the other.
    if (was_held == (held_to_ > 0)) verdict.change = Change::NONE;
    verdict.bytes_per_second = held_to_;
    return verdict;
}

CatchUpPace::Change CatchUpPace::judge(MonoTime now, std::uint64_t appended_bytes,
                                       const FollowerStatus& follower) {
    const auto known = behind_.find(follower.node_id);
    if (!follower.is_installed || follower.is_in_sync) {
        const bool held = known != behind_.end() && known->second.holds;
        if (known != behind_.end()) behind_.erase(known);
        MORTAR_SOMETIMES(held && follower.is_in_sync, "catch_up_pace: in sync, producers let go");
        return held ? Change::RELEASED : Change::NONE;
    }
    if (known == behind_.end()) {
        behind_[follower.node_id].confirmed_bytes = follower.confirmed_bytes;
        return Change::NONE;
    }
    Behind& behind = known->second;
    const std::uint64_t confirmed =
        follower.confirmed_bytes - std::exchange(behind.confirmed_bytes, follower.confirmed_bytes);
    if (behind.holds) {
        if (follower.lag_records < behind.lag_records_min) {
            behind.lag_records_min = follower.lag_records;
            behind.lag_min_at = now;
        }
        if (now < behind.lag_min_at + CATCH_UP_PATIENCE) return Change::NONE;
        MORTAR_SOMETIMES(true, "catch_up_pace: a follower does not catch up in spite of it");
        behind.holds = false;
        behind.is_given_up = true;
        return Change::GIVEN_UP;
    }
    const bool is_too_slow =
        confirmed > 0 && confirmed * 100 / CATCH_UP_OVER_APPEND_PERCENT < appended_bytes;
    if (behind.is_given_up || !is_too_slow) return Change::NONE;
    MORTAR_SOMETIMES(true, "catch_up_pace: producers are held back");
    behind.holds = true;
    behind.lag_records_min = follower.lag_records;
    behind.lag_min_at = now;
    return Change::HELD;
}

bool CatchUpPace::holds_any() const {
    return std::any_of(behind_.begin(), behind_.end(),
                       [](const auto& each) { return each.second.holds; });
}

std::uint64_t CatchUpPace::rate_to_hold() const {
    std::uint64_t most = 0;
    for (const Rate& rate : rates_)
        most = std::max(most, rate.bytes_per_second);
    return std::max<std::uint64_t>(most * HELD_PERCENT / 100, 1);
}

}  // namespace mortar
