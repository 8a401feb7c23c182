// Every registered code, provoked by a client of a real broker where one node can be brought to
// it; the others stand in a table with the reason. Together they are the registry.
// covers contract 3, E4
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <thread>

#include "io-real/real_disk.h"
#include "tests/process/mortarmqd.h"
#include "tests/process/stalled_disk.h"

namespace mortar::process {
namespace {

using wire::Op;

wire::Nack nack_of(const wire::Msg& msg, wire::NackReason reason = wire::NackReason::RETRY) {
    return {msg.subscription_id, msg.topic_id,        msg.partition, msg.sequence,
            msg.delivery_id,     msg.ownership_epoch, reason,        0};
}

struct Elsewhere {
    ErrorCode code;
    const char* reason;
};

constexpr const char* NEVER_SENT = "never sent in v0 (contract E4)";
constexpr const char* REPLICATION = "needs a cluster: QuorumLevels";
constexpr const char* ELECTIONS = "for operators, in log and /stats: clients get `leader unknown`";

// Codes that no client can get from one node of this version, or not in a test's time.
constexpr Elsewhere ELSEWHERE[] = {
    {ErrorCode::GROUP_ASSIGNMENT_LIMIT, NEVER_SENT},
    {ErrorCode::UNKNOWN_GROUP, NEVER_SENT},
    {ErrorCode::RATE_LIMITED, NEVER_SENT},
    {ErrorCode::PRODUCER_EPOCH_STALE, "answers PUBs of a leader that lost leadership"},
    {ErrorCode::DLQ_PATH_OVERFLOW, "counts hops of replays: dead letters are not in this version"},
    {ErrorCode::MUTATION_FENCED,
     "answers mutations of a leader that lost leadership, or whose sync fails: Broker's unit "
     "tests"},
    {ErrorCode::STORAGE_HIGH_WATERMARK,
     "needs a file system of its own: Refusals.a_disk_that_fills_up_stops_publishing_only"},
    {ErrorCode::SLOW_CONSUMER,
     "takes more than 30 s: Session.S5_tells_a_slow_consumer_and_closes, on simulated time"},
    {ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH, REPLICATION},
    {ErrorCode::FOLLOWER_LAG, "a warning in the log, never an ERR"},
    {ErrorCode::STALE_LEADER_EPOCH, REPLICATION},
    {ErrorCode::LEASE_EXPIRED, "a one-node cluster needs no lease (contract 8)"},
    {ErrorCode::CATCHUP_REQUIRED, "between peers"},
    {ErrorCode::LOG_GAP, "between peers"},
    {ErrorCode::QUORUM_RECOVERED, "information, never an ERR"},
    {ErrorCode::UNCLEAN_ELECTION_REJECTED, ELECTIONS},
    {ErrorCode::ELECTION_TIMEOUT, ELECTIONS},
};

// Provoked by the cases below.
constexpr ErrorCode PROVOKED[] = {
    ErrorCode::BAD_LENGTH,
    ErrorCode::UNKNOWN_OP,
    ErrorCode::MALFORMED_PAYLOAD,
    ErrorCode::UNSUPPORTED_VERSION,
    ErrorCode::NOT_AUTHENTICATED,
    ErrorCode::AUTH_FAILED,
    ErrorCode::AUTH_TIMEOUT,
    ErrorCode::UNKNOWN_TOPIC,
    ErrorCode::UNKNOWN_PARTITION,
    ErrorCode::INTERNAL,
    ErrorCode::INVALID_TOPIC,
    ErrorCode::MUTATION_NOT_PACKABLE,
    ErrorCode::SEQ_GAP,
    ErrorCode::SEQ_EXPIRED,
    ErrorCode::PRODUCER_SEQ_INVALID,
    ErrorCode::STALE_GENERATION,
    ErrorCode::NOT_OWNER,
    ErrorCode::STALE_OWNER,
    ErrorCode::UNKNOWN_DELIVERY,
    ErrorCode::GROUP_MEMBER_LIMIT,
    ErrorCode::UNKNOWN_MEMBER,
    ErrorCode::MAX_WAITING_PULLS,
    ErrorCode::DLQ_UNAVAILABLE,
    ErrorCode::TOPIC_EXISTS_MISMATCH,
    ErrorCode::GROUP_EXISTS_MISMATCH,
    ErrorCode::METADATA_READ_ONLY,
    ErrorCode::METADATA_QUARANTINED,
    ErrorCode::QUOTA_EXCEEDED,
    ErrorCode::MESSAGE_EXCEEDS_CREDIT,
    ErrorCode::NO_CREDIT,
    ErrorCode::QUORUM_LOST,
    ErrorCode::READ_ONLY_DEGRADED,
    ErrorCode::DIVERGENT_COMMITTED,
};

// By of_a_disk_that_does_not_answer alone, which needs the right to trace a child.
constexpr ErrorCode PROVOKED_BY_A_STALLED_DISK[] = {ErrorCode::BACKPRESSURE};

TEST(ContractCodes, are_all_accounted_for) {
    std::map<ErrorCode, int> counts;
    for (const ErrorCode code : PROVOKED_BY_A_STALLED_DISK)
        ++counts[code];
    for (const ErrorCode code : PROVOKED)
        ++counts[code];
    for (const Elsewhere& each : ELSEWHERE)
        ++counts[each.code];
    EXPECT_EQ(counts.size(), 51u);
    for (const ErrorInfo& info : all_errors()) {
        if (is_local(info.code)) continue;
        EXPECT_EQ(counts[info.code], 1) << info.name;
    }
    std::string missing;
    for (const ErrorCode code : PROVOKED_BY_A_STALLED_DISK)
        missing += " " + name_of(code);
    if (!is_tracing_allowed()) GTEST_SKIP() << "nothing provokes here:" << missing;
}

void expect_code(const Answer& answer, ErrorCode code) {
    EXPECT_EQ(name_of(answer.code), name_of(code)) << answer.text;
    EXPECT_FALSE(answer.text.empty()) << name_of(code);  // contract S6: it names the fix
    EXPECT_LE(answer.text.size(), wire::MAX_ERR_MESSAGE);
}

ByteVector raw_frame(std::uint32_t length, std::uint8_t op, std::size_t payload_bytes) {
    ByteVector frame;
    ByteWriter writer(frame);
    writer.u32(length);
    writer.u8(op);
    writer.zeros(payload_bytes);
    return frame;
}

// What closes the connection: each on its own.
void expect_closing(const Broker& broker, ErrorCode code, ByteSpan bytes, bool connects_first) {
    RawClient client(broker.client_port());
    EXPECT_TRUE(!connects_first || client.connect());
    client.send(bytes);
    expect_code(client.read_answer().value_or(RawClient::closed_answer()), code);
    EXPECT_TRUE(error_info(code).closes);
    EXPECT_TRUE(client.is_closed_within(Millis(10'000))) << name_of(code);
}

template <class Message>
ByteVector frame_of(const Message& message) {
    ByteVector frame;
    wire::encode(frame, message);
    return frame;
}

TEST(ContractCodes, of_the_session) {
    TempFolder folder;
    Broker broker(folder / "data");
    RawClient silent(broker.client_port());  // its 10 s begin now
    const SteadyTime silent_since = now();

    expect_closing(broker, ErrorCode::BAD_LENGTH, raw_frame(0, 0, 0), false);
    expect_closing(broker, ErrorCode::BAD_LENGTH, raw_frame(wire::MAX_FRAME_LEN + 1, 3, 0), true);
    expect_closing(broker, ErrorCode::UNKNOWN_OP, raw_frame(1, 0x42, 0), true);
    expect_closing(broker, ErrorCode::MALFORMED_PAYLOAD, raw_frame(2, 0x07, 1), true);
    expect_closing(broker, ErrorCode::NOT_AUTHENTICATED, frame_of(pub_of(TopicId(1), "x")), false);
    wire::Connect newer;
    newer.protocol_version = 2;
    expect_closing(broker, ErrorCode::UNSUPPORTED_VERSION, frame_of(newer), false);
    wire::Connect stranger;
    stranger.token = as_byte_span("not a token");
    expect_closing(broker, ErrorCode::AUTH_FAILED, frame_of(stranger), false);

    expect_code(silent.read_answer().value_or(RawClient::closed_answer()), ErrorCode::AUTH_TIMEOUT);
    EXPECT_GE(now() - silent_since, Millis(9'500));
    EXPECT_TRUE(silent.is_closed_within(Millis(10'000)));
    EXPECT_TRUE(broker.is_healthy());
}

TEST(ContractCodes, of_topics_and_publishing) {
    TempFolder folder;
    Broker broker(folder / "data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "orders", 1);

    expect_code(client->ask(pub_of(TopicId(999), "x")), ErrorCode::UNKNOWN_TOPIC);
    expect_code(client->ask(wire::Declare{"nobody", 0, wire::DECLARE_FLAG_LOOKUP}),
                ErrorCode::UNKNOWN_TOPIC);
    wire::Pub pub = pub_of(topic, "x");
    pub.partition = PartitionIndex(7);
    expect_code(client->ask(pub), ErrorCode::UNKNOWN_PARTITION);
    expect_code(client->ask(wire::Declare{"orders..new", 1, 0}), ErrorCode::INVALID_TOPIC);
    expect_code(client->ask(pub_of(TopicId(2), "x")), ErrorCode::INVALID_TOPIC);
    expect_code(client->ask(wire::Declare{std::string(65535, 'a'), 1, 0}),
                ErrorCode::MUTATION_NOT_PACKABLE);
    expect_code(client->ask(wire::Declare{"orders", 3, 0}), ErrorCode::TOPIC_EXISTS_MISMATCH);
    expect_code(client->ask(wire::Declare{"wide", 1025, 0}), ErrorCode::QUOTA_EXCEEDED);

    expect_code(client->ask(pub_of(topic, "x", 7, 2)), ErrorCode::SEQ_EXPIRED);
    EXPECT_EQ(client->ask(pub_of(topic, "x", 7, 1)).code, ErrorCode{});
    expect_code(client->ask(pub_of(topic, "x", 7, 5)), ErrorCode::SEQ_GAP);
    expect_code(client->ask(pub_of(topic, "x", 0, 1)), ErrorCode::PRODUCER_SEQ_INVALID);
    EXPECT_EQ(client->ask(wire::Ping{}).code, ErrorCode{});  // none of these closes
    EXPECT_TRUE(broker.is_healthy());
}

TEST(ContractCodes, of_consuming) {
    TempFolder folder;
    Broker broker(folder / "data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "orders", 1);
    const TopicId other = declare_topic(*client, "others", 1);
    for (const char* value : {"a", "b", "a message that is larger than the window"})
        EXPECT_EQ(client->ask(pub_of(topic, value)).code, ErrorCode{});

    const std::optional<Subscribed> member = subscribe(*client, "billing", topic, 1, 2, 30);
    ASSERT_TRUE(member.has_value());
    const auto second = connected_client(broker.client_port());
    wire::Sub sub;
    sub.group = "billing";
    sub.topic_id = topic;
    expect_code(second->ask(sub), ErrorCode::GROUP_MEMBER_LIMIT);
    sub.topic_id = other;
    expect_code(second->ask(sub), ErrorCode::GROUP_EXISTS_MISMATCH);
    expect_code(second->ask(pull_of(*member, 1, 0)), ErrorCode::UNKNOWN_MEMBER);

    // Epochs.
    wire::Pull pull = pull_of(*member, 1, 0);
    pull.membership_epoch = pull.membership_epoch.plus(1);
    expect_code(client->ask(pull), ErrorCode::STALE_GENERATION);
    pull = pull_of(*member, 1, 0);
    const OwnershipEpoch owned = member->notices.at(0).ownership_epoch;
    const OwnershipEpoch too_many[] = {owned, owned};
    const ByteVector packed = wire::OwnershipEpochs::pack(too_many);
    pull.ownership_epochs = wire::OwnershipEpochs(packed);
    expect_code(client->ask(pull), ErrorCode::NOT_OWNER);

    // Settling.
    EXPECT_EQ(client->ask(pull_of(*member, 2, 0)).code, ErrorCode{});
    ASSERT_EQ(client->pushes.size(), 2u);
    const wire::Msg first = wire::decode_msg(client->pushes[0].payload).value();
    const wire::Msg next = wire::decode_msg(client->pushes[1].payload).value();
    expect_code(client->ask(pull_of(*member, 1, 0)), ErrorCode::NO_CREDIT);
    wire::Ack ack = ack_of(first);
    ack.ownership_epoch = OwnershipEpoch(0);
    expect_code(client->ask(ack), ErrorCode::STALE_OWNER);
    EXPECT_EQ(client->ask(ack_of(first)).code, ErrorCode{});
    expect_code(client->ask(ack_of(first)), ErrorCode::UNKNOWN_DELIVERY);
    expect_code(client->ask(nack_of(next, wire::NackReason::REJECT)), ErrorCode::DLQ_UNAVAILABLE);
    EXPECT_EQ(client->ask(ack_of(next)).code, ErrorCode{});
    expect_code(client->ask(pull_of(*member, 1, 0)), ErrorCode::MESSAGE_EXCEEDS_CREDIT);

    // Two PULLs that wait. The first ends with the second, in its turn.
    const std::optional<Subscribed> waiting = subscribe(*second, "idle", other, 1);
    ASSERT_TRUE(waiting.has_value());
    second->say(pull_of(*waiting, 1, 5'000));
    second->say(pull_of(*waiting, 1, 5'000));
    EXPECT_EQ(second->read_answer().value_or(RawClient::closed_answer()).code, ErrorCode{});
    expect_code(second->read_answer().value_or(RawClient::closed_answer()),
                ErrorCode::MAX_WAITING_PULLS);
    EXPECT_TRUE(broker.is_healthy());
}

// From now on the broker cannot write behind this place of any file.
void limit_files(Broker& broker, rlim_t bytes) {
    const rlimit limit{bytes, RLIM_INFINITY};
    ASSERT_EQ(::prlimit(broker.program().pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
}

template <class Message>
Answer ask_until(RawClient& client, const Message& message, ErrorCode code) {
    Answer answer;
    for (const SteadyTime deadline = now() + Millis(10'000); now() < deadline;) {
        answer = client.ask(message);
        if (answer.code == code) return answer;
        std::this_thread::sleep_for(Millis(20));
    }
    return answer;
}

TEST(ContractCodes, of_a_disk_that_takes_nothing) {
    TempFolder folder;
    Broker broker(folder / "data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "orders", 1);
    for (const char* value : {"a", "a2"})
        EXPECT_EQ(client->ask(pub_of(topic, value)).code, ErrorCode{});
    const std::optional<Subscribed> member = subscribe(*client, "billing", topic, 1);
    ASSERT_TRUE(member.has_value());
    EXPECT_EQ(client->ask(pull_of(*member, 2, 1'000)).code, ErrorCode{});
    ASSERT_EQ(client->pushes.size(), 2u);
    const ByteVector settled = client->pushes[0].payload;
    const ByteVector delivered = client->pushes[1].payload;
    const wire::Ack ack = ack_of(wire::decode_msg(delivered).value());
    // Nothing of the deliveries is still to be written.
    EXPECT_EQ(client->ask(ack_of(wire::decode_msg(settled).value())).code, ErrorCode{});

    limit_files(broker, 0);
    expect_code(client->ask(pub_of(topic, "b", 9, 1)), ErrorCode::READ_ONLY_DEGRADED);
    expect_code(ask_until(*client, pub_of(topic, "c"), ErrorCode::QUORUM_LOST),
                ErrorCode::QUORUM_LOST);
    expect_code(client->ask(ack), ErrorCode::INTERNAL);
    // The ledger is closed from then on: nothing is executed.
    expect_code(client->ask(ack), ErrorCode::QUORUM_LOST);
    expect_code(client->ask(nack_of(wire::decode_msg(delivered).value())), ErrorCode::QUORUM_LOST);
    expect_code(client->ask(wire::Declare{"later", 1, 0}), ErrorCode::METADATA_READ_ONLY);

    // It ends by itself when the disk is back, and nothing was lost or doubled.
    limit_files(broker, RLIM_INFINITY);
    const Answer published = ask_until(*client, pub_of(topic, "b", 9, 1), ErrorCode{});
    ASSERT_EQ(published.code, ErrorCode{}) << published.text;
    EXPECT_EQ(wire::decode_pub_result(published.result)->sequence, Sequence(3));
    const Answer acked = ask_until(*client, ack, ErrorCode{});
    EXPECT_TRUE(acked.code == ErrorCode{} || acked.code == ErrorCode::UNKNOWN_DELIVERY)
        << acked.text;
    EXPECT_EQ(broker.stop(), 0);
}

TEST(ContractCodes, of_a_disk_that_does_not_answer) {
    if (!is_tracing_allowed()) GTEST_SKIP() << "no right to trace a child: cannot stall its disk";
    TempFolder folder;
    Broker broker(folder / "data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "orders", 4);
    for (const char* value : {"a", "a2"})
        EXPECT_EQ(client->ask(pub_of(topic, value)).code, ErrorCode{});
    const std::optional<Subscribed> member = subscribe(*client, "billing", topic, 4);
    ASSERT_TRUE(member.has_value());
    EXPECT_EQ(client->ask(pull_of(*member, 2, 1'000)).code, ErrorCode{});
    ASSERT_EQ(client->pushes.size(), 2u);
    const ByteVector first = client->pushes[0].payload;
    const ByteVector second = client->pushes[1].payload;
    const wire::Ack ack = ack_of(wire::decode_msg(first).value());
    // All threads of the pool must be there before they can all be held: each PUB is a write for one of them.
    constexpr std::uint16_t WRITES = 2 * RealDisk::THREADS;
    const TopicId warm = declare_topic(*client, "warm", WRITES);
    const auto thread_count = [&broker] { return disk_thread_count(broker.program().pid()); };
    for (int round = 0; round < 1000 && thread_count() < RealDisk::THREADS; ++round) {
        for (std::uint16_t p = 0; p < WRITES; ++p) {
            wire::Pub pub = pub_of(warm, "warm");
            pub.partition = PartitionIndex(p);
            client->say(pub);
        }
        for (int p = 0; p < WRITES; ++p)
            EXPECT_EQ(client->read_answer().value_or(RawClient::closed_answer()).code, ErrorCode{});
    }
    ASSERT_EQ(thread_count(), RealDisk::THREADS);
    {
        StalledDisk stalled(broker.program().pid());
        ASSERT_TRUE(stalled.is_allowed());
        client->say(wire::Declare{"later", 1, 0});
        client->say(ack);
        client->say(nack_of(wire::decode_msg(second).value()));
        wire::Sub sub;
        sub.group = "later";
        sub.topic_id = topic;
        client->say(sub);
        client->say(pub_of(topic, "b", 9, 1));
        for (const char* request : {"DECLARE", "ACK", "NACK", "SUB", "PUB"}) {
            SCOPED_TRACE(request);
            expect_code(client->read_answer().value_or(RawClient::closed_answer()),
                        ErrorCode::READ_ONLY_DEGRADED);
        }
        expect_code(client->ask(ack), ErrorCode::QUORUM_LOST);
        // The node takes 64 MiB that it cannot write, a connection 32 MiB.
        const std::string value(wire::MAX_VALUE_LEN, 'x');
        std::vector<std::unique_ptr<RawClient>> heavy;
        for (int i = 0; i < 3; ++i) {
            heavy.push_back(connected_client(broker.client_port()));
            EXPECT_TRUE(heavy.back()->say(pub_of(topic, value)));
            EXPECT_TRUE(heavy.back()->say(pub_of(topic, value)));
        }
        const auto refused = connected_client(broker.client_port());
        expect_code(refused->ask(pub_of(topic, value)), ErrorCode::BACKPRESSURE);
    }
    const Answer published = ask_until(*client, pub_of(topic, "b", 9, 1), ErrorCode{});
    EXPECT_EQ(published.code, ErrorCode{}) << published.text;
    // The ACK that was not answered in time counts all the same.
    expect_code(ask_until(*client, ack, ErrorCode::UNKNOWN_DELIVERY), ErrorCode::UNKNOWN_DELIVERY);
    EXPECT_EQ(broker.stop(), 0);
}

std::string only_segment_of(const std::string& data_dir, TopicId topic) {
    return data_dir + "/topics/" + std::to_string(topic.value) + "/0/00000000000000000001.seg";
}

TEST(ContractCodes, of_damage) {
    TempFolder folder;
    const std::string data_dir = folder / "data";
    TopicId damaged;
    TopicId sound;
    {
        Broker broker(data_dir);
        const auto client = connected_client(broker.client_port());
        damaged = declare_topic(*client, "damaged", 1);
        sound = declare_topic(*client, "sound", 1);
        for (const TopicId topic : {damaged, sound})
            EXPECT_EQ(client->ask(pub_of(topic, std::string(400, 'v'))).code, ErrorCode{});
        EXPECT_EQ(broker.stop(), 0);
    }
    // Below the checkpoint that an orderly end leaves: no torn tail explains it.
    poke_file(only_segment_of(data_dir, damaged), 200, 0xFF);
    {
        Broker broker(data_dir);
        const auto client = connected_client(broker.client_port());
        expect_code(client->ask(pub_of(damaged, "x")), ErrorCode::DIVERGENT_COMMITTED);
        EXPECT_EQ(client->ask(pub_of(sound, "x")).code, ErrorCode{});
        EXPECT_EQ(broker.stop(), 0);
    }
    // The metadata, in snapshot and log: what stands behind the first topic tells that it was there.
    int damaged_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(data_dir + "/metadata")) {
        const std::size_t name = read_file(entry.path().string()).find("damaged");
        if (name == std::string::npos) continue;
        poke_file(entry.path().string(), name, 'D');
        ++damaged_count;
    }
    ASSERT_GT(damaged_count, 0);
    Broker broker(data_dir);
    const auto client = connected_client(broker.client_port());
    expect_code(client->ask(pub_of(sound, "x")), ErrorCode::METADATA_QUARANTINED);
    expect_code(client->ask(wire::Declare{"sound", 1, 0}), ErrorCode::METADATA_QUARANTINED);
    wire::Sub sub;
    sub.group = "billing";
    sub.topic_id = sound;
    sub.partition = ANY_PARTITION;
    expect_code(client->ask(sub), ErrorCode::METADATA_QUARANTINED);
    EXPECT_NE(broker.http_get("/healthz").find("quarantined"), std::string::npos);
}

}  // namespace
}  // namespace mortar::process
