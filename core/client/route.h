// route: which broker a link tries next, and after what pause.
// Shape:    rounds. A round tries each address of the list once, and the leaders that brokers name on the way, at once one
//           after the other; a round that led to no leader is followed by a pause that doubles. A good session's end begins
//           anew, at the same broker first: it may only have restarted.
// Owns:     the list, and what the present round has learned. A named leader that is not in the list is tried, not kept.
// Errors:   none.
// Invariant: between two pauses at most list + HINTS_PER_ROUND_MAX + 1 attempts. In a round nobody is tried again that did
//           not answer, and no hint is followed that is older than what was heard before.
// Source:   contract R3, 8 (client reconnect).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/env/clock.h"
#include "core/env/rng.h"

namespace mortar::client {

inline constexpr Duration RECONNECT_FIRST_MAX = milliseconds(100);
inline constexpr Duration RECONNECT_BASE = milliseconds(500);
inline constexpr Duration RECONNECT_MAX = seconds(30);
// While a living broker says that there is no leader, an election is under way: so many pauses do not grow.
inline constexpr int ELECTION_ROUNDS_MAX = 4;
// Leaders named by brokers that are followed in a round.
inline constexpr std::size_t HINTS_PER_ROUND_MAX = 4;
// After so many doublings an old hint is as good as none: the cluster may have been made anew.
inline constexpr int EPOCH_KEPT_DOUBLINGS = 3;
// With several addresses the first rounds do not wait long for one that may hang.
inline constexpr int HURRIED_ROUNDS = 2;
// Good sessions that end early, in a row, before each is followed by RECONNECT_BASE.
inline constexpr int SHORT_SESSIONS_FREE = 3;

// What a broker that is not the leader says of the leader.
struct LeaderHint {
    std::string address;  // empty: it knows none
    LeaderEpoch leader_epoch;
};

// `leader node=<id> addr=<host:port> epoch=<n>` or `leader unknown epoch=<n>`; nothing for any other text.
std::optional<LeaderHint> parse_leader_hint(std::string_view text);

// Each entry may name several, separated by commas; blanks and repetitions go.
std::vector<std::string> split_addresses(const std::vector<std::string>& entries);

class Route {
  public:
    struct Attempt {
        std::string address;
        Duration pause;             // before it
        bool is_hurried = false;    // others may answer sooner
        bool begins_round = false;  // nobody was tried yet in this one
    };
    // How the attempt, or the session that it led to, ended.
    struct Ending {
        bool was_good = false;       // it served a request, or lasted
        bool was_short = false;      // .. but not for long
        bool was_silent = false;     // the broker no longer answered
        bool has_no_leader = false;  // the broker answers, and says that it does not lead
        std::optional<LeaderHint> hint = std::nullopt;
    };

    // At least one address, as from split_addresses.
    Route(std::vector<std::string> addresses, Rng rng);

    Attempt next();
    void on_end(const Ending& ending);
    // The next attempt begins a new round.
    bool is_round_over() const { return preferred_.empty() && !find_untried(); }
    // The list names another broker than the one tried last.
    bool has_others() const;
    const std::vector<std::string>& addresses() const { return addresses_; }

  private:
    struct Tried {
        std::string address;
        bool has_answered = false;
    };

    std::optional<std::size_t> find_untried() const;
    Tried* find_tried(std::string_view address);
    void begin_anew(bool was_short);
    void begin_round();
    Duration spread(Duration base);
    void take_hint(const LeaderHint& hint);

    std::vector<std::string> addresses_;
    Rng rng_;
    std::size_t next_index_ = 0;
    std::string current_;    // tried last
    std::string preferred_;  // comes before the list; empty: nothing
    Duration pause_;         // before the next attempt
    int round_ = -1;         // since the last good session; -1: nothing was tried yet
    int election_rounds_ = 0;
    int short_sessions_ = 0;
    LeaderEpoch newest_epoch_;
    // Of this round.
    std::vector<Tried> tried_;
    std::vector<LeaderHint> followed_;
    bool met_broker_ = false;
};

}  // namespace mortar::client
