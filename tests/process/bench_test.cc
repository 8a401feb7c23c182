// mortarmq-bench from outside: what it takes and refuses, and short real runs whose JSON is read.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/process/mortarmqd.h"

namespace mortar::process {
namespace {

using nlohmann::json;

struct BenchRan {
    int exit_code = -1;
    std::string out;
    std::string err;
};

class BenchProgram : public testing::Test {
  protected:
    // In an empty folder, where nothing may stay behind.
    BenchRan run_bench(const std::string& arguments, const std::string& timeout = "timeout 120") {
        const std::string work = folder_ / "work";
        std::filesystem::create_directories(work);
        const std::string command = "cd " + work + " && " + timeout + " " MORTARMQ_BENCH_PATH " " +
                                    arguments + " 2>" + (folder_ / "err") + " </dev/null";
        std::FILE* pipe = ::popen(command.c_str(), "r");
        BenchRan ran;
        std::array<char, 4096> buffer;
        for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
            ran.out.append(buffer.data(), n);
        const int status = ::pclose(pipe);
        ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        ran.err = read_file(folder_ / "err");
        EXPECT_TRUE(std::filesystem::is_empty(work)) << arguments << " leaves files behind";
        return ran;
    }

    json run_json(const std::string& arguments) {
        const BenchRan ran = run_bench(arguments + " --json");
        EXPECT_EQ(ran.exit_code, 0) << arguments << ": " << ran.err;
        json parsed = json::parse(ran.out, nullptr, false);
        EXPECT_TRUE(parsed.is_object()) << ran.out;
        return parsed;
    }

    TempFolder folder_;
};

void expect_sound(const json& measured) {
    EXPECT_GT(measured.at("count").get<std::uint64_t>(), 0u);
    EXPECT_GT(measured.at("p50_ns").get<std::uint64_t>(), 0u);
    const std::array<const char*, 5> ascending{"p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"};
    for (std::size_t i = 1; i < ascending.size(); ++i) {
        EXPECT_LE(measured.at(ascending[i - 1]).get<std::uint64_t>(),
                  measured.at(ascending[i]).get<std::uint64_t>())
            << measured;
    }
}

TEST_F(BenchProgram, refuses_what_does_not_go_together_or_is_no_number) {
    for (const char* arguments : {"",
                                  "produce --shape 2x2",
                                  "produce --shape 1x1 --connections 4",
                                  "produce --shape 16x16 --partitions 1",
                                  "produce --rate 0",
                                  "produce --rate fast",
                                  "produce --duration 5h",
                                  "produce --duration -1s",
                                  "produce --duration 0",
                                  "produce --outstanding 1001",
                                  "produce --nodes 2",
                                  "produce --size 0",
                                  "produce --addr 127.0.0.1:7188 --nodes 3",
                                  "produce --admin 127.0.0.1:7190",
                                  "produce --addr nowhere",
                                  "produce --addr 127.0.0.1:7188 --token-file /does/not/exist",
                                  "produce --check",
                                  "consume --rate 5",
                                  "consume --connections 11",
                                  "end-to-end --size 8",
                                  "cluster-speed --nodes 5",
                                  "cluster-speed --idle-partitions 2000",
                                  "catch-up --size 0",
                                  "catch-up --nodes 1"}) {
        const BenchRan ran = run_bench(arguments);
        EXPECT_EQ(ran.exit_code, 2) << arguments << ": " << ran.err;
        EXPECT_FALSE(ran.err.empty()) << arguments;
        EXPECT_TRUE(ran.out.empty()) << arguments;
    }
}

TEST_F(BenchProgram, says_what_it_cannot_reach_or_start) {
    const BenchRan nobody = run_bench("produce --addr 127.0.0.1:1");
    EXPECT_EQ(nobody.exit_code, 3);
    EXPECT_NE(nobody.err.find("127.0.0.1:1"), std::string::npos) << nobody.err;
    const BenchRan nothing = run_bench("produce --broker /does/not/exist");
    EXPECT_EQ(nothing.exit_code, 3);
    EXPECT_NE(nothing.err.find("--broker"), std::string::npos) << nothing.err;
}

TEST_F(BenchProgram, produces_for_a_second_in_the_shape_that_it_names) {
    const json report = run_json("produce --shape 1x256 --duration 1s --warm-up 100ms");
    EXPECT_EQ(report.at("shape"), "1x256");
    EXPECT_EQ(report.at("ack_class"), "LOCAL");
    EXPECT_EQ(report.at("partitions"), 1);
    EXPECT_EQ(report.at("measured").at(0).at("name"), "produce 1x256");
    expect_sound(report.at("measured").at(0));
    EXPECT_EQ(report.at("syncs_known"), 1);
    EXPECT_GT(report.at("syncs_per_second").get<std::uint64_t>(), 0u);
    // Many share a sync: that is what 256 outstanding are for.
    EXPECT_GT(report.at("messages_per_sync_percent").get<std::uint64_t>(), 200u);
    EXPECT_FALSE(report.contains("errors"));
}

TEST_F(BenchProgram, keeps_an_open_loop_to_its_schedule) {
    const json report =
        run_json("produce --rate 200 --duration 1s --outstanding 64 --warm-up 100ms");
    EXPECT_EQ(report.at("loop"), "open loop");
    EXPECT_EQ(report.at("measured").at(0).at("count"), 200);
    EXPECT_EQ(report.at("intended_per_second"), 200);
    EXPECT_LE(report.at("measured").at(0).at("per_second").get<std::uint64_t>(), 200u);
}

TEST_F(BenchProgram, probes_the_disk_by_turns_with_the_load) {
    const json report = run_json("produce --probe 3 --duration 1s --warm-up 0");
    ASSERT_EQ(report.at("measured").size(), 2u);
    EXPECT_EQ(report.at("measured").at(1).at("name"), "probe 3 writers");
    expect_sound(report.at("measured").at(0));
    expect_sound(report.at("measured").at(1));
    EXPECT_GT(report.at("p50_over_probe_percent").get<std::uint64_t>(), 0u);
}

TEST_F(BenchProgram, consumes_the_count_that_it_was_told) {
    const json report = run_json("consume --count 2000 --outstanding 64");
    expect_sound(report.at("measured").at(0));
    EXPECT_EQ(report.at("measured").at(0).at("count"), 2000);
}

TEST_F(BenchProgram, measures_from_the_intended_time_to_the_consumer) {
    const json report =
        run_json("end-to-end --rate 200 --duration 1s --outstanding 64 --partitions 4");
    ASSERT_EQ(report.at("measured").size(), 3u);
    EXPECT_EQ(report.at("measured").at(1).at("name"), "end to end");
    for (const json& measured : report.at("measured")) {
        expect_sound(measured);
        EXPECT_EQ(measured.at("count"), 200);
    }
}

TEST_F(BenchProgram, leaves_a_running_broker_as_it_was) {
    const TempFolder data;
    const Broker broker(data / "data");
    const std::string cluster = fmt::format(" --addr 127.0.0.1:{} --admin 127.0.0.1:{}",
                                            broker.client_port(), broker.admin_port());
    const auto has_topic = [&broker] {
        return broker.http_get("/stats?topic=bench").find(" 200 ") != std::string::npos;
    };
    const json report = run_json("produce --duration 200ms --warm-up 0 --partitions 2" + cluster);
    EXPECT_EQ(report.at("partitions"), 2);
    EXPECT_EQ(report.at("syncs_known"), 1);
    EXPECT_FALSE(has_topic());
    run_json("produce --count 50 --warm-up 0 --keep" + cluster);
    EXPECT_TRUE(has_topic());
    // A topic that was there stays, and its partitions are what they are.
    run_json("consume --count 50" + cluster);
    EXPECT_TRUE(has_topic());
    const BenchRan other = run_bench("produce --count 1 --partitions 3" + cluster);
    EXPECT_EQ(other.exit_code, 3);
    EXPECT_NE(other.err.find("has 1 partitions, not 3"), std::string::npos) << other.err;
    EXPECT_NE(broker.http_get("/stats?group=*").find(R"("groups":[])"), std::string::npos);
}

TEST_F(BenchProgram, takes_its_topic_away_when_it_is_interrupted) {
    const TempFolder data;
    const Broker broker(data / "data");
    const BenchRan ran =
        run_bench(fmt::format("produce --duration 100s --addr 127.0.0.1:{}", broker.client_port()),
                  "timeout -s INT --preserve-status 2");
    EXPECT_EQ(ran.exit_code, 130) << ran.err;
    EXPECT_NE(broker.http_get("/stats?topic=*").find(R"("topics":[])"), std::string::npos);
}

TEST_F(BenchProgram, a_missed_bar_is_exit_1_and_only_with_check) {
    const std::string quick = "cluster-speed --nodes 1 --rounds 1 --size ";
    // Twelve times as many bytes a second as one writer syncs, of half a MiB each, go through no machine of tests.
    const BenchRan told = run_bench(quick + "524288 --check --idle-partitions 0");
    EXPECT_EQ(told.exit_code, 1) << told.err;
    EXPECT_NE(told.out.find("MISSED"), std::string::npos) << told.out;
    const json report = run_json(quick + "65536 --idle-partitions 8");
    EXPECT_EQ(report.at("bars").size(), 6u);
    EXPECT_TRUE(report.contains("load_average"));
    EXPECT_EQ(report.at("measured").size(), 10u);
}

TEST_F(BenchProgram, watches_a_killed_follower_catch_up) {
    // Without --check: on a busy machine a bar may be missed.
    const json report = run_json("catch-up --size 8 --duration 500ms");
    EXPECT_EQ(report.at("nodes"), "3");
    EXPECT_EQ(report.at("written_mib"), "8");
    EXPECT_GT(report.at("in_sync_ms").get<std::uint64_t>(), 0u);
    EXPECT_GT(report.at("producers_percent").get<std::uint64_t>(), 0u);
    ASSERT_EQ(report.at("measured").size(), 3u);
    EXPECT_EQ(report.at("measured").at(1).at("name"), "one away");
    EXPECT_GE(report.at("measured").at(1).at("count").get<std::uint64_t>(), 8u * 1024);
    for (const json& measured : report.at("measured"))
        expect_sound(measured);
    ASSERT_EQ(report.at("bars").size(), 2u);
    for (const json& bar : report.at("bars"))
        EXPECT_TRUE(bar.at("holds").is_boolean());
}

}  // namespace
}  // namespace mortar::process
