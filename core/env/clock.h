// clock: the only source of time.
// Shape:  MonoTime is a point on a monotonic clock that runs on in suspend; Duration a signed span. Both in ns.
//         The wall clock fills record timestamps and log text; it decides nothing (contract E2).
// Source: design 2, contract 8 (timing).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace mortar {

struct Duration {
    std::int64_t ns = 0;
    constexpr auto operator<=>(const Duration&) const = default;
    constexpr Duration operator+(Duration other) const { return {ns + other.ns}; }
    constexpr Duration operator-(Duration other) const { return {ns - other.ns}; }
    constexpr Duration operator*(std::int64_t count) const { return {ns * count}; }
    constexpr Duration operator/(std::int64_t count) const { return {ns / count}; }
    constexpr std::int64_t to_ms() const { return ns / 1'000'000; }
    constexpr std::int64_t to_us() const { return ns / 1'000; }
};
constexpr Duration nanoseconds(std::int64_t count) {
    return {count};
}
constexpr Duration microseconds(std::int64_t count) {
    return {count * 1'000};
}
constexpr Duration milliseconds(std::int64_t count) {
    return {count * 1'000'000};
}
constexpr Duration seconds(std::int64_t count) {
    return {count * 1'000'000'000};
}

struct MonoTime {
    std::int64_t ns = 0;
    constexpr auto operator<=>(const MonoTime&) const = default;
    constexpr MonoTime operator+(Duration d) const { return {ns + d.ns}; }
    constexpr MonoTime operator-(Duration d) const { return {ns - d.ns}; }
    constexpr Duration operator-(MonoTime other) const { return {ns - other.ns}; }
};
// A deadline that never comes.
inline constexpr MonoTime NEVER{std::numeric_limits<std::int64_t>::max()};

class Clock {
  public:
    virtual ~Clock() = default;
    virtual MonoTime now() const = 0;
    virtual std::uint64_t wall_unix_ms() const = 0;
};

}  // namespace mortar
