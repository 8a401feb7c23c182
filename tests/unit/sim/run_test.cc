#include "sim/run.h"

#include <gtest/gtest.h>

#include "io-sim/stack_pool.h"

namespace mortar::sim {
namespace {

RunOptions calm_run() {
    RunOptions options;
    options.nemesis = "none";
    options.pins = {{"duration_s", 2},
                    {"graceful_restarts", 0},
                    {"checkpoint_every_bytes", 8192},
                    {"value_bytes_max", 1000},
                    {"hostile", 0}};
    return options;
}

TEST(Run, a_checkpoint_that_is_not_synced_breaks_promise_17) {
    HeapStackPool stacks;
    RunOptions options = calm_run();
    const RunReport whole = run_seed(options, stacks);
    EXPECT_EQ(whole.exit_code, EXIT_CLEAN);
    EXPECT_GT(whole.checks.at(17), 0u);

    options.drop_sync = "sync_data topics/#/#/checkpoint.mqc.tmp by log.#/#.checkpointer";
    const RunReport cut = run_seed(options, stacks);
    EXPECT_EQ(cut.exit_code, EXIT_VIOLATION);
    ASSERT_FALSE(cut.violations.empty());
    EXPECT_EQ(cut.violations.front().checker, 17);
}

TEST(Run, names_each_sync_site_and_its_calls_when_asked) {
    HeapStackPool stacks;
    RunOptions options = calm_run();
    EXPECT_TRUE(run_seed(options, stacks).sync_sites.empty());
    options.record_syncs = true;
    const RunReport report = run_seed(options, stacks);
    const auto site = report.sync_sites.find("sync_data topics/#/#/#.seg.tmp by log.#/#.writer");
    ASSERT_NE(site, report.sync_sites.end());
    for (const std::uint64_t operation : site->second) {
        EXPECT_GE(operation, 1u);
        EXPECT_LE(operation, report.disk_operations);
    }
}

// The leader is cut off shortly before the end, with records that it never gets confirmed. They stand where the next leader's
// do, and until it is taken in again they are as many.
TEST(Run, a_broker_that_is_not_installed_yet_is_not_compared) {
    constexpr std::uint64_t FROM_BOTH_FOLLOWERS = 16;
    HeapStackPool stacks;
    RunOptions options = calm_run();
    options.pins = {{"nodes", 3},   {"duration_s", 4}, {"graceful_restarts", 0}, {"churn", 0},
                    {"hostile", 0}, {"topics", 1},     {"partitions", 1},        {"producers", 2}};
    options.script = {{MonoTime{} + milliseconds(4'750), "partition", std::string(LEADER_TARGET),
                       seconds(8), FROM_BOTH_FOLLOWERS}};
    const RunReport report = run_seed(options, stacks);
    EXPECT_EQ(report.exit_code, EXIT_CLEAN)
        << (report.violations.empty() ? "" : report.violations.front().seen);
    EXPECT_GT(report.checks.at(9), 0u);
    EXPECT_GT(report.rare.count(ELECTED_AGAIN), 0u);
    EXPECT_GT(report.rare.count("catch_up: a log was cut"), 0u);
}

}  // namespace
}  // namespace mortar::sim
