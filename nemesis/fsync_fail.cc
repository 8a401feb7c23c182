// fsync-fail: a broker's device loses writes for a while and says so: a sync fails, and what becomes of the dirty pages is up
// to the kernel (gone, taken for clean, kept, or a mixture); often plain writes fail too.
#include "nemesis/disk_fault.h"

namespace mortar::sim {
namespace {

class FsyncFail final : public DiskNemesis {
  public:
    FsyncFail() : DiskNemesis("fsync-fail") {}

  protected:
    void turn(SimDisk& disk, MonoTime, Rng& rng) const override {
        disk.faults().failed_sync = static_cast<FailedSync>(rng.below(4));
        disk.faults().sync_error_per_mille = rng.one_in(3) ? 1000 : 20 + rng.below(500);
        if (rng.one_in(3)) disk.faults().write_error_per_mille = 20 + rng.below(500);
    }
    void turn_back(SimDisk& disk) const override {
        disk.faults().sync_error_per_mille = 0;
        disk.faults().write_error_per_mille = 0;
        disk.faults().failed_sync = FailedSync::UNKNOWN;
    }
};

}  // namespace

const Nemesis& fsync_fail_nemesis() {
    static const FsyncFail FSYNC_FAIL;
    return FSYNC_FAIL;
}

}  // namespace mortar::sim
