// clock: a node's monotonic clock starts to run too fast or too slow (temperature, a bad crystal, a hypervisor), or its wall
// clock is set. clock stays within the margin that leases allow for; wild-clock goes beyond it on purpose: then freshness may
// suffer, and never a record that was acknowledged.
#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

// Leases allow one clock to run 5 % slower than another. Crystals are within 100 ppm and NTP slews by 500, but what
// takes too little off a lease shows only near the margin.
constexpr std::int64_t WITHIN_PPM = 20'000;
constexpr std::int64_t WILD_PPM = 200'000;
constexpr std::uint64_t WALL_ONE_IN = 3;
constexpr std::int64_t WALL_JUMP_S_MAX = 24 * 3600;

class ClockNemesis final : public Nemesis {
  public:
    ClockNemesis(std::string_view name, std::int64_t drift_ppm_max)
        : name_(name), drift_ppm_max_(drift_ppm_max) {}
    std::string_view name() const override { return name_; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        beat(parameters, rng, [&](MonoTime at, Duration) {
            std::string node = draw_node(parameters, rng);
            const std::uint64_t draw = rng.next();
            schedule.push_back({at, std::string(name_), std::move(node), Duration{}, draw});
        });
    }

    bool apply(const FaultScene&, SimNode& node, const Fault& fault) const override {
        Rng rng(fault.draw);
        if (rng.one_in(WALL_ONE_IN)) {
            node.clock().set_wall_offset(
                milliseconds(rng.between(-WALL_JUMP_S_MAX * 1000, WALL_JUMP_S_MAX * 1000)));
        } else {
            node.clock().set_drift_ppm(rng.between(-drift_ppm_max_, drift_ppm_max_));
        }
        return true;
    }

  private:
    std::string_view name_;
    std::int64_t drift_ppm_max_;
};

}  // namespace

const Nemesis& clock_nemesis() {
    static const ClockNemesis CLOCK("clock", WITHIN_PPM);
    return CLOCK;
}

const Nemesis& wild_clock_nemesis() {
    static const ClockNemesis WILD("wild-clock", WILD_PPM);
    return WILD;
}

}  // namespace mortar::sim
