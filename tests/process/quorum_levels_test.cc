// Three real nodes with all, two and one of them running: what producers get, what /stats says, who
// is named as the leader; recovery without a restart of the one that stayed.
// covers contract 8 (levels 2, 1, 0), R2, R3, R4
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/process/mortarmqd.h"

namespace mortar::process {
namespace {

constexpr int NODE_COUNT = 3;
constexpr int PORT_STEP = 10;
constexpr int BASE_PORT_FIRST = 20'000;
constexpr int BASE_PORT_COUNT = 10'000;

// tools/cluster over a folder of its own; what still runs at the end is killed.
class LoopbackCluster {
  public:
    LoopbackCluster() {
        // The tool refuses ports that are taken: then the next.
        for (int tries = 0; tries < 5; ++tries) {
            base_port_ = BASE_PORT_FIRST + (::getpid() * 31 + tries * 97) % BASE_PORT_COUNT;
            const Ran up = tool({"--base-port", std::to_string(base_port_), "--wait", "25", "up"});
            if (up.exit_code == 0) return;
            tool({"down", "--purge"});
        }
        ADD_FAILURE() << "no cluster comes up";
    }
    ~LoopbackCluster() { tool({"kill", "all"}); }
    LoopbackCluster(const LoopbackCluster&) = delete;
    LoopbackCluster& operator=(const LoopbackCluster&) = delete;

    Ran tool(std::vector<std::string> words) const {
        std::vector<std::string> line = {MORTAR_TOOLS "/cluster", "--dir", folder_ / "c", "--bin",
                                         std::filesystem::path(broker_path()).parent_path()};
        line.insert(line.end(), words.begin(), words.end());
        return run(line);
    }
    void must(std::vector<std::string> words) const {
        const Ran ran = tool(std::move(words));
        EXPECT_EQ(ran.exit_code, 0) << ran.output;
    }
    std::uint16_t client_port(int node) const {
        return static_cast<std::uint16_t>(base_port_ + PORT_STEP * (node - 1));
    }
    std::string address(int node) const { return "127.0.0.1:" + std::to_string(client_port(node)); }
    std::string pid(int node) const {
        return read_file(folder_ / ("c/node" + std::to_string(node) + "/pid"));
    }
    // What a node says of itself; null when it does not answer.
    nlohmann::json stats(int node) const {
        const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(client_port(node) + 2));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        std::string text;
        if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
            const std::string ask =
                "GET /stats?node=self HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
            EXPECT_EQ(::send(descriptor, ask.data(), ask.size(), MSG_NOSIGNAL),
                      static_cast<ssize_t>(ask.size()));
            std::array<char, 4096> bytes;
            for (ssize_t got = 1; got > 0;) {
                got = ::recv(descriptor, bytes.data(), bytes.size(), 0);
                if (got > 0) text.append(bytes.data(), static_cast<std::size_t>(got));
            }
        }
        ::close(descriptor);
        const std::size_t body = text.find("\r\n\r\n");
        if (body == std::string::npos) return nullptr;
        const auto parsed = nlohmann::json::parse(text.substr(body + 4), nullptr, false);
        return parsed.is_object() ? parsed.value("node", nlohmann::json()) : nullptr;
    }
    // The node that says of itself that it leads; 0: none does.
    int leader() const {
        for (int node = 1; node <= NODE_COUNT; ++node) {
            const nlohmann::json said = stats(node);
            if (said.is_object() && said["leader_id"] == node) return node;
        }
        return 0;
    }
    bool is_quorum_state(int node, int expected) const {
        return eventually(
            [&] {
                const nlohmann::json said = stats(node);
                return said.is_object() && said["quorum_state"] == expected;
            },
            Millis(30'000));
    }

  private:
    TempFolder folder_;
    int base_port_ = 0;
};

TEST(QuorumLevels, from_three_nodes_to_one_and_back) {
    LoopbackCluster cluster;
    int leader = 0;
    ASSERT_TRUE(eventually([&] { return (leader = cluster.leader()) != 0; }));
    const int second = leader % NODE_COUNT + 1;
    const int third = second % NODE_COUNT + 1;
    const auto client = connected_client(cluster.client_port(leader));
    const TopicId topic = declare_topic(*client, "levels", 1);
    std::uint64_t seq = 0;
    const auto publish = [&](std::uint64_t number) {
        return client->ask(pub_of(topic, "value", 7, number));
    };

    // Level 2.
    Answer answer = publish(++seq);
    ASSERT_EQ(answer.code, ErrorCode{}) << answer.text;
    const wire::PubResult result = wire::decode_pub_result(answer.result).value();
    EXPECT_EQ(result.durability, wire::Durability::QUORUM);
    EXPECT_TRUE(cluster.is_quorum_state(leader, 0));

    // R3: a follower serves CONNECT and PING, and names the leader for all else.
    const auto stranger = connected_client(cluster.client_port(second));
    const std::string hint = "leader node=" + std::to_string(leader) +
                             " addr=" + cluster.address(leader) +
                             " epoch=" + std::to_string(result.leader_epoch.value);
    EXPECT_EQ(stranger->ask(wire::Ping{}).code, ErrorCode{});
    wire::Declare declare;
    declare.topic = "other";
    declare.partition_count = 1;
    wire::Sub sub;
    sub.group = "g";
    sub.topic_id = topic;
    for (const Answer& refused :
         {stranger->ask(pub_of(topic, "value")), stranger->ask(declare), stranger->ask(sub)}) {
        EXPECT_EQ(refused.code, ErrorCode::STALE_LEADER_EPOCH);
        EXPECT_EQ(refused.text, hint);
    }
    EXPECT_TRUE(stranger->is_open());

    // Level 1.
    cluster.must({"kill", std::to_string(second)});
    answer = publish(++seq);
    ASSERT_EQ(answer.code, ErrorCode{}) << answer.text;
    EXPECT_TRUE(cluster.is_quorum_state(leader, 1));

    // Level 0: within 2 s, and from then on at once.
    const std::string stayed = cluster.pid(leader);
    cluster.must({"kill", std::to_string(third)});
    const SteadyTime asked = now();
    answer = publish(++seq);
    EXPECT_LT(now() - asked, Millis(2500));
    const std::set<ErrorCode> may_say = {ErrorCode::READ_ONLY_DEGRADED,
                                         ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH,
                                         ErrorCode::LEASE_EXPIRED};
    EXPECT_TRUE(may_say.count(answer.code) == 1) << name_of(answer.code) << " " << answer.text;
    ASSERT_TRUE(eventually([&] {
        answer = publish(seq);
        return answer.code == ErrorCode::IN_SYNC_REPLICAS_NOT_ENOUGH;
    })) << name_of(answer.code);
    EXPECT_EQ(answer.text, "no follower can confirm: start or repair one, then retry");
    EXPECT_TRUE(cluster.is_quorum_state(leader, 2));

    // Back. Which of the two leads is theirs to decide; the connection stays (R4), the sequence is stored once.
    cluster.must({"start", std::to_string(third)});
    std::unique_ptr<RawClient> found;
    ASSERT_TRUE(eventually(
        [&] {
            const int now_leads = cluster.leader();
            if (now_leads == 0) return false;
            found = connected_client(cluster.client_port(now_leads));
            answer = found->ask(pub_of(topic, "value", 7, seq));
            return answer.code == ErrorCode{};
        },
        Millis(30'000)))
        << name_of(answer.code) << " " << answer.text;
    EXPECT_EQ(wire::decode_pub_result(answer.result).value().sequence, Sequence(seq));
    EXPECT_EQ(cluster.pid(leader), stayed);
    EXPECT_EQ(client->ask(wire::Ping{}).code, ErrorCode{});
    cluster.must({"start", std::to_string(second)});
    EXPECT_TRUE(eventually(
        [&] {
            const int now_leads = cluster.leader();
            return now_leads != 0 && cluster.stats(now_leads)["quorum_state"] == 0;
        },
        Millis(30'000)));
}

}  // namespace
}  // namespace mortar::process
