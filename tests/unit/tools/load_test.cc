#include "tools/bench/load.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <utility>

#include "core/base/errors.h"
#include "core/wire/codec.h"
#include "core/wire/frame.h"
#include "tools/bench/stamp.h"

namespace mortar::bench {
namespace {

constexpr std::uint64_t MS = 1'000'000;

struct Got {
    wire::Pub pub;
    Stamp stamp;
};

// Takes one connection after the other, each in a thread; script says what each PUB is answered with.
class ScriptedServer {
  public:
    // Appends the answer to out. False: closes the connection instead.
    using Script = std::function<bool(const Got& got, std::size_t index, ByteVector& out)>;

    explicit ScriptedServer(Script script) : script_(std::move(script)) {
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof where;
        auto* generic = reinterpret_cast<sockaddr*>(&where);
        EXPECT_EQ(::bind(fd_, generic, length), 0);
        EXPECT_EQ(::listen(fd_, 64), 0);
        EXPECT_EQ(::getsockname(fd_, generic, &length), 0);
        address_ = "127.0.0.1:" + std::to_string(ntohs(where.sin_port));
        acceptor_ = std::thread([this] { accept_all(); });
    }
    ~ScriptedServer() {
        ::shutdown(fd_, SHUT_RDWR);
        acceptor_.join();
        for (std::thread& thread : threads_)
            thread.join();
        ::close(fd_);
    }
    const std::string& address() const { return address_; }
    std::vector<Got> got() {
        const std::lock_guard lock(mutex_);
        return got_;
    }

  private:
    void accept_all() {
        for (int fd = ::accept(fd_, nullptr, nullptr); fd >= 0;
             fd = ::accept(fd_, nullptr, nullptr))
            threads_.emplace_back([this, fd] {
                serve(fd);
                ::close(fd);
            });
    }

    static bool receive(int fd, std::byte* at, std::size_t bytes) {
        return ::recv(fd, at, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
    }

    void serve(int fd) {
        ByteVector head(wire::LENGTH_BYTES);
        while (receive(fd, head.data(), head.size())) {
            ByteVector body(load_be<std::uint32_t>(head.data()));
            if (!receive(fd, body.data(), body.size())) return;
            ByteVector out;
            const ByteSpan payload = ByteSpan(body).subspan(1);
            if (wire::Op{static_cast<std::uint8_t>(body[0])} == wire::Op::CONNECT) {
                wire::encode_ok(out, wire::Op::CONNECT);
            } else {
                Got got{*wire::decode_pub(payload), {}};
                got.stamp = read_stamp(got.pub.value);
                got.pub.value = {};
                std::size_t index = 0;
                {
                    const std::lock_guard lock(mutex_);
                    index = got_.size();
                    got_.push_back(got);
                }
                if (!script_(got, index, out)) return;
            }
            if (::send(fd, out.data(), out.size(), MSG_NOSIGNAL) < 0) return;
        }
    }

    Script script_;
    int fd_ = -1;
    std::string address_;
    std::thread acceptor_;
    std::vector<std::thread> threads_;  // by the acceptor, until it was joined
    std::mutex mutex_;
    std::vector<Got> got_;  // by mutex_
};

bool answer_ok(const Got& got, ByteVector& out,
               wire::Durability durability = wire::Durability::QUORUM) {
    wire::PubResult result;
    result.sequence = Sequence(got.pub.producer_seq.value);
    result.durability = durability;
    wire::encode_ok(out, result);
    return true;
}

LoadPlan plan_for(const std::vector<std::string>& addresses) {
    LoadPlan plan;
    plan.addresses = addresses;
    plan.topic_id = TopicId(1);
    plan.value_bytes = 32;
    return plan;
}

TEST(BenchLoad, a_server_that_stalls_shows_in_the_percentiles_of_an_open_loop) {
    constexpr std::size_t STALL_AT = 100;
    constexpr std::uint64_t STALL_MS = 300;
    ScriptedServer server([](const Got& got, std::size_t index, ByteVector& out) {
        if (index == STALL_AT) ::usleep(STALL_MS * 1000);
        return answer_ok(got, out);
    });
    LoadPlan plan = plan_for({server.address()});
    plan.outstanding = 4;
    plan.per_second = 1000;
    auto load = Load::open(plan);
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    const auto round = (*load)->run(milliseconds(600), latency);
    ASSERT_TRUE(round.ok()) << round.error().to_string();
    EXPECT_EQ(round->count, 600u);
    EXPECT_EQ(latency.count(), 600u);
    // Half of all were meant to leave in the stall, and waited for 150 ms on average, though only four were on their way.
    EXPECT_GE(latency.percentile_ns(700), 20 * MS);
    EXPECT_GE(latency.percentile_ns(900), 150 * MS);
    EXPECT_GE(latency.max_ns(), STALL_MS * MS * 9 / 10);
    EXPECT_EQ((*load)->totals().oks_by_durability[1], 600u);
    EXPECT_EQ((*load)->totals().abandoned, 0u);
}

TEST(BenchLoad, what_failed_is_counted_and_sent_again_in_order_under_its_number) {
    // As a broker: the fourth fails once, and what stood behind it then is refused.
    std::uint64_t last = 0;
    bool has_failed = false;
    std::uint64_t gaps = 0;
    ScriptedServer server([&](const Got& got, std::size_t, ByteVector& out) {
        const auto refuse = [&out](ErrorCode code) {
            wire::encode_err(out, code, static_cast<std::uint8_t>(wire::Op::PUB), "test");
            return true;
        };
        const std::uint64_t seq = got.pub.producer_seq.value;
        if (seq == 4 && !std::exchange(has_failed, true))
            return refuse(ErrorCode::READ_ONLY_DEGRADED);
        if (seq > last + 1) {
            ++gaps;
            return refuse(ErrorCode::SEQ_GAP);
        }
        EXPECT_EQ(seq, last + 1);
        last = seq;
        return answer_ok(got, out);
    });
    LoadPlan plan = plan_for({server.address()});
    plan.outstanding = 8;
    auto load = Load::open(plan);
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    const auto round = (*load)->run(seconds(30), latency, 10);
    ASSERT_TRUE(round.ok()) << round.error().to_string();
    EXPECT_EQ(latency.count(), 10u);
    EXPECT_EQ(last, 10u);
    // Eight left before anything was answered.
    EXPECT_GE(gaps, 4u);
    const LoadTotals& totals = (*load)->totals();
    EXPECT_EQ(totals.errors.at(static_cast<std::uint16_t>(ErrorCode::READ_ONLY_DEGRADED)), 1u);
    EXPECT_EQ(totals.errors.at(static_cast<std::uint16_t>(ErrorCode::SEQ_GAP)), gaps);
    EXPECT_EQ(totals.resent, 1 + gaps);
}

TEST(BenchLoad, follows_the_leader_hint_and_sends_there_what_was_not_accepted) {
    ScriptedServer leader(
        [](const Got& got, std::size_t, ByteVector& out) { return answer_ok(got, out); });
    const std::string hint = "leader node=2 addr=" + leader.address() + " epoch=7";
    ScriptedServer follower([&hint](const Got&, std::size_t, ByteVector& out) {
        wire::encode_err(out, ErrorCode::STALE_LEADER_EPOCH,
                         static_cast<std::uint8_t>(wire::Op::PUB), hint);
        return true;
    });
    LoadPlan plan = plan_for({follower.address()});
    plan.outstanding = 3;
    auto load = Load::open(plan);
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    const auto round = (*load)->run(seconds(30), latency, 20);
    ASSERT_TRUE(round.ok()) << round.error().to_string();
    EXPECT_EQ((*load)->totals().reconnects, 1u);
    EXPECT_GE(
        (*load)->totals().errors.at(static_cast<std::uint16_t>(ErrorCode::STALE_LEADER_EPOCH)), 1u);
    const std::vector<Got> got = leader.got();
    ASSERT_EQ(got.size(), 20u);
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].pub.producer_seq, ProducerSeq(i + 1));
}

TEST(BenchLoad, a_lost_connection_is_made_again_and_no_message_is_lost) {
    ScriptedServer server([](const Got& got, std::size_t index, ByteVector& out) {
        return index != 5 && answer_ok(got, out);
    });
    LoadPlan plan = plan_for({server.address()});
    plan.outstanding = 2;
    plan.run_id = 77;
    auto load = Load::open(plan);
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    const auto round = (*load)->run(seconds(30), latency, 12);
    ASSERT_TRUE(round.ok()) << round.error().to_string();
    EXPECT_EQ(latency.count(), 12u);
    EXPECT_EQ((*load)->totals().reconnects, 1u);
    // The retry carries the time at which the message was first meant to leave.
    const std::vector<Got> got = server.got();
    ASSERT_GE(got.size(), 7u);
    EXPECT_EQ(got[6].pub.producer_seq, got[5].pub.producer_seq);
    EXPECT_EQ(got[6].stamp.run_id, 77u);
    EXPECT_EQ(got[6].stamp.intended_ns, got[5].stamp.intended_ns);
}

TEST(BenchLoad, an_error_that_no_retry_helps_ends_the_run_with_its_text) {
    ScriptedServer server([](const Got&, std::size_t, ByteVector& out) {
        wire::encode_err(out, ErrorCode::UNKNOWN_TOPIC, static_cast<std::uint8_t>(wire::Op::PUB),
                         "no such topic");
        return true;
    });
    auto load = Load::open(plan_for({server.address()}));
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    const auto round = (*load)->run(seconds(30), latency);
    ASSERT_TRUE(round.is(ErrorCode::UNKNOWN_TOPIC));
    EXPECT_NE(round.error().detail.find("no such topic"), std::string::npos);
}

TEST(BenchLoad, connections_share_the_partitions_and_each_is_a_producer_of_its_own) {
    ScriptedServer server([](const Got& got, std::size_t, ByteVector& out) {
        return answer_ok(got, out, wire::Durability::LOCAL);
    });
    LoadPlan plan = plan_for({server.address()});
    plan.connections = 4;
    plan.partition_count = 2;
    plan.per_second = 4000;
    auto load = Load::open(plan);
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    const auto round = (*load)->run(seconds(30), latency, 40);
    ASSERT_TRUE(round.ok()) << round.error().to_string();
    EXPECT_EQ((*load)->totals().oks_by_durability[0], 40u);
    std::map<std::uint64_t, std::uint64_t> next_seq;
    std::map<std::uint64_t, PartitionIndex> partition;
    for (const Got& got : server.got()) {
        const std::uint64_t producer = got.pub.producer_id.value;
        EXPECT_EQ(got.pub.producer_seq.value, ++next_seq[producer]);
        partition.try_emplace(producer, got.pub.partition);
        EXPECT_EQ(partition.at(producer), got.pub.partition);
    }
    EXPECT_EQ(next_seq.size(), 4u);
    std::map<PartitionIndex, int> producers;
    for (const auto& [producer, index] : partition)
        ++producers[index];
    EXPECT_EQ(producers,
              (std::map<PartitionIndex, int>{{PartitionIndex(0), 2}, {PartitionIndex(1), 2}}));
}

TEST(BenchLoad, an_interrupt_ends_a_run_at_once) {
    std::atomic<bool> interrupted = false;
    ScriptedServer server([&interrupted](const Got& got, std::size_t index, ByteVector& out) {
        if (index == 50) interrupted = true;
        return answer_ok(got, out);
    });
    LoadPlan plan = plan_for({server.address()});
    plan.interrupted = &interrupted;
    auto load = Load::open(plan);
    ASSERT_TRUE(load.ok()) << load.error().to_string();
    Histogram latency;
    EXPECT_TRUE((*load)->run(seconds(30), latency).is(ErrorCode::CANCELLED));
}

}  // namespace
}  // namespace mortar::bench
