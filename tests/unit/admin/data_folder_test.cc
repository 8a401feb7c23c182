// DataFolder: lock, identity, client tokens.
#include "core/admin/data_folder.h"

#include "core/log/whole_file.h"
#include "tests/unit/io-sim/sim_fixture.h"

namespace mortar {
namespace {
using sim::PowerImage;
using sim::SimNode;

class DataFolderTest : public sim::SimFixture {
  protected:
    SimNode& node = world.add_node("n");
    Env env = node.env();
    Config config = dev_config();

    void write_file(Fiber& fiber, const std::string& folder, const std::string& name,
                    std::string_view text) {
        ASSERT_TRUE(make_folders_durably(fiber, env.disk, folder).ok());
        ASSERT_TRUE(
            write_new_file(fiber, env.disk, join_path(folder, name), as_byte_span(text)).ok());
    }
};

TEST_F(DataFolderTest, is_marked_at_the_first_start_and_known_at_the_next) {
    NodeIdentity first;
    config.node_id = NodeId(7);
    run_on(node, [&](Fiber& fiber) {
        auto folder = DataFolder::open(fiber, env, config, true);
        ASSERT_TRUE(folder.ok()) << folder.error().to_string();
        first = (*folder)->identity();
        EXPECT_EQ(first.node_id, NodeId(7));
        EXPECT_TRUE(first.is_dev);
        EXPECT_NE(first.cluster_id, NodeIdentity{}.cluster_id);
        // Durable before open returned.
        EXPECT_EQ(sim::text_of(*node.disk().durable_read("identity")), print_identity(first));
    });
    node.power_loss(PowerImage{PowerImage::Kind::NONE});
    node.restart();
    run_on(node, [&](Fiber& fiber) {
        EXPECT_EQ(DataFolder::open(fiber, env, config, false).value()->identity(), first);
    });
}

TEST_F(DataFolderTest, refuses_a_second_process_another_node_and_a_cluster_on_a_dev_folder) {
    run_on(node, [&](Fiber& fiber) {
        {
            auto folder = DataFolder::open(fiber, env, config, true).value();
            const auto second = DataFolder::open(fiber, env, config, true);
            ASSERT_TRUE(second.is(ErrorCode::LOCKED));
            EXPECT_NE(second.error().detail.find("another process"), std::string::npos);
        }
        Config other = config;
        other.node_id = NodeId(1);
        const auto foreign = DataFolder::open(fiber, env, other, true);
        ASSERT_TRUE(foreign.is(ErrorCode::INVALID_CONFIG));
        EXPECT_NE(foreign.error().detail.find("belongs to node 0, this is node 1"),
                  std::string::npos);
        Config cluster = config;
        cluster.peers.resize(3);
        const auto joined = DataFolder::open(fiber, env, cluster, false);
        ASSERT_TRUE(joined.is(ErrorCode::INVALID_CONFIG));
        EXPECT_NE(joined.error().detail.find("--dev"), std::string::npos);
        EXPECT_TRUE(DataFolder::open(fiber, env, config, false).ok());
    });
}

TEST_F(DataFolderTest, refuses_data_without_identity) {
    run_on(node, [&](Fiber& fiber) {
        ASSERT_TRUE(env.disk.make_folders(fiber, "metadata").ok());
        const auto folder = DataFolder::open(fiber, env, config, false);
        ASSERT_TRUE(folder.is(ErrorCode::DAMAGED));
        EXPECT_NE(folder.error().detail.find("metadata/"), std::string::npos);
        EXPECT_FALSE(node.disk().cached_read("identity").has_value());
    });
}

TEST_F(DataFolderTest, a_crash_in_the_first_start_leaves_one_identity_or_none) {
    for (std::uint64_t at = 1; at < 20; ++at) {
        SimNode& other = world.add_node("crash" + std::to_string(at));
        Env other_env = other.env();
        other.disk().set_operation_hook(
            [&, at](sim::OperationPoint, const sim::DiskOperation& operation) {
                if (operation.number == at && !other.stopping()) {
                    other.stop_after_step([&] { other.power_loss(PowerImage::random(at, true)); });
                }
            });
        other.scheduler().spawn("first", [&](Fiber& fiber) {
            (void)DataFolder::open(fiber, other_env, config, false);
        });
        while (world.step()) {
        }
        other.disk().set_operation_hook({});
        if (!other.alive()) other.restart();
        run_on(other, [&](Fiber& fiber) {
            EXPECT_TRUE(DataFolder::open(fiber, other_env, config, false).ok()) << at;
        });
    }
}

TEST(Identity, is_read_strictly) {
    NodeIdentity identity;
    identity.node_id = NodeId(65535);
    identity.cluster_id[0] = std::byte{0xab};
    const std::string text = print_identity(identity);
    EXPECT_EQ(text,
              "mortarmq identity 1\nnode_id 65535\ncluster_id "
              "ab000000000000000000000000000000\nmode normal\n");
    EXPECT_EQ(parse_identity(text).value(), identity);
    for (std::size_t size = 0; size < text.size(); ++size) {
        EXPECT_FALSE(parse_identity(std::string_view(text).substr(0, size)).ok()) << size;
    }
    for (std::size_t at = 0; at < text.size(); ++at) {
        std::string altered = text;
        altered[at] = 'z';
        EXPECT_FALSE(parse_identity(altered).ok()) << at;
    }
    std::string newer = text;
    newer[18] = '2';
    EXPECT_TRUE(parse_identity(newer).is(ErrorCode::UNSUPPORTED_FORMAT));
}

TEST(ClientTokens, are_hex_digests_with_comments) {
    const std::string hex = to_hex(sha256(as_byte_span("secret")));
    const auto digests = parse_client_digests("# ours\n\n  " + hex + "  # laptop\r\n" + hex, "f");
    ASSERT_TRUE(digests.ok());
    ASSERT_EQ(digests->size(), 2u);
    EXPECT_EQ(digests->front(), sha256(as_byte_span("secret")));
    for (const std::string& bad : {hex.substr(1), hex + "0", std::string("secret"), hex + " x"}) {
        const auto refused = parse_client_digests("\n# c\n" + bad + "\n", "auth/client.sha256");
        ASSERT_TRUE(refused.is(ErrorCode::INVALID_CONFIG)) << bad;
        EXPECT_NE(refused.error().detail.find("auth/client.sha256, line 3:"), std::string::npos);
    }
}

TEST_F(DataFolderTest, is_checked_without_being_opened) {
    run_on(node, [&](Fiber& fiber) {
        EXPECT_TRUE(check_folder(fiber, env.disk, config)->empty());
        ASSERT_TRUE(DataFolder::open(fiber, env, config, false).ok());
        EXPECT_TRUE(check_folder(fiber, env.disk, config).ok());
        Config other = config;
        other.node_id = NodeId(static_cast<std::uint16_t>(config.node_id.value + 1));
        EXPECT_TRUE(check_folder(fiber, env.disk, other).is(ErrorCode::INVALID_CONFIG));
        write_file(fiber, "auth", "nonsense", "nonsense\n");
        ASSERT_TRUE(env.disk.rename(fiber, "auth/nonsense", "identity").ok());
        EXPECT_TRUE(check_folder(fiber, env.disk, config).is(ErrorCode::DAMAGED));
    });
}

TEST_F(DataFolderTest, the_empty_token_is_for_loopback_only) {
    run_on(node, [&](Fiber& fiber) {
        const auto none = load_client_tokens(fiber, env.disk, config);
        ASSERT_TRUE(none.ok());
        EXPECT_TRUE(none->empty());
        Config open = config;
        open.listen_client = "0.0.0.0:7188";
        const auto refused = load_client_tokens(fiber, env.disk, open);
        ASSERT_TRUE(refused.is(ErrorCode::INVALID_CONFIG));
        EXPECT_NE(refused.error().detail.find("mortarmq-hash-token --new"), std::string::npos);
        open = config;
        open.listen_ws = "10.0.0.1:7191";
        EXPECT_FALSE(load_client_tokens(fiber, env.disk, open).ok());
        open.listen_ws = "[::1]:7191";
        EXPECT_TRUE(load_client_tokens(fiber, env.disk, open).ok());

        write_file(fiber, "auth", "client.sha256", "# nothing yet\n");
        EXPECT_TRUE(load_client_tokens(fiber, env.disk, config).is(ErrorCode::INVALID_CONFIG));
        write_file(fiber, "auth", "client.sha256", to_hex(sha256(as_byte_span("t"))) + "\n");
        const auto digests = load_client_tokens(fiber, env.disk, open);
        ASSERT_TRUE(digests.ok());
        EXPECT_EQ(*digests, std::vector{sha256(as_byte_span("t"))});
    });
}

TEST_F(DataFolderTest, the_key_of_a_cluster_is_64_hex_digits_in_a_file_of_the_owner_alone) {
    run_on(node, [&](Fiber& fiber) {
        const auto refusal = [&] {
            const auto loaded = load_peer_key(fiber, env.disk, config);
            if (loaded.ok()) return std::string("loaded");
            EXPECT_TRUE(loaded.is(ErrorCode::INVALID_CONFIG));
            return loaded.error().detail;
        };
        const std::string path = config.data_dir + "/auth/peer.key";
        const std::string make =
            "head -c32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > " + path + "; chmod 600 " + path;
        EXPECT_NE(refusal().find(make), std::string::npos) << refusal();
        write_file(fiber, "auth", "client.sha256", "");
        EXPECT_NE(refusal().find(make), std::string::npos);

        const SecretKey key = sha256(as_byte_span("k"));
        write_file(fiber, "auth", "peer.key", to_hex(key));
        EXPECT_EQ(*load_peer_key(fiber, env.disk, config), key);
        for (const std::uint32_t permissions : {0640u, 0604u, 0620u, 0777u, 0644u, 0601u}) {
            node.disk().set_permissions("auth/peer.key", permissions);
            EXPECT_NE(refusal().find("`chmod 600 " + path + "`"), std::string::npos) << permissions;
        }
        node.disk().set_permissions("auth/peer.key", 0400);
        write_file(fiber, "auth", "peer.key", " " + to_hex(key) + " \r\n");
        EXPECT_EQ(*load_peer_key(fiber, env.disk, config), key);
        for (const std::string& bad :
             {std::string(), to_hex(key).substr(1), to_hex(key) + "00", to_hex(key) + "\nmore",
              "\n" + to_hex(key), std::string(64, 'x')}) {
            write_file(fiber, "auth", "peer.key", bad);
            EXPECT_EQ(refusal(),
                      path + " is not a key: it must hold 64 hex digits and nothing else");
        }
    });
}

}  // namespace
}  // namespace mortar
