#include "tools/bench/load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <deque>

#include "core/wire/codec.h"
#include "io-real/address.h"
#include "io-real/os_error.h"
#include "io-real/real_rng.h"

namespace mortar::bench {
namespace {

constexpr std::size_t READ_BYTES = 64u << 10;
// A broker that is silent for so long is dead.
constexpr timeval ANSWER_TIMEOUT{.tv_sec = 30, .tv_usec = 0};
constexpr int POLL_TIMEOUT_MS = 30'000;

Error closed(const std::string& what) {
    return make_error(ErrorCode::CONNECTION_CLOSED, what);
}

// Signals of debuggers and profilers end system calls early.
template <class Call>
auto again_if_interrupted(Call call) {
    auto result = call();
    while (result < 0 && errno == EINTR)
        result = call();
    return result;
}

Result<int> connect_to(const std::string& address) {
    const HostPort where = MORTAR_TRY(parse_host_port(address));
    const std::vector<SocketAddress> found = numeric_address(where);
    if (found.empty()) {
        return make_error(ErrorCode::ADDRESS_INVALID,
                          address + ": give a number, such as 127.0.0.1:7188");
    }
    const int fd = ::socket(found.front().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return closed("socket: " + os_reason(errno));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &ANSWER_TIMEOUT, sizeof ANSWER_TIMEOUT);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &ANSWER_TIMEOUT, sizeof ANSWER_TIMEOUT);
    if (::connect(fd, found.front().get(), found.front().length) != 0) {
        const Error error =
            make_error(ErrorCode::CONNECTION_REFUSED, address + ": " + os_reason(errno));
        ::close(fd);
        return error;
    }
    return fd;
}

}  // namespace

struct Load::Client {
    explicit Client(int fd_opened) : fd(fd_opened), received(READ_BYTES) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { ::close(fd); }

    // The next whole frame in received, or empty.
    ByteSpan take_frame() {
        if (end - begin < wire::FRAME_HEAD_BYTES) return {};
        const std::size_t size =
            wire::LENGTH_BYTES + load_be<std::uint32_t>(received.data() + begin);
        if (end - begin < size) return {};
        begin += size;
        return ByteSpan(received).subspan(begin - size, size);
    }

    int fd;
    wire::Pub pub;
    ByteVector out;
    ByteVector received;
    std::size_t begin = 0;  // of what is received and not taken
    std::size_t end = 0;
    std::deque<std::int64_t> sent_ns;  // of the outstanding ones
    bool is_readable = true;
};

Load::Load(const LoadPlan& plan) : plan_(plan), value_(plan.value_bytes, 'v') {}

Load::~Load() = default;

Result<std::unique_ptr<Load>> Load::open(const LoadPlan& plan) {
    MORTAR_ASSERT(plan.connections > 0 && plan.connections <= CONNECTIONS_MAX);
    MORTAR_ASSERT(plan.outstanding > 0 && plan.outstanding <= OUTSTANDING_MAX);
    std::unique_ptr<Load> load(new Load(plan));
    MORTAR_TRY(load->connect());
    return load;
}

Result<void> Load::connect() {
    RealRng source;
    Rng rng = source.stream("bench.producer_id");
    for (std::size_t i = 0; i < plan_.connections; ++i) {
        const int fd = MORTAR_TRY(connect_to(plan_.address));
        Client& client = *clients_.emplace_back(std::make_unique<Client>(fd));
        client.pub.producer_id = ProducerId(rng.next() | 1);
        client.pub.producer_seq = ProducerSeq(1);
        client.pub.value = as_byte_span(value_);
        if (!plan_.topic.empty()) MORTAR_TRY(log_in(client));
    }
    return {};
}

Result<void> Load::log_in(Client& client) {
    scratch_.clear();
    wire::Connect hello;
    hello.token = as_byte_span(plan_.token);
    wire::encode(scratch_, hello);
    MORTAR_TRY(request(client, scratch_));
    scratch_.clear();
    wire::Declare declare;
    declare.topic = plan_.topic;
    declare.partition_count = 1;
    wire::encode(scratch_, declare);
    const ByteVector result = MORTAR_TRY(request(client, scratch_));
    client.pub.topic_id = MORTAR_TRY(wire::decode_declare_result(result)).topic_id;
    return {};
}

Result<ByteVector> Load::request(Client& client, const ByteVector& frame) {
    client.out = frame;
    MORTAR_TRY(flush(client));
    client.sent_ns.push_back(now_ns());
    ByteVector result;
    while (!client.sent_ns.empty()) {
        MORTAR_TRY(fill(client));
        const ByteSpan answer = client.take_frame();
        if (answer.empty()) continue;
        client.sent_ns.pop_front();
        const ByteSpan payload = answer.subspan(wire::FRAME_HEAD_BYTES);
        if (wire::Op{static_cast<std::uint8_t>(answer[wire::LENGTH_BYTES])} != wire::Op::OK) {
            const wire::Err err = MORTAR_TRY(wire::decode_err(payload));
            return make_error(ErrorCode{err.code}, std::string(err.message));
        }
        const ByteSpan bytes = MORTAR_TRY(wire::decode_ok(payload)).result;
        result.assign(bytes.begin(), bytes.end());
    }
    client.begin = client.end = 0;
    return result;
}

Result<Round> Load::run(Duration how_long, Histogram& latency, std::uint64_t count_max) {
    Round round;
    may_send_count_ = count_max;
    const std::int64_t began = now_ns();
    for (const auto& client : clients_) {
        send_more(*client);
        MORTAR_TRY(flush(*client));
    }
    std::int64_t now = began;
    while (now - began < how_long.ns && round.count < count_max) {
        MORTAR_TRY(wait_readable());
        for (const auto& client : clients_) {
            if (!client->is_readable) continue;
            MORTAR_TRY(receive(*client, &latency, round));
            send_more(*client);
            MORTAR_TRY(flush(*client));
        }
        now = now_ns();
    }
    round.elapsed = Duration{now - began};
    Round late;
    for (const auto& client : clients_) {
        while (!client->sent_ns.empty())
            MORTAR_TRY(receive(*client, nullptr, late));
    }
    return round;
}

void Load::send_more(Client& client) {
    while (client.sent_ns.size() < plan_.outstanding && may_send_count_ > 0) {
        --may_send_count_;
        wire::encode_head(client.out, client.pub);
        client.out.insert(client.out.end(), client.pub.value.begin(), client.pub.value.end());
        client.pub.producer_seq = client.pub.producer_seq.next();
        client.sent_ns.push_back(now_ns());
    }
}

Result<void> Load::flush(Client& client) {
    std::size_t sent = 0;
    while (sent < client.out.size()) {
        const ssize_t count = again_if_interrupted([&client, sent] {
            return ::send(client.fd, client.out.data() + sent, client.out.size() - sent,
                          MSG_NOSIGNAL);
        });
        if (count < 0) return closed("cannot send to " + plan_.address + ": " + os_reason(errno));
        sent += static_cast<std::size_t>(count);
    }
    client.out.clear();
    return {};
}

Result<void> Load::fill(Client& client) {
    const ssize_t count = again_if_interrupted([&client] {
        return ::recv(client.fd, client.received.data() + client.end,
                      client.received.size() - client.end, 0);
    });
    if (count == 0) return closed(plan_.address + " closed the connection");
    if (count < 0) return closed("no answer from " + plan_.address + ": " + os_reason(errno));
    client.end += static_cast<std::size_t>(count);
    return {};
}

Result<void> Load::receive(Client& client, Histogram* latency, Round& round) {
    MORTAR_TRY(fill(client));
    const std::int64_t now = now_ns();
    for (ByteSpan frame = client.take_frame(); !frame.empty(); frame = client.take_frame()) {
        const ByteSpan payload = frame.subspan(wire::FRAME_HEAD_BYTES);
        if (wire::Op{static_cast<std::uint8_t>(frame[wire::LENGTH_BYTES])} != wire::Op::OK) {
            const wire::Err err = MORTAR_TRY(wire::decode_err(payload));
            return make_error(ErrorCode{err.code}, std::string(err.message));
        }
        if (client.sent_ns.empty()) return closed(plan_.address + " answered what nobody asked");
        if (&client == clients_.front().get()) {
            const wire::Ok ok = MORTAR_TRY(wire::decode_ok(payload));
            last_result_ = MORTAR_TRY(wire::decode_pub_result(ok.result));
        }
        if (latency != nullptr)
            latency->add(static_cast<std::uint64_t>(now - client.sent_ns.front()));
        client.sent_ns.pop_front();
        ++round.count;
    }
    std::copy(client.received.begin() + static_cast<std::ptrdiff_t>(client.begin),
              client.received.begin() + static_cast<std::ptrdiff_t>(client.end),
              client.received.begin());
    client.end -= client.begin;
    client.begin = 0;
    return {};
}

Result<void> Load::wait_readable() {
    // One connection: recv waits for itself.
    if (clients_.size() == 1) return {};
    std::vector<pollfd> polled;
    for (const auto& client : clients_)
        polled.push_back({.fd = client->fd, .events = POLLIN, .revents = 0});
    const int count = again_if_interrupted(
        [&polled] { return ::poll(polled.data(), polled.size(), POLL_TIMEOUT_MS); });
    if (count <= 0) return closed("no answer from " + plan_.address);
    for (std::size_t i = 0; i < polled.size(); ++i)
        clients_[i]->is_readable = polled[i].revents != 0;
    return {};
}

}  // namespace mortar::bench
