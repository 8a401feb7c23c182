// What a sweep makes of its seeds' reports. The reports stand in a state file, so no seed is run.
#include "sim/sweep.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace mortar::sim {
namespace {

RunReport good_report(std::uint64_t seed) {
    RunReport report;
    report.seed = seed;
    report.trace_hash = seed * 31;
    report.steps = 1000;
    report.simulated_ms = 30'000;
    report.acked_pubs = 900;
    report.acked_messages = 800;
    for (const std::string& family : swarm_families({}))
        report.faults[family] = 5;
    for (const int checker : {1, 2, 3, 4, 5, 6, 8, 11, 12, 13, 14, 15, 16})
        report.checks[checker] = 10;
    return report;
}

class SweepRules : public ::testing::Test {
  protected:
    static constexpr std::uint64_t SEEDS = 60;

    void SetUp() override {
        for (std::uint64_t seed = 1; seed <= SEEDS; ++seed)
            reports_.push_back(good_report(seed));
    }
    void TearDown() override { std::remove(path_.c_str()); }

    int judge() {
        std::ofstream out(path_);
        for (const RunReport& report : reports_)
            out << report.line() << '\n';
        out.close();
        SweepOptions options;
        options.first_seed = 1;
        options.last_seed = reports_.size();
        options.state_file = path_;
        options.run.pins = pins_;
        return sweep(options);
    }

    std::string path_ = ::testing::TempDir() + "sweep_rules." +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".state";
    std::vector<RunReport> reports_;
    std::map<std::string, std::uint64_t> pins_;
};

TEST_F(SweepRules, accept_a_sweep_that_exercised_everything) {
    EXPECT_EQ(judge(), EXIT_CLEAN);
}

TEST_F(SweepRules, refuse_a_checker_that_judged_nothing) {
    for (RunReport& report : reports_)
        report.checks[6] = 0;
    EXPECT_EQ(judge(), EXIT_VACUOUS);
}

TEST_F(SweepRules, refuse_a_fault_family_that_hardly_fires) {
    const std::string rare = swarm_families({}).front();
    for (std::uint64_t i = SEEDS / 6; i < SEEDS; ++i)
        reports_[i].faults[rare] = 0;
    EXPECT_EQ(judge(), EXIT_VACUOUS);
}

TEST_F(SweepRules, refuse_a_median_of_few_pubs) {
    for (std::uint64_t i = 0; i < SEEDS * 2 / 3; ++i)
        reports_[i].acked_pubs = 499;
    EXPECT_EQ(judge(), EXIT_VACUOUS);
}

TEST_F(SweepRules, refuse_a_median_of_few_faults) {
    for (std::uint64_t i = 0; i < SEEDS * 2 / 3; ++i) {
        for (auto& [family, count] : reports_[i].faults)
            count = 1;
    }
    EXPECT_EQ(judge(), EXIT_VACUOUS);
}

TEST_F(SweepRules, refuse_more_than_a_few_vacuous_seeds) {
    reports_[3].exit_code = EXIT_VACUOUS;
    EXPECT_EQ(judge(), EXIT_CLEAN);
    reports_[4].exit_code = EXIT_VACUOUS;
    EXPECT_EQ(judge(), EXIT_VACUOUS);
}

TEST_F(SweepRules, ask_of_several_brokers_what_only_they_can_show_and_no_vacuous_seed) {
    pins_ = {{"nodes", 3}};
    RunOptions cluster;
    cluster.pins = pins_;
    for (RunReport& report : reports_) {
        report.faults.clear();
        for (const std::string& family : swarm_families(cluster))
            report.faults[family] = 5;
        for (const int nobody_consumes : {4, 5, 6, 11})
            report.checks.erase(nobody_consumes);
    }
    EXPECT_EQ(judge(), EXIT_VACUOUS) << "7 and 9 judged nothing";
    for (RunReport& report : reports_)
        report.checks[7] = report.checks[9] = 1;
    EXPECT_EQ(judge(), EXIT_CLEAN);
    reports_[3].exit_code = EXIT_VACUOUS;
    EXPECT_EQ(judge(), EXIT_VACUOUS);
}

TEST_F(SweepRules, do_not_judge_a_handful_of_seeds) {
    reports_.resize(10);
    for (RunReport& report : reports_)
        report.checks[6] = 0;
    EXPECT_EQ(judge(), EXIT_CLEAN);
}

TEST_F(SweepRules, report_a_seed_that_failed_whatever_the_others_did) {
    reports_[7].exit_code = EXIT_VIOLATION;
    reports_[7].violations.push_back({6, "promised", "seen", {}});
    EXPECT_EQ(judge(), EXIT_VIOLATION);
    reports_[8].exit_code = EXIT_NON_DETERMINISM;
    EXPECT_EQ(judge(), EXIT_NON_DETERMINISM);
}

// --- a report as a line

TEST(RunReportLine, reads_what_it_wrote) {
    RunReport report = good_report(17);
    report.exit_code = EXIT_VIOLATION;
    report.rare = {{"ledger_rotated", 3}};
    report.violations.push_back(
        {4, "first deliveries go out by sequence", "sequence 3 after 5", {}});
    const RunReport again = RunReport::parse(report.line());
    EXPECT_EQ(again.seed, 17u);
    EXPECT_EQ(again.exit_code, EXIT_VIOLATION);
    EXPECT_EQ(again.trace_hash, report.trace_hash);
    EXPECT_EQ(again.steps, report.steps);
    EXPECT_EQ(again.simulated_ms, report.simulated_ms);
    EXPECT_EQ(again.acked_pubs, report.acked_pubs);
    EXPECT_EQ(again.acked_messages, report.acked_messages);
    EXPECT_EQ(again.faults, report.faults);
    EXPECT_EQ(again.checks, report.checks);
    EXPECT_EQ(again.rare, report.rare);
    ASSERT_EQ(again.violations.size(), 1u);
    EXPECT_EQ(again.violations[0].checker, 4);
    EXPECT_EQ(again.violations[0].promise, report.violations[0].promise);
    EXPECT_EQ(again.violations[0].seen, report.violations[0].seen);
    EXPECT_EQ(again.line(), report.line());
}

TEST(RunReportLine, keeps_a_report_without_counts_and_violations) {
    RunReport report;
    report.seed = 5;
    const RunReport again = RunReport::parse(report.line());
    EXPECT_EQ(again.exit_code, EXIT_CLEAN);
    EXPECT_TRUE(again.faults.empty() && again.checks.empty() && again.rare.empty() &&
                again.violations.empty());
}

TEST(RunReportLine, holds_names_with_any_characters_in_one_word) {
    RunReport report = good_report(1);
    report.rare = {{"log: torn tail, left behind", 2}};
    report.violations.push_back({13, "a, b: c\nd\te", "", {}});
    const std::string line = report.line();
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const RunReport again = RunReport::parse(line);
    EXPECT_EQ(again.exit_code, EXIT_CLEAN);
    ASSERT_EQ(again.rare.size(), 1u);
    EXPECT_EQ(again.rare.begin()->second, 2u);
    EXPECT_EQ(again.line(), line);
}

TEST(RunReportLine, is_a_harness_fault_when_it_is_cut) {
    const std::string line = good_report(9).line();
    const RunReport cut = RunReport::parse(line.substr(0, line.size() / 2));
    EXPECT_EQ(cut.exit_code, EXIT_HARNESS);
    EXPECT_TRUE(RunReport::parse("").exit_code == EXIT_HARNESS);
}

}  // namespace
}  // namespace mortar::sim
