// Config: each refusal names key, value and what is allowed; what is printed reads back.
#include "core/admin/config.h"

#include <gtest/gtest.h>

#include "core/base/json.h"

namespace mortar {
namespace {

TEST(Config, an_empty_object_is_the_defaults) {
    const Result<Config> config = parse_config("{}");
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->peers, (std::vector<PeerConfig>{{NodeId(0), "127.0.0.1:7189", ""}}));
    EXPECT_EQ(config->leader_priority, std::vector<NodeId>{NodeId(0)});
    EXPECT_EQ(config->segment_max_bytes, 64u << 20);
    EXPECT_EQ(config->listen_ws, "");
    EXPECT_TRUE(check_supported(*config).ok());
    EXPECT_EQ(*parse_config(default_config_text()), *config);
    EXPECT_EQ(*parse_config("{\"_comment\":[1,\"x\",{}]}"), *config);
}

TEST(Config, takes_every_key_and_prints_what_it_reads_back) {
    const char* text = R"({
        "node_id": 2,
        "peers": [{"node_id": 1, "addr": "a:1"}, {"node_id": 2, "addr": "b:1", "client_addr": "b.example:7188"},
                  {"node_id": 3, "addr": "[fe80::1]:1"}],
        "leader_priority": [3, 1, 2],
        "listen_client": "10.0.0.1:1", "listen_peer": "[::]:2", "data_dir": "/d", "segment_max_bytes": 1048576,
        "partition_default_count": 1024, "delivery_max_attempts": 1, "delivery_lease_ms": 100,
        "poll_max_wait_ms": 0, "credit_initial_count": 65535, "metadata_snapshot_records": 64,
        "metrics_enabled": false, "log_level": "debug", "listen_ws": "127.0.0.1:9", "listen_admin": "127.0.0.1:0",
        "ws_origins": []})";
    const Result<Config> config = parse_config(text);
    ASSERT_TRUE(config.ok()) << config.error().detail;
    EXPECT_EQ(config->node_id, NodeId(2));
    EXPECT_EQ(config->peers[1].client_addr, "b.example:7188");
    EXPECT_EQ(config->leader_priority[0], NodeId(3));
    EXPECT_EQ(config->log_level, LogLevel::DEBUG);
    EXPECT_EQ(config->poll_max_wait_ms, 0u);
    EXPECT_FALSE(config->metrics_enabled);
    EXPECT_TRUE(config->ws_origins.empty());
    const Result<Config> again = parse_config(print_config(*config));
    ASSERT_TRUE(again.ok()) << again.error().detail;
    EXPECT_EQ(*again, *config);
    EXPECT_EQ(*parse_config(print_config(dev_config())), dev_config());
    EXPECT_EQ(parse_json(print_config(*config))->keys.size(), 18u);
}

// covers OPS-02
TEST(Config, each_refusal_says_what_is_wrong) {
    struct Row {
        const char* text;
        const char* message;
    };
    const Row rows[] = {
        {"", "not JSON at line 1, column 1"},
        {"[]", "the configuration is not a JSON object"},
        {"{\"node_id\":1,\n\"node_id\":1}", "key twice: node_id"},
        {"{\"listen_clinet\":\"a:1\"}", "unknown key: listen_clinet (did you mean listen_client?)"},
        {"{\"node-id\":1}", "unknown key: node-id (did you mean node_id?)"},
        {"{\"colour\":1}", "unknown key: colour"},
        {"{\"_comment\":\"x\"}", "_comment: \"x\" is a string; allowed: an array"},
        {"{\"node_id\":65536}", "node_id: 65536 is out of range; allowed: a whole number 0..65535"},
        {"{\"node_id\":\"0\"}", "node_id: \"0\" is a string; allowed: a whole number 0..65535"},
        {"{\"node_id\":-1}",
         "node_id: -1 is a number that is negative or not whole; allowed: a whole number 0..65535"},
        {"{\"segment_max_bytes\":1048575}",
         "segment_max_bytes: 1048575 is out of range; allowed: 1048576..1073741824"},
        {"{\"segment_max_bytes\":1073741825}",
         "segment_max_bytes: 1073741825 is out of range; allowed: 1048576..1073741824"},
        {"{\"partition_default_count\":0}",
         "partition_default_count: 0 is out of range; allowed: 1..1024"},
        {"{\"partition_default_count\":1025}",
         "partition_default_count: 1025 is out of range; allowed: 1..1024"},
        {"{\"delivery_max_attempts\":0}",
         "delivery_max_attempts: 0 is out of range; allowed: 1..1000"},
        {"{\"delivery_max_attempts\":1001}",
         "delivery_max_attempts: 1001 is out of range; allowed: 1..1000"},
        {"{\"delivery_lease_ms\":99}",
         "delivery_lease_ms: 99 is out of range; allowed: 100..3600000"},
        {"{\"delivery_lease_ms\":3600001}",
         "delivery_lease_ms: 3600001 is out of range; allowed: 100..3600000"},
        {"{\"poll_max_wait_ms\":30001}",
         "poll_max_wait_ms: 30001 is out of range; allowed: 0..30000"},
        {"{\"poll_max_wait_ms\":1.5}",
         "poll_max_wait_ms: 1.5 is a number that is negative or not whole; allowed: 0..30000"},
        {"{\"credit_initial_count\":0}",
         "credit_initial_count: 0 is out of range; allowed: 1..65535"},
        {"{\"credit_initial_count\":65536}",
         "credit_initial_count: 65536 is out of range; allowed: 1..65535"},
        {"{\"metadata_snapshot_records\":63}",
         "metadata_snapshot_records: 63 is out of range; allowed: 64..1048576"},
        {"{\"metadata_snapshot_records\":1048577}",
         "metadata_snapshot_records: 1048577 is out of range; allowed: 64..1048576"},
        {"{\"metrics_enabled\":1}", "metrics_enabled: 1 is a whole number; allowed: true or false"},
        {"{\"log_level\":\"loud\"}",
         "log_level: \"loud\" is not a level; allowed: error, warn, info, debug"},
        {"{\"log_level\":null}", "log_level: null is null; allowed: error, warn, info, debug"},
        {"{\"data_dir\":\"\"}", "data_dir: \"\" is not a path; allowed: a path of 1..4096 bytes"},
        {"{\"data_dir\":[]}", "data_dir: [] is an array; allowed: a path of 1..4096 bytes"},
        {"{\"listen_client\":\"7188\"}",
         "listen_client: \"7188\" is not an address; allowed: host:port, IPv6 in brackets, for "
         "example "
         "\"127.0.0.1:7188\""},
        {"{\"listen_client\":\"a:65536\"}",
         "listen_client: \"a:65536\" is not an address; allowed: host:port, IPv6 in brackets, for "
         "example "
         "\"127.0.0.1:7188\""},
        {"{\"listen_peer\":7}",
         "listen_peer: 7 is a whole number; allowed: host:port, IPv6 in brackets, for example "
         "\"127.0.0.1:7188\""},
        {"{\"listen_ws\":\"yes\"}",
         "listen_ws: \"yes\" is not an address; allowed: host:port, IPv6 in brackets, for example "
         "\"127.0.0.1:7188\""},
        {"{\"listen_admin\":\"\"}",
         "listen_admin: \"\" is not an address; allowed: host:port, IPv6 in brackets, for example "
         "\"127.0.0.1:7188\""},
        {"{\"listen_admin\":\"0.0.0.0:7188\"}",
         "listen_admin: \"0.0.0.0:7188\" collides with listen_client \"0.0.0.0:7188\"; allowed: "
         "another port, or "
         "another specific address"},
        {"{\"listen_client\":\"10.0.0.1:5\",\"listen_ws\":\"0.0.0.0:5\"}",
         "listen_ws: \"0.0.0.0:5\" collides with listen_client \"10.0.0.1:5\"; allowed: another "
         "port, or another "
         "specific address"},
        {"{\"listen_peer\":\"localhost:5\",\"listen_admin\":\"127.0.0.1:5\"}",
         "listen_admin: \"127.0.0.1:5\" collides with listen_peer \"localhost:5\"; allowed: "
         "another port, or "
         "another specific address"},
        {"{\"ws_origins\":\"*\"}",
         "ws_origins: \"*\" is a string; allowed: an array of origins such as "
         "\"https://example.org\" or "
         "\"http://localhost:*\"; empty rejects all"},
        {"{\"ws_origins\":[\"example.org\"]}",
         "ws_origins: \"example.org\" is not an origin; allowed: an array of origins such as "
         "\"https://example.org\" or \"http://localhost:*\"; empty rejects all"},
        {"{\"peers\":{}}",
         "peers: {} is an object; allowed: an array of 1 or 3 entries {\"node_id\", \"addr\", "
         "\"client_addr\"?}"},
        {"{\"peers\":[]}",
         "peers: [] has 0 entries; allowed: an array of 1 or 3 entries {\"node_id\", \"addr\", "
         "\"client_addr\"?}"},
        {"{\"peers\":[7]}",
         "peers[0]: 7 is a whole number; allowed: {\"node_id\", \"addr\", \"client_addr\"?}"},
        {"{\"peers\":[{\"node_id\":0}]}", "peers[0]: addr is missing"},
        {"{\"peers\":[{\"addr\":\"a:1\"}]}", "peers[0]: node_id is missing"},
        {"{\"peers\":[{\"node_id\":0,\"adr\":\"a:1\"}]}",
         "unknown key: peers[0].adr (did you mean addr?)"},
        {"{\"peers\":[{\"node_id\":0,\"addr\":\"a:0\"}]}",
         "peers[0].addr: \"a:0\" cannot be connected to; allowed: the address at which others "
         "reach that node"},
        {"{\"peers\":[{\"node_id\":0,\"addr\":\"0.0.0.0:1\"}]}",
         "peers[0].addr: \"0.0.0.0:1\" cannot be connected to; allowed: the address at which "
         "others reach that "
         "node"},
        {"{\"peers\":[{\"node_id\":1,\"addr\":\"a:1\"}]}",
         "peers: no entry for this node, node_id 0; allowed: 1 or 3 entries, one of them this "
         "node"},
        {"{\"leader_priority\":[1]}",
         "leader_priority: [1] is not the peers; allowed: the node_id of each peer once"},
        {"{\"leader_priority\":[0,0]}",
         "leader_priority: [0,0] is not the peers; allowed: the node_id of each peer once"},
        {"{\"leader_priority\":[]}",
         "leader_priority: [] is empty; allowed: an array that names the node_id of each peer "
         "once"},
    };
    for (const Row& row : rows) {
        const Result<Config> config = parse_config(row.text);
        ASSERT_TRUE(config.is(ErrorCode::INVALID_CONFIG)) << row.text;
        EXPECT_EQ(config.error().detail, row.message) << row.text;
    }
    const std::string twice = R"({"peers":[{"node_id":0,"addr":"a:1"},{"node_id":1,"addr":"b:1"},)"
                              R"({"node_id":1,"addr":"c:1"}]})";
    EXPECT_NE(parse_config(twice).error().detail.find("names node_id 1 twice"), std::string::npos);
    const std::string same = R"({"peers":[{"node_id":0,"addr":"a:1"},{"node_id":1,"addr":"b:1"},)"
                             R"({"node_id":2,"addr":"b:1"}]})";
    EXPECT_NE(parse_config(same).error().detail.find("names the address b:1 twice"),
              std::string::npos);
    EXPECT_FALSE(parse_config(std::string(CONFIG_BYTES_MAX + 1, ' ')).ok());
}

TEST(Config, says_what_this_version_cannot_do) {
    Config config = dev_config();
    EXPECT_TRUE(check_supported(config).ok());
    config.listen_ws = "127.0.0.1:7191";
    EXPECT_NE(check_supported(config).error().detail.find("listen_ws"), std::string::npos);
}

TEST(Config, dev_listens_on_loopback_only) {
    const Config config = dev_config();
    for (const std::string& address :
         {config.listen_client, config.listen_peer, config.listen_admin}) {
        EXPECT_TRUE(is_loopback_host(parse_address(address)->host)) << address;
    }
}

TEST(Address, is_host_and_port) {
    EXPECT_EQ(parse_address("[::1]:5")->host, "::1");
    EXPECT_EQ(parse_address("a-b.example:65535")->port, 65535);
    for (const char* text : {"", ":", "a", "a:", ":1", "a:x", "a:1x", "a:65536", "a:-1", "a b:1",
                             "::1:5", "[]:1", "[g]:1", "a/b:1"}) {
        EXPECT_TRUE(parse_address(text).is(ErrorCode::ADDRESS_INVALID)) << text;
    }
    EXPECT_TRUE(is_loopback_host("127.8.0.1"));
    EXPECT_FALSE(is_loopback_host("127.example.org"));
    EXPECT_FALSE(is_loopback_host("10.0.0.1"));
}

}  // namespace
}  // namespace mortar
