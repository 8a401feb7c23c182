// The whole broker in a simulated world: recovery, service, an orderly end, and what a start must
// refuse.
#include "core/broker.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>

#include "core/fiber/deadline.h"
#include "core/replica/promise.h"
#include "core/wire/frame.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/produce/fakes.h"

namespace mortar {
namespace {

using testing::Answer;
using testing::NO_ERROR;
using wire::Op;

class BrokerTest : public ::testing::Test {
  protected:
    BrokerTest() {
        world.network().set_speed({});
        world.set_log_sink([this](const sim::SimNode&, LogLevel, std::string_view line) {
            lines.emplace_back(line);
        });
    }
    ~BrokerTest() override { node.kill(); }

    static BrokerOptions options() {
        BrokerOptions made;
        made.config = dev_config();
        made.config.listen_client = "127.0.0.1:7188";
        made.is_dev = true;
        return made;
    }
    // Starts a broker; its end is in `ended`.
    void start(BrokerOptions with = options()) {
        ended.reset();
        broker = std::make_unique<Broker>(node.env(), std::move(with));
        node.scheduler().spawn("test.broker", [this](Fiber& fiber) { ended = broker->run(fiber); });
        world.run_for(seconds(1));
    }
    void stop() {
        broker->stop();
        world.run_for(seconds(10));
        ASSERT_TRUE(ended.has_value());
    }
    void kill_and_restart() {
        node.kill();
        broker.reset();
        node.restart();
    }
    // A client on the broker's own machine.
    void client(std::function<void(Fiber&, wire::FrameReader&, Conn&)> body) {
        bool done = false;
        node.scheduler().spawn("test.client", [this, &done, body = std::move(body)](Fiber& fiber) {
            const std::unique_ptr<Conn> conn =
                node.net().connect(fiber, "127.0.0.1:7188", NEVER).value();
            wire::FrameBudget budget;
            wire::FrameReader reader(*conn, node.clock(), budget);
            EXPECT_EQ(ask(fiber, reader, *conn, wire::Connect{}).code, NO_ERROR);
            body(fiber, reader, *conn);
            done = true;
        });
        world.run_for(seconds(10));
        ASSERT_TRUE(done);
    }
    Answer ask(Fiber& fiber, wire::FrameReader& reader, Conn& conn, const auto& message) {
        ByteVector frame;
        wire::encode(frame, message);
        const ByteSpan parts[] = {frame};
        EXPECT_TRUE(conn.write(fiber, parts, NEVER).ok());
        const Result<wire::FrameView> answer =
            reader.read(fiber, {wire::MAX_FRAME_LEN, deadline_after(node.clock(), seconds(5))});
        EXPECT_TRUE(answer.ok());
        return answer.ok() ? testing::decode_answer(answer->op, answer->payload) : Answer{};
    }
    Answer publish(Fiber& fiber, wire::FrameReader& reader, Conn& conn, TopicId topic_id,
                   std::uint64_t seq) {
        wire::Pub pub;
        pub.topic_id = topic_id;
        pub.producer_id = ProducerId(77);
        pub.producer_seq = ProducerSeq(seq);
        pub.value = as_byte_span("value");
        return ask(fiber, reader, conn, pub);
    }
    bool saw(std::string_view word) const {
        for (const std::string& line : lines) {
            if (line.find(word) != std::string::npos) return true;
        }
        return false;
    }

    sim::HeapStackPool stacks;
    sim::SimWorld world{3, stacks};
    sim::SimNode& node = world.add_node("broker");
    std::vector<std::string> lines;
    std::unique_ptr<Broker> broker;
    std::optional<Result<void>> ended;
};

TEST_F(BrokerTest, serves_publish_and_ends_in_good_order) {
    start();
    ASSERT_TRUE(broker->is_ready());
    EXPECT_TRUE(saw("ready"));
    EXPECT_EQ(broker->node_status().health, HealthStatus::HEALTHY);
    EXPECT_EQ(broker->node_status().leader_epoch, LeaderEpoch(1));
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(ask(fiber, reader, conn, wire::Declare{"orders", 2, 0}).declare.topic_id,
                  TopicId(1));
        for (std::uint64_t seq = 1; seq <= 3; ++seq) {
            EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), seq).pub.sequence, Sequence(seq));
        }
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), 2).pub.result_flags,
                  wire::RESULT_FLAG_DEDUPLICATED);
    });
    const std::optional<TopicStatus> topic = broker->topic("orders");
    ASSERT_TRUE(topic.has_value());
    ASSERT_EQ(topic->partitions.size(), 2u);
    EXPECT_EQ(topic->partitions[0].commit_seq, Sequence(3));
    EXPECT_EQ(topic->partitions[0].depth, 3u);
    EXPECT_EQ(broker->topics(TopicId(0), 10).size(), 2u);
    EXPECT_EQ(broker->topics(TopicId(1), 10).size(), 1u);
    stop();
    EXPECT_TRUE(ended->ok()) << ended->error().to_string();
    EXPECT_TRUE(saw("stopped"));
    EXPECT_EQ(node.scheduler().fiber_count(), 0u) << node.scheduler().fiber_names().front();
}

TEST_F(BrokerTest, remembers_everything_over_kill_and_takes_a_new_epoch_each_start) {
    for (std::uint64_t life = 1; life <= 4; ++life) {
        start();
        ASSERT_TRUE(broker->is_ready()) << lines.back();
        EXPECT_EQ(broker->node_status().leader_epoch, LeaderEpoch(life));
        client([this, life](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
            const Answer declared = ask(fiber, reader, conn, wire::Declare{"orders", 1, 0});
            EXPECT_EQ(declared.declare.topic_id, TopicId(1));
            if (life > 1) {  // a retry of what the last life acknowledged
                const Answer retry = publish(fiber, reader, conn, TopicId(1), life - 1);
                EXPECT_EQ(retry.pub.sequence, Sequence(life - 1));
                EXPECT_EQ(retry.pub.result_flags, wire::RESULT_FLAG_DEDUPLICATED);
            }
            const Answer fresh = publish(fiber, reader, conn, TopicId(1), life);
            EXPECT_EQ(fresh.pub.sequence, Sequence(life));
            EXPECT_EQ(fresh.pub.leader_epoch, LeaderEpoch(life));
        });
        if (life % 2 == 0) {
            stop();
            EXPECT_TRUE(ended->ok());
        }
        kill_and_restart();
    }
}

TEST_F(BrokerTest, refuses_a_busy_port_and_changes_nothing_on_disk) {
    std::unique_ptr<Listener> other = node.net().listen("127.0.0.1:7188").value();
    start();
    ASSERT_TRUE(ended.has_value());
    EXPECT_TRUE(ended->is(ErrorCode::ADDRESS_IN_USE));
    bool empty = false;
    node.scheduler().spawn("test.list", [this, &empty](Fiber& fiber) {
        const auto entries = node.disk().list(fiber, "");
        empty = !entries.ok() || entries->empty();
    });
    world.run_for(seconds(1));
    EXPECT_TRUE(empty);
    EXPECT_EQ(node.scheduler().fiber_count(), 0u);
    other.reset();
}

TEST_F(BrokerTest, refuses_a_locked_folder) {
    std::unique_ptr<DiskLock> held;
    node.scheduler().spawn("test.lock", [this, &held](Fiber& fiber) {
        held = node.disk().lock(fiber, "LOCK").value();
    });
    world.run_for(seconds(1));
    start();
    ASSERT_TRUE(ended.has_value());
    EXPECT_TRUE(ended->is(ErrorCode::LOCKED));
}

// Contract F3: and the epoch is not taken, so nothing on disk differs.
TEST_F(BrokerTest, refuses_a_segment_of_a_newer_version_by_its_path) {
    start();
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        ask(fiber, reader, conn, wire::Declare{"orders", 1, 0});
        publish(fiber, reader, conn, TopicId(1), 1);
    });
    stop();
    broker.reset();
    node.scheduler().spawn("test.patch", [this](Fiber& fiber) {
        const auto entries = node.disk().list(fiber, "topics/1/0").value();
        for (const DirEntry& entry : entries) {
            if (!entry.name.ends_with(".seg")) continue;
            const auto file =
                node.disk().open(fiber, "topics/1/0/" + entry.name, OpenMode::READ_WRITE).value();
            const std::byte version{2};
            const ByteSpan parts[] = {{&version, 1}};
            EXPECT_TRUE(file->write_at(fiber, 4, parts).ok());
        }
    });
    world.run_for(seconds(1));
    for (int attempt = 0; attempt < 2; ++attempt) {
        start();
        ASSERT_TRUE(ended.has_value());
        ASSERT_TRUE(ended->is(ErrorCode::UNSUPPORTED_FORMAT)) << ended->error().to_string();
        EXPECT_NE(ended->error().detail.find("topics/1/0/"), std::string::npos);
        broker.reset();
    }
    std::optional<LeaderEpoch> stored;
    node.scheduler().spawn("test.epoch", [this, &stored](Fiber& fiber) {
        stored = load_promise(fiber, node.disk()).value()->leader_epoch;
    });
    world.run_for(seconds(1));
    EXPECT_EQ(stored, LeaderEpoch(1));
}

// Contract 7: what stands in the last file is found before the first one is repaired.
TEST_F(BrokerTest, refuses_any_file_of_a_newer_version_before_it_changes_one) {
    start();
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        for (const char* name : {"first", "second"})
            ask(fiber, reader, conn, wire::Declare{name, 1, 0});
        publish(fiber, reader, conn, TopicId(1), 1);
        publish(fiber, reader, conn, TopicId(3), 1);
    });
    kill_and_restart();  // torn tails, which a start would cut
    const auto in_fiber = [this](std::function<void(Fiber&)> body) {
        bool done = false;
        node.scheduler().spawn("test.files", [&done, &body](Fiber& fiber) {
            body(fiber);
            done = true;
        });
        world.run_for(seconds(1));
        ASSERT_TRUE(done);
    };
    const auto set_version = [&](const std::string& path, std::uint8_t version) {
        in_fiber([&](Fiber& fiber) {
            const auto file = node.disk().open(fiber, path, OpenMode::CREATE).value();
            const bool is_new = file->size(fiber).value() == 0;
            const std::string head = path.ends_with(".mql") ? "MMLQ" : "MMCU";
            const ByteSpan magic[] = {as_byte_span(head)};
            EXPECT_TRUE(!is_new || file->write_at(fiber, 0, magic).ok());
            const std::array bytes = {std::byte{version}, std::byte{1}};
            const ByteSpan parts[] = {bytes};
            EXPECT_TRUE(file->write_at(fiber, 4, parts).ok());
        });
    };
    const auto sizes = [&] {
        std::map<std::string, std::uint64_t> found;
        in_fiber([&](Fiber& fiber) {
            for (const char* folder : {"topics/1/0", "topics/3/0", "metadata", "replica"}) {
                const auto entries = node.disk().list(fiber, folder).value();
                for (const DirEntry& entry : entries)
                    found[std::string(folder) + "/" + entry.name] = entry.size_bytes;
            }
        });
        return found;
    };
    in_fiber([this](Fiber& fiber) {
        EXPECT_TRUE(node.disk().make_folders(fiber, "groups/9/0").ok());
    });
    const auto before = sizes();
    for (const char* path : {"topics/3/0/00000000000000000001.seg", "metadata/log-1.mml",
                             "groups/9/0/delivery.mql", "groups/9/0/cursor.mqc"}) {
        set_version(path, 2);
        start();
        ASSERT_TRUE(ended.has_value()) << path;
        EXPECT_TRUE(ended->is(ErrorCode::UNSUPPORTED_FORMAT)) << ended->error().to_string();
        EXPECT_EQ(ended->error().detail.rfind(std::string(path) + ": version 2", 0), 0u);
        EXPECT_EQ(sizes(), before);
        broker.reset();
        set_version(path, 1);
    }
    start();
    EXPECT_TRUE(broker->is_ready());
}

TEST_F(BrokerTest, stop_answers_the_pubs_that_were_read) {
    start();
    bool answered = false;
    node.scheduler().spawn("test.client", [this, &answered](Fiber& fiber) {
        const std::unique_ptr<Conn> conn =
            node.net().connect(fiber, "127.0.0.1:7188", NEVER).value();
        wire::FrameBudget budget;
        wire::FrameReader reader(*conn, node.clock(), budget);
        ask(fiber, reader, *conn, wire::Connect{});
        ask(fiber, reader, *conn, wire::Declare{"orders", 1, 0});
        ByteVector frames;
        for (std::uint64_t seq = 1; seq <= 50; ++seq) {
            wire::Pub pub;
            pub.topic_id = TopicId(1);
            pub.producer_id = ProducerId(1);
            pub.producer_seq = ProducerSeq(seq);
            wire::encode(frames, pub);
        }
        const ByteSpan parts[] = {frames};
        EXPECT_TRUE(conn->write(fiber, parts, NEVER).ok());
        broker->stop();
        std::uint64_t ok_count = 0;
        while (true) {
            const Result<wire::FrameView> frame = reader.read(fiber, {wire::MAX_FRAME_LEN, NEVER});
            if (!frame.ok()) break;
            EXPECT_EQ(testing::decode_answer(frame->op, frame->payload).pub.sequence,
                      Sequence(++ok_count));
        }
        answered = true;
    });
    world.run_for(seconds(20));
    EXPECT_TRUE(answered);
    ASSERT_TRUE(ended.has_value());
    EXPECT_TRUE(ended->ok());
}

}  // namespace
}  // namespace mortar
