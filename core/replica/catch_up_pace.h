// catch_up_pace: are producers held back, so that a follower that is behind can catch up?
// Shape:    looks once a second at what producers appended and at what each follower confirmed. One that is installed, not in
//           sync, and confirms something, but less than CATCH_UP_OVER_APPEND_PERCENT of what was appended, would need too
//           long: until it is in sync producers are held to HELD_PERCENT of what they did before, which is the most of any
//           second of the last REFERENCE_TIME.
//           Nobody is held for a follower that is not there, nor for one that confirms nothing at all; and when one falls no
//           less behind for CATCH_UP_PATIENCE in spite of that, they are let go until it was in sync or away.
// Units:    bytes of records.
// Invariant: one rate is chosen when holding begins and stays until it ends: it is never taken from a rate that was held.
// Source:   issue 3 (catch-up), contract 8 (level 1).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/replica/leader.h"

namespace mortar {

inline constexpr Duration PACE_SAMPLE_INTERVAL = seconds(1);
inline constexpr std::uint64_t CATCH_UP_OVER_APPEND_PERCENT = 125;
inline constexpr std::uint64_t HELD_PERCENT = 70;
inline constexpr Duration REFERENCE_TIME = seconds(10);
inline constexpr Duration CATCH_UP_PATIENCE = seconds(15);

class CatchUpPace {
  public:
    enum class Change : std::uint8_t { NONE, HELD, RELEASED, GIVEN_UP };
    struct Verdict {
        std::uint64_t bytes_per_second = 0;  // 0: producers are not held
        Change change = Change::NONE;
        NodeId node_id;  // for whom it changed
    };
    // appended_bytes: by producers, ever growing. Of a leader; one object a term.
    Verdict on_sample(MonoTime now, std::uint64_t appended_bytes,
                      const std::vector<FollowerStatus>& followers);

  private:
    struct Behind {
        std::uint64_t confirmed_bytes = 0;  // at the sample before
        std::uint64_t lag_records_min = 0;  // since producers are held for it
        MonoTime lag_min_at;
        bool holds = false;
        bool is_given_up = false;
    };
    struct Rate {
        MonoTime at;
        std::uint64_t bytes_per_second;
    };
    Change judge(MonoTime now, std::uint64_t appended_bytes, const FollowerStatus& follower);
    bool holds_any() const;
    std::uint64_t rate_to_hold() const;

    std::optional<MonoTime> last_at_;
    std::uint64_t last_appended_bytes_ = 0;
    std::deque<Rate> rates_;  // of the last REFERENCE_TIME, not held
    std::uint64_t held_to_ = 0;
    std::map<NodeId, Behind> behind_;
};

}  // namespace mortar
