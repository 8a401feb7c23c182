// pace: holds producers to a rate while a follower catches up.
// Shape:    counts what PUBs appended. While a rate is set, each of them also moves the moment from which the next PUB may be
//           read; who reads requests asks held_until before the frame behind a PUB and waits that long, so that nothing is
//           refused and every request keeps its place. What was not used of the rate is saved up for BURST, so that
//           producers who write in bursts have the whole of it.
// Units:    bytes of records, and of them a second.
// Invariant: nobody is held for longer than HOLD_MAX at a time, nor while no rate is set: then nothing here reads the clock.
// Source:   issue 3 (catch-up), contract R1.
#pragma once

#include <cstdint>

#include "core/env/clock.h"
#include "core/fiber/event.h"

namespace mortar {

class ProducePace {
  public:
    static constexpr Duration BURST = seconds(1);
    static constexpr Duration HOLD_MAX = seconds(1);
    // Shorter waits than this are not worth a timer: they come together in a longer one.
    static constexpr Duration GRAIN = milliseconds(5);

    explicit ProducePace(const Clock& clock) : clock_(clock) {}

    void on_appended(std::size_t size_bytes);
    // Since this node started.
    std::uint64_t appended_bytes() const { return appended_bytes_; }

    // bytes_per_second > 0.
    void hold_to(std::uint64_t bytes_per_second);
    void release();
    // 0 while nobody is held.
    std::uint64_t held_to() const { return bytes_per_second_; }
    // The next PUB may be read then; in the past: now.
    MonoTime held_until() const;
    // Notified by release.
    Event& released() { return released_; }

  private:
    const Clock& clock_;
    std::uint64_t appended_bytes_ = 0;
    std::uint64_t bytes_per_second_ = 0;
    MonoTime next_at_;  // while a rate is set: what was appended by now is paid for then
    Event released_;
};

}  // namespace mortar
