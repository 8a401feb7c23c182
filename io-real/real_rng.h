// real_rng: streams seeded by the OS; a name gets another stream each time it is asked.
#pragma once

#include "core/env/rng.h"

namespace mortar {

class RealRng final : public RngSource {
  public:
    Rng stream(std::string_view name) override;
};

}  // namespace mortar
