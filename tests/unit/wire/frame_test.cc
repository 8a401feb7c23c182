#include "core/wire/frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"
#include "tests/unit/wire/scripted_conn.h"

namespace mortar::wire {
namespace {
using testing::ManualWorld;
using testing::run_fiber;
using testing::ScriptedConn;

constexpr std::uint8_t ANY_OP = 0x42;

void append_frame(ByteVector& out, std::size_t length, std::byte fill = std::byte{0x5A}) {
    ByteWriter to(out);
    to.u32(static_cast<std::uint32_t>(length));
    to.u8(ANY_OP);
    out.resize(out.size() + length - 1, fill);
}

ByteVector frame_of(std::size_t length, std::byte fill = std::byte{0x5A}) {
    ByteVector frame;
    append_frame(frame, length, fill);
    return frame;
}

ByteVector only_length(std::uint32_t length) {
    ByteVector bytes;
    ByteWriter(bytes).u32(length);
    return bytes;
}

ByteVector first_part(const ByteVector& bytes, std::size_t count) {
    return ByteVector(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
}

ByteSpan last_part(const ByteVector& bytes, std::size_t offset) {
    return ByteSpan(bytes).subspan(offset);
}

// One connection that a test scripts, and its reader.
struct Line {
    ManualWorld world;
    ScriptedConn conn{world};
    FrameBudget budget;
    FrameReader reader{conn, world.clock, budget};

    MonoTime now() const { return world.clock.time; }
    void run(const std::function<void(Fiber&)>& body) { ASSERT_TRUE(run_fiber(world, body)); }
};

MonoTime at(Duration when) {
    return MonoTime{} + when;
}

TEST(FrameReader, serves_many_frames_from_one_socket_read) {
    Line line;
    ByteVector stream;
    for (std::size_t i = 1; i <= 50; ++i)
        append_frame(stream, i, static_cast<std::byte>(i));
    ASSERT_LT(stream.size(), FrameReader::CAPACITY_BYTES_MIN);
    line.conn.send_at({}, stream);
    line.run([&](Fiber& fiber) {
        EXPECT_FALSE(line.reader.has_complete_frame());
        const std::byte* end_of_last = nullptr;
        for (std::size_t i = 1; i <= 50; ++i) {
            const Result<FrameView> frame = line.reader.read(fiber, {});
            ASSERT_TRUE(frame.ok());
            EXPECT_EQ(frame->op, ANY_OP);
            ASSERT_EQ(frame->payload.size(), i - 1);
            for (const std::byte b : frame->payload)
                EXPECT_EQ(b, static_cast<std::byte>(i));
            // Back to back in one buffer: nothing was copied.
            if (i > 1) {
                EXPECT_EQ(frame->payload.data(), end_of_last + FRAME_HEAD_BYTES);
            }
            end_of_last = frame->payload.data() + frame->payload.size();
            EXPECT_EQ(line.reader.has_complete_frame(), i < 50);
            EXPECT_FALSE(line.reader.in_mid_frame());
        }
    });
    EXPECT_EQ(line.conn.reads, 1);
}

TEST(FrameReader, gives_the_same_frames_however_the_stream_is_cut) {
    ByteVector stream;
    const std::vector<std::size_t> lengths = {1, 40, 2, 700, 5};
    for (const std::size_t length : lengths)
        append_frame(stream, length);
    for (std::size_t cut = 1; cut < stream.size(); ++cut) {
        Line line;
        line.conn.send_at({}, first_part(stream, cut));
        line.conn.send_at(seconds(1), last_part(stream, cut));
        line.conn.close_at(seconds(2));
        line.run([&](Fiber& fiber) {
            for (const std::size_t length : lengths) {
                const Result<FrameView> frame = line.reader.read(fiber, {});
                ASSERT_TRUE(frame.ok());
                EXPECT_EQ(frame->payload.size(), length - 1);
            }
            EXPECT_TRUE(line.reader.read(fiber, {}).is(ErrorCode::CONNECTION_CLOSED));
            EXPECT_FALSE(line.reader.in_mid_frame());
        });
    }
}

TEST(FrameReader, reads_byte_by_byte) {
    Line line;
    line.conn.read_bytes_max = 1;
    ByteVector stream;
    for (std::size_t length = 1; length < 30; ++length)
        append_frame(stream, length);
    line.conn.send_at({}, stream);
    line.run([&](Fiber& fiber) {
        for (std::size_t length = 1; length < 30; ++length)
            EXPECT_EQ(line.reader.read(fiber, {}).value().payload.size(), length - 1);
    });
    EXPECT_EQ(line.conn.reads, static_cast<int>(stream.size()));
}

TEST(FrameReader, refuses_length_0_and_MAX_plus_1_once_the_four_bytes_are_there) {
    for (const std::uint32_t length : {0u, MAX_FRAME_LEN + 1, 0xFFFFFFFFu}) {
        Line line;
        line.conn.send_at({}, only_length(length));
        line.run([&](Fiber& fiber) {
            const Result<FrameView> frame = line.reader.read(fiber, {});
            EXPECT_TRUE(frame.is(ErrorCode::BAD_LENGTH)) << length;
            EXPECT_EQ(line.now(), MonoTime{});
            EXPECT_FALSE(line.reader.has_complete_frame());
        });
        EXPECT_EQ(line.reader.capacity_bytes(), FrameReader::CAPACITY_BYTES_MIN);
    }
}

TEST(FrameReader, refuses_a_bad_length_behind_good_frames) {
    Line line;
    ByteVector stream = frame_of(3);
    ByteWriter(stream).u32(0);
    line.conn.send_at({}, stream);
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(line.reader.read(fiber, {}).ok());
        EXPECT_FALSE(line.reader.has_complete_frame());
        EXPECT_TRUE(line.reader.read(fiber, {}).is(ErrorCode::BAD_LENGTH));
    });
}

TEST(FrameReader, takes_a_frame_of_MAX_and_gives_its_memory_back) {
    Line line;
    line.conn.send_at({}, frame_of(MAX_FRAME_LEN));
    line.conn.send_at(seconds(1), frame_of(10));
    line.run([&](Fiber& fiber) {
        const Result<FrameView> giant = line.reader.read(fiber, {});
        ASSERT_TRUE(giant.ok());
        EXPECT_EQ(giant->payload.size(), MAX_FRAME_LEN - 1);
        EXPECT_EQ(giant->payload.back(), std::byte{0x5A});
        EXPECT_LE(line.reader.capacity_bytes(), LENGTH_BYTES + MAX_FRAME_LEN);
        EXPECT_EQ(line.budget.used_bytes(), 0u);
        EXPECT_EQ(line.reader.read(fiber, {}).value().payload.size(), 9u);
    });
    EXPECT_LE(line.reader.capacity_bytes(), FrameReader::CAPACITY_BYTES_STEADY);
}

TEST(FrameReader, gives_the_memory_back_when_small_frames_come_right_behind_a_giant) {
    Line line;
    ByteVector stream = frame_of(1'000'000);
    append_frame(stream, 300);
    const std::size_t cut = stream.size() - 100;
    line.conn.send_at({}, first_part(stream, cut));
    line.conn.send_at(seconds(1), last_part(stream, cut));
    line.run([&](Fiber& fiber) {
        EXPECT_EQ(line.reader.read(fiber, {}).value().payload.size(), 999'999u);
        EXPECT_EQ(line.reader.read(fiber, {}).value().payload.size(), 299u);
    });
    EXPECT_LE(line.reader.capacity_bytes(), FrameReader::CAPACITY_BYTES_STEADY);
}

TEST(FrameReader, grows_with_the_bytes_received_and_not_with_the_length_announced) {
    Line line;
    const std::size_t sent = 10'000;
    line.conn.send_at({}, first_part(frame_of(MAX_FRAME_LEN), sent));
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(line.reader.read(fiber, {}).is(ErrorCode::TIMED_OUT));
        EXPECT_TRUE(line.reader.in_mid_frame());
        EXPECT_LE(line.reader.capacity_bytes(), 2 * sent);
        EXPECT_EQ(line.budget.used_bytes(), sent);
    });
}

TEST(FrameReader, learns_from_busy_reads_and_forgets_when_idle) {
    Line line;
    ByteVector busy;
    for (int i = 0; i < 1000; ++i)
        append_frame(busy, 1000);
    line.conn.send_at({}, busy);
    for (int i = 1; i <= 200; ++i)
        line.conn.send_at(seconds(i), frame_of(1));
    line.run([&](Fiber& fiber) {
        for (int i = 0; i < 1000; ++i)
            EXPECT_EQ(line.reader.read(fiber, {}).value().payload.size(), 999u);
        EXPECT_EQ(line.reader.capacity_bytes(), FrameReader::CAPACITY_BYTES_STEADY);
        EXPECT_LT(line.conn.reads, 40);
        for (int i = 0; i < 200; ++i)
            EXPECT_TRUE(line.reader.read(fiber, {}).ok());
        EXPECT_EQ(line.reader.capacity_bytes(), FrameReader::CAPACITY_BYTES_MIN);
    });
}

TEST(Contract, S3_a_limit_of_8_KiB_holds_before_CONNECT_and_MAX_after) {
    const ReadLimits before{PRE_CONNECT_FRAME_LEN_MAX, NEVER};
    Line line;
    ByteVector stream = frame_of(PRE_CONNECT_FRAME_LEN_MAX);
    append_frame(stream, PRE_CONNECT_FRAME_LEN_MAX + 1);
    line.conn.send_at({}, stream);
    line.run([&](Fiber& fiber) {
        EXPECT_EQ(line.reader.read(fiber, before).value().payload.size(),
                  PRE_CONNECT_FRAME_LEN_MAX - 1);
        EXPECT_TRUE(line.reader.read(fiber, before).is(ErrorCode::BAD_LENGTH));
        EXPECT_EQ(line.reader.read(fiber, {}).value().payload.size(), PRE_CONNECT_FRAME_LEN_MAX);
    });
}

TEST(Contract, S3_the_time_for_CONNECT_is_not_extended_by_PING) {
    Line line;
    ByteVector ping;
    encode(ping, Ping{});
    for (int i = 0; i < 20; ++i)
        line.conn.send_at(seconds(i) + milliseconds(500), ping);
    line.run([&](Fiber& fiber) {
        const ReadLimits limits{PRE_CONNECT_FRAME_LEN_MAX, line.now() + CONNECT_TIMEOUT};
        int pings = 0;
        while (line.reader.read(fiber, limits).ok())
            ++pings;
        EXPECT_EQ(pings, 10);
        EXPECT_EQ(line.now(), at(seconds(10)));
    });
}

TEST(FrameReader, a_silent_client_is_out_when_the_time_for_CONNECT_is_over) {
    Line line;
    line.run([&](Fiber& fiber) {
        const ReadLimits limits{PRE_CONNECT_FRAME_LEN_MAX, line.now() + CONNECT_TIMEOUT};
        EXPECT_TRUE(line.reader.read(fiber, limits).is(ErrorCode::TIMED_OUT));
        EXPECT_EQ(line.now(), at(seconds(10)));
        EXPECT_FALSE(line.reader.in_mid_frame());
    });
}

TEST(Contract, S4_a_half_frame_ends_10_s_after_the_reader_met_it) {
    const ByteVector frame = frame_of(100);
    for (std::size_t size = 1; size < frame.size(); ++size) {
        Line line;
        line.conn.send_at(seconds(3), first_part(frame, size));
        line.run([&](Fiber& fiber) {
            const Result<FrameView> read =
                line.reader.read(fiber, {MAX_FRAME_LEN, at(seconds(45))});
            EXPECT_TRUE(read.is(ErrorCode::TIMED_OUT));
            EXPECT_EQ(line.now(), at(seconds(13)));
            EXPECT_TRUE(line.reader.in_mid_frame());
        });
    }
}

TEST(Contract, S4_drops_do_not_renew_a_half_frame) {
    Line line;
    const ByteVector frame = frame_of(100);
    for (std::size_t i = 0; i < 30; ++i)
        line.conn.send_at(seconds(static_cast<int>(i)), ByteSpan(frame).subspan(i, 1));
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(
            line.reader.read(fiber, {MAX_FRAME_LEN, at(seconds(45))}).is(ErrorCode::TIMED_OUT));
        EXPECT_LE(line.now(), at(seconds(12)));
        EXPECT_GE(line.now(), at(seconds(10)));
    });
}

TEST(Contract, S4_each_64_KiB_renews_a_half_frame) {
    Line line;
    const ByteVector frame = frame_of(10 * HALF_FRAME_RENEW_BYTES);
    line.conn.send_at({}, first_part(frame, 10));
    std::size_t sent = 10;
    for (int i = 1; sent < frame.size(); ++i) {
        const std::size_t count = std::min(HALF_FRAME_RENEW_BYTES, frame.size() - sent);
        line.conn.send_at(seconds(9) * i, ByteSpan(frame).subspan(sent, count));
        sent += count;
    }
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(line.reader.read(fiber, {}).ok());
        EXPECT_EQ(line.now(), at(seconds(90)));
    });
}

TEST(Contract, S4_less_than_64_KiB_does_not_renew) {
    Line line;
    const ByteVector frame = frame_of(10 * HALF_FRAME_RENEW_BYTES);
    line.conn.send_at({}, first_part(frame, 10));
    line.conn.send_at(seconds(9), ByteSpan(frame).subspan(10, HALF_FRAME_RENEW_BYTES - 1));
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(line.reader.read(fiber, {}).is(ErrorCode::TIMED_OUT));
        EXPECT_EQ(line.now(), at(seconds(10)));
    });
}

TEST(FrameReader, each_half_frame_has_its_own_10_s) {
    Line line;
    const ByteVector frame = frame_of(100);
    for (int i = 0; i < 5; ++i) {
        line.conn.send_at(seconds(9) * (2 * i), first_part(frame, 50));
        line.conn.send_at(seconds(9) * (2 * i + 1), last_part(frame, 50));
    }
    line.run([&](Fiber& fiber) {
        for (int i = 0; i < 5; ++i)
            EXPECT_TRUE(line.reader.read(fiber, {}).ok());
        EXPECT_EQ(line.now(), at(seconds(81)));
    });
}

TEST(FrameReader, a_half_frame_does_not_age_while_nobody_reads) {
    Line line;
    ByteVector stream = frame_of(10);
    append_frame(stream, 100);
    line.conn.send_at({}, first_part(stream, stream.size() - 1));
    line.conn.send_at(seconds(69), last_part(stream, stream.size() - 1));
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(line.reader.read(fiber, {}).ok());
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, at(seconds(60))).ok());
        EXPECT_TRUE(line.reader.read(fiber, {}).ok());
    });
}

TEST(FrameReader, keepalive_ends_a_connection_45_s_after_its_last_frame) {
    Line line;
    ByteVector ping;
    encode(ping, Ping{});
    line.conn.send_at(seconds(44), ping);
    line.conn.send_at(seconds(88), ping);
    line.run([&](Fiber& fiber) {
        int pings = 0;
        while (true) {
            const MonoTime deadline = deadline_after(line.world.clock, KEEPALIVE_LIMIT);
            if (!line.reader.read(fiber, {MAX_FRAME_LEN, deadline}).ok()) break;
            ++pings;
        }
        EXPECT_EQ(pings, 2);
        EXPECT_EQ(line.now(), at(seconds(88 + 45)));
        EXPECT_FALSE(line.reader.in_mid_frame());
    });
}

TEST(FrameReader, keepalive_counts_complete_frames_only) {
    Line line;
    const ByteVector frame = frame_of(20 * HALF_FRAME_RENEW_BYTES);
    for (std::size_t i = 0; i < 20; ++i) {
        line.conn.send_at(
            seconds(5) * static_cast<std::int64_t>(i),
            ByteSpan(frame).subspan(i * HALF_FRAME_RENEW_BYTES, HALF_FRAME_RENEW_BYTES));
    }
    line.run([&](Fiber& fiber) {
        const MonoTime deadline = line.now() + KEEPALIVE_LIMIT;
        EXPECT_TRUE(line.reader.read(fiber, {MAX_FRAME_LEN, deadline}).is(ErrorCode::TIMED_OUT));
        EXPECT_GE(line.now(), deadline);
        EXPECT_LE(line.now(), deadline + seconds(5));
    });
}

TEST(FrameReader, bytes_that_came_in_time_count_after_a_stall) {
    Line line;
    const ByteVector frame = frame_of(100);
    line.conn.send_at({}, first_part(frame, 50));
    line.conn.send_at(seconds(1), last_part(frame, 50));
    line.run([&](Fiber& fiber) {
        line.world.clock.time = at(seconds(60));  // nothing ran meanwhile
        EXPECT_TRUE(line.reader.read(fiber, {MAX_FRAME_LEN, at(seconds(45))}).ok());
    });
}

TEST(FrameReader, a_trickle_does_not_carry_a_frame_past_its_deadline_for_ever) {
    Line line;
    const ByteVector frame = frame_of(1000);
    line.conn.send_at({}, first_part(frame, 100));
    line.conn.send_at({}, last_part(frame, 100));
    line.conn.read_bytes_max = 1;
    line.run([&](Fiber& fiber) {
        line.world.clock.time = at(seconds(60));
        EXPECT_TRUE(
            line.reader.read(fiber, {MAX_FRAME_LEN, at(seconds(45))}).is(ErrorCode::TIMED_OUT));
    });
    EXPECT_EQ(line.conn.reads, FrameReader::LATE_READS_MAX + 1);
}

TEST(FrameReader, goes_on_after_a_deadline) {
    Line line;
    const ByteVector frame = frame_of(100);
    line.conn.send_at(seconds(1), first_part(frame, 50));
    line.conn.send_at(seconds(8), last_part(frame, 50));
    line.run([&](Fiber& fiber) {
        EXPECT_TRUE(
            line.reader.read(fiber, {MAX_FRAME_LEN, at(seconds(5))}).is(ErrorCode::TIMED_OUT));
        EXPECT_EQ(line.now(), at(seconds(5)));
        EXPECT_TRUE(line.reader.read(fiber, {MAX_FRAME_LEN, at(seconds(20))}).ok());
        EXPECT_EQ(line.now(), at(seconds(8)));
    });
}

TEST(FrameReader, tells_a_close_at_a_boundary_from_one_in_mid_frame) {
    const ByteVector frame = frame_of(20);
    for (std::size_t size = 0; size < frame.size(); ++size) {
        Line line;
        ByteVector stream = frame;
        stream.insert(stream.end(), frame.begin(),
                      frame.begin() + static_cast<std::ptrdiff_t>(size));
        line.conn.send_at({}, stream);
        line.conn.close_at({});
        line.run([&](Fiber& fiber) {
            EXPECT_TRUE(line.reader.read(fiber, {}).ok());
            const Result<FrameView> read = line.reader.read(fiber, {});
            EXPECT_TRUE(read.is(ErrorCode::CONNECTION_CLOSED));
            EXPECT_EQ(line.reader.in_mid_frame(), size > 0) << size;
        });
    }
}

TEST(FrameReader, passes_on_a_reset_and_a_cancel_as_they_are) {
    Line line;
    line.conn.reset_at(seconds(1));
    line.run([&](Fiber& fiber) {
        const Result<FrameView> read = line.reader.read(fiber, {});
        ASSERT_TRUE(read.is(ErrorCode::CONNECTION_CLOSED));
        EXPECT_EQ(read.error().detail, "reset");
    });

    Line waiting;
    bool cancelled = false;
    const FiberId reader = waiting.world.scheduler.spawn("test.reader", [&](Fiber& fiber) {
        cancelled = waiting.reader.read(fiber, {}).is(ErrorCode::CANCELLED);
    });
    waiting.run([&](Fiber&) { waiting.world.scheduler.cancel(reader); });
    EXPECT_TRUE(cancelled);
}

TEST(Contract, S4_unfinished_frames_of_a_node_share_one_budget) {
    ManualWorld world;
    FrameBudget budget(10'000);
    ScriptedConn conn_a(world);
    ScriptedConn conn_b(world);
    const ByteVector frame = frame_of(8'000);
    conn_a.send_at({}, first_part(frame, 6'000));
    conn_a.send_at(seconds(2), last_part(frame, 6'000));
    conn_b.send_at(seconds(1), first_part(frame, 6'000));
    FrameReader reader_a(conn_a, world.clock, budget);
    FrameReader reader_b(conn_b, world.clock, budget);
    int checked = 0;
    world.scheduler.spawn("test.a", [&](Fiber& fiber) {
        EXPECT_TRUE(reader_a.read(fiber, {}).ok());
        ++checked;
    });
    world.scheduler.spawn("test.b", [&](Fiber& fiber) {
        EXPECT_TRUE(reader_b.read(fiber, {}).is(ErrorCode::LIMIT_REACHED));
        EXPECT_EQ(world.clock.time, at(seconds(1)));
        ++checked;
    });
    world.scheduler.run_all();
    EXPECT_EQ(checked, 2);
}

TEST(FrameReader, gives_its_charge_back_at_completion_and_at_its_end) {
    ManualWorld world;
    FrameBudget budget;
    ScriptedConn conn(world);
    const ByteVector frame = frame_of(5'000);
    conn.send_at({}, first_part(frame, 3'000));
    conn.send_at(seconds(1), last_part(frame, 3'000));
    conn.send_at(seconds(2), first_part(frame, 2'000));
    {
        FrameReader reader(conn, world.clock, budget);
        ASSERT_TRUE(run_fiber(world, [&](Fiber& fiber) {
            EXPECT_TRUE(reader.read(fiber, {MAX_FRAME_LEN, MonoTime{}}).is(ErrorCode::TIMED_OUT));
            EXPECT_EQ(budget.used_bytes(), 3'000u);
            EXPECT_TRUE(reader.read(fiber, {}).ok());
            EXPECT_EQ(budget.used_bytes(), 0u);
            EXPECT_TRUE(reader.read(fiber, {}).is(ErrorCode::TIMED_OUT));
            EXPECT_EQ(budget.used_bytes(), 2'000u);
        }));
    }
    EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(FrameReader, leaves_unknown_ops_to_its_caller) {
    Line line;
    const std::vector<std::uint8_t> ops = {0x00, 0x10, 0x7F, 0x80, 0xFF};
    ByteVector stream;
    for (const std::uint8_t op : ops) {
        ByteWriter to(stream);
        to.u32(1);
        to.u8(op);
    }
    line.conn.send_at({}, stream);
    line.run([&](Fiber& fiber) {
        for (const std::uint8_t op : ops) {
            EXPECT_EQ(line.reader.read(fiber, {}).value().op, op);
            EXPECT_FALSE(op_known(op));
        }
    });
}

TEST(FrameBudget, never_goes_over_its_limit) {
    FrameBudget budget(100);
    EXPECT_TRUE(budget.try_charge(60));
    EXPECT_FALSE(budget.try_charge(41));
    EXPECT_TRUE(budget.try_charge(40));
    EXPECT_FALSE(budget.try_charge(1));
    EXPECT_FALSE(budget.try_charge(static_cast<std::size_t>(-1)));
    budget.release(50);
    EXPECT_EQ(budget.used_bytes(), 50u);
    EXPECT_TRUE(budget.try_charge(50));
}

}  // namespace
}  // namespace mortar::wire
