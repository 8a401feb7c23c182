// The whole broker in a simulated world: recovery, service, an orderly end, and what a start must
// refuse.
#include "core/broker.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>

#include "core/fiber/deadline.h"
#include "core/log/segment.h"
#include "core/log/whole_file.h"
#include "core/meta/metadata_log.h"
#include "core/produce/partition.h"
#include "core/replica/promise.h"
#include "core/wire/codec.h"
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
    // SUB of a new group, CONTROL_ACK, one PULL: how many MSG came. topic_id has one partition.
    int consume(Fiber& fiber, wire::FrameReader& reader, Conn& conn, TopicId topic_id) {
        const auto send = [&](const auto& message) {
            ByteVector frame;
            wire::encode(frame, message);
            const ByteSpan parts[] = {frame};
            EXPECT_TRUE(conn.write(fiber, parts, NEVER).ok());
        };
        const auto read = [&] {
            return reader
                .read(fiber, {wire::MAX_FRAME_LEN, deadline_after(node.clock(), seconds(5))})
                .value();
        };
        wire::Sub sub;
        sub.group = "group";
        sub.topic_id = topic_id;
        send(sub);
        wire::Pull pull;
        wire::ControlAck installed;
        for (int frames = 0; frames < 2; ++frames) {
            const wire::FrameView frame = read();
            if (wire::Op{frame.op} == wire::Op::NOTICE) {
                const wire::Notice notice = wire::decode_notice(frame.payload).value();
                installed = {notice.notice_id,        notice.kind,
                             notice.group_id,         notice.membership_epoch,
                             notice.assignment_epoch, notice.ownership_epoch,
                             wire::ControlResult::OK};
                continue;
            }
            const wire::SubResult joined =
                wire::decode_sub_result(wire::decode_ok(frame.payload).value().result).value();
            pull.subscription_id = joined.subscription_id;
            pull.member_id = joined.member_id;
            pull.membership_epoch = joined.membership_epoch;
            pull.assignment_epoch = joined.assignment_epoch;
        }
        EXPECT_EQ(ask(fiber, reader, conn, installed).code, NO_ERROR);
        pull.wait_ms = 500;
        send(pull);
        int count = 0;
        while (wire::Op{read().op} == wire::Op::MSG)
            ++count;
        return count;
    }
    // Changes a byte of the value of a record, as it stands in the first segment of the partition.
    void damage(const std::string& folder, std::uint64_t sequence) {
        const std::string path = folder + "/" + segment_file_name(Sequence(1));
        const std::optional<ByteVector> bytes = node.disk().cached_read(path);
        ASSERT_TRUE(bytes.has_value());
        for (std::size_t at = SEGMENT_HEAD_BYTES; at + RECORD_FIXED_BYTES <= bytes->size(); ++at) {
            const Result<Record> record = parse_record(ByteSpan(*bytes).subspan(at));
            if (!record.ok() || record->sequence != Sequence(sequence)) continue;
            ASSERT_TRUE(node.disk().flip_bit(path, at + RECORD_FIXED_BYTES, 3));
            return;
        }
        FAIL() << "no record " << sequence;
    }
    // Zeros from a record on, and no checkpoint: as if the rest had never been written.
    void cut(const std::string& folder, std::uint64_t sequence) {
        const std::string path = folder + "/" + segment_file_name(Sequence(1));
        const std::optional<ByteVector> bytes = node.disk().cached_read(path);
        ASSERT_TRUE(bytes.has_value());
        std::optional<std::uint64_t> from;
        for (std::size_t at = SEGMENT_HEAD_BYTES; at + RECORD_FIXED_BYTES <= bytes->size(); ++at) {
            const Result<Record> record = parse_record(ByteSpan(*bytes).subspan(at));
            if (record.ok() && record->sequence == Sequence(sequence)) from = at;
        }
        ASSERT_TRUE(from.has_value());
        bool done = false;
        node.scheduler().spawn("test.cut", [&](Fiber& fiber) {
            const std::unique_ptr<File> file =
                node.disk().open(fiber, path, OpenMode::READ_WRITE).value();
            const ByteVector zeros(bytes->size() - *from);
            const ByteSpan parts[] = {zeros};
            EXPECT_TRUE(file->write_at(fiber, *from, parts).ok());
            (void)node.disk().remove(fiber, folder + "/checkpoint.mqc");
            done = true;
        });
        world.run_for(seconds(1));
        ASSERT_TRUE(done);
    }
    // Two topics of one partition, `count` records in the first of them.
    void fill(std::uint64_t count) {
        client([this, count](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
            for (const char* name : {"orders", "other"})
                ask(fiber, reader, conn, wire::Declare{name, 1, 0});
            for (std::uint64_t seq = 1; seq <= count; ++seq)
                publish(fiber, reader, conn, TopicId(1), seq);
        });
    }
    void expect_only_the_first_topic_is_quarantined(std::uint64_t next_seq) {
        client([this, next_seq](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
            EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), next_seq).code,
                      ErrorCode::DIVERGENT_COMMITTED);
            EXPECT_EQ(publish(fiber, reader, conn, TopicId(3), 1).code, NO_ERROR);
        });
        EXPECT_TRUE(broker->topic("orders")->is_quarantined);
        EXPECT_FALSE(broker->topic("other")->is_quarantined);
        EXPECT_EQ(broker->node_status().health, HealthStatus::SOFT);
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
    // One after the other, each was written and synced alone; the retry needed neither.
    EXPECT_EQ(topic->partitions[0].write_count, 3u);
    EXPECT_EQ(topic->partitions[0].sync_count, 3u);
    EXPECT_EQ(topic->partitions[1].sync_count, 0u);
    EXPECT_EQ(broker->topics(TopicId(0), 10).size(), 2u);
    EXPECT_EQ(broker->topics(TopicId(1), 10).size(), 1u);
    stop();
    EXPECT_TRUE(ended->ok()) << ended->error().to_string();
    EXPECT_TRUE(saw("stopped"));
    EXPECT_EQ(node.scheduler().fiber_count(), 0u) << node.scheduler().fiber_names().front();
}

TEST_F(BrokerTest, shows_a_damaged_ledger_in_health_and_stats) {
    start();
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        ask(fiber, reader, conn, wire::Declare{"orders", 1, 0});
        wire::Sub sub;
        sub.group = "billing";
        sub.topic_id = TopicId(1);
        sub.partition = ANY_PARTITION;
        EXPECT_EQ(ask(fiber, reader, conn, sub).code, NO_ERROR);
    });
    const GroupId group_id = broker->group("billing").value().group_id;
    EXPECT_EQ(broker->node_status().health, HealthStatus::HEALTHY);
    stop();
    kill_and_restart();
    const std::string folder = "groups/" + std::to_string(group_id.value) + "/0";
    node.scheduler().spawn("test.damage", [&](Fiber& fiber) {
        ASSERT_TRUE(make_folders_durably(fiber, node.disk(), folder).ok());
        const auto file = node.disk().open(fiber, folder + "/cursor.mqc", OpenMode::CREATE);
        ASSERT_TRUE(file.ok());
        const ByteSpan rubbish = as_byte_span(std::string_view("MMCU\x01 no"));
        ASSERT_TRUE((*file)->write_at(fiber, 0, std::span(&rubbish, 1)).ok());
        ASSERT_TRUE((*file)->truncate(fiber, rubbish.size()).ok());
    });
    world.run_for(seconds(1));
    start();
    ASSERT_TRUE(broker->is_ready());
    EXPECT_EQ(broker->node_status().health, HealthStatus::SOFT);
    EXPECT_EQ(broker->node_status().unserved_count, 1u);
    const GroupStatus group = broker->group("billing").value();
    ASSERT_EQ(group.partitions.size(), 1u);
    EXPECT_FALSE(group.partitions[0].is_served);
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
        stored = load_promise(fiber, node.disk()).value()->promised_epoch;
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
    in_fiber(
        [this](Fiber& fiber) { EXPECT_TRUE(node.disk().make_folders(fiber, "groups/9/0").ok()); });
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

// covers COR-04: what the log claims behind the damage is never flushed again; the other partitions do not wait for it.
TEST_F(BrokerTest, serves_the_sound_partitions_beside_one_that_is_damaged_below_its_checkpoint) {
    start();
    fill(1);
    stop();
    broker.reset();
    damage("topics/1/0", 1);
    start();
    ASSERT_TRUE(broker->is_ready());
    expect_only_the_first_topic_is_quarantined(2);
    stop();
    EXPECT_TRUE(ended->ok());
}

// covers COR-04
TEST_F(BrokerTest, quarantines_a_partition_when_a_read_meets_a_damaged_record) {
    start();
    fill(5);
    stop();
    broker.reset();
    damage("topics/1/0", 3);
    start();
    ASSERT_TRUE(broker->is_ready());
    EXPECT_EQ(broker->node_status().health, HealthStatus::HEALTHY);  // nobody has read it yet
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(consume(fiber, reader, conn, TopicId(1)), 2);
    });
    expect_only_the_first_topic_is_quarantined(6);
    EXPECT_TRUE(saw("topics/1/0/00000000000000000001.seg: record 3 at"));
    EXPECT_TRUE(saw("partition_quarantined"));
    // A later start may believe its checkpoint, but not for longer than until somebody reads.
    stop();
    EXPECT_TRUE(ended->ok());
}

// covers COR-04
TEST_F(BrokerTest, starts_with_a_quarantined_partition_when_its_windows_cannot_be_rebuilt) {
    start();
    fill(5);
    stop();
    broker.reset();
    damage("topics/1/0", 3);
    node.scheduler().spawn("test.remove", [this](Fiber& fiber) {
        EXPECT_TRUE(node.disk().remove(fiber, "topics/1/0/producers.mqp").ok());
    });
    world.run_for(seconds(1));
    start();
    ASSERT_TRUE(broker->is_ready());
    expect_only_the_first_topic_is_quarantined(6);
    EXPECT_TRUE(saw("partition_quarantined"));
}

// Its epochs would come again.
TEST_F(BrokerTest, refuses_a_data_dir_that_lost_its_promise) {
    start();
    fill(1);
    stop();
    broker.reset();
    node.scheduler().spawn("test.remove", [this](Fiber& fiber) {
        EXPECT_TRUE(node.disk().remove(fiber, "replica/state").ok());
    });
    world.run_for(seconds(1));
    start();
    ASSERT_TRUE(ended.has_value());
    EXPECT_TRUE(ended->is(ErrorCode::DAMAGED));
    EXPECT_NE(ended->error().detail.find("replica/state"), std::string::npos);
    EXPECT_NE(ended->error().detail.find("backup"), std::string::npos);
}

// A log whose end is gone looks like one that a crash tore. What a group has on record says that it is not.
TEST_F(BrokerTest, quarantines_a_partition_whose_log_ends_before_what_a_group_was_sent) {
    start();
    fill(5);
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(consume(fiber, reader, conn, TopicId(1)), 5);
    });
    kill_and_restart();
    cut("topics/1/0", 4);
    start();
    ASSERT_TRUE(broker->is_ready());
    expect_only_the_first_topic_is_quarantined(6);
    EXPECT_TRUE(saw("partition_quarantined"));
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(consume(fiber, reader, conn, TopicId(1)), 0);
    });
    // Again, and after an orderly end.
    stop();
    start();
    ASSERT_TRUE(broker->is_ready());
    expect_only_the_first_topic_is_quarantined(6);
}

// The same by the producer windows, which a checkpoint leaves behind.
TEST_F(BrokerTest, quarantines_a_partition_whose_log_ends_before_its_producer_windows) {
    start();
    fill(5);
    stop();
    broker.reset();
    cut("topics/1/0", 4);
    start();
    ASSERT_TRUE(broker->is_ready());
    expect_only_the_first_topic_is_quarantined(6);
}

// covers COR-04
TEST_F(BrokerTest, starts_without_a_partition_that_cannot_be_read_and_serves_it_when_it_can) {
    start();
    fill(5);
    stop();
    broker.reset();
    node.disk().faults().fails = [](const sim::DiskOperation& operation) {
        return operation.path.starts_with("topics/1/0");
    };
    start();
    ASSERT_TRUE(broker->is_ready());
    EXPECT_EQ(broker->node_status().health, HealthStatus::SOFT);
    EXPECT_TRUE(saw("partition_not_opened"));
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), 6).code, ErrorCode::QUORUM_LOST);
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(3), 1).code, NO_ERROR);
        // Where the log ends is not known, so nobody can begin there.
        wire::Sub latest;
        latest.group = "latest";
        latest.topic_id = TopicId(1);
        latest.start_policy = wire::StartPolicy::LATEST;
        EXPECT_EQ(ask(fiber, reader, conn, latest).code, ErrorCode::QUORUM_LOST);
    });
    node.disk().faults().fails = nullptr;
    world.run_for(REOPEN_BACKOFF_MAX + seconds(1));
    EXPECT_EQ(broker->node_status().health, HealthStatus::HEALTHY);
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), 5).pub.sequence, Sequence(5));
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), 6).pub.sequence, Sequence(6));
        EXPECT_EQ(consume(fiber, reader, conn, TopicId(1)), 6);
    });
}

// Contract E3, T4: what a deletion could not finish is finished by the next start; nothing else is touched.
TEST_F(BrokerTest, removes_what_is_left_of_deleted_topics_and_leaves_what_it_does_not_know) {
    start();
    fill(3);
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(consume(fiber, reader, conn, TopicId(1)), 3);
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(3), 1).code, NO_ERROR);
    });
    world.run_for(seconds(1));
    ASSERT_TRUE(node.disk().cached_names("groups/1/0").size() > 0);
    node.disk().faults().fails = [](const sim::DiskOperation& operation) {
        return operation.op == sim::DiskOp::REMOVE;
    };
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(
            ask(fiber, reader, conn, wire::Declare{"orders", 0, wire::DECLARE_FLAG_DELETE}).code,
            NO_ERROR);
    });
    EXPECT_FALSE(node.disk().cached_names("topics/1").empty());
    kill_and_restart();
    node.disk().faults().fails = nullptr;
    node.scheduler().spawn("test.strange", [this](Fiber& fiber) {
        for (const char* folder : {"topics/99/0", "topics/notes", "groups/7", "backup"})
            EXPECT_TRUE(node.disk().make_folders(fiber, folder).ok());
    });
    world.run_for(seconds(1));
    lines.clear();
    start();
    ASSERT_TRUE(broker->is_ready());
    EXPECT_TRUE(node.disk().cached_names("topics/1/0").empty());
    EXPECT_TRUE(node.disk().cached_names("groups/1/0").empty());
    EXPECT_EQ(node.disk().cached_names("topics"), (std::vector<std::string>{"3", "99", "notes"}));
    EXPECT_EQ(node.disk().cached_names("groups"), (std::vector<std::string>{"7"}));
    for (const char* path : {"topics/99", "topics/notes", "groups/7", "backup"})
        EXPECT_TRUE(saw(std::string("path=") + path)) << path;
    EXPECT_FALSE(saw("path=identity"));
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(3), 1).pub.result_flags,
                  wire::RESULT_FLAG_DEDUPLICATED);
    });
}

// Design 3, R2: metadata that a disk error closed comes back, and says meanwhile that it is closed.
TEST_F(BrokerTest, is_read_only_while_the_metadata_log_is_closed) {
    start();
    fill(1);
    node.disk().faults().fails = [](const sim::DiskOperation& operation) {
        return operation.path.starts_with("metadata/") && operation.op == sim::DiskOp::SYNC_DATA;
    };
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(ask(fiber, reader, conn, wire::Declare{"new", 1, 0}).code,
                  ErrorCode::MUTATION_FENCED);
        EXPECT_EQ(ask(fiber, reader, conn, wire::Declare{"new", 1, 0}).code,
                  ErrorCode::METADATA_READ_ONLY);
        EXPECT_EQ(broker->node_status().health, HealthStatus::READ_ONLY);
        EXPECT_EQ(publish(fiber, reader, conn, TopicId(1), 2).code, NO_ERROR);
    });
    node.disk().faults().fails = nullptr;
    world.run_for(METADATA_REOPEN_BACKOFF_MAX + seconds(1));
    EXPECT_EQ(broker->node_status().health, HealthStatus::HEALTHY);
    client([this](Fiber& fiber, wire::FrameReader& reader, Conn& conn) {
        EXPECT_EQ(ask(fiber, reader, conn, wire::Declare{"new", 1, 0}).code, NO_ERROR);
    });
    stop();
    EXPECT_TRUE(ended->ok());
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
