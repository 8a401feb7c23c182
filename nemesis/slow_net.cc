// slow-net: packets to or from a node take longer, or little fits through (a congested link, a detour), or small ones pass and
// bulk crawls (a gray link: full-sized packets are lost).
#include <algorithm>

#include "nemesis/paths.h"

namespace mortar::sim {
namespace {

constexpr std::int64_t LATENCY_US_MAX = 300'000;
constexpr std::int64_t BYTES_PER_MS_MIN = 5;
constexpr std::int64_t BYTES_PER_MS_MAX = 2'000;
constexpr std::int64_t CRAWLS_ABOVE_BYTES_MIN = 500;
constexpr std::int64_t CRAWLS_ABOVE_BYTES_MAX = 9'000;

class SlowNet final : public Nemesis {
  public:
    std::string_view name() const override { return "slow-net"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        beat(parameters, rng, [&](MonoTime at, Duration duration) {
            std::string node = draw_node(parameters, rng);
            const std::uint64_t draw = rng.next();
            schedule.push_back(
                {at, "slow-net", std::move(node), std::min(duration, parameters.end - at), draw});
        });
    }

    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override {
        Rng rng(fault.draw);
        std::vector<SimNode*> others = other_brokers(scene, node);
        const bool is_client = others.size() == scene.control.brokers.size();
        if (!is_client && (others.empty() || rng.one_in(2))) {
            for (SimNode* client : clients_of(scene))
                others.push_back(client);
        } else if (!others.empty() && rng.one_in(2)) {
            others = {others[static_cast<std::size_t>(rng.below(others.size()))]};
        }
        Ways ways;
        add_ways(ways, node, others, static_cast<Direction>(rng.below(3)));
        if (ways.empty()) return false;
        break_ways(scene.world, ways, draw_fault(rng), fault.duration);
        return true;
    }

  private:
    static PathFault draw_fault(Rng& rng) {
        PathFault fault;
        const std::uint64_t kind = rng.below(4);
        if (kind == 0 || kind == 3)
            fault.latency = microseconds(rng.between(1'000, LATENCY_US_MAX));
        if (kind == 1 || kind == 3)
            fault.bytes_per_ms = rng.between(BYTES_PER_MS_MIN, BYTES_PER_MS_MAX);
        if (kind == 2) {
            fault.crawls_above_bytes = static_cast<std::size_t>(
                rng.between(CRAWLS_ABOVE_BYTES_MIN, CRAWLS_ABOVE_BYTES_MAX));
        }
        return fault;
    }
};

}  // namespace

const Nemesis& slow_net_nemesis() {
    static const SlowNet SLOW_NET;
    return SLOW_NET;
}

}  // namespace mortar::sim
