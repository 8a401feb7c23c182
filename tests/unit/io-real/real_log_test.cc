#include "io-real/real_log.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "io-real/real_rng.h"
#include "tests/unit/env/manual_scheduler.h"
#include "tests/unit/io-real/real_world.h"

namespace mortar {
namespace {

TEST(RealLog, quotes_values_so_that_a_line_splits_again) {
    std::string line;
    append_log_field(line, "a", "plain-1.2:3");
    append_log_field(line, "b", "");
    append_log_field(line, "c", "two words");
    append_log_field(line, "d", "k=v \"x\"\\\n");
    EXPECT_EQ(line, R"( a=plain-1.2:3 b="" c="two words" d="k=v \"x\"\\\x0a")");
}

TEST(RealLog, writes_time_level_event_and_fields_and_limits_each_event) {
    testing::ManualClock clock;
    ::testing::internal::CaptureStderr();
    {
        RealLog log(clock, LogLevel::INFO);
        log.debug("not_shown");
        log.warn("client_lost", {{"peer", "1.2.3.4:5"}});
        for (int i = 0; i < 15; ++i)
            log.info("busy", {{"i", std::to_string(i)}});
        log.error("other");
        clock.time = clock.time + seconds(1);
        log.info("busy", {{"i", "later"}});
        for (int i = 0; i < 12; ++i)
            log.info("busy", {{"i", "again"}});
    }
    const std::string text = ::testing::internal::GetCapturedStderr();
    const std::size_t found = text.find("Z warn client_lost peer=1.2.3.4:5\n");
    ASSERT_NE(found, std::string::npos) << text;
    std::string time = text.substr(0, found);
    for (char& c : time)
        c = c >= '0' && c <= '9' ? '9' : c;
    EXPECT_EQ(time, "9999-99-99T99:99:99.999");
    EXPECT_EQ(text.find("not_shown"), std::string::npos);
    EXPECT_NE(text.find("Z info busy i=9\n"), std::string::npos);
    EXPECT_EQ(text.find("i=10"), std::string::npos);
    EXPECT_NE(text.find("Z error other\n"), std::string::npos);
    EXPECT_NE(text.find("busy i=later suppressed=5\n"), std::string::npos);
    EXPECT_NE(text.find("Z info busy suppressed=3\n"), std::string::npos) << text;
}

TEST(RealRng, gives_another_stream_each_time) {
    RealRng rng;
    std::set<std::uint64_t> first;
    for (int i = 0; i < 100; ++i) {
        Rng stream = rng.stream("same");
        first.insert(stream.next());
    }
    EXPECT_EQ(first.size(), 100u);
}

TEST(RealClock, runs_forward_and_knows_the_year) {
    const RealClock clock;
    const MonoTime first = clock.now();
    EXPECT_GE(clock.now(), first);
    EXPECT_GT(clock.wall_unix_ms(), 1'700'000'000'000u);
}

}  // namespace
}  // namespace mortar
