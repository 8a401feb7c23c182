// paths: what the families partition and slow-net share: faults of the ways between nodes, undone after a while.
#pragma once

#include <utility>
#include <vector>

#include "nemesis/nemesis.h"

namespace mortar::sim {

using Ways = std::vector<std::pair<SimNode*, SimNode*>>;  // from, to

enum class Direction : std::uint8_t { BOTH, OUT, IN };

// Between node and each of others, as seen from node.
void add_ways(Ways& ways, SimNode& node, const std::vector<SimNode*>& others, Direction direction);
// Brokers other than node; nodes that are no brokers.
std::vector<SimNode*> other_brokers(const FaultScene& scene, const SimNode& node);
std::vector<SimNode*> clients_of(const FaultScene& scene);
// Breaks all of them now and heals them after the duration.
void break_ways(SimWorld& world, const Ways& ways, const PathFault& fault, Duration duration);

}  // namespace mortar::sim
