// partition: no packet gets from some nodes to others for a while, one way or both: a switch that dies, a wrong filter rule,
// a half-broken cable, a port that flaps.
// Shape:  the draw of a fault picks its shape: its node cut off from the other brokers (both ways, or one), from
//         everybody, from the clients; a bridge, where only its node sees both others; all of it steady or flapping.
//         A client is cut off from one broker or from all.
#include <algorithm>

#include "nemesis/paths.h"

namespace mortar::sim {
namespace {

// Longer than a sender waits for an acknowledgement: connections break, and not only stall.
constexpr std::uint64_t LONG_ONE_IN = 5;
constexpr std::int64_t LONG_MS_MIN = 5'000;
constexpr std::int64_t LONG_MS_MAX = 25'000;
constexpr std::uint64_t FLAPS_ONE_IN = 4;
constexpr std::int64_t FLAP_MS_MAX = 800;
constexpr PathFault BLOCKED{true, {}, 0, 0};

class Partition final : public Nemesis {
  public:
    std::string_view name() const override { return "partition"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        beat(parameters, rng, [&](MonoTime at, Duration duration) {
            std::string node = draw_node(parameters, rng);
            if (rng.one_in(LONG_ONE_IN))
                duration = milliseconds(rng.between(LONG_MS_MIN, LONG_MS_MAX));
            const std::uint64_t draw = rng.next();
            schedule.push_back(
                {at, "partition", std::move(node), std::min(duration, parameters.end - at), draw});
        });
    }

    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override {
        Rng rng(fault.draw);
        const Ways ways = draw_ways(scene, node, rng);
        if (ways.empty()) return false;
        if (rng.one_in(FLAPS_ONE_IN)) {
            flap(scene.world, ways, scene.world.now() + fault.duration, rng);
        } else {
            break_ways(scene.world, ways, BLOCKED, fault.duration);
        }
        return true;
    }

  private:
    static Ways draw_ways(const FaultScene& scene, SimNode& node, Rng& rng) {
        Ways ways;
        const std::vector<SimNode*> others = other_brokers(scene, node);
        const bool is_client = others.size() == scene.control.brokers.size();
        const auto direction = static_cast<Direction>(rng.below(3));
        if (is_client && !others.empty() && rng.one_in(2)) {
            const auto index = static_cast<std::size_t>(rng.below(others.size()));
            add_ways(ways, node, {others[index]}, direction);
            return ways;
        }
        if (is_client) {
            add_ways(ways, node, others, direction);
            return ways;
        }
        switch (rng.below(5)) {
            case 0:  // the classic one: a minority of one, which clients may still reach
                add_ways(ways, node, others, Direction::BOTH);
                break;
            case 1:
                add_ways(ways, node, others, direction);
                break;
            case 2:
                add_ways(ways, node, others, direction);
                add_ways(ways, node, clients_of(scene), direction);
                break;
            case 3:
                add_ways(ways, node, clients_of(scene), direction);
                break;
            default:  // a bridge: a ring with one side open
                for (std::size_t i = 1; i < others.size(); ++i)
                    add_ways(ways, *others[0], {others[i]}, direction);
        }
        return ways;
    }

    // On and off until the end.
    static void flap(SimWorld& world, const Ways& ways, MonoTime end, Rng rng) {
        const Duration rest = end - world.now();
        if (rest <= Duration{}) return;
        const Duration down = std::min(rest, milliseconds(rng.between(1, FLAP_MS_MAX)));
        break_ways(world, ways, BLOCKED, down);
        const Duration up = milliseconds(rng.between(1, FLAP_MS_MAX));
        world.after(down + up, [&world, ways, end, rng] { flap(world, ways, end, rng); });
    }
};

}  // namespace

const Nemesis& partition_nemesis() {
    static const Partition PARTITION;
    return PARTITION;
}

}  // namespace mortar::sim
