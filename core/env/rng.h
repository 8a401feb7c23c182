// rng: randomness from named streams, one an owner, so that a new draw in one place does not reshuffle another.
// Shape:  Rng is a value type (xoshiro256**, seeded by splitmix64) with our own bounded draws, so that a seed survives
//         a change of library. RngSource gives each name its stream: seeded in the simulator, from the OS in the real world.
// Use:    at most one draw in a full expression: the order of argument evaluation differs between compilers.
// Source: design 6 (streams), ecosystem notes on evaluation order.
#pragma once

#include <cstdint>
#include <string_view>

namespace mortar {

class Rng {
  public:
    explicit Rng(std::uint64_t seed) {
        for (std::uint64_t& word : state_) {
            seed += 0x9e3779b97f4a7c15u;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
            word = z ^ (z >> 31);
        }
    }

    std::uint64_t next() {
        const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = rotate(state_[3], 45);
        return result;
    }
    // 0 <= result < bound; bound > 0.
    std::uint64_t below(std::uint64_t bound) {
        __extension__ using Wide = unsigned __int128;
        return static_cast<std::uint64_t>((Wide{next()} * bound) >> 64);
    }
    // low <= result <= high.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
    }
    // True once in `count` draws on average.
    bool one_in(std::uint64_t count) { return below(count) == 0; }
    bool chance_per_mille(std::uint64_t per_mille) { return below(1000) < per_mille; }

  private:
    static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
    std::uint64_t state_[4] = {};
};

class RngSource {
  public:
    virtual ~RngSource() = default;
    virtual Rng stream(std::string_view name) = 0;
};

}  // namespace mortar
