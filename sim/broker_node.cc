#include "sim/broker_node.h"

#include "core/base/assert.h"
#include "core/base/hash.h"
#include "core/log/whole_file.h"

namespace mortar::sim {
namespace {

// Secret among the brokers, and no secret here.
constexpr const char* PEER_KEY = "6d6f727461726d6f727461726d6f727461726d6f727461726d6f727461726d6f";

std::string address_of(const std::string& host, std::uint16_t port) {
    return host + ":" + std::to_string(port);
}

void fill_view(ReplicaView& view, const Broker& broker, const SimClock& clock) {
    const ReplicaStatus status = broker.replica_status();
    view.is_leader = status.is_in_office;
    view.leader_epoch = status.leader_epoch;
    view.lease_until = clock.to_true(status.lease_until);
}

}  // namespace

std::string broker_name(std::size_t index, std::size_t count) {
    return count == 1 ? "broker" : "broker" + std::to_string(index + 1);
}

std::vector<std::string> client_addresses(std::size_t broker_count) {
    std::vector<std::string> addresses;
    for (std::size_t i = 0; i < broker_count; ++i)
        addresses.push_back(address_of(broker_name(i, broker_count), CLIENT_PORT));
    return addresses;
}

BrokerOptions BrokerNode::options() const {
    BrokerOptions options;
    options.config = dev_config();
    options.config.listen_client = address_of("0.0.0.0", CLIENT_PORT);
    options.config.segment_max_bytes = params_["segment_max_bytes"];
    options.config.metadata_snapshot_records =
        static_cast<std::uint32_t>(params_["metadata_snapshot_records"]);
    options.config.delivery_lease_ms = static_cast<std::uint32_t>(params_["lease_ms"]);
    options.config.delivery_max_attempts = static_cast<std::uint32_t>(params_["max_attempts"]);
    options.checkpoint_every_bytes = params_["checkpoint_every_bytes"];
    options.ledger_bytes_min = params_["ledger_max_bytes"];
    options.care.scrub_pause = milliseconds(static_cast<std::int64_t>(params_["scrub_pause_ms"]));
    const auto count = static_cast<std::size_t>(params_["nodes"]);
    if (count == 1) return options;
    options.config.node_id = NodeId(static_cast<std::uint16_t>(index_ + 1));
    options.config.listen_peer = address_of("0.0.0.0", PEER_PORT);
    options.config.peers.clear();
    options.config.leader_priority.clear();
    for (std::size_t i = 0; i < count; ++i) {
        const NodeId id(static_cast<std::uint16_t>(i + 1));
        const std::string host = broker_name(i, count);
        options.config.peers.push_back(
            {id, address_of(host, PEER_PORT), address_of(host, CLIENT_PORT)});
        options.config.leader_priority.push_back(id);
    }
    return options;
}

Result<void> BrokerNode::install_secrets(Fiber& fiber) {
    Disk& disk = node_.disk();
    MORTAR_TRY(make_folders_durably(fiber, disk, "auth"));
    const std::string line = to_hex(sha256(as_byte_span(CLIENT_TOKEN))) + "\n";
    MORTAR_TRY(write_new_file(fiber, disk, "auth/client.sha256.tmp", as_byte_span(line)));
    MORTAR_TRY(publish_file(fiber, disk, "auth", "client.sha256.tmp", "client.sha256"));
    if (params_["nodes"] == 1) return {};
    const std::string key = std::string(PEER_KEY) + "\n";
    MORTAR_TRY(write_new_file(fiber, disk, "auth/peer.key.tmp", as_byte_span(key)));
    return publish_file(fiber, disk, "auth", "peer.key.tmp", "peer.key");
}

void BrokerNode::install() {
    node_.scheduler().spawn("operator", [this](Fiber& fiber) {
        const Result<void> installed = install_secrets(fiber);
        MORTAR_ASSERT(installed.ok());
    });
}

void BrokerNode::start() {
    serving = false;
    stopping = false;
    restart_asked = false;
    stopped.reset();
    broker_ = std::make_unique<Broker>(node_.env(), options());
    node_.scheduler().spawn("broker.main", [this](Fiber& fiber) {
        // While its disk is broken an operator does not get far either, and tries again with the next start.
        Result<void> ended = is_bare_ ? install_secrets(fiber) : Result<void>();
        if (ended.ok()) {
            is_bare_ = false;
            ended = broker_->run(fiber);
        }
        on_end_(*this, ended);
    });
}

void BrokerNode::stop() {
    stopping = true;
    broker_->stop();
}

void BrokerNode::on_down() {
    broker_.reset();
    serving = false;
    restart_asked = false;
}

ReplicaView BrokerNode::replica_view() const {
    ReplicaView view;
    view.broker = index_;
    view.life = node_.life();
    view.now = node_.world().now();
    if (is_ready()) fill_view(view, *broker_, node_.clock());
    return view;
}

Image BrokerNode::durable_image() {
    return {[this](const std::string& folder) { return node_.disk().durable_names(folder); },
            [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                return node_.disk().durable_read_part(path, offset, count);
            }};
}

Image BrokerNode::cached_image() {
    return {[this](const std::string& folder) { return node_.disk().cached_names(folder); },
            [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                return node_.disk().cached_read_part(path, offset, count);
            }};
}

std::string BrokerNode::fiber_names() const {
    std::string text;
    for (const std::string& name : node_.scheduler().fiber_names())
        text += name + " ";
    return text;
}

}  // namespace mortar::sim
