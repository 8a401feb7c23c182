// consumption: members of one group that take messages and acknowledge each, on a loop and a thread of their own.
// Shape:    the client library's consumers; each has so many messages in hand at once, as if so many workers did something
//           with them. A message counts when its ACK was answered with OK.
// Owns:     its thread. Results are read after stop.
// Errors:   start: those of RealEnv. stop: the first error that ended a consumer for good.
// Source:   issue 3 (mortarmq-bench), contract D1.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/client/consumer.h"
#include "io-real/real_env.h"
#include "tools/bench/cluster.h"
#include "tools/bench/disk_probe.h"

namespace mortar::bench {

inline constexpr std::size_t CONSUMERS_MAX = 10;  // members of a group, contract G1

struct ConsumptionPlan {
    Cluster cluster;
    std::string topic;
    std::string group;
    std::size_t consumers = 1;
    std::size_t outstanding = 1;
    wire::StartPolicy start_policy = wire::StartPolicy::EARLIEST;
    std::uint64_t run_id = 0;  // whose stamps tell an end-to-end latency
};

struct Consumed {
    Round total;
    Histogram ack;         // from the ACK to its OK
    Histogram end_to_end;  // from when it was meant to be sent until it was in hand
    std::map<std::uint16_t, std::uint64_t> errors;  // of ACKs, by code
    std::uint64_t redelivered = 0;
};

class Consumption {
  public:
    static Result<std::unique_ptr<Consumption>> start(ConsumptionPlan plan);
    ~Consumption();
    Consumption(const Consumption&) = delete;
    Consumption& operator=(const Consumption&) = delete;

    // What was sent, or without stamps: taken in hand, before that moment does not count.
    void count_from(std::int64_t from_ns) { count_from_ns_ = from_ns; }
    // All so far, and those that count.
    std::uint64_t acked_count() const { return acked_count_; }
    std::uint64_t counted_count() const { return counted_count_; }
    // Of all consumers: their first SUB was answered.
    bool is_subscribed() const { return subscribed_count_ >= plan_.consumers; }
    bool has_failed() const { return has_failed_; }
    // Leaves the group, and ends.
    Result<Consumed> stop();

  private:
    explicit Consumption(ConsumptionPlan plan) : plan_(std::move(plan)) {}
    void run_member(Fiber& fiber);
    void work(Fiber& fiber, client::Consumer& consumer);

    ConsumptionPlan plan_;
    std::unique_ptr<RealEnv> real_;
    std::thread thread_;
    std::atomic<std::int64_t> count_from_ns_ = INT64_MAX;
    std::atomic<std::uint64_t> acked_count_ = 0;
    std::atomic<std::uint64_t> counted_count_ = 0;
    std::atomic<std::size_t> subscribed_count_ = 0;
    std::atomic<bool> stopping_ = false;
    std::atomic<bool> has_failed_ = false;
    // By the thread, until it was joined.
    Consumed consumed_;
    std::int64_t last_ack_ns_ = 0;
    std::optional<Error> failed_;
};

}  // namespace mortar::bench
