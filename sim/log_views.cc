#include "sim/log_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace mortar::sim {
namespace {

LogFollower follower_of(PartitionKey key) {
    return LogFollower(partition_folder(key.topic_id.value, key.partition.value));
}

// All records up to it are there: the reader goes on behind a bad one.
Sequence durable_through(BrokerNode& broker, PartitionKey key) {
    LogFollower log = follower_of(key);
    (void)log.advance(broker.durable_image());
    std::uint64_t through = 0;
    for (const auto& [sequence, record] : log.records()) {
        if (sequence != through + 1) break;
        through = sequence;
    }
    return Sequence(through);
}

}  // namespace

std::optional<PartitionKey> log_of_path(const std::string& path) {
    unsigned topic_id = 0;
    unsigned partition = 0;
    if (path.find(".seg") == std::string::npos) return std::nullopt;
    if (std::sscanf(path.c_str(), "topics/%u/%u/", &topic_id, &partition) != 2) return std::nullopt;
    return PartitionKey{TopicId(static_cast<std::uint16_t>(topic_id)),
                        PartitionIndex(static_cast<std::uint16_t>(partition))};
}

void LogViews::note(const Broker& broker) {
    keys_.clear();
    for (const auto& [topic_id, topic] : broker.catalog().topics()) {
        for (std::uint16_t p = 0; p < topic.partition_count; ++p)
            keys_.push_back({topic_id, PartitionIndex(p)});
    }
}

void LogViews::show(const BrokerNode& broker, const Image& image) {
    last_sequences_.clear();
    for (const PartitionKey key : keys_) {
        LogFollower log = follower_of(key);
        std::vector<SeenRecord> found = log.advance(image);
        auto records = log.records();
        add_what_others_hold(broker, key, records, found);
        last_sequences_[key] = Sequence(records.empty() ? 0 : records.rbegin()->first);
        if (is_rotten(broker, key)) continue;
        for (auto& checker : checkers_)
            checker->on_log_view(key, records, found);
    }
}

// A record is committed, and its PUB answered, once both followers have it: the leader's own disk may be the last one. What is
// of the leader's term is its record wherever it stands, also when the other copy has rotted since; what is older it has synced
// before it took office, and at the same place one that is not installed yet may have what a deposed leader left there.
void LogViews::add_what_others_hold(const BrokerNode& broker, PartitionKey key,
                                    std::map<std::uint64_t, SeenRecord>& records,
                                    std::vector<SeenRecord>& found) const {
    const ReplicaView view = broker.replica_view();
    if (!view.is_leader) return;
    std::vector<LogFollower> others;
    others.reserve(brokers_.size());
    for (const auto& other : brokers_) {
        if (other.get() == &broker) continue;
        others.push_back(follower_of(key));
        (void)others.back().advance(other->durable_image());
    }
    while (true) {
        const std::uint64_t next = records.empty() ? 1 : records.rbegin()->first + 1;
        const SeenRecord* record = nullptr;
        for (const LogFollower& other : others) {
            const auto held = other.records().find(next);
            if (held != other.records().end() &&
                held->second.leader_epoch == view.leader_epoch.value) {
                record = &held->second;
            }
        }
        if (record == nullptr) return;
        records.emplace(next, *record);
        found.push_back(*record);
    }
}

bool LogViews::are_level() const {
    for (const auto& broker : brokers_) {
        if (!broker->serving) return false;
    }
    for (const auto& [key, last] : last_sequences_) {
        // What was shown of a leader's rotten copy ends at the damage: the whole ones say how much it must have again.
        std::optional<Sequence> whole;
        std::optional<Sequence> rotten;
        for (const auto& broker : brokers_) {
            const Sequence through = durable_through(*broker, key);
            if (through < last) return false;
            std::optional<Sequence>& least = is_rotten(*broker, key) ? rotten : whole;
            least = std::min(least.value_or(through), through);
        }
        if (whole && rotten && *rotten < *whole) return false;
    }
    return true;
}

std::string LogViews::describe() const {
    std::string text;
    for (const auto& broker : brokers_) {
        text += broker->name() + (broker->serving ? ":" : " (does not serve):");
        for (const auto& [key, last] : last_sequences_) {
            text += fmt::format(" {}/{} {} of {}", key.topic_id.value, key.partition.value,
                                durable_through(*broker, key).value, last.value);
        }
        text += "; ";
    }
    return text;
}

void LogViews::compare() {
    for (const auto& [key, last] : last_sequences_) {
        std::vector<LogFollower> copies;
        std::vector<ReplicaLog> logs;
        copies.reserve(brokers_.size());
        for (const auto& broker : brokers_) {
            copies.push_back(follower_of(key));
            (void)copies.back().advance(broker->durable_image());
            logs.push_back({broker->index(), &copies.back().records()});
        }
        for (auto& checker : checkers_)
            checker->on_replica_logs(key, last, logs);
    }
}

}  // namespace mortar::sim
