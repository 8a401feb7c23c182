// disk-full: others fill the file system of a broker: nothing or little more fits, and a write may get in only halfway; later
// there is room again.
#include "nemesis/disk_fault.h"

namespace mortar::sim {
namespace {

constexpr std::uint64_t ROOM_BYTES_MAX = 64 * 1024;
constexpr std::uint64_t NO_ROOM_ONE_IN = 4;

class DiskFull final : public DiskNemesis {
  public:
    DiskFull() : DiskNemesis("disk-full") {}

  protected:
    void turn(SimDisk& disk, MonoTime, Rng& rng) const override {
        const std::uint64_t room = rng.one_in(NO_ROOM_ONE_IN) ? 0 : rng.below(ROOM_BYTES_MAX);
        disk.faults().capacity_bytes = disk.used_bytes() + room;
    }
    void turn_back(SimDisk& disk) const override {
        disk.faults().capacity_bytes = DiskFaults{}.capacity_bytes;
    }
};

}  // namespace

const Nemesis& disk_full_nemesis() {
    static const DiskFull DISK_FULL;
    return DISK_FULL;
}

}  // namespace mortar::sim
