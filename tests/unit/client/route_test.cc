// Which broker is next, and when: rounds, pauses, hints in circles and from the past.
#include <gtest/gtest.h>

#include "core/client/route.h"

namespace mortar {
namespace {
using client::LeaderHint;
using client::Route;

std::optional<LeaderHint> hint(std::string address, std::uint64_t number) {
    return LeaderHint{std::move(address), LeaderEpoch(number)};
}

Route::Ending not_leader(std::optional<LeaderHint> leader = {}) {
    return {.has_no_leader = true, .hint = std::move(leader)};
}

// The addresses of the next attempts, each of which ends with nobody there.
std::string next_failures(Route& route, int count) {
    std::string order;
    for (int i = 0; i < count; ++i) {
        order += route.next().address;
        route.on_end({});
    }
    return order;
}

Route three() {
    return Route({"a", "b", "c"}, Rng(7));
}

TEST(LeaderHint, is_read_only_in_its_exact_form) {
    const auto known = client::parse_leader_hint("leader node=2 addr=[::1]:7188 epoch=9");
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(known->address, "[::1]:7188");
    EXPECT_EQ(known->leader_epoch, LeaderEpoch(9));
    const auto unknown = client::parse_leader_hint("leader unknown epoch=12");
    ASSERT_TRUE(unknown.has_value());
    EXPECT_EQ(unknown->address, "");
    EXPECT_EQ(unknown->leader_epoch, LeaderEpoch(12));
    for (const char* text :
         {"", "leader", "leader unknown", "leader unknown epoch=", "leader unknown epoch=x",
          "leader unknown epoch=1 ", "leader node= addr=a:1 epoch=1", "leader node=1 epoch=1",
          "leader node=1 addr= epoch=1", "leader node=1 addr=a:1", "outcome unknown",
          "leader unknown epoch=99999999999999999999"}) {
        EXPECT_FALSE(client::parse_leader_hint(text).has_value()) << text;
    }
}

TEST(AddressList, takes_commas_and_repeated_options) {
    EXPECT_EQ(client::split_addresses({"a:1,b:2", " c:3 ", "b:2", ",,a:1,"}),
              (std::vector<std::string>{"a:1", "b:2", "c:3"}));
    EXPECT_TRUE(client::split_addresses({}).empty());
    EXPECT_TRUE(client::split_addresses({" , ", ""}).empty());
}

TEST(Route, tries_each_address_once_before_it_pauses) {
    Route route = three();
    std::string order;
    for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 3; ++i) {
            const Route::Attempt attempt = route.next();
            order += attempt.address;
            EXPECT_EQ(attempt.begins_round, i == 0);
            EXPECT_EQ(attempt.is_hurried, round < 3) << round;
            if (i > 0 || round == 0) {
                EXPECT_EQ(attempt.pause, Duration{}) << round;
            }
            if (i == 0 && round == 1) {
                EXPECT_LE(attempt.pause, milliseconds(100));
            }
            if (i == 0 && round > 1) {
                const Duration base = milliseconds(500 * (round - 1));
                EXPECT_GE(attempt.pause, base);
                EXPECT_LE(attempt.pause, base + base / 2);
            }
            route.on_end({});
        }
    }
    EXPECT_EQ(order, "abcabcabcabc");
}

TEST(Route, the_pause_ends_at_30_s) {
    Route route({"a"}, Rng(3));
    Duration last;
    for (int i = 0; i < 40; ++i) {
        last = route.next().pause;
        EXPECT_LE(last, seconds(30));
        route.on_end({});
    }
    EXPECT_EQ(last, seconds(30));
}

TEST(Route, after_a_good_session_the_same_broker_comes_first_then_the_others) {
    Route route = three();
    EXPECT_EQ(next_failures(route, 1), "a");
    EXPECT_EQ(route.next().address, "b");
    route.on_end({.was_good = true});
    const Route::Attempt again = route.next();
    EXPECT_EQ(again.address, "b");
    EXPECT_LE(again.pause, milliseconds(100));
    route.on_end({});
    EXPECT_EQ(next_failures(route, 3), "cab");
}

TEST(Route, a_broker_that_fell_silent_is_left_for_the_others) {
    Route route = three();
    EXPECT_EQ(route.next().address, "a");
    route.on_end({.was_good = true, .was_silent = true});
    EXPECT_EQ(route.next().address, "b");
    // Who points back at it in this round does not know yet.
    route.on_end(not_leader(hint("a", 5)));
    EXPECT_EQ(route.next().address, "c");
    route.on_end(not_leader(hint("a", 5)));
    EXPECT_TRUE(route.is_round_over());
    EXPECT_GE(route.next().pause, milliseconds(500));

    Route alone({"a"}, Rng(1));
    EXPECT_EQ(alone.next().address, "a");
    alone.on_end({.was_good = true, .was_silent = true});
    const Route::Attempt again = alone.next();
    EXPECT_EQ(again.address, "a");
    EXPECT_LE(again.pause, milliseconds(100));
}

TEST(Route, a_named_leader_comes_next_even_if_it_is_not_in_the_list_and_is_forgotten_afterwards) {
    Route route = three();
    EXPECT_EQ(route.next().address, "a");
    route.on_end(not_leader(hint("x", 4)));
    const Route::Attempt named = route.next();
    EXPECT_EQ(named.address, "x");
    EXPECT_EQ(named.pause, Duration{});
    route.on_end({.was_good = true});
    // It may only have restarted; after that the list counts.
    EXPECT_EQ(next_failures(route, 8), "xbcabcab");
}

TEST(Route, an_older_hint_is_not_followed_back) {
    Route route = three();
    EXPECT_EQ(route.next().address, "a");
    route.on_end(not_leader(hint("c", 6)));
    EXPECT_EQ(route.next().address, "c");
    route.on_end({.was_good = true, .has_no_leader = true, .hint = hint("", 7)});
    EXPECT_EQ(route.next().address, "a");
    route.on_end(not_leader(hint("c", 6)));
    EXPECT_EQ(route.next().address, "b");
    route.on_end(not_leader(hint("x", 6)));
    EXPECT_TRUE(route.is_round_over());
    // A newer one is, also to who was asked before it led.
    EXPECT_EQ(route.next().address, "c");
    route.on_end(not_leader(hint("", 7)));
    EXPECT_EQ(route.next().address, "a");
    route.on_end(not_leader(hint("c", 8)));
    EXPECT_EQ(route.next().address, "c");
}

// covers REB-15
TEST(Route, an_old_hint_counts_again_when_nobody_knows_better_for_long) {
    Route route({"a"}, Rng(1));
    EXPECT_EQ(route.next().address, "a");
    route.on_end(not_leader(hint("", 1000)));
    int attempts = 0;
    while (attempts < 20) {
        ++attempts;
        const Route::Attempt attempt = route.next();
        if (attempt.address == "x") break;
        route.on_end(not_leader(hint("x", 1)));
    }
    EXPECT_GE(attempts, 5);
    EXPECT_LT(attempts, 20);
}

TEST(Route, hints_in_circles_end_with_the_round) {
    Route route = three();
    std::string order;
    std::uint64_t number = 1;
    while (true) {
        const Route::Attempt attempt = route.next();
        if (attempt.begins_round && !order.empty()) break;
        order += attempt.address;
        // Each names its neighbour, with ever newer epochs.
        route.on_end(not_leader(hint(attempt.address == "a" ? "b" : "a", number++)));
        ASSERT_LE(order.size(), 10u);
    }
    EXPECT_LE(order.size(), 3 + client::HINTS_PER_ROUND_MAX + 1);
    EXPECT_NE(order.find('c'), std::string::npos);
}

TEST(Route, pauses_do_not_grow_while_an_election_may_be_under_way) {
    Route route({"a"}, Rng(1));
    Duration pause;
    for (int i = 0; i < 2 + client::ELECTION_ROUNDS_MAX; ++i) {
        pause = route.next().pause;
        EXPECT_LE(pause, milliseconds(750));
        route.on_end(not_leader(hint("", 3)));
    }
    EXPECT_GE(pause, milliseconds(500));
    (void)route.next();
    route.on_end(not_leader(hint("", 3)));
    EXPECT_GE(route.next().pause, milliseconds(1000));
}

TEST(Route, good_sessions_that_end_at_once_again_and_again_are_slowed_down) {
    Route route({"a"}, Rng(1));
    (void)route.next();
    Duration pause;
    for (int i = 0; i <= client::SHORT_SESSIONS_FREE; ++i) {
        route.on_end({.was_good = true, .was_short = true});
        pause = route.next().pause;
        EXPECT_EQ(pause >= milliseconds(500), i == client::SHORT_SESSIONS_FREE) << i;
    }
    route.on_end({.was_good = true});
    EXPECT_LE(route.next().pause, milliseconds(100));
}

}  // namespace
}  // namespace mortar
