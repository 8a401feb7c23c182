// Sessions over the simulated network, with raw frames: what a client of any make can rely on, and
// what bad ones get.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/fiber/deadline.h"
#include "core/session/limits.h"
#include "core/session/server.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/produce/fakes.h"
#include "tests/unit/replica/sole_node.h"

namespace mortar {
namespace {

using testing::Answer;
using testing::NO_ERROR;
using wire::Op;

class FakeDelivery : public Delivery {
  public:
    void handle_sub(Fiber& fiber, Session&, const wire::Sub& sub, Reply reply) override {
        calls.push_back("sub " + std::string(sub.group));
        while (subs_stalled) {
            if (!unstalled.wait(fiber).ok()) return;
        }
        if (!reply.is_awaited()) calls.push_back("nobody awaits " + std::string(sub.group));
        reply.ok(wire::SubResult{});
    }
    void handle_pull(Session& session, const wire::Pull& pull, Reply reply) override {
        for (std::uint32_t sent = 0; sent < pull.max_bytes; sent += PUSH_BYTES) {
            session.outbox.push(ByteVector(PUSH_BYTES, std::byte{0}));
        }
        if (pull.wait_ms == 0) return reply.ok();
        waiting.push_back(std::move(reply));
    }
    void handle_ack(Session&, const wire::Ack& ack, Reply reply) override {
        calls.push_back("ack " + std::to_string(ack.seq.value));
        reply.error(make_error(ErrorCode::UNKNOWN_DELIVERY, "already settled"));
    }
    void handle_nack(Session&, const wire::Nack& nack, Reply reply) override {
        calls.push_back("nack " + std::to_string(nack.seq.value));
        reply.ok();
    }
    void handle_heartbeat(Fiber&, Session&, const wire::Heartbeat& beat, Reply reply) override {
        calls.push_back("heartbeat " + std::to_string(beat.member_id.value));
        reply.ok();
    }
    void handle_control_ack(Session&, const wire::ControlAck&, Reply reply) override { reply.ok(); }
    void handle_credit(Session&, const wire::Credit&, Reply reply) override {
        reply.ok(wire::CreditResult{});
    }
    void on_other_frame(Session&) override {
        std::vector<Reply> ended = std::exchange(waiting, {});
        for (Reply& reply : ended)
            reply.ok();
    }
    void stop() override {}
    void on_session_closed(Session&) override { ++closed_count; }
    void end_group(GroupId group_id) override {
        calls.push_back("end group " + std::to_string(group_id.value));
    }
    Result<void> remove_group(Fiber& fiber, GroupId) override {
        while (is_removal_stalled)
            MORTAR_TRY(removal_goes_on.wait(fiber));
        return {};
    }
    std::vector<PartitionState> group_state(GroupId) const override { return {}; }
    std::size_t unserved_count() const override { return 0; }
    Result<void> close(Fiber&) override { return {}; }

    static constexpr std::uint32_t PUSH_BYTES = 64 * 1024;
    std::vector<std::string> calls;
    std::vector<Reply> waiting;
    int closed_count = 0;
    bool subs_stalled = false;
    Event unstalled;
    bool is_removal_stalled = false;
    Event removal_goes_on;
};

ByteVector frame_of(const auto& message) {
    ByteVector frame;
    wire::encode(frame, message);
    return frame;
}
ByteVector raw_frame(std::uint8_t op, std::size_t payload_bytes) {
    ByteVector frame;
    ByteWriter writer(frame);
    writer.u32(static_cast<std::uint32_t>(payload_bytes + 1));
    writer.u8(op);
    writer.zeros(payload_bytes);
    return frame;
}
ByteVector pub_frame(std::uint64_t producer, std::uint64_t seq, std::string_view value = "v") {
    wire::Pub pub;
    pub.topic_id = TopicId(1);
    pub.producer_id = ProducerId(producer);
    pub.producer_seq = ProducerSeq(seq);
    pub.value = as_byte_span(value);
    return frame_of(pub);
}
ByteVector sub_frame(std::string_view group) {
    wire::Sub sub;
    sub.group = group;
    return frame_of(sub);
}
ByteVector beat_frame(std::uint64_t member, wire::HeartbeatState state) {
    wire::Heartbeat beat;
    beat.member_id = MemberId(member);
    beat.state = state;
    return frame_of(beat);
}
ByteVector ack_frame(std::uint64_t sequence) {
    wire::Ack ack;
    ack.seq = Sequence(sequence);
    return frame_of(ack);
}
ByteVector joined(std::initializer_list<ByteVector> frames) {
    ByteVector all;
    for (const ByteVector& frame : frames)
        all.insert(all.end(), frame.begin(), frame.end());
    return all;
}
ByteVector declare_frame(std::string_view name, std::uint16_t count, std::uint16_t flags = 0) {
    return frame_of(wire::Declare{name, count, flags});
}

// A client that says anything.
class RawClient {
  public:
    RawClient(Fiber& fiber, sim::SimNode& node) : clock_(node.clock()) {
        conn_ = node.net().connect(fiber, "broker:7188", NEVER).value();
        reader_ = std::make_unique<wire::FrameReader>(*conn_, clock_, budget_);
    }
    Result<void> send(Fiber& fiber, ByteSpan bytes) {
        return conn_->write(fiber, {&bytes, 1}, NEVER);
    }
    void must_send(Fiber& fiber, ByteSpan bytes) { EXPECT_TRUE(send(fiber, bytes).ok()); }
    Answer connect(Fiber& fiber, std::string_view token = {}) {
        must_send(fiber, frame_of(wire::Connect{wire::WIRE_VERSION, 0, as_byte_span(token)}));
        return read(fiber);
    }
    // Frames of the fake delivery (op 0) are skipped by the caller.
    Result<Answer> try_read(Fiber& fiber, Duration timeout = seconds(100)) {
        const wire::FrameView frame = MORTAR_TRY(
            reader_->read(fiber, {wire::MAX_FRAME_LEN, deadline_after(clock_, timeout)}));
        return testing::decode_answer(frame.op, frame.payload);
    }
    Answer read(Fiber& fiber) {
        Result<Answer> answer = try_read(fiber);
        EXPECT_TRUE(answer.ok()) << answer.error().to_string();
        return answer.ok() ? *answer : Answer{};
    }
    Answer ask(Fiber& fiber, ByteSpan frame) {
        must_send(fiber, frame);
        return read(fiber);
    }
    bool is_closed(Fiber& fiber) { return try_read(fiber).is(ErrorCode::CONNECTION_CLOSED); }
    bool is_silent_for(Fiber& fiber, Duration time) {
        return try_read(fiber, time).is(ErrorCode::TIMED_OUT);
    }
    Conn& conn() { return *conn_; }

  private:
    const Clock& clock_;
    std::unique_ptr<Conn> conn_;
    wire::FrameBudget budget_;
    std::unique_ptr<wire::FrameReader> reader_;
};

// A broker without consuming on one node, its clients on another.
class SessionTest : public ::testing::Test {
  protected:
    explicit SessionTest(std::uint64_t seed = 1) : world(seed, stacks) {
        table.set_replication(&sole_node);
        metadata.state.apply({MutationId(1), LeaderEpoch(1), 0, TopicCreated{"orders", 1}});
        start([this](Fiber& fiber) {
            EXPECT_TRUE(keeper.open_all(fiber).ok());
            keeper.set_delivery(&delivery);
            publisher.start(background);
            background.spawn("topics", [this](Fiber& own) { keeper.run(own); });
            server = std::make_unique<SessionServer>(SessionContext{env, gate, auth, frame_budget},
                                                     env.net.listen("broker:7188").value(),
                                                     connection_count_max, request_fibers_max);
            background.spawn("accept", [this](Fiber& own) { server->serve(own); });
        });
        world.run_for(seconds(0));
    }
    ~SessionTest() override { broker.kill(); }

    void start(FiberBody body) { broker.scheduler().spawn("test.broker", std::move(body)); }
    // Runs a client and the world until the client has ended.
    void client(FiberBody body) {
        bool ended = false;
        clients.scheduler().spawn("test.client", [&ended, body = std::move(body)](Fiber& fiber) {
            body(fiber);
            ended = true;
        });
        while (!ended && world.step(world.now() + seconds(1000))) {
        }
        ASSERT_TRUE(ended);
    }
    testing::FakeLog& log() { return *logs.logs.at("topics/1/0"); }
    std::size_t appended() { return logs.disks["topics/1/0"].records.size(); }
    void sleep(Fiber& fiber, Duration time) {
        EXPECT_TRUE(clients.scheduler().sleep_until(fiber, clients.clock().now() + time).ok());
    }

    // The system gives stacks, or no more.
    struct Stacks : sim::HeapStackPool {
        bool reserve(std::size_t) override { return !is_scarce; }
        bool is_scarce = false;
    };
    Stacks stacks;
    sim::SimWorld world;
    sim::SimNode& broker = world.add_node("broker");
    sim::SimNode& clients = world.add_node("clients");
    testing::MemoryDisk disk;
    testing::NullLog events;
    testing::FakeLogs logs;
    testing::FakeMetadata metadata;
    testing::SeededRng rng;
    Env env{broker.clock(), broker.scheduler(), broker.net(), disk, rng, events};
    Group background{broker.scheduler()};
    PartitionTable table{env, [this](Fiber& fiber, const std::string& folder, const std::string&) {
                             return logs.open(fiber, folder);
                         }};
    SoleNode sole_node;
    ProducePace pace{broker.clock()};
    Publisher publisher{
        env, metadata, table, {LeaderEpoch(9), wire::Durability::LOCAL, {}, &pace, {}}};
    FakeDelivery delivery;
    TopicKeeper keeper{env, metadata, table};
    DeclareHandler declare{metadata, table, keeper, 4};
    // This node leads, until a test takes `served` away.
    struct OpenGate : Gate {
        OpenGate(Serving parts, ProducePace& producers)
            : served(std::make_shared<Serving>(parts)), paced(producers) {}
        std::shared_ptr<Serving> serving() const override { return served; }
        ProducePace& pace() const override { return paced; }
        void await_leader(Fiber& fiber, MonoTime deadline) const override {
            ++wait_count;
            while (served == nullptr && election_ended.wait(fiber, deadline).ok()) {
            }
        }
        Result<void> check(wire::Op) const override {
            if (served != nullptr) return {};
            return make_error(ErrorCode::STALE_LEADER_EPOCH, "leader unknown epoch=7");
        }
        std::shared_ptr<Serving> served;
        ProducePace& paced;
        mutable Event election_ended;
        mutable int wait_count = 0;
    };
    OpenGate gate{Serving{delivery, publisher, declare}, pace};
    ClientAuth auth;
    wire::FrameBudget frame_budget;
    std::size_t connection_count_max = 3;
    std::size_t request_fibers_max = 2;
    std::unique_ptr<SessionServer> server;
};

TEST_F(SessionTest, connects_and_answers_ping) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        EXPECT_EQ(c.ask(fiber, frame_of(wire::Ping{})).op, Op::PING);  // allowed before CONNECT
        const Answer connected = c.connect(fiber);
        EXPECT_EQ(connected.op, Op::CONNECT);
        EXPECT_EQ(connected.code, NO_ERROR);
        EXPECT_EQ(c.ask(fiber, frame_of(wire::Ping{})).op, Op::PING);
        EXPECT_EQ(server->connection_count(), 1u);
    });
    world.run_for(seconds(5));
    EXPECT_EQ(server->connection_count(), 0u);
    EXPECT_EQ(delivery.closed_count, 1);
}

TEST_F(SessionTest, a_request_waits_for_the_end_of_an_election) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const auto office = std::exchange(gate.served, nullptr);
        // Contract R3: these are answered by any node.
        EXPECT_EQ(c.ask(fiber, frame_of(wire::Ping{})).code, NO_ERROR);
        EXPECT_EQ(gate.wait_count, 0);
        c.must_send(fiber, pub_frame(5, 1, "hello"));
        EXPECT_TRUE(c.is_silent_for(fiber, milliseconds(300)));
        EXPECT_EQ(gate.wait_count, 1);
        gate.served = office;
        gate.election_ended.notify_all();
        sleep(fiber, milliseconds(10));
        log().flush();
        EXPECT_EQ(c.read(fiber).code, NO_ERROR);
    });
    world.run_for(seconds(5));
}

TEST_F(SessionTest, an_election_without_end_is_told_in_time) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const auto office = std::exchange(gate.served, nullptr);
        c.must_send(fiber, pub_frame(5, 1, "hello"));
        EXPECT_TRUE(c.is_silent_for(fiber, LEADER_WAIT_MAX - milliseconds(100)));
        const Answer answer = c.read(fiber);
        EXPECT_EQ(answer.code, ErrorCode::STALE_LEADER_EPOCH);
        EXPECT_EQ(answer.text, "leader unknown epoch=7");
        gate.served = office;
    });
    world.run_for(seconds(5));
}

TEST_F(SessionTest, publishes_from_socket_to_ok) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        c.must_send(fiber, pub_frame(5, 1, "hello"));
        EXPECT_TRUE(c.is_silent_for(fiber, milliseconds(500)));  // not flushed: no answer
        log().flush();
        const Answer answer = c.read(fiber);
        EXPECT_EQ(answer.op, Op::PUB);
        EXPECT_EQ(answer.pub.sequence, Sequence(1));
        EXPECT_EQ(answer.pub.leader_epoch, LeaderEpoch(9));
    });
    EXPECT_EQ(as_string_view(logs.disks["topics/1/0"].records.at(0).value), "hello");
}

TEST_F(SessionTest, S1_answers_what_no_client_may_send_by_its_code_and_closes) {
    struct Case {
        ByteVector bytes;
        ErrorCode code;
        std::uint8_t request_op;
    };
    ByteVector bad_length_0;
    ByteWriter(bad_length_0).u32(0);
    ByteVector bad_length_max_1;
    ByteWriter(bad_length_max_1).u32(wire::MAX_FRAME_LEN + 1);
    const std::vector<Case> cases = {
        {raw_frame(0x42, 3), ErrorCode::UNKNOWN_OP, 0x42},
        {raw_frame(0x00, 3), ErrorCode::UNKNOWN_OP, 0x00},
        {raw_frame(0x09, 5), ErrorCode::MALFORMED_PAYLOAD, 0x09},
        {raw_frame(0x0A, 56), ErrorCode::MALFORMED_PAYLOAD, 0x0A},
        {raw_frame(0x0D, 39), ErrorCode::MALFORMED_PAYLOAD, 0x0D},
        {raw_frame(0x08, 2), ErrorCode::MALFORMED_PAYLOAD, 0x08},
        {raw_frame(0x03, 5), ErrorCode::MALFORMED_PAYLOAD, 0x03},
        {frame_of(wire::Connect{}), ErrorCode::MALFORMED_PAYLOAD, 0x01},
        {declare_frame("orders", 1, wire::DECLARE_FLAG_GROUP), ErrorCode::MALFORMED_PAYLOAD, 0x02},
        {bad_length_0, ErrorCode::BAD_LENGTH, wire::NO_OP},
        {bad_length_max_1, ErrorCode::BAD_LENGTH, wire::NO_OP},
    };
    for (const Case& c : cases) {
        client([this, &c](Fiber& fiber) {
            RawClient raw(fiber, clients);
            raw.connect(fiber);
            const Answer answer = raw.ask(fiber, c.bytes);
            EXPECT_EQ(answer.code, c.code) << int{c.request_op};
            EXPECT_EQ(answer.op, Op{c.request_op});
            EXPECT_FALSE(answer.text.empty());
            EXPECT_TRUE(raw.is_closed(fiber));
        });
        world.run_for(seconds(3));
    }
}

TEST_F(SessionTest, S1_logs_an_err_and_goes_on) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        c.must_send(fiber, frame_of(wire::Err{0x0003, 0x0A, "I could not read that"}));
        EXPECT_EQ(c.ask(fiber, frame_of(wire::Ping{})).op, Op::PING);
    });
    EXPECT_TRUE(events.saw("client_error"));
}

TEST_F(SessionTest, S3_refuses_before_connect_all_but_connect_ping_and_err) {
    for (const ByteVector& bytes :
         {pub_frame(5, 1), declare_frame("orders", 1), raw_frame(0x0B, 32)}) {
        client([this, &bytes](Fiber& fiber) {
            RawClient c(fiber, clients);
            EXPECT_EQ(c.ask(fiber, bytes).code, ErrorCode::NOT_AUTHENTICATED);
            EXPECT_TRUE(c.is_closed(fiber));
        });
    }
    EXPECT_EQ(appended(), 0u);
}

TEST_F(SessionTest, S3_checks_the_version_before_the_token) {
    auth.token_digests = {sha256(as_byte_span("secret"))};
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        wire::Connect connect;
        connect.token = as_byte_span("wrong");
        ByteVector frame = frame_of(connect);
        frame[wire::FRAME_HEAD_BYTES] = std::byte{2};
        EXPECT_EQ(c.ask(fiber, frame).code, ErrorCode::UNSUPPORTED_VERSION);
    });
}

TEST_F(SessionTest, S3_answers_a_wrong_token_late_and_takes_each_right_one) {
    auth.token_digests = {sha256(as_byte_span("old")), sha256(as_byte_span("new"))};
    client([this](Fiber& fiber) {
        for (const std::string_view token : {"old", "new"}) {
            RawClient c(fiber, clients);
            EXPECT_EQ(c.connect(fiber, token).code, NO_ERROR);
        }
        for (const std::string_view token : {"", "olD", "newer"}) {
            RawClient c(fiber, clients);
            const MonoTime before = clients.clock().now();
            const Answer answer = c.connect(fiber, token);
            EXPECT_EQ(answer.code, ErrorCode::AUTH_FAILED);
            EXPECT_EQ(answer.text, "check the token");
            EXPECT_GE(clients.clock().now() - before, AUTH_FAILURE_DELAY);
            EXPECT_TRUE(c.is_closed(fiber));
        }
    });
}

TEST_F(SessionTest, S3_wants_connect_within_10_s_whatever_pings_say) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        for (int i = 0; i < 9; ++i) {
            c.ask(fiber, frame_of(wire::Ping{}));
            sleep(fiber, seconds(1));
        }
        const Answer answer = c.read(fiber);
        EXPECT_EQ(answer.code, ErrorCode::AUTH_TIMEOUT);
        EXPECT_EQ(answer.op, Op{wire::NO_OP});
        EXPECT_TRUE(c.is_closed(fiber));
    });
    EXPECT_LT(world.now() - MonoTime{}, seconds(11));
}

TEST_F(SessionTest, S3_takes_no_large_frame_before_connect) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        EXPECT_EQ(c.ask(fiber, raw_frame(0x01, wire::PRE_CONNECT_FRAME_LEN_MAX)).code,
                  ErrorCode::BAD_LENGTH);
        EXPECT_TRUE(c.is_closed(fiber));
    });
}

TEST_F(SessionTest, S4_closes_on_a_half_frame_after_10_s_and_on_silence_after_45_s) {
    client([this](Fiber& fiber) {
        RawClient half(fiber, clients);
        half.connect(fiber);
        const MonoTime before = clients.clock().now();
        half.must_send(fiber, ByteSpan(pub_frame(5, 1)).first(20));
        EXPECT_TRUE(half.is_closed(fiber));
        EXPECT_EQ((clients.clock().now() - before).ns / 1'000'000'000, 10);
        RawClient silent(fiber, clients);
        silent.connect(fiber);
        sleep(fiber, seconds(40));
        silent.ask(fiber, frame_of(wire::Ping{}));
        const MonoTime last = clients.clock().now();
        EXPECT_TRUE(silent.is_closed(fiber));
        EXPECT_EQ((clients.clock().now() - last).ns / 1'000'000'000, 45);
    });
    EXPECT_EQ(appended(), 0u);
}

TEST_F(SessionTest, R1_answers_leave_in_arrival_order) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        ByteVector all;
        for (const ByteVector& frame :
             {pub_frame(5, 1), frame_of(wire::Ping{}), pub_frame(5, 3),
              declare_frame("orders", 1, wire::DECLARE_FLAG_LOOKUP), pub_frame(5, 2)}) {
            all.insert(all.end(), frame.begin(), frame.end());
        }
        c.must_send(fiber, all);
        EXPECT_TRUE(c.is_silent_for(fiber, milliseconds(300)));  // the first PUB holds all back
        EXPECT_EQ(appended(), 2u);                               // and yet all were started
        log().flush();
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(1));
        EXPECT_EQ(c.read(fiber).op, Op::PING);
        EXPECT_EQ(c.read(fiber).code, ErrorCode::SEQ_GAP);
        EXPECT_EQ(c.read(fiber).declare.topic_id, TopicId(1));
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(2));
    });
}

TEST_F(SessionTest, R1_who_publishes_is_held_to_a_rate_and_refused_nothing) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        RawClient asks(fiber, clients);
        asks.connect(fiber);
        pace.hold_to(10 * record_bytes(0, 100));  // ten of these a second
        ByteVector all;
        const std::string value(100, 'v');
        for (std::uint64_t seq = 1; seq <= 100; ++seq) {
            const ByteVector frame = pub_frame(5, seq, value);
            all.insert(all.end(), frame.begin(), frame.end());
        }
        c.must_send(fiber, all);
        for (int second = 0; second < 3; ++second) {
            sleep(fiber, seconds(1));
            log().flush();
        }
        EXPECT_NEAR(static_cast<double>(appended()), 31.0, 1.0);
        // Who does not publish is not held.
        EXPECT_EQ(asks.ask(fiber, frame_of(wire::Ping{})).op, Op::PING);
        EXPECT_NEAR(static_cast<double>(appended()), 31.0, 2.0);
        pace.release();
        sleep(fiber, milliseconds(20));
        EXPECT_EQ(appended(), 100u);
        log().flush();
        for (std::uint64_t seq = 1; seq <= 100; ++seq)
            EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(seq));
    });
}

TEST_F(SessionTest, ends_a_connection_that_is_held_when_the_node_stops) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        pace.hold_to(1);
        c.must_send(fiber, joined({pub_frame(5, 1), pub_frame(5, 2)}));
        sleep(fiber, milliseconds(10));
        EXPECT_EQ(appended(), 1u);
        log().flush();
        start([this](Fiber& own) {
            server->stop_accepting();
            server->drain(own);
        });
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(1));
        EXPECT_TRUE(c.is_closed(fiber));
    });
}

TEST_F(SessionTest, R1_stops_reading_at_1024_unanswered_and_goes_on) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        ByteVector all;
        for (std::uint64_t seq = 1; seq <= 1500; ++seq) {
            const ByteVector frame = pub_frame(5, seq);
            all.insert(all.end(), frame.begin(), frame.end());
        }
        c.must_send(fiber, all);
        sleep(fiber, milliseconds(500));
        EXPECT_EQ(appended(), UNANSWERED_COUNT_MAX);
        log().flush(100);
        sleep(fiber, milliseconds(500));
        EXPECT_EQ(appended(), UNANSWERED_COUNT_MAX + 100);
        log().flush();
        sleep(fiber, milliseconds(500));
        log().flush();
        for (std::uint64_t seq = 1; seq <= 1500; ++seq)
            EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(seq));
    });
}

TEST_F(SessionTest, R1_stops_reading_at_32_mib_unanswered) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const std::string value(8u << 20, 'v');
        clients.scheduler().spawn("test.flood", [&c, &value](Fiber& sender) {
            for (std::uint64_t seq = 1; seq <= 6; ++seq) {
                if (!c.send(sender, pub_frame(5, seq, value)).ok()) return;
            }
        });
        sleep(fiber, milliseconds(1500));
        EXPECT_EQ(appended(), 4u);
        log().flush();
        for (int i = 0; i < 4; ++i)
            c.read(fiber);
        sleep(fiber, milliseconds(1500));
        EXPECT_EQ(appended(), 6u);
    });
}

TEST_F(SessionTest, R1_answers_what_came_before_an_error_that_closes) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        ByteVector all = pub_frame(5, 1);
        const ByteVector bad = raw_frame(0x42, 3);
        const ByteVector late = pub_frame(5, 2);
        all.insert(all.end(), bad.begin(), bad.end());
        all.insert(all.end(), late.begin(), late.end());
        c.must_send(fiber, all);
        sleep(fiber, milliseconds(100));
        EXPECT_EQ(appended(), 1u);  // nothing behind it is executed
        log().flush();
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(1));
        EXPECT_EQ(c.read(fiber).code, ErrorCode::UNKNOWN_OP);
        EXPECT_TRUE(c.is_closed(fiber));
    });
}

TEST_F(SessionTest, C1_any_other_frame_ends_a_waiting_pull) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        wire::Pull pull;
        pull.wait_ms = 30000;
        c.must_send(fiber, frame_of(pull));
        EXPECT_TRUE(c.is_silent_for(fiber, milliseconds(200)));
        c.must_send(fiber, frame_of(wire::Ping{}));
        EXPECT_EQ(c.read(fiber).op, Op::PULL);
        EXPECT_EQ(c.read(fiber).op, Op::PING);
    });
}

TEST(Session, S5_tells_a_slow_consumer_and_closes) {
    class SlowTest : public SessionTest {
      public:
        void TestBody() override {
            client([this](Fiber& fiber) {
                RawClient c(fiber, clients);
                c.connect(fiber);
                wire::Pull pull;
                pull.max_bytes = 2u << 20;
                c.must_send(fiber, frame_of(pull));
                sleep(fiber, SLOW_CONSUMER_TIMEOUT + seconds(5));
                // It reads again, and meets the end of what was sent.
                ByteVector into(1u << 20);
                ByteVector last;
                while (true) {
                    const Result<std::size_t> count = c.conn().read(fiber, into, NEVER);
                    if (!count.ok() || *count == 0) break;
                    last.insert(last.end(), into.begin(),
                                into.begin() + static_cast<std::ptrdiff_t>(*count));
                }
                ByteVector expected;
                wire::encode_err(expected, ErrorCode::SLOW_CONSUMER, wire::NO_OP,
                                 "consume faster, reconnect");
                ASSERT_GE(last.size(), expected.size());
                EXPECT_EQ(ByteVector(last.end() - static_cast<std::ptrdiff_t>(expected.size()),
                                     last.end()),
                          expected);
                EXPECT_EQ((last.size() - expected.size()) % FakeDelivery::PUSH_BYTES,
                          0u);  // at a frame's end
            });
            world.run_for(seconds(5));
            EXPECT_EQ(delivery.closed_count, 1);
        }
    };
    SlowTest().TestBody();
}

TEST_F(SessionTest, S5_tells_the_connection_over_the_maximum) {
    client([this](Fiber& fiber) {
        std::vector<std::unique_ptr<RawClient>> full;
        for (int i = 0; i < 3; ++i) {
            full.push_back(std::make_unique<RawClient>(fiber, clients));
            full.back()->connect(fiber);
        }
        RawClient c(fiber, clients);
        const Answer answer = c.read(fiber);
        EXPECT_EQ(answer.code, ErrorCode::QUOTA_EXCEEDED);
        EXPECT_TRUE(c.is_closed(fiber));
        EXPECT_EQ(full[0]->ask(fiber, frame_of(wire::Ping{})).op, Op::PING);
        full.pop_back();
        sleep(fiber, seconds(5));
        RawClient again(fiber, clients);
        EXPECT_EQ(again.connect(fiber).code, NO_ERROR);
    });
}

TEST_F(SessionTest, T_declare_creates_looks_up_and_deletes) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const Answer created = c.ask(fiber, declare_frame("invoices", 2));
        EXPECT_EQ(created.declare.topic_id, TopicId(3));
        EXPECT_EQ(created.declare.created, wire::DeclareOutcome::CREATED);
        EXPECT_EQ(table.partition_count(TopicId(3)), 2);
        EXPECT_EQ(table.partition_count(TopicId(4)), 2);  // the twin
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 2)).declare.created,
                  wire::DeclareOutcome::IDEMPOTENT_OK);
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 0)).declare.partition_count,
                  2);  // T2: matches any count
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 3)).code,
                  ErrorCode::TOPIC_EXISTS_MISMATCH);
        EXPECT_EQ(c.ask(fiber, declare_frame("many", 1025)).code, ErrorCode::QUOTA_EXCEEDED);
        EXPECT_EQ(c.ask(fiber, declare_frame("other", 0)).declare.partition_count,
                  4);  // the default
        EXPECT_EQ(c.ask(fiber, declare_frame(std::string(65535, 'a'), 1)).code,
                  ErrorCode::MUTATION_NOT_PACKABLE);  // T5
        EXPECT_EQ(c.ask(fiber, declare_frame(std::string(252, 'a'), 1)).code,
                  ErrorCode::INVALID_TOPIC);
        EXPECT_EQ(c.ask(fiber, declare_frame("a..b", 1)).code, ErrorCode::INVALID_TOPIC);
        EXPECT_EQ(c.ask(fiber, declare_frame("x.dlq", 1)).code, ErrorCode::INVALID_TOPIC);
        const std::uint16_t look_up = wire::DECLARE_FLAG_LOOKUP;
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices.dlq", 0, look_up)).declare.topic_id,
                  TopicId(4));
        EXPECT_EQ(c.ask(fiber, declare_frame("nothing", 0, look_up)).code,
                  ErrorCode::UNKNOWN_TOPIC);
        const std::uint16_t remove = wire::DECLARE_FLAG_DELETE;
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 5, remove)).code,
                  ErrorCode::UNKNOWN_TOPIC);  // T4: another id
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 3, remove)).declare.topic_id, TopicId(3));
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 3, remove)).code,
                  ErrorCode::UNKNOWN_TOPIC);
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 1)).declare.topic_id,
                  TopicId(7));  // never reused
        EXPECT_EQ(table.partition_count(TopicId(3)), 0);
        EXPECT_EQ(table.partition_count(TopicId(4)), 0);
        const std::uint16_t remove_group = wire::DECLARE_FLAG_DELETE | wire::DECLARE_FLAG_GROUP;
        EXPECT_EQ(c.ask(fiber, declare_frame("workers", 0, remove_group)).code,
                  ErrorCode::UNKNOWN_TOPIC);
        metadata.quarantined = true;
        EXPECT_EQ(c.ask(fiber, declare_frame("nothing", 0, look_up)).code,
                  ErrorCode::METADATA_QUARANTINED);
    });
}

TEST_F(SessionTest, T4_a_topic_that_is_deleted_takes_its_pending_pubs_along) {
    client([this](Fiber& fiber) {
        RawClient publisher_client(fiber, clients);
        publisher_client.connect(fiber);
        publisher_client.must_send(fiber, pub_frame(5, 1));
        sleep(fiber, milliseconds(50));
        RawClient admin(fiber, clients);
        admin.connect(fiber);
        EXPECT_EQ(admin.ask(fiber, declare_frame("orders", 0, wire::DECLARE_FLAG_DELETE)).code,
                  NO_ERROR);
        EXPECT_EQ(publisher_client.read(fiber).code, ErrorCode::UNKNOWN_TOPIC);
        EXPECT_EQ(publisher_client.ask(fiber, pub_frame(5, 2)).code, ErrorCode::UNKNOWN_TOPIC);
    });
}

TEST_F(SessionTest, T4_a_deleted_topic_takes_no_pub_while_its_files_are_still_there) {
    delivery.is_removal_stalled = true;
    client([this](Fiber& fiber) {
        EXPECT_TRUE(
            metadata.propose(fiber, GroupCreated{"workers", TopicId(1), {Sequence(0)}}).ok());
        RawClient publisher_client(fiber, clients);
        publisher_client.connect(fiber);
        publisher_client.must_send(fiber, pub_frame(5, 1));
        sleep(fiber, milliseconds(50));
        RawClient admin(fiber, clients);
        admin.connect(fiber);
        EXPECT_EQ(admin.ask(fiber, declare_frame("orders", 0, wire::DECLARE_FLAG_DELETE)).code,
                  NO_ERROR);
        EXPECT_EQ(delivery.calls, std::vector<std::string>{"end group 1"});
        EXPECT_EQ(publisher_client.read(fiber).code, ErrorCode::UNKNOWN_TOPIC);
        EXPECT_EQ(publisher_client.ask(fiber, pub_frame(5, 2)).code, ErrorCode::UNKNOWN_TOPIC);
        EXPECT_EQ(appended(), 1u);  // what came before the deletion; its file waits for the group
        // A successor of the name is another topic, whatever is left of the old one.
        delivery.is_removal_stalled = false;
        delivery.removal_goes_on.notify_all();
        const Answer successor = admin.ask(fiber, declare_frame("orders", 1));
        EXPECT_EQ(successor.declare.topic_id, TopicId(3));
        EXPECT_EQ(publisher_client.ask(fiber, pub_frame(5, 2)).code, ErrorCode::UNKNOWN_TOPIC);
        EXPECT_EQ(appended(), 0u);
    });
}

TEST_F(SessionTest, R2_answers_a_declare_that_takes_too_long_and_carries_it_out_all_the_same) {
    metadata.stalled = true;
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const MonoTime before = clients.clock().now();
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 2)).code, ErrorCode::READ_ONLY_DEGRADED);
        EXPECT_EQ((clients.clock().now() - before).ns / 1'000'000'000, 2);
        metadata.stalled = false;
        metadata.unstalled.notify_all();
        sleep(fiber, milliseconds(100));
        EXPECT_EQ(c.ask(fiber, declare_frame("invoices", 2)).declare.created,
                  wire::DeclareOutcome::IDEMPOTENT_OK);
    });
}

TEST_F(SessionTest, R2_answers_a_sub_that_takes_too_long_and_lets_it_finish) {
    delivery.subs_stalled = true;
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const MonoTime before = clients.clock().now();
        const Answer answer = c.ask(fiber, sub_frame("workers"));
        EXPECT_EQ(answer.op, Op::SUB);
        EXPECT_EQ(answer.code, ErrorCode::READ_ONLY_DEGRADED);
        EXPECT_EQ((clients.clock().now() - before).ns / 1'000'000'000, 2);
        delivery.subs_stalled = false;
        delivery.unstalled.notify_all();
        sleep(fiber, milliseconds(100));
        EXPECT_EQ(delivery.calls,
                  (std::vector<std::string>{"sub workers", "nobody awaits workers"}));
        EXPECT_EQ(c.ask(fiber, sub_frame("workers")).code, NO_ERROR);
    });
}

TEST_F(SessionTest, R2_a_request_that_did_not_start_in_time_never_does) {
    metadata.stalled = true;
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const MonoTime before = clients.clock().now();
        c.must_send(fiber, joined({declare_frame("first", 1), declare_frame("second", 1),
                                   frame_of(wire::Ping{})}));
        EXPECT_EQ(c.read(fiber).code, ErrorCode::READ_ONLY_DEGRADED);
        EXPECT_EQ(c.read(fiber).code, ErrorCode::READ_ONLY_DEGRADED);
        EXPECT_EQ(c.read(fiber).op, Op::PING);
        EXPECT_EQ((clients.clock().now() - before).ns / 1'000'000'000, 2);
        metadata.stalled = false;
        metadata.unstalled.notify_all();
        sleep(fiber, milliseconds(100));
        EXPECT_NE(metadata.state.find_topic("first"), nullptr);
        EXPECT_EQ(metadata.state.find_topic("second"), nullptr);
    });
}

TEST_F(SessionTest, a_connection_has_one_fiber_for_all_its_requests) {
    metadata.stalled = true;
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        const std::size_t before = broker.scheduler().fiber_count();
        ByteVector all;
        for (int i = 0; i < 500; ++i) {
            const ByteVector frame = declare_frame("t" + std::to_string(i), 1);
            all.insert(all.end(), frame.begin(), frame.end());
        }
        c.must_send(fiber, all);
        sleep(fiber, milliseconds(500));
        EXPECT_EQ(broker.scheduler().fiber_count(), before + 1);
        metadata.stalled = false;
        metadata.unstalled.notify_all();
        for (int i = 0; i < 500; ++i)
            EXPECT_EQ(c.read(fiber).declare.created, wire::DeclareOutcome::CREATED);
        sleep(fiber, milliseconds(10));
        // Nothing is left of them but the new topics' own fibers.
        const std::vector<std::string> names = broker.scheduler().fiber_names();
        EXPECT_EQ(std::count(names.begin(), names.end(), "session.requests"), 0);
    });
}

TEST_F(SessionTest, refuses_a_request_for_which_the_node_has_no_fiber) {
    metadata.stalled = true;
    client([this](Fiber& fiber) {
        std::vector<std::unique_ptr<RawClient>> busy;
        for (std::size_t i = 0; i < request_fibers_max; ++i) {
            busy.push_back(std::make_unique<RawClient>(fiber, clients));
            busy.back()->connect(fiber);
            busy.back()->must_send(fiber, declare_frame("t" + std::to_string(i), 1));
        }
        RawClient c(fiber, clients);
        c.connect(fiber);
        EXPECT_EQ(c.ask(fiber, declare_frame("late", 1)).code, ErrorCode::QUOTA_EXCEEDED);
        EXPECT_EQ(c.ask(fiber, sub_frame("late")).code, ErrorCode::QUOTA_EXCEEDED);
        EXPECT_EQ(std::count(events.events.begin(), events.events.end(), "requests_refused"), 1);
        EXPECT_EQ(c.ask(fiber, ack_frame(1)).code, ErrorCode::UNKNOWN_DELIVERY);  // needs none
        metadata.stalled = false;
        metadata.unstalled.notify_all();
        for (const auto& one : busy)
            EXPECT_EQ(one->read(fiber).code, NO_ERROR);
        EXPECT_EQ(c.ask(fiber, declare_frame("late", 1)).code, NO_ERROR);
    });
}

TEST_F(SessionTest, refuses_connections_and_requests_while_the_system_gives_no_stacks) {
    client([this](Fiber& fiber) {
        RawClient early(fiber, clients);
        early.connect(fiber);
        stacks.is_scarce = true;
        RawClient late(fiber, clients);
        EXPECT_EQ(late.read(fiber).code, ErrorCode::QUOTA_EXCEEDED);
        EXPECT_TRUE(late.is_closed(fiber));
        EXPECT_TRUE(events.saw("connection_refused"));
        EXPECT_EQ(early.ask(fiber, sub_frame("workers")).code, ErrorCode::QUOTA_EXCEEDED);
        EXPECT_TRUE(events.saw("requests_refused"));
        stacks.is_scarce = false;
        EXPECT_EQ(early.ask(fiber, sub_frame("workers")).code, NO_ERROR);
        RawClient again(fiber, clients);
        EXPECT_EQ(again.connect(fiber).code, NO_ERROR);
    });
}

// Whatever fiber the world runs next.
TEST(Session, R1_requests_of_all_kinds_start_in_arrival_order) {
    class OrderTest : public SessionTest {
      public:
        explicit OrderTest(std::uint64_t seed) : SessionTest(seed), seed_(seed) {}
        void TestBody() override {
            client([this](Fiber& fiber) {
                RawClient c(fiber, clients);
                c.connect(fiber);
                Rng draws(seed_);
                ByteVector all;
                std::vector<std::string> expected;
                std::vector<Op> ops;
                for (std::uint64_t i = 0; i < 60; ++i) {
                    ByteVector frame;
                    const std::string number = std::to_string(i);
                    switch (draws.below(5)) {
                        case 0:
                            frame = sub_frame("g" + number);
                            expected.push_back("sub g" + number);
                            ops.push_back(Op::SUB);
                            break;
                        case 1:
                            frame = beat_frame(i, wire::HeartbeatState::LEAVE);
                            expected.push_back("heartbeat " + number);
                            ops.push_back(Op::HEARTBEAT);
                            break;
                        case 2:
                            frame = beat_frame(i, wire::HeartbeatState::ACTIVE);
                            expected.push_back("heartbeat " + number);
                            ops.push_back(Op::HEARTBEAT);
                            break;
                        case 3:
                            frame = ack_frame(i);
                            expected.push_back("ack " + number);
                            ops.push_back(Op::ACK);
                            break;
                        default: {
                            wire::Nack nack;
                            nack.seq = Sequence(i);
                            frame = frame_of(nack);
                            expected.push_back("nack " + number);
                            ops.push_back(Op::NACK);
                        }
                    }
                    all.insert(all.end(), frame.begin(), frame.end());
                }
                c.must_send(fiber, all);
                for (const Op op : ops)
                    EXPECT_EQ(c.read(fiber).op, op);
                EXPECT_EQ(delivery.calls, expected);
            });
        }

      private:
        std::uint64_t seed_;
    };
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
        OrderTest(seed).TestBody();
}

TEST(Session, R1_a_pub_behind_the_deletion_of_its_topic_finds_it_gone) {
    class DeleteTest : public SessionTest {
      public:
        explicit DeleteTest(std::uint64_t seed) : SessionTest(seed) {}
        void TestBody() override {
            client([this](Fiber& fiber) {
                RawClient c(fiber, clients);
                c.connect(fiber);
                c.must_send(fiber, joined({pub_frame(5, 1),
                                           declare_frame("orders", 0, wire::DECLARE_FLAG_DELETE),
                                           pub_frame(5, 2)}));
                EXPECT_EQ(c.read(fiber).code, ErrorCode::UNKNOWN_TOPIC);  // T4: not yet committed
                EXPECT_EQ(c.read(fiber).code, NO_ERROR);
                EXPECT_EQ(c.read(fiber).code, ErrorCode::UNKNOWN_TOPIC);
            });
        }
    };
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
        DeleteTest(seed).TestBody();
}

TEST_F(SessionTest, R1_nothing_starts_before_a_request_that_waits_for_its_turn) {
    delivery.subs_stalled = true;
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        c.must_send(
            fiber, joined({sub_frame("a"), ack_frame(1), beat_frame(7, wire::HeartbeatState::LEAVE),
                           ack_frame(2), pub_frame(5, 1)}));
        sleep(fiber, milliseconds(500));
        // What is behind the SUB goes on; what is behind the LEAVE waits for it.
        EXPECT_EQ(delivery.calls, (std::vector<std::string>{"sub a", "ack 1"}));
        EXPECT_EQ(appended(), 0u);
        delivery.subs_stalled = false;
        delivery.unstalled.notify_all();
        sleep(fiber, milliseconds(100));
        EXPECT_EQ(delivery.calls,
                  (std::vector<std::string>{"sub a", "ack 1", "heartbeat 7", "ack 2"}));
        EXPECT_EQ(appended(), 1u);
        log().flush();
        for (const Op op : {Op::SUB, Op::ACK, Op::HEARTBEAT, Op::ACK, Op::PUB})
            EXPECT_EQ(c.read(fiber).op, op);
    });
}

TEST_F(SessionTest, R1_reads_nothing_behind_a_request_whose_late_answer_closes) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        wire::Pull pull;
        pull.max_bytes = 2u << 20;
        // The writer stands in the middle of what was pushed when the frame behind comes.
        c.must_send(fiber,
                    joined({frame_of(pull), declare_frame("orders", 1, wire::DECLARE_FLAG_GROUP)}));
        sleep(fiber, milliseconds(200));
        c.must_send(fiber, pub_frame(5, 1));
        sleep(fiber, milliseconds(200));
        EXPECT_EQ(appended(), 0u);
        EXPECT_EQ(server->connection_count(), 1u);
    });
    EXPECT_TRUE(broker.alive());
}

TEST_F(SessionTest, answers_a_client_that_has_ended_its_half) {
    client([this](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        c.must_send(fiber, joined({pub_frame(5, 1), pub_frame(5, 2), frame_of(wire::Ping{})}));
        c.conn().shutdown_write();
        EXPECT_TRUE(c.is_silent_for(fiber, milliseconds(500)));
        EXPECT_EQ(appended(), 2u);
        log().flush();
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(1));
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(2));
        EXPECT_EQ(c.read(fiber).op, Op::PING);
        EXPECT_TRUE(c.is_closed(fiber));
    });
    world.run_for(seconds(2));
    EXPECT_EQ(server->connection_count(), 0u);
}

TEST_F(SessionTest, S3_a_stranger_that_asks_and_never_reads_is_gone_in_time_and_costs_little) {
    client([this](Fiber& fiber) {
        RawClient stranger(fiber, clients);
        ByteVector pings;
        for (int i = 0; i < 1000; ++i) {
            const ByteVector ping = frame_of(wire::Ping{});
            pings.insert(pings.end(), ping.begin(), ping.end());
        }
        std::size_t sent_bytes = 0;
        bool ended = false;
        clients.scheduler().spawn("test.flood", [&](Fiber& sender) {
            while (stranger.send(sender, pings).ok())
                sent_bytes += pings.size();
            ended = true;
        });
        sleep(fiber, wire::CONNECT_TIMEOUT - seconds(1));
        EXPECT_EQ(server->connection_count(), 1u);
        // One window each way, the outbox, the reader's buffer.
        EXPECT_LT(sent_bytes, 1u << 20);
        sleep(fiber, CLOSE_TIMEOUT + seconds(2));
        EXPECT_EQ(server->connection_count(), 0u);
        sleep(fiber, seconds(100));
        EXPECT_TRUE(ended);
    });
}

TEST(Session, S5_leaves_a_slow_peer_alone_while_it_takes_something) {
    class SteadyTest : public SessionTest {
      public:
        void TestBody() override {
            client([this](Fiber& fiber) {
                RawClient c(fiber, clients);
                c.connect(fiber);
                wire::Pull pull;
                pull.max_bytes = 2u << 20;
                c.must_send(fiber, frame_of(pull));
                ByteVector into(5 * 1000);
                for (int second = 0; second < 150; ++second) {
                    sleep(fiber, seconds(1));
                    ASSERT_TRUE(c.conn().read(fiber, into, NEVER).ok()) << second;
                    // Keepalive, and what a session answers stands behind the rest.
                    if (second % 20 == 0) c.must_send(fiber, frame_of(wire::Ping{}));
                }
                EXPECT_EQ(server->connection_count(), 1u);
                EXPECT_FALSE(events.saw("slow_consumer"));
            });
        }
    };
    SteadyTest().TestBody();
}

TEST_F(SessionTest, drains_on_stop_so_that_what_was_read_is_answered) {
    bool drained = false;
    client([this, &drained](Fiber& fiber) {
        RawClient c(fiber, clients);
        c.connect(fiber);
        RawClient idle(fiber, clients);
        idle.connect(fiber);
        c.must_send(fiber, pub_frame(5, 1));
        sleep(fiber, milliseconds(50));
        start([this, &drained](Fiber& own) {
            server->stop_accepting();
            server->drain(own);
            drained = true;
        });
        EXPECT_TRUE(idle.is_closed(fiber));
        EXPECT_TRUE(c.is_silent_for(fiber, milliseconds(100)));
        EXPECT_FALSE(drained);
        log().flush();
        EXPECT_EQ(c.read(fiber).pub.sequence, Sequence(1));
        EXPECT_TRUE(c.is_closed(fiber));
    });
    world.run_for(seconds(2));
    EXPECT_TRUE(drained);
    EXPECT_EQ(server->connection_count(), 0u);
}

TEST_F(SessionTest, lives_on_among_clients_that_send_random_bytes) {
    client([this](Fiber& fiber) {
        RawClient good(fiber, clients);
        good.connect(fiber);
        Rng draws(7);
        for (int round = 0; round < 60; ++round) {
            RawClient bad(fiber, clients);
            if (draws.one_in(2)) bad.connect(fiber);
            ByteVector bytes;
            const std::uint64_t size = 1 + draws.below(3000);
            for (std::uint64_t i = 0; i < size; ++i)
                bytes.push_back(static_cast<std::byte>(draws.below(256)));
            if (draws.one_in(2)) {  // a plausible length and op in front
                store_be(bytes.data(), static_cast<std::uint32_t>(1 + draws.below(64)));
                if (bytes.size() > 4) bytes[4] = static_cast<std::byte>(draws.below(17));
            }
            const Result<void> sent = bad.send(fiber, bytes);
            EXPECT_TRUE(sent.ok() || sent.is(ErrorCode::CONNECTION_CLOSED));
            bad.conn().shutdown_write();
            while (true) {
                const Result<Answer> answer = bad.try_read(fiber);
                if (!answer.ok()) {
                    EXPECT_TRUE(answer.is(ErrorCode::CONNECTION_CLOSED))
                        << answer.error().to_string();
                    break;
                }
                if (answer->code != NO_ERROR) {
                    EXPECT_NE(find_error(static_cast<std::uint16_t>(answer->code)), nullptr);
                }
            }
            ASSERT_EQ(good.ask(fiber, frame_of(wire::Ping{})).op, Op::PING);
        }
    });
    EXPECT_EQ(appended(), 0u);
    world.run_for(seconds(60));
    EXPECT_EQ(server->connection_count(), 0u);
    EXPECT_EQ(frame_budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace mortar
