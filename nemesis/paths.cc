#include "nemesis/paths.h"

#include <algorithm>

namespace mortar::sim {

void add_ways(Ways& ways, SimNode& node, const std::vector<SimNode*>& others, Direction direction) {
    for (SimNode* other : others) {
        if (direction != Direction::IN) ways.emplace_back(&node, other);
        if (direction != Direction::OUT) ways.emplace_back(other, &node);
    }
}

std::vector<SimNode*> other_brokers(const FaultScene& scene, const SimNode& node) {
    std::vector<SimNode*> others = scene.control.brokers;
    std::erase(others, &node);
    return others;
}

std::vector<SimNode*> clients_of(const FaultScene& scene) {
    const std::vector<SimNode*>& brokers = scene.control.brokers;
    std::vector<SimNode*> clients;
    for (const auto& node : scene.world.nodes()) {
        if (std::find(brokers.begin(), brokers.end(), node.get()) == brokers.end())
            clients.push_back(node.get());
    }
    return clients;
}

void break_ways(SimWorld& world, const Ways& ways, const PathFault& fault, Duration duration) {
    std::vector<PathFaultId> broken;
    for (const auto& [from, to] : ways)
        broken.push_back(world.network().break_path(*from, *to, fault));
    world.after(duration, [&world, broken] {
        for (const PathFaultId id : broken)
            world.network().heal_path(id);
    });
}

}  // namespace mortar::sim
