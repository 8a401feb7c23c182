// checker: what each promise is checked against, step by step, with a god's eye.
// Shape:    the tap (sim/tap.h) turns bytes on the simulated wire into the events below; the run adds broker lives, log views
//           and the end. A Checker overrides what it needs; a broken promise is reported once, with the story so far.
// Invariant: checkers see the world, they never change it. A checker counts each judgement it made (checks()).
// Source:   design 6 (checkers 1-16).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/deliver/delivery.h"
#include "core/env/clock.h"
#include "core/wire/messages.h"
#include "sim/image_reader.h"

namespace mortar::sim {

using ConnId = std::uint64_t;

struct Violation {
    int checker = 0;
    std::string promise;  // what was promised
    std::string seen;     // what was seen instead
    MonoTime time;
};

// Collects violations; the first one ends a run.
class Violations {
  public:
    explicit Violations(std::function<MonoTime()> now) : now_(std::move(now)) {}
    void report(int checker, std::string promise, std::string seen);
    const std::vector<Violation>& all() const { return all_; }
    bool any() const { return !all_.empty(); }

  private:
    std::function<MonoTime()> now_;
    std::vector<Violation> all_;
};

struct PubRequest {
    ConnId conn = 0;
    PartitionKey asked;  // partition may be ANY_PARTITION
    ProducerId producer_id;
    ProducerSeq producer_seq;
    std::uint64_t digest = 0;
};

struct GroupPartition {
    std::string group;
    PartitionKey key;
    auto operator<=>(const GroupPartition&) const = default;
};

struct MsgSent {
    ConnId conn = 0;
    GroupPartition where;
    Sequence sequence;
    DeliveryId delivery_id;
    std::uint16_t attempt = 0;
    bool is_last = false;  // LAST: one more failure uses up the attempts
    OwnershipEpoch ownership_epoch;
    std::uint64_t digest = 0;
    std::uint64_t payload_bytes = 0;
};

// Everything that a broker shows of one group, at a moment between two steps.
struct GroupView {
    std::string group;
    TopicId topic_id;
    std::vector<Sequence> start_after;
    std::vector<Delivery::PartitionState> partitions;
};

// What one broker says of its part in the cluster, at a moment between two steps.
struct ReplicaView {
    std::size_t broker = 0;  // which one, from 0
    std::uint64_t life = 0;
    MonoTime now;  // true time
    bool is_leader = false;
    LeaderEpoch leader_epoch;  // in which it leads
    MonoTime lease_until;      // of a leader, in true time
};

// One broker's copy of a log.
struct ReplicaLog {
    std::size_t broker = 0;
    const std::map<std::uint64_t, SeenRecord>* records = nullptr;
};

class Checker {
  public:
    Checker(int number, Violations& violations) : number_(number), violations_(violations) {}
    virtual ~Checker() = default;
    Checker(const Checker&) = delete;
    Checker& operator=(const Checker&) = delete;

    int number() const { return number_; }
    std::uint64_t checks() const { return checks_; }

    // --- the wire, at the moment the bytes enter the send path
    virtual void on_pub(const PubRequest&) {}
    virtual void on_pub_ok(const PubRequest&, const wire::PubResult&) {}
    virtual void on_pub_error(const PubRequest&, std::uint16_t /*code*/) {}
    virtual void on_pub_unanswered(const PubRequest&) {}  // the connection ended first
    virtual void on_topic_delete_sent(TopicId) {}
    virtual void on_topic_deleted(TopicId) {}  // the OK enters the send path
    virtual void on_sub_ok(ConnId, const std::string& /*group*/, TopicId, const wire::SubResult&) {}
    virtual void on_notice(ConnId, const wire::Notice&) {}
    virtual void on_credit(ConnId, const GroupPartition&, std::uint32_t /*count*/,
                           std::uint64_t /*bytes*/) {}
    virtual void on_msg(const MsgSent&) {}
    virtual void on_ack_ok(const GroupPartition&, Sequence) {}
    virtual void on_nack_ok(const GroupPartition&, Sequence) {}
    virtual void on_malformed(ConnId, const std::string& /*what*/) {
    }                                        // sent by the broker, does not decode
    virtual void on_broker_frame(ConnId) {}  // decoded fine
    virtual void on_connection_end(ConnId) {}
    // --- the broker's lives
    virtual void on_broker_down() {}
    virtual void on_broker_up() {}
    // --- views of the disk and of the state; log views come after each recovery and at the end
    virtual void on_log_view(PartitionKey,
                             const std::map<std::uint64_t, SeenRecord>& /*by sequence*/,
                             const std::vector<SeenRecord>& /*as found*/) {}
    virtual void on_group_view(const GroupView&) {}
    // A broker's segment of this log was cut, replaced or removed: from its base on the log is not what it was.
    virtual void on_log_rewritten(std::size_t /*broker*/, PartitionKey, std::uint64_t /*base*/) {}
    // All brokers that are up, at one moment.
    virtual void on_replica_views(const std::vector<ReplicaView>&) {}
    // All copies of a log at the end, when they had their time to catch up.
    virtual void on_replica_logs(PartitionKey, Sequence /*commit_seq*/,
                                 const std::vector<ReplicaLog>&) {}
    // The drain is over: faults healed, consumers had their time. logs: last sequence of each partition.
    virtual void on_end(const std::map<PartitionKey, Sequence>& /*logs*/,
                        const std::vector<std::string>& /*draining groups*/) {}

  protected:
    void judge(bool kept, const char* promise, const std::function<std::string()>& seen) {
        ++checks_;
        if (!kept) violations_.report(number_, promise, seen());
    }

  private:
    int number_;
    Violations& violations_;
    std::uint64_t checks_ = 0;
};

// What the checkers may ask of the world.
struct WorldView {
    std::vector<Image> durable;  // by broker: what a power loss now would certainly leave
    // Copies whose bits flipped at rest, by broker: nobody may have read and repaired them yet.
    std::set<std::pair<std::size_t, PartitionKey>> rotten = {};
    // No clock runs so wrong that leases do not allow for it.
    bool clocks_keep_margin = true;
};

// All wire and log checkers; liveness (13), determinism (16) and replaced files (17) are judged by the run itself.
std::vector<std::unique_ptr<Checker>> make_checkers(const WorldView& world, Violations& violations);
// Those of several brokers: 7 and 9.
std::vector<std::unique_ptr<Checker>> make_replica_checkers(const WorldView& world,
                                                            Violations& violations);

}  // namespace mortar::sim
