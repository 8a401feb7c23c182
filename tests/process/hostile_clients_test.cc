// Clients that send anything, or nothing, or read nothing: each gets the code that the registry
// names, costs bounded memory, and does not hold up those that behave.
// covers contract S1, S3, S4, S5, R1; the 30 s of SLOW_CONSUMER and the 45 s of keepalive run on
// simulated time in Session's unit tests
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "tests/process/mortarmqd.h"

namespace mortar::process {
namespace {

using wire::Op;

#ifdef MORTAR_ASAN
// The sanitizer keeps freed memory and shadows all of it.
constexpr std::uint64_t RSS_FIXED_BYTES = 1024u << 20;
#else
constexpr std::uint64_t RSS_FIXED_BYTES = 128u << 20;
#endif
constexpr std::uint64_t RSS_GROWTH_BYTES_MAX = wire::UNFINISHED_FRAME_BYTES_MAX + RSS_FIXED_BYTES;

template <class Message>
ByteVector frame_of(const Message& message) {
    ByteVector frame;
    wire::encode(frame, message);
    return frame;
}

ByteVector announced(std::uint32_t length, ByteSpan sent = {}) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.u32(length);
    writer.bytes(sent);
    return bytes;
}

ByteVector op_frame(std::uint8_t op, ByteSpan payload = {}) {
    ByteVector frame;
    ByteWriter writer(frame);
    writer.u32(static_cast<std::uint32_t>(payload.size() + 1));
    writer.u8(op);
    writer.bytes(payload);
    return frame;
}

// One valid frame of each op that a client may send.
std::vector<ByteVector> valid_frames() {
    wire::Pub pub = pub_of(TopicId(1), "value");
    pub.key = as_byte_span("key");
    const OwnershipEpoch epochs[] = {OwnershipEpoch(1), OwnershipEpoch(2)};
    const ByteVector packed = wire::OwnershipEpochs::pack(epochs);
    wire::Pull pull;
    pull.ownership_epochs = wire::OwnershipEpochs(packed);
    wire::Sub sub;
    sub.group = "group";
    wire::Connect connect;
    connect.token = as_byte_span("token");
    return {frame_of(connect),
            frame_of(wire::Declare{"topic", 1, 0}),
            frame_of(pub),
            frame_of(sub),
            frame_of(wire::Ack{}),
            frame_of(wire::Nack{}),
            frame_of(wire::Err{3, 0, "text"}),
            frame_of(pull),
            frame_of(wire::Heartbeat{}),
            frame_of(wire::ControlAck{}),
            frame_of(wire::Credit{})};
}

struct Bad {
    const char* what;
    ByteVector bytes;
    bool connects_first;
    ErrorCode code;
};

std::vector<Bad> bad_things() {
    std::vector<Bad> all;
    const auto add = [&all](const char* what, ByteVector bytes, bool connects_first,
                            ErrorCode code) {
        all.push_back({what, std::move(bytes), connects_first, code});
    };
    add("length 0", announced(0), true, ErrorCode::BAD_LENGTH);
    add("length 0 before CONNECT", announced(0), false, ErrorCode::BAD_LENGTH);
    add("length MAX+1", announced(wire::MAX_FRAME_LEN + 1), true, ErrorCode::BAD_LENGTH);
    add("length 0xFFFFFFFF", announced(0xFFFFFFFF), true, ErrorCode::BAD_LENGTH);
    add("a large frame before CONNECT", announced(wire::PRE_CONNECT_FRAME_LEN_MAX + 1), false,
        ErrorCode::BAD_LENGTH);
    add("HTTP",
        ByteVector(as_byte_span("GET / HTTP/1.1\r\n\r\n").begin(),
                   as_byte_span("GET / HTTP/1.1\r\n\r\n").end()),
        false, ErrorCode::BAD_LENGTH);
    add("a second CONNECT", frame_of(wire::Connect{}), true, ErrorCode::MALFORMED_PAYLOAD);
    for (const int number : {0x00, 0x10, 0x7F, 0x80, 0xFE, 0xFF}) {
        const auto op = static_cast<std::uint8_t>(number);
        add("an unknown op", op_frame(op), true, ErrorCode::UNKNOWN_OP);
        add("an unknown op before CONNECT", op_frame(op), false, ErrorCode::UNKNOWN_OP);
    }
    for (const Op op : {Op::OK, Op::MSG, Op::NOTICE})
        add("an op of brokers", op_frame(static_cast<std::uint8_t>(op)), true,
            ErrorCode::MALFORMED_PAYLOAD);
    add("a PING with a payload", op_frame(0x07, as_byte_span("x")), true,
        ErrorCode::MALFORMED_PAYLOAD);
    wire::Connect newer;
    newer.protocol_version = wire::WIRE_VERSION + 1;
    add("another version", frame_of(newer), false, ErrorCode::UNSUPPORTED_VERSION);
    wire::Connect stranger;
    stranger.token = as_byte_span("guess");
    add("a wrong token", frame_of(stranger), false, ErrorCode::AUTH_FAILED);
    for (const ByteVector& frame : valid_frames()) {
        const auto op = static_cast<Op>(frame[wire::LENGTH_BYTES]);
        if (wire::allowed_before_connect(op)) continue;
        add("an op before CONNECT", frame, false, ErrorCode::NOT_AUTHENTICATED);
    }
    return all;
}

// Every payload of every op, cut everywhere, under a length that says so.
std::vector<Bad> truncations() {
    std::vector<Bad> all;
    for (const ByteVector& frame : valid_frames()) {
        const ByteSpan payload = ByteSpan(frame).subspan(wire::FRAME_HEAD_BYTES);
        const auto op = static_cast<std::uint8_t>(frame[wire::LENGTH_BYTES]);
        for (std::size_t kept = 0; kept < payload.size(); ++kept)
            all.push_back({wire::op_name(op).data(), op_frame(op, payload.first(kept)),
                           Op{op} != Op::CONNECT, ErrorCode::MALFORMED_PAYLOAD});
    }
    return all;
}

// What it got, and whether it was closed.
void expect_answer(const Broker& broker, const Bad& bad) {
    SCOPED_TRACE(bad.what);
    RawClient client(broker.client_port());
    ASSERT_TRUE(!bad.connects_first || client.connect());
    client.send(bad.bytes);
    const Answer answer = client.read_answer().value_or(RawClient::closed_answer());
    EXPECT_EQ(name_of(answer.code), name_of(bad.code)) << answer.text;
    // The op is known as soon as it was read (contract S1).
    const bool has_op = bad.code != ErrorCode::BAD_LENGTH;
    EXPECT_EQ(static_cast<std::uint8_t>(answer.op),
              has_op ? static_cast<std::uint8_t>(bad.bytes[wire::LENGTH_BYTES]) : wire::NO_OP);
    EXPECT_TRUE(client.is_closed_within(Millis(20'000)));
}

TEST(HostileClients, get_the_code_of_what_they_did) {
    TempFolder folder;
    Broker broker(folder / "data");
    for (const Bad& bad : bad_things())
        expect_answer(broker, bad);
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0);
}

TEST(HostileClients, get_0003_for_each_payload_cut_anywhere) {
    TempFolder folder;
    Broker broker(folder / "data");
    const std::vector<Bad> all = truncations();
    EXPECT_GT(all.size(), 250u);
    for (const Bad& bad : all)
        expect_answer(broker, bad);
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0);
}

TEST(HostileClients, may_publish_up_to_the_limits_and_not_beyond) {
    TempFolder folder;
    Broker broker(folder / "data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "heavy", 1);
    const std::string key(wire::MAX_KEY_LEN, 'k');
    const std::string value(wire::MAX_VALUE_LEN, 'v');
    wire::Pub pub = pub_of(topic, value);
    pub.key = as_byte_span(key);
    EXPECT_EQ(client->ask(pub).code, ErrorCode{});

    // One byte more than the largest value: the frame is written by hand, for ours refuses it.
    ByteVector frame;
    ByteWriter writer(frame);
    writer.u32(static_cast<std::uint32_t>(1 + wire::PUB_FIXED_BYTES + value.size() + 1));
    writer.u8(static_cast<std::uint8_t>(Op::PUB));
    writer.id(topic);
    writer.zeros(2 + 8 + 8 + 2 + 2);
    writer.u32(static_cast<std::uint32_t>(value.size() + 1));
    writer.bytes(as_byte_span(value));
    writer.u8('v');
    client->send(frame);
    EXPECT_EQ(name_of(client->read_answer().value_or(RawClient::closed_answer()).code),
              "MALFORMED_PAYLOAD");
    EXPECT_TRUE(client->is_closed_within(Millis(10'000)));

    // The large one comes back whole.
    const auto consumer = connected_client(broker.client_port());
    const std::optional<Subscribed> member = subscribe(*consumer, "all", topic, 1, 2, 64u << 20);
    ASSERT_TRUE(member.has_value());
    EXPECT_EQ(consumer->ask(pull_of(*member, 1, 1'000)).code, ErrorCode{});
    ASSERT_EQ(consumer->pushes.size(), 1u);
    const wire::Msg msg = wire::decode_msg(consumer->pushes[0].payload).value();
    EXPECT_TRUE(as_string_view(msg.key) == key && as_string_view(msg.value) == value);
    EXPECT_EQ(broker.stop(), 0);
}

// 320 MiB of frames that never end: the node takes 256 of them and says so to the rest.
TEST(HostileClients, cannot_fill_the_memory_with_unfinished_frames) {
    constexpr int CLIENT_COUNT = 40;
    constexpr std::size_t SENT_BYTES = 8u << 20;
    TempFolder folder;
    Broker broker(folder / "data");
    connected_client(broker.client_port());
    const std::uint64_t rss_before = broker.rss_bytes();
    std::uint64_t rss_most = 0;
    int refused_count = 0;
    {
        const ByteVector chunk(256u << 10, std::byte{0x55});
        std::vector<std::unique_ptr<RawClient>> clients;
        for (int i = 0; i < CLIENT_COUNT; ++i) {
            clients.push_back(connected_client(broker.client_port()));
            RawClient& client = *clients.back();
            const ByteSpan op = ByteSpan(chunk).first(1);
            client.send(announced(wire::MAX_FRAME_LEN, op));
            for (std::size_t sent = 0; sent < SENT_BYTES && client.is_open(); sent += chunk.size())
                client.send(chunk);
            if (i % 4 == 3) rss_most = std::max(rss_most, broker.rss_bytes());
        }
        rss_most = std::max(rss_most, broker.rss_bytes());
        // One that behaves is served all the while.
        const auto good = connected_client(broker.client_port());
        const TopicId topic = declare_topic(*good, "orders", 1);
        EXPECT_EQ(good->ask(pub_of(topic, "x")).code, ErrorCode{});
        for (const auto& client : clients) {
            const std::optional<Answer> answer = client->read_answer(Millis(0));
            if (!answer.has_value()) continue;
            EXPECT_EQ(name_of(answer->code), "QUOTA_EXCEEDED");
            ++refused_count;
        }
    }
    EXPECT_GT(refused_count, 0);
    EXPECT_LT(refused_count, CLIENT_COUNT / 2);
    EXPECT_LE(rss_most, rss_before + RSS_GROWTH_BYTES_MAX);
    // All of the budget is free again.
    const auto later = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*later, "orders", 1);
    const std::string value(wire::MAX_VALUE_LEN, 'v');
    EXPECT_EQ(later->ask(pub_of(topic, value)).code, ErrorCode{});
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0);
}

ByteVector noise_frames(TopicId topic, int count) {
    ByteVector frames;
    for (int i = 0; i < count; ++i) {
        wire::encode(frames, pub_of(topic, "noise"));
        wire::encode(frames, wire::Ping{});
    }
    return frames;
}

// As fast as the sockets take it, for as long as a test may.
TEST(HostileClients, cannot_fill_the_memory_with_answers_that_they_do_not_read) {
    constexpr std::size_t CLIENT_COUNT = 6;
    TempFolder folder;
    Broker broker(folder / "data");
    const auto good = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*good, "noise", 1);
    const ByteVector frames = noise_frames(topic, 512);
    const std::uint64_t rss_before = broker.rss_bytes();
    std::vector<std::unique_ptr<RawClient>> deaf;
    std::vector<std::size_t> offsets(CLIENT_COUNT);
    for (std::size_t i = 0; i < CLIENT_COUNT; ++i)
        deaf.push_back(connected_client(broker.client_port()));
    for (const SteadyTime deadline = now() + Millis(5'000); now() < deadline;) {
        for (std::size_t i = 0; i < CLIENT_COUNT; ++i) {
            offsets[i] += deaf[i]->send_some(ByteSpan(frames).subspan(offsets[i]));
            if (offsets[i] == frames.size()) offsets[i] = 0;
            EXPECT_TRUE(deaf[i]->is_open());
        }
        ASSERT_LE(broker.rss_bytes(), rss_before + RSS_GROWTH_BYTES_MAX);
    }
    EXPECT_EQ(good->ask(pub_of(topic, "x")).code, ErrorCode{});
    EXPECT_TRUE(broker.is_healthy());
}

std::size_t idle_count() {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    constexpr std::size_t OURS = 200;
    return std::min<std::size_t>(2'500, limit.rlim_max > OURS ? limit.rlim_max - OURS : 0);
}

// Those that never finish what they began are gone after 10 s; until then they cost next to nothing.
TEST(HostileClients, that_idle_by_the_thousand_are_ended_by_their_deadlines) {
    TempFolder folder;
    Broker broker(folder / "data");
    const std::size_t count = idle_count();
    ASSERT_GE(count, 500u) << "the limit of open files is too low for this test";
    const std::uint64_t rss_before = broker.rss_bytes();
    const SteadyTime began = now();
    std::vector<std::unique_ptr<RawClient>> silent;  // never send CONNECT
    std::vector<std::unique_ptr<RawClient>> half;    // connected, then half a frame
    while (silent.size() + half.size() < count) {
        silent.push_back(std::make_unique<RawClient>(broker.client_port()));
        EXPECT_TRUE(silent.back()->is_open());
        if (silent.size() % 5 != 0) continue;
        half.push_back(connected_client(broker.client_port()));
        half.back()->send(ByteSpan(frame_of(wire::Declare{"topic", 1, 0})).first(9));
    }
    const auto good = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*good, "orders", 1);
    for (int i = 0; i < 50; ++i)
        EXPECT_EQ(good->ask(pub_of(topic, "x")).code, ErrorCode{});
    EXPECT_LE(broker.rss_bytes(), rss_before + RSS_FIXED_BYTES);

    const SteadyTime all_there = now();
    EXPECT_EQ(
        name_of(
            silent.front()->read_answer(Millis(20'000)).value_or(RawClient::closed_answer()).code),
        "AUTH_TIMEOUT");
    EXPECT_GE(now() - began, Millis(9'500));
    EXPECT_EQ(
        name_of(
            silent.back()->read_answer(Millis(20'000)).value_or(RawClient::closed_answer()).code),
        "AUTH_TIMEOUT");
    for (const auto& client : {half.front().get(), half.back().get()})
        EXPECT_TRUE(client->is_closed_within(Millis(20'000)));
    EXPECT_LE(now() - all_there, Millis(20'000));
    EXPECT_EQ(good->ask(pub_of(topic, "x")).code, ErrorCode{});
    EXPECT_TRUE(broker.is_healthy());
}

// --- speed of those that behave

// Publishes and consumes one topic with small windows, and notes the first thing that goes wrong.
class GoodClient {
  public:
    explicit GoodClient(std::uint16_t port) {
        publisher_ = connected_client(port);
        topic_ = declare_topic(*publisher_, "good", 1);
        consumer_ = connected_client(port);
        member_ = subscribe(*consumer_, "good", topic_, 1).value();
        threads_.emplace_back([this] { publish(); });
        threads_.emplace_back([this] { consume(); });
    }
    ~GoodClient() { stop(); }
    GoodClient(const GoodClient&) = delete;
    GoodClient& operator=(const GoodClient&) = delete;

    void stop() {
        stopping_ = true;
        for (std::thread& thread : threads_)
            thread.join();
        threads_.clear();
    }
    struct Rate {
        double published = 0;  // a second
        double consumed = 0;
    };
    bool is_under_way() const { return published_count_ > 100 && consumed_count_ > 100; }
    Rate measure(Millis time) const {
        const SteadyTime began = now();
        const std::uint64_t published = published_count_;
        const std::uint64_t consumed = consumed_count_;
        std::this_thread::sleep_for(time);
        const double seconds = std::chrono::duration<double>(now() - began).count();
        return {static_cast<double>(published_count_ - published) / seconds,
                static_cast<double>(consumed_count_ - consumed) / seconds};
    }
    std::string fault() {
        const std::lock_guard lock(mutex_);
        return fault_;
    }

  private:
    static constexpr std::uint64_t OUTSTANDING_MAX = 16;

    void note(const std::string& fault) {
        const std::lock_guard lock(mutex_);
        if (fault_.empty()) fault_ = fault;
    }
    void publish() {
        const std::string value(256, 'g');
        std::uint64_t sent = 0;
        std::uint64_t answered = 0;
        while (!stopping_ || answered < sent) {
            while (!stopping_ && sent - answered < OUTSTANDING_MAX)
                publisher_->say(pub_of(topic_, value, 1, ++sent));
            const Answer answer = publisher_->read_answer().value_or(RawClient::closed_answer());
            if (answer.code != ErrorCode{}) return note("PUB: " + name_of(answer.code));
            ++answered;
            ++published_count_;
        }
    }
    void consume() {
        Sequence expected(1);
        while (!stopping_) {
            const Answer pulled = consumer_->ask(pull_of(member_, 64, 500));
            if (pulled.code != ErrorCode{}) return note("PULL: " + name_of(pulled.code));
            const std::vector<Answer> pushes = std::exchange(consumer_->pushes, {});
            for (const Answer& push : pushes) {
                const wire::Msg msg = wire::decode_msg(push.payload).value();
                if (msg.sequence != expected) return note("a message is missing or twice");
                expected = expected.next();
                consumer_->say(ack_of(msg));
            }
            for (std::size_t i = 0; i < pushes.size(); ++i) {
                const Answer acked = consumer_->read_answer().value_or(RawClient::closed_answer());
                if (acked.code != ErrorCode{}) return note("ACK: " + name_of(acked.code));
                ++consumed_count_;
            }
        }
    }

    std::unique_ptr<RawClient> publisher_;
    std::unique_ptr<RawClient> consumer_;
    TopicId topic_;
    Subscribed member_;
    std::atomic<bool> stopping_ = false;
    std::atomic<std::uint64_t> published_count_ = 0;
    std::atomic<std::uint64_t> consumed_count_ = 0;
    std::mutex mutex_;
    std::string fault_;
    std::vector<std::thread> threads_;
};

// The machine is shared and a disk has its moods: each attack is measured several times, between two
// measurements without it, and the median of the shares is what counts.
class HostileLoad : public ::testing::Test {
  protected:
    static constexpr Millis WINDOW{1'100};  // each attack acts at least once in it
    static constexpr std::size_t PAIR_COUNT = 5;
    static constexpr std::size_t ATTEMPTS = 2 * PAIR_COUNT;
    static constexpr double SHARE_MIN = 0.5;

    HostileLoad() : good(broker.client_port()) {
        EXPECT_TRUE(eventually([this] { return good.is_under_way(); })) << good.fault();
    }

    // attack: runs until told to stop, and counts in acted_count what it does to the broker. A
    // window in which it did nothing shows nothing and does not count.
    void expect_unimpressed(const std::function<void(std::atomic<bool>&)>& attack) {
        const std::uint64_t rss_before = broker.rss_bytes();
        std::vector<double> shares;
        GoodClient::Rate before = good.measure(WINDOW);
        for (std::size_t i = 0; i < ATTEMPTS && shares.size() < PAIR_COUNT; ++i) {
            std::atomic<bool> stopping = false;
            const std::uint64_t acted_at_first = acted_count;
            std::thread attacker([&] { attack(stopping); });
            EXPECT_TRUE(eventually([&] { return acted_count > acted_at_first; }));
            const std::uint64_t acted_before = acted_count;
            const GoodClient::Rate during = good.measure(WINDOW);
            const bool has_acted = acted_count > acted_before;
            EXPECT_LE(broker.rss_bytes(), rss_before + RSS_GROWTH_BYTES_MAX);
            stopping = true;
            attacker.join();
            const GoodClient::Rate after = good.measure(WINDOW);
            const double share =
                std::min(2 * during.published / (before.published + after.published),
                         2 * during.consumed / (before.consumed + after.consumed));
            if (has_acted) shares.push_back(share);
            std::printf(
                "    %.0f and %.0f published a second, under attack %.0f; %.0f and %.0f consumed, "
                "under attack %.0f%s\n",
                before.published, after.published, during.published, before.consumed,
                after.consumed, during.consumed, has_acted ? "" : " (no attack)");
            ASSERT_EQ(good.fault(), "");
            before = after;
        }
        ASSERT_EQ(shares.size(), PAIR_COUNT) << "the attack did not act";
        std::sort(shares.begin(), shares.end());
        EXPECT_GE(shares[PAIR_COUNT / 2], SHARE_MIN);
        good.stop();
        EXPECT_EQ(good.fault(), "");
        EXPECT_TRUE(broker.program().is_running());
        EXPECT_TRUE(broker.is_healthy());
        EXPECT_EQ(broker.stop(), 0) << broker.program().output();
    }
    void breathe() {
        ++acted_count;
        std::this_thread::sleep_for(Millis(1));
    }

    TempFolder folder;
    Broker broker{folder / "data"};
    GoodClient good;
    std::atomic<std::uint64_t> acted_count = 0;
};

TEST_F(HostileLoad, of_random_bytes) {
    std::mt19937_64 random(7);
    expect_unimpressed([&](std::atomic<bool>& stopping) {
        while (!stopping) {
            RawClient client(broker.client_port());
            if (random() % 2 == 0) client.connect();
            ByteVector bytes(random() % 4096);
            for (std::byte& byte : bytes)
                byte = static_cast<std::byte>(random());
            // Half of them behind a length that fits.
            if (random() % 2 == 0)
                client.send(announced(static_cast<std::uint32_t>(bytes.size()) + 1,
                                      ByteSpan(frame_of(wire::Ping{})).subspan(4)));
            client.send(bytes);
            client.read(Millis(5));
            breathe();
        }
    });
}

TEST_F(HostileLoad, of_frames_that_are_wrong) {
    std::vector<Bad> all = bad_things();
    for (Bad& bad : truncations())
        all.push_back(std::move(bad));
    // A refused token is answered late, on purpose.
    std::erase_if(all, [](const Bad& bad) { return bad.code == ErrorCode::AUTH_FAILED; });
    expect_unimpressed([&](std::atomic<bool>& stopping) {
        for (std::size_t i = 0; !stopping; i = (i + 1) % all.size()) {
            RawClient client(broker.client_port());
            if (all[i].connects_first) client.connect();
            client.send(all[i].bytes);
            const Answer answer = client.read_answer().value_or(RawClient::closed_answer());
            EXPECT_EQ(name_of(answer.code), name_of(all[i].code)) << all[i].what;
            breathe();
        }
    });
}

TEST_F(HostileLoad, of_the_largest_frames) {
    const auto heavy = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*heavy, "heavy", 1);
    const std::string value(wire::MAX_VALUE_LEN, 'v');
    std::vector<std::unique_ptr<RawClient>> never_sent;
    for (int i = 0; i < 100; ++i) {
        never_sent.push_back(connected_client(broker.client_port()));
        never_sent.back()->send(announced(wire::MAX_FRAME_LEN, as_byte_span("\x03")));
    }
    expect_unimpressed([&](std::atomic<bool>& stopping) {
        while (!stopping) {
            const Answer answer = heavy->ask(pub_of(topic, value));
            EXPECT_EQ(name_of(answer.code), "OK") << answer.text;
            ++acted_count;
            // Not how much it writes is the attack: that would measure the disk.
            std::this_thread::sleep_for(WINDOW / 3);
        }
    });
}

TEST_F(HostileLoad, of_thousands_of_idle_connections) {
    const std::size_t count = idle_count();
    expect_unimpressed([&](std::atomic<bool>& stopping) {
        std::vector<std::unique_ptr<RawClient>> idle;
        while (!stopping) {
            if (idle.size() >= count) {
                breathe();
                continue;
            }
            idle.push_back(std::make_unique<RawClient>(broker.client_port()));
            if (idle.size() % 2 == 0) idle.back()->send(announced(9, as_byte_span("\x01")));
            if (idle.size() % 16 == 0) breathe();
        }
    });
}

TEST_F(HostileLoad, of_consumers_that_stop_reading) {
    constexpr int CONSUMER_COUNT = 8;
    constexpr int MESSAGE_COUNT = 48;
    const auto publisher = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*publisher, "backlog", 1);
    const std::string value(1u << 20, 'v');
    for (int i = 0; i < MESSAGE_COUNT; ++i)
        ASSERT_EQ(publisher->ask(pub_of(topic, value)).code, ErrorCode{});
    expect_unimpressed([&](std::atomic<bool>& stopping) {
        std::vector<std::unique_ptr<RawClient>> deaf;
        for (int i = 0; i < CONSUMER_COUNT; ++i) {
            deaf.push_back(connected_client(broker.client_port()));
            wire::Sub sub;
            const std::string group = "deaf" + std::to_string(i);
            const std::optional<Subscribed> member =
                subscribe(*deaf.back(), group, topic, 1, 65'535, 512u << 20);
            if (!member.has_value()) return;
            deaf.back()->say(pull_of(*member, 0, 5'000));
        }
        while (!stopping)
            breathe();
    });
}

// At a rate that the broker serves with ease: not their load is the attack.
TEST_F(HostileLoad, of_publishers_that_read_no_answer) {
    constexpr std::size_t PUBLISHER_COUNT = 4;
    const auto setup = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*setup, "noise", 1);
    const ByteVector frames = noise_frames(topic, 16);
    expect_unimpressed([&](std::atomic<bool>& stopping) {
        std::vector<std::unique_ptr<RawClient>> deaf;
        for (std::size_t i = 0; i < PUBLISHER_COUNT; ++i)
            deaf.push_back(connected_client(broker.client_port()));
        while (!stopping) {
            for (const auto& client : deaf)
                client->send(frames, Millis(100));
            ++acted_count;
            std::this_thread::sleep_for(Millis(50));
        }
    });
}

}  // namespace
}  // namespace mortar::process
