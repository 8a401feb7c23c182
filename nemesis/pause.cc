// pause: the process stands still and time goes on (SIGSTOP, a stopped virtual machine, a host that
// swaps); its kernel goes on taking bytes.
#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

class Pause final : public Nemesis {
  public:
    std::string_view name() const override { return "pause"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        beat(parameters, rng, [&](MonoTime at, Duration duration) {
            schedule.push_back({at, "pause", draw_node(parameters, rng), duration, 0});
        });
    }

    bool apply(const FaultScene&, SimNode& node, const Fault& fault) const override {
        if (!node.alive()) return false;
        node.pause(fault.duration);
        return true;
    }
};

}  // namespace

const Nemesis& pause_nemesis() {
    static const Pause PAUSE;
    return PAUSE;
}

}  // namespace mortar::sim
