// power: the machine loses its power; of what was not synced any subset is on the disk afterwards,
// sector by sector.
#include "nemesis/power.h"

namespace mortar::sim {

void Power::plan(const FaultParameters& parameters, Rng& rng, std::vector<Fault>& schedule) const {
    beat(parameters, rng, [&](MonoTime at, Duration duration) {
        const std::string node = draw_node(parameters, rng);
        const std::uint64_t draw = rng.next();
        schedule.push_back({at, std::string(name()), node, duration, draw});
    });
}

bool Power::apply(const FaultScene&, SimNode& node, const Fault& fault) const {
    // A machine whose process is dead can still lose what its page cache holds; one without power
    // has nothing to lose.
    if (!node.powered()) return false;
    node.power_loss(PowerImage::random(fault.draw, is_torn_));
    return true;
}

const Nemesis& power_nemesis() {
    static const Power POWER("power", false);
    return POWER;
}

}  // namespace mortar::sim
