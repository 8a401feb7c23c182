#include "sim/seed_file.h"

#include <gtest/gtest.h>

namespace mortar::sim {
namespace {

TEST(SeedFile, reads_what_it_wrote) {
    SeedFile file;
    file.story = "no acknowledged record is lost\nsecond line";
    file.options.seed = 4711;
    file.options.nemesis = "kill,power";
    file.options.pins = {{"partitions", 1}, {"segment_max_bytes", 65536}};
    const Result<SeedFile> again = parse_seed_file("x.seed", format_seed_file(file));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->story, file.story);
    EXPECT_EQ(again->options.seed, 4711u);
    EXPECT_EQ(again->options.nemesis, "kill,power");
    EXPECT_EQ(again->options.pins, file.options.pins);
}

TEST(SeedFile, takes_swarm_when_no_nemesis_is_named) {
    const Result<SeedFile> file = parse_seed_file("x.seed", "# story\n\nseed 7\n");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->options.nemesis, "swarm");
    EXPECT_EQ(file->story, "story");
}

TEST(SeedFile, names_file_and_line_of_what_it_cannot_read) {
    for (const char* bad :
         {"seed seven\n", "seed 1\nseeds 2\n", "seed 1\npin partitions\n", "seed 1 2\n",
          "seed 1\nnemesis\n", "seed 1\npin partitions one\n", "seed -1\n",
          "seed 18446744073709551616\n", "seed 0x10\n", "seed 1\nseed 2\n", "seed 1\nnemesis foo\n",
          "seed 1\npin partitions 99999999999\n", "seed 1\npin partitions 0\n",
          "seed 1\npin partition 1\n"}) {
        const Result<SeedFile> file = parse_seed_file("x.seed", bad);
        ASSERT_TRUE(file.is(ErrorCode::INVALID_ARGUMENT)) << bad;
        const std::string line = std::string(bad).starts_with("seed 1\n") ? "x.seed:2" : "x.seed:1";
        EXPECT_NE(file.error().detail.find(line), std::string::npos) << file.error().detail;
    }
}

TEST(SeedFile, refuses_a_second_line_of_a_kind) {
    for (const char* bad :
         {"seed 1\nnemesis kill\nnemesis none\n", "seed 1\npin topics 1\npin topics 2\n"}) {
        const Result<SeedFile> file = parse_seed_file("x.seed", bad);
        ASSERT_TRUE(file.is(ErrorCode::INVALID_ARGUMENT)) << bad;
        EXPECT_NE(file.error().detail.find("x.seed:3"), std::string::npos) << file.error().detail;
    }
}

TEST(SeedFile, takes_the_largest_seed) {
    const Result<SeedFile> file = parse_seed_file("x.seed", "seed 18446744073709551615\n");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->options.seed, ~std::uint64_t{0});
}

TEST(SeedFile, asks_for_a_seed) {
    EXPECT_TRUE(parse_seed_file("x.seed", "nemesis kill\n").is(ErrorCode::INVALID_ARGUMENT));
}

}  // namespace
}  // namespace mortar::sim
