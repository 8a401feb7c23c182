#include "io-real/loop.h"

#include <gtest/gtest.h>

#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/io-real/real_world.h"

namespace mortar {
namespace {
using testing::RealWorld;
using testing::to_bytes;

double cpu_seconds() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST(RealScheduler, sleeps_about_as_long_as_asked) {
    RealWorld world;
    Duration slept;
    world.run_fiber([&](Fiber& fiber) {
        const MonoTime before = world.in(Duration{});
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, before + milliseconds(30)).ok());
        slept = world.in(Duration{}) - before;
    });
    EXPECT_GE(slept, milliseconds(30));
    EXPECT_LT(slept, milliseconds(500));
}

TEST(RealScheduler, runs_fibers_in_the_order_they_became_runnable) {
    RealWorld world;
    std::string order;
    for (const char name : {'a', 'b', 'c'}) {
        world.loop().spawn(std::string(1, name), [&order, name](Fiber& fiber) {
            order += name;
            fiber.scheduler().yield(fiber);
            order += name;
        });
    }
    world.run_fiber([](Fiber& fiber) { fiber.scheduler().yield(fiber); });
    EXPECT_EQ(order, "abcabc");
}

TEST(RealScheduler, runs_posted_calls_of_other_threads_all_and_in_each_threads_order) {
    RealWorld world;
    constexpr std::size_t THREADS = 4;
    constexpr std::size_t CALLS = 5000;
    std::vector<std::size_t> next(THREADS, 0);
    std::size_t done = 0;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < THREADS; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = 0; i < CALLS; ++i) {
                world.loop().post([&, t, i] {
                    EXPECT_EQ(next[t], i);
                    next[t] = i + 1;
                    if (++done == THREADS * CALLS) world.loop().stop();
                });
            }
        });
    }
    world.real->run();
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(done, THREADS * CALLS);
}

// The kernel has taken the thread off its processor: it waits in a system call.
bool wait_until_asleep(pid_t thread) {
    const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
    for (int i = 0; i < 10'000; ++i) {
        std::ifstream stat(path);
        std::string line;
        std::getline(stat, line);
        // The state stands behind the name in brackets.
        const std::size_t name_end = line.rfind(')');
        if (name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

TEST(RealScheduler, a_post_wakes_a_sleeping_loop) {
    RealWorld world;
    const auto loop_thread = static_cast<pid_t>(::syscall(SYS_gettid));
    bool is_asleep = false;
    MonoTime posted;
    std::thread poster([&] {
        is_asleep = wait_until_asleep(loop_thread);
        posted = world.in(Duration{});
        world.loop().post([&] { world.loop().stop(); });
    });
    world.real->run();
    const Duration took = world.in(Duration{}) - posted;
    poster.join();
    EXPECT_TRUE(is_asleep);
    EXPECT_LT(took, milliseconds(300));  // a nap alone would last up to 500 ms
}

TEST(RealScheduler, posted_calls_that_no_loop_ran_are_freed) {
    const auto held = std::make_shared<int>(1);
    {
        RealWorld world;
        world.loop().post([held] { ADD_FAILURE() << "nobody runs this loop"; });
        EXPECT_EQ(held.use_count(), 2);
    }
    EXPECT_EQ(held.use_count(), 1);
}

TEST(RealScheduler, turns_signals_into_calls_on_the_loop) {
    std::vector<int> caught;
    std::atomic<std::size_t> caught_count = 0;
    {
        RealWorld world;
        ASSERT_TRUE(world.loop()
                        .catch_signals({SIGTERM, SIGINT},
                                       [&](int number) {
                                           caught.push_back(number);
                                           caught_count = caught.size();
                                           if (caught.size() == 2) world.loop().stop();
                                       })
                        .ok());
        // A disk thread exists: the signal must not end in it.
        world.run_fiber([&](Fiber& fiber) { EXPECT_TRUE(world.env().disk.space(fiber).ok()); });
        std::thread sender([&caught_count] {
            kill(getpid(), SIGTERM);
            // The lower number would come first if both were pending.
            for (int i = 0; i < 10'000 && caught_count == 0; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            kill(getpid(), SIGINT);
        });
        world.real->run();
        sender.join();
    }
    EXPECT_EQ(caught, (std::vector<int>{SIGTERM, SIGINT}));
}

// covers SES-stall: contract 8, "received bytes are processed before anything expires"
TEST(RealScheduler, after_a_stall_received_bytes_come_before_timers) {
    RealWorld world;
    bool kept_alive = false;
    bool expired = false;
    world.run_fiber([&](Fiber& fiber) {
        Net& net = world.env().net;
        std::unique_ptr<Listener> listener = net.listen("127.0.0.1:0").value();
        const std::string address = "127.0.0.1:" + std::to_string(listener->port());
        std::unique_ptr<Conn> client = net.connect(fiber, address, world.in(seconds(5))).value();
        std::unique_ptr<Conn> server = listener->accept(fiber).value();
        // Two fibers away from the socket, as a member's heartbeat is from its expiry.
        Fiber* relay = nullptr;
        world.loop().spawn("relays", [&](Fiber& own) {
            relay = &own;
            own.scheduler().park(own, NEVER);
            kept_alive = true;
        });
        world.loop().spawn("reads", [&](Fiber& own) {
            std::byte buffer[8];
            EXPECT_TRUE(server->read(own, buffer, NEVER).ok());
            own.scheduler().wake(*relay);
        });
        world.loop().spawn("expires", [&](Fiber& own) {
            EXPECT_TRUE(own.scheduler().sleep_until(own, world.in(milliseconds(200))).ok());
            expired = !kept_alive;
        });
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(20))).ok());
        const ByteVector bytes = to_bytes("ping");
        const ByteSpan part(bytes);
        ASSERT_TRUE(client->write(fiber, std::span(&part, 1), NEVER).ok());
        ::usleep(1'300'000);  // the stall: nothing on this loop runs
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(100))).ok());
    });
    EXPECT_TRUE(kept_alive);
    EXPECT_FALSE(expired);
}

TEST(RealScheduler, an_idle_loop_uses_less_than_one_percent_of_a_cpu) {
    RealWorld world;
    double used = 0;
    world.run_fiber([&](Fiber& fiber) {
        EXPECT_TRUE(world.env().disk.space(fiber).ok());  // its threads must sleep too
        const double before = cpu_seconds();
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(seconds(2))).ok());
        used = cpu_seconds() - before;
    });
    EXPECT_LT(used, 0.02);
}

TEST(RealScheduler, shutdown_unwinds_fibers_that_wait_for_sockets_files_and_time) {
    int destroyed = 0;
    struct Counts {
        int& count;
        ~Counts() { ++count; }
    };
    {
        RealWorld world;
        std::unique_ptr<Listener> listener = world.env().net.listen("127.0.0.1:0").value();
        world.loop().spawn("accepts", [&](Fiber& fiber) {
            const Counts counts{destroyed};
            EXPECT_FALSE(listener->accept(fiber).ok());
        });
        world.loop().spawn("sleeps", [&](Fiber& fiber) {
            const Counts counts{destroyed};
            EXPECT_FALSE(fiber.scheduler().sleep_until(fiber, NEVER).ok());
        });
        world.run_fiber([&](Fiber& fiber) { fiber.scheduler().yield(fiber); });
        world.loop().spawn("writes", [&](Fiber& fiber) {
            const Counts counts{destroyed};
            std::unique_ptr<File> file =
                world.env().disk.open(fiber, "f", OpenMode::CREATE).value();
            const ByteVector bytes(1 << 20, std::byte{7});
            const ByteSpan part(bytes);
            while (file->write_at(fiber, 0, std::span(&part, 1)).ok())
                EXPECT_TRUE(file->sync_data(fiber).ok());
        });
        world.run_fiber([&](Fiber& fiber) {
            EXPECT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(30))).ok());
        });
        EXPECT_EQ(destroyed, 0);
        world.real->shutdown();
        EXPECT_EQ(destroyed, 3);
    }
}

}  // namespace
}  // namespace mortar
