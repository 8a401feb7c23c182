#include "io-sim/sim_net.h"

#include <memory>
#include <optional>
#include <vector>

#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar::sim {
namespace {

class SimNetTest : public SimFixture {
  protected:
    SimNode& server = world.add_node("server");
    SimNode& client = world.add_node("client");
    Net& server_net = server.net();
    Net& client_net = client.net();

    // Starts body on the server with the first connection that comes to port 7188.
    void serve(std::function<void(Fiber&, Conn&)> body) {
        server.scheduler().spawn("server", [this, inner = std::move(body)](Fiber& fiber) {
            const auto listener = server_net.listen("0.0.0.0:7188").value();
            const auto conn = listener->accept(fiber).value();
            inner(fiber, *conn);
        });
        world.run_for(milliseconds(1));
    }
    std::string long_text(std::size_t bytes) {
        std::string text;
        Rng rng(bytes);
        while (text.size() < bytes)
            text += static_cast<char>('a' + rng.below(26));
        return text;
    }
};

TEST_F(SimNetTest, bytes_arrive_in_order_whole_and_in_pieces) {
    const std::string sent = long_text(300'000);
    std::string received;
    std::size_t reads = 0;
    serve([&](Fiber& fiber, Conn& conn) {
        while (true) {
            const auto piece = read_some(fiber, conn, 5000).value();
            if (piece.empty()) return;
            received += piece;
            ++reads;
        }
    });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        for (std::size_t at = 0; at < sent.size(); at += 1000) {
            ASSERT_TRUE(send_text(fiber, *conn, std::string_view(sent).substr(at, 1000)).ok());
        }
        conn->shutdown_write();
        EXPECT_TRUE(read_some(fiber, *conn, 10).value().empty()) << "the server closed";
    });
    EXPECT_EQ(received, sent);
    EXPECT_GT(reads, 60u);
    world.run_for(seconds(1));
    EXPECT_EQ(world.network().open_handles(client), 0u);
    EXPECT_TRUE(world.network().connections().empty());
}

TEST_F(SimNetTest, a_frame_is_cut_at_any_byte) {
    std::vector<std::size_t> sizes;
    serve([&](Fiber& fiber, Conn& conn) {
        while (true) {
            const auto piece = read_some(fiber, conn, 100).value();
            if (piece.empty()) return;
            sizes.push_back(piece.size());
        }
    });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        for (int i = 0; i < 500; ++i) {
            ASSERT_TRUE(send_text(fiber, *conn, "0123456789").ok());
            const MonoTime next = client.clock().now() + milliseconds(1);
            ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, next).ok());
        }
    });
    world.run_for(seconds(1));
    std::vector<bool> seen(11);
    for (const std::size_t size : sizes)
        seen[std::min<std::size_t>(size, 10)] = true;
    for (std::size_t size = 1; size <= 10; ++size)
        EXPECT_TRUE(seen[size]) << size;
}

TEST_F(SimNetTest, a_reader_that_stops_makes_the_writer_wait) {
    NetSpeed speed;
    speed.window_bytes = 10'000;
    world.network().set_speed(speed);
    bool may_read = false;
    std::size_t received = 0;
    serve([&](Fiber& fiber, Conn& conn) {
        while (!may_read) {
            const MonoTime next = server.clock().now() + milliseconds(1);
            EXPECT_TRUE(fiber.scheduler().sleep_until(fiber, next).ok());
        }
        received = read_all(fiber, conn).first.size();
    });
    std::size_t sent = 0;
    client.scheduler().spawn("client", [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        for (int i = 0; i < 50; ++i) {
            EXPECT_TRUE(send_text(fiber, *conn, std::string(1000, 'x')).ok());
            sent += 1000;
        }
    });
    world.run_for(seconds(1));
    EXPECT_EQ(sent, 10'000u);
    may_read = true;
    world.run_for(seconds(1));
    EXPECT_EQ(sent, 50'000u);
    EXPECT_EQ(received, 50'000u);
}

TEST_F(SimNetTest, deadlines_end_read_write_and_connect) {
    NetSpeed speed;
    speed.window_bytes = 100;
    world.network().set_speed(speed);
    serve([&](Fiber& fiber, Conn&) { fiber.scheduler().park(fiber, NEVER); });
    run_on(client, [&](Fiber& fiber) {
        const auto deadline = [&] { return client.clock().now() + milliseconds(50); };
        const auto conn = client_net.connect(fiber, "server:7188", deadline()).value();
        EXPECT_TRUE(read_some(fiber, *conn, 10, deadline()).is(ErrorCode::TIMED_OUT));
        EXPECT_TRUE(
            send_text(fiber, *conn, std::string(200, 'x'), deadline()).is(ErrorCode::TIMED_OUT));
        server.power_loss({});
        const MonoTime begun = world.now();
        EXPECT_TRUE(client_net.connect(fiber, "server:7188", deadline()).is(ErrorCode::TIMED_OUT));
        EXPECT_EQ(world.now() - begun, milliseconds(50));
    });
}

TEST_F(SimNetTest, half_close_lets_the_other_direction_go_on) {
    serve([&](Fiber& fiber, Conn& conn) {
        const std::string request = read_all(fiber, conn).first;
        EXPECT_TRUE(send_text(fiber, conn, "answer to " + request).ok());
    });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        ASSERT_TRUE(send_text(fiber, *conn, "hello").ok());
        conn->shutdown_write();
        EXPECT_TRUE(send_text(fiber, *conn, "more").is(ErrorCode::CONNECTION_CLOSED));
        EXPECT_EQ(read_all(fiber, *conn).first, "answer to hello");
    });
}

TEST_F(SimNetTest, connect_is_refused_when_nobody_listens_there) {
    run_on(client, [&](Fiber& fiber) {
        EXPECT_TRUE(
            client_net.connect(fiber, "server:7188", NEVER).is(ErrorCode::CONNECTION_REFUSED));
        EXPECT_TRUE(
            client_net.connect(fiber, "nowhere:1", NEVER).is(ErrorCode::CONNECTION_REFUSED));
        EXPECT_TRUE(client_net.connect(fiber, "server", NEVER).is(ErrorCode::ADDRESS_INVALID));
        EXPECT_TRUE(
            client_net.connect(fiber, "server:70000", NEVER).is(ErrorCode::ADDRESS_INVALID));
        const auto local = server_net.listen("127.0.0.1:7188").value();
        EXPECT_TRUE(
            client_net.connect(fiber, "server:7188", NEVER).is(ErrorCode::CONNECTION_REFUSED));
        EXPECT_TRUE(server_net.listen("0.0.0.0:7188").is(ErrorCode::ADDRESS_IN_USE));
        EXPECT_TRUE(server_net.listen("elsewhere:7189").is(ErrorCode::ADDRESS_INVALID));
        const auto drawn = server_net.listen("server:0").value();
        const auto second = server_net.listen("[::]:0").value();
        EXPECT_GE(drawn->port(), 32768);
        EXPECT_NE(drawn->port(), second->port());
    });
}

TEST_F(SimNetTest, closing_a_listener_ends_accept_and_resets_who_waits_in_its_queue) {
    std::unique_ptr<Listener> listener = server_net.listen("server:7188").value();
    bool refused = false;
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        EXPECT_EQ(world.network().open_handles(server), 2u);
        listener->close();
        EXPECT_TRUE(read_some(fiber, *conn, 10).is(ErrorCode::CONNECTION_CLOSED));
        refused = client_net.connect(fiber, "server:7188", NEVER).is(ErrorCode::CONNECTION_REFUSED);
    });
    EXPECT_TRUE(refused);
    run_on(server, [&](Fiber& fiber) {
        EXPECT_TRUE(listener->accept(fiber).is(ErrorCode::CONNECTION_CLOSED));
    });
}

TEST_F(SimNetTest, a_reset_cuts_the_stream_at_any_byte_and_both_ends_learn) {
    std::vector<std::size_t> lengths;
    for (int round = 0; round < 40; ++round) {
        std::string received;
        bool server_told = false;
        serve([&](Fiber& fiber, Conn& conn) {
            const auto [text, end] = read_all(fiber, conn);
            received = text;
            server_told = end.is(ErrorCode::CONNECTION_CLOSED);
        });
        run_on(client, [&](Fiber& fiber) {
            const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
            ASSERT_TRUE(send_text(fiber, *conn, "0123456789").ok());
            Rng rng(static_cast<std::uint64_t>(round));
            const auto ids = world.network().connections("client");
            ASSERT_EQ(ids.size(), 1u);
            world.network().reset(ids[0], rng);
            // It does not know yet, and nothing may close the gap that the cut left.
            ASSERT_TRUE(send_text(fiber, *conn, "abcdef").ok());
            EXPECT_TRUE(read_some(fiber, *conn, 10).is(ErrorCode::CONNECTION_CLOSED));
            EXPECT_TRUE(send_text(fiber, *conn, "x").is(ErrorCode::CONNECTION_CLOSED));
        });
        world.run_for(seconds(1));
        EXPECT_TRUE(server_told);
        EXPECT_EQ(received, std::string("0123456789").substr(0, received.size()));
        lengths.push_back(received.size());
    }
    EXPECT_GT(std::count_if(lengths.begin(), lengths.end(), [](auto n) { return n > 0 && n < 10; }),
              3);
}

TEST_F(SimNetTest, a_silent_link_carries_nothing_and_tells_nobody) {
    std::string received;
    serve([&](Fiber& fiber, Conn& conn) { received = read_all(fiber, conn).first; });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        world.network().silence(world.network().connections().at(0));
        ASSERT_TRUE(send_text(fiber, *conn, "lost").ok());
        EXPECT_TRUE(read_some(fiber, *conn, 1, client.clock().now() + seconds(60))
                        .is(ErrorCode::TIMED_OUT));
    });
    EXPECT_EQ(received, "");
}

TEST_F(SimNetTest, peers_of_a_killed_node_see_an_end_or_nothing_until_they_write) {
    int ended = 0;
    int silent = 0;
    for (int round = 0; round < 40; ++round) {
        serve([&](Fiber& fiber, Conn&) { fiber.scheduler().park(fiber, NEVER); });
        run_on(client, [&](Fiber& fiber) {
            const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
            server.kill();
            EXPECT_EQ(world.network().open_handles(server), 0u);
            const auto read = read_some(fiber, *conn, 10, client.clock().now() + seconds(10));
            if (read.is(ErrorCode::TIMED_OUT)) {
                ++silent;
                ASSERT_TRUE(send_text(fiber, *conn, "anybody there?").ok());
                EXPECT_TRUE(read_some(fiber, *conn, 10).is(ErrorCode::CONNECTION_CLOSED));
            } else {
                ++ended;
            }
        });
        server.restart();
    }
    EXPECT_GT(ended, 5);
    EXPECT_GT(silent, 2);
}

TEST_F(SimNetTest, a_peer_without_power_answers_only_after_its_restart) {
    serve([&](Fiber& fiber, Conn&) { fiber.scheduler().park(fiber, NEVER); });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        server.power_loss({});
        ASSERT_TRUE(send_text(fiber, *conn, "into the void").ok());
        EXPECT_TRUE(read_some(fiber, *conn, 10, client.clock().now() + seconds(5))
                        .is(ErrorCode::TIMED_OUT));
        server.restart();
        EXPECT_TRUE(read_some(fiber, *conn, 10, client.clock().now() + seconds(60))
                        .is(ErrorCode::CONNECTION_CLOSED));
    });
}

TEST_F(SimNetTest, the_send_hook_sees_every_byte_in_order_before_it_arrives) {
    std::string hooked;
    std::string received;
    world.network().set_send_hook([&](const SendInfo& info, ByteSpan bytes) {
        EXPECT_EQ(info.node, &client);
        EXPECT_EQ(info.peer_address, "server:7188");
        hooked += as_string_view(bytes);
    });
    serve([&](Fiber& fiber, Conn& conn) {
        while (true) {
            const auto piece = read_some(fiber, conn, 100).value();
            if (piece.empty()) return;
            received += piece;
            EXPECT_GE(hooked.size(), received.size());
        }
    });
    const std::string sent = long_text(5000);
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        const std::string_view text = sent;
        const ByteSpan parts[] = {as_byte_span(text.substr(0, 10)), as_byte_span(text.substr(10))};
        ASSERT_TRUE(conn->write(fiber, parts, NEVER).ok());
        conn->shutdown_write();
        read_all(fiber, *conn).second.ok();
    });
    EXPECT_EQ(hooked, sent);
    EXPECT_EQ(received, sent);
}

TEST_F(SimNetTest, close_wakes_the_fiber_that_waits_in_read) {
    serve([&](Fiber& fiber, Conn&) { fiber.scheduler().park(fiber, NEVER); });
    std::unique_ptr<Conn> conn;
    bool told = false;
    run_on(client,
           [&](Fiber& fiber) { conn = client_net.connect(fiber, "server:7188", NEVER).value(); });
    client.scheduler().spawn("reader", [&](Fiber& fiber) {
        told = read_some(fiber, *conn, 10).is(ErrorCode::CONNECTION_CLOSED);
    });
    world.run_for(milliseconds(1));
    conn->close();
    world.run_for(milliseconds(1));
    EXPECT_TRUE(told);
    conn.reset();
}

TEST_F(SimNetTest, a_cancelled_fiber_leaves_connect_accept_read_and_write) {
    std::vector<ErrorCode> codes;
    const FiberId accepting = server.scheduler().spawn("accepts", [&](Fiber& fiber) {
        const auto listener = server_net.listen("server:1").value();
        codes.push_back(listener->accept(fiber).error().code);
    });
    serve([&](Fiber& fiber, Conn&) { fiber.scheduler().park(fiber, NEVER); });
    const FiberId reading = client.scheduler().spawn("reads", [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        codes.push_back(read_some(fiber, *conn, 1).error().code);
        codes.push_back(client_net.connect(fiber, "server:7188", NEVER).error().code);
    });
    world.run_for(seconds(1));
    server.scheduler().cancel(accepting);
    client.scheduler().cancel(reading);
    world.run_for(seconds(1));
    EXPECT_EQ(codes, std::vector<ErrorCode>(3, ErrorCode::CANCELLED));
}

class SimPathTest : public SimNetTest {
  protected:
    static constexpr PathFault BLOCKED{true, {}, 0, 0};
    std::vector<PathFaultId> faults;

    void block(const SimNode& from, const SimNode& to) {
        faults.push_back(world.network().break_path(from, to, BLOCKED));
    }
    void heal() {
        for (const PathFaultId id : std::exchange(faults, {}))
            world.network().heal_path(id);
    }
    // Reads what comes on the first connection, for ever.
    struct Reader {
        std::string text;
        MonoTime last_came;
        std::optional<ErrorCode> ended;
    };
    void serve_reader(Reader& reader) {
        serve([this, &reader](Fiber& fiber, Conn& conn) {
            while (true) {
                const auto piece = read_some(fiber, conn, 1000);
                if (!piece.ok()) reader.ended = piece.error().code;
                if (!piece.ok() || piece->empty()) return;
                reader.text += *piece;
                reader.last_came = world.now();
            }
        });
    }
    Result<void> sleep(Fiber& fiber, SimNode& node, Duration duration) {
        return fiber.scheduler().sleep_until(fiber, node.clock().now() + duration);
    }
};

TEST_F(SimPathTest, bytes_sent_while_blocked_arrive_in_order_some_time_after_the_healing) {
    for (const int blocked_ms : {1, 300, 3000}) {
        Reader reader;
        serve_reader(reader);
        MonoTime healed_at;
        run_on(client, [&](Fiber& fiber) {
            const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
            ASSERT_TRUE(send_text(fiber, *conn, "before ").ok());
            ASSERT_TRUE(sleep(fiber, client, milliseconds(100)).ok());
            block(client, server);
            EXPECT_TRUE(world.network().is_blocked(client, server));
            EXPECT_FALSE(world.network().is_blocked(server, client));
            ASSERT_TRUE(send_text(fiber, *conn, "in ").ok());
            ASSERT_TRUE(sleep(fiber, client, milliseconds(blocked_ms)).ok());
            ASSERT_TRUE(send_text(fiber, *conn, "it ").ok());
            ASSERT_TRUE(sleep(fiber, client, milliseconds(1)).ok());
            EXPECT_EQ(reader.text, "before ");
            heal();
            healed_at = world.now();
            ASSERT_TRUE(send_text(fiber, *conn, "after").ok());
            ASSERT_TRUE(sleep(fiber, client, seconds(7)).ok());
        });
        world.run_for(seconds(1));
        EXPECT_EQ(reader.text, "before in it after");
        EXPECT_GT(reader.last_came, healed_at);
        EXPECT_EQ(reader.ended, std::nullopt);
    }
}

TEST_F(SimPathTest,
       a_sender_that_is_never_answered_gives_up_and_the_other_side_learns_when_it_sends) {
    // With the way there blocked nothing arrives, with the way back blocked all does: both end.
    for (const bool way_back : {false, true}) {
        std::string received;
        bool told_late = false;
        serve([&](Fiber& fiber, Conn& conn) {
            const auto got = read_some(fiber, conn, 100, server.clock().now() + seconds(30));
            if (got.ok()) received = *got;
            EXPECT_TRUE(sleep(fiber, server, seconds(40)).ok());
            heal();
            EXPECT_TRUE(read_some(fiber, conn, 1, server.clock().now() + seconds(30))
                            .is(ErrorCode::TIMED_OUT))
                << "half-open: nobody told it";
            EXPECT_TRUE(send_text(fiber, conn, "still there?").ok());
            told_late = read_some(fiber, conn, 1).is(ErrorCode::CONNECTION_CLOSED);
        });
        run_on(client, [&](Fiber& fiber) {
            const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
            way_back ? block(server, client) : block(client, server);
            const MonoTime begun = world.now();
            ASSERT_TRUE(send_text(fiber, *conn, "lost?").ok());
            EXPECT_TRUE(read_some(fiber, *conn, 1).is(ErrorCode::CONNECTION_CLOSED));
            EXPECT_GE(world.now() - begun, seconds(10));
            EXPECT_LE(world.now() - begun, seconds(30));
            EXPECT_TRUE(world.network().connections().empty());
            ASSERT_TRUE(sleep(fiber, client, seconds(100)).ok());
        });
        world.run_for(seconds(100));
        EXPECT_EQ(received, way_back ? "lost?" : "");
        EXPECT_TRUE(told_late);
        EXPECT_EQ(world.network().open_handles(server), 0u);
    }
}

TEST_F(SimPathTest, a_sender_without_acknowledgements_sends_one_window_and_no_more) {
    NetSpeed speed;
    speed.window_bytes = 10'000;
    world.network().set_speed(speed);
    Reader reader;
    serve_reader(reader);
    std::size_t sent = 0;
    client.scheduler().spawn("client", [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        block(server, client);
        for (; sent < 50'000; sent += 1000)
            EXPECT_TRUE(send_text(fiber, *conn, std::string(1000, 'x')).ok());
        EXPECT_TRUE(sleep(fiber, client, seconds(10)).ok());
    });
    world.run_for(seconds(5));
    EXPECT_LE(sent, 22'000u);
    EXPECT_EQ(reader.text.size(), sent);
    heal();
    world.run_for(seconds(10));
    EXPECT_EQ(reader.text.size(), 50'000u);
}

TEST_F(SimPathTest,
       connect_waits_for_the_healing_or_times_out_and_nobody_accepts_half_a_handshake) {
    for (const bool way_back : {false, true}) {
        int accepted = 0;
        std::unique_ptr<Listener> listener = server_net.listen("server:7188").value();
        const FiberId accepting = server.scheduler().spawn("accepts", [&](Fiber& fiber) {
            while (listener->accept(fiber).ok())
                ++accepted;
        });
        way_back ? block(server, client) : block(client, server);
        run_on(client, [&](Fiber& fiber) {
            EXPECT_TRUE(client_net.connect(fiber, "server:7188", client.clock().now() + seconds(5))
                            .is(ErrorCode::TIMED_OUT));
            EXPECT_EQ(accepted, 0);
            world.after(seconds(10), [&] { heal(); });
            const MonoTime begun = world.now();
            EXPECT_TRUE(client_net.connect(fiber, "server:7188", NEVER).ok());
            EXPECT_GE(world.now() - begun, seconds(10));
        });
        EXPECT_EQ(accepted, 1);
        listener->close();
        server.scheduler().cancel(accepting);
        world.run_for(seconds(1));
    }
}

TEST_F(SimPathTest, an_answer_to_connect_that_is_lost_is_asked_for_again) {
    Reader reader;
    NetSpeed speed;
    speed.latency_min = speed.latency_max = milliseconds(10);
    speed.delay_one_in = 1'000'000;
    world.network().set_speed(speed);
    serve_reader(reader);
    world.after(milliseconds(15), [&] { block(server, client); });
    world.after(milliseconds(500), [&] { heal(); });
    run_on(client, [&](Fiber& fiber) {
        const MonoTime begun = world.now();
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        EXPECT_GE(world.now() - begun, seconds(1));
        ASSERT_TRUE(send_text(fiber, *conn, "hello").ok());
        ASSERT_TRUE(sleep(fiber, client, milliseconds(50)).ok());
    });
    EXPECT_EQ(reader.text, "hello");
}

TEST_F(SimPathTest, faults_of_one_path_add_up_until_each_is_healed) {
    const PathFaultId first = world.network().break_path(client, server, BLOCKED);
    const PathFaultId second = world.network().break_path(client, server, BLOCKED);
    world.network().heal_path(first);
    world.network().heal_path(first);
    EXPECT_TRUE(world.network().is_blocked(client, server));
    world.network().heal_path(second);
    EXPECT_FALSE(world.network().is_blocked(client, server));
}

TEST_F(SimPathTest, a_slow_path_adds_latency_and_narrows_and_the_way_back_does_not_know) {
    std::string received;
    serve([&](Fiber& fiber, Conn& conn) {
        while (received.size() < 10'001)
            received += read_some(fiber, conn, 10'000).value();
        EXPECT_TRUE(send_text(fiber, conn, "got it").ok());
        fiber.scheduler().park(fiber, NEVER);
    });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        world.network().break_path(client, server, {false, milliseconds(200), 100, 0});
        const MonoTime begun = world.now();
        ASSERT_TRUE(send_text(fiber, *conn, "x").ok());
        ASSERT_TRUE(send_text(fiber, *conn, std::string(10'000, 'y')).ok());
        EXPECT_EQ(read_some(fiber, *conn, 10).value().substr(0, 1), "g");
        EXPECT_GE(world.now() - begun, milliseconds(200)) << "100 ms latency, 100 ms for the bytes";
        EXPECT_LE(world.now() - begun, milliseconds(600));
    });
}

TEST_F(SimPathTest, a_gray_path_lets_small_frames_pass_and_stalls_bulk_until_it_is_healed) {
    const PathFaultId gray = world.network().break_path(client, server, {false, {}, 0, 1000});
    Reader reader;
    serve_reader(reader);
    Reader bulk_reader;
    server.scheduler().spawn("bulk", [&](Fiber& fiber) {
        const auto listener = server_net.listen("server:7189").value();
        const auto conn = listener->accept(fiber).value();
        while (true) {
            const auto piece = read_some(fiber, *conn, 100'000);
            if (!piece.ok() || piece->empty()) return;
            bulk_reader.text += *piece;
            bulk_reader.last_came = world.now();
        }
    });
    world.run_for(milliseconds(1));
    run_on(client, [&](Fiber& fiber) {
        const auto control = client_net.connect(fiber, "server:7188", NEVER).value();
        const auto bulk = client_net.connect(fiber, "server:7189", NEVER).value();
        ASSERT_TRUE(send_text(fiber, *bulk, std::string(100'000, 'b')).ok());
        ASSERT_TRUE(sleep(fiber, client, seconds(1)).ok());
        ASSERT_TRUE(send_text(fiber, *control, "heartbeat").ok());
        ASSERT_TRUE(sleep(fiber, client, milliseconds(100)).ok());
        EXPECT_EQ(reader.text, "heartbeat");
        EXPECT_LT(bulk_reader.text.size(), 100'000u);
        world.network().heal_path(gray);
        const MonoTime healed_at = world.now();
        ASSERT_TRUE(sleep(fiber, client, seconds(2)).ok());
        EXPECT_EQ(bulk_reader.text.size(), 100'000u);
        EXPECT_LE(bulk_reader.last_came - healed_at, milliseconds(300));
    });
}

TEST_F(SimPathTest, a_peer_that_died_behind_a_cut_is_found_out_after_the_healing) {
    serve([&](Fiber& fiber, Conn&) { fiber.scheduler().park(fiber, NEVER); });
    run_on(client, [&](Fiber& fiber) {
        const auto conn = client_net.connect(fiber, "server:7188", NEVER).value();
        block(client, server);
        block(server, client);
        ASSERT_TRUE(send_text(fiber, *conn, "anybody there?").ok());
        server.kill();
        EXPECT_TRUE(
            read_some(fiber, *conn, 1, client.clock().now() + seconds(3)).is(ErrorCode::TIMED_OUT))
            << "neither its end nor its reset gets through";
        heal();
        EXPECT_TRUE(read_some(fiber, *conn, 1, client.clock().now() + seconds(10))
                        .is(ErrorCode::CONNECTION_CLOSED));
    });
}

}  // namespace
}  // namespace mortar::sim
