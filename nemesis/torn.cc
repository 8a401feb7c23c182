// torn: a power loss in the middle of a sector write: some unsynced sectors are half old and half
// new, or garbage where they were being changed.
#include "nemesis/power.h"

namespace mortar::sim {

const Nemesis& torn_nemesis() {
    static const Power TORN("torn", true);
    return TORN;
}

}  // namespace mortar::sim
