// kill: the process dies at once (kill -9, a failed assertion, the OOM killer); the machine and its
// page cache live on.
#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

// A second kill soon after the restart meets the node in its recovery.
constexpr std::uint64_t AGAIN_ONE_IN = 4;
constexpr std::int64_t AGAIN_WITHIN_US = 30'000;

class Kill final : public Nemesis {
  public:
    std::string_view name() const override { return "kill"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        beat(parameters, rng, [&](MonoTime at, Duration duration) {
            const std::string node = draw_node(parameters, rng);
            schedule.push_back({at, "kill", node, duration, 0});
            if (!rng.one_in(AGAIN_ONE_IN)) return;
            const MonoTime again = at + duration + microseconds(rng.between(1, AGAIN_WITHIN_US));
            if (again < parameters.end) schedule.push_back({again, "kill", node, duration, 0});
        });
    }

    bool apply(const FaultScene&, SimNode& node, const Fault&) const override {
        if (!node.alive()) return false;
        node.kill();
        return true;
    }
};

}  // namespace

const Nemesis& kill_nemesis() {
    static const Kill KILL;
    return KILL;
}

}  // namespace mortar::sim
