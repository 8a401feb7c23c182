// params: what a run draws for itself, one row a parameter: name, meaning, how it is drawn.
// Invariant: each parameter has a random stream of its own, so that a new row does not change the others; a pin replaces a draw.
// Source:    design 6 (swarm).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace mortar::sim {

class Params {
  public:
    Params(std::uint64_t seed, const std::map<std::string, std::uint64_t>& pins);
    std::uint64_t operator[](const std::string& name) const;
    const std::map<std::string, std::uint64_t>& all() const { return values_; }
    // INVALID_ARGUMENT: no such parameter, or a value that the scenario was not made for.
    static Result<void> check_pin(const std::string& name, std::uint64_t value);
    static std::vector<std::pair<std::string, std::string>> help();

  private:
    std::map<std::string, std::uint64_t> values_;
};

}  // namespace mortar::sim
