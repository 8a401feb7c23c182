#include "core/broker.h"

#include <algorithm>
#include <utility>

#include "core/admin/data_folder.h"
#include "core/admin/format_check.h"
#include "core/admin/http.h"
#include "core/deliver/delivery.h"
#include "core/fiber/deadline.h"
#include "core/fiber/group.h"
#include "core/meta/metadata_log.h"
#include "core/replica/node.h"
#include "core/replica/peer_link.h"
#include "core/replica/promise.h"
#include "core/session/leader_office.h"
#include "core/session/node_logs.h"
#include "core/session/server.h"
#include "core/session/topic_keeper.h"

namespace mortar {
namespace {

constexpr const char* METADATA_FOLDER = "metadata";
// A leader hands over in less; what else the node is at is cut short after this.
constexpr Duration STOP_PLAYING_TIMEOUT = seconds(2);
// What a start itself may write: the epoch, a metadata snapshot, checkpoints.
constexpr std::uint64_t START_FREE_BYTES_MIN = 1u << 20;

std::string bound_address(const std::string& asked, std::uint16_t port) {
    return asked.substr(0, asked.rfind(':') + 1) + std::to_string(port);
}

Result<void> first_error(Result<void> earlier, Result<void> later) {
    return earlier.ok() ? std::move(later) : std::move(earlier);
}

// Where clients are sent who ask another node for the leader (contract R3).
std::string advertised_address(const Config& config, const std::string& bound) {
    for (const PeerConfig& peer : config.peers) {
        if (peer.node_id != config.node_id) continue;
        if (!peer.client_addr.empty()) return peer.client_addr;
        const Result<ListenAddress> listen = parse_address(bound);
        const Result<ListenAddress> own = parse_address(peer.addr);
        if (!listen.ok() || !own.ok() || !is_wildcard_host(listen->host)) return bound;
        return peer.addr.substr(0, peer.addr.rfind(':')) + bound.substr(bound.rfind(':'));
    }
    return bound;
}

// A start that fails half way through its repairs would leave another folder than it found.
Result<void> check_space_to_start(Fiber& fiber, Disk& disk, const std::string& data_dir) {
    const DiskSpace space = MORTAR_TRY(disk.space(fiber));
    if (space.free_bytes >= START_FREE_BYTES_MIN) return {};
    return make_error(ErrorCode::NO_SPACE,
                      "data_dir " + data_dir + ": " + std::to_string(space.free_bytes) +
                          " bytes are free, no space left to start: at least " +
                          std::to_string(START_FREE_BYTES_MIN) + " are needed");
}

}  // namespace

// In the order in which they are built; each uses only those before it.
struct BrokerParts {
    explicit BrokerParts(Scheduler& scheduler)
        : accepting(scheduler), keeping(scheduler), playing(scheduler) {}

    std::unique_ptr<Listener> client_listener;
    std::unique_ptr<Listener> peer_listener;  // in a cluster of more than one
    std::unique_ptr<AdminServer> admin;
    std::unique_ptr<DataFolder> folder;
    ClientAuth auth;
    SecretKey peer_key{};
    std::unique_ptr<PromiseStore> promises;
    std::unique_ptr<MetadataLog> metadata;
    std::unique_ptr<PartitionTable> partitions;
    std::unique_ptr<TopicKeeper> keeper;
    std::unique_ptr<NodeLogs> logs;
    std::unique_ptr<LeaderOffice> office;
    std::unique_ptr<peer::PeerLinks> links;  // in a cluster of more than one
    std::unique_ptr<ReplicaNode> replica;
    wire::FrameBudget frame_budget;
    std::unique_ptr<SessionServer> server;
    Group accepting;
    Group keeping;
    Group playing;                       // its part in the cluster
    std::optional<Result<void>> played;  // how that ended
};

Broker::Broker(Env env, BrokerOptions options)
    : env_(env),
      options_(std::move(options)),
      started_at_(env.clock.now()),
      parts_(std::make_unique<BrokerParts>(env.scheduler)) {}

Broker::~Broker() = default;

Result<void> Broker::run(Fiber& fiber) {
    Result<void> served = start(fiber);
    while (served.ok() && !stopping_) {
        served = stop_asked_.wait(fiber);
        // A node that cannot play its part any more is of no use to anybody.
        if (served.ok() && parts_->played) served = *parts_->played;
    }
    ready_ = false;
    if (parts_->server != nullptr) {
        env_.log.info("stopping",
                      {{"clients", std::to_string(parts_->server->connection_count())}});
    }
    Result<void> ended = shut_down(fiber);
    return first_error(std::move(served), std::move(ended));
}

void Broker::stop() {
    stopping_ = true;
    stop_asked_.notify_all();
}

Result<void> Broker::start(Fiber& fiber) {
    // A port that is taken, a missing token file: found out before anything on disk changes.
    MORTAR_TRY(listen());
    parts_->auth.token_digests = MORTAR_TRY(check_folder(fiber, env_.disk, options_.config));
    if (is_cluster())
        parts_->peer_key = MORTAR_TRY(load_peer_key(fiber, env_.disk, options_.config));
    MORTAR_TRY(env_.disk.make_folders(fiber, ""));
    MORTAR_TRY(check_space_to_start(fiber, env_.disk, options_.config.data_dir));
    parts_->folder = MORTAR_TRY(DataFolder::open(fiber, env_, options_.config, options_.is_dev));
    // Recovery repairs one part after the other: what would refuse the last must be found first.
    MORTAR_TRY(refuse_newer_formats(fiber, env_.disk));
    MORTAR_TRY(recover(fiber));
    MORTAR_TRY(parts_->folder->sign(fiber));
    return serve(fiber);
}

Result<void> Broker::listen() {
    const Config& config = options_.config;
    parts_->client_listener = MORTAR_TRY(env_.net.listen(config.listen_client));
    if (is_cluster()) parts_->peer_listener = MORTAR_TRY(env_.net.listen(config.listen_peer));
    parts_->admin = MORTAR_TRY(AdminServer::start(env_, *this, config.listen_admin));
    client_address_ = bound_address(config.listen_client, parts_->client_listener->port());
    admin_address_ = bound_address(config.listen_admin, parts_->admin->port());
    const ListenAddress admin = MORTAR_TRY(parse_address(config.listen_admin));
    if (!is_loopback_host(admin.host)) {
        env_.log.warn("admin_is_open",
                      {{"addr", admin_address_}, {"advice", "it has no authentication"}});
    }
    return {};
}

Result<void> Broker::recover(Fiber& fiber) {
    BrokerParts& parts = *parts_;
    const Config& config = options_.config;
    parts.promises = MORTAR_TRY(PromiseStore::open(
        fiber, env_.disk, config.node_id, static_cast<std::uint16_t>(config.peers.size())));
    // Others may count on what this copy has lost. A blank node's copy counts for nothing anyway.
    const auto mark_metadata = [this](Fiber& own) -> Result<void> {
        if (!is_cluster() || parts_->promises->is_blank()) return {};
        return parts_->promises->mark(own, {LogMark{METADATA_LOG, true, {}}});
    };
    parts.metadata = MORTAR_TRY(MetadataLog::open(fiber, env_, METADATA_FOLDER,
                                                  config.metadata_snapshot_records, mark_metadata));
    if (parts.metadata->is_quarantined()) {
        env_.log.error("metadata_quarantined", {{"runbook", "RB-2"}});
        // Refilled half-way it would look sound.
        MORTAR_TRY(mark_metadata(fiber));
    }
    // The first promise is saved before the first mutation. To begin again at 1 would give delivery ids a second time.
    // In a cluster others know the epoch: there such a node is blank.
    if (!is_cluster() && parts.promises->is_blank() && parts.metadata->end().last > Sequence(0)) {
        return make_error(ErrorCode::DAMAGED,
                          "replica/state is missing, but metadata/ is not new: the leader epoch is "
                          "unknown; restore "
                          "replica/state, or the whole data_dir, from a backup");
    }
    LogOptions log_options;
    log_options.segment_max_bytes = config.segment_max_bytes;
    log_options.checkpoint_every_bytes = options_.checkpoint_every_bytes;
    parts.partitions = std::make_unique<PartitionTable>(env_, log_options);
    parts.keeper = std::make_unique<TopicKeeper>(env_, *parts.metadata, *parts.partitions);
    parts.logs = std::make_unique<NodeLogs>(*parts.metadata, *parts.partitions, *parts.keeper);
    build_replica();
    parts.metadata->set_observer(parts.replica.get());
    parts.partitions->set_replication(parts.replica.get());
    parts.partitions->set_before_repair(
        [&promises = *parts.promises](Fiber& own, PartitionKey key) {
            // A blank node's copy counts for nothing anyway.
            if (promises.is_blank()) return Result<void>();
            return promises.mark(own, {LogMark{key, true, {}}});
        });
    MORTAR_TRY(parts.keeper->open_all(fiber));
    return {};
}

void Broker::build_replica() {
    BrokerParts& parts = *parts_;
    const Config& config = options_.config;
    LeaderOffice::Options office;
    office.delivery.delivery_max_attempts = config.delivery_max_attempts;
    office.delivery.delivery_lease = milliseconds(config.delivery_lease_ms);
    office.delivery.poll_max_wait = milliseconds(config.poll_max_wait_ms);
    office.delivery.credit_initial_count = config.credit_initial_count;
    office.delivery.ledger_bytes_min = options_.ledger_bytes_min;
    office.partition_default_count = config.partition_default_count;
    parts.office = std::make_unique<LeaderOffice>(env_, *parts.metadata, *parts.partitions,
                                                  *parts.keeper, office);
    ReplicaOptions replica;
    replica.self = config.node_id;
    replica.new_cluster_id = parts.folder->identity().cluster_id;
    replica.incarnation = env_.rng.stream("broker.incarnation").next();
    replica.priority = config.leader_priority;
    replica.care = options_.care;
    peer::PeerLinksOptions links;
    links.key = parts.peer_key;
    links.identity.node_id = config.node_id;
    links.identity.incarnation = replica.incarnation;
    links.identity.cluster_id = parts.promises->cluster_id();
    links.identity.listen_client = advertised_address(config, client_address_);
    links.identity.listen_admin = admin_address_;
    for (const PeerConfig& peer : config.peers) {
        replica.nodes.push_back(peer.node_id);
        links.peers.push_back({peer.node_id, peer.addr});
    }
    std::sort(replica.nodes.begin(), replica.nodes.end());
    if (is_cluster()) {
        parts.links = std::make_unique<peer::PeerLinks>(env_, std::move(links));
        replica.on_joined = [&joined = *parts.links](const peer::ClusterId& cluster_id) {
            joined.set_cluster_id(cluster_id);
        };
    }
    parts.replica = std::make_unique<ReplicaNode>(env_, std::move(replica), *parts.promises,
                                                  *parts.logs, parts.links.get(), *parts.office);
    parts.office->set_replica(parts.replica.get());
}

Result<void> Broker::serve(Fiber& fiber) {
    BrokerParts& parts = *parts_;
    parts.keeping.spawn("broker.topics",
                        [&keeper = *parts.keeper](Fiber& own) { keeper.run(own); });
    if (parts.links != nullptr) parts.links->start(std::move(parts.peer_listener), *parts.replica);
    parts.playing.spawn("broker.replica", [this](Fiber& own) {
        parts_->played = parts_->replica->run(own);
        stop_asked_.notify_all();
        parts_->replica->changed().notify_all();
    });
    // Alone it leads at once, or says why it cannot.
    while (!is_cluster() && !parts.replica->status().is_in_office) {
        if (parts.played) return *parts.played;
        MORTAR_TRY(parts.replica->changed().wait(fiber));
    }
    parts.server = std::make_unique<SessionServer>(
        SessionContext{env_, *parts.office, parts.auth, parts.frame_budget},
        std::move(parts.client_listener));
    parts.accepting.spawn("broker.accept",
                          [&server = *parts.server](Fiber& own) { server.serve(own); });
    ready_ = true;
    env_.log.info("ready",
                  {{"client", client_address_},
                   {"admin", admin_address_},
                   {"data", options_.config.data_dir},
                   {"version", MORTAR_VERSION},
                   {"leader_epoch", std::to_string(parts.promises->promised_epoch().value)}});
    return {};
}

// From the outside in: what still runs may use everything that is not closed yet.
Result<void> Broker::shut_down(Fiber& fiber) {
    BrokerParts& parts = *parts_;
    Result<void> result;
    // In a cluster another node goes on serving: what comes from now on is told so.
    if (is_cluster()) stop_playing(fiber);
    if (parts.server != nullptr) {
        parts.server->stop_accepting();
        parts.accepting.cancel_and_join(fiber);
        parts.server->drain(fiber);
    }
    stop_playing(fiber);
    if (parts.keeper != nullptr) parts.keeper->stop();
    const Result<void> kept = parts.keeping.join(fiber);
    if (!kept.ok()) parts.keeping.cancel_and_join(fiber);
    if (parts.partitions != nullptr)
        result = first_error(std::move(result), parts.partitions->close(fiber));
    if (parts.metadata != nullptr)
        result = first_error(std::move(result), parts.metadata->close(fiber));
    if (parts.admin != nullptr) parts.admin->stop(fiber);
    if (parts.client_listener != nullptr) parts.client_listener->close();
    parts.folder.reset();
    if (parts.server != nullptr) env_.log.info("stopped");
    return result;
}

void Broker::stop_playing(Fiber& fiber) {
    BrokerParts& parts = *parts_;
    if (parts.replica == nullptr) return;
    parts.replica->stop();
    // It may be at something that takes long, or for ever: an election without peers, records to fetch.
    const MonoTime deadline = deadline_after(env_.clock, STOP_PLAYING_TIMEOUT);
    while (!parts.played && parts.playing.size() > 0) {
        if (!stop_asked_.wait(fiber, deadline).ok()) break;
    }
    parts.playing.cancel_and_join(fiber);
    if (parts.links != nullptr) parts.links->stop(fiber);
}

const Catalog& Broker::catalog() const {
    return parts_->metadata->catalog();
}

const Delivery* Broker::delivery() const {
    return parts_->office == nullptr ? nullptr : parts_->office->delivery();
}

ReplicaStatus Broker::replica_status() const {
    return parts_->replica == nullptr ? ReplicaStatus{} : parts_->replica->status();
}

NodeStatus Broker::node_status() const {
    const BrokerParts& parts = *parts_;
    NodeStatus status;
    status.node_id = options_.config.node_id;
    status.uptime_ms = static_cast<std::uint64_t>((env_.clock.now() - started_at_).to_ms());
    status.version = MORTAR_VERSION;
    const ReplicaStatus replica = replica_status();
    status.leader_id = replica.leader;
    status.leader_epoch = replica.leader_epoch;
    status.quorum_state = static_cast<std::uint8_t>(replica.quorum_state);
    status.role = role_name(replica.role);
    status.trouble = replica.trouble;
    for (const FollowerStatus& follower : replica.followers) {
        status.followers.push_back({follower.node_id, follower.is_connected, follower.is_installed,
                                    follower.is_in_sync, follower.lag_records});
    }
    if (parts.office != nullptr) status.producers_held_to = parts.office->pace().held_to();
    status.connection_count = parts.server != nullptr ? parts.server->connection_count() : 0;
    if (parts.metadata != nullptr) {
        for (const auto& [topic_id, topic] : parts.metadata->catalog().topics()) {
            status.recovering_count += topic.partition_count;
        }
    }
    if (parts.replica != nullptr) {
        const CareStats& care = parts.replica->care();
        status.scrubbed_record_count = care.scrubbed_record_count;
        status.scrubbed_bytes = care.scrubbed_bytes;
        status.scrub_walk_count = care.scrub_walk_count;
        status.damaged_count = care.damaged_count;
        status.repaired_count = care.repaired_count;
    }
    if (parts.partitions != nullptr) status.recovered_count = parts.partitions->opened_count();
    if (delivery() != nullptr) status.unserved_count = delivery()->unserved_count();
    const bool quarantined = parts.metadata != nullptr && parts.metadata->is_quarantined();
    if (!ready_) {
        status.health = HealthStatus::RECOVERING;
    } else if (quarantined) {
        status.health = HealthStatus::QUARANTINED;
    } else if (!replica.leader) {
        status.health = HealthStatus::ELECTING;
    } else if (parts.metadata->is_read_only() || replica.quorum_state == QuorumState::READ_ONLY) {
        status.health = HealthStatus::READ_ONLY;
    } else if (parts.partitions->unserved_count() > 0 || status.unserved_count > 0 ||
               parts.office->is_disk_full() || replica.quorum_state == QuorumState::SOFT) {
        status.health = HealthStatus::SOFT;
    }
    return status;
}

namespace {

// Consumer state is the leader's alone.
std::vector<Delivery::PartitionState> group_states(const BrokerParts& parts, GroupId group_id) {
    const Delivery* delivery = parts.office->delivery();
    return delivery == nullptr ? std::vector<Delivery::PartitionState>{}
                               : delivery->group_state(group_id);
}

// ack_floor of the slowest group of the topic, a partition each; 0 without groups.
std::vector<Sequence> slowest_floors(const BrokerParts& parts, const Topic& topic) {
    std::vector<Sequence> floors(topic.partition_count);
    bool is_first = true;
    for (const auto& [group_id, group] : parts.metadata->catalog().groups()) {
        if (group.topic_id != topic.topic_id) continue;
        for (const Delivery::PartitionState& state : group_states(parts, group_id)) {
            Sequence& floor = floors.at(state.partition.value);
            floor = is_first ? state.ack_floor : std::min(floor, state.ack_floor);
        }
        is_first = false;
    }
    return floors;
}

TopicStatus topic_summary(const BrokerParts& parts, const Topic& topic) {
    TopicStatus status;
    status.topic_id = topic.topic_id;
    status.name = topic.name;
    status.partition_count = topic.partition_count;
    status.created_epoch = topic.created_epoch;
    for (std::uint16_t i = 0; i < topic.partition_count; ++i) {
        const Partition* partition = parts.partitions->find({topic.topic_id, PartitionIndex(i)});
        if (partition != nullptr && partition->is_quarantined()) status.is_quarantined = true;
    }
    return status;
}

GroupStatus group_summary(const BrokerParts& parts, const ConsumerGroup& group) {
    GroupStatus status;
    status.group_id = group.group_id;
    status.name = group.name;
    status.state = group.members.empty() ? GroupState::EMPTY : GroupState::STABLE;
    status.membership_epoch = group.membership_epoch;
    status.assignment_epoch = group.assignment_epoch;
    if (const Topic* topic = parts.metadata->catalog().find_topic(group.topic_id))
        status.topic_name = topic->name;
    for (const auto& [member_id, member] : group.members)
        status.members.push_back(member_id);
    for (const Delivery::PartitionState& state : group_states(parts, group.group_id)) {
        GroupPartitionStatus partition;
        partition.partition = state.partition;
        partition.ack_floor = state.ack_floor;
        partition.lag = state.last_seq.value - std::min(state.last_seq, state.ack_floor).value;
        partition.in_flight = state.in_flight;
        partition.is_served = state.is_served;
        const Ownership& ownership = group.ownership.at(state.partition.value);
        partition.owner = ownership.owner;
        partition.ownership_epoch = ownership.ownership_epoch;
        status.lag = std::max(status.lag, partition.lag);
        status.partitions.push_back(partition);
    }
    return status;
}

}  // namespace

std::optional<TopicStatus> Broker::topic(const std::string& name) const {
    if (!ready_) return std::nullopt;
    const Topic* topic = parts_->metadata->catalog().find_topic(name);
    if (topic == nullptr) return std::nullopt;
    TopicStatus status = topic_summary(*parts_, *topic);
    const std::vector<Sequence> floors = slowest_floors(*parts_, *topic);
    for (std::uint16_t i = 0; i < topic->partition_count; ++i) {
        const Partition* partition = parts_->partitions->find({topic->topic_id, PartitionIndex(i)});
        if (partition == nullptr) continue;  // being opened
        PartitionStatus part;
        part.partition = PartitionIndex(i);
        part.last_seq = partition->log().last_sequence();
        part.commit_seq = partition->commit_seq();
        part.depth = part.last_seq.value - std::min(part.last_seq, floors[i]).value;
        const LogStats log = partition->log().stats();
        part.write_count = log.write_count;
        part.sync_count = log.sync_count;
        part.is_quarantined = partition->is_quarantined();
        status.partitions.push_back(part);
    }
    return status;
}

std::vector<TopicStatus> Broker::topics(TopicId after, std::size_t limit) const {
    std::vector<TopicStatus> page;
    if (!ready_) return page;
    const std::map<TopicId, Topic>& topics = parts_->metadata->catalog().topics();
    for (auto next = topics.upper_bound(after); next != topics.end() && page.size() < limit;
         ++next) {
        page.push_back(topic_summary(*parts_, next->second));
    }
    return page;
}

std::optional<GroupStatus> Broker::group(const std::string& name) const {
    if (!ready_) return std::nullopt;
    const ConsumerGroup* group = parts_->metadata->catalog().find_group(name);
    if (group == nullptr) return std::nullopt;
    return group_summary(*parts_, *group);
}

std::vector<GroupStatus> Broker::groups(GroupId after, std::size_t limit) const {
    std::vector<GroupStatus> page;
    if (!ready_) return page;
    const std::map<GroupId, ConsumerGroup>& groups = parts_->metadata->catalog().groups();
    for (auto next = groups.upper_bound(after); next != groups.end() && page.size() < limit;
         ++next) {
        page.push_back(group_summary(*parts_, next->second));
        page.back().partitions.clear();
    }
    return page;
}

}  // namespace mortar
