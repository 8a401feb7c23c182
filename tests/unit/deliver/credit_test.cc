#include "core/deliver/credit.h"

#include <gtest/gtest.h>

namespace mortar {
namespace {
using Fit = CreditWindow::Fit;

TEST(Contract, C4_window_counts_messages_and_bytes) {
    CreditWindow window(2, 100, 256);
    EXPECT_EQ(window.fits(100), Fit::YES);
    EXPECT_EQ(window.fits(101), Fit::EXCEEDS_WINDOW);
    window.take(60);
    EXPECT_EQ(window.fits(40), Fit::YES);
    EXPECT_EQ(window.fits(41), Fit::NO_CREDIT);
    window.take(0);
    EXPECT_EQ(window.fits(0), Fit::NO_CREDIT) << "the count is used up";
    window.give_back(60);
    EXPECT_EQ(window.fits(100), Fit::YES);
    EXPECT_EQ(window.free_count(), 1u);
}

TEST(Contract, C4_zero_in_sub_is_the_default_window) {
    CreditWindow window(0, 0, 256);
    const wire::CreditResult result = window.apply(wire::CreditMode::ADD, 0, 0);
    EXPECT_EQ(result.granted_count, 256);
    EXPECT_EQ(result.granted_bytes, 2u << 20);
    EXPECT_EQ(result.credit_epoch, 1u);
}

TEST(Contract, C4_set_replaces_and_add_saturates) {
    CreditWindow window(10, 1000, 256);
    window.take(500);
    wire::CreditResult result = window.apply(wire::CreditMode::SET, 1, 200);
    EXPECT_EQ(result.granted_count, 1);
    EXPECT_EQ(result.granted_bytes, 200u);
    EXPECT_EQ(result.outstanding_count, 1);
    EXPECT_EQ(result.outstanding_bytes, 500u);
    EXPECT_EQ(window.fits(1), Fit::NO_CREDIT) << "below what is in flight it only pauses";
    EXPECT_EQ(window.free_bytes(), 0u);
    result = window.apply(wire::CreditMode::ADD, 65535, 0xFFFFFFFFu);
    EXPECT_EQ(result.granted_count, 65535);
    EXPECT_EQ(result.granted_bytes, 512u << 20);
    EXPECT_EQ(result.credit_epoch, 2u);
    result = window.apply(wire::CreditMode::SET, 3, 0xFFFFFFFFu);
    EXPECT_EQ(result.granted_bytes, 512u << 20);
    EXPECT_EQ(window.fits(7), Fit::YES);
}

}  // namespace
}  // namespace mortar
