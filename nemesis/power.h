// power: what the families power and torn share.
#pragma once

#include "nemesis/nemesis.h"

namespace mortar::sim {

class Power final : public Nemesis {
  public:
    Power(std::string_view name, bool is_torn) : name_(name), is_torn_(is_torn) {}
    std::string_view name() const override { return name_; }
    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override;
    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override;

  private:
    std::string_view name_;
    bool is_torn_;
};

}  // namespace mortar::sim
