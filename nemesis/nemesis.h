// nemesis: the fault families. Each plans its faults of a run from its own stream and knows how to
// make them happen.
// Shape:     plan_faults() gives a schedule sorted by time; FaultRunner applies one, counts, and
//            brings nodes back.
// Invariant: a schedule is a function of seed, families and parameters; taking a family out leaves
//            the others as they are.
// Errors:    parse_families: INVALID_ARGUMENT naming the families that exist.
// Source:    design 6 (nemeses, swarm).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/env/rng.h"
#include "io-sim/node.h"
#include "nemesis/fault.h"

namespace mortar::sim {

struct FaultParameters {
    // No fault begins outside of this span, and those that last are over at its end. What comes after it is for healing.
    MonoTime begin;
    MonoTime end;
    std::vector<std::string> brokers;
    std::vector<std::string> clients;  // struck less often; may be empty
    // The one broker whose disk may lose or alter what it had synced; empty: none may. What the others have synced
    // is then enough to keep every promise.
    std::string victim = {};
};

// What a fault may use, and whom it tells.
struct FaultControl {
    // The node has just died: its fibers are gone, the program drops what it knew of them.
    std::function<void(SimNode&)> on_down = nullptr;
    // The node lives again: the program spawns its first fiber.
    std::function<void(SimNode&)> on_up = nullptr;
    // Who leads now; nullptr when nobody does.
    std::function<SimNode*()> leader = nullptr;
    // SIGTERM and a new process; nothing when it is down.
    std::function<void(SimNode&)> restart = nullptr;
    // A file of the node holds other bytes than were written.
    std::function<void(SimNode&, const std::string& path)> on_rot = nullptr;
    // The dead node's disk is empty: what an operator installs must be installed again.
    std::function<void(SimNode&)> on_wiped = nullptr;
    std::vector<SimNode*> brokers = {};
};

struct FaultScene {
    SimWorld& world;
    const FaultControl& control;
};

class Nemesis {
  public:
    virtual ~Nemesis() = default;
    virtual std::string_view name() const = 0;
    // Appends this family's faults.
    virtual void plan(const FaultParameters& parameters, Rng& rng,
                      std::vector<Fault>& schedule) const = 0;
    // False when there was nothing to break: the node is down already, no connection.
    virtual bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const = 0;

  protected:
    // How often and how long this run's faults are: rare and long, or frequent and short.
    struct Rhythm {
        Duration gap_mean;
        Duration duration_max;
    };
    static Rhythm draw_rhythm(Rng& rng);
    // A client now and then, else a broker; of several brokers often the one that leads.
    static std::string draw_node(const FaultParameters& parameters, Rng& rng);
    static std::string draw_broker(const FaultParameters& parameters, Rng& rng);
    // Calls strike(at, duration) along the span.
    static void beat(const FaultParameters& parameters, Rng& rng,
                     const std::function<void(MonoTime at, Duration duration)>& strike);
};

// One a file: nemesis/<name>.cc.
const Nemesis& kill_nemesis();
const Nemesis& power_nemesis();
const Nemesis& torn_nemesis();
const Nemesis& reset_nemesis();
const Nemesis& pause_nemesis();
const Nemesis& partition_nemesis();
const Nemesis& clock_nemesis();
const Nemesis& slow_disk_nemesis();
const Nemesis& fsync_fail_nemesis();
const Nemesis& disk_full_nemesis();
const Nemesis& bitrot_nemesis();
const Nemesis& slow_net_nemesis();
const Nemesis& rolling_nemesis();
// By name only, never by swarm or all.
const Nemesis& wild_clock_nemesis();
const Nemesis& wipe_nemesis();

// In the order of the documents. With one broker: kill, power, torn, pause, reset; what else there is asks for a second
// copy, or has one broker wait.
const std::vector<const Nemesis*>& swarm_nemeses(std::size_t broker_count);
const std::vector<const Nemesis*>& all_nemeses();
const Nemesis* find_nemesis(std::string_view name);

// "none", "swarm" (a non-empty subset drawn from the seed), "all" (that swarm may draw), or names joined by commas.
Result<std::vector<const Nemesis*>> parse_families(std::string_view text, std::uint64_t seed,
                                                   std::size_t broker_count = 1);
std::string format_families(const std::vector<const Nemesis*>& families);

std::vector<Fault> plan_faults(const std::vector<const Nemesis*>& families, std::uint64_t seed,
                               const FaultParameters& parameters);

class FaultRunner {
  public:
    using Control = FaultControl;
    // Must live as long as the world runs.
    FaultRunner(SimWorld& world, Control control) : world_(world), control_(std::move(control)) {}

    void schedule(const std::vector<Fault>& faults);
    // Now, outside of any fiber.
    void apply(const Fault& fault);
    // Also for a node that the program stopped itself: it comes back after delay.
    void bring_back(SimNode& node, Duration delay);

    // By family, of those that found something to break.
    const std::map<std::string, std::uint64_t>& fired() const { return fired_; }
    std::uint64_t fired_count() const;
    const std::vector<Fault>& history() const { return history_; }

  private:
    void restart_if_due(SimNode& node);

    SimWorld& world_;
    Control control_;
    std::map<std::string, std::uint64_t> fired_;
    std::map<std::string, MonoTime> back_at_;  // by node, while it is down
    std::vector<Fault> history_;
};

}  // namespace mortar::sim
