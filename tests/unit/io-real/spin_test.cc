#include "io-real/spin.h"

#include <gtest/gtest.h>

namespace mortar {
namespace {

TEST(SpinCredit, spins_on_as_long_as_it_helps_more_often_than_not) {
    SpinCredit credit;
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_TRUE(credit.may_spin()) << i;
        credit.on_end(i % 8 != 0);
    }
}

TEST(SpinCredit, nearly_stops_when_it_is_in_vain_and_finds_out_when_it_helps_again) {
    SpinCredit credit;
    int spun = 0;
    for (int i = 0; i < 6'400; ++i) {
        if (!credit.may_spin()) continue;
        ++spun;
        credit.on_end(false);
    }
    EXPECT_GT(spun, 50);
    EXPECT_LT(spun, 120);
    int waits = 0;
    while (!credit.may_spin())
        ++waits;
    EXPECT_LT(waits, SpinCredit::WAITS_WITHOUT);
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(credit.may_spin());
        credit.on_end(true);
    }
}

}  // namespace
}  // namespace mortar
