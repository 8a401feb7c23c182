#include "core/deliver/credit.h"

#include <algorithm>

#include "core/base/assert.h"

namespace mortar {

CreditWindow::CreditWindow(std::uint16_t count, std::uint32_t bytes, std::uint32_t initial_count)
    : window_count_(count != 0 ? count : std::min(initial_count, CREDIT_COUNT_MAX)),
      window_bytes_(std::min(bytes != 0 ? bytes : initial_count * CREDIT_BYTES_PER_MESSAGE,
                             CREDIT_BYTES_MAX)) {}

CreditWindow::Fit CreditWindow::fits(std::uint32_t message_bytes) const {
    if (message_bytes > window_bytes_) return Fit::EXCEEDS_WINDOW;
    if (!has_count() || message_bytes > free_bytes()) return Fit::NO_CREDIT;
    return Fit::YES;
}

void CreditWindow::take(std::uint32_t message_bytes) {
    MORTAR_ASSERT(fits(message_bytes) == Fit::YES);
    ++in_flight_count_;
    in_flight_bytes_ += message_bytes;
}

void CreditWindow::give_back(std::uint32_t message_bytes) {
    MORTAR_ASSERT(in_flight_count_ > 0);
    MORTAR_ASSERT(in_flight_bytes_ >= message_bytes);
    --in_flight_count_;
    in_flight_bytes_ -= message_bytes;
}

wire::CreditResult CreditWindow::apply(wire::CreditMode mode, std::uint16_t count,
                                       std::uint32_t bytes) {
    if (mode == wire::CreditMode::SET) {
        window_count_ = count;
        window_bytes_ = std::min(bytes, CREDIT_BYTES_MAX);
    } else {
        window_count_ = std::min(window_count_ + count, CREDIT_COUNT_MAX);
        window_bytes_ =
            bytes > CREDIT_BYTES_MAX - window_bytes_ ? CREDIT_BYTES_MAX : window_bytes_ + bytes;
    }
    ++credit_epoch_;
    wire::CreditResult result;
    result.granted_count = static_cast<std::uint16_t>(window_count_);
    result.granted_bytes = window_bytes_;
    result.outstanding_count = static_cast<std::uint16_t>(in_flight_count_);
    result.outstanding_bytes = in_flight_bytes_;
    result.credit_epoch = credit_epoch_;
    return result;
}

}  // namespace mortar
