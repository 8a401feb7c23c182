#include "nemesis/disk_fault.h"

#include <algorithm>

namespace mortar::sim {

// Faults of one family do not overlap, so that each finds the knob as it is meant to be.
void DiskNemesis::plan(const FaultParameters& parameters, Rng& rng,
                       std::vector<Fault>& schedule) const {
    beat(parameters, rng, [&](MonoTime at, Duration duration) {
        std::string node = draw_broker(parameters, rng);
        const std::uint64_t draw = rng.next();
        schedule.push_back({at, std::string(name_), std::move(node),
                            std::min(duration, parameters.end - at), draw});
    });
}

bool DiskNemesis::apply(const FaultScene& scene, SimNode& node, const Fault& fault) const {
    Rng rng(fault.draw);
    turn(node.disk(), scene.world.now() + fault.duration, rng);
    scene.world.after(fault.duration, [this, &node] { turn_back(node.disk()); });
    return true;
}

}  // namespace mortar::sim
