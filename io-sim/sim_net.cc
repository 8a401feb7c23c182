#include "io-sim/sim_net.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/base/hash.h"
#include "io-sim/node.h"

namespace mortar::sim {
namespace {

constexpr std::uint16_t FIRST_EPHEMERAL_PORT = 32768;
constexpr std::uint16_t LAST_EPHEMERAL_PORT = 60999;
// What connect may leave waiting for accept; more are refused.
constexpr std::size_t BACKLOG_MAX = 1024;
// A SYN that nobody answers is given up after this long, as Linux does.
constexpr Duration CONNECT_GIVE_UP = seconds(127);
constexpr Duration SYN_RESEND_FIRST = seconds(1);
// Retransmission to a peer that does not answer: from 200 ms, doubling, given up after 15 tries
// (tcp_retries2).
constexpr Duration RETRY_FIRST = milliseconds(200);
constexpr std::uint32_t RETRY_DOUBLINGS_MAX = 9;
constexpr std::uint32_t RETRIES_MAX = 15;
// A connection on which nothing was acknowledged for so long is given up by the sender (TCP_USER_TIMEOUT, or what
// tcp_retries2 comes to on a fast path); each sender draws its own. Programs that wait for less find it alive.
constexpr std::int64_t GIVE_UP_MS_MIN = 10'000;
constexpr std::int64_t GIVE_UP_MS_MAX = 20'000;
// Doublings of RETRY_FIRST between two retransmissions on a blocked path: at most 6.4 s.
constexpr std::uint32_t BLOCKED_DOUBLINGS_MAX = 5;
// A writer that waits for the window asks again so often (persist timer).
constexpr Duration WINDOW_PROBE_EVERY = seconds(1);
// Consumed bytes at the front of an inbox are dropped beyond this.
constexpr std::size_t INBOX_SLACK_BYTES = 64 * 1024;

struct HostPort {
    std::string host;
    std::uint16_t port;
};

Result<HostPort> parse_address(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos) return make_error(ErrorCode::ADDRESS_INVALID, address);
    HostPort parsed{address.substr(0, colon), 0};
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, parsed.port);
    if (error != std::errc() || stop != end) return make_error(ErrorCode::ADDRESS_INVALID, address);
    const bool bracketed = parsed.host.starts_with('[') && parsed.host.ends_with(']');
    if (bracketed) parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    if (parsed.host.empty()) return make_error(ErrorCode::ADDRESS_INVALID, address);
    if (!bracketed && parsed.host.find(':') != std::string::npos) {
        return make_error(ErrorCode::ADDRESS_INVALID, address);
    }
    return parsed;
}

bool is_loopback(const std::string& host) {
    return host == "127.0.0.1" || host == "localhost" || host == "::1";
}
bool is_any(const std::string& host) {
    return host == "0.0.0.0" || host == "::";
}

// One fiber waits in slot; the slot is empty again when the wait ends, also by a kill.
WakeReason park_in(Fiber*& slot, Fiber& fiber, MonoTime deadline) {
    MORTAR_ASSERT(slot == nullptr);
    struct Clear {
        Fiber*& slot;
        ~Clear() { slot = nullptr; }
    };
    slot = &fiber;
    const Clear clear{slot};
    return fiber.scheduler().park(fiber, deadline);
}

void wake_slot(Fiber* waiter) {
    if (waiter != nullptr) waiter->scheduler().wake(*waiter);
}

Error closed_error() {
    return make_error(ErrorCode::CONNECTION_CLOSED, "connection closed");
}

}  // namespace

// Two ends (0 connected, 1 accepted). Each end's inbox holds what the other sent: read | arrived |
// on the wire.
class SimLink final : public EventTarget, public std::enable_shared_from_this<SimLink> {
  public:
    enum class State : std::uint8_t { CONNECTING, ESTABLISHED, REFUSED };
    enum class Signal : std::uint64_t { SYN, ANSWER, ARRIVAL, WINDOW, RESET, PROBE, RETRANSMIT };

    struct Piece {
        std::size_t bytes;
        MonoTime arrival;
        bool fin;  // the end of the stream, behind its bytes
    };
    struct End {
        SimNode* node = nullptr;
        std::string address;
        bool held = false;    // a handle or the accept queue refers to it
        bool dead = false;    // no socket here any more: closed, or its node died
        bool broken = false;  // a reset arrived
        bool fin_sent = false;
        bool fin_arrived = false;
        bool probing = false;  // bytes to a dead peer are under way
        std::uint32_t retries = 0;
        std::size_t swallowed = 0;  // sent to a dead peer
        bool window_told = false;
        Fiber* reader = nullptr;
        Fiber* writer = nullptr;
        Fiber* connector = nullptr;
        ByteVector inbox;
        std::size_t consumed = 0;
        std::size_t arrived = 0;
        std::deque<Piece> wire;
        bool arrival_scheduled = false;
        MonoTime arrival_due;  // of the ARRIVAL that counts; others are stale
        MonoTime last_arrival;
        // What came to a blocked path waits on the wire for the other end's retransmission.
        bool wire_is_held = false;

        // As a sender: since when nobody acknowledges, and how long it bears that.
        bool retransmitting = false;
        MonoTime unacknowledged_since;
        Duration gives_up_after;
        std::uint32_t retransmissions = 0;
        std::size_t unacknowledged_bytes = 0;

        std::size_t unread() const { return arrived - consumed; }
    };

    SimLink(SimNetwork& network, std::uint64_t id, const NetSpeed& link_speed, Rng random)
        : network_(&network), id_(id), speed(link_speed), rng(random) {}

    std::uint64_t id() const { return id_; }
    SimNetwork* network() const { return network_; }
    void forget_network() { network_ = nullptr; }
    bool idle() const { return events_ == 0 && !ends[0].held && !ends[1].held; }

    void signal(Signal what, std::size_t end, Duration delay) {
        signal_at(what, end, network_->world_.now() + delay);
    }
    // Of a packet to this end.
    Duration draw_latency(std::size_t to_end) {
        Duration drawn{rng.between(speed.latency_min.ns, speed.latency_max.ns)};
        if (rng.one_in(speed.delay_one_in)) drawn.ns += rng.between(0, speed.delay_max.ns);
        const Duration longer = path_to(to_end).latency;
        if (longer.ns > 0) drawn.ns += rng.between(longer.ns / 2, longer.ns);
        return drawn;
    }
    PathFault path_to(std::size_t end) const {
        return network_->path(*ends[1 - end].node, *ends[end].node);
    }
    bool is_blocked_to(std::size_t end) const { return path_to(end).is_blocked; }
    bool is_cut() const { return is_blocked_to(0) || is_blocked_to(1); }

    void on_event(std::uint64_t argument) override {
        const std::shared_ptr<SimLink> keep = shared_from_this();
        --events_;
        const std::size_t end = argument & 1;
        switch (static_cast<Signal>(argument >> 1)) {
            case Signal::SYN:
                on_syn();
                break;
            case Signal::ANSWER:
                on_answer();
                break;
            case Signal::ARRIVAL:
                on_arrival(end);
                break;
            case Signal::WINDOW:
                on_window(end);
                break;
            case Signal::RESET:
                on_reset(end);
                break;
            case Signal::PROBE:
                on_probe(end);
                break;
            case Signal::RETRANSMIT:
                on_retransmit(end);
                break;
        }
        if (idle()) network_->reap(*this);
    }

    // Sends what the window takes; 0 = full.
    std::size_t send(std::size_t end, ByteSpan bytes) {
        if (severed) return std::min(bytes.size(), speed.window_bytes);
        End& peer = ends[1 - end];
        if (peer.dead || peer.broken) return send_to_nobody(end, bytes.size());
        const std::size_t used =
            std::max(peer.inbox.size() - peer.consumed, ends[end].unacknowledged_bytes);
        const std::size_t count =
            std::min(bytes.size(), speed.window_bytes - std::min(used, speed.window_bytes));
        if (count == 0) return 0;
        if (ends[end].retransmitting) ends[end].unacknowledged_bytes += count;
        peer.inbox.insert(peer.inbox.end(), bytes.begin(),
                          bytes.begin() + static_cast<std::ptrdiff_t>(count));
        std::size_t left = count;
        if (count > 1 && speed.split_one_in != 0 && rng.one_in(speed.split_one_in)) {
            const auto first =
                static_cast<std::size_t>(rng.between(1, static_cast<std::int64_t>(count) - 1));
            push_piece(peer, 1 - end, first, false);
            left -= first;
        }
        push_piece(peer, 1 - end, left, false);
        return count;
    }
    void send_fin(std::size_t end) {
        End& own = ends[end];
        if (own.fin_sent) return;
        own.fin_sent = true;
        End& peer = ends[1 - end];
        if (!severed && !peer.dead && !peer.broken) push_piece(peer, 1 - end, 0, true);
    }

    // The socket of this end goes away. hard: the peer gets a reset, else the end of the stream.
    void close_end(std::size_t end, bool hard) {
        End& own = ends[end];
        if (own.dead) return;
        if (network_ != nullptr && state == State::ESTABLISHED && !own.broken) {
            if (hard) {
                cut_wire(1 - end, rng);
                signal(Signal::RESET, 1 - end, draw_latency(1 - end));
            } else {
                send_fin(end);
            }
        }
        bury(end);
    }
    void bury(std::size_t end) {
        End& own = ends[end];
        if (network_ != nullptr && !own.wire.empty() && is_cut()) begin_retransmission(1 - end);
        own.dead = true;
        own.inbox.clear();
        own.wire.clear();
        own.consumed = own.arrived = 0;
        // A writer that waited for our window learns on its next try that nobody reads.
        if (network_ != nullptr) signal(Signal::WINDOW, 1 - end, speed.latency_max);
    }
    // Of what is on the wire towards end only a prefix, cut at any byte, arrives.
    void cut_wire(std::size_t end, Rng& random) {
        End& to = ends[end];
        const std::size_t flying = to.inbox.size() - to.arrived;
        std::size_t keep = flying == 0 ? 0 : static_cast<std::size_t>(random.below(flying + 1));
        std::deque<Piece> kept;
        to.inbox.resize(to.arrived + keep);
        for (const Piece& piece : to.wire) {
            if (keep == 0) break;
            const std::size_t bytes = std::min(piece.bytes, keep);
            if (bytes > 0) kept.push_back({bytes, piece.arrival, false});
            keep -= bytes;
        }
        to.wire = std::move(kept);
    }

    // The path to this end got better: what was far behind is sent anew.
    void on_path_healed(std::size_t end) {
        End& to = ends[end];
        const MonoTime soon = network_->world_.now() + RETRY_FIRST;
        if (to.wire.empty() || to.wire_is_held || to.wire.back().arrival <= soon) return;
        send_wire_again(end, RETRY_FIRST);
    }

    void release(std::size_t end) {
        ends[end].held = false;
        if (network_ != nullptr && idle()) network_->reap(*this);
    }

  private:
    void signal_at(Signal what, std::size_t end, MonoTime when) {
        ++events_;
        network_->world_.schedule(when, *this, static_cast<std::uint64_t>(what) << 1 | end);
    }
    void push_piece(End& to, std::size_t to_index, std::size_t bytes, bool fin) {
        const MonoTime now = network_->world_.now();
        const Duration latency = draw_latency(to_index);
        to.last_arrival =
            std::max(to.last_arrival, now + latency) + carrying_time(path_to(to_index), bytes);
        to.wire.push_back({bytes, to.last_arrival, fin});
        if (!to.arrival_scheduled && !to.wire_is_held)
            expect_arrival(to, to_index, to.last_arrival);
    }
    void expect_arrival(End& to, std::size_t to_index, MonoTime when) {
        to.arrival_scheduled = true;
        to.arrival_due = when;
        signal_at(Signal::ARRIVAL, to_index, when);
    }
    Duration carrying_time(const PathFault& path, std::size_t bytes) const {
        std::int64_t bytes_per_ms = speed.bytes_per_ms;
        if (path.bytes_per_ms != 0) bytes_per_ms = std::min(bytes_per_ms, path.bytes_per_ms);
        if (path.crawls_above_bytes != 0 && bytes > path.crawls_above_bytes)
            bytes_per_ms = GRAY_BYTES_PER_MS;
        return {static_cast<std::int64_t>(bytes) * 1'000'000 / bytes_per_ms};
    }
    // What is on the wire starts after delay once more.
    void send_wire_again(std::size_t end, Duration delay) {
        End& to = ends[end];
        const PathFault path = path_to(end);
        MonoTime arrival = network_->world_.now() + delay + draw_latency(end);
        for (Piece& piece : to.wire) {
            arrival = arrival + carrying_time(path, piece.bytes);
            piece.arrival = arrival;
        }
        to.last_arrival = arrival;
        to.wire_is_held = false;
        if (!to.wire.empty()) expect_arrival(to, end, to.wire.front().arrival);
    }
    // The own kernel takes the bytes as long as it has room and sends them until somebody answers
    // with a reset.
    std::size_t send_to_nobody(std::size_t end, std::size_t bytes) {
        End& own = ends[end];
        const std::size_t count = std::min(bytes, speed.window_bytes - own.swallowed);
        own.swallowed += count;
        if (!own.probing) {
            own.probing = true;
            signal(Signal::PROBE, 1 - end, draw_latency(1 - end));
        }
        return count;
    }

    void on_syn();
    void on_answer() {
        if (!is_blocked_to(0)) return wake_slot(ends[0].connector);
        // The next SYN asks once more.
        if (state == State::REFUSED) state = State::CONNECTING;
        if (state == State::ESTABLISHED) answer_lost = true;
    }
    void on_arrival(std::size_t end) {
        End& to = ends[end];
        const MonoTime now = network_->world_.now();
        if (!to.arrival_scheduled || to.arrival_due != now) return;
        to.arrival_scheduled = false;
        if (!to.wire.empty() && !silent && is_cut()) begin_retransmission(1 - end);
        if (!to.wire.empty() && !silent && is_blocked_to(end)) {
            to.wire_is_held = true;
            return;
        }
        while (!to.wire.empty() && to.wire.front().arrival <= now) {
            const Piece piece = to.wire.front();
            to.wire.pop_front();
            if (silent) continue;
            to.arrived += piece.bytes;
            to.fin_arrived = to.fin_arrived || piece.fin;
        }
        if (!to.wire.empty()) {
            expect_arrival(to, end, to.wire.front().arrival);
        }
        if (to.unread() > 0 || to.fin_arrived) wake_slot(to.reader);
    }
    // Its bytes, or the acknowledgements of them, are lost from now on.
    void begin_retransmission(std::size_t sender_end) {
        End& sender = ends[sender_end];
        if (sender.retransmitting) return;
        sender.retransmitting = true;
        sender.unacknowledged_since = network_->world_.now();
        sender.gives_up_after = milliseconds(rng.between(GIVE_UP_MS_MIN, GIVE_UP_MS_MAX));
        sender.retransmissions = 0;
        sender.unacknowledged_bytes =
            ends[1 - sender_end].inbox.size() - ends[1 - sender_end].consumed;
        signal(Signal::RETRANSMIT, sender_end, RETRY_FIRST);
    }
    void end_retransmission(std::size_t sender_end) {
        ends[sender_end].retransmitting = false;
        ends[sender_end].unacknowledged_bytes = 0;
        wake_slot(ends[sender_end].writer);
    }
    void on_retransmit(std::size_t sender_end) {
        End& sender = ends[sender_end];
        End& to = ends[1 - sender_end];
        if (!sender.retransmitting) return;
        const bool nothing_to_send = sender.broken || severed || silent;
        if (nothing_to_send) return end_retransmission(sender_end);
        if (!is_blocked_to(1 - sender_end) && to.wire_is_held)
            send_wire_again(1 - sender_end, Duration{});
        const bool is_answered = !is_cut() && to.node->powered();
        if (is_answered) {
            const bool by_reset = (to.dead || to.broken) && !sender.dead;
            if (by_reset) signal(Signal::RESET, sender_end, draw_latency(sender_end));
            return end_retransmission(sender_end);
        }
        const MonoTime now = network_->world_.now();
        if (now - sender.unacknowledged_since >= sender.gives_up_after) return give_up(sender_end);
        const std::uint32_t doublings = std::min(++sender.retransmissions, BLOCKED_DOUBLINGS_MAX);
        signal(Signal::RETRANSMIT, sender_end, RETRY_FIRST * (std::int64_t{1} << doublings));
    }
    // The sender's side is over; the other one is not told, and learns it when it sends something.
    void give_up(std::size_t sender_end) {
        End& sender = ends[sender_end];
        End& to = ends[1 - sender_end];
        to.wire.clear();
        to.wire_is_held = false;
        to.inbox.resize(to.arrived);
        // What is still on the way here will be answered by a reset.
        if (!sender.wire.empty() && !to.dead) begin_retransmission(1 - sender_end);
        sender.wire.clear();
        sender.wire_is_held = false;
        sender.inbox.resize(sender.arrived);
        sender.broken = true;
        wake_slot(sender.reader);
        end_retransmission(sender_end);
    }
    void on_window(std::size_t end) {
        if (ends[end].writer != nullptr && is_blocked_to(end))
            return signal(Signal::WINDOW, end, WINDOW_PROBE_EVERY);
        ends[end].window_told = false;
        wake_slot(ends[end].writer);
    }
    void on_reset(std::size_t end) {
        End& own = ends[end];
        if (silent || own.dead || own.broken) return;
        // The peer's kernel sends it once. What severs a link is on the way between them and reaches both.
        if (!severed && is_blocked_to(end)) return;
        own.broken = true;
        own.wire.clear();
        // Some systems let the reader have what arrived before the reset, some do not.
        if (rng.one_in(2)) own.arrived = own.consumed;
        own.inbox.resize(own.arrived);
        wake_slot(own.reader);
        wake_slot(own.writer);
    }
    void on_probe(std::size_t end) {
        End& sender = ends[1 - end];
        if (sender.dead || sender.broken) return;
        const bool answered = !silent && ends[end].node->powered() && !is_cut();
        if (answered || sender.retries == RETRIES_MAX) {
            signal(Signal::RESET, 1 - end, draw_latency(1 - end));
            return;
        }
        signal(Signal::PROBE, end,
               RETRY_FIRST * (std::int64_t{1} << std::min(sender.retries, RETRY_DOUBLINGS_MAX)));
        ++sender.retries;
    }

    SimNetwork* network_;
    std::uint64_t id_;
    std::uint32_t events_ = 0;

  public:
    NetSpeed speed;
    Rng rng;
    State state = State::CONNECTING;
    bool silent = false;
    // Its wires were cut: until the reset arrives, what an end sends goes nowhere. Behind the cut it would be a stream
    // that lost its middle.
    bool severed = false;
    bool answer_lost = false;  // established, and the connecting side does not know
    std::uint16_t to_port = 0;
    bool to_loopback = false;
    End ends[2];
};

class SimConn final : public Conn {
  public:
    SimConn(std::shared_ptr<SimLink> link, std::size_t end) : link_(std::move(link)), end_(end) {}
    ~SimConn() override {
        SimConn::close();
        link_->release(end_);
    }
    SimConn(const SimConn&) = delete;
    SimConn& operator=(const SimConn&) = delete;

    Result<std::size_t> read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) override {
        const std::shared_ptr<SimLink> link = link_;
        SimLink::End& own = link->ends[end_];
        while (own.unread() == 0) {
            if (own.dead || own.broken) return closed_error();
            if (own.fin_arrived) return std::size_t{0};
            const WakeReason reason = park_in(own.reader, fiber, deadline);
            if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
            if (reason == WakeReason::DEADLINE && own.unread() == 0 && !own.fin_arrived) {
                return make_error(ErrorCode::TIMED_OUT, "read from " + own.address);
            }
        }
        std::size_t count = std::min(into.size(), own.unread());
        if (count > 1 && link->speed.short_read_one_in != 0 &&
            link->rng.one_in(link->speed.short_read_one_in)) {
            count =
                static_cast<std::size_t>(link->rng.between(1, static_cast<std::int64_t>(count)));
        }
        std::copy_n(own.inbox.begin() + static_cast<std::ptrdiff_t>(own.consumed), count,
                    into.begin());
        own.consumed += count;
        drop_consumed(own);
        SimLink::End& peer = link->ends[1 - end_];
        if (peer.writer != nullptr && !peer.window_told) {
            peer.window_told = true;
            link->signal(SimLink::Signal::WINDOW, 1 - end_, link->draw_latency(1 - end_));
        }
        return count;
    }

    Result<std::size_t> write_some(Fiber& fiber, std::span<const ByteSpan> parts,
                                   MonoTime deadline) override {
        const std::shared_ptr<SimLink> link = link_;
        std::size_t sent_bytes = 0;
        for (const ByteSpan part : parts) {
            for (std::size_t offset = 0; offset < part.size();) {
                const ByteSpan rest = part.subspan(offset);
                const bool may_wait = sent_bytes == 0;
                const Result<std::size_t> sent = send(fiber, *link, rest, deadline, may_wait);
                if (!sent.ok() && may_wait) return sent.error();
                if (!sent.ok() || *sent == 0) return sent_bytes;
                sent_bytes += *sent;
                offset += *sent;
            }
        }
        return sent_bytes;
    }

    Result<void> write(Fiber& fiber, std::span<const ByteSpan> parts, MonoTime deadline) override {
        const std::shared_ptr<SimLink> link = link_;
        for (ByteSpan part : parts) {
            while (!part.empty())
                part = part.subspan(MORTAR_TRY(send(fiber, *link, part, deadline, true)));
        }
        return {};
    }

    void shutdown_write() override {
        SimLink::End& own = link_->ends[end_];
        if (!own.dead && !own.broken && link_->network() != nullptr) link_->send_fin(end_);
    }

    void close() override {
        SimLink::End& own = link_->ends[end_];
        // Closing with unread bytes resets: the peer must not take silence for delivery.
        link_->close_end(end_, own.unread() > 0);
        wake_slot(own.reader);
        wake_slot(own.writer);
    }

    std::string peer_address() const override { return link_->ends[1 - end_].address; }

  private:
    // What the window takes now; with may_wait at least one byte.
    Result<std::size_t> send(Fiber& fiber, SimLink& link, ByteSpan bytes, MonoTime deadline,
                             bool may_wait) const {
        SimLink::End& own = link.ends[end_];
        while (true) {
            if (own.dead || own.broken || own.fin_sent) return closed_error();
            const std::size_t sent = link.send(end_, bytes);
            if (sent > 0) {
                tell(link, bytes.first(sent));
                own.node->hold_if_stopping(fiber);
                return sent;
            }
            if (!may_wait) return std::size_t{0};
            const WakeReason reason = park_in(own.writer, fiber, deadline);
            if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
            if (reason == WakeReason::DEADLINE)
                return make_error(ErrorCode::TIMED_OUT, "write to " + link.ends[1 - end_].address);
        }
    }
    static void drop_consumed(SimLink::End& own) {
        if (own.consumed == own.inbox.size()) {
            own.inbox.clear();
        } else if (own.consumed > INBOX_SLACK_BYTES) {
            own.inbox.erase(own.inbox.begin(),
                            own.inbox.begin() + static_cast<std::ptrdiff_t>(own.consumed));
        } else {
            return;
        }
        own.arrived -= own.consumed;
        own.consumed = 0;
    }
    void tell(SimLink& link, ByteSpan bytes) const {
        SimNetwork& network = *link.network();
        network.world_.trace(link.id() << 32 | crc32c(bytes));
        if (!network.send_hook_) return;
        const SimLink::End& own = link.ends[end_];
        network.send_hook_({link.id(), own.node, own.address, link.ends[1 - end_].address}, bytes);
    }

    std::shared_ptr<SimLink> link_;
    std::size_t end_;
};

class SimListener final : public Listener {
  public:
    SimListener(SimNet& net, std::uint16_t port, bool loopback_only)
        : net_(net), port_(port), life_(net.node_.life()), loopback_only_(loopback_only) {}
    ~SimListener() override { SimListener::close(); }
    SimListener(const SimListener&) = delete;
    SimListener& operator=(const SimListener&) = delete;

    Result<std::unique_ptr<Conn>> accept(Fiber& fiber) override {
        while (waiting_.empty()) {
            if (closed_) return make_error(ErrorCode::CONNECTION_CLOSED, "listener closed");
            if (park_in(accepter_, fiber, NEVER) == WakeReason::CANCELLED) {
                return make_error(ErrorCode::CANCELLED);
            }
        }
        std::shared_ptr<SimLink> link = std::move(waiting_.front());
        waiting_.pop_front();
        return std::unique_ptr<Conn>(std::make_unique<SimConn>(std::move(link), 1));
    }
    std::uint16_t port() const override { return port_; }
    void close() override {
        if (closed_) return;
        closed_ = true;
        // A dead node's door has already been taken off.
        if (life_ == net_.node_.life()) {
            const auto found = net_.listeners_.find(port_);
            if (found != net_.listeners_.end() && found->second == this)
                net_.listeners_.erase(found);
        }
        for (const std::shared_ptr<SimLink>& link : std::exchange(waiting_, {})) {
            link->close_end(1, true);
            link->release(1);
        }
        wake_slot(accepter_);
    }

    bool takes(bool from_itself) const {
        return waiting_.size() < BACKLOG_MAX && (from_itself || !loopback_only_);
    }
    void offer(std::shared_ptr<SimLink> link) {
        waiting_.push_back(std::move(link));
        wake_slot(accepter_);
    }

  private:
    SimNet& net_;
    std::uint16_t port_;
    std::uint64_t life_;
    bool loopback_only_;
    bool closed_ = false;
    std::deque<std::shared_ptr<SimLink>> waiting_;
    Fiber* accepter_ = nullptr;
};

void SimLink::on_syn() {
    SimNode& node = *ends[1].node;
    // Connect waits until it gives up. Without a way back there is no handshake.
    if (silent || !node.powered() || is_cut()) return;
    if (std::exchange(answer_lost, false)) signal(Signal::ANSWER, 0, draw_latency(0));
    if (state != State::CONNECTING) return;
    const auto found = node.net().listeners_.find(to_port);
    const bool from_itself = ends[0].node == &node;
    if (node.alive() && found != node.net().listeners_.end() && found->second->takes(from_itself)) {
        state = State::ESTABLISHED;
        ends[1].held = true;
        // A client that gave up meanwhile left a closed end behind.
        if (ends[0].dead) signal(Signal::RESET, 1, draw_latency(1));
        found->second->offer(shared_from_this());
    } else {
        state = State::REFUSED;
    }
    signal(Signal::ANSWER, 0, draw_latency(0));
}

SimNetwork::~SimNetwork() {
    for (const std::shared_ptr<SimLink>& link : links_)
        link->forget_network();
}

std::shared_ptr<SimLink> SimNetwork::add_link(SimNode& from, SimNode& to, std::uint16_t from_port,
                                              std::uint16_t to_port) {
    const std::uint64_t id = next_link_id_++;
    // A stream for each link: one more draw on this one does not move the others.
    auto link =
        std::make_shared<SimLink>(*this, id, speed_, world_.stream("net", std::to_string(id)));
    link->ends[0].node = &from;
    link->ends[0].address = from.name() + ":" + std::to_string(from_port);
    link->ends[0].held = true;
    link->ends[1].node = &to;
    link->ends[1].address = to.name() + ":" + std::to_string(to_port);
    link->to_port = to_port;
    links_.push_back(link);
    return link;
}

std::shared_ptr<SimLink> SimNetwork::find(std::uint64_t conn_id) const {
    const auto found =
        std::lower_bound(links_.begin(), links_.end(), conn_id,
                         [](const auto& link, std::uint64_t id) { return link->id() < id; });
    if (found == links_.end() || (*found)->id() != conn_id) return nullptr;
    return *found;
}

void SimNetwork::reap(const SimLink& link) {
    const auto found =
        std::lower_bound(links_.begin(), links_.end(), link.id(),
                         [](const auto& entry, std::uint64_t id) { return entry->id() < id; });
    MORTAR_ASSERT(found != links_.end() && found->get() == &link);
    links_.erase(found);
}

std::vector<std::uint64_t> SimNetwork::connections(std::string_view node) const {
    std::vector<std::uint64_t> ids;
    for (const std::shared_ptr<SimLink>& link : links_) {
        const SimLink::End& a = link->ends[0];
        const SimLink::End& b = link->ends[1];
        const bool touches = node.empty() || a.node->name() == node || b.node->name() == node;
        const bool usable = !a.dead && !b.dead && !a.broken && !b.broken;
        if (link->state == SimLink::State::ESTABLISHED && usable && touches)
            ids.push_back(link->id());
    }
    return ids;
}

void SimNetwork::reset(std::uint64_t conn_id, Rng& rng) {
    const std::shared_ptr<SimLink> link = find(conn_id);
    if (link == nullptr) return;
    link->severed = true;
    for (std::size_t end = 0; end < 2; ++end) {
        if (link->ends[end].dead) continue;
        link->cut_wire(end, rng);
        // The prefix that still arrives does so before the reset.
        const MonoTime last =
            link->ends[end].wire.empty() ? world_.now() : link->ends[end].wire.back().arrival;
        const Duration on_the_way = std::max(last - world_.now(), Duration{});
        link->signal(SimLink::Signal::RESET, end, on_the_way + microseconds(rng.between(0, 500)));
    }
}

void SimNetwork::silence(std::uint64_t conn_id) {
    const std::shared_ptr<SimLink> link = find(conn_id);
    if (link != nullptr) link->silent = true;
}

PathFaultId SimNetwork::break_path(const SimNode& from, const SimNode& to, const PathFault& fault) {
    MORTAR_ASSERT(&from != &to);
    const PathFaultId id = next_fault_id_++;
    broken_paths_.emplace(id, BrokenPath{&from, &to, fault});
    return id;
}

void SimNetwork::heal_path(PathFaultId id) {
    const auto broken = broken_paths_.extract(id);
    if (!broken) return;
    for (const std::shared_ptr<SimLink>& link : links_) {
        for (std::size_t end = 0; end < 2; ++end) {
            const bool is_on_path = link->ends[1 - end].node == broken.mapped().from &&
                                    link->ends[end].node == broken.mapped().to;
            if (is_on_path) link->on_path_healed(end);
        }
    }
}

bool SimNetwork::is_blocked(const SimNode& from, const SimNode& to) const {
    return path(from, to).is_blocked;
}

PathFault SimNetwork::path(const SimNode& from, const SimNode& to) const {
    PathFault sum;
    for (const auto& [id, broken] : broken_paths_) {
        if (broken.from != &from || broken.to != &to) continue;
        const PathFault& fault = broken.fault;
        const auto narrower = [](auto a, auto b) {
            return a == 0 ? b : b == 0 ? a : std::min(a, b);
        };
        sum.is_blocked = sum.is_blocked || fault.is_blocked;
        sum.latency = sum.latency + fault.latency;
        sum.bytes_per_ms = narrower(sum.bytes_per_ms, fault.bytes_per_ms);
        sum.crawls_above_bytes = narrower(sum.crawls_above_bytes, fault.crawls_above_bytes);
    }
    return sum;
}

std::size_t SimNetwork::open_handles(const SimNode& node) const {
    std::size_t count = 0;
    for (const std::shared_ptr<SimLink>& link : links_) {
        for (const SimLink::End& end : link->ends) {
            if (end.node == &node && end.held) ++count;
        }
    }
    for (const auto& entry : world_.nodes()) {
        if (entry.get() == &node) count += entry->net().listeners_.size();
    }
    return count;
}

void SimNetwork::on_node_down(SimNode& node, Death death) {
    for (const std::shared_ptr<SimLink>& link : std::vector(links_)) {
        for (std::size_t end = 0; end < 2; ++end) {
            SimLink::End& own = link->ends[end];
            if (own.node != &node || own.dead) continue;
            const std::uint64_t manner = link->rng.below(4);
            if (death == Death::POWER || manner == 0) {
                link->bury(end);
            } else {
                link->close_end(end, manner == 1 || own.unread() > 0);
            }
        }
    }
    node.net().listeners_.clear();
}

std::uint16_t SimNet::next_port() {
    const bool wraps = last_port_ < FIRST_EPHEMERAL_PORT || last_port_ >= LAST_EPHEMERAL_PORT;
    last_port_ = wraps ? FIRST_EPHEMERAL_PORT : static_cast<std::uint16_t>(last_port_ + 1);
    return last_port_;
}

Result<std::unique_ptr<Listener>> SimNet::listen(const std::string& address) {
    HostPort parsed = MORTAR_TRY(parse_address(address));
    const bool loopback = is_loopback(parsed.host);
    const bool is_drawn = parsed.port == 0;
    if (!loopback && !is_any(parsed.host) && parsed.host != node_.name()) {
        return make_error(ErrorCode::ADDRESS_INVALID,
                          address + " is not an address of " + node_.name());
    }
    while (parsed.port == 0 || (is_drawn && listeners_.contains(parsed.port)))
        parsed.port = next_port();
    if (listeners_.contains(parsed.port)) return make_error(ErrorCode::ADDRESS_IN_USE, address);
    auto listener = std::make_unique<SimListener>(*this, parsed.port, loopback);
    listeners_.emplace(parsed.port, listener.get());
    return std::unique_ptr<Listener>(std::move(listener));
}

Result<std::unique_ptr<Conn>> SimNet::connect(Fiber& fiber, const std::string& address,
                                              MonoTime deadline) {
    const HostPort parsed = MORTAR_TRY(parse_address(address));
    SimNode* to = is_loopback(parsed.host) ? &node_ : network_.world_.find_node(parsed.host);
    if (to == nullptr) return make_error(ErrorCode::CONNECTION_REFUSED, "no such host: " + address);
    const std::shared_ptr<SimLink> link = network_.add_link(node_, *to, next_port(), parsed.port);
    auto conn = std::make_unique<SimConn>(link, 0);
    link->signal(SimLink::Signal::SYN, 1, link->draw_latency(1));
    const MonoTime give_up = network_.world_.now() + CONNECT_GIVE_UP;
    const MonoTime local_give_up = node_.clock().from_true(give_up);
    // A lost SYN is sent again, later each time: a machine that was off when the first one came is found when it is back.
    Duration resend_after = SYN_RESEND_FIRST;
    MonoTime resend_at = node_.clock().now() + resend_after;
    while (true) {
        const MonoTime end = std::min(deadline, local_give_up);
        const WakeReason reason = park_in(link->ends[0].connector, fiber, std::min(end, resend_at));
        if (reason == WakeReason::CANCELLED) return make_error(ErrorCode::CANCELLED);
        if (link->ends[0].broken) return closed_error();
        if (link->state == SimLink::State::ESTABLISHED && !link->answer_lost)
            return std::unique_ptr<Conn>(std::move(conn));
        if (link->state == SimLink::State::REFUSED)
            return make_error(ErrorCode::CONNECTION_REFUSED, address);
        if (reason != WakeReason::DEADLINE) continue;
        if (node_.clock().now() >= end)
            return make_error(ErrorCode::TIMED_OUT, "connect to " + address);
        link->signal(SimLink::Signal::SYN, 1, link->draw_latency(1));
        resend_after = resend_after * 2;
        resend_at = node_.clock().now() + resend_after;
    }
}

}  // namespace mortar::sim
