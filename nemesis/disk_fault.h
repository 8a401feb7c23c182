// disk_fault: what the families share that turn a knob of a broker's disk and turn it back after a while.
#pragma once

#include "nemesis/nemesis.h"

namespace mortar::sim {

class DiskNemesis : public Nemesis {
  public:
    explicit DiskNemesis(std::string_view name) : name_(name) {}
    std::string_view name() const override { return name_; }
    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override;
    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override;

  protected:
    virtual void turn(SimDisk& disk, MonoTime until, Rng& rng) const = 0;
    virtual void turn_back(SimDisk& disk) const = 0;

  private:
    std::string_view name_;
};

}  // namespace mortar::sim
