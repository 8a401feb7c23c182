// PeerLinks over the simulated network: who gets in, who does not, and that what is dead is noticed.
#include "core/replica/peer_link.h"

#include "core/fiber/deadline.h"
#include "tests/unit/replica/peer_world.h"

namespace mortar::peer {
namespace {
using mortar::testing::peer_key;
using mortar::testing::PeerWorld;
using Node = PeerWorld::Node;
using sim::SimNode;

constexpr Lane LANES[] = {Lane::CONTROL, Lane::BULK};

Result<void> write_all(Fiber& fiber, Conn& conn, ByteSpan bytes) {
    return conn.write(fiber, {&bytes, 1}, NEVER);
}
// Until the end of the stream or an error.
ByteVector read_all(Fiber& fiber, Conn& conn) {
    ByteVector all;
    ByteVector into(1000);
    while (true) {
        const Result<std::size_t> count = conn.read(fiber, into, NEVER);
        if (!count.ok() || *count == 0) return all;
        all.insert(all.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(*count));
    }
}
std::size_t size_of(const ByteVector& frame) {
    return frame.size();
}
const std::size_t CHALLENGE_BYTES = size_of(encode(Challenge{}));

// A stranger's connection: what node answers to these bytes until it closes.
ByteVector answer_to(PeerWorld& world, SimNode& stranger, const Node& node, ByteSpan bytes) {
    ByteVector answer;
    world.run_on(stranger, [&](Fiber& fiber) {
        const auto conn = stranger.net().connect(fiber, node.sim.name() + ":7189", NEVER).value();
        ASSERT_TRUE(write_all(fiber, *conn, bytes).ok());
        answer = read_all(fiber, *conn);
    });
    return answer;
}

HandshakeSelf self_of(const PeerLinksOptions& options, std::uint64_t nonce) {
    return {options.key, options.identity, options.version_min,
            make_nonce(options.key, nonce, nonce)};
}

TEST(PeerLinks, connect_everybody_with_everybody_on_both_lanes) {
    PeerWorld world;
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    for (std::uint16_t from = 0; from < 3; ++from) {
        for (std::uint16_t to = 0; to < 3; ++to) {
            for (const Lane lane : LANES) {
                PeerChannel* channel = world[from].links->channel(NodeId(to), lane);
                ASSERT_EQ(channel != nullptr, from != to);
                if (channel == nullptr) continue;
                EXPECT_EQ(channel->peer(), NodeId(to));
                EXPECT_EQ(channel->lane(), lane);
                EXPECT_TRUE(channel->is_dialed());
                EXPECT_EQ(channel->version(), PEER_VERSION_MAX);
            }
            const Identity* identity = world[from].links->identity_of(NodeId(to));
            ASSERT_EQ(identity != nullptr, from != to);
            if (identity == nullptr) continue;
            EXPECT_EQ(identity->listen_client, world[to].sim.name() + ":7188");
            EXPECT_EQ(identity->listen_admin, world[to].sim.name() + ":7190");
        }
    }
    EXPECT_EQ(world[0].links->channel(NodeId(9), Lane::BULK), nullptr);
    EXPECT_EQ(world[0].links->identity_of(NodeId(9)), nullptr);
}

TEST(PeerLinks, idle_ones_stay_up) {
    PeerWorld world;
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    world.world.run_for(seconds(60));
    for (const auto& node : world.nodes) {
        EXPECT_EQ(node->down_count, 0);
        EXPECT_TRUE(node->seen.empty()) << "PING never reaches a handler";
    }
}

TEST(PeerLinks, frames_arrive_in_order_and_are_answered_on_the_same_channel) {
    PeerWorld world(2);
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    world[1].hook_frame = [](Fiber&, PeerChannel& channel, Op op, ByteSpan payload) {
        EXPECT_FALSE(channel.is_dialed());
        if (op == Op::PREPARE)
            channel.send_message(PreVote{decode<Prepare>(payload)->leader_epoch});
        return Result<void>();
    };
    const auto owner = std::make_shared<std::string>(100'000, 'x');
    std::weak_ptr<std::string> left = owner;
    for (std::uint64_t i = 1; i <= 100; ++i) {
        world[0].channel(1, Lane::BULK).send_message(Prepare{LeaderEpoch(i)});
        RecordBytes records{
            Sequence(i), Sequence(i), {as_byte_span(*owner)}, {owner}, owner->size()};
        world[0]
            .channel(1, Lane::BULK)
            .send(encode_fetched(static_cast<std::uint32_t>(i), std::move(records)));
    }
    EXPECT_GT(world[0].channel(1, Lane::BULK).queued_bytes(), 100u * owner->size());
    ASSERT_TRUE(world.run_until([&] { return world[0].seen.size() == 100; }));
    ASSERT_TRUE(world.run_until([&] { return world[1].seen.size() == 200; }));
    EXPECT_EQ(world[0].channel(1, Lane::BULK).queued_bytes(), 0u);
    for (std::uint64_t i = 1; i <= 100; ++i) {
        EXPECT_EQ(world[0].seen[i - 1].peer_lane, "1/bulk>");
        EXPECT_EQ(decode<PreVote>(world[0].seen[i - 1].payload)->candidate_epoch, LeaderEpoch(i));
        EXPECT_EQ(world[1].seen[2 * i - 1].peer_lane, "0/bulk<");
        const auto fetched = decode<Fetched>(world[1].seen[2 * i - 1].payload);
        EXPECT_EQ(fetched->last, Sequence(i));
        EXPECT_EQ(as_string_view(fetched->records), *owner);
    }
    EXPECT_EQ(left.use_count(), 1) << "what was sent is let go";
}

TEST(PeerLinks, come_back_after_resets) {
    PeerWorld world;
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    Rng rng(3);
    for (int round = 0; round < 10; ++round) {
        for (const std::uint64_t id : world.world.network().connections())
            world.world.network().reset(id, rng);
        ASSERT_TRUE(world.run_until([&] { return !world.all_linked(); }));
        ASSERT_TRUE(world.run_until_linked(seconds(3))) << round;
    }
    for (const auto& node : world.nodes)
        EXPECT_EQ(node->up_count, node->down_count + 8);
}

TEST(PeerLinks, come_back_soon_after_a_kill_and_a_power_loss) {
    PeerWorld world;
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    for (const bool power : {false, true}) {
        world[1].kill(power);
        ASSERT_TRUE(world.run_until([&] { return world[0].up.size() == 4; }, seconds(4)));
        world.world.run_for(seconds(20));
        EXPECT_EQ(world[0].links->channel(NodeId(1), Lane::CONTROL), nullptr);
        EXPECT_NE(world[0].links->identity_of(NodeId(1)), nullptr) << "known from before";
        EXPECT_NE(world[0].log_text().find("peer_unreachable"), std::string::npos);
        world[1].sim.restart();
        world[1].start();
        // Not a whole backoff: whoever comes is dialed back at once.
        EXPECT_TRUE(world.run_until_linked(milliseconds(1100)));
    }
    EXPECT_LT(world[0].log_count("peer_unreachable"), 10u) << "told once, not at each try";
}

TEST(PeerLinks, notice_silence_on_control_within_a_second_and_on_bulk_within_three) {
    for (const Lane lane : LANES) {
        PeerWorld world(2);
        std::map<std::uint64_t, Lane> lanes;
        world.world.network().set_send_hook([&](const sim::SendInfo& info, ByteSpan bytes) {
            const Result<FrameView> frame = open_frame(bytes);
            if (frame.ok() && frame->op == Op::PROOF)
                lanes[info.conn_id] = decode<Proof>(frame->payload)->lane;
        });
        world.start_all();
        ASSERT_TRUE(world.run_until_linked());
        ASSERT_EQ(lanes.size(), 4u);
        for (const auto& [id, lane_of] : lanes) {
            if (lane_of == lane) world.world.network().silence(id);
        }
        const Duration limit = lane == Lane::CONTROL ? CONTROL_SILENCE_MAX : BULK_SILENCE_MAX;
        world.world.run_for(limit - PING_EVERY - milliseconds(50));
        EXPECT_EQ(world[0].down_count, 0);
        EXPECT_TRUE(world.run_until([&] { return world[0].down_count == 2; },
                                    PING_EVERY + milliseconds(100)));
        EXPECT_TRUE(world.run_until_linked(seconds(2)));
        EXPECT_EQ(world[0].log_count("nothing received for"), 2u) << world[0].log_text();
    }
}

TEST(PeerLinks, a_handler_that_takes_long_is_not_silence) {
    PeerWorld world(2);
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    world[1].hook_frame = [&world](Fiber& fiber, PeerChannel&, Op, ByteSpan) {
        return fiber.scheduler().sleep_until(fiber,
                                             deadline_after(world[1].sim.clock(), seconds(5)));
    };
    world[0].channel(1, Lane::CONTROL).send_message(PreVote{LeaderEpoch(1)});
    world[0].channel(1, Lane::CONTROL).send_message(PreVote{LeaderEpoch(2)});
    world.world.run_for(seconds(15));
    EXPECT_EQ(world[1].seen.size(), 2u);
    EXPECT_EQ(world[0].down_count, 0);
    EXPECT_EQ(world[1].down_count, 0);
}

// --- who gets in

TEST(PeerLinks, refuse_a_node_with_another_key) {
    PeerWorld world;
    world[2].options.key = peer_key(8);
    world.start_all();
    ASSERT_TRUE(world.run_until([&] { return world[0].up.size() == 4; }));
    world.world.run_for(seconds(5));
    EXPECT_EQ(world[2].up_count, 0);
    EXPECT_EQ(world[0].up.count("2/bulk>"), 0u);
    EXPECT_EQ(world[0].links->identity_of(NodeId(2)), nullptr);
    EXPECT_GT(world[0].log_count("auth/peer.key"), 0u) << world[0].log_text();
    EXPECT_EQ(world[0].down_count, 0) << "the others are not disturbed";
}

TEST(PeerLinks, refuse_an_unknown_node_id_and_their_own) {
    for (const std::uint16_t id : {std::uint16_t{9}, std::uint16_t{0}}) {
        PeerWorld world(2);
        world[1].options.identity.node_id = NodeId(id);
        world[1].addresses = {{NodeId(id == 0 ? 7 : 0), "a:7189"}};
        world.start_all();
        world.world.run_for(seconds(5));
        EXPECT_EQ(world[0].up_count, 0);
        const std::string reason =
            id == 0 ? "node 0, which is this node" : "node 9, which is not in";
        EXPECT_GT(world[0].log_count(reason), 0u) << world[0].log_text();
        const std::string told = id == 0
                                     ? "peer=1 lane=bulk addr=b:7189 reason=it refused this node"
                                     : "node 9 answers at the address of node 1";
        EXPECT_GT(world[0].log_count(told), 0u) << world[0].log_text();
    }
}

TEST(PeerLinks, refuse_another_cluster_but_not_a_blank_node) {
    PeerWorld world;
    world[0].options.identity.cluster_id.fill(std::byte{1});
    world[1].options.identity.cluster_id.fill(std::byte{2});
    world.start_all();
    world.world.run_for(seconds(5));
    EXPECT_EQ(world[0].links->channel(NodeId(1), Lane::CONTROL), nullptr);
    EXPECT_EQ(world[1].links->channel(NodeId(0), Lane::CONTROL), nullptr);
    EXPECT_GT(world[0].log_count("belongs to cluster 0202"), 0u);
    EXPECT_GT(world[1].log_count("belongs to cluster 0101"), 0u);
    EXPECT_EQ(world[2].up.size(), 8u);
    ClusterId joined;
    joined.fill(std::byte{1});
    world[1].links->set_cluster_id(joined);
    EXPECT_TRUE(world.run_until_linked(seconds(3)));
}

TEST(PeerLinks, a_wrong_address_is_told_and_disturbs_nobody) {
    PeerWorld world;
    world[0].addresses[1].addr = "c:7189";  // of node 1, but node 2 listens there
    world.start_all();
    world.world.run_for(seconds(10));
    EXPECT_GT(world[0].log_count("node 2 answers at the address of node 1"), 0u);
    EXPECT_GT(world[2].log_count("node 0 dialed node 1, this is node 2"), 0u);
    EXPECT_EQ(world[0].links->channel(NodeId(1), Lane::CONTROL), nullptr);
    EXPECT_EQ(world[2].down_count, 0) << "the channel of node 0 that is good stays";
    EXPECT_EQ(world[2].up.size(), 8u);
}

TEST(PeerLinks, a_replayed_proof_opens_nothing) {
    PeerWorld world(2);
    SimNode& stranger = world.world.add_node("stranger");
    ByteVector said;  // by node 0 on its first connection to node 1
    std::uint64_t first_id = 0;
    world.world.network().set_send_hook([&](const sim::SendInfo& info, ByteSpan bytes) {
        if (info.node != &world[0].sim) return;
        const Result<FrameView> frame = open_frame(bytes);
        if (first_id == 0 && frame.ok() && frame->op == Op::HELLO) first_id = info.conn_id;
        if (info.conn_id == first_id) said.insert(said.end(), bytes.begin(), bytes.end());
    });
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    world.world.network().set_send_hook({});
    const int ups = world[1].up_count;
    const ByteVector answer = answer_to(world, stranger, world[1], said);
    EXPECT_EQ(answer.size(), CHALLENGE_BYTES);
    EXPECT_EQ(world[1].up_count, ups);
    EXPECT_EQ(world[1].down_count, 0);
    EXPECT_EQ(world[1].log_count("auth/peer.key"), 1u);
}

// The stranger listens where node 1 should, and asks node 0 itself for the proofs that it needs.
TEST(PeerLinks, a_reflected_proof_opens_nothing) {
    for (const bool as_welcome : {false, true}) {
        PeerWorld world(2);
        SimNode& stranger = world.world.add_node("stranger");
        world[0].addresses[1].addr = "stranger:7189";
        world[0].start();
        world.run_on(stranger, [&](Fiber& fiber) {
            const auto listener = stranger.net().listen("0.0.0.0:7189").value();
            const auto dialing = listener->accept(fiber).value();
            PeerFrameReader from_dialing(*dialing, stranger.clock());
            const auto hear = [&fiber](PeerFrameReader& reader) {
                const FrameView frame = reader.read(fiber, {}).value();
                return std::pair(frame.op, ByteVector(frame.payload.begin(), frame.payload.end()));
            };
            const Hello hello = decode<Hello>(hear(from_dialing).second).value();
            const auto accepting = stranger.net().connect(fiber, "a:7189", NEVER).value();
            PeerFrameReader from_accepting(*accepting, stranger.clock());
            ASSERT_TRUE(write_all(fiber, *accepting, encode(hello)).ok());
            const Challenge challenge = decode<Challenge>(hear(from_accepting).second).value();
            ASSERT_TRUE(write_all(fiber, *dialing, encode(challenge)).ok());
            Proof proof = decode<Proof>(hear(from_dialing).second).value();
            if (as_welcome) {
                Welcome welcome;
                welcome.mac = proof.mac;
                welcome.identity.node_id = NodeId(1);
                ASSERT_TRUE(write_all(fiber, *dialing, encode(welcome)).ok());
                EXPECT_TRUE(read_all(fiber, *dialing).empty()) << "no IDENTITY";
            } else {
                ASSERT_TRUE(write_all(fiber, *accepting, encode(proof)).ok());
                EXPECT_TRUE(read_all(fiber, *accepting).empty()) << "no WELCOME";
            }
        });
        world.world.run_for(milliseconds(10));
        EXPECT_EQ(world[0].up_count, 0);
        EXPECT_EQ(world[0].log_count(as_welcome ? "auth/peer.key" : "which is this node"), 1u)
            << world[0].log_text();
    }
}

TEST(PeerLinks, a_changed_handshake_opens_nothing) {
    PeerWorld world(2);
    SimNode& stranger = world.world.add_node("stranger");
    world[0].start();
    // The key is right; what the proof is of, is not what was said.
    struct Change {
        const char* name;
        std::function<void(Hello&)> hello;
        std::function<void(Proof&)> proof;
    };
    const std::vector<Change> changes = {
        {"nothing", {}, {}},
        {"a lower version", [](Hello& hello) { hello.version_max = 1; }, {}},
        {"the nonce", [](Hello& hello) { hello.nonce[5] ^= std::byte{1}; }, {}},
        {"the lane", {}, [](Proof& proof) { proof.lane = Lane::BULK; }},
        {"the node", {}, [](Proof& proof) { proof.node_id = NodeId(0); }},
        {"the dialed node", {}, [](Proof& proof) { proof.dialed_node_id = NodeId(1); }},
        {"the proof", {}, [](Proof& proof) { proof.mac[31] ^= std::byte{128}; }},
    };
    for (const Change& change : changes) {
        SCOPED_TRACE(change.name);
        const int ups = world[0].up_count;
        world.run_on(stranger, [&](Fiber& fiber) {
            // An honest node 1 on this machine, and the one in the middle between it and node 0.
            const auto listener = stranger.net().listen("0.0.0.0:1").value();
            stranger.scheduler().spawn("honest", [&](Fiber& own) {
                const auto conn = stranger.net().connect(own, "stranger:1", NEVER).value();
                PeerFrameReader reader(*conn, stranger.clock());
                (void)handshake_dialing(own, *conn, reader, self_of(world[1].options, 1), NodeId(0),
                                        Lane::CONTROL, NEVER);
            });
            const auto honest = listener->accept(fiber).value();
            const auto node = stranger.net().connect(fiber, "a:7189", NEVER).value();
            PeerFrameReader from_honest(*honest, stranger.clock());
            PeerFrameReader from_node(*node, stranger.clock());
            Hello hello = decode<Hello>(from_honest.read(fiber, {})->payload).value();
            if (change.hello) change.hello(hello);
            ASSERT_TRUE(write_all(fiber, *node, encode(hello)).ok());
            const Challenge challenge =
                decode<Challenge>(from_node.read(fiber, {})->payload).value();
            ASSERT_TRUE(write_all(fiber, *honest, encode(challenge)).ok());
            Proof proof = decode<Proof>(from_honest.read(fiber, {})->payload).value();
            if (change.proof) change.proof(proof);
            ASSERT_TRUE(write_all(fiber, *node, encode(proof)).ok());
            const bool welcome = from_node.read(fiber, {}).ok();
            EXPECT_EQ(welcome, !change.hello && !change.proof);
        });
        EXPECT_EQ(world[0].up_count, ups);
    }
}

// --- versions

TEST(PeerLinks, speak_the_lower_version_and_name_both) {
    PeerWorld world;
    world[1].options.identity.version_max = 1;
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    EXPECT_EQ(world[0].channel(1, Lane::BULK).version(), 1);
    EXPECT_EQ(world[1].channel(0, Lane::BULK).version(), 1);
    EXPECT_EQ(world[1].up.at("0/bulk<")->version(), 1);
    EXPECT_EQ(world[0].channel(2, Lane::BULK).version(), 2);
    EXPECT_EQ(world[0].log_count("peer_version_differs peer=1 own_version=2 peer_version=1 "
                                 "spoken_version=1"),
              1u)
        << world[0].log_text();
    EXPECT_EQ(world[1].log_count("peer_version_differs"), 2u) << "once a peer";
}

TEST(PeerLinks, refuse_a_version_below_the_minimum) {
    PeerWorld world(2);
    world[0].options.version_min = 2;
    world[1].options.identity.version_max = 1;
    world.start_all();
    world.world.run_for(seconds(3));
    EXPECT_EQ(world[0].up_count + world[1].up_count, 0);
    for (std::size_t i = 0; i < 2; ++i) {
        const std::string own = i == 0 ? "2 to 2" : "1 to 1";
        EXPECT_GT(world[i].log_count("no common peer protocol version: this node speaks " + own),
                  1u)
            << world[i].log_text();
        EXPECT_GT(world[i].log_count("peer_unreachable"), 0u) << "the dialing side knows, too";
    }
}

// --- strangers

TEST(PeerLinks, strangers_learn_a_challenge_at_most_and_have_three_seconds) {
    PeerWorld world(2);
    SimNode& stranger = world.world.add_node("stranger");
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    const auto elapsed = [&](ByteSpan bytes, std::size_t answer_bytes) {
        const MonoTime begun = world.world.now();
        EXPECT_EQ(answer_to(world, stranger, world[0], bytes).size(), answer_bytes);
        return world.world.now() - begun;
    };
    const Duration slack = milliseconds(150);
    const Duration nothing = elapsed({}, 0);
    EXPECT_GE(nothing, HANDSHAKE_TIMEOUT);
    EXPECT_LT(nothing, HANDSHAKE_TIMEOUT + slack);
    const ByteVector hello = encode(Hello{});
    EXPECT_GE(elapsed(ByteSpan(hello).first(20), 0), HANDSHAKE_TIMEOUT);
    const Duration one_message = elapsed(hello, CHALLENGE_BYTES);
    EXPECT_GE(one_message, HANDSHAKE_TIMEOUT);
    EXPECT_LT(one_message, HANDSHAKE_TIMEOUT + slack);
    // Judged by the first bytes.
    ByteVector large(PEER_LENGTH_BYTES);
    store_be(large.data(), HANDSHAKE_FRAME_LEN_MAX + 1);
    EXPECT_LT(elapsed(large, 0), slack);
    store_be(large.data(), std::uint32_t{0});
    EXPECT_LT(elapsed(large, 0), slack);
    EXPECT_LT(elapsed(encode(Ping{}), 0), slack);
    EXPECT_LT(elapsed(encode(Prepare{LeaderEpoch(1)}), 0), slack);
    EXPECT_LT(elapsed(as_byte_span("GET / HTTP/1.1\r\n\r\n"), 0), slack);
    ByteVector twice = hello;
    twice.insert(twice.end(), hello.begin(), hello.end());
    EXPECT_LT(elapsed(twice, CHALLENGE_BYTES), slack);
    EXPECT_EQ(world[0].down_count, 0);
}

TEST(PeerLinks, a_flood_of_strangers_disturbs_no_link) {
    PeerWorld world(3);
    SimNode& stranger = world.world.add_node("stranger");
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    const std::size_t handles = world.world.network().open_handles(world[0].sim);
    std::size_t handles_max = 0;
    int ended = 0;
    constexpr int STRANGERS = 1000;
    for (int i = 0; i < STRANGERS; ++i) {
        stranger.scheduler().spawn("flood", [&, i](Fiber& fiber) {
            const auto conn = stranger.net().connect(fiber, "a:7189", NEVER);
            ++ended;
            if (!conn.ok()) return;
            Rng rng(static_cast<std::uint64_t>(i));
            // A third says nothing, a third random bytes, a third a byte now and then.
            const ByteVector hello = encode(Hello{});
            for (std::size_t at = 0; i % 3 != 0; ++at) {
                ByteVector bytes(i % 3 == 1 ? 300 : 1, hello[at % hello.size()]);
                if (i % 3 == 1) {
                    for (std::byte& b : bytes)
                        b = static_cast<std::byte>(rng.next());
                }
                if (!write_all(fiber, **conn, bytes).ok()) break;
                const MonoTime next = stranger.clock().now() + milliseconds(100);
                if (!fiber.scheduler().sleep_until(fiber, next).ok()) break;
            }
            EXPECT_LE(read_all(fiber, **conn).size(), CHALLENGE_BYTES);
        });
    }
    for (int ms = 0; ms < 5000; ++ms) {
        if (ms % 100 == 0)
            world[1]
                .channel(0, Lane::CONTROL)
                .send_message(Heartbeat{LeaderEpoch(1), world.world.now(), true, Sequence()});
        world.world.run_for(milliseconds(1));
        const std::size_t now = world.world.network().open_handles(world[0].sim);
        handles_max = std::max(handles_max, now);
    }
    EXPECT_EQ(ended, STRANGERS);
    EXPECT_EQ(world[0].seen.size(), 50u);
    EXPECT_EQ(world[0].down_count + world[1].down_count + world[2].down_count, 0);
    EXPECT_GT(handles_max, handles + 20);
    EXPECT_EQ(world.world.network().open_handles(world[0].sim), handles) << "all are gone";
    EXPECT_EQ(world[0].log_count("peer_flood"), 1u) << "told now and then, not for each";
}

TEST(PeerLinks, of_too_many_strangers_the_oldest_goes) {
    PeerWorld world(1);
    SimNode& stranger = world.world.add_node("stranger");
    world.start_all();
    std::vector<int> closed;
    const int count_max = static_cast<int>(UNAUTHENTICATED_COUNT_MAX);
    for (int i = 0; i < count_max + 3; ++i) {
        stranger.scheduler().spawn("stranger", [&, i](Fiber& fiber) {
            const auto conn = stranger.net().connect(fiber, "a:7189", NEVER).value();
            EXPECT_TRUE(read_all(fiber, *conn).empty());
            closed.push_back(i);
        });
        world.world.run_for(milliseconds(20));
        EXPECT_TRUE(i >= count_max || closed.empty());
    }
    ASSERT_TRUE(world.run_until([&] { return closed.size() >= 3; }, milliseconds(100)));
    std::sort(closed.begin(), closed.end());
    EXPECT_EQ(closed, (std::vector<int>{0, 1, 2}));
}

// --- what a peer may not do

TEST(PeerLinks, a_peer_that_breaks_the_protocol_is_closed_and_named) {
    PeerWorld world(2);
    SimNode& other = world.world.add_node("other");
    world[0].start();
    const auto length = [](std::uint32_t value) {
        ByteVector bytes(PEER_LENGTH_BYTES);
        store_be(bytes.data(), value);
        return bytes;
    };
    ByteVector changed = encode(PreVote{LeaderEpoch(3)});
    changed.back() ^= std::byte{1};
    ByteVector long_ping = encode(Ping{});
    long_ping.push_back(std::byte{0});
    store_be(long_ping.data(), PEER_FRAME_LEN_MIN + 1);
    const std::byte ping_and_zero[] = {static_cast<std::byte>(Op::PING), std::byte{0}};
    store_be(long_ping.data() + 5, crc32c(ping_and_zero));
    const std::vector<std::pair<ByteVector, std::string>> breaches = {
        {length(0), "frame length 0"},
        {length(PEER_FRAME_LEN_MIN - 1), "frame length 4"},
        {length(PEER_FRAME_LEN_MAX + 1), "frame length 20971521"},
        {length(0xFFFFFFFF), "frame length 4294967295"},
        {changed, "not as it was sent"},
        {long_ping, "PING tail"},
        {encode(Hello{}), "HELLO behind the handshake"},
        {encode(world[1].options.identity), "IDENTITY behind the handshake"},
    };
    for (const auto& [bytes, reason] : breaches) {
        SCOPED_TRACE(reason);
        const int ups = world[0].up_count;
        world.run_on(other, [&, sent = ByteSpan(bytes)](Fiber& fiber) {
            const auto conn = other.net().connect(fiber, "a:7189", NEVER).value();
            PeerFrameReader reader(*conn, other.clock());
            ASSERT_TRUE(handshake_dialing(fiber, *conn, reader, self_of(world[1].options, 5),
                                          NodeId(0), Lane::BULK, NEVER)
                            .ok());
            ASSERT_TRUE(write_all(fiber, *conn, encode(PreVote{LeaderEpoch(1)})).ok());
            ASSERT_TRUE(write_all(fiber, *conn, sent).ok());
            const MonoTime begun = world.world.now();
            (void)read_all(fiber, *conn);
            EXPECT_LT(world.world.now() - begun, milliseconds(100));
        });
        EXPECT_EQ(world[0].up_count, ups + 1);
        EXPECT_EQ(world[0].down_count, ups + 1);
        EXPECT_EQ(world[0].seen.size(), static_cast<std::size_t>(ups + 1));
        EXPECT_EQ(world[0].log_count(reason), 1u) << world[0].log_text();
    }
}

TEST(PeerLinks, what_the_handler_refuses_closes_the_channel) {
    PeerWorld world(2);
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    world[1].hook_frame = [](Fiber&, PeerChannel&, Op, ByteSpan payload) -> Result<void> {
        MORTAR_TRY(decode<PreVote>(payload));
        return {};
    };
    world[0].channel(1, Lane::CONTROL).send_message(Heartbeat{LeaderEpoch(1), {}, {}, {}});
    ASSERT_TRUE(world.run_until([&] { return world[1].down_count == 1; }));
    EXPECT_EQ(world[1].log_count("peer_channel_down peer=0 lane=control direction=accepted "
                                 "reason=PRE_VOTE tail: bytes behind the last field"),
              1u)
        << world[1].log_text();
    EXPECT_TRUE(world.run_until([&] { return !world.all_linked(); }));
    EXPECT_TRUE(world.run_until_linked());
    EXPECT_EQ(world[0].down_count, 1);
}

TEST(PeerLinks, a_peer_that_takes_nothing_is_closed_when_the_queue_is_full) {
    PeerWorld world(2);
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    Event never;
    world[1].hook_frame = [&never](Fiber& fiber, PeerChannel&, Op, ByteSpan) {
        return never.wait(fiber);
    };
    PeerChannel& channel = world[0].channel(1, Lane::BULK);
    const std::string large(10u << 20, 'x');
    int sent = 0;
    while (!channel.is_closed()) {
        channel.send(
            encode(SnapshotReply{1, FetchOutcome::OK, Sequence(), 0, as_byte_span(large)}));
        ++sent;
        EXPECT_LE(channel.queued_bytes(), PEER_QUEUE_BYTES_MAX);
    }
    EXPECT_EQ(sent, 7);
    ASSERT_TRUE(world.run_until([&] { return world[0].down_count > 0; }));
    EXPECT_EQ(world[0].down_count, 1);
    EXPECT_EQ(world[0].log_count("the queue is full"), 1u) << world[0].log_text();
}

TEST(PeerLinks, a_newer_connection_takes_over_when_the_older_ones_frame_is_done) {
    PeerWorld world(2);
    SimNode& other = world.world.add_node("other");
    world[0].start();
    Event go_on;
    bool waiting = false;
    world[0].hook_frame = [&](Fiber& fiber, PeerChannel&, Op op, ByteSpan) -> Result<void> {
        if (op != Op::PREPARE) return {};
        waiting = true;
        MORTAR_TRY(go_on.wait(fiber));
        waiting = false;
        return {};
    };
    int closed = 0;
    const auto dial = [&](std::uint64_t number, ByteVector frame) {
        other.scheduler().spawn("dial", [&, number, sent = std::move(frame)](Fiber& fiber) {
            const auto conn = other.net().connect(fiber, "a:7189", NEVER).value();
            PeerFrameReader reader(*conn, other.clock());
            ASSERT_TRUE(handshake_dialing(fiber, *conn, reader, self_of(world[1].options, number),
                                          NodeId(0), Lane::CONTROL, NEVER)
                            .ok());
            ASSERT_TRUE(write_all(fiber, *conn, sent).ok());
            (void)read_all(fiber, *conn);
            ++closed;
        });
        world.world.run_for(milliseconds(100));
    };
    dial(1, encode(Prepare{LeaderEpoch(1)}));
    ASSERT_TRUE(waiting);
    dial(2, encode(PreVote{LeaderEpoch(2)}));
    dial(3, encode(PreVote{LeaderEpoch(3)}));
    EXPECT_EQ(world[0].up_count, 1);
    EXPECT_EQ(world[0].down_count, 0);
    EXPECT_EQ(closed, 2) << "the first, and the one in the middle, which a newer one replaced";
    go_on.notify_all();
    world.world.run_for(milliseconds(100));
    EXPECT_EQ(world[0].up_count, 2);
    EXPECT_EQ(world[0].down_count, 1);
    ASSERT_EQ(world[0].seen.size(), 2u);
    EXPECT_EQ(decode<PreVote>(world[0].seen[1].payload)->candidate_epoch, LeaderEpoch(3));
}

TEST(PeerLinks, bulk_does_not_delay_control) {
    PeerWorld world(2);
    sim::NetSpeed slow;
    slow.bytes_per_ms = 10'000;
    slow.delay_one_in = 1'000'000;
    world.world.network().set_speed(slow);
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    const std::string large(19u << 20, 'x');
    for (int i = 0; i < 3; ++i)
        world[0]
            .channel(1, Lane::BULK)
            .send(encode(SnapshotReply{1, FetchOutcome::OK, Sequence(), 0, as_byte_span(large)}));
    Duration slowest;
    world[1].hook_frame = [&](Fiber&, PeerChannel& channel, Op, ByteSpan payload) -> Result<void> {
        if (channel.lane() == Lane::BULK) return {};
        const Heartbeat heartbeat = MORTAR_TRY(decode<Heartbeat>(payload));
        slowest = std::max(slowest, world.world.now() - heartbeat.sent_at);
        return {};
    };
    int sent = 0;
    while (world[0].channel(1, Lane::BULK).queued_bytes() > 0 && sent < 1000) {
        world[0]
            .channel(1, Lane::CONTROL)
            .send_message(Heartbeat{LeaderEpoch(1), world.world.now(), true, Sequence()});
        ++sent;
        world.world.run_for(milliseconds(50));
    }
    EXPECT_GT(sent, 50) << "the bulk took seconds";
    EXPECT_LT(slowest, milliseconds(5));
    ASSERT_TRUE(world.run_until(
        [&] { return world[1].seen.size() == static_cast<std::size_t>(sent) + 3; }));
    EXPECT_EQ(world[0].down_count + world[1].down_count, 0);
}

TEST(PeerLinks, a_channel_may_be_closed_by_its_user_at_any_time) {
    PeerWorld world(2);
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    PeerChannel& channel = world[0].channel(1, Lane::BULK);
    channel.close();
    channel.close();
    EXPECT_EQ(world[0].links->channel(NodeId(1), Lane::BULK), nullptr);
    channel.send_message(Ping{});
    EXPECT_EQ(channel.queued_bytes(), 0u);
    ASSERT_TRUE(world.run_until([&] { return world[0].down_count == 1; }));
    EXPECT_TRUE(world.run_until_linked());
    world[0].hook_up = [](PeerChannel& fresh) { fresh.close(); };
    world[0].channel(1, Lane::BULK).close();
    world.world.run_for(seconds(10));
    EXPECT_GT(world[0].up_count, 5);
    EXPECT_LT(world[0].up_count, 30) << "again and again, but more and more slowly";
    world[0].hook_up = {};
    EXPECT_TRUE(world.run_until_linked());
}

TEST(PeerLinks, stop_closes_everything) {
    PeerWorld world;
    world.start_all();
    ASSERT_TRUE(world.run_until_linked());
    world.run_on(world[0].sim, [&](Fiber& fiber) { world[0].stop(fiber); });
    EXPECT_TRUE(world[0].up.empty());
    EXPECT_EQ(world[0].down_count, 8);
    EXPECT_EQ(world[0].sim.scheduler().fiber_count(), 0u);
    EXPECT_TRUE(world.run_until([&] { return world[1].up.size() == 4; }));
}

TEST(PeerLinks, one_seed_gives_one_run) {
    const auto run = [](std::uint64_t seed) {
        PeerWorld world(3, seed);
        world.start_all();
        EXPECT_TRUE(world.run_until_linked());
        Rng rng(seed);
        for (int i = 0; i < 20; ++i) {
            const auto ids = world.world.network().connections();
            if (!ids.empty()) world.world.network().reset(ids[rng.below(ids.size())], rng);
            world.world.run_for(milliseconds(300));
        }
        return world.world.trace_hash();
    };
    EXPECT_EQ(run(1), run(1));
    EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace mortar::peer
