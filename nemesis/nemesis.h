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
    // No fault begins outside of this span. What comes after it is for healing.
    MonoTime begin;
    MonoTime end;
    std::vector<std::string> brokers;
    std::vector<std::string> clients;  // struck less often; may be empty
};

class Nemesis {
  public:
    virtual ~Nemesis() = default;
    virtual std::string_view name() const = 0;
    // Appends this family's faults.
    virtual void plan(const FaultParameters& parameters, Rng& rng,
                      std::vector<Fault>& schedule) const = 0;
    // False when there was nothing to break: the node is down already, no connection.
    virtual bool apply(SimWorld& world, SimNode& node, const Fault& fault) const = 0;

  protected:
    // How often and how long this run's faults are: rare and long, or frequent and short.
    struct Rhythm {
        Duration gap_mean;
        Duration duration_max;
    };
    static Rhythm draw_rhythm(Rng& rng);
    static const std::string& draw_node(const FaultParameters& parameters, Rng& rng);
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

// In the order of the documents: kill, power, torn, pause, reset.
const std::vector<const Nemesis*>& all_nemeses();
const Nemesis* find_nemesis(std::string_view name);

// "none", "swarm" (a non-empty subset drawn from the seed), "all", or names joined by commas.
Result<std::vector<const Nemesis*>> parse_families(std::string_view text, std::uint64_t seed);
std::string format_families(const std::vector<const Nemesis*>& families);

std::vector<Fault> plan_faults(const std::vector<const Nemesis*>& families, std::uint64_t seed,
                               const FaultParameters& parameters);

class FaultRunner {
  public:
    struct Control {
        // The node has just died: its fibers are gone, the program drops what it knew of them.
        std::function<void(SimNode&)> on_down;
        // The node lives again: the program spawns its first fiber.
        std::function<void(SimNode&)> on_up;
    };
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
