// log_views: every partition log of every broker, as a reader with a god's eye finds it, shown to the checkers.
// Shape:    note() learns from a broker which logs there are; show() lets the checkers see one broker's copies, and keeps how
//           long they are. A copy whose bits flipped at rest is not shown: the reader stops at damage, which its broker
//           may not have met yet.
// Owns:     nothing of the world; brokers, checkers and view outlive it.
// Source:   design 6 (checkers 2, 3, 9).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/broker_node.h"
#include "sim/checker.h"

namespace mortar::sim {

// Of a segment, topics/<topic_id>/<partition>/...; nothing for another file.
std::optional<PartitionKey> log_of_path(const std::string& path);

// The next record of a log that all others hold: the same in all of them. A copy that was not yet made equal to the leader's
// may hold another one there, or all may one of an older term that is about to be cut.
std::optional<SeenRecord> held_by_all(
    const std::vector<const std::map<std::uint64_t, SeenRecord>*>& others, std::uint64_t sequence,
    std::optional<LeaderEpoch> leading_in);

class LogViews {
  public:
    using Brokers = std::vector<std::unique_ptr<BrokerNode>>;
    LogViews(const WorldView& world, const Brokers& brokers,
             std::vector<std::unique_ptr<Checker>>& checkers)
        : world_(world), brokers_(brokers), checkers_(checkers) {}

    void note(const Broker& broker);
    // leading_in: the leader_epoch in which the broker is in office.
    void show(const BrokerNode& broker, const Image& image,
              std::optional<LeaderEpoch> leading_in = std::nullopt);
    // As shown last.
    const std::map<PartitionKey, Sequence>& last_sequences() const { return last_sequences_; }

    // Every broker holds durably what was shown last; what had rotted is repaired.
    bool are_level() const;
    std::string describe() const;
    // Shows all copies side by side, up to what was shown last.
    void compare();

  private:
    void add_what_others_hold(const BrokerNode& broker, PartitionKey key,
                              std::optional<LeaderEpoch> leading_in,
                              std::map<std::uint64_t, SeenRecord>& records,
                              std::vector<SeenRecord>& found) const;
    bool is_rotten(const BrokerNode& broker, PartitionKey key) const {
        return world_.rotten.contains({broker.index(), key});
    }

    const WorldView& world_;
    const Brokers& brokers_;
    std::vector<std::unique_ptr<Checker>>& checkers_;
    std::vector<PartitionKey> keys_;
    std::map<PartitionKey, Sequence> last_sequences_;
};

}  // namespace mortar::sim
