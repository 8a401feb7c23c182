#include "core/replica/peer_link.h"

#include <algorithm>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/replica/peer_frame.h"
#include "core/replica/peer_handshake.h"

namespace mortar::peer {
namespace {

// Reader and writer.
constexpr std::size_t CHANNEL_FIBERS = 2;
constexpr Duration EVICTION_TOLD_EVERY = seconds(10);

constexpr std::size_t index_of(Lane lane) {
    return static_cast<std::size_t>(lane);
}
Duration silence_max(Lane lane) {
    return lane == Lane::CONTROL ? CONTROL_SILENCE_MAX : BULK_SILENCE_MAX;
}
std::string text_of(const Error& error) {
    return error.detail.empty() ? std::string(error_name(error.code)) : error.detail;
}

}  // namespace

class Channel final : public PeerChannel {
  public:
    Channel(std::shared_ptr<Conn> conn, const Clock& clock)
        : conn_(std::move(conn)), reader_(*conn_, clock) {}

    NodeId peer() const override { return peer_; }
    Lane lane() const override { return lane_; }
    bool is_dialed() const override { return dialed_; }
    std::uint16_t version() const override { return version_; }
    using PeerChannel::send;
    void send(PeerFrame frame) override {
        if (is_closed()) return;
        queued_bytes_ += frame.size_bytes();
        queue_.push_back(std::move(frame));
        if (queued_bytes_ > PEER_QUEUE_BYTES_MAX)
            return close_because("the peer does not take what is sent to it: the queue is full");
        ready_.notify_one();
    }
    std::size_t queued_bytes() const override { return queued_bytes_; }
    Event& drained() override { return drained_; }
    bool is_closed() const override { return !closed_because_.empty(); }
    void close() override { close_because("closed by this node"); }

    void close_because(std::string reason) {
        if (is_closed()) return;
        closed_because_ = std::move(reason);
        conn_->close();
        queue_.clear();
        queued_bytes_ = 0;
        ready_.notify_all();
        drained_.notify_all();
    }
    const std::string& closed_because() const { return closed_because_; }
    void become(NodeId peer, bool dialed, const HandshakeResult& agreed) {
        peer_ = peer;
        dialed_ = dialed;
        lane_ = agreed.lane;
        version_ = agreed.version;
    }
    Conn& conn() { return *conn_; }
    PeerFrameReader& reader() { return reader_; }
    Event& ready() { return ready_; }
    std::vector<PeerFrame> take() { return std::exchange(queue_, {}); }
    bool has_queued() const { return !queue_.empty(); }
    void done_writing(std::size_t bytes) {
        if (is_closed()) return;
        MORTAR_ASSERT(bytes <= queued_bytes_);
        queued_bytes_ -= bytes;
        drained_.notify_all();
    }

  private:
    std::shared_ptr<Conn> conn_;
    PeerFrameReader reader_;
    NodeId peer_;
    Lane lane_ = Lane::CONTROL;
    bool dialed_ = false;
    std::uint16_t version_ = 0;
    std::vector<PeerFrame> queue_;
    std::size_t queued_bytes_ = 0;  // of queue_, and of what is being written
    std::string closed_because_;    // empty: it is open
    Event ready_;
    Event drained_;
};

PeerLinks::PeerLinks(Env env, PeerLinksOptions options)
    : env_(env),
      options_(std::move(options)),
      nonce_rng_(env.rng.stream("replica.nonce")),
      backoff_rng_(env.rng.stream("replica.backoff")),
      fibers_(env.scheduler) {
    for (const PeerAddress& address : options_.peers) {
        if (address.node_id != options_.identity.node_id)
            peers_[address.node_id].addr = address.addr;
    }
}

PeerLinks::~PeerLinks() = default;

void PeerLinks::start(std::unique_ptr<Listener> listener, PeerHandler& handler) {
    handler_ = &handler;
    listener_ = std::move(listener);
    fibers_.spawn("peer.accept", [this](Fiber& fiber) { accept_all(fiber); });
    for (const auto& [node_id, peer] : peers_) {
        for (const Lane lane : {Lane::CONTROL, Lane::BULK}) {
            fibers_.spawn("peer.dial", [this, id = node_id, lane](Fiber& fiber) {
                dial_forever(fiber, id, lane);
            });
        }
    }
}

void PeerLinks::stop(Fiber& fiber) {
    if (listener_ != nullptr) listener_->close();
    fibers_.cancel_and_join(fiber);
}

PeerChannel* PeerLinks::channel(NodeId peer, Lane lane) const {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return nullptr;
    const auto direction = static_cast<std::size_t>(Direction::DIALED);
    Channel* const channel = found->second.slots[index_of(lane)][direction].channel;
    return channel == nullptr || channel->is_closed() ? nullptr : channel;
}

const Identity* PeerLinks::identity_of(NodeId peer) const {
    const auto found = peers_.find(peer);
    return found == peers_.end() ? nullptr : found->second.identity.get();
}

void PeerLinks::set_cluster_id(const ClusterId& cluster_id) {
    options_.identity.cluster_id = cluster_id;
}

// --- accepting

void PeerLinks::accept_all(Fiber& fiber) {
    while (true) {
        Result<std::unique_ptr<Conn>> accepted = listener_->accept(fiber);
        if (!accepted.ok()) return;
        take(std::move(accepted).value());
    }
}

void PeerLinks::take(std::unique_ptr<Conn> conn) {
    if (!env_.scheduler.has_room(CHANNEL_FIBERS)) {
        env_.log.warn("peer_refused", {{"addr", conn->peer_address()},
                                       {"reason",
                                        "the system gives no more memory or mappings "
                                        "for fiber stacks"}});
        return;
    }
    if (unauthenticated_.size() >= UNAUTHENTICATED_COUNT_MAX) evict_oldest();
    const std::uint64_t number = next_number_++;
    const std::shared_ptr<Conn> shared = std::move(conn);
    unauthenticated_.emplace(number, shared.get());
    fibers_.spawn("peer.accepted",
                  [this, shared, number](Fiber& fiber) { serve_accepted(fiber, shared, number); });
}

void PeerLinks::evict_oldest() {
    const auto oldest = unauthenticated_.begin();
    const MonoTime now = env_.clock.now();
    if (!eviction_told_ || now >= eviction_told_until_) {
        eviction_told_ = true;
        eviction_told_until_ = now + EVICTION_TOLD_EVERY;
        env_.log.warn("peer_flood", {{"addr", oldest->second->peer_address()},
                                     {"reason",
                                      "too many connections at once that have not said "
                                      "who they are; the oldest are closed"}});
    }
    oldest->second->close();
    unauthenticated_.erase(oldest);
}

void PeerLinks::serve_accepted(Fiber& fiber, const std::shared_ptr<Conn>& conn,
                               std::uint64_t number) {
    Channel channel(conn, env_.clock);
    const HandshakeSelf self{options_.key, options_.identity, options_.version_min, draw_nonce()};
    const auto is_peer = [this](NodeId node_id) { return peers_.contains(node_id); };
    const Result<HandshakeResult> agreed =
        handshake_accepting(fiber, *conn, channel.reader(), self, is_peer,
                            deadline_after(env_.clock, HANDSHAKE_TIMEOUT));
    const bool evicted = unauthenticated_.erase(number) == 0;
    if (!agreed.ok()) {
        if (!evicted && !agreed.is(ErrorCode::CANCELLED)) {
            env_.log.warn("peer_refused",
                          {{"addr", conn->peer_address()}, {"reason", text_of(agreed.error())}});
        }
        return;
    }
    channel.become(agreed->identity.node_id, false, *agreed);
    Peer& peer = peers_.at(channel.peer());
    ++peer.visits[index_of(channel.lane())];
    peer.came[index_of(channel.lane())].notify_all();
    (void)serve(fiber, channel, agreed->identity);
}

// --- dialing

void PeerLinks::dial_forever(Fiber& fiber, NodeId node_id, Lane lane) {
    Peer& peer = peers_.at(node_id);
    Duration backoff = BACKOFF_MIN;
    std::string told;
    while (true) {
        const std::uint64_t visits = peer.visits[index_of(lane)];
        MonoTime up_since = NEVER;
        const Result<void> ended = dial_once(fiber, node_id, lane, up_since);
        if (fiber.is_cancelled()) return;
        if (up_since != NEVER) {
            told.clear();
            if (env_.clock.now() - up_since >= BACKOFF_MAX) backoff = BACKOFF_MIN;
        } else if (text_of(ended.error()) != told) {
            // Once, not at each try.
            told = text_of(ended.error());
            env_.log.warn("peer_unreachable", {{"peer", std::to_string(node_id.value)},
                                               {"lane", std::string(lane_name(lane))},
                                               {"addr", peer.addr},
                                               {"reason", told}});
        }
        if (peer.visits[index_of(lane)] != visits) backoff = BACKOFF_MIN;
        const auto jitter = backoff_rng_.below(static_cast<std::uint64_t>(backoff.ns / 2));
        const Result<void> waited = peer.came[index_of(lane)].wait(
            fiber,
            deadline_after(env_.clock, backoff + Duration{static_cast<std::int64_t>(jitter)}));
        if (waited.is(ErrorCode::CANCELLED)) return;
        backoff = waited.ok() ? BACKOFF_MIN : std::min(backoff * 2, BACKOFF_MAX);
    }
}

Result<void> PeerLinks::dial_once(Fiber& fiber, NodeId node_id, Lane lane, MonoTime& up_since) {
    const Peer& peer = peers_.at(node_id);
    const std::shared_ptr<Conn> conn =
        MORTAR_TRY(env_.net.connect(fiber, peer.addr, deadline_after(env_.clock, CONNECT_TIMEOUT)));
    Channel channel(conn, env_.clock);
    const HandshakeSelf self{options_.key, options_.identity, options_.version_min, draw_nonce()};
    const HandshakeResult agreed =
        MORTAR_TRY(handshake_dialing(fiber, *conn, channel.reader(), self, node_id, lane,
                                     deadline_after(env_.clock, HANDSHAKE_TIMEOUT)));
    channel.become(node_id, true, agreed);
    up_since = env_.clock.now();
    return serve(fiber, channel, agreed.identity);
}

// --- both

Result<void> PeerLinks::serve(Fiber& fiber, Channel& channel, const Identity& identity) {
    Peer& peer = peers_.at(channel.peer());
    const auto direction = channel.is_dialed() ? Direction::DIALED : Direction::ACCEPTED;
    Slot& slot = peer.slots[index_of(channel.lane())][static_cast<std::size_t>(direction)];
    MORTAR_TRY(take_slot(fiber, slot, channel));
    learn(peer, channel, identity);
    Group writing(env_.scheduler);
    writing.spawn("peer.write", [this, &channel](Fiber& writer) { write_frames(writer, channel); });
    handler_->on_channel_up(channel);
    const Result<void> read = read_frames(fiber, channel);
    if (!read.ok()) channel.close_because(text_of(read.error()));
    writing.cancel_and_join(fiber);
    slot.channel = nullptr;
    const LogLevel level = fiber.is_cancelled() ? LogLevel::INFO : LogLevel::WARN;
    if (env_.log.enabled(level))
        env_.log.write(level, "peer_channel_down",
                       {{"peer", std::to_string(channel.peer().value)},
                        {"lane", std::string(lane_name(channel.lane()))},
                        {"direction", channel.is_dialed() ? "dialed" : "accepted"},
                        {"reason", channel.closed_because()}});
    handler_->on_channel_down(channel);
    slot.freed.notify_all();
    return read;
}

// The newer connection wins: the peer knows better than we whether the older one is still good. It waits until the older
// one's last frame is handled.
Result<void> PeerLinks::take_slot(Fiber& fiber, Slot& slot, Channel& channel) {
    const std::uint64_t number = ++slot.newest;
    slot.freed.notify_all();
    while (slot.channel != nullptr) {
        slot.channel->close_because("replaced by a newer connection");
        MORTAR_TRY(slot.freed.wait(fiber));
        if (slot.newest != number) {
            return make_error(ErrorCode::CONNECTION_CLOSED, "replaced by a newer connection");
        }
    }
    slot.channel = &channel;
    return {};
}

void PeerLinks::learn(Peer& peer, const Channel& channel, const Identity& identity) {
    const std::string node = std::to_string(channel.peer().value);
    env_.log.info("peer_channel_up", {{"peer", node},
                                      {"lane", std::string(lane_name(channel.lane()))},
                                      {"direction", channel.is_dialed() ? "dialed" : "accepted"},
                                      {"version", std::to_string(channel.version())}});
    const std::uint16_t own = options_.identity.version_max;
    if (identity.version_max != own && identity.version_max != peer.warned_version) {
        env_.log.warn("peer_version_differs",
                      {{"peer", node},
                       {"own_version", std::to_string(own)},
                       {"peer_version", std::to_string(identity.version_max)},
                       {"spoken_version", std::to_string(channel.version())}});
    }
    peer.warned_version = identity.version_max;
    peer.identity = std::make_unique<Identity>(identity);
}

Result<void> PeerLinks::read_frames(Fiber& fiber, Channel& channel) {
    const ReadLimits limits{PEER_FRAME_LEN_MAX, NEVER, silence_max(channel.lane())};
    while (!channel.is_closed()) {
        const FrameView frame = MORTAR_TRY(channel.reader().read(fiber, limits));
        if (channel.is_closed()) break;
        if (frame.op == Op::PING) {
            MORTAR_TRY(decode<Ping>(frame.payload));
            continue;
        }
        if (frame.op < Op::HEARTBEAT) {
            return make_error(ErrorCode::MALFORMED_PAYLOAD,
                              std::string(op_name(frame.op)) + " behind the handshake");
        }
        MORTAR_TRY(handler_->on_frame(fiber, channel, frame.op, frame.payload));
    }
    return make_error(ErrorCode::CONNECTION_CLOSED, channel.closed_because());
}

void PeerLinks::write_frames(Fiber& fiber, Channel& channel) {
    MonoTime last_sent = env_.clock.now();
    std::vector<ByteSpan> parts;
    while (!channel.is_closed()) {
        if (!channel.has_queued()) {
            const Result<void> waited = channel.ready().wait(fiber, last_sent + PING_EVERY);
            if (waited.is(ErrorCode::CANCELLED)) return;
            if (waited.is(ErrorCode::TIMED_OUT) && !channel.has_queued())
                channel.send_message(Ping{});
            continue;
        }
        // All that was queued meanwhile in one write.
        const std::vector<PeerFrame> frames = channel.take();
        std::size_t size_bytes = 0;
        parts.clear();
        for (const PeerFrame& frame : frames) {
            parts.emplace_back(frame.head);
            parts.insert(parts.end(), frame.parts.begin(), frame.parts.end());
            size_bytes += frame.size_bytes();
        }
        const Result<void> written = channel.conn().write(fiber, parts, NEVER);
        if (!written.ok()) return channel.close_because(text_of(written.error()));
        last_sent = env_.clock.now();
        channel.done_writing(size_bytes);
    }
}

Nonce PeerLinks::draw_nonce() {
    const std::uint64_t first = nonce_rng_.next();
    const std::uint64_t second = nonce_rng_.next();
    return make_nonce(options_.key, first, second);
}

}  // namespace mortar::peer
