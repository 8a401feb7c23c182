#include "tools/bench/compare.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/bench/broker_process.h"
#include "tools/bench/cluster.h"
#include "tools/bench/echo_server.h"
#include "tools/bench/load.h"

namespace mortar::bench {
namespace {

constexpr Duration START_PATIENCE = seconds(30);
// After the last answer the broker may still tidy up: checkpoint, growing its file.
constexpr Duration SETTLE = seconds(1);
constexpr std::uint64_t HALF = 500;
constexpr std::uint64_t NINETY_NINE = 990;

void sleep_for(Duration duration) {
    ::usleep(static_cast<useconds_t>(duration.to_us()));
}

class Comparison {
  public:
    Comparison(Workspace& workspace, const CompareOptions& options)
        : workspace_(workspace), options_(options) {}

    Result<Report> run() {
        probe_ = MORTAR_TRY(DiskProbe::create(workspace_.path() + "/probe", options_.value_bytes));
        echo_ = MORTAR_TRY(EchoServer::start(workspace_.path()));
        broker_ = MORTAR_TRY(BrokerProcess::start(workspace_, options_.broker_program, "broker"));
        MORTAR_TRY(broker_->wait_healthy(START_PATIENCE));
        MORTAR_TRY(compare_single());
        MORTAR_TRY(compare_batched());
        MORTAR_TRY(watch_idle());
        return std::move(report_);
    }

  private:
    // topic empty: the echo server.
    Result<std::unique_ptr<Load>> open(const std::string& address, const std::string& topic,
                                       std::size_t outstanding) {
        LoadPlan plan;
        plan.addresses = {address};
        if (!topic.empty()) {
            const Cluster cluster{{address}, {}, {}};
            plan.topic_id = MORTAR_TRY(declare_topic(cluster, topic, 1)).topic_id;
        }
        plan.outstanding = outstanding;
        plan.value_bytes = options_.value_bytes;
        std::unique_ptr<Load> load = MORTAR_TRY(Load::open(plan));
        Histogram ignored;
        MORTAR_TRY(load->run(options_.round, ignored));  // warm-up
        return load;
    }

    Result<void> compare_single() {
        const auto echo_load = MORTAR_TRY(open(echo_->address(), "", 1));
        const auto pub_load = MORTAR_TRY(open(broker_->client_address(), "single", 1));
        Measured echo{"echo 1x1", {}, {}};
        Measured pub{"pub 1x1", {}, {}};
        Measured probe{"probe", {}, {}};
        for (std::size_t round = 1; round <= options_.rounds; ++round) {
            progress_.show(fmt::format("one outstanding: round {} of {}", round, options_.rounds));
            echo.add(MORTAR_TRY(echo_load->run(options_.round, echo.latency)));
            pub.add(MORTAR_TRY(pub_load->run(options_.round, pub.latency)));
            probe.add(MORTAR_TRY(probe_->run(options_.round, probe.latency)));
        }
        const std::uint64_t pub_ns = pub.latency.percentile_ns(HALF);
        const std::uint64_t echo_ns = echo.latency.percentile_ns(HALF);
        const std::uint64_t probe_ns = probe.latency.percentile_ns(HALF);
        const Duration over{static_cast<std::int64_t>(pub_ns) - static_cast<std::int64_t>(echo_ns)};
        const std::uint64_t ratio = percent_of(pub_ns, probe_ns);
        report_.figures.push_back({"pub_over_probe_percent", ratio,
                                   fmt::format("pub / probe, p50: {}", ratio_text(ratio))});
        report_.bars.push_back({"pub above echo, p50", over <= PUB_OVER_ECHO_MAX,
                                fmt::format("{} (at most {})", microseconds_text(over.ns),
                                            microseconds_text(PUB_OVER_ECHO_MAX.ns))});
        for (Measured* one : {&echo, &pub, &probe})
            report_.measured.push_back(std::move(*one));
        return {};
    }

    Result<void> compare_batched() {
        const auto load = MORTAR_TRY(open(broker_->client_address(), "batched", BATCH_OUTSTANDING));
        Measured pub{fmt::format("pub 1x{}", BATCH_OUTSTANDING), {}, {}};
        Measured probe{"probe again", {}, {}};
        for (std::size_t round = 1; round <= options_.rounds; ++round) {
            progress_.show(fmt::format("{} outstanding: round {} of {}", BATCH_OUTSTANDING, round,
                                       options_.rounds));
            pub.add(MORTAR_TRY(load->run(options_.round, pub.latency)));
            probe.add(MORTAR_TRY(probe_->run(options_.round, probe.latency)));
        }
        const std::uint64_t speed = percent_of(pub.total.per_second(), probe.total.per_second());
        const std::uint64_t tail =
            percent_of(pub.latency.percentile_ns(NINETY_NINE), pub.latency.percentile_ns(HALF));
        report_.bars.push_back(
            {"messages per probe sync", speed >= BATCH_OVER_PROBE_MIN * 100,
             fmt::format("{} (at least {})", ratio_text(speed), BATCH_OVER_PROBE_MIN)});
        report_.bars.push_back(
            {"p99 / p50", tail <= TAIL_OVER_MEDIAN_MAX * 100,
             fmt::format("{} (at most {})", ratio_text(tail), TAIL_OVER_MEDIAN_MAX)});
        report_.figures.push_back({"batched_over_probe_percent", speed, {}});
        report_.measured.push_back(std::move(pub));
        report_.measured.push_back(std::move(probe));
        return {};
    }

    Result<void> watch_idle() {
        progress_.show("the idle broker");
        sleep_for(SETTLE);
        const Duration before = MORTAR_TRY(broker_->cpu_time());
        sleep_for(options_.idle);
        const Duration used = MORTAR_TRY(broker_->cpu_time()) - before;
        const auto per_mille = static_cast<std::uint64_t>(used.ns * 1000 / options_.idle.ns);
        report_.figures.push_back({"idle_cpu_per_mille", per_mille, {}});
        report_.bars.push_back({"idle broker", per_mille < IDLE_PER_MILLE_MAX,
                                fmt::format("{}.{} % of a processor (below {} %)", per_mille / 10,
                                            per_mille % 10, IDLE_PER_MILLE_MAX / 10)});
        return {};
    }

    Workspace& workspace_;
    const CompareOptions& options_;
    Progress progress_;
    std::unique_ptr<DiskProbe> probe_;
    std::unique_ptr<EchoServer> echo_;
    std::unique_ptr<BrokerProcess> broker_;
    Report report_;
};

}  // namespace

Result<Report> compare(Workspace& workspace, const CompareOptions& options) {
    return Comparison(workspace, options).run();
}

}  // namespace mortar::bench
