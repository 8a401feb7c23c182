#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "sim/checker.h"

namespace mortar::sim {
namespace {

std::string name_of(PartitionKey key) {
    return std::to_string(key.topic_id.value) + "/" + std::to_string(key.partition.value);
}
std::string name_of(const GroupPartition& where) {
    return where.group + " on " + name_of(where.key);
}

// 1: when the first byte of a PUB OK enters the send path, a majority of the durable images holds the record.
class AckedDurable : public Checker {
  public:
    AckedDurable(const WorldView& world, Violations& violations)
        : Checker(1, violations), world_(world) {}
    // What was stored and is on its way to be told may be gone by then, with its topic.
    void on_topic_delete_sent(TopicId topic_id) override { deleted_.insert(topic_id); }
    void on_pub_ok(const PubRequest& request, const wire::PubResult& result) override {
        if (deleted_.contains(request.asked.topic_id)) return;
        if (request.asked.partition == ANY_PARTITION) {
            // The answer does not name the partition that the broker chose: some partition must hold it.
            bool held = false;
            for (const PartitionKey key : partitions_of(request.asked.topic_id))
                held = held || copies(key, request, result) >= majority();
            judge(held, PROMISE,
                  [&] { return "no durable partition holds sequence " + text(result); });
            return;
        }
        const std::size_t held = copies(request.asked, request, result);
        judge(held >= majority(), PROMISE, [&] {
            return "partition " + name_of(request.asked) + ": no durable record " + text(result) +
                   " with the payload that was acknowledged, but on " + std::to_string(held) +
                   " of " + std::to_string(world_.durable.size()) + " brokers";
        });
    }
    void on_broker_down() override { logs_.clear(); }
    void on_log_rewritten(std::size_t broker, PartitionKey key, std::uint64_t base) override {
        const auto log = logs_.find({key, broker});
        if (log != logs_.end()) log->second.forget_from(base);
    }

  private:
    static constexpr const char* PROMISE = "a PUB is answered OK only after its record is durable";
    static constexpr std::uint16_t PARTITIONS_PROBED = 16;
    static std::string text(const wire::PubResult& result) {
        return std::to_string(result.sequence.value);
    }
    std::size_t majority() const { return world_.durable.size() / 2 + 1; }
    std::set<PartitionKey> partitions_of(TopicId topic_id) const {
        std::set<PartitionKey> keys;
        for (const auto& [place, log] : logs_) {
            if (place.first.topic_id == topic_id) keys.insert(place.first);
        }
        for (std::uint16_t p = 0; p < PARTITIONS_PROBED; ++p)
            keys.insert({topic_id, PartitionIndex(p)});
        return keys;
    }
    // Up to a majority: what more of them hold it does not matter.
    std::size_t copies(PartitionKey key, const PubRequest& request, const wire::PubResult& result) {
        const std::size_t read_on = count_copies(key, request, result, false);
        // A copy that was repaired in place is read once more from its start. That takes long, and is seldom needed.
        if (read_on >= majority() || world_.durable.size() == 1) return read_on;
        return count_copies(key, request, result, true);
    }
    std::size_t count_copies(PartitionKey key, const PubRequest& request,
                             const wire::PubResult& result, bool is_from_start) {
        std::size_t count = 0;
        for (std::size_t broker = 0; broker < world_.durable.size() && count < majority();
             ++broker) {
            // It was durable there, and the reader here stops at what has rotted since.
            if (world_.rotten.contains({broker, key})) {
                ++count;
                continue;
            }
            const auto place = std::pair(key, broker);
            auto log = logs_.find(place);
            if (log == logs_.end()) {
                LogFollower follower(partition_folder(key.topic_id.value, key.partition.value));
                log = logs_.emplace(place, std::move(follower)).first;
            }
            if (holds(log->second, world_.durable[broker], request, result, is_from_start)) ++count;
        }
        return count;
    }
    static bool holds(LogFollower& log, const Image& image, const PubRequest& request,
                      const wire::PubResult& result, bool is_from_start) {
        if (is_in(log, request, result)) return true;
        if (is_from_start) log.forget();
        (void)log.advance(image);
        return is_in(log, request, result);
    }
    static bool is_in(const LogFollower& log, const PubRequest& request,
                      const wire::PubResult& result) {
        const auto found = log.records().find(result.sequence.value);
        return found != log.records().end() && found->second.digest == request.digest &&
               found->second.producer_id == request.producer_id.value &&
               found->second.producer_seq == request.producer_seq.value;
    }
    const WorldView& world_;
    std::map<std::pair<PartitionKey, std::size_t>, LogFollower> logs_;
    std::set<TopicId> deleted_;
};

// 2: no acknowledged record is lost or altered; a refused one never appears.  15: nor does one that nobody sent.
class AckedKept : public Checker {
  public:
    explicit AckedKept(Violations& violations) : Checker(2, violations) {}
    void on_pub_ok(const PubRequest& request, const wire::PubResult& result) override {
        accepted_.insert(request.digest);
        if (request.asked.partition == ANY_PARTITION) return;
        const auto [at, first] =
            acked_[request.asked].try_emplace(result.sequence.value, request.digest);
        judge(first || at->second == request.digest,
              "a sequence is acknowledged for one payload only", [&] {
                  return "partition " + name_of(request.asked) + " sequence " +
                         std::to_string(result.sequence.value) +
                         " was acknowledged for two payloads";
              });
    }
    void on_pub(const PubRequest& request) override { ++open_[request.digest]; }
    void on_pub_unanswered(const PubRequest& request) override { accepted_.insert(request.digest); }
    void on_pub_error(const PubRequest& request, std::uint16_t code) override {
        const ErrorInfo* info = find_error(code);
        const bool may_be_executed = info == nullptr || info->outcome == ErrorOutcome::UNKNOWN;
        if (may_be_executed) accepted_.insert(request.digest);
        if (--open_[request.digest] == 0) open_.erase(request.digest);
    }
    void on_log_view(PartitionKey key, const std::map<std::uint64_t, SeenRecord>& log,
                     const std::vector<SeenRecord>& found) override {
        for (const auto& [sequence, digest] : acked_[key]) {
            const auto at = log.find(sequence);
            judge(at != log.end() && at->second.digest == digest,
                  "no acknowledged record is lost or altered", [&] {
                      return "partition " + name_of(key) + " sequence " + std::to_string(sequence) +
                             (at == log.end() ? " is gone" : " holds other bytes");
                  });
        }
        for (const SeenRecord& record : found) {
            judge(accepted_.contains(record.digest) || open_.contains(record.digest),
                  "a record that was refused never appears", [&] {
                      return "partition " + name_of(key) + " sequence " +
                             std::to_string(record.sequence) +
                             " holds a payload whose PUB was refused, or that was never sent";
                  });
        }
    }

  private:
    std::map<PartitionKey, std::map<std::uint64_t, std::uint64_t>> acked_;
    std::set<std::uint64_t> accepted_;             // an OK, or an outcome that nobody knows
    std::map<std::uint64_t, std::uint64_t> open_;  // sent, not answered yet
};

// 3: one sequence per (producer, seq); sequences dense from 1.
class NoDuplicates : public Checker {
  public:
    explicit NoDuplicates(Violations& violations) : Checker(3, violations) {}
    void on_pub_ok(const PubRequest& request, const wire::PubResult& result) override {
        if (request.producer_id.value == 0) return;
        const auto [at, first] = sequence_of_.try_emplace(
            std::tuple(request.asked, request.producer_id.value, request.producer_seq.value),
            result.sequence.value);
        judge(first || at->second == result.sequence.value,
              "a PUB that is sent again is answered with its original sequence", [&] {
                  return "partition " + name_of(request.asked) + ": producer_seq " +
                         std::to_string(request.producer_seq.value) + " has sequences " +
                         std::to_string(at->second) + " and " +
                         std::to_string(result.sequence.value);
              });
    }
    void on_log_view(PartitionKey key, const std::map<std::uint64_t, SeenRecord>& log,
                     const std::vector<SeenRecord>& found) override {
        std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> seen;
        std::map<std::uint64_t, std::uint64_t> last_of_producer;
        std::uint64_t expected = 1;
        for (const auto& [sequence, record] : log) {
            judge(sequence == expected, "sequences of a partition are dense from 1", [&] {
                return "partition " + name_of(key) + ": " + std::to_string(sequence) + " follows " +
                       std::to_string(expected - 1);
            });
            expected = sequence + 1;
            if (record.producer_id == 0) continue;
            judge(seen.emplace(std::pair(record.producer_id, record.producer_seq), sequence).second,
                  "one sequence per (producer_id, producer_seq)", [&] {
                      return "partition " + name_of(key) + ": producer_seq " +
                             std::to_string(record.producer_seq) +
                             " stands twice, again at sequence " + std::to_string(sequence);
                  });
            std::uint64_t& last = last_of_producer[record.producer_id];
            judge(record.producer_seq == last + 1, "a producer's messages keep their order", [&] {
                return "partition " + name_of(key) + " sequence " + std::to_string(sequence) +
                       ": producer_seq " + std::to_string(record.producer_seq) + " follows " +
                       std::to_string(last);
            });
            last = record.producer_seq;
        }
        judge(log.size() == found.size(), "a sequence stands once in a log", [&] {
            return "partition " + name_of(key) + ": " + std::to_string(found.size()) +
                   " records, " + std::to_string(log.size()) + " sequences";
        });
    }

  private:
    std::map<std::tuple<PartitionKey, std::uint64_t, std::uint64_t>, std::uint64_t> sequence_of_;
};

// 4: first deliveries go out in order of sequence, with the bytes that were published; what a dying connection swallowed comes
// as a redelivery.
class DeliveryOrder : public Checker {
  public:
    explicit DeliveryOrder(Violations& violations) : Checker(4, violations) {}
    void on_pub_ok(const PubRequest& request, const wire::PubResult& result) override {
        if (request.asked.partition != ANY_PARTITION) {
            digests_[request.asked][result.sequence.value] = request.digest;
        }
    }
    void on_group_view(const GroupView& view) override {
        for (std::size_t p = 0; p < view.start_after.size(); ++p) {
            const GroupPartition where{
                view.group, {view.topic_id, PartitionIndex(static_cast<std::uint16_t>(p))}};
            last_first_.try_emplace(where, view.start_after[p].value);
        }
    }
    void on_msg(const MsgSent& msg) override {
        const auto digest = digests_[msg.where.key].find(msg.sequence.value);
        if (digest != digests_[msg.where.key].end()) {
            judge(digest->second == msg.digest,
                  "a message is delivered with the bytes that were published", [&] {
                      return name_of(msg.where) + " sequence " + std::to_string(msg.sequence.value);
                  });
        }
        const auto [at, unknown_start] = last_first_.try_emplace(msg.where, msg.sequence.value - 1);
        std::map<std::uint64_t, std::uint64_t>& unsent = unsent_[msg.where];
        if (msg.sequence.value <= at->second) {
            // What was dispatched to a connection that died before it was sent comes as a redelivery. Only a broker that
            // died too may have forgotten that delivery.
            const auto skipped = unsent.find(msg.sequence.value);
            if (skipped == unsent.end()) return;
            judge(msg.attempt > 1 || skipped->second != lives_,
                  "first deliveries go out by sequence, without gaps", [&] {
                      return name_of(msg.where) + ": first delivery of " +
                             std::to_string(msg.sequence.value) + " after that of " +
                             std::to_string(at->second);
                  });
            unsent.erase(skipped);
            return;
        }
        for (std::uint64_t s = at->second + 1; s < msg.sequence.value; ++s)
            unsent[s] = lives_;
        judge(true, "", [] { return std::string(); });
        at->second = msg.sequence.value;
    }
    void on_broker_down() override { ++lives_; }
    void on_end(const std::map<PartitionKey, Sequence>&,
                const std::vector<std::string>& draining) override {
        for (const auto& [where, unsent] : unsent_) {
            if (std::find(draining.begin(), draining.end(), where.group) == draining.end())
                continue;
            judge(unsent.empty(), "what was passed over is delivered later", [&] {
                return name_of(where) + " sequence " + std::to_string(unsent.begin()->first);
            });
        }
    }

  private:
    std::map<GroupPartition, std::uint64_t> last_first_;
    // Passed over by a first delivery, by the broker's life in which that was.
    std::map<GroupPartition, std::map<std::uint64_t, std::uint64_t>> unsent_;
    std::uint64_t lives_ = 0;
    std::map<PartitionKey, std::map<std::uint64_t, std::uint64_t>> digests_;
};

// 5: after healing every committed record was settled for every group.
class AtLeastOnce : public Checker {
  public:
    explicit AtLeastOnce(Violations& violations) : Checker(5, violations) {}
    void on_msg(const MsgSent& msg) override { delivered_[msg.where].insert(msg.sequence.value); }
    void on_group_view(const GroupView& view) override { views_[view.group] = view; }
    void on_end(const std::map<PartitionKey, Sequence>& logs,
                const std::vector<std::string>& draining) override {
        for (const std::string& group : draining) {
            const auto found = views_.find(group);
            judge(found != views_.end(), "a group that was answered exists", [&] { return group; });
            if (found == views_.end()) continue;
            const GroupView& view = found->second;
            for (const Delivery::PartitionState& state : view.partitions) {
                const PartitionKey key{view.topic_id, state.partition};
                const auto log = logs.find(key);
                const Sequence last = log == logs.end() ? Sequence(0) : log->second;
                judge(state.ack_floor == last, "every committed record is settled for every group",
                      [&] {
                          return name_of(GroupPartition{group, key}) + ": ack_floor " +
                                 std::to_string(state.ack_floor.value) + ", last record " +
                                 std::to_string(last.value);
                      });
                const std::uint64_t start = view.start_after[state.partition.value].value;
                const std::set<std::uint64_t>& seen = delivered_[{group, key}];
                for (std::uint64_t s = start + 1; s <= last.value; ++s) {
                    judge(seen.contains(s), "every committed record is delivered at least once",
                          [&] {
                              return name_of(GroupPartition{group, key}) + " sequence " +
                                     std::to_string(s);
                          });
                }
            }
        }
    }

  private:
    std::map<GroupPartition, std::set<std::uint64_t>> delivered_;
    std::map<std::string, GroupView> views_;
};

// 6: after ACK got OK nothing of it is sent to that group.
class AckedStaysAcked : public Checker {
  public:
    explicit AckedStaysAcked(Violations& violations) : Checker(6, violations) {}
    void on_ack_ok(const GroupPartition& where, Sequence sequence) override {
        acked_[where].insert(sequence.value);
    }
    void on_msg(const MsgSent& msg) override {
        const auto found = acked_.find(msg.where);
        judge(found == acked_.end() || !found->second.contains(msg.sequence.value),
              "after ACK got OK a message is never sent to that group again", [&] {
                  return name_of(msg.where) + " sequence " + std::to_string(msg.sequence.value);
              });
    }

  private:
    std::map<GroupPartition, std::set<std::uint64_t>> acked_;
};

// 8: commit_seq, ack_floor, epochs and failures never go back, lives included; a delivery_id is used once.
class NeverBack : public Checker {
  public:
    NeverBack(const WorldView& world, Violations& violations)
        : Checker(8, violations), world_(world) {}
    void on_pub_ok(const PubRequest& request, const wire::PubResult& result) override {
        // What an old leader had committed may be told after the first answer of the new one, by another connection.
        const ConnId teller = world_.durable.size() == 1 ? 0 : request.conn;
        forward(leader_[teller], result.leader_epoch.value, "leader_epoch", "the broker");
        judge(result.commit_seq >= result.sequence,
              "commit_seq covers the sequence it is sent with", [&] {
                  return std::to_string(result.commit_seq.value) + " < " +
                         std::to_string(result.sequence.value);
              });
        if (request.asked.partition == ANY_PARTITION) return;
        // Two connections' answers may pass each other on their way out; one connection's do not.
        forward(answered_commit_[{request.conn, request.asked}], result.commit_seq.value,
                "commit_seq", name_of(request.asked));
    }
    void on_sub_ok(ConnId, const std::string& group, TopicId,
                   const wire::SubResult& result) override {
        rise(membership_[group], result.membership_epoch.value, "membership_epoch", group);
        judge(members_.insert(result.member_id.value).second, "member_id is never reused",
              [&] { return group + " member " + std::to_string(result.member_id.value); });
    }
    void on_msg(const MsgSent& msg) override {
        forward(ownership_[msg.where], msg.ownership_epoch.value, "ownership_epoch",
                name_of(msg.where));
        judge(deliveries_.insert(msg.delivery_id.value).second, "a delivery_id is used once", [&] {
            return name_of(msg.where) + " delivery_id " + std::to_string(msg.delivery_id.value);
        });
        // What an older connection still held may come out after its successor: only the newest delivery is judged.
        Failures& failures = failures_[{msg.where, msg.sequence.value}];
        if (msg.delivery_id.value < failures.newest_delivery) return;
        failures.newest_delivery = msg.delivery_id.value;
        judge(msg.is_last || !failures.was_last, "failures never go down", [&] {
            return name_of(msg.where) + " sequence " + std::to_string(msg.sequence.value) +
                   " was sent as LAST before, and now it is not";
        });
        judge(msg.attempt > failures.nacked, "failures never go down", [&] {
            return name_of(msg.where) + " sequence " + std::to_string(msg.sequence.value) +
                   " is sent as attempt " + std::to_string(msg.attempt) + " after " +
                   std::to_string(failures.nacked) + " NACKs got OK";
        });
        failures.was_last = msg.is_last;
    }
    void on_nack_ok(const GroupPartition& where, Sequence sequence) override {
        ++failures_[{where, sequence.value}].nacked;
    }
    void on_group_view(const GroupView& view) override {
        for (const Delivery::PartitionState& state : view.partitions) {
            const GroupPartition where{view.group, {view.topic_id, state.partition}};
            forward(floor_[where], state.ack_floor.value, "ack_floor", name_of(where));
            forward(commit_[where.key], state.last_seq.value, "commit_seq", name_of(where.key));
        }
    }
    void on_replica_views(const std::vector<ReplicaView>& views) override {
        for (const ReplicaView& view : views) {
            if (!view.is_leader) continue;
            forward(office_[view.broker], view.leader_epoch.value, "leader_epoch",
                    "broker " + std::to_string(view.broker + 1) + " in office");
        }
    }

  private:
    struct Failures {
        std::uint64_t newest_delivery = 0;
        std::uint64_t nacked = 0;
        bool was_last = false;
    };
    void forward(std::uint64_t& last, std::uint64_t now, const char* what,
                 const std::string& whose) {
        judge(now >= last, "commit_seq, ack_floor and epochs never go back", [&] {
            return std::string(what) + " of " + whose + " went from " + std::to_string(last) +
                   " to " + std::to_string(now);
        });
        last = std::max(last, now);
    }
    void rise(std::uint64_t& last, std::uint64_t now, const char* what, const std::string& whose) {
        judge(now > last, "each change of members has an epoch of its own", [&] {
            return std::string(what) + " of " + whose + " went from " + std::to_string(last) +
                   " to " + std::to_string(now);
        });
        last = std::max(last, now);
    }
    const WorldView& world_;
    std::map<ConnId, std::uint64_t> leader_;
    std::map<std::size_t, std::uint64_t> office_;
    std::map<PartitionKey, std::uint64_t> commit_;
    std::map<std::pair<ConnId, PartitionKey>, std::uint64_t> answered_commit_;
    std::map<std::string, std::uint64_t> membership_;
    std::map<GroupPartition, std::uint64_t> ownership_;
    std::map<GroupPartition, std::uint64_t> floor_;
    std::set<std::uint64_t> members_;
    std::set<std::uint64_t> deliveries_;
    std::map<std::pair<GroupPartition, std::uint64_t>, Failures> failures_;
};

// 11: conservation: what was sent is settled or has one place, and what was not sent is still to come.
class Conservation : public Checker {
  public:
    explicit Conservation(Violations& violations) : Checker(11, violations) {}
    void on_group_view(const GroupView& view) override {
        for (const Delivery::PartitionState& state : view.partitions) {
            if (state.next_first == Sequence(0)) continue;  // its ledger was never read
            judge(adds_up(state), "committed = settled + in flight + waiting + ready", [&] {
                const auto text = [](const char* name, std::uint64_t value) {
                    return std::string(" ") + name + " " + std::to_string(value);
                };
                return view.group + " partition " + std::to_string(state.partition.value) + ":" +
                       text("ack_floor", state.ack_floor.value) +
                       text("settled above", state.settled_above_floor) +
                       text("in flight", state.in_flight) + text("waiting", state.waiting_retry) +
                       text("ready", state.ready) + text("unsettled", state.unsettled) +
                       text("first never sent", state.next_first.value) +
                       text("last", state.last_seq.value);
            });
        }
    }

  private:
    static bool adds_up(const Delivery::PartitionState& state) {
        if (state.next_first.value > state.last_seq.value + 1) return false;
        if (state.ack_floor >= state.next_first) return false;
        const std::uint64_t sent_above_floor = state.next_first.value - 1 - state.ack_floor.value;
        // The rest of the unsettled is about to be settled or failed, once its event is synced.
        return state.settled_above_floor + state.unsettled == sent_above_floor &&
               state.in_flight + state.waiting_retry + state.ready <= state.unsettled;
    }
};

// 12: what is in flight stays within the credit that was granted.
class CreditBound : public Checker {
  public:
    explicit CreditBound(Violations& violations) : Checker(12, violations) {}
    void on_credit(ConnId, const GroupPartition& group, std::uint32_t count,
                   std::uint64_t) override {
        if (count != 0) window_[group.group] = count;
    }
    void on_group_view(const GroupView& view) override {
        const auto window = window_.find(view.group);
        if (window == window_.end()) return;
        std::uint64_t in_flight = 0;
        for (const Delivery::PartitionState& state : view.partitions)
            in_flight += state.in_flight;
        judge(in_flight <= window->second, "what is in flight stays within the credit", [&] {
            return view.group + ": " + std::to_string(in_flight) + " of " +
                   std::to_string(window->second);
        });
    }

  private:
    std::map<std::string, std::uint64_t> window_;
};

// 14: every byte sent to a client decodes strictly, and answers come in the order of their requests.
class StrictFrames : public Checker {
  public:
    explicit StrictFrames(Violations& violations) : Checker(14, violations) {}
    void on_broker_frame(ConnId) override {
        judge(true, "", [] { return std::string(); });
    }
    void on_malformed(ConnId conn, const std::string& what) override {
        judge(false, "every byte sent to a client decodes strictly",
              [&] { return "connection " + std::to_string(conn) + ": " + what; });
    }
};

// 15: bad input never changes durable state: every record stems from a well-formed PUB to its topic.
class BadInputHarmless : public Checker {
  public:
    explicit BadInputHarmless(Violations& violations) : Checker(15, violations) {}
    void on_pub(const PubRequest& request) override {
        sent_.insert(std::pair(request.asked.topic_id, request.digest));
    }
    void on_log_view(PartitionKey key, const std::map<std::uint64_t, SeenRecord>& log,
                     const std::vector<SeenRecord>&) override {
        for (const auto& [sequence, record] : log) {
            judge(sent_.contains(std::pair(key.topic_id, record.digest)),
                  "a log holds only what well-formed PUBs brought", [&] {
                      return "partition " + name_of(key) + " sequence " + std::to_string(sequence);
                  });
        }
    }

  private:
    std::set<std::pair<TopicId, std::uint64_t>> sent_;
};

// 18: a topic is gone once its deletion got OK.
class DeletedIsGone : public Checker {
  public:
    explicit DeletedIsGone(Violations& violations) : Checker(18, violations) {}
    void on_topic_deleted(TopicId topic_id) override { deleted_.insert(topic_id); }
    void on_pub(const PubRequest& request) override {
        if (deleted_.contains(request.asked.topic_id))
            late_.insert(std::pair(request.conn, request.digest));
    }
    void on_pub_ok(const PubRequest& request, const wire::PubResult&) override {
        if (!deleted_.contains(request.asked.topic_id)) return;
        judge(!late_.contains(std::pair(request.conn, request.digest)), PROMISE, [&] {
            return "a later PUB to topic " + std::to_string(request.asked.topic_id.value) +
                   " got OK";
        });
    }
    void on_pub_error(const PubRequest& request, std::uint16_t) override {
        if (late_.contains(std::pair(request.conn, request.digest)))
            judge(true, PROMISE, [] { return std::string(); });
    }

  private:
    static constexpr const char* PROMISE =
        "after a topic's deletion got OK nothing is stored in it";
    std::set<TopicId> deleted_;
    std::set<std::pair<ConnId, std::uint64_t>> late_;  // sent after that OK
};

}  // namespace

void Violations::report(int checker, std::string promise, std::string seen) {
    all_.push_back({checker, std::move(promise), std::move(seen), now_()});
}

std::vector<std::unique_ptr<Checker>> make_checkers(const WorldView& world,
                                                    Violations& violations) {
    std::vector<std::unique_ptr<Checker>> checkers;
    checkers.push_back(std::make_unique<AckedDurable>(world, violations));
    checkers.push_back(std::make_unique<AckedKept>(violations));
    checkers.push_back(std::make_unique<NoDuplicates>(violations));
    checkers.push_back(std::make_unique<DeliveryOrder>(violations));
    checkers.push_back(std::make_unique<AtLeastOnce>(violations));
    checkers.push_back(std::make_unique<AckedStaysAcked>(violations));
    checkers.push_back(std::make_unique<NeverBack>(world, violations));
    checkers.push_back(std::make_unique<Conservation>(violations));
    checkers.push_back(std::make_unique<CreditBound>(violations));
    checkers.push_back(std::make_unique<StrictFrames>(violations));
    checkers.push_back(std::make_unique<BadInputHarmless>(violations));
    checkers.push_back(std::make_unique<DeletedIsGone>(violations));
    return checkers;
}

}  // namespace mortar::sim
