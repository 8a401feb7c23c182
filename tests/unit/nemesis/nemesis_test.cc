#include "nemesis/nemesis.h"

#include <algorithm>
#include <cstdlib>
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
    auto all = plan_faults(swarm_nemeses(1), 9, parameters);
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
    EXPECT_EQ(format_families(parse_families("all", 1, 3).value()),
              "kill,power,torn,pause,reset,partition,clock,slow-disk,fsync-fail,disk-full,bitrot,"
              "slow-net,rolling");
    for (const Nemesis* nemesis : all_nemeses())
        EXPECT_EQ(parse_families(nemesis->name(), 1).value(), std::vector{nemesis});
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
    for (const Nemesis* nemesis : swarm_nemeses(1)) {
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

TEST_F(NemesisTest, swarm_over_several_brokers_draws_every_family_but_those_that_go_by_name) {
    std::map<std::string, int> seeds_with;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        const auto families = parse_families("swarm", seed, 3).value();
        for (const Nemesis* nemesis : families)
            ++seeds_with[std::string(nemesis->name())];
    }
    for (const Nemesis* nemesis : swarm_nemeses(3))
        EXPECT_GT(seeds_with[std::string(nemesis->name())], 100) << nemesis->name();
    EXPECT_EQ(seeds_with.count("wild-clock") + seeds_with.count("wipe"), 0u);
}

class ClusterNemesisTest : public SimFixture {
  protected:
    SimNode& b1 = world.add_node("broker1");
    SimNode& b2 = world.add_node("broker2");
    SimNode& b3 = world.add_node("broker3");
    SimNode& c1 = world.add_node("c1");
    std::vector<SimNode*> nodes{&b1, &b2, &b3, &c1};
    SimNode* leading = nullptr;
    std::string story;
    FaultParameters parameters{MonoTime{} + seconds(1),
                               MonoTime{} + seconds(25),
                               {"broker1", "broker2", "broker3"},
                               {"c1"},
                               "broker2"};
    FaultRunner runner{world,
                       {.on_down = [this](SimNode& node) { story += node.name() + " down "; },
                        .on_up = [this](SimNode& node) { story += node.name() + " up "; },
                        .leader = [this] { return leading; },
                        .restart = [this](SimNode& node) { story += node.name() + " restarts "; },
                        .on_rot =
                            [this](SimNode& node, const std::string& path) {
                                story += node.name() + " rots " + path + " ";
                            },
                        .on_wiped = [this](SimNode& node) { story += node.name() + " wiped "; },
                        .brokers = {&b1, &b2, &b3}}};

    // "12 21" : broker1 to broker2 and back are blocked; c is the client.
    std::string blocked() {
        static constexpr const char* SHORT[] = {"1", "2", "3", "c"};
        std::string text;
        for (std::size_t from = 0; from < nodes.size(); ++from) {
            for (std::size_t to = 0; to < nodes.size(); ++to) {
                if (!world.network().is_blocked(*nodes[from], *nodes[to])) continue;
                text += std::string(SHORT[from]) + SHORT[to] + " ";
            }
        }
        return text;
    }
    void make_file(SimNode& node, const std::string& folder, const std::string& name,
                   const std::string& text) {
        run_on(node, [&](Fiber& fiber) {
            Disk& disk = node.disk();
            ASSERT_TRUE(disk.make_folders(fiber, folder).ok());
            const auto file = disk.open(fiber, folder + "/" + name, OpenMode::CREATE).value();
            ASSERT_TRUE(write_text(fiber, *file, 0, text).ok());
            ASSERT_TRUE(file->sync_data(fiber).ok());
            ASSERT_TRUE(disk.sync_folder(fiber, folder).ok());
        });
    }
};

TEST_F(ClusterNemesisTest, faults_that_last_are_over_at_the_end_of_the_span) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        for (const char* family :
             {"partition", "slow-net", "slow-disk", "fsync-fail", "disk-full"}) {
            for (const Fault& fault : plan_faults({find_nemesis(family)}, seed, parameters))
                ASSERT_LE(fault.at + fault.duration, parameters.end) << format_fault(fault);
        }
        for (const Fault& fault : plan_faults({find_nemesis("rolling")}, seed, parameters))
            ASSERT_LT(fault.at + fault.duration * 3, parameters.end) << format_fault(fault);
    }
}

TEST_F(ClusterNemesisTest, each_family_strikes_in_most_runs_and_the_leader_often) {
    std::size_t of_leader = 0;
    std::size_t of_brokers = 0;
    for (const Nemesis* nemesis : swarm_nemeses(3)) {
        std::size_t runs = 0;
        for (std::uint64_t seed = 1; seed <= 50; ++seed) {
            const auto schedule = plan_faults({nemesis}, seed, parameters);
            if (!schedule.empty()) ++runs;
            for (const Fault& fault : schedule) {
                if (fault.node == LEADER_TARGET) ++of_leader;
                if (fault.node.starts_with("broker")) ++of_brokers;
            }
        }
        EXPECT_GE(runs, 45u) << nemesis->name();
    }
    EXPECT_GT(of_leader, of_brokers / 5);
    EXPECT_LT(of_leader, of_brokers);
}

TEST_F(ClusterNemesisTest, a_fault_of_the_leader_strikes_who_leads_then_and_says_whom) {
    runner.apply({world.now(), "kill", "leader", milliseconds(1), 0});
    EXPECT_EQ(runner.fired_count(), 0u) << "nobody leads";
    leading = &b3;
    runner.apply({world.now(), "kill", "leader", milliseconds(1), 0});
    EXPECT_EQ(story, "broker3 down ");
    EXPECT_EQ(runner.history().at(0).node, "broker3");
}

TEST_F(ClusterNemesisTest, partitions_come_in_all_shapes_and_heal) {
    std::set<std::string> shapes;
    for (std::uint64_t draw = 1; draw <= 400; ++draw) {
        runner.apply({world.now(), "partition", "broker1", seconds(2), draw});
        shapes.insert(blocked());
        world.run_for(seconds(2));
        EXPECT_EQ(blocked(), "") << draw;
    }
    for (const char* shape : {"12 13 21 31 ",             // alone, and clients reach it
                              "12 13 ", "21 31 ",         // one way
                              "12 13 1c 21 31 c1 ",       // cut off from everybody
                              "1c 21 31 ",                // never: one direction for all
                              "1c c1 ", "1c ", "c1 ",     // from the clients
                              "23 32 ", "23 ", "32 "}) {  // the only one that sees both
        EXPECT_EQ(shapes.contains(shape), std::string_view(shape) != "1c 21 31 ") << shape;
    }
    shapes.clear();
    for (std::uint64_t draw = 1; draw <= 100; ++draw) {
        runner.apply({world.now(), "partition", "c1", milliseconds(500), draw});
        shapes.insert(blocked());
        world.run_for(seconds(2));
    }
    for (const char* shape : {"1c c1 ", "2c ", "c3 ", "1c 2c 3c c1 c2 c3 ", "c1 c2 c3 "})
        EXPECT_TRUE(shapes.contains(shape)) << shape;
}

TEST_F(ClusterNemesisTest, a_flapping_partition_goes_on_and_off_until_its_end) {
    std::size_t flapping = 0;
    for (std::uint64_t draw = 1; draw <= 40; ++draw) {
        runner.apply({world.now(), "partition", "broker1", seconds(10), draw});
        int changes = 0;
        for (bool was_on = true; const int step : std::vector<int>(1000, 10)) {
            world.run_for(milliseconds(step));
            const bool is_on = !blocked().empty();
            changes += is_on != was_on ? 1 : 0;
            was_on = is_on;
        }
        flapping += changes > 5 ? 1 : 0;
        world.run_for(milliseconds(1));
        EXPECT_EQ(blocked(), "");
    }
    EXPECT_GT(flapping, 3u);
    EXPECT_LT(flapping, 25u);
}

TEST_F(ClusterNemesisTest, clocks_drift_within_the_margin_and_wild_ones_beyond) {
    std::int64_t within = 0;
    std::int64_t wild = 0;
    for (std::uint64_t draw = 1; draw <= 50; ++draw) {
        const MonoTime before = b1.clock().now();
        runner.apply({world.now(), "clock", "broker1", {}, draw});
        within = std::max(within, std::abs(b1.clock().drift_ppm()));
        runner.apply({world.now(), "wild-clock", "broker2", {}, draw});
        wild = std::max(wild, std::abs(b2.clock().drift_ppm()));
        EXPECT_EQ(b1.clock().now(), before) << "it never jumps";
    }
    EXPECT_GT(within, 15'000);
    EXPECT_LE(within, 20'000);
    EXPECT_GT(wild, 100'000);
    const std::uint64_t wall = b1.clock().wall_unix_ms();
    for (std::uint64_t draw = 1; b1.clock().wall_unix_ms() == wall; ++draw) {
        ASSERT_LT(draw, 20u);
        runner.apply({world.now(), "clock", "broker1", {}, draw});
    }
}

TEST_F(ClusterNemesisTest, disk_faults_turn_their_knob_and_turn_it_back) {
    std::set<std::string> seen;
    const auto look = [&] {
        const DiskFaults& faults = b1.disk().faults();
        if (faults.slow_factor > 1) seen.insert("slow");
        if (faults.delay_max.ns > 0) seen.insert("delayed");
        if (faults.stalled_until > world.now()) seen.insert("stalled");
        if (faults.sync_error_per_mille > 0)
            seen.insert("sync " + std::to_string(static_cast<int>(faults.failed_sync)));
        if (faults.write_error_per_mille > 0) seen.insert("write");
        if (faults.capacity_bytes == b1.disk().used_bytes()) seen.insert("full");
        if (faults.capacity_bytes < 100'000) seen.insert("nearly full");
    };
    make_file(b1, "a", "f", "some bytes");
    for (std::uint64_t draw = 1; draw <= 40; ++draw) {
        for (const char* family : {"slow-disk", "fsync-fail", "disk-full"})
            runner.apply({world.now(), family, "broker1", milliseconds(100), draw});
        look();
        world.run_for(milliseconds(100));
        const DiskFaults& faults = b1.disk().faults();
        EXPECT_EQ(faults.slow_factor, 1);
        EXPECT_EQ(faults.delay_max, Duration{});
        EXPECT_LE(faults.stalled_until, world.now());
        EXPECT_EQ(faults.sync_error_per_mille + faults.write_error_per_mille, 0u);
        EXPECT_GT(faults.capacity_bytes, 1'000'000u);
    }
    EXPECT_EQ(seen, (std::set<std::string>{"slow", "delayed", "stalled", "sync 0", "sync 1",
                                           "sync 2", "sync 3", "write", "full", "nearly full"}));
}

TEST_F(ClusterNemesisTest, rot_strikes_the_victim_only_in_the_older_half_of_a_log) {
    for (const Fault& fault :
         plan_faults({find_nemesis("bitrot"), find_nemesis("wipe")}, 1, parameters))
        EXPECT_EQ(fault.node, "broker2");
    FaultParameters spared = parameters;
    spared.victim = "";
    EXPECT_TRUE(plan_faults({find_nemesis("bitrot"), find_nemesis("wipe")}, 1, spared).empty());

    runner.apply({world.now(), "bitrot", "broker2", {}, 1});
    EXPECT_EQ(runner.fired_count(), 0u) << "it has no log yet";
    const std::string text = "older and newer!";
    make_file(b2, "topics/1/0", "1.seg", text + std::string(100, '\0'));
    make_file(b2, "topics/1/0", "1.idx", text);
    make_file(b1, "replica", "state", "not blank");
    runner.apply({world.now(), "bitrot", "broker2", {}, 1});
    EXPECT_EQ(runner.fired_count(), 0u) << "broker3 is blank: it may be the only other copy";
    make_file(b3, "replica", "state", "not blank");
    for (std::uint64_t draw = 1; draw <= 20; ++draw)
        runner.apply({world.now(), "bitrot", "broker2", {}, draw});
    EXPECT_TRUE(story.starts_with("broker2 rots topics/1/0/1.seg ")) << story;
    const std::string rotten = text_of(b2.disk().durable_read("topics/1/0/1.seg").value());
    EXPECT_NE(rotten.substr(0, 8), text.substr(0, 8));
    EXPECT_EQ(rotten.substr(8, 8), text.substr(8));
    EXPECT_EQ(text_of(b2.disk().durable_read("topics/1/0/1.idx").value()), text);
}

TEST_F(ClusterNemesisTest, a_wiped_machine_comes_back_empty) {
    make_file(b2, "a", "f", "gone");
    runner.apply({world.now(), "wipe", "broker2", seconds(1), 0});
    EXPECT_EQ(story, "broker2 wiped broker2 down ");
    world.run_for(seconds(2));
    EXPECT_EQ(story, "broker2 wiped broker2 down broker2 up ");
    EXPECT_TRUE(b2.disk().cached_names("").empty());
}

TEST_F(ClusterNemesisTest, rolling_restarts_each_broker_in_turn) {
    runner.apply({world.now(), "rolling", "broker2", seconds(1), 0});
    world.run_for(milliseconds(500));
    EXPECT_EQ(story, "broker2 restarts ");
    world.run_for(seconds(2));
    EXPECT_EQ(story, "broker2 restarts broker3 restarts broker1 restarts ");
}

TEST_F(ClusterNemesisTest, slow_net_delays_narrows_or_lets_only_small_frames_pass) {
    bool gray = false;
    bool slow = false;
    for (std::uint64_t draw = 1; draw <= 60; ++draw) {
        MonoTime small_came;
        MonoTime bulk_came;
        const MonoTime begun = world.now();
        runner.apply({world.now(), "slow-net", "broker1", seconds(60), draw});
        const std::string address = "broker2:" + std::to_string(draw);
        b2.scheduler().spawn("server", [&, address](Fiber& fiber) {
            const auto listener = b2.net().listen(address).value();
            const auto conn = listener->accept(fiber).value();
            std::size_t received = 0;
            while (received < 100'100) {
                const auto piece = read_some(fiber, *conn, 100'100);
                if (!piece.ok() || piece->empty()) return;
                if (received == 0) small_came = world.now();
                received += piece->size();
            }
            bulk_came = world.now();
        });
        b1.scheduler().spawn("client", [&, address](Fiber& fiber) {
            const auto conn = b1.net().connect(fiber, address, NEVER).value();
            EXPECT_TRUE(send_text(fiber, *conn, std::string(100, 's')).ok());
            const MonoTime later = b1.clock().now() + seconds(1);
            EXPECT_TRUE(fiber.scheduler().sleep_until(fiber, later).ok());
            EXPECT_TRUE(send_text(fiber, *conn, std::string(100'000, 'b')).ok());
            (void)read_some(fiber, *conn, 1);
        });
        world.run_for(seconds(100));
        EXPECT_GT(bulk_came, begun) << "it gets through in the end";
        slow = slow || small_came - begun > milliseconds(50);
        gray = gray || (small_came - begun < milliseconds(50) && bulk_came - begun > seconds(30));
    }
    EXPECT_TRUE(slow);
    EXPECT_TRUE(gray);
}

}  // namespace
}  // namespace mortar::sim
