#include "tools/bench/load.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <deque>

#include "core/base/errors.h"
#include "core/client/link.h"
#include "core/wire/codec.h"
#include "io-real/address.h"
#include "io-real/os_error.h"
#include "io-real/real_rng.h"
#include "tools/bench/schedule.h"
#include "tools/bench/stamp.h"

namespace mortar::bench {
namespace {

constexpr std::size_t READ_BYTES = 64u << 10;
constexpr Duration TICK = milliseconds(100);
constexpr std::int64_t NEVER_NS = INT64_MAX;
// An open loop on a server that is too slow ends after so many times its own length.
constexpr std::int64_t OVERTIME_FACTOR = 2;
constexpr Duration OVERTIME_MIN = seconds(5);
constexpr unsigned long TIMER_SLACK_NS = 1000;  // the kernel's own would make each message late
// As the client library waits.
constexpr Duration RETRY_BASE = milliseconds(20);
constexpr Duration RETRY_MAX = seconds(2);
constexpr int DOUBLINGS_MAX = 7;

// Signals of debuggers and profilers end system calls early.
template <class Call>
auto again_if_interrupted(Call call) {
    auto result = call();
    while (result < 0 && errno == EINTR)
        result = call();
    return result;
}

bool would_block(int reason) {
    return reason == EAGAIN || reason == EWOULDBLOCK || reason == EINPROGRESS;
}

std::string code_text(std::uint16_t number) {
    const ErrorInfo* info = find_error(number);
    return info == nullptr ? fmt::format("{:#06x}", number) : std::string(info->name);
}

Result<SocketAddress> look_up(const std::string& address) {
    const HostPort where = MORTAR_TRY(parse_host_port(address));
    std::vector<SocketAddress> found = numeric_address(where);
    if (found.empty()) found = MORTAR_TRY(resolve_name(where));
    if (found.empty()) return make_error(ErrorCode::ADDRESS_INVALID, address + ": no such host");
    return found.front();
}

}  // namespace

struct Load::Client {
    enum class State : std::uint8_t { DOWN, CONNECTING, GREETING, UP };
    struct Entry {
        ProducerSeq producer_seq;
        std::int64_t intended_ns = 0;
        bool was_sent = false;
        bool is_done = false;
    };

    Client(const std::vector<std::string>& addresses, Rng rng)
        : route(addresses, rng), attempt(route.next()), received(READ_BYTES) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { close(); }

    void close() {
        if (fd >= 0) ::close(fd);
        fd = -1;
        state = State::DOWN;
        out.clear();
        out_sent = begin = end = 0;
        sent_count = answered_count = 0;
        is_draining = false;
    }

    // The next whole frame in received, or empty.
    ByteSpan take_frame() {
        if (end - begin < wire::FRAME_HEAD_BYTES) return {};
        const std::size_t size =
            wire::LENGTH_BYTES + load_be<std::uint32_t>(received.data() + begin);
        if (size > received.size()) received.resize(size + READ_BYTES);
        if (end - begin < size) return {};
        begin += size;
        return ByteSpan(received).subspan(begin - size, size);
    }

    int fd = -1;
    State state = State::DOWN;
    bool was_up = false;
    short ready_events = 0;
    client::Route route;
    client::Route::Attempt attempt;  // the present one, or the next
    std::int64_t connect_at_ns = 0;
    std::int64_t up_at_ns = 0;
    bool was_accepted = false;  // a PUB, in this session

    wire::Pub pub;
    // In the order of their numbers. The first sent_count were sent in this session, and the first answered_count of those
    // answered; a done one stays while one before it is not.
    std::deque<Entry> entries;
    std::size_t sent_count = 0;
    std::size_t answered_count = 0;
    // One failed: nothing more leaves until all that did is answered; then all begins again from the first that is not done.
    bool is_draining = false;
    int refusal_count = 0;  // in a row
    std::int64_t send_at_ns = 0;
    std::int64_t last_heard_ns = 0;

    ByteVector out;
    std::size_t out_sent = 0;
    ByteVector received;
    std::size_t begin = 0;  // of what is received and not taken
    std::size_t end = 0;
};

struct Load::Run {
    bool may_give() const { return given_count < count_max && (schedule ? next_due() : true); }
    bool next_due() const { return schedule->intended_ns(given_count) < until_ns; }

    Histogram& latency;
    std::uint64_t count_max;
    std::int64_t until_ns;
    std::optional<Schedule> schedule;
    std::uint64_t given_count = 0;
    std::uint64_t answered_count = 0;
    std::int64_t last_answer_ns = 0;
};

Load::Load(const LoadPlan& plan)
    : plan_(plan), value_(plan.value_bytes, 'v'), rng_(RealRng().stream("bench.load")) {}

Load::~Load() = default;

Result<std::unique_ptr<Load>> Load::open(const LoadPlan& plan) {
    MORTAR_ASSERT(!plan.addresses.empty());
    MORTAR_ASSERT(plan.connections > 0 && plan.connections <= CONNECTIONS_MAX);
    MORTAR_ASSERT(plan.outstanding > 0 && plan.outstanding <= OUTSTANDING_MAX);
    MORTAR_ASSERT(plan.partition_count > 0);
    if (plan.run_id != 0) MORTAR_ASSERT(plan.value_bytes >= STAMP_BYTES);
    for (const std::string& address : plan.addresses)
        MORTAR_TRY(look_up(address));
    ::prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    std::unique_ptr<Load> load(new Load(plan));
    for (std::size_t i = 0; i < plan.connections; ++i) {
        Client& client = *load->clients_.emplace_back(
            std::make_unique<Client>(plan.addresses, Rng(load->rng_.next())));
        client.pub.topic_id = plan.topic_id.value_or(TopicId(0));
        client.pub.partition = PartitionIndex(static_cast<std::uint16_t>(i % plan.partition_count));
        client.pub.producer_id = ProducerId(load->rng_.next() | 1);
        client.pub.producer_seq = ProducerSeq(1);
        if (plan.spreads) {
            client.pub.partition = ANY_PARTITION;
            client.pub.producer_id = ProducerId(0);
            client.pub.producer_seq = ProducerSeq(0);
        }
        client.pub.value = as_byte_span(load->value_);
    }
    MORTAR_TRY(load->wait_all_up(CONNECT_PATIENCE));
    return load;
}

// What broke while nobody looked is found and mended here, outside of what is measured.
Result<void> Load::wait_all_up(Duration patience) {
    const std::int64_t give_up_ns = now_ns() + patience.ns;
    MORTAR_TRY(turn(nullptr, now_ns()));
    const auto is_up = [](const auto& client) { return client->state == Client::State::UP; };
    while (!std::all_of(clients_.begin(), clients_.end(), is_up)) {
        if (now_ns() > give_up_ns) {
            return make_error(ErrorCode::CONNECTION_REFUSED,
                              fmt::format("cannot connect to {}: {}",
                                          fmt::join(plan_.addresses, ", "), last_trouble_));
        }
        MORTAR_TRY(turn(nullptr, NEVER_NS));
    }
    return {};
}

Result<Round> Load::run(Duration how_long, Histogram& latency, std::uint64_t count_max,
                        const OnTick& on_tick) {
    MORTAR_TRY(wait_all_up(PATIENCE));
    const std::int64_t began = now_ns();
    Run run{latency, count_max, began + how_long.ns, std::nullopt};
    if (plan_.per_second > 0) run.schedule.emplace(began, plan_.per_second);
    const std::int64_t abandon_ns =
        run.until_ns + std::max(how_long.ns * OVERTIME_FACTOR, OVERTIME_MIN.ns);
    Round round;
    std::int64_t next_tick_ns = began;
    while (true) {
        const std::int64_t now = now_ns();
        if (now >= run.until_ns && !run.schedule && round.elapsed.ns == 0)
            round = {.count = run.answered_count, .elapsed = Duration{now - began}};
        const bool is_over =
            run.schedule ? !run.may_give() : now >= run.until_ns || run.given_count >= count_max;
        const bool is_idle = outstanding() == 0;
        if (is_over && is_idle) break;
        if (is_idle) last_ok_ns_ = now;
        if (!is_over) give_out(run, now);
        if (run.schedule && now > abandon_ns) abandon_rest(run, now);
        if (now >= next_tick_ns) {
            next_tick_ns = now + TICK.ns;
            check_silence(now);
            if (on_tick) on_tick(run.answered_count, Duration{now - began});
        }
        if (now - last_ok_ns_ > PATIENCE.ns) {
            return make_error(ErrorCode::TIMED_OUT,
                              fmt::format("nothing was accepted for {} s: {}",
                                          PATIENCE.ns / 1'000'000'000, last_trouble_));
        }
        std::int64_t wake_ns = next_tick_ns;
        if (run.schedule && run.may_give() && next_with_room() != nullptr)
            wake_ns = std::min(wake_ns, run.schedule->intended_ns(run.given_count));
        MORTAR_TRY(turn(&run, wake_ns));
    }
    if (round.elapsed.ns == 0) {
        const std::int64_t ended = run.schedule && count_max == UINT64_MAX
                                       ? std::max(run.last_answer_ns, run.until_ns)
                                       : run.last_answer_ns;
        round = {.count = run.answered_count, .elapsed = Duration{std::max(ended - began, {})}};
    }
    return round;
}

void Load::give_out(Run& run, std::int64_t now) {
    if (!run.schedule) {
        for (const auto& client : clients_) {
            while (client->entries.size() < plan_.outstanding && run.may_give()) {
                give(*client, now_ns());
                ++run.given_count;
            }
        }
        return;
    }
    while (run.may_give()) {
        const std::int64_t intended_ns = run.schedule->intended_ns(run.given_count);
        Client* client = intended_ns <= now ? next_with_room() : nullptr;
        if (client == nullptr) return;
        give(*client, intended_ns);
        ++run.given_count;
        ++next_client_;
    }
}

void Load::give(Client& client, std::int64_t intended_ns) {
    client.entries.push_back({client.pub.producer_seq, intended_ns});
    if (!plan_.spreads) client.pub.producer_seq = client.pub.producer_seq.next();
}

Load::Client* Load::next_with_room() {
    for (std::size_t i = 0; i < clients_.size(); ++i) {
        Client& client = *clients_[next_client_ % clients_.size()];
        if (client.entries.size() < plan_.outstanding) return &client;
        ++next_client_;
    }
    return nullptr;
}

void Load::abandon_rest(Run& run, std::int64_t now) {
    for (; run.may_give(); ++run.given_count) {
        run.latency.add(
            static_cast<std::uint64_t>(now - run.schedule->intended_ns(run.given_count)));
        ++totals_.abandoned;
    }
}

Result<void> Load::turn(Run* run, std::int64_t wake_ns) {
    if (plan_.interrupted != nullptr && *plan_.interrupted)
        return make_error(ErrorCode::CANCELLED, "interrupted");
    const std::int64_t now = now_ns();
    for (const auto& client : clients_) {
        if (client->state == Client::State::DOWN) {
            if (now >= client->connect_at_ns) connect(*client, now);
            if (client->state == Client::State::DOWN)
                wake_ns = std::min(wake_ns, client->connect_at_ns);
        } else {
            write(*client, now);
            if (client->send_at_ns > now) wake_ns = std::min(wake_ns, client->send_at_ns);
        }
    }
    wait(std::min(wake_ns, now + TICK.ns));
    for (const auto& client : clients_) {
        if (client->ready_events == 0) continue;
        if (client->state == Client::State::CONNECTING) {
            greet(*client);
        } else if ((client->ready_events & ~POLLOUT) != 0) {
            MORTAR_TRY(read(*client, run));
        }
    }
    return {};
}

void Load::wait(std::int64_t wake_ns) {
    std::vector<pollfd> polled;
    polled.reserve(clients_.size());
    for (const auto& client : clients_) {
        const bool wants_to_write =
            client->state == Client::State::CONNECTING || client->out_sent < client->out.size();
        const short events = client->state == Client::State::CONNECTING
                                 ? POLLOUT
                                 : static_cast<short>(POLLIN | (wants_to_write ? POLLOUT : 0));
        // poll passes over negative descriptors.
        polled.push_back({.fd = client->fd, .events = events, .revents = 0});
    }
    const std::int64_t left_ns = std::max<std::int64_t>(wake_ns - now_ns(), 0);
    const timespec timeout{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
    const int count = ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
    for (std::size_t i = 0; i < polled.size(); ++i)
        clients_[i]->ready_events = count > 0 ? polled[i].revents : short{0};
}

void Load::write(Client& client, std::int64_t now) {
    if (client.state == Client::State::UP && !client.is_draining && now >= client.send_at_ns) {
        if (client.answered_count == client.sent_count) client.last_heard_ns = now;
        while (client.sent_count < client.entries.size())
            encode_next(client);
    }
    while (client.state != Client::State::CONNECTING && client.out_sent < client.out.size()) {
        const ssize_t count = again_if_interrupted([&client] {
            return ::send(client.fd, client.out.data() + client.out_sent,
                          client.out.size() - client.out_sent, MSG_NOSIGNAL);
        });
        if (count < 0) {
            if (!would_block(errno)) disconnect(client, "cannot send: " + os_reason(errno), now);
            return;
        }
        client.out_sent += static_cast<std::size_t>(count);
    }
    if (client.state == Client::State::CONNECTING) return;
    client.out.clear();
    client.out_sent = 0;
}

void Load::encode_next(Client& client) {
    Client::Entry& entry = client.entries[client.sent_count];
    ++client.sent_count;
    if (entry.was_sent) ++totals_.resent;
    entry.was_sent = true;
    wire::Pub pub = client.pub;
    pub.producer_seq = entry.producer_seq;
    wire::encode_head(client.out, pub);
    const std::size_t value_at = client.out.size();
    client.out.insert(client.out.end(), pub.value.begin(), pub.value.end());
    if (plan_.run_id != 0)
        write_stamp({plan_.run_id, entry.intended_ns}, client.out.data() + value_at);
}

Result<void> Load::read(Client& client, Run* run) {
    const ssize_t count = again_if_interrupted([&client] {
        return ::recv(client.fd, client.received.data() + client.end,
                      client.received.size() - client.end, 0);
    });
    const std::int64_t now = now_ns();
    if (count < 0 && would_block(errno)) return {};
    if (count <= 0) {
        disconnect(client, count == 0 ? "the connection was closed" : os_reason(errno), now);
        return {};
    }
    client.end += static_cast<std::size_t>(count);
    client.last_heard_ns = now;
    for (ByteSpan frame = client.take_frame(); !frame.empty(); frame = client.take_frame()) {
        MORTAR_TRY(handle_frame(client, frame, run, now));
        if (client.state == Client::State::DOWN) return {};
    }
    std::copy(client.received.begin() + static_cast<std::ptrdiff_t>(client.begin),
              client.received.begin() + static_cast<std::ptrdiff_t>(client.end),
              client.received.begin());
    client.end -= client.begin;
    client.begin = 0;
    return {};
}

Result<void> Load::handle_frame(Client& client, ByteSpan frame, Run* run, std::int64_t now) {
    const auto op = wire::Op{static_cast<std::uint8_t>(frame[wire::LENGTH_BYTES])};
    const ByteSpan payload = frame.subspan(wire::FRAME_HEAD_BYTES);
    if (op == wire::Op::ERR) return on_err(client, payload, now);
    if (op != wire::Op::OK) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          fmt::format("{} sent {}", client.attempt.address, wire::op_name(op)));
    }
    if (client.state != Client::State::GREETING) return on_pub_ok(client, payload, run, now);
    client.state = Client::State::UP;
    client.up_at_ns = now;
    if (client.was_up) ++totals_.reconnects;
    client.was_up = true;
    return {};
}

Result<void> Load::on_pub_ok(Client& client, ByteSpan payload, Run* run, std::int64_t now) {
    if (client.answered_count == client.sent_count) {
        return make_error(ErrorCode::MALFORMED_PAYLOAD,
                          client.attempt.address + " answered what nobody asked");
    }
    const wire::Ok ok = MORTAR_TRY(wire::decode_ok(payload));
    const wire::PubResult result = MORTAR_TRY(wire::decode_pub_result(ok.result));
    ++totals_.oks_by_durability.at(static_cast<std::size_t>(result.durability));
    if (&client == clients_.front().get()) last_result_ = result;
    last_ok_ns_ = now;
    client.was_accepted = true;
    client.refusal_count = 0;
    Client::Entry& entry = client.entries[client.answered_count];
    ++client.answered_count;
    if (run != nullptr && !entry.is_done) {
        run->latency.add(
            static_cast<std::uint64_t>(std::max<std::int64_t>(now - entry.intended_ns, 0)));
        ++run->answered_count;
        run->last_answer_ns = now;
    }
    entry.is_done = true;
    forget_done(client, now);
    return {};
}

Result<void> Load::on_err(Client& client, ByteSpan payload, std::int64_t now) {
    const wire::Err err = MORTAR_TRY(wire::decode_err(payload));
    ++totals_.errors[err.code];
    last_trouble_ =
        fmt::format("{}: {} {}", client.attempt.address, code_text(err.code), err.message);
    const ErrorInfo* info = find_error(err.code);
    if (err.code == static_cast<std::uint16_t>(ErrorCode::STALE_LEADER_EPOCH)) {
        // contract R3
        disconnect(client, last_trouble_, now,
                   {.has_no_leader = true, .hint = client::parse_leader_hint(err.message)});
        return {};
    }
    const bool was_asked = client.answered_count < client.sent_count;
    // Behind one that failed, all fail: those are sent again with it. The first decides.
    const bool is_first = client.answered_count == 0;
    const bool may_retry = info != nullptr && info->retryable && info->code != ErrorCode::SEQ_GAP;
    if (!may_retry && (is_first || !was_asked)) {
        return make_error(info == nullptr ? ErrorCode::INTERNAL : info->code, last_trouble_);
    }
    if (!was_asked || info->closes) {
        disconnect(client, last_trouble_, now);
        return {};
    }
    ++client.answered_count;
    client.is_draining = true;
    forget_done(client, now);
    return {};
}

void Load::forget_done(Client& client, std::int64_t now) {
    while (!client.entries.empty() && client.entries.front().is_done && client.answered_count > 0) {
        client.entries.pop_front();
        --client.answered_count;
        --client.sent_count;
    }
    if (!client.is_draining || client.answered_count < client.sent_count) return;
    std::erase_if(client.entries, [](const Client::Entry& entry) { return entry.is_done; });
    client.sent_count = client.answered_count = 0;
    client.is_draining = false;
    const Duration pause = std::min(
        RETRY_BASE * (std::int64_t{1} << std::min(client.refusal_count, DOUBLINGS_MAX)), RETRY_MAX);
    ++client.refusal_count;
    client.send_at_ns = now + pause.ns;
}

void Load::connect(Client& client, std::int64_t now) {
    const Result<SocketAddress> where = look_up(client.attempt.address);
    if (!where.ok()) return disconnect(client, where.error().to_string(), now);
    client.fd = ::socket(where->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client.fd < 0) return disconnect(client, "socket: " + os_reason(errno), now);
    const int on = 1;
    setsockopt(client.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    client.state = Client::State::CONNECTING;
    client.last_heard_ns = now;
    if (::connect(client.fd, where->get(), where->length) != 0 && !would_block(errno))
        disconnect(client, os_reason(errno), now);
}

void Load::greet(Client& client) {
    int failure = 0;
    socklen_t length = sizeof failure;
    ::getsockopt(client.fd, SOL_SOCKET, SO_ERROR, &failure, &length);
    if (failure != 0) return disconnect(client, os_reason(failure), now_ns());
    if (!plan_.topic_id.has_value()) {
        client.state = Client::State::UP;
        return;
    }
    client.state = Client::State::GREETING;
    wire::Connect hello;
    hello.token = as_byte_span(plan_.token);
    wire::encode(client.out, hello);
}

void Load::disconnect(Client& client, const std::string& why, std::int64_t now,
                      client::Route::Ending ending) {
    last_trouble_ = client.attempt.address + ": " + why;
    ending.was_good = client.was_accepted;
    ending.was_short = now - client.up_at_ns < client::SESSION_PROVEN_AFTER.ns;
    client.close();
    std::erase_if(client.entries, [](const Client::Entry& entry) { return entry.is_done; });
    client.was_accepted = false;
    client.route.on_end(ending);
    client.attempt = client.route.next();
    client.connect_at_ns = now + client.attempt.pause.ns;
}

// A broker that does not answer is gone, whatever TCP says.
void Load::check_silence(std::int64_t now) {
    for (const auto& client : clients_) {
        const bool waits = client->state == Client::State::CONNECTING ||
                           client->state == Client::State::GREETING ||
                           client->answered_count < client->sent_count;
        const bool is_hurried = client->attempt.is_hurried && client->state != Client::State::UP;
        const Duration timeout = is_hurried ? client::HURRIED_CONNECT_MAX : ANSWER_TIMEOUT;
        if (waits && now - client->last_heard_ns > timeout.ns)
            disconnect(*client, "no answer", now, {.was_silent = true});
    }
}

std::size_t Load::outstanding() const {
    std::size_t count = 0;
    for (const auto& client : clients_)
        count += client->entries.size();
    return count;
}

}  // namespace mortar::bench
