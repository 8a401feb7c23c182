#include "nemesis/nemesis.h"

#include <set>

#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar::sim {
namespace {

class NemesisTest : public SimFixture {
  protected:
    FaultParameters parameters{
        MonoTime{} + seconds(1), MonoTime{} + seconds(25), {"broker"}, {"c1", "c2"}};
};

TEST_F(NemesisTest, a_schedule_is_sorted_within_its_span_and_the_same_for_the_same_seed) {
    const auto schedule = plan_faults(all_nemeses(), 5, parameters);
    EXPECT_EQ(schedule, plan_faults(all_nemeses(), 5, parameters));
    EXPECT_NE(schedule, plan_faults(all_nemeses(), 6, parameters));
    EXPECT_TRUE(std::is_sorted(schedule.begin(), schedule.end()));
    for (const Fault& fault : schedule) {
        EXPECT_GE(fault.at, parameters.begin);
        EXPECT_LT(fault.at, parameters.end);
    }
}

TEST_F(NemesisTest, leaving_a_family_out_leaves_the_others_as_they_are) {
    auto all = plan_faults(all_nemeses(), 9, parameters);
    const auto without = plan_faults(
        {&kill_nemesis(), &power_nemesis(), &torn_nemesis(), &pause_nemesis()}, 9, parameters);
    std::erase_if(all, [](const Fault& fault) { return fault.family == "reset"; });
    EXPECT_EQ(all, without);
}

TEST_F(NemesisTest, a_schedule_survives_text) {
    const auto schedule = plan_faults(all_nemeses(), 3, parameters);
    ASSERT_FALSE(schedule.empty());
    const std::string text = "# a comment\n\n" + format_schedule(schedule);
    EXPECT_EQ(parse_schedule(text).value(), schedule);
    EXPECT_EQ(format_fault(parse_fault("1500 kill broker 20 0").value()), "1500 kill broker 20 0");
    for (const char* bad : {"", "x kill broker 1 0", "1 kill broker 1", "1 kill broker 1 0 more",
                            "-1 kill broker 1 0", "1 kill broker -1 0", "1 kill broker 1 0x"}) {
        EXPECT_TRUE(parse_fault(bad).is(ErrorCode::INVALID_ARGUMENT)) << bad;
    }
}

TEST_F(NemesisTest, families_are_parsed_by_name) {
    EXPECT_EQ(format_families(parse_families("kill,power,torn", 1).value()), "kill,power,torn");
    EXPECT_EQ(format_families(parse_families("reset,reset", 1).value()), "reset");
    EXPECT_EQ(format_families(parse_families("none", 1).value()), "none");
    EXPECT_EQ(format_families(parse_families("all", 1).value()), "kill,power,torn,pause,reset");
    EXPECT_TRUE(parse_families("kill,flood", 1).is(ErrorCode::INVALID_ARGUMENT));
    EXPECT_TRUE(parse_families("", 1).is(ErrorCode::INVALID_ARGUMENT));
}

TEST_F(NemesisTest, swarm_leaves_families_out_but_each_is_often_there_with_enough_faults) {
    std::map<std::string, int> seeds_with;
    std::vector<std::size_t> counts;
    std::set<std::string> sets;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        const auto families = parse_families("swarm", seed).value();
        ASSERT_FALSE(families.empty());
        for (const Nemesis* nemesis : families)
            ++seeds_with[std::string(nemesis->name())];
        sets.insert(format_families(families));
        counts.push_back(plan_faults(families, seed, parameters).size());
    }
    for (const Nemesis* nemesis : all_nemeses()) {
        EXPECT_GT(seeds_with[std::string(nemesis->name())], 100) << nemesis->name();
        EXPECT_LT(seeds_with[std::string(nemesis->name())], 220) << nemesis->name();
    }
    EXPECT_GT(sets.size(), 25u);
    std::sort(counts.begin(), counts.end());
    EXPECT_GT(counts[counts.size() / 2], 15u);
}

TEST_F(NemesisTest, the_runner_kills_brings_back_and_counts_only_what_broke_something) {
    SimNode& broker = world.add_node("broker");
    std::string story;
    FaultRunner runner(world,
                       {[&](SimNode&) { story += "down "; }, [&](SimNode&) { story += "up "; }});
    runner.schedule(parse_schedule("1000 kill broker 50000 0\n"
                                   "2000 kill broker 50000 0\n"   // dead already
                                   "3000 pause broker 50000 0\n"  // dead already
                                   "4000 power broker 90000 7\n"  // the machine still has power
                                   "5000 torn broker 10 7\n"      // not any more
                                   "6000 reset broker 0 7\n"      // no connection
                                   "200000 torn broker 10 7\n"
                                   "300000 pause broker 1000 0\n")
                        .value());
    world.run_until(MonoTime{} + milliseconds(93));
    EXPECT_FALSE(broker.alive());
    world.run_until(MonoTime{} + milliseconds(94));
    EXPECT_TRUE(broker.alive());
    world.run_until(MonoTime{} + seconds(1));
    EXPECT_EQ(story, "down up down up ");
    EXPECT_EQ(runner.fired(), (std::map<std::string, std::uint64_t>{
                                  {"kill", 1}, {"power", 1}, {"torn", 1}, {"pause", 1}}));
    EXPECT_EQ(runner.fired_count(), 4u);
    EXPECT_EQ(runner.history().size(), 4u);
    EXPECT_EQ(broker.life(), 3u);
}

TEST_F(NemesisTest, reset_breaks_a_connection_of_its_node) {
    SimNode& broker = world.add_node("broker");
    SimNode& client = world.add_node("c1");
    broker.scheduler().spawn("broker", [&](Fiber& fiber) {
        const auto listener = broker.net().listen("0.0.0.0:1").value();
        const auto conn = listener->accept(fiber).value();
        fiber.scheduler().park(fiber, NEVER);
    });
    world.run_for(milliseconds(1));
    FaultRunner runner(world, {});
    bool told = false;
    client.scheduler().spawn("client", [&](Fiber& fiber) {
        const auto conn = client.net().connect(fiber, "broker:1", NEVER).value();
        told = read_some(fiber, *conn, 1).is(ErrorCode::CONNECTION_CLOSED);
    });
    world.run_for(milliseconds(100));
    runner.apply({world.now(), "reset", "broker", {}, 1});
    EXPECT_TRUE(world.network().connections().size() == 1) << "the reset is on its way";
    world.run_for(milliseconds(100));
    EXPECT_TRUE(told);
    EXPECT_EQ(runner.fired().at("reset"), 1u);
}

}  // namespace
}  // namespace mortar::sim
