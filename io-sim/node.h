// node: one simulated machine: its clock, fibers, disk, network door, random streams and log.
// Shape:  env() is what core gets; the rest is the god's side. The node starts alive, in its first
//         life.
// Owns:   all six parts; they live as long as the world, over all lives of the node.
// Kill:   unwinds all fibers; connections die, locks and descriptors are free, the disk keeps its
//         page cache.
// Power:  kill, and the disk loses what was not synced; the machine is silent until restart().
// Pause:  fibers do not run and timers do not fire until it ends; time, network buffers and disk go
//         on.
// Use:    kill and power_loss are called outside the node's own fibers; from inside use
//         stop_after_step().
// Source: design 6 (world, clocks).
#pragma once

#include <map>

#include "io-sim/sim_disk.h"
#include "io-sim/sim_net.h"
#include "io-sim/world.h"

namespace mortar::sim {

// Monotonic = true time at its own rate (drift) from a start that a reboot draws anew; it never jumps.
// Wall = true time + an offset, which may jump.
class SimClock : public Clock {
  public:
    explicit SimClock(const SimWorld& world) : world_(world) {}
    MonoTime now() const override { return from_true(world_.now()); }
    std::uint64_t wall_unix_ms() const override;

    MonoTime from_true(MonoTime time) const;
    // The first moment of true time at which this clock shows local or more, at the present rate.
    MonoTime to_true(MonoTime local) const;
    // Shows local now, and runs right: what a boot does.
    void start_at(MonoTime local);
    // From now on so much too fast; -DRIFT_PPM_MAX .. DRIFT_PPM_MAX.
    void set_drift_ppm(std::int64_t drift_ppm);
    std::int64_t drift_ppm() const { return drift_ppm_; }
    void set_wall_offset(Duration offset) { wall_offset_ = offset; }

    static constexpr std::int64_t DRIFT_PPM_MAX = 500'000;

  private:
    const SimWorld& world_;
    // The line on which the clock runs: at base_true_ it showed base_local_.
    MonoTime base_true_;
    MonoTime base_local_;
    std::int64_t drift_ppm_ = 0;
    Duration wall_offset_;
};

class SimScheduler : public FiberScheduler {
  public:
    SimScheduler(SimNode& node, StackPool& stacks) : FiberScheduler(stacks), node_(node) {}
    FiberId spawn(std::string name, FiberBody body) override;

    using FiberScheduler::fire_timers;
    using FiberScheduler::next_deadline;
    using FiberScheduler::run;

  protected:
    void make_runnable(FiberId id) override;

  private:
    SimNode& node_;
};

// A stream for each (node, life, name); asking twice for one name gives two streams, as the real
// world would.
class SimRngSource : public RngSource {
  public:
    explicit SimRngSource(const SimNode& node) : node_(node) {}
    Rng stream(std::string_view name) override;

  private:
    friend class SimNode;
    const SimNode& node_;
    std::map<std::string, std::uint64_t, std::less<>> times_asked_;
};

class SimLog : public Log {
  public:
    explicit SimLog(const SimNode& node) : node_(node) {}
    bool enabled(LogLevel level) const override;
    void write(LogLevel level, std::string_view event,
               std::initializer_list<LogField> fields) override;

  private:
    const SimNode& node_;
};

class SimNode {
  public:
    SimNode(SimWorld& world, StackPool& stacks, std::string name, std::uint32_t index);
    ~SimNode() = default;
    SimNode(const SimNode&) = delete;
    SimNode& operator=(const SimNode&) = delete;

    Env env() { return {clock_, scheduler_, net_, disk_, rng_, log_}; }
    SimWorld& world() const { return world_; }
    const std::string& name() const { return name_; }
    std::uint32_t index() const { return index_; }
    SimClock& clock() { return clock_; }
    SimScheduler& scheduler() { return scheduler_; }
    SimNet& net() { return net_; }
    SimDisk& disk() { return disk_; }

    bool alive() const { return alive_; }
    // The kernel answers: false from a power loss until restart().
    bool powered() const { return powered_; }
    bool paused() const { return paused_; }
    // Counts from 1; restart() begins the next.
    std::uint64_t life() const { return life_; }

    void kill();
    void power_loss(const PowerImage& image);
    // Only when not alive. The caller then spawns the node's first fiber.
    void restart();
    void pause(Duration duration);

    // For hooks that run inside a fiber: the fiber goes no further than its current disk or network
    // call, and stop (which kills the node) runs as soon as the fiber is left, before anything else
    // happens in the world.
    void stop_after_step(std::function<void()> stop);
    bool stopping() const { return stop_ != nullptr; }
    // Called by disk and network at the end of such a call: never returns when the node is
    // stopping.
    void hold_if_stopping(Fiber& fiber) const;

  private:
    friend class SimWorld;
    friend class SimScheduler;

    void enqueue(FiberId id);
    void run_fiber(FiberId id);
    MonoTime next_timer() const;  // true time; NEVER while paused
    void fire_timers();
    void end_life(Death death);
    void resume_if_due();

    SimWorld& world_;
    std::string name_;
    std::uint32_t index_;
    Rng clock_rng_;
    SimClock clock_;
    SimScheduler scheduler_;
    SimNet net_;
    SimDisk disk_;
    SimRngSource rng_;
    SimLog log_;
    bool alive_ = true;
    bool powered_ = true;
    bool paused_ = false;
    MonoTime paused_until_;
    std::vector<FiberId> held_;  // runnable, but the node is paused
    std::uint64_t life_ = 1;
    std::function<void()> stop_;
};

}  // namespace mortar::sim
