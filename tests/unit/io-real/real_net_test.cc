#include "io-real/real_net.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/io-real/real_world.h"

namespace mortar {
namespace {
using testing::RealWorld;

// Two ends of one connection over loopback.
struct Pair {
    Pair(RealWorld& world, Fiber& fiber, const std::string& host = "127.0.0.1") {
        listener = world.env().net.listen(host + ":0").value();
        const std::string address = host + ":" + std::to_string(listener->port());
        client = world.env().net.connect(fiber, address, world.in(seconds(5))).value();
        server = listener->accept(fiber).value();
    }
    std::unique_ptr<Listener> listener;
    std::unique_ptr<Conn> client;
    std::unique_ptr<Conn> server;
};

Result<void> write_text(Fiber& fiber, Conn& conn, const std::string& text,
                        MonoTime deadline = NEVER) {
    const ByteSpan part = as_byte_span(text);
    return conn.write(fiber, std::span(&part, 1), deadline);
}

// Until the peer closes its half.
std::string read_all(Fiber& fiber, Conn& conn) {
    std::string text;
    std::vector<std::byte> buffer(65536);
    while (true) {
        const Result<std::size_t> count = conn.read(fiber, buffer, NEVER);
        EXPECT_TRUE(count.ok());
        if (!count.ok() || count.value() == 0) return text;
        text.append(as_string_view(ByteSpan(buffer).first(count.value())));
    }
}

TEST(RealNet, echoes_and_ends_with_a_half_close) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        world.loop().spawn("echo", [&](Fiber& own) {
            std::byte buffer[16];
            while (true) {
                const Result<std::size_t> count = pair.server->read(own, buffer, NEVER);
                ASSERT_TRUE(count.ok());
                if (count.value() == 0) break;
                const ByteSpan part(buffer, count.value());
                ASSERT_TRUE(pair.server->write(own, std::span(&part, 1), NEVER).ok());
            }
            pair.server->shutdown_write();
        });
        ASSERT_TRUE(write_text(fiber, *pair.client, "one and two and three and four").ok());
        pair.client->shutdown_write();
        EXPECT_EQ(read_all(fiber, *pair.client), "one and two and three and four");
        EXPECT_EQ(pair.client->peer_address(),
                  "127.0.0.1:" + std::to_string(pair.listener->port()));
        EXPECT_EQ(pair.server->peer_address().substr(0, 10), "127.0.0.1:");
    });
}

TEST(RealNet, gathers_a_thousand_parts_some_of_them_empty) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        std::vector<std::string> texts;
        std::string expected;
        for (int i = 0; i < 1000; ++i) {
            texts.push_back(i % 7 == 0 ? ""
                                       : std::string(static_cast<std::size_t>(i),
                                                     static_cast<char>('a' + i % 26)));
            expected += texts.back();
        }
        world.loop().spawn("writes", [&](Fiber& own) {
            std::vector<ByteSpan> parts;
            for (const std::string& text : texts)
                parts.push_back(as_byte_span(text));
            EXPECT_TRUE(pair.client->write(own, parts, NEVER).ok());
            EXPECT_TRUE(pair.client->write(own, {}, NEVER).ok());
            pair.client->shutdown_write();
        });
        EXPECT_EQ(read_all(fiber, *pair.server), expected);
    });
}

// A kernel that was told that more follows sits on the rest for 200 ms; the fastest of a few tries tells that from load.
TEST(RealNet, sends_at_once_whatever_the_number_of_parts) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        Env env = world.env();
        for (const std::size_t count :
             {std::size_t{64}, std::size_t{128}, std::size_t{256}, std::size_t{1024}}) {
            const std::vector<ByteSpan> parts(count, as_byte_span("x"));
            Duration fastest = seconds(10);
            for (int i = 0; i < 5; ++i) {
                const MonoTime start = env.clock.now();
                ASSERT_TRUE(pair.client->write(fiber, parts, NEVER).ok());
                std::byte buffer[1024];
                for (std::size_t got = 0; got < count;) {
                    const Result<std::size_t> read = pair.server->read(fiber, buffer, NEVER);
                    ASSERT_TRUE(read.ok());
                    got += *read;
                }
                fastest = std::min(fastest, env.clock.now() - start);
            }
            EXPECT_LT(fastest, milliseconds(150)) << count << " parts";
        }
    });
}

TEST(RealNet, writes_more_than_the_socket_buffers_hold) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        std::string big(8 << 20, 'x');
        for (std::size_t i = 0; i < big.size(); i += 4096)
            big[i] = static_cast<char>('a' + i / 4096 % 26);
        world.loop().spawn("writes", [&](Fiber& own) {
            EXPECT_TRUE(write_text(own, *pair.client, big).ok());
            pair.client->shutdown_write();
        });
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(20))).ok());
        EXPECT_TRUE(read_all(fiber, *pair.server) == big);
    });
}

TEST(RealNet, read_ends_at_its_deadline_and_the_connection_lives_on) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        std::byte buffer[8];
        const MonoTime deadline = world.in(milliseconds(40));
        EXPECT_TRUE(pair.server->read(fiber, buffer, deadline).is(ErrorCode::TIMED_OUT));
        EXPECT_GE(world.in(Duration{}), deadline);
        ASSERT_TRUE(write_text(fiber, *pair.client, "late").ok());
        // A deadline that has passed does not lose bytes that are there.
        while (!pair.server->read(fiber, buffer, deadline).ok())
            fiber.scheduler().yield(fiber);
        EXPECT_EQ(as_string_view(ByteSpan(buffer, 4)), "late");
    });
}

TEST(RealNet, write_ends_at_its_deadline_when_the_peer_does_not_read) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        const std::string big(64 << 20, 'x');
        EXPECT_TRUE(write_text(fiber, *pair.client, big, world.in(milliseconds(50)))
                        .is(ErrorCode::TIMED_OUT));
    });
}

TEST(RealNet, close_wakes_the_fiber_that_reads_and_the_one_that_accepts) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        int closed = 0;
        world.loop().spawn("reads", [&](Fiber& own) {
            std::byte buffer[8];
            closed +=
                pair.server->read(own, buffer, NEVER).is(ErrorCode::CONNECTION_CLOSED) ? 1 : 0;
        });
        world.loop().spawn("accepts", [&](Fiber& own) {
            closed += pair.listener->accept(own).is(ErrorCode::CONNECTION_CLOSED) ? 1 : 0;
        });
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(10))).ok());
        pair.server->close();
        pair.server->close();
        pair.listener->close();
        while (world.loop().fiber_count() > 1)
            fiber.scheduler().yield(fiber);
        EXPECT_EQ(closed, 2);
        EXPECT_TRUE(write_text(fiber, *pair.server, "x").is(ErrorCode::CONNECTION_CLOSED));
    });
}

TEST(RealNet, a_connection_destroyed_under_its_reader_ends_the_read) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        bool closed = false;
        world.loop().spawn("reads", [&](Fiber& own) {
            std::byte buffer[8];
            closed = pair.server->read(own, buffer, NEVER).is(ErrorCode::CONNECTION_CLOSED);
        });
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(10))).ok());
        pair.server.reset();
        while (world.loop().fiber_count() > 1)
            fiber.scheduler().yield(fiber);
        EXPECT_TRUE(closed);
    });
}

TEST(RealNet, cancel_ends_a_read_and_every_call_after_it) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        int cancelled = 0;
        const FiberId id = world.loop().spawn("reads", [&](Fiber& own) {
            std::byte buffer[8];
            cancelled += pair.server->read(own, buffer, NEVER).is(ErrorCode::CANCELLED) ? 1 : 0;
            cancelled += write_text(own, *pair.server, "x").is(ErrorCode::CANCELLED) ? 1 : 0;
            cancelled +=
                world.env().net.connect(own, "127.0.0.1:1", NEVER).is(ErrorCode::CANCELLED) ? 1 : 0;
        });
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(10))).ok());
        world.loop().cancel(id);
        while (world.loop().fiber_count() > 1)
            fiber.scheduler().yield(fiber);
        EXPECT_EQ(cancelled, 3);
    });
}

TEST(RealNet, a_write_to_a_peer_that_is_gone_says_closed_and_raises_no_signal) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        pair.server.reset();
        Result<void> last;
        for (int i = 0; i < 100 && last.ok(); ++i)
            last = write_text(fiber, *pair.client, "anyone?");
        EXPECT_TRUE(last.is(ErrorCode::CONNECTION_CLOSED));
    });
}

TEST(RealNet, connect_to_a_port_nobody_listens_on_is_refused) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        std::unique_ptr<Listener> listener = world.env().net.listen("127.0.0.1:0").value();
        const std::string address = "127.0.0.1:" + std::to_string(listener->port());
        listener.reset();
        const Result<std::unique_ptr<Conn>> conn =
            world.env().net.connect(fiber, address, world.in(seconds(5)));
        ASSERT_TRUE(conn.is(ErrorCode::CONNECTION_REFUSED));
        EXPECT_NE(conn.error().detail.find(address), std::string::npos);
    });
}

TEST(RealNet, a_busy_port_is_named) {
    RealWorld world;
    const std::unique_ptr<Listener> first = world.env().net.listen("127.0.0.1:0").value();
    const std::string address = "127.0.0.1:" + std::to_string(first->port());
    const Result<std::unique_ptr<Listener>> second = world.env().net.listen(address);
    ASSERT_TRUE(second.is(ErrorCode::ADDRESS_IN_USE));
    EXPECT_NE(second.error().detail.find(address), std::string::npos);
}

TEST(RealNet, text_that_is_no_address_is_refused_with_the_way_to_write_one) {
    RealWorld world;
    for (const char* text :
         {"", "host", ":1", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "::1:80", "[::1]", "[]:1"}) {
        const Result<std::unique_ptr<Listener>> result = world.env().net.listen(text);
        ASSERT_TRUE(result.is(ErrorCode::ADDRESS_INVALID)) << text;
        EXPECT_NE(result.error().detail.find("host:port"), std::string::npos);
    }
    // An address of another machine.
    EXPECT_TRUE(world.env().net.listen("192.0.2.1:0").is(ErrorCode::ADDRESS_INVALID));
}

TEST(RealNet, speaks_ipv6_in_brackets) {
    RealWorld world;
    if (world.env().net.listen("[::1]:0").is(ErrorCode::ADDRESS_INVALID))
        GTEST_SKIP() << "no IPv6 here";
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber, "[::1]");
        EXPECT_EQ(pair.client->peer_address(), "[::1]:" + std::to_string(pair.listener->port()));
    });
}

TEST(RealNet, looks_names_up_and_reports_the_unknown_one) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        std::unique_ptr<Listener> listener = world.env().net.listen("localhost:0").value();
        const std::string port = std::to_string(listener->port());
        EXPECT_TRUE(
            world.env().net.connect(fiber, "localhost:" + port, world.in(seconds(10))).ok());
        const Result<std::unique_ptr<Conn>> unknown =
            world.env().net.connect(fiber, "no such host:" + port, world.in(seconds(10)));
        ASSERT_TRUE(unknown.is(ErrorCode::ADDRESS_INVALID) || unknown.is(ErrorCode::TIMED_OUT));
        EXPECT_NE(unknown.error().detail.find("no such host"), std::string::npos);
    });
}

TEST(Contract, S5_accept_pauses_when_descriptors_run_out) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP()
        << "without a free descriptor the sanitizer's own type check reports any object as invalid";
#endif
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        std::unique_ptr<Listener> listener = world.env().net.listen("127.0.0.1:0").value();
        const std::string address = "127.0.0.1:" + std::to_string(listener->port());
        std::unique_ptr<Conn> client =
            world.env().net.connect(fiber, address, world.in(seconds(5))).value();
        rlimit before{};
        getrlimit(RLIMIT_NOFILE, &before);
        rlimit none = before;
        const int lowest_free = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        ::close(lowest_free);
        none.rlim_cur = static_cast<rlim_t>(lowest_free);
        setrlimit(RLIMIT_NOFILE, &none);
        const MonoTime started = world.in(Duration{});
        Duration waited;
        world.loop().spawn("accepts", [&](Fiber& own) {
            EXPECT_TRUE(listener->accept(own).ok());
            waited = world.in(Duration{}) - started;
        });
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, started + milliseconds(50)).ok());
        setrlimit(RLIMIT_NOFILE, &before);
        while (world.loop().fiber_count() > 1) {
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(10))).ok());
        }
        EXPECT_GE(waited, milliseconds(100));
        EXPECT_LT(waited, seconds(5));
    });
}

TEST(RealNet, a_flooding_peer_does_not_keep_other_fibers_from_running) {
    RealWorld world;
    world.run_fiber([&](Fiber& fiber) {
        Pair pair(world, fiber);
        bool stop = false;
        std::uint64_t reads = 0;
        world.loop().spawn("floods", [&](Fiber& own) {
            const std::string chunk(1 << 16, 'f');
            while (!stop && write_text(own, *pair.client, chunk).ok()) {
            }
            pair.client->close();
        });
        world.loop().spawn("drains", [&](Fiber& own) {
            std::byte buffer[256];
            while (true) {
                const Result<std::size_t> count = pair.server->read(own, buffer, NEVER);
                if (!count.ok() || count.value() == 0) break;
                ++reads;
            }
        });
        const MonoTime before = world.in(Duration{});
        for (int i = 0; i < 20; ++i) {
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, world.in(milliseconds(2))).ok());
        }
        EXPECT_LT(world.in(Duration{}) - before, seconds(5));  // starved, it would not end at all
        EXPECT_GT(reads, 100u);
        stop = true;
        while (world.loop().fiber_count() > 1)
            fiber.scheduler().yield(fiber);
    });
}

}  // namespace
}  // namespace mortar
