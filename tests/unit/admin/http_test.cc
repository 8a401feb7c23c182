// Admin HTTP: what /healthz and /stats answer, and a server that is not impressed by bad clients.
#include "core/admin/http.h"

#include <map>

#include "core/admin/http_request.h"
#include "core/base/json.h"
#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar {
namespace {
using sim::SimNode;

class FakeState : public AdminState {
  public:
    FakeState() {
        for (std::uint16_t id = 1; id <= 6; ++id) {
            TopicStatus topic;
            topic.topic_id = TopicId(id);
            topic.name = "t" + std::to_string(id);
            topic.partition_count = 2;
            topic.created_epoch = LeaderEpoch(3);
            topic.is_quarantined = id == 5;
            for (std::uint16_t p = 0; p < 2; ++p) {
                topic.partitions.push_back(
                    {PartitionIndex(p), Sequence(10), Sequence(9), 4, 7, 6, id == 5 && p == 1});
            }
            topics_[topic.topic_id] = topic;
        }
        GroupStatus group;
        group.group_id = GroupId(1);
        group.name = "g";
        group.topic_name = "t1";
        group.state = GroupState::STABLE;
        group.lag = 4;
        group.members = {MemberId(17)};
        group.partitions.push_back(
            {PartitionIndex(0), MemberId(17), OwnershipEpoch(1), Sequence(5), 4, 2, 1, false});
        groups_[group.group_id] = group;
        node.node_id = NodeId(7);
        node.uptime_ms = 61'999;
        node.connection_count = 2;
        node.version = "0.1.0";
        node.unserved_count = 1;
        node.scrubbed_record_count = 30;
        node.scrubbed_bytes = 4000;
        node.scrub_walk_count = 2;
        node.damaged_count = 3;
        node.repaired_count = 1;
        node.leader_id = NodeId(7);
        node.role = "leader";
        node.followers.push_back({NodeId(8), true, true, false, 12});
        node.leader_epoch = LeaderEpoch(3);
    }
    NodeStatus node_status() const override { return node; }
    std::optional<TopicStatus> topic(const std::string& name) const override {
        return named(topics_, name);
    }
    std::vector<TopicStatus> topics(TopicId after, std::size_t limit) const override {
        return behind(topics_, after, limit);
    }
    std::optional<GroupStatus> group(const std::string& name) const override {
        return named(groups_, name);
    }
    std::vector<GroupStatus> groups(GroupId after, std::size_t limit) const override {
        return behind(groups_, after, limit);
    }
    NodeStatus node;

  private:
    template <class Id, class Status>
    static std::optional<Status> named(const std::map<Id, Status>& all, const std::string& name) {
        for (const auto& [id, status] : all) {
            if (status.name == name) return status;
        }
        return std::nullopt;
    }
    template <class Id, class Status>
    static std::vector<Status> behind(const std::map<Id, Status>& all, Id after,
                                      std::size_t limit) {
        std::vector<Status> found;
        for (auto at = all.upper_bound(after); at != all.end() && found.size() < limit; ++at) {
            found.push_back(at->second);
            found.back().partitions.clear();
        }
        return found;
    }
    std::map<TopicId, TopicStatus> topics_;
    std::map<GroupId, GroupStatus> groups_;
};

TEST(Healthz, says_healthy_or_why_not) {
    FakeState state;
    struct Row {
        HealthStatus health;
        int status;
        const char* body;
    };
    for (const Row& row :
         {Row{HealthStatus::HEALTHY, 200, R"({"status":"healthy"})"},
          Row{HealthStatus::SOFT, 200, R"({"status":"soft"})"},
          Row{HealthStatus::READ_ONLY, 503, R"({"status":"read_only"})"},
          Row{HealthStatus::RECOVERING, 503, R"({"status":"recovering","recovered":3,"total":8})"},
          Row{HealthStatus::QUARANTINED, 503, R"({"status":"quarantined"})"}}) {
        state.node.health = row.health;
        state.node.recovered_count = 3;
        state.node.recovering_count = 8;
        const AdminAnswer answer = answer_admin(state, "GET", "/healthz");
        EXPECT_EQ(answer.status, row.status);
        EXPECT_EQ(answer.body, row.body);
        EXPECT_EQ(answer_admin(state, "GET", "/healthz?probe=live").status, 200);
    }
    EXPECT_EQ(answer_admin(state, "GET", "/healthz?probe=dead").status, 400);
}

TEST(Stats, answers_each_filter) {
    const FakeState state;
    EXPECT_EQ(
        answer_admin(state, "GET", "/stats?topic=t5").body,
        R"({"topics":[{"topic":"t5","topic_id":5,"partitions":2,"state":"quarantined","created_epoch":3,)"
        R"("partition_list":[{"partition":0,"last_seq":10,"commit_seq":9,"depth":4,)"
        R"("write_count":7,"sync_count":6,"state":"active"},)"
        R"({"partition":1,"last_seq":10,"commit_seq":9,"depth":4,)"
        R"("write_count":7,"sync_count":6,"state":"quarantined"}]}]})");
    EXPECT_EQ(answer_admin(state, "GET", "/stats?partition=t1/1").body,
              R"({"topic":"t1","topic_id":1,"partitions":2,"state":"active","created_epoch":3,)"
              R"("partition_list":[{"partition":1,"last_seq":10,"commit_seq":9,"depth":4,)"
              R"("write_count":7,"sync_count":6,"state":"active"}]})");
    EXPECT_EQ(
        answer_admin(state, "GET", "/stats?group=%67").body,
        R"({"groups":[{"group":"g","group_id":1,"topic":"t1","lag":4,"state":"stable","membership_epoch":0,)"
        R"("assignment_epoch":0,"members":[17],"partition_list":[{"partition":0,"owner":17,)"
        R"("ownership_epoch":1,"ack_floor":5,"lag":4,"in_flight":2,"parked":1,"state":"unserved"}]}]})");
    EXPECT_EQ(
        answer_admin(state, "GET", "/stats?node=self").body,
        R"({"node":{"node_id":7,"uptime_s":61,"connections":2,"version":"0.1.0","leader_id":7,)"
        R"("leader_epoch":3,"quorum_state":0,"status":"healthy","unserved_group_partitions":1,)"
        R"("role":"leader","trouble":"","trouble_code":null,"followers":[{"node_id":8,)"
        R"("is_connected":true,"is_installed":true,"is_in_sync":false,"lag_records":12}],)"
        R"("producers_held_to_bytes_per_second":null,"scrub":{"records":30,"bytes":4000,"walks":2,)"
        R"("damaged_logs":3,"repaired_logs":1}}})");
    EXPECT_EQ(answer_admin(state, "GET", "/stats?node=7").status, 200);
    EXPECT_NE(answer_admin(state, "GET", "/stats?group=*").body.find(R"("group":"g")"),
              std::string::npos);
}

TEST(Stats, names_why_there_is_no_leader_by_its_code) {
    FakeState state;
    state.node.leader_id.reset();
    state.node.trouble = make_error(ErrorCode::UNCLEAN_ELECTION_REJECTED, "node 2 is missing");
    state.node.producers_held_to = 7000;
    const std::string body = answer_admin(state, "GET", "/stats?node=self").body;
    EXPECT_NE(body.find(R"("trouble":"UNCLEAN_ELECTION_REJECTED: node 2 is missing",)"
                        R"("trouble_code":24587,)"),
              std::string::npos)
        << body;
    EXPECT_NE(body.find(R"("producers_held_to_bytes_per_second":7000)"), std::string::npos) << body;
}

TEST(Stats, pages_through_all_topics) {
    const FakeState state;
    std::vector<std::string> names;
    std::string after = "0";
    int pages = 0;
    while (true) {
        const AdminAnswer answer =
            answer_admin(state, "GET", "/stats?topic=*&limit=4&after=" + after);
        const JsonValue body = parse_json(answer.body).value();
        for (const JsonValue& topic : body.find("topics")->items)
            names.push_back(topic.find("topic")->text);
        ++pages;
        const JsonValue* next = body.find("next_after");
        if (next == nullptr) break;
        after = std::to_string(next->number);
    }
    EXPECT_EQ(pages, 2);
    EXPECT_EQ(names, (std::vector<std::string>{"t1", "t2", "t3", "t4", "t5", "t6"}));
}

TEST(Stats, refuses_what_it_does_not_know) {
    const FakeState state;
    const std::pair<const char*, int> rows[] = {
        {"/stats", 400},
        {"/stats?", 400},
        {"/stats?topic=", 400},
        {"/stats?limit=5", 400},
        {"/stats?topic=*&limit=0", 400},
        {"/stats?topic=*&limit=1001", 400},
        {"/stats?topic=*&after=x", 400},
        {"/stats?topic=*&after=65536", 400},
        {"/stats?topic=a&group=b", 400},
        {"/stats?colour=red", 400},
        {"/stats?topic=%4", 400},
        {"/stats?topic=%zz", 400},
        {"/stats?topic=nope", 404},
        {"/stats?group=nope", 404},
        {"/stats?partition=t1", 400},
        {"/stats?partition=t1/x", 400},
        {"/stats?partition=t1/2", 404},
        {"/stats?partition=no/0", 404},
        {"/stats?node=8", 404},
        {"/", 404},
        {"/metrics", 404},
        {"stats", 400},
        {"*", 400},
    };
    for (const auto& [target, status] : rows) {
        const AdminAnswer answer = answer_admin(state, "GET", target);
        EXPECT_EQ(answer.status, status) << target;
        EXPECT_TRUE(parse_json(answer.body)->find("error") != nullptr) << target;
    }
    EXPECT_EQ(answer_admin(state, "POST", "/healthz").status, 405);
    EXPECT_EQ(answer_admin(state, "HEAD", "/healthz").status, 200);
}

TEST(HttpHead, is_strict) {
    HttpRequest request;
    std::size_t used = 0;
    const auto judge = [&](std::string_view text) {
        return parse_http_head(as_byte_span(text), request, used);
    };
    EXPECT_EQ(judge("GET /a?b HTTP/1.1\r\nHost: x\r\n\r\nrest"), HttpHead::COMPLETE);
    EXPECT_EQ(used, 30u);
    EXPECT_EQ(request.method, "GET");
    EXPECT_EQ(request.target, "/a?b");
    EXPECT_TRUE(request.keep_alive);
    EXPECT_FALSE(request.has_body);
    EXPECT_EQ(judge("GET / HTTP/1.0\r\n\r\n"), HttpHead::COMPLETE);
    EXPECT_FALSE(request.keep_alive);
    EXPECT_EQ(judge("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), HttpHead::COMPLETE);
    EXPECT_TRUE(request.has_body);
    EXPECT_EQ(judge("GET / HTTP/1.1\r\n"), HttpHead::INCOMPLETE);
    EXPECT_EQ(judge(""), HttpHead::INCOMPLETE);
    for (const char* text :
         {"GET /\r\n\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
          "GET / HTTP/1.1\nHost: x\r\n\r\n",
          "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
          "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
        EXPECT_EQ(judge(text), HttpHead::MALFORMED) << text;
    }
    EXPECT_EQ(judge(std::string(HTTP_HEAD_BYTES_MAX + 1, 'a')), HttpHead::TOO_LARGE);
    EXPECT_EQ(judge("GET / HTTP/1.1\r\nX: " + std::string(HTTP_HEAD_BYTES_MAX, 'a') + "\r\n\r\n"),
              HttpHead::TOO_LARGE);
}

class AdminServerTest : public sim::SimFixture {
  protected:
    AdminServerTest() { server_ = AdminServer::start(server_env, state, "0.0.0.0:7190").value(); }
    ~AdminServerTest() override {
        run_on(server_node, [&](Fiber& fiber) { server_->stop(fiber); });
        EXPECT_EQ(server_node.scheduler().fiber_count(), 0u);
    }
    std::unique_ptr<Conn> connect(Fiber& fiber) {
        return client_env.net.connect(fiber, "server:7190", NEVER).value();
    }
    // All that the server sends until it closes.
    std::string exchange(Fiber& fiber, std::string_view request) {
        auto conn = connect(fiber);
        (void)send_text(fiber, *conn, request);
        return read_all(fiber, *conn).first;
    }

    SimNode& server_node = world.add_node("server");
    SimNode& client_node = world.add_node("client");
    Env server_env = server_node.env();
    Env client_env = client_node.env();
    FakeState state;
    std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, serves_requests_one_after_the_other_on_one_connection) {
    run_on(client_node, [&](Fiber& fiber) {
        const std::string all =
            exchange(fiber,
                     "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
                     "HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
                     "GET /nope HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        const std::string head =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
            "Content-Length: 20\r\nConnection: keep-alive\r\n\r\n";
        const std::string body = "{\"status\":\"healthy\"}";
        ASSERT_TRUE(all.starts_with(head + body + head + "HTTP/1.1 404 Not Found\r\n")) << all;
        EXPECT_NE(all.find("Connection: close\r\n\r\n{\"error\":"), std::string::npos);
    });
}

TEST_F(AdminServerTest, refuses_bad_requests_and_closes) {
    run_on(client_node, [&](Fiber& fiber) {
        EXPECT_TRUE(
            exchange(fiber, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
        const std::string post =
            exchange(fiber, "POST /stats HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
        EXPECT_TRUE(post.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
        EXPECT_NE(post.find("Allow: GET, HEAD\r\n"), std::string::npos);
        const std::string large = "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n";
        EXPECT_TRUE(exchange(fiber, large).starts_with("HTTP/1.1 431 "));
    });
}

TEST_F(AdminServerTest, ends_slow_and_idle_connections) {
    run_on(client_node, [&](Fiber& fiber) {
        const MonoTime start = client_env.clock.now();
        EXPECT_EQ(exchange(fiber, "GET /healthz HT"), "");
        const Duration slow = client_env.clock.now() - start;
        EXPECT_GE(slow, seconds(10));
        EXPECT_LT(slow, seconds(12));
        auto conn = connect(fiber);
        const MonoTime idle_start = client_env.clock.now();
        (void)read_all(fiber, *conn);
        EXPECT_GE(client_env.clock.now() - idle_start, seconds(29));
        EXPECT_LT(client_env.clock.now() - idle_start, seconds(32));
    });
}

TEST_F(AdminServerTest, bounds_its_connections_and_recovers) {
    run_on(client_node, [&](Fiber& fiber) {
        std::vector<std::unique_ptr<Conn>> idle;
        for (std::size_t i = 0; i < ADMIN_CONNECTION_COUNT_MAX; ++i)
            idle.push_back(connect(fiber));
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, client_env.clock.now() + seconds(1)).ok());
        EXPECT_TRUE(exchange(fiber, "").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        idle.clear();
        ASSERT_TRUE(fiber.scheduler().sleep_until(fiber, client_env.clock.now() + seconds(1)).ok());
        EXPECT_TRUE(
            exchange(fiber, "GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    });
}

TEST_F(AdminServerTest, stops_while_clients_are_connected) {
    run_on(client_node, [&](Fiber& fiber) {
        auto conn = connect(fiber);
        ASSERT_TRUE(send_text(fiber, *conn, "GET /hea").ok());
        ASSERT_TRUE(
            fiber.scheduler().sleep_until(fiber, client_env.clock.now() + milliseconds(100)).ok());
    });
    // The fixture stops the server and finds no fiber left.
}

}  // namespace
}  // namespace mortar
