// Delivery as a session sees it: real metadata log, partition logs and ledgers on a simulated node.
#include "core/deliver/delivery.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <deque>
#include <optional>
#include <set>

#include "core/deliver/delivery_core.h"
#include "core/wire/codec.h"
#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/meta/open_alone.h"
#include "tests/unit/replica/sole_node.h"

namespace mortar {
namespace {
using sim::HeapStackPool;
using sim::PowerImage;
using sim::SimNode;
using sim::SimWorld;

// What a client got, one frame each, in order.
struct Got {
    wire::Op op;
    ByteVector payload;
};

class Link {
  public:
    explicit Link(Delivery& delivery, Scheduler& scheduler)
        : delivery_(delivery), scheduler_(scheduler) {}
    ~Link() {
        if (!is_closed_) queue_->detach();
    }

    void close() {
        delivery_.on_session_closed(session_);
        queue_->detach();
        is_closed_ = true;
    }
    void sub(const std::string& group, TopicId topic_id,
             wire::StartPolicy policy = wire::StartPolicy::EARLIEST, std::uint16_t credit_count = 0,
             std::uint32_t credit_bytes = 0, PartitionIndex partition = ANY_PARTITION) {
        delivery_.on_other_frame(session_);
        auto reply = std::make_shared<Reply>(queue_->open(wire::Op::SUB, 1));
        last_sub_ = reply->slot();
        scheduler_.spawn("test.sub", [=, this](Fiber& fiber) {
            wire::Sub sub;
            sub.group = group;
            sub.topic_id = topic_id;
            sub.start_policy = policy;
            sub.credit_count = credit_count;
            sub.credit_bytes = credit_bytes;
            sub.partition = partition;
            delivery_.handle_sub(fiber, session_, sub, std::move(*reply));
        });
    }
    // What the session does when the SUB takes too long.
    void expire_sub() {
        queue_->expire(last_sub_, wire::Op::SUB, make_error(ErrorCode::READ_ONLY_DEGRADED));
    }
    void heartbeat(const wire::Heartbeat& heartbeat) {
        delivery_.on_other_frame(session_);
        auto reply = std::make_shared<Reply>(queue_->open(wire::Op::HEARTBEAT, 1));
        scheduler_.spawn("test.heartbeat", [=, this](Fiber& fiber) {
            delivery_.handle_heartbeat(fiber, session_, heartbeat, std::move(*reply));
        });
    }
    void pull(const wire::Pull& pull) {
        delivery_.handle_pull(session_, pull, queue_->open(wire::Op::PULL, 1));
    }
    void ack(const wire::Ack& ack) {
        delivery_.on_other_frame(session_);
        delivery_.handle_ack(session_, ack, queue_->open(wire::Op::ACK, 1));
    }
    void nack(const wire::Nack& nack) {
        delivery_.on_other_frame(session_);
        delivery_.handle_nack(session_, nack, queue_->open(wire::Op::NACK, 1));
    }
    void control_ack(const wire::ControlAck& ack) {
        delivery_.on_other_frame(session_);
        delivery_.handle_control_ack(session_, ack, queue_->open(wire::Op::CONTROL_ACK, 1));
    }
    void credit(const wire::Credit& credit) {
        delivery_.on_other_frame(session_);
        delivery_.handle_credit(session_, credit, queue_->open(wire::Op::CREDIT, 1));
    }

    // Takes what was pushed so far into got.
    void read() {
        if (is_closed_ || is_stuck) return;
        for (const Outbox::Part& part : outbox_.take()) {
            const ByteSpan view = part.view();
            stream_.insert(stream_.end(), view.begin(), view.end());
        }
        outbox_.done_writing(outbox_.size_bytes());
        while (stream_.size() >= wire::FRAME_HEAD_BYTES) {
            const std::size_t size = wire::LENGTH_BYTES + load_be<std::uint32_t>(stream_.data());
            if (stream_.size() < size) return;
            got.push_back({static_cast<wire::Op>(stream_[4]),
                           ByteVector(stream_.begin() + 5,
                                      stream_.begin() + static_cast<std::ptrdiff_t>(size))});
            stream_.erase(stream_.begin(), stream_.begin() + static_cast<std::ptrdiff_t>(size));
        }
    }
    Outbox& outbox() { return outbox_; }

    std::deque<Got> got;
    bool is_stuck = false;  // the client does not read

  private:
    Delivery& delivery_;
    Scheduler& scheduler_;
    Outbox outbox_;
    std::shared_ptr<ReplyQueue> queue_ = std::make_shared<ReplyQueue>(outbox_);
    Session session_{outbox_};
    ByteVector stream_;
    std::uint64_t last_sub_ = 0;
    bool is_closed_ = false;
};

constexpr TopicId TOPIC{1};

class Bench {
  public:
    explicit Bench(std::uint16_t partition_count = 1, std::uint64_t seed = 1)
        : world_(seed, stacks_), node_(world_.add_node("n")), env_(node_.env()) {
        options.delivery_max_attempts = 5;
        start();
        run([&](Fiber& fiber) {
            ASSERT_TRUE(
                metadata_->propose(fiber, MutationBody(TopicCreated{"orders", partition_count}))
                    .ok());
            ASSERT_TRUE(table_->open_topic(fiber, *metadata_->catalog().find_topic(TOPIC)).ok());
        });
    }
    ~Bench() {
        if (node_.alive()) node_.kill();
        drop();
    }
    void start() {
        ++life_;
        run([&](Fiber& fiber) {
            auto metadata = testing::open_alone(fiber, env_, "metadata", 8192, LeaderEpoch(life_));
            ASSERT_TRUE(metadata.ok()) << metadata.error().to_string();
            metadata_ = std::move(metadata).value();
            table_ = std::make_unique<PartitionTable>(env_, LogOptions{});
            table_->set_replication(&sole_node_);
            for (const auto& [topic_id, topic] : metadata_->catalog().topics())
                ASSERT_TRUE(table_->open_topic(fiber, topic).ok());
            options.leader_epoch = LeaderEpoch(life_);
            auto delivery = Delivery::open(fiber, env_, *metadata_, *table_, options);
            ASSERT_TRUE(delivery.ok()) << delivery.error().to_string();
            delivery_ = std::move(delivery).value();
        });
    }
    void kill() {
        node_.kill();
        drop();
        node_.restart();
        start();
    }
    void power_loss(std::uint64_t seed) {
        node_.power_loss(PowerImage::random(seed, true));
        drop();
        node_.restart();
        start();
    }
    void run(FiberBody body) {
        bool ended = false;
        env_.scheduler.spawn("test", [&ended, inner = std::move(body)](Fiber& fiber) {
            inner(fiber);
            ended = true;
        });
        for (int steps = 0; !ended; ++steps) {
            ASSERT_LT(steps, 3'000'000);
            ASSERT_TRUE(world_.step(world_.now() + seconds(1000)));
        }
    }
    void run_for(Duration duration) {
        const MonoTime until = world_.now() + duration;
        while (world_.now() < until) {
            world_.run_until(std::min(until, world_.now() + milliseconds(1)));
            for (Link* link : links_)
                link->read();
        }
    }
    // Appends and waits for the commit.
    void publish(const std::string& value, std::uint16_t partition = 0) {
        run([&](Fiber& fiber) {
            Partition* stored = table_->find({TOPIC, PartitionIndex(partition)});
            ASSERT_NE(stored, nullptr);
            Record record;
            record.value = as_byte_span(value);
            record.leader_epoch = LeaderEpoch(life_);
            const Result<Sequence> sequence = stored->log().append(record);
            ASSERT_TRUE(sequence.ok());
            while (stored->commit_seq() < *sequence)
                (void)stored->committed().wait(fiber);
        });
    }
    void publish_many(int count, std::uint16_t partition = 0) {
        for (int i = 0; i < count; ++i)
            publish("m" + std::to_string(i), partition);
    }
    Link& connect() {
        owned_.push_back(std::make_unique<Link>(*delivery_, env_.scheduler));
        links_.push_back(owned_.back().get());
        return *owned_.back();
    }
    Delivery& delivery() { return *delivery_; }
    MetadataLog& metadata() { return *metadata_; }
    SimNode& node() { return node_; }
    SimWorld& world() { return world_; }
    MonoTime now() { return world_.now(); }
    void delete_topic() {
        run([&](Fiber& fiber) {
            const auto groups = metadata_->catalog().groups();
            ASSERT_TRUE(metadata_->propose(fiber, MutationBody(TopicDeleted{TOPIC})).ok());
            for (const auto& [group_id, group] : groups)
                delivery_->end_group(group_id);
            table_->retire_topic(TOPIC);
            for (const auto& [group_id, group] : groups)
                ASSERT_TRUE(delivery_->remove_group(fiber, group_id).ok());
            ASSERT_TRUE(table_->remove_topic(fiber, TOPIC).ok());
        });
    }
    void close() {
        run([&](Fiber& fiber) { ASSERT_TRUE(delivery_->close(fiber).ok()); });
    }

    DeliveryOptions options;

  private:
    void drop() {
        delivery_ = nullptr;
        links_.clear();
        owned_.clear();
        table_ = nullptr;
        metadata_ = nullptr;
    }
    HeapStackPool stacks_;
    SimWorld world_;
    SimNode& node_;
    Env env_;
    std::uint64_t life_ = 0;
    std::unique_ptr<MetadataLog> metadata_;
    SoleNode sole_node_;
    std::unique_ptr<PartitionTable> table_;
    std::unique_ptr<Delivery> delivery_;
    std::vector<std::unique_ptr<Link>> owned_;
    std::vector<Link*> links_;
};

struct Message {
    wire::Msg msg;
    std::string value;
};

// A client that did everything right up to its first PULL.
class Client {
  public:
    Client(Bench& bench, const std::string& group,
           wire::StartPolicy policy = wire::StartPolicy::EARLIEST, std::uint16_t credit_count = 0,
           std::uint32_t credit_bytes = 0)
        : bench_(bench), link(bench.connect()) {
        join(group, policy, credit_count, credit_bytes);
    }
    void join(const std::string& group, wire::StartPolicy policy, std::uint16_t credit_count,
              std::uint32_t credit_bytes) {
        link.sub(group, TOPIC, policy, credit_count, credit_bytes);
        bench_.run_for(milliseconds(50));
        ASSERT_FALSE(link.got.empty());
        const Got ok = take();
        ASSERT_EQ(ok.op, wire::Op::OK) << error_of(ok);
        me = *wire::decode_sub_result(wire::decode_ok(ok.payload)->result);
        while (!link.got.empty()) {
            const Got notice = take();
            ASSERT_EQ(notice.op, wire::Op::NOTICE);
            notices.push_back(*wire::decode_notice(notice.payload));
        }
    }
    void confirm() {
        for (const wire::Notice& notice : notices)
            link.control_ack(control_ack(notice));
        bench_.run_for(milliseconds(2));
        for (std::size_t i = 0; i < notices.size(); ++i)
            EXPECT_EQ(take().op, wire::Op::OK);
    }
    static wire::ControlAck control_ack(const wire::Notice& notice) {
        wire::ControlAck ack;
        ack.notice_id = notice.notice_id;
        ack.notice_kind = notice.kind;
        ack.group_id = notice.group_id;
        ack.membership_epoch = notice.membership_epoch;
        ack.assignment_epoch = notice.assignment_epoch;
        ack.ownership_epoch = notice.ownership_epoch;
        return ack;
    }
    wire::Pull pull_of(std::uint16_t max_msgs = 0, std::uint16_t wait_ms = 0) const {
        wire::Pull pull;
        pull.subscription_id = me.subscription_id;
        pull.member_id = me.member_id;
        pull.membership_epoch = me.membership_epoch;
        pull.assignment_epoch = me.assignment_epoch;
        pull.max_msgs = max_msgs;
        pull.wait_ms = wait_ms;
        return pull;
    }
    wire::Heartbeat heartbeat_of(wire::HeartbeatState state = wire::HeartbeatState::ACTIVE) const {
        return {me.subscription_id, me.member_id, me.membership_epoch, me.assignment_epoch, state};
    }
    wire::Ack ack_of(const wire::Msg& msg, std::uint16_t flags = 0) const {
        return {msg.subscription_id, msg.topic_id,        msg.partition, msg.sequence,
                msg.delivery_id,     msg.ownership_epoch, flags};
    }
    wire::Nack nack_of(const wire::Msg& msg, wire::NackReason reason) const {
        return {msg.subscription_id, msg.topic_id,        msg.partition, msg.sequence,
                msg.delivery_id,     msg.ownership_epoch, reason,        0};
    }
    // The messages of one PULL; its answer goes to last.
    std::vector<Message> pull(const wire::Pull& pull, Duration time = milliseconds(20)) {
        link.pull(pull);
        bench_.run_for(time);
        return messages();
    }
    std::vector<Message> pull(std::uint16_t max_msgs = 0) { return pull(pull_of(max_msgs)); }
    std::vector<Message> messages() {
        std::vector<Message> all;
        last.reset();
        while (!link.got.empty()) {
            Got got = take();
            if (got.op != wire::Op::MSG) {
                last = got;
                break;
            }
            Message message;
            message.msg = *wire::decode_msg(got.payload);
            message.value = std::string(as_string_view(message.msg.value));
            message.msg.key = message.msg.value = {};
            all.push_back(message);
        }
        return all;
    }
    ErrorCode last_error() const {
        if (!last || last->op != wire::Op::ERR) return ErrorCode::TIMED_OUT;
        return static_cast<ErrorCode>(wire::decode_err(last->payload)->code);
    }
    bool last_is_ok() const { return last && last->op == wire::Op::OK; }
    // Sends, and waits for the one answer.
    ErrorCode answer() {
        bench_.run_for(milliseconds(40));
        last.reset();
        if (!link.got.empty()) last = take();
        return last_error();
    }
    bool answered_ok() {
        answer();
        return last_is_ok();
    }
    Got take() {
        Got got = std::move(link.got.front());
        link.got.pop_front();
        return got;
    }
    static std::string error_of(const Got& got) {
        if (got.op != wire::Op::ERR) return "not an ERR";
        return std::string(wire::decode_err(got.payload)->message);
    }

  private:
    Bench& bench_;

  public:
    Link& link;
    wire::SubResult me;
    std::vector<wire::Notice> notices;
    std::optional<Got> last;
};

std::vector<std::uint64_t> sequences(const std::vector<Message>& messages) {
    std::vector<std::uint64_t> all;
    for (const Message& message : messages)
        all.push_back(message.msg.sequence.value);
    return all;
}
std::vector<std::uint64_t> range(std::uint64_t from, std::uint64_t to) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = from; i <= to; ++i)
        all.push_back(i);
    return all;
}

TEST(Delivery, delivers_what_was_committed_and_settles_it) {
    Bench bench;
    bench.publish_many(5);
    Client client(bench, "g");
    ASSERT_EQ(client.notices.size(), 1u);
    EXPECT_EQ(client.notices[0].member_id, client.me.member_id);
    EXPECT_TRUE(client.pull().empty()) << "nothing flows before CONTROL_ACK";
    EXPECT_TRUE(client.last_is_ok());
    client.confirm();
    const auto messages = client.pull();
    EXPECT_EQ(sequences(messages), range(1, 5));
    EXPECT_EQ(messages[3].value, "m3");
    EXPECT_EQ(messages[3].msg.attempt, 1);
    EXPECT_EQ(messages[3].msg.ownership_epoch, client.notices[0].ownership_epoch);
    EXPECT_TRUE(client.last_is_ok());
    for (const Message& message : messages)
        client.link.ack(client.ack_of(message.msg));
    for (int i = 0; i < 5; ++i)
        EXPECT_TRUE(client.answered_ok());
    const auto state = bench.delivery().group_state(client.notices[0].group_id);
    ASSERT_EQ(state.size(), 1u);
    EXPECT_EQ(state[0].ack_floor, Sequence(5));
    EXPECT_EQ(state[0].last_seq, Sequence(5));
    EXPECT_EQ(state[0].in_flight, 0u);
    EXPECT_TRUE(client.pull().empty());
    client.link.ack(client.ack_of(messages[0].msg));
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_DELIVERY);
}

TEST(Contract, R2_a_sub_that_the_clock_has_answered_leaves_its_group_free) {
    Bench bench;
    Link& late = bench.connect();
    late.sub("g", TOPIC);
    late.expire_sub();
    bench.run_for(milliseconds(50));
    ASSERT_EQ(late.got.size(), 1u);  // and no NOTICE behind it
    EXPECT_EQ(late.got.front().op, wire::Op::ERR);
    EXPECT_EQ(bench.metadata().catalog().groups().begin()->second.members.size(), 0u);
    Client again(bench, "g");
    again.confirm();
    bench.publish_many(1);
    EXPECT_EQ(again.pull().size(), 1u);
}

TEST(Delivery, a_pull_that_waits_holds_no_fiber) {
    Bench bench;
    std::vector<std::unique_ptr<Client>> all;
    for (int i = 0; i < 20; ++i) {
        all.push_back(std::make_unique<Client>(bench, "g" + std::to_string(i)));
        all.back()->confirm();
    }
    bench.run_for(milliseconds(100));
    const std::size_t before = bench.node().scheduler().fiber_count();
    for (const auto& client : all)
        client->link.pull(client->pull_of(0, 5'000));
    bench.run_for(milliseconds(100));
    EXPECT_EQ(bench.node().scheduler().fiber_count(), before);
    bench.publish_many(1);
    bench.run_for(milliseconds(100));
    for (const auto& client : all)
        EXPECT_EQ(sequences(client->messages()), range(1, 1));
    const std::vector<std::string> names = bench.node().scheduler().fiber_names();
    EXPECT_EQ(std::count(names.begin(), names.end(), "deliver.pull"), 0);
}

TEST(Delivery, pulls_beyond_the_fibers_of_the_node_wait_their_turn) {
    Bench bench;
    bench.options.dispatch_fibers_max = 1;
    bench.kill();  // from now on
    Client stuck(bench, "stuck");
    stuck.confirm();
    Client other(bench, "other");
    other.confirm();
    for (int i = 0; i < 3; ++i)
        bench.publish(std::string(1u << 20, 'v'));
    stuck.link.is_stuck = true;
    stuck.link.pull(stuck.pull_of());
    bench.run_for(milliseconds(50));
    EXPECT_TRUE(other.pull(1).empty());
    EXPECT_FALSE(other.last.has_value());  // not refused either
    stuck.link.is_stuck = false;
    bench.run_for(milliseconds(100));
    EXPECT_EQ(sequences(other.messages()), range(1, 1));
    EXPECT_TRUE(other.last_is_ok());
    EXPECT_FALSE(stuck.messages().empty());
}

TEST(Contract, D8_delivery_id_is_leader_epoch_and_counter) {
    Bench bench;
    bench.publish_many(2);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    ASSERT_EQ(messages.size(), 2u);
    EXPECT_EQ(messages[0].msg.delivery_id.value, (std::uint64_t{1} << 40) + 1);
    EXPECT_EQ(messages[1].msg.delivery_id.value, (std::uint64_t{1} << 40) + 2);
    bench.kill();
    Client again(bench, "g");
    again.confirm();
    EXPECT_EQ(again.pull()[0].msg.delivery_id.value, (std::uint64_t{2} << 40) + 1);
}

TEST(Contract, G2_latest_begins_behind_what_was_answered_before) {
    Bench bench;
    bench.publish_many(3);
    Client client(bench, "g", wire::StartPolicy::LATEST);
    client.confirm();
    EXPECT_TRUE(client.pull().empty());
    bench.publish_many(2);
    EXPECT_EQ(sequences(client.pull()), range(4, 5));
    client.link.close();
    bench.kill();
    // The start belongs to the group, not to the SUB.
    Client again(bench, "g", wire::StartPolicy::EARLIEST);
    again.confirm();
    EXPECT_EQ(sequences(again.pull()), range(4, 5));
}

TEST(Contract, G1_a_group_belongs_to_one_topic_and_takes_one_member_here) {
    Bench bench;
    bench.run([&](Fiber& fiber) {
        ASSERT_TRUE(bench.metadata().propose(fiber, MutationBody(TopicCreated{"other", 1})).ok());
    });
    Client client(bench, "g");
    Link& second = bench.connect();
    const auto answer_of = [&] {
        bench.run_for(milliseconds(30));
        const Got got = second.got.front();
        second.got.clear();
        return got.op == wire::Op::ERR ? static_cast<ErrorCode>(wire::decode_err(got.payload)->code)
                                       : ErrorCode::TIMED_OUT;
    };
    second.sub("g", TOPIC);
    EXPECT_EQ(answer_of(), ErrorCode::GROUP_MEMBER_LIMIT);
    second.sub("g", TopicId(3));
    EXPECT_EQ(answer_of(), ErrorCode::GROUP_EXISTS_MISMATCH);
    second.sub("bad name", TOPIC);
    EXPECT_EQ(answer_of(), ErrorCode::INVALID_TOPIC);
    second.sub("h", TopicId(99));
    EXPECT_EQ(answer_of(), ErrorCode::UNKNOWN_TOPIC);
    second.sub("h", TOPIC, wire::StartPolicy::EARLIEST, 0, 0, PartitionIndex(0));
    EXPECT_EQ(answer_of(), ErrorCode::UNKNOWN_PARTITION);
    // The group is free again as soon as its member's connection is gone.
    client.link.close();
    second.sub("g", TOPIC);
    EXPECT_EQ(answer_of(), ErrorCode::TIMED_OUT) << "OK";
}

TEST(Contract, G4_pull_and_heartbeat_check_member_and_epochs) {
    Bench bench;
    Client client(bench, "g");
    client.confirm();
    wire::Pull pull = client.pull_of();
    pull.member_id = pull.member_id.next();
    client.pull(pull);
    EXPECT_EQ(client.last_error(), ErrorCode::UNKNOWN_MEMBER);
    pull = client.pull_of();
    pull.subscription_id = pull.subscription_id.next();
    client.pull(pull);
    EXPECT_EQ(client.last_error(), ErrorCode::UNKNOWN_MEMBER);
    pull = client.pull_of();
    pull.membership_epoch = pull.membership_epoch.next();
    client.pull(pull);
    EXPECT_EQ(client.last_error(), ErrorCode::STALE_GENERATION);
    pull = client.pull_of();
    pull.assignment_epoch = pull.assignment_epoch.next();
    client.pull(pull);
    EXPECT_EQ(client.last_error(), ErrorCode::STALE_GENERATION);
    wire::Heartbeat heartbeat = client.heartbeat_of();
    heartbeat.assignment_epoch = heartbeat.assignment_epoch.next();
    client.link.heartbeat(heartbeat);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_GENERATION);
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_TRUE(client.answered_ok());
    // Of another connection.
    Link& other = bench.connect();
    other.pull(client.pull_of());
    bench.run_for(milliseconds(5));
    EXPECT_EQ(other.got.front().op, wire::Op::ERR);
}

TEST(Contract, G4_ack_of_another_ownership_epoch_is_fenced) {
    Bench bench;
    bench.publish_many(1);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    ASSERT_EQ(messages.size(), 1u);
    wire::Ack ack = client.ack_of(messages[0].msg);
    ack.ownership_epoch = OwnershipEpoch(ack.ownership_epoch.value + 1);
    client.link.ack(ack);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_GENERATION);
    ack.ownership_epoch = OwnershipEpoch(ack.ownership_epoch.value - 2);
    client.link.ack(ack);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_OWNER);
    ack = client.ack_of(messages[0].msg);
    ack.partition = PartitionIndex(1);
    client.link.ack(ack);
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_PARTITION);
    ack = client.ack_of(messages[0].msg);
    ack.topic_id = TopicId(3);
    client.link.ack(ack);
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_TOPIC);
    client.link.ack(client.ack_of(messages[0].msg));
    EXPECT_TRUE(client.answered_ok());
}

TEST(Contract, G3_a_silent_member_is_expelled_after_ten_seconds) {
    Bench bench;
    bench.publish_many(2);
    Client client(bench, "g");
    client.confirm();
    EXPECT_EQ(client.pull().size(), 2u);
    bench.run_for(seconds(9));
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_TRUE(client.answered_ok());
    bench.run_for(seconds(9));
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_TRUE(client.answered_ok());
    bench.run_for(seconds(11));
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_MEMBER);
    EXPECT_TRUE(bench.metadata().catalog().find_group("g")->members.empty());
    Client next(bench, "g");
    next.confirm();
    EXPECT_GT(next.me.member_id, client.me.member_id);
    EXPECT_GT(next.notices[0].ownership_epoch, client.notices[0].ownership_epoch);
    // The lowest one failed with the member; the other goes at once.
    EXPECT_EQ(sequences(next.pull()), range(2, 2));
    bench.run_for(seconds(2));
    const auto retried = next.pull();
    ASSERT_EQ(sequences(retried), range(1, 1));
    EXPECT_EQ(retried[0].msg.attempt, 2);
}

TEST(Contract, G3_control_ack_is_due_within_ten_seconds) {
    Bench bench;
    Client client(bench, "g");
    bench.run_for(seconds(6));
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_TRUE(client.answered_ok());
    bench.run_for(seconds(5));
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_MEMBER);
}

TEST(Contract, G3_a_waiting_pull_keeps_the_member) {
    Bench bench;
    bench.options.poll_max_wait = seconds(30);
    bench.kill();
    Client client(bench, "g");
    client.confirm();
    client.link.pull(client.pull_of(0, 25000));
    bench.run_for(seconds(20));
    EXPECT_TRUE(client.link.got.empty());
    bench.publish("x");
    bench.run_for(milliseconds(20));
    EXPECT_EQ(client.messages().size(), 1u);
    EXPECT_TRUE(client.last_is_ok());
}

TEST(Contract, G5_leave_is_clean_and_final) {
    Bench bench;
    bench.publish_many(3);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    EXPECT_EQ(messages.size(), 3u);
    client.link.heartbeat(client.heartbeat_of(wire::HeartbeatState::LEAVE));
    EXPECT_TRUE(client.answered_ok());
    bench.publish_many(1);
    bench.run_for(seconds(1));
    EXPECT_TRUE(client.link.got.empty());
    client.link.ack(client.ack_of(messages[0].msg));
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_MEMBER);
    // On the same connection again.
    client.notices.clear();
    client.join("g", wire::StartPolicy::EARLIEST, 0, 0);
    client.confirm();
    const auto again = client.pull();
    EXPECT_EQ(sequences(again), range(1, 4));
    EXPECT_EQ(again[0].msg.attempt, 2);
    EXPECT_EQ(again[3].msg.attempt, 1);
}

TEST(Contract, G5_unknown_notice_is_0020_and_error_expels) {
    Bench bench(2);
    Client client(bench, "g");
    ASSERT_EQ(client.notices.size(), 2u);
    wire::ControlAck ack = Client::control_ack(client.notices[0]);
    ack.notice_id = NoticeId(999);
    client.link.control_ack(ack);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_GENERATION);
    ack = Client::control_ack(client.notices[0]);
    client.link.control_ack(ack);
    EXPECT_TRUE(client.answered_ok());
    client.link.control_ack(ack);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_GENERATION);
    ack = Client::control_ack(client.notices[1]);
    ack.result = wire::ControlResult::ERROR;
    client.link.control_ack(ack);
    EXPECT_TRUE(client.answered_ok());
    client.link.heartbeat(client.heartbeat_of());
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_MEMBER);
}

TEST(Contract, C1_long_poll_ends_with_a_message_time_or_another_frame) {
    Bench bench;
    Client client(bench, "g");
    client.confirm();
    client.link.pull(client.pull_of(0, 3000));
    bench.run_for(seconds(1));
    EXPECT_TRUE(client.link.got.empty());
    bench.publish("x");
    bench.run_for(milliseconds(5));
    EXPECT_EQ(client.messages().size(), 1u);
    EXPECT_TRUE(client.last_is_ok());

    client.link.pull(client.pull_of(0, 3000));
    bench.run_for(milliseconds(2900));
    EXPECT_TRUE(client.link.got.empty());
    bench.run_for(milliseconds(200));
    EXPECT_TRUE(client.messages().empty());
    EXPECT_TRUE(client.last_is_ok());

    client.link.pull(client.pull_of(0, 3000));
    bench.run_for(milliseconds(10));
    client.link.heartbeat(client.heartbeat_of());
    bench.run_for(milliseconds(10));
    ASSERT_EQ(client.link.got.size(), 2u);
    EXPECT_EQ(wire::decode_ok(client.take().payload)->request_op, wire::Op::PULL);
    EXPECT_EQ(wire::decode_ok(client.take().payload)->request_op, wire::Op::HEARTBEAT);

    wire::Pull capped = client.pull_of(0, 60000);
    client.link.pull(capped);
    bench.run_for(milliseconds(5100));
    EXPECT_TRUE(client.messages().empty());
    EXPECT_TRUE(client.last_is_ok()) << "poll_max_wait_ms";
}

TEST(Contract, C1_pulls_of_other_subscriptions_wait_behind_and_earlier_ones_end_first) {
    Bench bench;
    Client first(bench, "g0");
    first.confirm();
    std::vector<wire::SubResult> subs{first.me};
    const auto pull_of = [&](std::size_t i) {
        wire::Pull pull;
        pull.subscription_id = subs[i].subscription_id;
        pull.member_id = subs[i].member_id;
        pull.membership_epoch = subs[i].membership_epoch;
        pull.assignment_epoch = subs[i].assignment_epoch;
        pull.wait_ms = 4000;
        return pull;
    };
    for (int i = 1; i < 66; ++i) {
        first.notices.clear();
        first.join("g" + std::to_string(i), wire::StartPolicy::LATEST, 0, 0);
        // Only the third one is confirmed, so only it can get messages.
        if (i == 2) first.confirm();
        subs.push_back(first.me);
        if (i == 3) break;
    }
    first.link.pull(pull_of(1));
    first.link.pull(pull_of(2));
    first.link.pull(pull_of(3));
    bench.run_for(milliseconds(10));
    EXPECT_TRUE(first.link.got.empty());
    first.link.pull(pull_of(3));
    bench.run_for(milliseconds(10));
    ASSERT_EQ(first.link.got.size(), 4u) << "a refused one ends those before it";
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(first.take().op, wire::Op::OK);
    EXPECT_EQ(static_cast<ErrorCode>(wire::decode_err(first.take().payload)->code),
              ErrorCode::MAX_WAITING_PULLS);

    first.link.pull(pull_of(1));
    first.link.pull(pull_of(2));
    first.link.pull(pull_of(3));
    bench.publish("x");
    bench.run_for(milliseconds(10));
    // MSG of the second, then the OKs of the first and the second; the third waits on.
    ASSERT_EQ(first.link.got.size(), 3u);
    EXPECT_EQ(first.take().op, wire::Op::MSG);
    EXPECT_EQ(first.take().op, wire::Op::OK);
    EXPECT_EQ(first.take().op, wire::Op::OK);
}

TEST(Contract, C1_the_65th_waiting_pull_of_a_connection_is_0027) {
    Bench bench;
    Link& link = bench.connect();
    std::vector<wire::SubResult> subs;
    for (int i = 0; i < 65; ++i)
        link.sub("g" + std::to_string(i), TOPIC);
    bench.run_for(seconds(2));
    for (Got& got : link.got) {
        if (got.op == wire::Op::OK)
            subs.push_back(*wire::decode_sub_result(wire::decode_ok(got.payload)->result));
    }
    ASSERT_EQ(subs.size(), 65u);
    link.got.clear();
    for (const wire::SubResult& sub : subs) {
        wire::Pull pull;
        pull.subscription_id = sub.subscription_id;
        pull.member_id = sub.member_id;
        pull.membership_epoch = sub.membership_epoch;
        pull.assignment_epoch = sub.assignment_epoch;
        pull.wait_ms = 4000;
        link.pull(pull);
    }
    bench.run_for(milliseconds(20));
    ASSERT_EQ(link.got.size(), 65u);
    EXPECT_EQ(link.got[63].op, wire::Op::OK);
    EXPECT_EQ(static_cast<ErrorCode>(wire::decode_err(link.got[64].payload)->code),
              ErrorCode::MAX_WAITING_PULLS);
}

TEST(Contract, C3_limits_of_a_pull) {
    Bench bench;
    for (int i = 0; i < 6; ++i)
        bench.publish(std::string(1000, 'a'));
    Client client(bench, "g");
    client.confirm();
    EXPECT_EQ(client.pull(2).size(), 2u);
    wire::Pull pull = client.pull_of();
    pull.max_bytes = 10;
    EXPECT_EQ(client.pull(pull).size(), 1u) << "the first may exceed max_bytes";
    pull.max_bytes = 2500;
    EXPECT_EQ(client.pull(pull).size(), 2u);
    EXPECT_TRUE(client.last_is_ok());
    // min_bytes: more than one message is waited for.
    pull = client.pull_of(0, 2000);
    pull.min_bytes = 1500;
    client.link.pull(pull);
    bench.run_for(milliseconds(500));
    ASSERT_EQ(client.link.got.size(), 1u);
    EXPECT_EQ(client.link.got.front().op, wire::Op::MSG);
    bench.publish(std::string(1000, 'b'));
    bench.run_for(milliseconds(10));
    EXPECT_EQ(client.messages().size(), 2u);
    EXPECT_TRUE(client.last_is_ok());
}

TEST(Contract, C3_a_pull_rotates_the_partition_it_starts_with) {
    Bench bench(3);
    for (std::uint16_t p = 0; p < 3; ++p) {
        for (int i = 0; i < 4; ++i)
            bench.publish("m", p);
    }
    Client client(bench, "g");
    client.confirm();
    std::vector<int> starts;
    for (int i = 0; i < 6; ++i) {
        const auto messages = client.pull(1);
        ASSERT_EQ(messages.size(), 1u);
        starts.push_back(messages[0].msg.partition.value);
    }
    EXPECT_EQ(starts, (std::vector<int>{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(client.pull().size(), 6u);
}

TEST(Contract, C4_credit_bounds_what_is_in_flight) {
    Bench bench;
    bench.publish_many(10);
    Client client(bench, "g", wire::StartPolicy::EARLIEST, 3, 1000);
    client.confirm();
    const auto messages = client.pull();
    EXPECT_EQ(messages.size(), 3u);
    client.pull();
    EXPECT_EQ(client.last_error(), ErrorCode::NO_CREDIT);
    client.link.ack(client.ack_of(messages[1].msg));
    EXPECT_TRUE(client.answered_ok());
    EXPECT_EQ(sequences(client.pull()), range(4, 4));
    wire::Credit credit;
    credit.subscription_id = client.me.subscription_id;
    credit.membership_epoch = client.me.membership_epoch;
    credit.mode = wire::CreditMode::ADD;
    credit.credit_count = 2;
    credit.credit_bytes = 0;
    client.link.credit(credit);
    EXPECT_TRUE(client.answered_ok());
    const auto result = *wire::decode_credit_result(wire::decode_ok(client.last->payload)->result);
    EXPECT_EQ(result.granted_count, 5);
    EXPECT_EQ(result.outstanding_count, 3);
    EXPECT_EQ(sequences(client.pull()), range(5, 6));
    credit.mode = wire::CreditMode::SET;
    credit.credit_count = 0;
    client.link.credit(credit);
    EXPECT_TRUE(client.answered_ok());
    client.pull();
    EXPECT_EQ(client.last_error(), ErrorCode::NO_CREDIT);
    credit.membership_epoch = credit.membership_epoch.next();
    client.link.credit(credit);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_GENERATION);
    credit.membership_epoch = client.me.membership_epoch;
    credit.ownership_epoch = OwnershipEpoch(77);
    client.link.credit(credit);
    EXPECT_EQ(client.answer(), ErrorCode::STALE_GENERATION);
}

TEST(Contract, C5_a_message_above_the_window_is_said_only_when_nothing_else_goes) {
    Bench bench(2);
    bench.publish(std::string(500, 'x'), 0);
    bench.publish("small", 1);
    Client client(bench, "g", wire::StartPolicy::EARLIEST, 10, 100);
    client.confirm();
    EXPECT_EQ(client.pull().size(), 1u);
    EXPECT_TRUE(client.last_is_ok());
    EXPECT_TRUE(client.pull().empty());
    EXPECT_EQ(client.last_error(), ErrorCode::MESSAGE_EXCEEDS_CREDIT);
}

TEST(Contract, D2_nack_reasons) {
    Bench bench;
    bench.publish_many(3);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    ASSERT_EQ(messages.size(), 3u);
    client.link.nack(client.nack_of(messages[0].msg, wire::NackReason::RETRY));
    EXPECT_TRUE(client.answered_ok());
    client.link.nack(client.nack_of(messages[1].msg, wire::NackReason::REQUEUE));
    EXPECT_TRUE(client.answered_ok());
    client.link.nack(client.nack_of(messages[2].msg, wire::NackReason::REJECT));
    EXPECT_EQ(client.answer(), ErrorCode::DLQ_UNAVAILABLE);
    const auto again = client.pull();
    ASSERT_EQ(sequences(again), range(2, 2));
    EXPECT_EQ(again[0].msg.attempt, 2);
    EXPECT_NE(again[0].msg.delivery_id, messages[1].msg.delivery_id);
    bench.run_for(seconds(2));
    EXPECT_EQ(sequences(client.pull()), range(1, 1));
}

TEST(Contract, D1_progress_renews_and_an_ack_after_the_lease_still_settles) {
    Bench bench;
    bench.options.delivery_lease = seconds(3);
    bench.kill();
    bench.publish_many(2);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    ASSERT_EQ(messages.size(), 2u);
    for (int i = 0; i < 3; ++i) {
        bench.run_for(seconds(2));
        client.link.ack(client.ack_of(messages[1].msg, wire::ACK_FLAG_PROGRESS));
        EXPECT_TRUE(client.answered_ok());
    }
    auto state = bench.delivery().group_state(client.notices[0].group_id);
    EXPECT_EQ(state[0].in_flight, 1u) << "the first one's lease is over";
    client.link.ack(client.ack_of(messages[0].msg, wire::ACK_FLAG_PROGRESS));
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_DELIVERY);
    client.link.ack(client.ack_of(messages[0].msg));
    EXPECT_TRUE(client.answered_ok());
    state = bench.delivery().group_state(client.notices[0].group_id);
    EXPECT_EQ(state[0].ack_floor, Sequence(1));
}

TEST(Contract, D3_last_is_announced_and_a_message_without_a_dlq_stays) {
    Bench bench;
    bench.publish_many(1);
    Client client(bench, "g");
    client.confirm();
    for (int attempt = 1; attempt <= 5; ++attempt) {
        const auto messages = client.pull();
        ASSERT_EQ(messages.size(), 1u);
        EXPECT_EQ(messages[0].msg.attempt, attempt);
        EXPECT_EQ((messages[0].msg.flags & wire::MSG_FLAG_LAST) != 0, attempt == 5);
        client.link.nack(client.nack_of(messages[0].msg, wire::NackReason::REQUEUE));
        EXPECT_TRUE(client.answered_ok());
    }
    EXPECT_TRUE(client.pull().empty());
    for (int i = 0; i < 6; ++i) {
        bench.run_for(seconds(5));
        client.link.heartbeat(client.heartbeat_of());
        EXPECT_TRUE(client.answered_ok());
    }
    EXPECT_EQ(client.pull().size(), 1u) << "L2: tried again every 30 s";
}

// covers DUP-01, DUR-07, TIM-01
TEST(Delivery, acks_and_attempts_survive_kill_and_power_loss) {
    Bench bench;
    bench.publish_many(20);
    std::set<std::uint64_t> acked;
    std::uint16_t attempt_of_first = 0;
    for (int life = 0; life < 6; ++life) {
        Client client(bench, "g");
        client.confirm();
        bench.run_for(seconds(40));
        client.link.close();
        Client worker(bench, "g");
        worker.confirm();
        const auto messages = worker.pull();
        for (const Message& message : messages) {
            const std::uint64_t sequence = message.msg.sequence.value;
            ASSERT_FALSE(acked.contains(sequence)) << "life " << life;
            if (sequence == 1) {
                EXPECT_GT(message.msg.attempt, attempt_of_first);
                attempt_of_first = message.msg.attempt;
                worker.link.nack(worker.nack_of(message.msg, wire::NackReason::RETRY));
                EXPECT_TRUE(worker.answered_ok());
            } else if (sequence % 6 == static_cast<std::uint64_t>(life)) {
                worker.link.ack(worker.ack_of(message.msg));
                EXPECT_TRUE(worker.answered_ok());
                acked.insert(sequence);
            }
        }
        if (life % 2 == 0) bench.kill();
        if (life % 2 == 1) bench.power_loss(static_cast<std::uint64_t>(life));
    }
    EXPECT_GE(acked.size(), 15u);
}

TEST(Delivery, a_deleted_topic_ends_its_members) {
    Bench bench;
    bench.publish_many(2);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    ASSERT_EQ(messages.size(), 2u);
    client.link.ack(client.ack_of(messages[0].msg));
    ASSERT_TRUE(client.answered_ok());
    client.link.pull(client.pull_of(0, 5000));
    bench.run_for(milliseconds(5));
    bench.delete_topic();
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_TOPIC);
    client.link.ack(client.ack_of(messages[1].msg));
    EXPECT_EQ(client.answer(), ErrorCode::UNKNOWN_TOPIC);
    EXPECT_TRUE(bench.node().disk().cached_names("groups").empty());
}

// contract E3
TEST(Delivery, a_group_that_is_deleted_ends_whole_when_a_partition_cannot_be_removed) {
    Bench bench(3);
    for (std::uint16_t partition = 0; partition < 3; ++partition)
        bench.publish_many(2, partition);
    Client client(bench, "g");
    client.confirm();
    EXPECT_EQ(client.pull().size(), 6u);
    bench.run_for(milliseconds(100));
    const GroupId group_id = client.notices[0].group_id;
    const std::string folder = "groups/" + std::to_string(group_id.value);
    bench.node().disk().faults().fails = [&](const sim::DiskOperation& operation) {
        return operation.op == sim::DiskOp::REMOVE && operation.path == folder + "/0/delivery.mql";
    };
    bench.run([&](Fiber& fiber) {
        ASSERT_TRUE(bench.metadata().propose(fiber, MutationBody(TopicDeleted{TOPIC})).ok());
        bench.delivery().end_group(group_id);
        EXPECT_TRUE(bench.delivery().remove_group(fiber, group_id).is(ErrorCode::IO_ERROR));
    });
    EXPECT_EQ(bench.node().disk().cached_names(folder), (std::vector<std::string>{"0"}));
    for (const std::string& name : bench.node().scheduler().fiber_names())
        EXPECT_EQ(name.find("ledger."), std::string::npos) << name;
    EXPECT_TRUE(bench.delivery().group_state(group_id).empty());
}

TEST(Delivery, a_group_that_is_deleted_leaves_what_is_not_its_own) {
    Bench bench;
    bench.publish_many(1);
    Client client(bench, "g");
    client.confirm();
    EXPECT_EQ(client.pull().size(), 1u);
    bench.run_for(milliseconds(100));
    const GroupId group_id = client.notices[0].group_id;
    const std::string folder = "groups/" + std::to_string(group_id.value);
    bench.run([&](Fiber& fiber) {
        ASSERT_TRUE(bench.node().disk().open(fiber, folder + "/notes", OpenMode::CREATE).ok());
        ASSERT_TRUE(bench.metadata().propose(fiber, MutationBody(TopicDeleted{TOPIC})).ok());
        bench.delivery().end_group(group_id);
        EXPECT_TRUE(bench.delivery().remove_group(fiber, group_id).ok());
    });
    EXPECT_EQ(bench.node().disk().cached_names(folder), (std::vector<std::string>{"notes"}));
}

// covers DUR-02
TEST(Contract, RB2_sub_of_a_quarantined_catalog_is_2004) {
    Bench bench;
    {
        Client client(bench, "g");
        client.link.close();
    }
    bench.run_for(seconds(1));
    bool is_damaged = false;
    for (const std::string& name : bench.node().disk().cached_names("metadata")) {
        const std::string path = "metadata/" + name;
        const auto bytes = bench.node().disk().cached_read(path);
        if (!bytes) continue;
        const std::size_t at = as_string_view(*bytes).find("orders");
        if (at == std::string_view::npos) continue;
        ASSERT_TRUE(bench.node().disk().flip_bit(path, at, 3));
        is_damaged = true;
    }
    ASSERT_TRUE(is_damaged);
    bench.kill();
    ASSERT_TRUE(bench.metadata().is_quarantined());
    Link& link = bench.connect();
    link.sub("g", TOPIC);
    bench.run_for(milliseconds(50));
    ASSERT_EQ(link.got.size(), 1u);
    ASSERT_EQ(link.got[0].op, wire::Op::ERR);
    EXPECT_EQ(wire::decode_err(link.got[0].payload)->code,
              static_cast<std::uint16_t>(ErrorCode::METADATA_QUARANTINED));
}

TEST(Delivery, counts_the_partitions_that_a_damaged_ledger_keeps_from_a_group) {
    Bench bench(2);
    bench.publish_many(3);
    Client client(bench, "g");
    client.confirm();
    const GroupId group_id = client.notices[0].group_id;
    for (const Message& message : client.pull()) {
        client.link.ack(client.ack_of(message.msg));
        EXPECT_TRUE(client.answered_ok());
    }
    EXPECT_EQ(bench.delivery().unserved_count(), 0u);
    const std::string path = "groups/" + std::to_string(group_id.value) + "/0/delivery.mql";
    const auto parsed = parse_ledger(*bench.node().disk().durable_read(path));
    ASSERT_TRUE(parsed.ok());
    ASSERT_TRUE(bench.node().disk().flip_bit(path, parsed->offsets.front() + 10, 3));
    bench.kill();
    EXPECT_EQ(bench.delivery().unserved_count(), 1u);
    const auto state = bench.delivery().group_state(group_id);
    ASSERT_EQ(state.size(), 2u);
    EXPECT_FALSE(state[0].is_served);
    EXPECT_TRUE(state[1].is_served);
}

TEST(Contract, C7_at_the_limit_of_unsettled_messages_only_redeliveries_flow) {
    Bench bench;
    bench.options.unsettled_count_max = 4;
    bench.kill();
    bench.publish_many(8);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    ASSERT_EQ(sequences(messages), range(1, 4));
    EXPECT_TRUE(client.last_is_ok());
    client.link.nack(client.nack_of(messages[1].msg, wire::NackReason::REQUEUE));
    EXPECT_TRUE(client.answered_ok());
    const auto again = client.pull();
    EXPECT_EQ(sequences(again), range(2, 2)) << "a redelivery needs no more room";
    EXPECT_TRUE(client.pull().empty());
    // The room comes with the flush of the ACK, while the PULL behind it waits already.
    client.link.ack(client.ack_of(messages[0].msg));
    client.link.pull(client.pull_of(0, 1000));
    EXPECT_TRUE(client.answered_ok());
    EXPECT_EQ(sequences(client.messages()), range(5, 5));
    EXPECT_EQ(UNSETTLED_COUNT_MAX, 1'048'576u);
    EXPECT_EQ(DeliveryOptions().unsettled_count_max, UNSETTLED_COUNT_MAX);
}

TEST(Delivery, a_read_that_fails_is_tried_again_without_a_new_commit) {
    Bench bench(2);
    bench.publish("a", 0);
    bench.publish("b", 1);
    bench.kill();  // the records are on the disk only
    Client client(bench, "g");
    client.confirm();
    int failed_reads = 0;
    bench.node().disk().faults().fails = [&](const sim::DiskOperation& operation) {
        const bool fails = operation.op == sim::DiskOp::READ && operation.path.ends_with(".seg");
        failed_reads += fails ? 1 : 0;
        return fails;
    };
    // One PULL waits through the failures; nothing is published meanwhile.
    client.link.pull(client.pull_of(0, 20'000));
    bench.run_for(READ_RETRY_DELAY + READ_RETRY_DELAY + milliseconds(500));
    EXPECT_TRUE(client.messages().empty());
    EXPECT_FALSE(client.last.has_value());
    // At once and after each delay, for both partitions: neither given up nor tried without end.
    EXPECT_EQ(failed_reads, 6);
    bench.node().disk().faults().fails = nullptr;
    bench.run_for(READ_RETRY_DELAY);
    std::set<std::string> got;
    for (const Message& message : client.messages())
        got.insert(message.value);
    EXPECT_EQ(got, (std::set<std::string>{"a", "b"}));
}

TEST(Delivery, stops_pushing_while_the_outbox_is_full_and_goes_on_later) {
    Bench bench;
    for (int i = 0; i < 30; ++i)
        bench.publish(std::string(100 * 1024, 'x'));
    Client client(bench, "g", wire::StartPolicy::EARLIEST, 100, 8u << 20);
    client.confirm();
    client.link.is_stuck = true;
    client.link.pull(client.pull_of());
    bench.run_for(milliseconds(200));
    EXPECT_GT(client.link.outbox().size_bytes(), 1u << 20);
    EXPECT_LT(client.link.outbox().size_bytes(), (1u << 20) + 2 * 100 * 1024);
    client.link.is_stuck = false;
    bench.run_for(milliseconds(200));
    EXPECT_EQ(client.messages().size(), 30u);
    EXPECT_TRUE(client.last_is_ok());
}

TEST(Delivery, a_connection_that_closes_under_a_full_outbox_lets_the_dispatcher_go) {
    Bench bench;
    for (int i = 0; i < 30; ++i)
        bench.publish(std::string(100 * 1024, 'x'));
    Client client(bench, "g", wire::StartPolicy::EARLIEST, 100, 8u << 20);
    client.confirm();
    client.link.is_stuck = true;
    client.link.pull(client.pull_of());
    bench.run_for(milliseconds(200));
    client.link.close();
    bench.run_for(seconds(2));
    for (const std::string& name : bench.node().scheduler().fiber_names())
        EXPECT_NE(name, "deliver.pull");
    Client next(bench, "g");
    next.confirm();
    EXPECT_FALSE(next.pull().empty());
}

TEST(Delivery, close_leaves_everything_on_the_disk) {
    Bench bench;
    bench.publish_many(4);
    Client client(bench, "g");
    client.confirm();
    const auto messages = client.pull();
    client.link.ack(client.ack_of(messages[0].msg));
    EXPECT_TRUE(client.answered_ok());
    bench.close();
    bench.kill();
    Client again(bench, "g");
    again.confirm();
    const auto rest = again.pull();
    EXPECT_EQ(sequences(rest), range(2, 4));
    EXPECT_EQ(rest[0].msg.attempt, 2) << "deliveries are in the checkpoint";
}

}  // namespace
}  // namespace mortar
