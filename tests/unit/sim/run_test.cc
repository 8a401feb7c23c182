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

}  // namespace
}  // namespace mortar::sim
