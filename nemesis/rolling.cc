// rolling: an operator restarts every broker in turn, in good order, as for an update.
// Shape:  a fault begins at its node; its duration is the time from one restart to the next.
#include <algorithm>

#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

constexpr std::int64_t STEP_MS_MIN = 200;
constexpr std::int64_t STEP_MS_MAX = 5'000;
constexpr std::int64_t PAUSE_MS_MAX = 12'000;

class Rolling final : public Nemesis {
  public:
    std::string_view name() const override { return "rolling"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        MonoTime at = parameters.begin;
        while (true) {
            at = at + milliseconds(rng.between(0, PAUSE_MS_MAX));
            const Duration step = milliseconds(rng.between(STEP_MS_MIN, STEP_MS_MAX));
            const auto& brokers = parameters.brokers;
            if (at + step * static_cast<std::int64_t>(brokers.size()) >= parameters.end) return;
            const std::string& first = brokers[static_cast<std::size_t>(rng.below(brokers.size()))];
            schedule.push_back({at, "rolling", first, step, 0});
            at = at + step * static_cast<std::int64_t>(brokers.size());
        }
    }

    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override {
        const std::vector<SimNode*>& brokers = scene.control.brokers;
        const auto first = std::find(brokers.begin(), brokers.end(), &node);
        if (first == brokers.end() || !scene.control.restart) return false;
        const auto begin = static_cast<std::size_t>(first - brokers.begin());
        for (std::size_t i = 0; i < brokers.size(); ++i) {
            SimNode& next = *brokers[(begin + i) % brokers.size()];
            scene.world.after(fault.duration * static_cast<std::int64_t>(i),
                              [restart = scene.control.restart, &next] { restart(next); });
        }
        return true;
    }
};

}  // namespace

const Nemesis& rolling_nemesis() {
    static const Rolling ROLLING;
    return ROLLING;
}

}  // namespace mortar::sim
