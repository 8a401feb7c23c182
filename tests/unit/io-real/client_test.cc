// The public API over real sockets: many threads, one loop, a scripted broker on another.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "io-real/client.h"
#include "io-real/real_env.h"
#include "tests/unit/client/fake_broker.h"

namespace mortar {
namespace {
using namespace std::chrono_literals;
using mortarmq::Client;
using mortarmq::ClientOptions;
using mortarmq::Consumer;
using mortarmq::Message;
using mortarmq::Verdict;
using testing::FakeBroker;
using testing::Fault;

// A FakeBroker on a loop thread of its own, listening on a free port.
class BrokerThread {
  public:
    explicit BrokerThread(const std::function<void(FakeBroker&)>& prepare) {
        real_ = std::move(RealEnv::create()).value();
        env_.emplace(real_->env());
        broker_ = std::make_unique<FakeBroker>(real_->scheduler(), env_->clock);
        prepare(*broker_);
        listener_ = std::move(env_->net.listen("127.0.0.1:0")).value();
        real_->scheduler().spawn("fake.accept", [this](Fiber& fiber) {
            while (true) {
                Result<std::unique_ptr<Conn>> conn = listener_->accept(fiber);
                if (!conn.ok()) return;
                broker_->serve_connection(std::move(conn).value());
            }
        });
        thread_ = std::thread([this] { real_->run(); });
    }
    // The broker may be looked at afterwards.
    FakeBroker& stop() {
        if (thread_.joinable()) {
            real_->scheduler().stop();
            thread_.join();
            real_->shutdown();
            listener_.reset();
        }
        return *broker_;
    }
    ~BrokerThread() { stop(); }
    ClientOptions options() const {
        ClientOptions options;
        options.addresses = {"127.0.0.1:" + std::to_string(listener_->port())};
        return options;
    }
    void post(std::function<void(FakeBroker&)> call) {
        real_->scheduler().post([this, call = std::move(call)] { call(*broker_); });
    }

  private:
    std::unique_ptr<RealEnv> real_;
    std::optional<Env> env_;
    std::unique_ptr<FakeBroker> broker_;
    std::unique_ptr<Listener> listener_;
    std::thread thread_;
};

void add_orders(FakeBroker& broker) {
    broker.add_topic("orders", 1);
}

TEST(PublicClient, publishes_from_many_threads_each_in_its_order) {
    BrokerThread broker(add_orders);
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok()) << client.error().to_string();
    constexpr int THREADS = 4;
    constexpr int MESSAGES = 100;
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; ++t) {
        threads.emplace_back([&client, t] {
            std::vector<std::future<mortarmq::Result<mortarmq::Receipt>>> answers;
            for (int i = 0; i < MESSAGES; ++i) {
                answers.push_back(
                    client->publish_async("orders", "", std::to_string(t * MESSAGES + i)));
            }
            std::uint64_t last = 0;
            for (auto& answer : answers) {
                const mortarmq::Result<mortarmq::Receipt> receipt = answer.get();
                ASSERT_TRUE(receipt.ok()) << receipt.error().to_string();
                EXPECT_GT(receipt->sequence, last);
                last = receipt->sequence;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_TRUE(client->flush().ok());
    client->close();
    EXPECT_EQ(broker.stop().topics["orders"].partitions[0].log.size(),
              static_cast<std::size_t>(THREADS * MESSAGES));
}

TEST(PublicClient, tells_what_is_wrong) {
    BrokerThread broker(add_orders);
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    const auto unknown = client->publish("missing", "", "x");
    ASSERT_FALSE(unknown.ok());
    EXPECT_TRUE(unknown.error().is("UNKNOWN_TOPIC"));
    EXPECT_EQ(unknown.error().code, 0x0008);
    EXPECT_EQ(unknown.error().outcome, mortarmq::Outcome::REFUSED);
    EXPECT_TRUE(
        client->publish("orders", std::string(300, 'k'), "x").error().is("INVALID_ARGUMENT"));
    client->close();
    EXPECT_TRUE(client->publish("orders", "", "x").error().is("CONNECTION_CLOSED"));
    EXPECT_TRUE(client->create_topic("t").error().is("CONNECTION_CLOSED"));
    EXPECT_TRUE(client->subscribe({.topic = "orders", .group = "g"})
                    .poll(1ms)
                    .error()
                    .is("CONNECTION_CLOSED"));
}

TEST(PublicClient, says_when_nobody_listens) {
    ClientOptions options;
    options.addresses = {"127.0.0.1:1,127.0.0.1:2"};
    options.connect_timeout = 300ms;
    mortarmq::Result<Client> client = Client::connect(options);
    ASSERT_FALSE(client.ok());
    EXPECT_TRUE(client.error().is("TIMED_OUT"));
    EXPECT_NE(client.error().text.find("127.0.0.1:1 ("), std::string::npos);
    EXPECT_NE(client.error().text.find("127.0.0.1:2 ("), std::string::npos);
}

TEST(PublicClient, refuses_addresses_that_no_waiting_makes_right) {
    for (const char* addresses : {"", " , ", "nowhere", "127.0.0.1:1,nowhere"}) {
        ClientOptions options;
        options.addresses = {addresses};
        EXPECT_TRUE(Client::connect(options).error().is("INVALID_ARGUMENT")) << addresses;
    }
}

TEST(PublicClient, manages_topics) {
    BrokerThread broker([](FakeBroker&) {});
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    EXPECT_FALSE(client->create_topic("orders", 3)->existed);
    EXPECT_TRUE(client->create_topic("orders", 3)->existed);
    EXPECT_EQ(client->lookup_topic("orders")->partition_count, 3);
    EXPECT_TRUE(client->delete_topic("orders").ok());
    EXPECT_TRUE(client->lookup_topic("orders").error().is("UNKNOWN_TOPIC"));
}

TEST(PublicConsumer, polls_acks_and_leaves) {
    BrokerThread broker([](FakeBroker& fake) {
        add_orders(fake);
        for (int i = 0; i < 10; ++i)
            fake.append("orders", 0, std::to_string(i));
    });
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    Consumer consumer = client->subscribe({.topic = "orders", .group = "g"});
    for (int i = 0; i < 10; ++i) {
        mortarmq::Result<Message> message = consumer.poll(5s);
        ASSERT_TRUE(message.ok()) << message.error().to_string();
        EXPECT_EQ(message->value, std::to_string(i));
        if (i % 2 == 0) {
            EXPECT_TRUE(consumer.ack_and_wait(*message).ok());
        } else {
            consumer.ack(*message);
        }
    }
    EXPECT_TRUE(consumer.poll(10ms).error().is("TIMED_OUT"));
    consumer.close();
    EXPECT_TRUE(consumer.poll(10ms).error().is("CONNECTION_CLOSED"));
    FakeBroker& fake = broker.stop();
    EXPECT_EQ(fake.topics["orders"].partitions[0].settled.size(), 10u);
    EXPECT_EQ(fake.leave_count, 1u);
}

std::uint64_t progress_count(BrokerThread& broker) {
    std::promise<std::uint64_t> count;
    broker.post([&count](FakeBroker& fake) { count.set_value(fake.progress_count); });
    return count.get_future().get();
}

TEST(PublicConsumer, a_slow_handler_does_not_stop_heartbeats) {
    BrokerThread broker([](FakeBroker& fake) {
        add_orders(fake);
        fake.append("orders", 0, "slow");
        fake.append("orders", 0, "bad");
    });
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    std::atomic<int> handled = 0;
    Consumer consumer =
        client->subscribe({.topic = "orders", .group = "g", .credit_count = 1, .lease = 600ms});
    consumer.run([&](const Message& message) {
        // Its lease is prolonged again and again while it works, and it works until it has seen that.
        for (int i = 0; message.value == "slow" && i < 1'000 && progress_count(broker) < 10; ++i)
            std::this_thread::sleep_for(10ms);
        ++handled;
        return message.value == "bad" ? Verdict::REJECT : Verdict::ACK;
    });
    for (int i = 0; i < 100 && handled < 2; ++i)
        std::this_thread::sleep_for(100ms);
    consumer.close();
    FakeBroker& fake = broker.stop();
    EXPECT_EQ(handled, 2);
    EXPECT_GE(fake.progress_count, 10u);
    EXPECT_EQ(fake.nacks, (std::vector<wire::NackReason>{wire::NackReason::REJECT}));
    EXPECT_EQ(fake.topics["orders"].partitions[0].settled.size(), 2u);
}

TEST(PublicConsumer, a_refused_settlement_is_told) {
    BrokerThread broker([](FakeBroker& fake) {
        add_orders(fake);
        fake.append("orders", 0, "bad");
        fake.script = [](wire::Op op, std::uint64_t) {
            return op == wire::Op::NACK
                       ? Fault{Fault::Kind::ERROR_BEFORE, ErrorCode::DLQ_UNAVAILABLE}
                       : Fault{};
        };
    });
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    std::promise<std::string> told;
    Consumer consumer =
        client->subscribe({.topic = "orders",
                           .group = "g",
                           .on_settle_refused = [&](std::uint16_t partition, std::uint64_t sequence,
                                                    const mortarmq::Error& error) {
                               told.set_value(std::to_string(partition) + "/" +
                                              std::to_string(sequence) + " " + error.name);
                           }});
    const mortarmq::Result<Message> message = consumer.poll(5s);
    ASSERT_TRUE(message.ok()) << message.error().to_string();
    consumer.settle(*message, Verdict::REJECT);
    std::future<std::string> heard = told.get_future();
    ASSERT_EQ(heard.wait_for(10s), std::future_status::ready);
    EXPECT_EQ(heard.get(), "0/1 DLQ_UNAVAILABLE");
    consumer.close();
}

TEST(PublicConsumer, the_handler_hears_why_the_member_cannot_go_on) {
    BrokerThread broker([](FakeBroker&) {});
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    std::promise<std::string> reason;
    Consumer consumer = client->subscribe({.topic = "missing", .group = "g"});
    consumer.run([](const Message&) { return Verdict::ACK; },
                 [&](const mortarmq::Error& error) { reason.set_value(error.name); });
    EXPECT_EQ(reason.get_future().get(), "UNKNOWN_TOPIC");
}

TEST(PublicClient, may_be_destroyed_before_its_consumers_and_with_messages_under_way) {
    BrokerThread broker([](FakeBroker& fake) {
        add_orders(fake);
        fake.script = [](wire::Op op, std::uint64_t) {
            return op == wire::Op::PUB ? Fault{Fault::Kind::SILENCE} : Fault{};
        };
    });
    std::future<mortarmq::Result<mortarmq::Receipt>> left;
    std::optional<Consumer> consumer;
    {
        mortarmq::Result<Client> client = Client::connect(broker.options());
        ASSERT_TRUE(client.ok());
        consumer.emplace(client->subscribe({.topic = "orders", .group = "g"}));
        left = client->publish_async("orders", "", "x");
    }
    EXPECT_TRUE(left.get().error().is("CONNECTION_CLOSED"));
    EXPECT_TRUE(consumer->poll(1s).error().is("CONNECTION_CLOSED"));
}

TEST(PublicClient, goes_on_by_itself_after_a_lost_connection) {
    BrokerThread broker(add_orders);
    mortarmq::Result<Client> client = Client::connect(broker.options());
    ASSERT_TRUE(client.ok());
    ASSERT_TRUE(client->publish("orders", "", "a").ok());
    broker.post([](FakeBroker& fake) { fake.drop_connections(); });
    ASSERT_TRUE(client->publish("orders", "", "b").ok());
    ASSERT_TRUE(client->publish("orders", "", "c").ok());
    client->close();
    EXPECT_EQ(broker.stop().topics["orders"].partitions[0].log.size(), 3u);
}

}  // namespace
}  // namespace mortar
