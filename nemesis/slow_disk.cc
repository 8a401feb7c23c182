// slow-disk: a broker's device slows down (an aged flash, a throttled volume, a neighbour, a rebuild) or hangs altogether.
#include "nemesis/disk_fault.h"

namespace mortar::sim {
namespace {

constexpr std::int64_t SLOW_FACTOR_MAX = 60;
constexpr std::int64_t DELAY_US_MAX = 150'000;

class SlowDisk final : public DiskNemesis {
  public:
    SlowDisk() : DiskNemesis("slow-disk") {}

  protected:
    void turn(SimDisk& disk, MonoTime until, Rng& rng) const override {
        switch (rng.below(3)) {
            case 0:
                disk.faults().slow_factor = rng.between(2, SLOW_FACTOR_MAX);
                break;
            case 1:
                disk.faults().delay_max = microseconds(rng.between(100, DELAY_US_MAX));
                break;
            default:
                disk.faults().stalled_until = until;
        }
    }
    void turn_back(SimDisk& disk) const override {
        disk.faults().slow_factor = 1;
        disk.faults().delay_max = {};
    }
};

}  // namespace

const Nemesis& slow_disk_nemesis() {
    static const SlowDisk SLOW_DISK;
    return SLOW_DISK;
}

}  // namespace mortar::sim
