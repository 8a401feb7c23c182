// assignment: who should own what: a pure function of members, partitions and who owned them before.
// Shape:     members ascending and distinct; owners one a partition, 0 = nobody (before) - after it every partition has an
//            owner unless there are no members.
// Invariant: balanced within one; moves the fewest partitions that balance allows; the same input gives the same owners.
// Source:    design 5 (assignment), core-concepts 12.
#pragma once

#include <span>
#include <vector>

#include "core/base/ids.h"

namespace mortar {

inline constexpr MemberId NO_MEMBER{0};

std::vector<MemberId> assign(std::span<const MemberId> members, std::span<const MemberId> previous);

}  // namespace mortar
