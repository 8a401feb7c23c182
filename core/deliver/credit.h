// credit: one member's window of messages and bytes in flight.
// Shape:     a message goes out if in_flight_count < window_count and in_flight_bytes + size <= window_bytes.
// Units:     size of a message = key + value bytes.
// Invariant: take and give_back pair up; a window below what is in flight only pauses.
// Source:    contract C4, C5, core-concepts 11.
#pragma once

#include "core/wire/messages.h"

namespace mortar {

inline constexpr std::uint32_t CREDIT_COUNT_MAX = 65'535;
inline constexpr std::uint32_t CREDIT_BYTES_MAX = 512u << 20;
inline constexpr std::uint32_t CREDIT_BYTES_PER_MESSAGE = 8 * 1024;  // of the initial window

class CreditWindow {
  public:
    // 0 = the default: initial_count messages, or 8 KiB for each of them.
    CreditWindow(std::uint16_t count, std::uint32_t bytes, std::uint32_t initial_count);

    enum class Fit : std::uint8_t { YES, NO_CREDIT, EXCEEDS_WINDOW };
    Fit fits(std::uint32_t message_bytes) const;
    bool has_count() const { return in_flight_count_ < window_count_; }
    std::uint32_t free_count() const {
        return in_flight_count_ < window_count_ ? window_count_ - in_flight_count_ : 0;
    }
    std::uint32_t free_bytes() const {
        return in_flight_bytes_ < window_bytes_ ? window_bytes_ - in_flight_bytes_ : 0;
    }
    void take(std::uint32_t message_bytes);
    void give_back(std::uint32_t message_bytes);

    wire::CreditResult apply(wire::CreditMode mode, std::uint16_t count, std::uint32_t bytes);

  private:
    std::uint32_t window_count_;
    std::uint32_t window_bytes_;
    std::uint32_t in_flight_count_ = 0;
    std::uint32_t in_flight_bytes_ = 0;
    std::uint64_t credit_epoch_ = 0;  // CREDITs applied
};

}  // namespace mortar
