// reset: a connection breaks in the middle of whatever is on it (a rebooted router, an idle timeout
// in a NAT, a cable); now and then nobody is told, and both ends keep a connection that carries
// nothing.
#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

constexpr std::uint64_t SILENT_ONE_IN = 8;

class Reset final : public Nemesis {
  public:
    std::string_view name() const override { return "reset"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        beat(parameters, rng, [&](MonoTime at, Duration) {
            const std::string node = draw_node(parameters, rng);
            const std::uint64_t draw = rng.next();
            schedule.push_back({at, "reset", node, Duration{}, draw});
        });
    }

    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override {
        const std::vector<std::uint64_t> connections =
            scene.world.network().connections(node.name());
        if (connections.empty()) return false;
        Rng rng(fault.draw);
        const std::uint64_t chosen =
            connections[static_cast<std::size_t>(rng.below(connections.size()))];
        if (rng.one_in(SILENT_ONE_IN)) {
            scene.world.network().silence(chosen);
        } else {
            scene.world.network().reset(chosen, rng);
        }
        return true;
    }
};

}  // namespace

const Nemesis& reset_nemesis() {
    static const Reset RESET;
    return RESET;
}

}  // namespace mortar::sim
