// world: true time, the event queue and the choice of the next runnable fiber over all nodes.
// Shape:     while a fiber is runnable, time stands still and a seeded draw picks which one runs;
//            else time jumps to the next event or timer. No syscalls, nothing real is waited for.
// Units:     now() is true time since the start of the run; nodes see it through their own clocks.
// Owns:      its nodes and the network. The StackPool must outlive it.
// Invariant: one seed gives one run: every draw comes from a stream named by its owner, and neither
//            an address nor a hash order reaches a decision or the trace hash.
// Source:    design 6 (world, speed).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/env/env.h"

namespace mortar::sim {

class SimNetwork;
class SimNode;

// A seed for the stream that these names stand for; stable over builds and platforms.
std::uint64_t stream_seed(std::uint64_t seed, std::string_view owner, std::string_view name);

// Receives its events at their time; must live until the last of them.
class EventTarget {
  public:
    virtual void on_event(std::uint64_t argument) = 0;

  protected:
    ~EventTarget() = default;
};

class SimWorld {
  public:
    SimWorld(std::uint64_t seed, StackPool& stacks);
    ~SimWorld();  // kills all nodes
    SimWorld(const SimWorld&) = delete;
    SimWorld& operator=(const SimWorld&) = delete;

    // The name is the node's host name on the network.
    SimNode& add_node(std::string name);
    SimNode* find_node(std::string_view name) const;
    const std::vector<std::unique_ptr<SimNode>>& nodes() const { return nodes_; }
    SimNetwork& network() { return *network_; }

    std::uint64_t seed() const { return seed_; }
    MonoTime now() const { return now_; }
    // For consumers outside the nodes: a nemesis, a workload, a checker.
    Rng stream(std::string_view owner, std::string_view name = {}) const;

    // Runs one fiber until it parks, one event, or the timers of one instant. False when nothing is
    // left up to limit.
    bool step(MonoTime limit = NEVER);
    // Ends at exactly this time, even when nothing happens.
    void run_until(MonoTime time);
    void run_for(Duration duration) { run_until(now_ + duration); }

    // Runs action at this time (at once when it is past), outside any fiber.
    void at(MonoTime when, std::function<void()> action);
    void after(Duration delay, std::function<void()> action) {
        at(now_ + delay, std::move(action));
    }
    // The same without an allocation.
    void schedule(MonoTime when, EventTarget& target, std::uint64_t argument);

    std::uint64_t trace_hash() const { return trace_hash_; }
    std::uint64_t step_count() const { return step_count_; }
    void trace(std::uint64_t word) {
        trace_hash_ = (trace_hash_ ^ word) * 0x9e3779b97f4a7c15u;
        trace_hash_ ^= trace_hash_ >> 29;
    }
    // Gets every log line of every node; without a sink logging is off.
    using LogSink = std::function<void(const SimNode&, LogLevel, std::string_view line)>;
    void set_log_sink(LogSink sink) { log_sink_ = std::move(sink); }
    const LogSink& log_sink() const { return log_sink_; }

  private:
    friend class SimNode;
    struct Event {
        MonoTime when;
        std::uint64_t order;
        EventTarget* target;
        std::uint64_t argument;
    };
    struct Runnable {
        SimNode* node;
        FiberId fiber;
    };
    class Actions;

    static bool later(const Event& a, const Event& b);
    void push_runnable(SimNode& node, FiberId fiber) { runnable_.push_back({&node, fiber}); }
    // Takes the node's entries out, in order.
    std::vector<FiberId> take_runnable(const SimNode& node);
    void run_fiber();
    void run_event();
    void fire_timers();
    void finish_step();
    MonoTime next_timer() const;

    std::uint64_t seed_;
    StackPool& stacks_;
    MonoTime now_;
    Rng scheduler_rng_;
    std::vector<Event> events_;  // heap by (when, order)
    std::uint64_t next_order_ = 0;
    std::vector<Runnable> runnable_;
    std::unique_ptr<Actions> actions_;
    std::unique_ptr<SimNetwork> network_;
    std::vector<std::unique_ptr<SimNode>> nodes_;
    std::uint64_t trace_hash_ = 0;
    std::uint64_t step_count_ = 0;
    std::uint64_t steps_this_instant_ = 0;
    LogSink log_sink_;
};

}  // namespace mortar::sim
