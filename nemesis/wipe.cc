// wipe: a broker's machine is gone and comes back with an empty disk: a replaced volume, a new machine under the old name.
// Shape:  only the run's victim, so that what the other brokers synced is good; once or twice a run.
#include <algorithm>

#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

constexpr std::size_t STRIKES_MAX = 2;
// Nobody replaces a disk in less.
constexpr std::int64_t AWAY_MS_MIN = 500;
constexpr std::int64_t AWAY_MS_MAX = 4'000;

class Wipe final : public Nemesis {
  public:
    std::string_view name() const override { return "wipe"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        if (parameters.victim.empty()) return;
        std::size_t strikes = 0;
        beat(parameters, rng, [&](MonoTime at, Duration) {
            const Duration away = milliseconds(rng.between(AWAY_MS_MIN, AWAY_MS_MAX));
            if (++strikes <= STRIKES_MAX)
                schedule.push_back({at, "wipe", parameters.victim, away, 0});
        });
    }

    bool apply(const FaultScene& scene, SimNode& node, const Fault&) const override {
        if (!node.powered()) return false;
        node.power_loss({});
        // Handles that objects outside of the node's fibers hold are those of a dead life.
        if (scene.control.on_wiped) scene.control.on_wiped(node);
        node.disk().wipe();
        return true;
    }
};

}  // namespace

const Nemesis& wipe_nemesis() {
    static const Wipe WIPE;
    return WIPE;
}

}  // namespace mortar::sim
