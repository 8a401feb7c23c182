#include "tools/bench/catch_up.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <optional>

#include "tools/bench/broker_process.h"
#include "tools/bench/cluster.h"
#include "tools/bench/load.h"

namespace mortar::bench {
namespace {

constexpr std::size_t NODES = 3;
constexpr std::uint64_t MIB = 1u << 20;
constexpr const char* TOPIC = "catch-up";
constexpr Duration START_PATIENCE = seconds(60);
constexpr Duration FILL_PATIENCE = seconds(3600);
constexpr Duration IN_SYNC_PATIENCE = seconds(600);
constexpr Duration WARM_UP = seconds(2);
// The load runs in pieces, and what is shown between them.
constexpr Duration PIECE = seconds(2);
constexpr useconds_t LOOK_UP_US = 50'000;

class CatchUpRun {
  public:
    CatchUpRun(Workspace& workspace, const CatchUpOptions& options)
        : workspace_(workspace), options_(options) {}

    Result<Report> run() {
        MORTAR_TRY(start());
        progress_.show("the rate with three brokers");
        MORTAR_TRY(measure(before_, options_.duration));
        MORTAR_TRY(choose_follower());
        brokers_[follower_]->kill();
        MORTAR_TRY(write_without_it());
        MORTAR_TRY(brokers_[follower_]->start_again());
        started_ns_ = now_ns();
        MORTAR_TRY(wait_in_sync());
        return report();
    }

  private:
    Result<void> start() {
        progress_.show("starting three brokers");
        brokers_ =
            MORTAR_TRY(BrokerProcess::start_cluster(workspace_, options_.broker_program, NODES));
        for (const auto& broker : brokers_) {
            MORTAR_TRY(broker->wait_healthy(START_PATIENCE));
            cluster_.addresses.push_back(broker->client_address());
            cluster_.admin_addresses.push_back(broker->admin_address());
        }
        const client::TopicInfo topic =
            MORTAR_TRY(declare_topic(cluster_, TOPIC, options_.partitions));
        LoadPlan plan;
        plan.addresses = cluster_.addresses;
        plan.topic_id = topic.topic_id;
        plan.partition_count = topic.partition_count;
        plan.connections = options_.connections;
        plan.outstanding = options_.outstanding;
        plan.value_bytes = options_.value_bytes;
        load_ = MORTAR_TRY(Load::open(plan));
        Histogram ignored;
        MORTAR_TRY(load_->run(WARM_UP, ignored));
        return wait_all_in_sync();
    }

    Result<void> wait_all_in_sync() {
        const std::int64_t give_up_ns = now_ns() + START_PATIENCE.ns;
        while (true) {
            const Result<LeaderView> view = ask_leader(cluster_);
            bool all = view.ok() && view->followers.size() == NODES - 1;
            for (std::size_t i = 0; all && i < view->followers.size(); ++i)
                all = view->followers[i].is_in_sync;
            if (all) return {};
            if (now_ns() > give_up_ns)
                return make_error(ErrorCode::TIMED_OUT, "the three brokers are not in sync");
            ::usleep(LOOK_UP_US);
        }
    }

    Result<void> measure(Measured& measured, Duration how_long) {
        measured.add(MORTAR_TRY(load_->run(how_long, measured.latency)));
        return {};
    }

    Result<void> choose_follower() {
        const LeaderView view = MORTAR_TRY(ask_leader(cluster_));
        follower_ = view.leader_id.value == 0 ? 1 : 0;
        follower_id_ = NodeId(static_cast<std::uint16_t>(follower_));
        return {};
    }

    Result<void> write_without_it() {
        const std::uint64_t count = options_.size_mib * MIB / options_.value_bytes;
        std::uint64_t left = count;
        while (left > 0) {
            progress_.show(fmt::format("writing {} MiB without node {}: {} %", options_.size_mib,
                                       follower_, (count - left) * 100 / count));
            const std::uint64_t piece = std::min(left, std::max<std::uint64_t>(count / 50, 1));
            const Round round = MORTAR_TRY(load_->run(FILL_PATIENCE, without_.latency, piece));
            without_.add(round);
            left -= std::min(left, round.count);
        }
        return {};
    }

    Result<void> wait_in_sync() {
        while (!in_sync_ms_) {
            const Round round = MORTAR_TRY(load_->run(PIECE, during_.latency, UINT64_MAX,
                                                      [this](std::uint64_t, Duration) { look(); }));
            during_.add(round);
            look();
            if (!in_sync_ms_ && now_ns() - started_ns_ > IN_SYNC_PATIENCE.ns)
                return make_error(ErrorCode::TIMED_OUT, "the follower is not in sync");
        }
        return {};
    }

    void look() {
        const Result<LeaderView> view = ask_leader(cluster_);
        if (!view.ok() || in_sync_ms_) return;
        const auto took_ms = static_cast<std::uint64_t>(Duration{now_ns() - started_ns_}.to_ms());
        slowed_seen_ = slowed_seen_ || view->producers_held_to > 0;
        for (const LeaderView::Follower& follower : view->followers) {
            if (follower.node_id != follower_id_) continue;
            if (follower.is_in_sync) in_sync_ms_ = took_ms;
            progress_.show(fmt::format("node {} is back for {}.{} s, {} records behind", follower_,
                                       took_ms / 1000, took_ms % 1000 / 100, follower.lag_records));
        }
    }

    Report report() {
        Report report;
        const std::uint64_t keeps =
            percent_of(during_.total.per_second(), before_.total.per_second());
        const std::uint64_t backlog = without_.total.count + during_.total.count;
        const std::uint64_t caught_up_per_second =
            backlog * 1000 / std::max<std::uint64_t>(*in_sync_ms_, 1);
        const std::uint64_t ratio = percent_of(caught_up_per_second, during_.total.per_second());
        report.facts.emplace_back("nodes", std::to_string(NODES));
        report.facts.emplace_back("load_average", load_average());
        report.facts.emplace_back("written_mib", std::to_string(options_.size_mib));
        report.facts.emplace_back("producers_were_slowed", slowed_seen_ ? "yes" : "no");
        report.bars.push_back({"in sync again", *in_sync_ms_ <= IN_SYNC_MS_MAX,
                               fmt::format("{}.{:03} s (at most {} s)", *in_sync_ms_ / 1000,
                                           *in_sync_ms_ % 1000, IN_SYNC_MS_MAX / 1000)});
        report.bars.push_back(
            {"producers keep", keeps >= PRODUCERS_PERCENT_MIN,
             fmt::format("{} % of their rate (at least {})", keeps, PRODUCERS_PERCENT_MIN)});
        report.figures.push_back({"in_sync_ms", *in_sync_ms_, {}});
        report.figures.push_back({"producers_percent", keeps, {}});
        report.figures.push_back(
            {"catch_up_over_append_percent", ratio,
             fmt::format("caught up {} messages a second, {} times what was appended",
                         caught_up_per_second, ratio_text(ratio))});
        report.measured.push_back(std::move(before_));
        report.measured.push_back(std::move(without_));
        report.measured.push_back(std::move(during_));
        report.errors = load_->totals().errors;
        return report;
    }

    Workspace& workspace_;
    const CatchUpOptions& options_;
    Progress progress_;
    std::vector<std::unique_ptr<BrokerProcess>> brokers_;
    Cluster cluster_;
    std::unique_ptr<Load> load_;
    std::size_t follower_ = 0;
    NodeId follower_id_;
    std::int64_t started_ns_ = 0;
    std::optional<std::uint64_t> in_sync_ms_;
    bool slowed_seen_ = false;
    Measured before_{"all three", {}, {}};
    Measured without_{"one away", {}, {}};
    Measured during_{"catching up", {}, {}};
};

}  // namespace

Result<Report> catch_up(Workspace& workspace, const CatchUpOptions& options) {
    return CatchUpRun(workspace, options).run();
}

}  // namespace mortar::bench
