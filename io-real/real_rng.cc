#include "io-real/real_rng.h"

#include <sys/random.h>
#include <cerrno>

#include "core/base/assert.h"

namespace mortar {

Rng RealRng::stream(std::string_view) {
    std::uint64_t seed = 0;
    ssize_t count = 0;
    do {
        count = getrandom(&seed, sizeof seed, 0);
    } while (count < 0 && errno == EINTR);
    // So few bytes come whole once the kernel's pool is ready, which getrandom waits for.
    MORTAR_ASSERT(count == sizeof seed);
    return Rng(seed);
}

}  // namespace mortar
