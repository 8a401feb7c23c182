#include "io-sim/world.h"

#include <algorithm>
#include <vector>

#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar::sim {
namespace {

class SimWorldTest : public SimFixture {};

struct CountOnDestroy {
    int& count;
    ~CountOnDestroy() { ++count; }
};

// A little of everything: two nodes that talk, write and sync.
std::uint64_t hash_of_run(std::uint64_t seed) {
    HeapStackPool stacks;
    SimWorld world(seed, stacks);
    SimNode& server = world.add_node("server");
    SimNode& client = world.add_node("client");
    server.scheduler().spawn("server.accept", [&](Fiber& fiber) {
        auto listener = server.env().net.listen("0.0.0.0:7188").value();
        auto conn = listener->accept(fiber).value();
        auto file = server.env().disk.open(fiber, "log", OpenMode::CREATE).value();
        std::byte buffer[64];
        std::uint64_t file_offset = 0;
        while (true) {
            const auto count = conn->read(fiber, buffer, NEVER);
            if (!count.ok() || *count == 0) return;
            const ByteSpan part = ByteSpan(buffer).first(*count);
            EXPECT_TRUE(file->write_at(fiber, file_offset, {&part, 1}).ok());
            file_offset += *count;
            EXPECT_TRUE(file->sync_data(fiber).ok());
            EXPECT_TRUE(conn->write(fiber, {&part, 1}, NEVER).ok());
        }
    });
    client.scheduler().spawn("client.talk", [&](Fiber& fiber) {
        EXPECT_TRUE(
            fiber.scheduler().sleep_until(fiber, client.clock().now() + milliseconds(1)).ok());
        auto conn = client.env().net.connect(fiber, "server:7188", NEVER).value();
        std::byte buffer[64] = {};
        for (int i = 0; i < 20; ++i) {
            const ByteSpan part(buffer);
            EXPECT_TRUE(conn->write(fiber, {&part, 1}, NEVER).ok());
            std::size_t back = 0;
            while (back < sizeof buffer)
                back += conn->read(fiber, buffer, NEVER).value();
        }
    });
    world.run_until(MonoTime{} + seconds(5));
    EXPECT_EQ(server.disk().durable_read("log"), std::nullopt) << "its name was never synced";
    EXPECT_EQ(server.disk().cached_read("log")->size(), 20u * 64);
    return world.trace_hash();
}

TEST_F(SimWorldTest, one_seed_gives_one_hash_and_another_seed_another) {
    EXPECT_EQ(hash_of_run(7), hash_of_run(7));
    EXPECT_NE(hash_of_run(7), hash_of_run(8));
}

TEST_F(SimWorldTest, seed_decides_which_runnable_fiber_goes_next) {
    const auto order_of = [&](std::uint64_t seed) {
        SimWorld other(seed, stacks);
        std::string order;
        for (const char* name : {"a", "b"}) {
            SimNode& node = other.add_node(name);
            for (char c = '0'; c < '5'; ++c) {
                node.scheduler().spawn("fiber", [&order, c](Fiber&) { order += c; });
            }
        }
        other.run_until(MonoTime{});
        return order;
    };
    EXPECT_EQ(order_of(1), order_of(1));
    EXPECT_EQ(order_of(1).size(), 10u);
    std::vector<std::string> orders;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
        orders.push_back(order_of(seed));
    std::sort(orders.begin(), orders.end());
    EXPECT_GT(std::unique(orders.begin(), orders.end()) - orders.begin(), 6);
}

TEST_F(SimWorldTest, jumps_over_idle_time) {
    SimNode& node = world.add_node("n");
    MonoTime woken;
    node.scheduler().spawn("sleeper", [&](Fiber& fiber) {
        EXPECT_TRUE(
            fiber.scheduler().sleep_until(fiber, node.clock().now() + seconds(86'400)).ok());
        woken = world.now();
    });
    world.run_until(MonoTime{} + seconds(100'000));
    EXPECT_EQ(woken, MonoTime{} + seconds(86'400));
    EXPECT_EQ(world.now(), MonoTime{} + seconds(100'000));
    EXPECT_LT(world.step_count(), 10u);
}

TEST_F(SimWorldTest, events_of_one_time_come_in_order_of_scheduling) {
    std::string order;
    world.at(MonoTime{} + milliseconds(2), [&] { order += 'c'; });
    world.at(MonoTime{} + milliseconds(1), [&] {
        order += 'a';
        world.at(world.now(), [&] { order += 'b'; });
    });
    world.at(MonoTime{} + milliseconds(2), [&] { order += 'd'; });
    world.run_until(MonoTime{} + seconds(1));
    EXPECT_EQ(order, "abcd");
}

TEST_F(SimWorldTest, streams_of_two_names_differ_and_a_new_one_moves_no_other) {
    SimNode& a = world.add_node("a");
    SimNode& b = world.add_node("b");
    Rng first = a.env().rng.stream("x");
    Rng again = a.env().rng.stream("x");
    Rng other_node = b.env().rng.stream("x");
    const std::uint64_t drawn = first.next();
    EXPECT_NE(drawn, again.next()) << "asking twice must not give the same numbers";
    EXPECT_NE(drawn, other_node.next());

    SimWorld same(1, stacks);
    SimNode& same_a = same.add_node("a");
    same_a.env().rng.stream("unrelated");
    EXPECT_EQ(same_a.env().rng.stream("x").next(), drawn);
}

TEST_F(SimWorldTest, a_restarted_node_draws_other_numbers) {
    SimNode& node = world.add_node("n");
    const std::uint64_t first = node.env().rng.stream("id").next();
    node.kill();
    node.restart();
    EXPECT_EQ(node.life(), 2u);
    EXPECT_NE(node.env().rng.stream("id").next(), first);
}

TEST_F(SimWorldTest, kill_unwinds_every_fiber_and_returns_the_stacks) {
    SimNode& node = world.add_node("n");
    int destroyed = 0;
    for (int i = 0; i < 10; ++i) {
        node.scheduler().spawn("parked", [&, i](Fiber& fiber) {
            const CountOnDestroy guard{destroyed};
            fiber.scheduler().park(fiber, i % 2 == 0 ? NEVER : node.clock().now() + seconds(1));
            ADD_FAILURE() << "a killed fiber went on";
        });
    }
    world.run_until(MonoTime{} + milliseconds(1));
    // One that has not run yet.
    node.scheduler().spawn("new", [](Fiber&) { ADD_FAILURE() << "a dead node starts nothing"; });
    node.kill();
    world.run_until(MonoTime{} + seconds(2));
    EXPECT_EQ(destroyed, 10);
    EXPECT_EQ(stacks.in_use(), 0u);
    EXPECT_FALSE(node.alive());
}

TEST_F(SimWorldTest, a_paused_node_runs_no_fiber_and_fires_no_timer_until_it_resumes) {
    SimNode& node = world.add_node("n");
    std::vector<std::int64_t> ticks_ms;
    node.scheduler().spawn("ticker", [&](Fiber& fiber) {
        for (int i = 0; i < 5; ++i) {
            EXPECT_TRUE(
                fiber.scheduler().sleep_until(fiber, node.clock().now() + milliseconds(10)).ok());
            ticks_ms.push_back((world.now() - MonoTime{}).to_ms());
        }
    });
    world.at(MonoTime{} + milliseconds(25), [&] { node.pause(milliseconds(100)); });
    world.at(MonoTime{} + milliseconds(50),
             [&] { node.pause(milliseconds(10)); });  // inside the first
    world.run_until(MonoTime{} + seconds(1));
    EXPECT_EQ(ticks_ms, (std::vector<std::int64_t>{10, 20, 125, 135, 145}));
}

TEST_F(SimWorldTest, a_fiber_made_runnable_in_a_pause_is_kept_for_later_and_a_kill_ends_the_pause) {
    SimNode& node = world.add_node("n");
    node.pause(milliseconds(10));
    bool ran = false;
    node.scheduler().spawn("late", [&](Fiber&) { ran = true; });
    world.run_until(MonoTime{} + milliseconds(9));
    EXPECT_FALSE(ran);
    world.run_until(MonoTime{} + milliseconds(10));
    EXPECT_TRUE(ran);

    node.pause(seconds(10));
    node.kill();
    node.restart();
    bool ran_again = false;
    node.scheduler().spawn("at_once", [&](Fiber&) { ran_again = true; });
    world.run_until(MonoTime{} + milliseconds(11));
    EXPECT_TRUE(ran_again);
}

TEST_F(SimWorldTest, a_reboot_starts_the_monotonic_clock_anew_and_a_kill_does_not) {
    SimNode& node = world.add_node("n");
    world.run_until(MonoTime{} + seconds(100));
    const MonoTime before = node.clock().now();
    node.kill();
    node.restart();
    EXPECT_EQ(node.clock().now(), before);
    node.power_loss({});
    EXPECT_FALSE(node.powered());
    node.restart();
    EXPECT_LE(node.clock().now(), MonoTime{} + seconds(60));
    EXPECT_GT(node.clock().now(), MonoTime{});
}

TEST_F(SimWorldTest,
       a_clock_that_drifts_goes_on_from_where_it_was_and_its_timers_fire_on_its_own_time) {
    SimNode& node = world.add_node("n");
    world.run_until(MonoTime{} + seconds(100));
    for (const std::int64_t ppm : {200, -200, 499'999, -499'999, 0}) {
        const MonoTime before = node.clock().now();
        node.clock().set_drift_ppm(ppm);
        EXPECT_EQ(node.clock().now(), before) << "no jump";
        const MonoTime begun = world.now();
        MonoTime woken;
        node.scheduler().spawn("sleeper", [&](Fiber& fiber) {
            EXPECT_TRUE(fiber.scheduler().sleep_until(fiber, before + seconds(1000)).ok());
            woken = world.now();
            EXPECT_GE(node.clock().now(), before + seconds(1000));
        });
        world.run_for(seconds(3000));
        const std::int64_t expected = seconds(1000).ns * 1'000'000LL / (1'000'000 + ppm);
        EXPECT_NEAR(static_cast<double>((woken - begun).ns), static_cast<double>(expected), 2.0);
    }
}

TEST_F(SimWorldTest, true_time_and_a_drifting_clock_are_each_others_inverse) {
    SimNode& node = world.add_node("n");
    world.run_until(MonoTime{} + seconds(7));
    for (const std::int64_t ppm : {1, -1, 137, -137, 500'000, -500'000}) {
        node.clock().set_drift_ppm(ppm);
        MonoTime last = node.clock().now();
        for (std::int64_t ns = 0; ns < 5000; ++ns) {
            const MonoTime time = world.now() + seconds(3600) + nanoseconds(ns);
            const MonoTime local = node.clock().from_true(time);
            EXPECT_GE(local, last);
            last = local;
            // The first moment that shows at least this, for what is shown and for what is skipped.
            for (const MonoTime asked : {local, local + nanoseconds(1)}) {
                const MonoTime first = node.clock().to_true(asked);
                ASSERT_GE(node.clock().from_true(first), asked) << ppm;
                ASSERT_LT(node.clock().from_true(first - nanoseconds(1)), asked) << ppm;
            }
        }
        const MonoTime past = node.clock().now() - seconds(5);
        EXPECT_LE(node.clock().to_true(past), world.now());
    }
    EXPECT_EQ(node.clock().to_true(NEVER), NEVER);
}

TEST_F(SimWorldTest, a_reboot_keeps_the_drift) {
    SimNode& node = world.add_node("n");
    node.clock().set_drift_ppm(300'000);
    node.power_loss({});
    node.restart();
    const MonoTime before = node.clock().now();
    world.run_for(seconds(10));
    EXPECT_EQ(node.clock().now() - before, seconds(13));
}

TEST_F(SimWorldTest, stop_after_step_stops_the_calling_fiber_where_it_is) {
    SimNode& node = world.add_node("n");
    bool went_on = false;
    node.disk().set_operation_hook([&](OperationPoint point, const DiskOperation& operation) {
        if (point == OperationPoint::AFTER && operation.op == DiskOp::OPEN) {
            node.stop_after_step([&] { node.kill(); });
        }
    });
    node.scheduler().spawn("opens", [&](Fiber& fiber) {
        const auto file = node.disk().open(fiber, "f", OpenMode::CREATE);
        went_on = true;
    });
    world.run_until(MonoTime{} + seconds(1));
    EXPECT_FALSE(went_on);
    EXPECT_FALSE(node.alive());
    EXPECT_EQ(node.disk().cached_names(""), (std::vector<std::string>{"f"}));
    EXPECT_EQ(node.disk().open_files(), 0u);
}

TEST_F(SimWorldTest, the_log_sink_sees_every_line) {
    SimNode& node = world.add_node("n");
    EXPECT_FALSE(node.env().log.enabled(LogLevel::ERROR));
    std::string logged;
    world.set_log_sink([&](const SimNode& from, LogLevel, std::string_view line) {
        logged = from.name() + ": " + std::string(line);
    });
    node.scheduler().spawn("area.what", [&](Fiber&) {
        node.env().log.info("started", {{"port", "7188"}});
    });
    world.run_until(MonoTime{} + seconds(1));
    EXPECT_EQ(logged, "n: started port=7188");
}

}  // namespace
}  // namespace mortar::sim
