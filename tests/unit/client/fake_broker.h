// fake_broker: a scripted broker on an in-memory network, for tests of the client library alone.
// Shape:   FakeNet connects to acceptors by address. FakeBroker keeps the rules that the client relies on (window of
//          producer_seq, one member a group, redelivery of what is not settled) and asks a script what goes wrong.
// Faults:  a Fault is chosen per request, before or after it took effect.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/client/consumer.h"
#include "core/client/producer.h"
#include "core/wire/codec.h"
#include "core/wire/frame.h"
#include "tests/unit/env/manual_scheduler.h"

namespace mortar::testing::inline client_fakes {

struct Pipe {
    std::deque<std::byte> bytes;
    bool ended = false;  // no more comes
    Event changed;
};

class FakeConn final : public Conn {
  public:
    FakeConn(std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out, std::string peer)
        : in_(std::move(in)), out_(std::move(out)), peer_(std::move(peer)) {}
    ~FakeConn() override { out_->ended = true; }

    Result<std::size_t> read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) override {
        while (!closed_ && in_->bytes.empty() && !in_->ended)
            MORTAR_TRY(in_->changed.wait(fiber, deadline));
        if (closed_) return make_error(ErrorCode::CONNECTION_CLOSED, "closed");
        const std::size_t count = std::min(into.size(), in_->bytes.size());
        std::copy_n(in_->bytes.begin(), count, into.begin());
        in_->bytes.erase(in_->bytes.begin(),
                         in_->bytes.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }
    Result<std::size_t> write_some(Fiber& fiber, std::span<const ByteSpan> parts,
                                   MonoTime deadline) override {
        MORTAR_TRY(write(fiber, parts, deadline));
        std::size_t bytes = 0;
        for (const ByteSpan part : parts)
            bytes += part.size();
        return bytes;
    }
    Result<void> write(Fiber&, std::span<const ByteSpan> parts, MonoTime) override {
        if (closed_ || out_->ended) return make_error(ErrorCode::CONNECTION_CLOSED, "reset");
        for (const ByteSpan part : parts)
            out_->bytes.insert(out_->bytes.end(), part.begin(), part.end());
        out_->changed.notify_all();
        return {};
    }
    void shutdown_write() override { end(*out_); }
    void close() override {
        closed_ = true;
        end(*out_);
        end(*in_);
    }
    std::string peer_address() const override { return peer_; }

  private:
    static void end(Pipe& pipe) {
        pipe.ended = true;
        pipe.changed.notify_all();
    }
    std::shared_ptr<Pipe> in_;
    std::shared_ptr<Pipe> out_;
    std::string peer_;
    bool closed_ = false;
};

class FakeNet final : public Net {
  public:
    using Acceptor = std::function<void(std::unique_ptr<Conn>)>;
    std::map<std::string, Acceptor> acceptors;
    std::vector<std::pair<std::string, MonoTime>> attempts;
    const Clock* clock = nullptr;

    Result<std::unique_ptr<Listener>> listen(const std::string&) override {
        return make_error(ErrorCode::ADDRESS_INVALID, "not here");
    }
    Result<std::unique_ptr<Conn>> connect(Fiber& fiber, const std::string& address,
                                          MonoTime) override {
        attempts.emplace_back(address, clock->now());
        fiber.scheduler().yield(fiber);
        const auto found = acceptors.find(address);
        if (found == acceptors.end())
            return make_error(ErrorCode::CONNECTION_REFUSED, "nobody there");
        auto to_server = std::make_shared<Pipe>();
        auto to_client = std::make_shared<Pipe>();
        found->second(std::make_unique<FakeConn>(to_server, to_client, "client:1"));
        return std::unique_ptr<Conn>(std::make_unique<FakeConn>(to_client, to_server, address));
    }
};

class SeededRng final : public RngSource {
  public:
    explicit SeededRng(std::uint64_t seed) : seed_(seed) {}
    Rng stream(std::string_view name) override {
        for (const char c : name)
            seed_ = seed_ * 31 + static_cast<unsigned char>(c);
        return Rng(seed_);
    }

  private:
    std::uint64_t seed_;
};

class NullLog final : public Log {
  public:
    bool enabled(LogLevel) const override { return false; }
    void write(LogLevel, std::string_view, std::initializer_list<LogField>) override {}
};

struct Fault {
    enum class Kind : std::uint8_t {
        NONE,
        ERROR_BEFORE,
        ERROR_AFTER,
        DROP_BEFORE,
        DROP_AFTER,
        SILENCE
    };
    Kind kind = Kind::NONE;
    ErrorCode code = ErrorCode::INTERNAL;
    std::string text = "scripted";
};

class FakeBroker {
  public:
    struct Record {
        std::string key;
        std::string value;
        std::uint64_t producer_id = 0;
        std::uint64_t producer_seq = 0;
    };
    struct Partition {
        std::vector<Record> log;  // sequence = index + 1
        std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>>
            window;  // producer -> seq -> sequence
        std::set<std::uint64_t> settled;
        std::map<std::uint64_t, int> deliveries;  // sequence -> attempts
        std::uint64_t ownership_epoch = 0;
        std::uint64_t member_id = 0;
        bool assigned = false;  // ASSIGN acked by the present member
    };
    struct Topic {
        std::uint16_t id = 0;
        std::vector<Partition> partitions;
    };
    struct SeenFrame {
        wire::Op op;
        MonoTime at;
    };

    FakeBroker(Scheduler& scheduler, const Clock& clock) : scheduler_(scheduler), clock_(clock) {}

    // What goes wrong with this request; op and its number of that op since the start, from 1.
    std::function<Fault(wire::Op, std::uint64_t)> script = [](wire::Op, std::uint64_t) {
        return Fault{};
    };
    std::string token;
    std::map<std::string, Topic, std::less<>> topics;
    std::vector<SeenFrame> seen;
    std::uint64_t connection_count = 0;
    std::size_t present_door = 0;  // through which the request came that script judges
    std::uint16_t window_count = 0;
    std::vector<wire::NackReason> nacks;
    std::uint64_t progress_count = 0;
    std::uint64_t leave_count = 0;

    void add_topic(const std::string& name, std::uint16_t partition_count) {
        Topic topic;
        topic.id = next_topic_id_;
        next_topic_id_ = static_cast<std::uint16_t>(next_topic_id_ + 2);
        topic.partitions.resize(partition_count);
        topics.emplace(name, std::move(topic));
    }
    void append(const std::string& topic, std::size_t partition, std::string value) {
        topics.find(topic)->second.partitions[partition].log.push_back(
            {"", std::move(value), 0, 0});
    }
    void listen(FakeNet& net, const std::string& address) {
        net.acceptors[address] = [this](std::unique_ptr<Conn> conn) {
            serve_connection(std::move(conn));
        };
    }
    void serve_connection(std::unique_ptr<Conn> conn, std::size_t door = 0) {
        ++connection_count;
        auto shared = std::make_shared<std::unique_ptr<Conn>>(std::move(conn));
        scheduler_.spawn("fake.connection",
                         [this, shared, door](Fiber& fiber) { serve(fiber, **shared, door); });
    }
    std::size_t count(wire::Op op) const {
        return static_cast<std::size_t>(std::count_if(
            seen.begin(), seen.end(), [&](const SeenFrame& frame) { return frame.op == op; }));
    }
    // The next loop of each connection ends it.
    void drop_connections() { ++drop_generation_; }
    // Sends REVOKE for the partition to the member; returns after it is queued.
    void revoke(std::uint16_t partition) { revoke_wanted_ = partition; }
    bool revoke_done = false;

  private:
    struct Session {
        std::size_t door = 0;
        bool connected = false;
        bool subscribed = false;
        std::uint64_t member_id = 0;
        Topic* topic = nullptr;
        std::optional<wire::Pull> pull;
        MonoTime pull_deadline;
        std::map<std::uint64_t, std::pair<std::size_t, std::uint64_t>>
            in_flight;  // delivery -> partition, sequence
        std::map<std::uint64_t, wire::Notice> notices;
    };
    static constexpr Duration TICK = milliseconds(2);

    void serve(Fiber& fiber, Conn& conn, std::size_t door) {
        wire::FrameBudget budget;
        wire::FrameReader reader(conn, clock_, budget);
        Session session;
        session.door = door;
        const std::uint64_t generation = drop_generation_;
        while (generation == drop_generation_) {
            ByteVector out;
            Result<wire::FrameView> frame =
                reader.read(fiber, {wire::MAX_FRAME_LEN, clock_.now() + TICK});
            bool keep = true;
            if (frame.ok()) {
                keep = handle(session, *frame, out);
            } else if (!frame.is(ErrorCode::TIMED_OUT)) {
                break;
            }
            if (generation != drop_generation_) break;
            if (session.subscribed && revoke_wanted_) send_revoke(session, out);
            if (session.pull) serve_pull(session, out);
            const ByteSpan parts[] = {out};
            if (!out.empty() && !conn.write(fiber, parts, NEVER).ok()) break;
            if (!keep) break;
        }
        conn.close();
        if (session.topic != nullptr) {
            for (Partition& partition : session.topic->partitions) {
                if (partition.member_id == session.member_id) partition.assigned = false;
            }
        }
    }

    // False: the connection ends (what is in out is still sent).
    bool handle(Session& session, const wire::FrameView& frame, ByteVector& out) {
        const auto op = static_cast<wire::Op>(frame.op);
        seen.push_back({op, clock_.now()});
        if (session.pull && op != wire::Op::PULL) answer_pull(session, out);
        present_door = session.door;
        const Fault fault = script(op, count(op));
        ByteVector answer;
        switch (fault.kind) {
            case Fault::Kind::DROP_BEFORE:
                return false;
            case Fault::Kind::SILENCE:
                return true;
            case Fault::Kind::ERROR_BEFORE:
                wire::encode_err(out, fault.code, frame.op, fault.text);
                return !error_info(fault.code).closes;
            case Fault::Kind::DROP_AFTER:
                (void)execute(session, op, frame.payload, answer);
                return false;
            case Fault::Kind::ERROR_AFTER:
                (void)execute(session, op, frame.payload, answer);
                wire::encode_err(out, fault.code, frame.op, fault.text);
                return true;
            case Fault::Kind::NONE:
                break;
        }
        const bool keep = execute(session, op, frame.payload, answer);
        out.insert(out.end(), answer.begin(), answer.end());
        return keep;
    }

    bool refuse(ByteVector& out, ErrorCode code, wire::Op op) {
        wire::encode_err(out, code, static_cast<std::uint8_t>(op), "refused");
        return !error_info(code).closes;
    }

    bool execute(Session& session, wire::Op op, ByteSpan payload, ByteVector& out) {
        switch (op) {
            case wire::Op::CONNECT: {
                if (as_string_view(wire::decode_connect(payload)->token) != token) {
                    return refuse(out, ErrorCode::AUTH_FAILED, op);
                }
                session.connected = true;
                wire::encode_ok(out, op);
                return true;
            }
            case wire::Op::PING:
                wire::encode_ok(out, op);
                return true;
            case wire::Op::DECLARE:
                return declare(*wire::decode_declare(payload), out);
            case wire::Op::PUB:
                return publish(*wire::decode_pub(payload), out);
            case wire::Op::SUB:
                return subscribe(session, *wire::decode_sub(payload), out);
            case wire::Op::PULL: {
                const wire::Pull pull = *wire::decode_pull(payload);
                if (!session.subscribed) return refuse(out, ErrorCode::UNKNOWN_MEMBER, op);
                if (session.pull) return refuse(out, ErrorCode::MAX_WAITING_PULLS, op);
                std::vector<OwnershipEpoch> owned;
                for (const Partition& partition : session.topic->partitions) {
                    if (partition.assigned) owned.emplace_back(partition.ownership_epoch);
                }
                if (pull.ownership_epochs.size() > owned.size())
                    return refuse(out, ErrorCode::NOT_OWNER, op);
                session.pull = pull;
                session.pull_deadline = clock_.now() + milliseconds(pull.wait_ms);
                return true;
            }
            case wire::Op::ACK:
                return ack(session, *wire::decode_ack(payload), out);
            case wire::Op::NACK: {
                const wire::Nack nack = *wire::decode_nack(payload);
                nacks.push_back(nack.reason);
                const bool known = session.in_flight.erase(nack.delivery_id.value) > 0;
                if (nack.reason == wire::NackReason::REJECT) {
                    session.topic->partitions[nack.partition.value].settled.insert(nack.seq.value);
                }
                if (!known) return refuse(out, ErrorCode::UNKNOWN_DELIVERY, op);
                wire::encode_ok(out, op);
                return true;
            }
            case wire::Op::HEARTBEAT: {
                if (wire::decode_heartbeat(payload)->state == wire::HeartbeatState::LEAVE)
                    ++leave_count;
                wire::encode_ok(out, op);
                return true;
            }
            case wire::Op::CONTROL_ACK: {
                const wire::ControlAck control_ack = *wire::decode_control_ack(payload);
                const auto found = session.notices.find(control_ack.notice_id.value);
                if (found == session.notices.end())
                    return refuse(out, ErrorCode::STALE_GENERATION, op);
                Partition& partition = session.topic->partitions[found->second.partition.value];
                partition.assigned = found->second.kind == wire::NoticeKind::ASSIGN;
                if (found->second.kind == wire::NoticeKind::REVOKE) revoke_done = true;
                session.notices.erase(found);
                wire::encode_ok(out, op);
                return true;
            }
            case wire::Op::CREDIT: {
                const wire::Credit credit = *wire::decode_credit(payload);
                window_count = credit.credit_count;
                wire::encode_ok(
                    out, wire::CreditResult{credit.credit_count, credit.credit_bytes, 0, 0, 1});
                return true;
            }
            default:
                return refuse(out, ErrorCode::MALFORMED_PAYLOAD, op);
        }
    }

    bool declare(const wire::Declare& declare, ByteVector& out) {
        const auto found = topics.find(declare.topic);
        if ((declare.flags & wire::DECLARE_FLAG_DELETE) != 0) {
            if (found == topics.end())
                return refuse(out, ErrorCode::UNKNOWN_TOPIC, wire::Op::DECLARE);
            const wire::DeclareResult result{TopicId(found->second.id), 1,
                                             wire::DeclareOutcome::IDEMPOTENT_OK};
            topics.erase(found);
            wire::encode_ok(out, result);
            return true;
        }
        if (found == topics.end() && (declare.flags & wire::DECLARE_FLAG_LOOKUP) != 0) {
            return refuse(out, ErrorCode::UNKNOWN_TOPIC, wire::Op::DECLARE);
        }
        if (found == topics.end()) {
            add_topic(std::string(declare.topic), declare.partition_count);
            wire::encode_ok(
                out, wire::DeclareResult{TopicId(topics.find(declare.topic)->second.id),
                                         declare.partition_count, wire::DeclareOutcome::CREATED});
            return true;
        }
        wire::encode_ok(
            out, wire::DeclareResult{TopicId(found->second.id),
                                     static_cast<std::uint16_t>(found->second.partitions.size()),
                                     wire::DeclareOutcome::IDEMPOTENT_OK});
        return true;
    }

    Topic* find_topic(TopicId id) {
        for (auto& [name, topic] : topics) {
            if (topic.id == id.value) return &topic;
        }
        return nullptr;
    }

    bool publish(const wire::Pub& pub, ByteVector& out) {
        Topic* topic = find_topic(pub.topic_id);
        if (topic == nullptr) return refuse(out, ErrorCode::UNKNOWN_TOPIC, wire::Op::PUB);
        Partition& partition = topic->partitions[pub.partition.value];
        wire::PubResult result;
        if (pub.producer_id.value != 0) {
            auto& window = partition.window[pub.producer_id.value];
            const std::uint64_t last = window.empty() ? 0 : window.rbegin()->first;
            if (window.empty() && pub.producer_seq.value > 1) {
                return refuse(out, ErrorCode::SEQ_EXPIRED, wire::Op::PUB);
            }
            if (pub.producer_seq.value > last + 1)
                return refuse(out, ErrorCode::SEQ_GAP, wire::Op::PUB);
            if (const auto known = window.find(pub.producer_seq.value); known != window.end()) {
                result.sequence = Sequence(known->second);
                result.result_flags = wire::RESULT_FLAG_DEDUPLICATED;
                wire::encode_ok(out, result);
                return true;
            }
            window[pub.producer_seq.value] = partition.log.size() + 1;
        }
        partition.log.push_back({std::string(as_string_view(pub.key)),
                                 std::string(as_string_view(pub.value)), pub.producer_id.value,
                                 pub.producer_seq.value});
        result.sequence = Sequence(partition.log.size());
        result.commit_seq = result.sequence;
        wire::encode_ok(out, result);
        return true;
    }

    bool subscribe(Session& session, const wire::Sub& sub, ByteVector& out) {
        session.topic = find_topic(sub.topic_id);
        if (session.topic == nullptr) return refuse(out, ErrorCode::UNKNOWN_TOPIC, wire::Op::SUB);
        session.subscribed = true;
        session.member_id = ++member_count_;
        window_count = sub.credit_count;
        wire::SubResult result;
        result.subscription_id = SubscriptionId(1);
        result.member_id = MemberId(session.member_id);
        result.membership_epoch = MembershipEpoch(static_cast<std::uint32_t>(member_count_));
        wire::encode_ok(out, result);
        for (std::size_t i = 0; i < session.topic->partitions.size(); ++i) {
            ++session.topic->partitions[i].ownership_epoch;
            session.topic->partitions[i].assigned = false;
            session.topic->partitions[i].member_id = session.member_id;
            send_notice(session, i, wire::NoticeKind::ASSIGN, out);
        }
        return true;
    }

    void send_notice(Session& session, std::size_t partition, wire::NoticeKind kind,
                     ByteVector& out) {
        wire::Notice notice;
        notice.notice_id = NoticeId(++notice_count_);
        notice.kind = kind;
        notice.group_id = GroupId(1);
        notice.membership_epoch = MembershipEpoch(static_cast<std::uint32_t>(member_count_));
        notice.assignment_epoch = AssignmentEpoch(static_cast<std::uint32_t>(notice_count_));
        notice.ownership_epoch =
            OwnershipEpoch(session.topic->partitions[partition].ownership_epoch);
        notice.topic_id = TopicId(session.topic->id);
        notice.partition = PartitionIndex(static_cast<std::uint16_t>(partition));
        notice.member_id = MemberId(session.member_id);
        session.notices[notice_count_] = notice;
        wire::encode(out, notice);
    }

    void send_revoke(Session& session, ByteVector& out) {
        const std::uint16_t partition = *revoke_wanted_;
        revoke_wanted_.reset();
        revoke_done = false;
        send_notice(session, partition, wire::NoticeKind::REVOKE, out);
    }

    bool ack(Session& session, const wire::Ack& ack, ByteVector& out) {
        if ((ack.flags & wire::ACK_FLAG_PROGRESS) != 0) {
            ++progress_count;
            wire::encode_ok(out, wire::Op::ACK);
            return true;
        }
        Partition& partition = session.topic->partitions[ack.partition.value];
        if (!partition.assigned || ack.ownership_epoch.value != partition.ownership_epoch) {
            return refuse(out, ErrorCode::STALE_OWNER, wire::Op::ACK);
        }
        session.in_flight.erase(ack.delivery_id.value);
        if (!partition.settled.insert(ack.seq.value).second) {
            return refuse(out, ErrorCode::UNKNOWN_DELIVERY, wire::Op::ACK);
        }
        wire::encode_ok(out, wire::Op::ACK);
        return true;
    }

    void serve_pull(Session& session, ByteVector& out) {
        const std::size_t before = out.size();
        for (std::size_t i = 0; i < session.topic->partitions.size(); ++i) {
            Partition& partition = session.topic->partitions[i];
            if (!partition.assigned) continue;
            std::set<std::uint64_t> flying;
            for (const auto& [delivery, where] : session.in_flight) {
                if (where.first == i) flying.insert(where.second);
            }
            for (std::uint64_t sequence = 1; sequence <= partition.log.size(); ++sequence) {
                if (session.in_flight.size() >= window_count) break;
                if (partition.settled.contains(sequence) || flying.contains(sequence)) continue;
                send_msg(session, i, sequence, out);
            }
        }
        if (out.size() != before || clock_.now() >= session.pull_deadline)
            answer_pull(session, out);
    }

    void send_msg(Session& session, std::size_t index, std::uint64_t sequence, ByteVector& out) {
        Partition& partition = session.topic->partitions[index];
        const Record& record = partition.log[sequence - 1];
        wire::Msg msg;
        msg.subscription_id = SubscriptionId(1);
        msg.topic_id = TopicId(session.topic->id);
        msg.partition = PartitionIndex(static_cast<std::uint16_t>(index));
        msg.sequence = Sequence(sequence);
        msg.delivery_id = DeliveryId(++delivery_count_);
        msg.attempt = static_cast<std::uint16_t>(++partition.deliveries[sequence]);
        msg.ownership_epoch = OwnershipEpoch(partition.ownership_epoch);
        msg.key = as_byte_span(record.key);
        msg.value = as_byte_span(record.value);
        session.in_flight[delivery_count_] = {index, sequence};
        wire::encode(out, msg);
    }

    void answer_pull(Session& session, ByteVector& out) {
        session.pull.reset();
        wire::encode_ok(out, wire::Op::PULL);
    }

    Scheduler& scheduler_;
    const Clock& clock_;
    std::uint64_t drop_generation_ = 0;
    std::uint16_t next_topic_id_ = 1;
    std::uint64_t member_count_ = 0;
    std::uint64_t notice_count_ = 0;
    std::uint64_t delivery_count_ = 0;
    std::optional<std::uint16_t> revoke_wanted_;
};

// A world with one fake broker at "broker:1".
struct ClientWorld {
    explicit ClientWorld(std::uint64_t seed = 1) : rng(seed) {
        net.clock = &world.clock;
        broker.listen(net, "broker:1");
    }
    client::ClientEnv env() { return {world.clock, world.scheduler, net, rng, log}; }
    client::LinkOptions link_options() {
        client::LinkOptions options;
        options.addresses = {"broker:1"};
        return options;
    }
    // Runs body as a fiber until it is done, or so much time has passed; false when it did not end.
    bool run(std::function<void(Fiber&)> body, Duration limit = seconds(300)) {
        bool done = false;
        world.scheduler.spawn("test", [&](Fiber& fiber) {
            body(fiber);
            done = true;
        });
        const MonoTime end = world.clock.now() + limit;
        while (!done && world.clock.now() < end) {
            const MonoTime target = world.clock.now() + milliseconds(1);
            world.scheduler.run_all(target);
            world.clock.time = std::max(world.clock.time, target);
        }
        return done;
    }
    void sleep(Fiber& fiber, Duration duration) {
        (void)world.scheduler.sleep_until(fiber, world.clock.now() + duration);
    }

    SeededRng rng;
    NullLog log;
    FakeNet net;
    ManualWorld world;
    FakeBroker broker{world.scheduler, world.clock};
};

}  // namespace mortar::testing::inline client_fakes
