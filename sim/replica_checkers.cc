#include <tuple>

#include "sim/checker.h"

namespace mortar::sim {
namespace {

std::string broker_text(std::size_t broker) {
    return "broker " + std::to_string(broker + 1);
}

// 7: one leader an epoch, in one life; no two valid leases at one instant of true time.
class OneLeader : public Checker {
  public:
    OneLeader(const WorldView& world, Violations& violations)
        : Checker(7, violations), world_(world) {}
    void on_replica_views(const std::vector<ReplicaView>& views) override {
        const ReplicaView* holder = nullptr;
        for (const ReplicaView& view : views) {
            if (!view.is_leader) continue;
            judge_office(view);
            if (!world_.clocks_keep_margin || view.lease_until <= view.now) continue;
            judge(holder == nullptr, "no two leases are valid at one instant", [&] {
                return broker_text(holder->broker) + " in leader_epoch " +
                       std::to_string(holder->leader_epoch.value) + " and " +
                       broker_text(view.broker) + " in " + std::to_string(view.leader_epoch.value);
            });
            holder = &view;
        }
    }

  private:
    struct Office {
        std::size_t broker;
        std::uint64_t life;
    };
    void judge_office(const ReplicaView& view) {
        const Office& first =
            offices_.try_emplace(view.leader_epoch.value, Office{view.broker, view.life})
                .first->second;
        judge(first.broker == view.broker, "a leader_epoch has one leader", [&] {
            return broker_text(first.broker) + " and " + broker_text(view.broker) +
                   " lead in leader_epoch " + std::to_string(view.leader_epoch.value);
        });
        judge(first.broker != view.broker || first.life == view.life,
              "a leader that was restarted does not resume its leader_epoch", [&] {
                  return broker_text(view.broker) + " leads in leader_epoch " +
                         std::to_string(view.leader_epoch.value) + " of an earlier life";
              });
    }
    const WorldView& world_;
    std::map<std::uint64_t, Office> offices_;  // by leader_epoch
};

// 9: committed prefixes are equal on all brokers.
class ReplicasEqual : public Checker {
  public:
    explicit ReplicasEqual(Violations& violations) : Checker(9, violations) {}
    void on_replica_logs(PartitionKey key, Sequence commit_seq,
                         const std::vector<ReplicaLog>& logs) override {
        for (std::uint64_t sequence = 1; sequence <= commit_seq.value; ++sequence) {
            const SeenRecord* first = nullptr;
            for (const ReplicaLog& log : logs) {
                const auto found = log.records->find(sequence);
                if (found == log.records->end()) {
                    miss(key, sequence, log.broker);
                    continue;
                }
                const bool is_equal = first == nullptr || *first == found->second;
                judge(is_equal, PROMISE, [&] {
                    return place(key, sequence) + " differs on " + broker_text(log.broker);
                });
                first = &found->second;
            }
        }
    }

  private:
    static constexpr const char* PROMISE = "what is committed is the same on all brokers";
    static std::string place(PartitionKey key, std::uint64_t sequence) {
        return "partition " + std::to_string(key.topic_id.value) + "/" +
               std::to_string(key.partition.value) + " sequence " + std::to_string(sequence);
    }
    void miss(PartitionKey key, std::uint64_t sequence, std::size_t broker) {
        judge(false, PROMISE,
              [&] { return place(key, sequence) + " is missing on " + broker_text(broker); });
    }
};

}  // namespace

std::vector<std::unique_ptr<Checker>> make_replica_checkers(const WorldView& world,
                                                            Violations& violations) {
    std::vector<std::unique_ptr<Checker>> checkers;
    checkers.push_back(std::make_unique<OneLeader>(world, violations));
    checkers.push_back(std::make_unique<ReplicasEqual>(violations));
    return checkers;
}

}  // namespace mortar::sim
