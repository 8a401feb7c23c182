// SIGTERM under load: what was answered OK is there afterwards, what was not is told or cut off,
// and the next start has next to nothing to read.
// covers contract 8 (SIGTERM), R1, DUR
#include <gtest/gtest.h>

#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "tests/process/mortarmqd.h"

namespace mortar::process {
namespace {

constexpr int PRODUCER_COUNT = 3;
constexpr std::uint64_t OUTSTANDING_MAX = 64;
constexpr std::size_t VALUE_BYTES = 2048;

std::string value_of(int producer, std::uint64_t seq) {
    std::string value = std::to_string(producer) + ":" + std::to_string(seq) + ":";
    value.resize(VALUE_BYTES, 'x');
    return value;
}

// Publishes with a full pipeline until the connection ends.
struct Producer {
    std::uint64_t sent_count = 0;
    std::atomic<std::uint64_t> ok_count = 0;  // others look while it runs
    std::uint64_t refused_count = 0;
    std::string fault;

    void run(RawClient& client, TopicId topic, int number) {
        while (client.is_open()) {
            while (sent_count - ok_count - refused_count < OUTSTANDING_MAX) {
                wire::Pub pub = pub_of(topic, value_of(number, sent_count + 1));
                pub.producer_id = ProducerId(static_cast<std::uint64_t>(number));
                pub.producer_seq = ProducerSeq(sent_count + 1);
                const std::string value = value_of(number, sent_count + 1);
                pub.value = as_byte_span(value);
                if (!client.say(pub)) break;
                ++sent_count;
            }
            const std::optional<Answer> answer = client.read_answer();
            if (!answer.has_value()) {
                if (client.is_open()) fault = "a PUB was never answered";
                return;
            }
            if (answer->code == ErrorCode{}) {
                if (refused_count > 0) fault = "OK behind a refusal: order is broken";
                ++ok_count;
            } else {
                ++refused_count;
            }
        }
    }
};

std::map<int, std::vector<std::uint64_t>> consume_all(Broker& broker, TopicId topic) {
    std::map<int, std::vector<std::uint64_t>> seen;
    const auto client = connected_client(broker.client_port());
    const std::optional<Subscribed> member = subscribe(*client, "check", topic, 1, 1024, 16u << 20);
    if (!member.has_value()) return seen;
    while (true) {
        const Answer pulled = client->ask(pull_of(*member, 512, 0));
        EXPECT_EQ(pulled.code, ErrorCode{}) << pulled.text;
        if (client->pushes.empty()) return seen;
        const std::vector<Answer> pushes = std::exchange(client->pushes, {});
        for (const Answer& push : pushes) {
            const wire::Msg msg = wire::decode_msg(push.payload).value();
            const std::string value(as_string_view(msg.value));
            const int producer = std::stoi(value);
            const std::uint64_t seq = msg.producer_seq.value;
            EXPECT_EQ(value, value_of(producer, seq));
            seen[producer].push_back(seq);
            EXPECT_TRUE(client->say(ack_of(msg)));
        }
        for (std::size_t i = 0; i < pushes.size(); ++i)
            EXPECT_EQ(client->read_answer().value_or(RawClient::closed_answer()).code, ErrorCode{});
    }
}

TEST(Shutdown, answers_pubs_in_flight_and_keeps_what_it_acknowledged) {
    TempFolder folder;
    const std::string data_dir = folder / "data";
    TopicId topic;
    std::vector<Producer> producers(PRODUCER_COUNT);
    {
        Broker broker(data_dir);
        topic = declare_topic(*connected_client(broker.client_port()), "orders", 1);
        std::vector<std::unique_ptr<RawClient>> clients;
        std::vector<std::thread> threads;
        for (int i = 0; i < PRODUCER_COUNT; ++i) {
            clients.push_back(connected_client(broker.client_port()));
            threads.emplace_back([&, i] {
                producers[static_cast<std::size_t>(i)].run(*clients[static_cast<std::size_t>(i)],
                                                           topic, i + 1);
            });
        }
        const auto is_under_way = [&] {
            return std::all_of(producers.begin(), producers.end(), [](const Producer& producer) {
                return producer.ok_count > 4 * OUTSTANDING_MAX;
            });
        };
        ASSERT_TRUE(eventually(is_under_way));
        const SteadyTime asked = now();
        broker.program().signal(SIGTERM);
        const std::optional<int> exit_code = broker.program().wait(Millis(30'000));
        ASSERT_TRUE(exit_code.has_value()) << broker.program().output();
        EXPECT_EQ(*exit_code, 0) << broker.program().output();
        EXPECT_LT(now() - asked, Millis(15'000));
        for (std::thread& thread : threads)
            thread.join();
    }
    std::uint64_t acknowledged_bytes = 0;
    for (const Producer& producer : producers) {
        EXPECT_EQ(producer.fault, "");
        EXPECT_GT(producer.ok_count, OUTSTANDING_MAX);
        acknowledged_bytes += producer.ok_count * VALUE_BYTES;
    }

    // What a start reads over nothing at all: the program's own files.
    std::uint64_t bare_bytes = 0;
    {
        TempFolder empty;
        Broker broker(empty / "data");
        bare_bytes = broker.read_bytes();
        EXPECT_EQ(broker.stop(), 0);
    }
    Broker broker(data_dir);
    const std::uint64_t recovery_bytes = broker.read_bytes() - bare_bytes;
    EXPECT_LT(recovery_bytes, 256u << 10) << "of " << acknowledged_bytes << " acknowledged";

    const std::map<int, std::vector<std::uint64_t>> seen = consume_all(broker, topic);
    for (int i = 0; i < PRODUCER_COUNT; ++i) {
        const Producer& producer = producers[static_cast<std::size_t>(i)];
        const std::vector<std::uint64_t>& seqs = seen.at(i + 1);
        // In order, once, without a hole, at least as far as it was acknowledged.
        for (std::size_t at = 0; at < seqs.size(); ++at)
            ASSERT_EQ(seqs[at], at + 1);
        EXPECT_GE(seqs.size(), producer.ok_count);
        EXPECT_LE(seqs.size(), producer.sent_count);
    }
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0);
}

TEST(Shutdown, waits_for_no_client_that_reads_nothing) {
    TempFolder folder;
    Broker broker(folder / "data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "orders", 1);
    const std::string value(1u << 20, 'x');
    for (int i = 0; i < 24; ++i)
        EXPECT_EQ(client->ask(pub_of(topic, value)).code, ErrorCode{});
    const auto deaf = connected_client(broker.client_port());
    const std::optional<Subscribed> member = subscribe(*deaf, "deaf", topic, 1, 65'535, 512u << 20);
    ASSERT_TRUE(member.has_value());
    deaf->say(pull_of(*member, 0, 5'000));
    // More than its answers: the broker is sending what nobody takes.
    const auto is_sent_to = [&] {
        int unread_bytes = 0;
        return ::ioctl(deaf->descriptor(), FIONREAD, &unread_bytes) == 0 &&
               unread_bytes > 64 * 1024;
    };
    ASSERT_TRUE(eventually(is_sent_to));
    const SteadyTime asked = now();
    EXPECT_EQ(broker.stop(), 0) << broker.program().output();
    EXPECT_LT(now() - asked, Millis(12'000));
}

TEST(Shutdown, a_second_signal_changes_nothing) {
    TempFolder folder;
    Broker broker(folder / "data");
    broker.program().signal(SIGINT);
    broker.program().signal(SIGTERM);
    EXPECT_EQ(broker.stop(), 0) << broker.program().output();
}

}  // namespace
}  // namespace mortar::process
