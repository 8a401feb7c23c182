#include "tools/bench/cluster_speed.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>

#include "tools/bench/broker_process.h"
#include "tools/bench/drive.h"

namespace mortar::bench {
namespace {

constexpr Duration START_PATIENCE = seconds(60);
constexpr Duration FILL_PATIENCE = seconds(60);
// After many topics came or went: files are still made, grown and deleted in the background.
constexpr Duration SETTLE = seconds(3);
constexpr Duration DELETE_PATIENCE = seconds(120);
constexpr useconds_t LOOK_UP_US = 20'000;
constexpr std::size_t CYCLES = 2;
constexpr std::uint64_t HALF = 500;
constexpr const char* IDLE_TOPIC = "idle";

std::uint64_t median(std::vector<std::uint64_t> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

// What the three shapes and the two probes did in all phases of a kind.
struct Phase {
    explicit Phase(const std::string& suffix) {
        for (std::size_t i = 0; i < SHAPES.size(); ++i)
            shapes[i].name = fmt::format("pub {}{}", SHAPES[i].name, suffix);
        single_probe.name = "probe 1 writer" + suffix;
        node_probe.name = "probe, all nodes" + suffix;
    }

    struct Turn {
        Round round;
        Histogram latency;
    };
    // The turns of the shapes and of the probes in one round: what else the machine does hits them alike, so each round has
    // its own figures.
    void add(const std::array<Turn, SHAPES.size()>& shape_turns, const Turn& single,
             const Turn& node) {
        for (std::size_t i = 0; i < shapes.size(); ++i)
            add_turn(shapes[i], shape_turns[i]);
        add_turn(single_probe, single);
        add_turn(node_probe, node);
        figures_of_rounds[0].push_back(percent_of(shape_turns[0].latency.percentile_ns(HALF),
                                                  node.latency.percentile_ns(HALF)));
        for (std::size_t i = 1; i < shapes.size(); ++i) {
            figures_of_rounds[i].push_back(
                percent_of(shape_turns[i].round.per_second(), single.round.per_second()));
        }
    }
    static void add_turn(Measured& measured, const Turn& turn) {
        measured.add(turn.round);
        measured.latency.add(turn.latency);
    }

    // In percent, the medians of the rounds: p50 of 1x1 over the probe's; messages of 1x256 and 16x16 for each sync of a
    // single writer.
    std::array<std::uint64_t, SHAPES.size()> figures() const {
        return {median(figures_of_rounds[0]), median(figures_of_rounds[1]),
                median(figures_of_rounds[2])};
    }

    std::array<Measured, SHAPES.size()> shapes;
    Measured single_probe;
    Measured node_probe;
    std::array<std::vector<std::uint64_t>, SHAPES.size()> figures_of_rounds;
};

class ClusterSpeed {
  public:
    ClusterSpeed(Workspace& workspace, const ClusterSpeedOptions& options)
        : workspace_(workspace), options_(options) {}

    Result<Report> run() {
        load_average_ = load_average();
        MORTAR_TRY(start());
        for (std::size_t cycle = 1; cycle <= CYCLES; ++cycle) {
            MORTAR_TRY(measure(plain_, fmt::format("phase {} of {}", 2 * cycle - 1, 2 * CYCLES)));
            if (options_.idle_partitions == 0) continue;
            MORTAR_TRY(make_idle_partitions());
            MORTAR_TRY(measure(crowded_, fmt::format("phase {} of {}", 2 * cycle, 2 * CYCLES)));
            MORTAR_TRY(remove_idle_partitions());
        }
        return report();
    }

  private:
    Result<void> start() {
        progress_.show(fmt::format("starting {} broker(s)", options_.node_count));
        const std::string probe = workspace_.path() + "/probe";
        single_probe_ = MORTAR_TRY(DiskProbes::create(probe + "-single", 1, options_.value_bytes));
        node_probe_ = MORTAR_TRY(
            DiskProbes::create(probe + "-node", options_.node_count, options_.value_bytes));
        brokers_ = MORTAR_TRY(
            BrokerProcess::start_cluster(workspace_, options_.broker_program, options_.node_count));
        for (const auto& broker : brokers_) {
            MORTAR_TRY(broker->wait_healthy(START_PATIENCE));
            cluster_.addresses.push_back(broker->client_address());
        }
        for (std::size_t i = 0; i < SHAPES.size(); ++i) {
            const Shape& shape = SHAPES[i];
            const client::TopicInfo topic = MORTAR_TRY(
                declare_topic(cluster_, fmt::format("shape-{}", shape.name), shape.partitions));
            LoadPlan plan = plan_for(topic);
            plan.connections = shape.connections;
            plan.outstanding = shape.outstanding;
            loads_[i] = MORTAR_TRY(Load::open(plan));
            Histogram ignored;
            MORTAR_TRY(loads_[i]->run(options_.round, ignored));  // warm-up
        }
        return {};
    }

    LoadPlan plan_for(const client::TopicInfo& topic) const {
        LoadPlan plan;
        plan.addresses = cluster_.addresses;
        plan.topic_id = topic.topic_id;
        plan.partition_count = topic.partition_count;
        plan.value_bytes = options_.value_bytes;
        return plan;
    }

    Result<void> measure(Phase& phase, const std::string& title) {
        for (std::size_t round = 1; round <= options_.rounds; ++round) {
            progress_.show(fmt::format("{}: round {} of {}", title, round, options_.rounds));
            std::array<Phase::Turn, SHAPES.size()> shapes;
            Phase::Turn single;
            Phase::Turn node;
            for (std::size_t i = 0; i < loads_.size(); ++i)
                shapes[i].round = MORTAR_TRY(loads_[i]->run(options_.round, shapes[i].latency));
            single.round = MORTAR_TRY(single_probe_->run(options_.round, single.latency));
            node.round = MORTAR_TRY(node_probe_->run(options_.round, node.latency));
            phase.add(shapes, single, node);
        }
        return {};
    }

    Result<void> make_idle_partitions() {
        progress_.show(fmt::format("making {} idle partitions", options_.idle_partitions));
        const client::TopicInfo topic = MORTAR_TRY(declare_topic(
            cluster_, IDLE_TOPIC, static_cast<std::uint16_t>(options_.idle_partitions)));
        idle_topic_id_ = topic.topic_id;
        LoadPlan plan = plan_for(topic);
        plan.spreads = true;
        const auto load = MORTAR_TRY(Load::open(plan));
        Histogram ignored;
        MORTAR_TRY(load->run(FILL_PATIENCE, ignored, options_.idle_partitions));
        ::usleep(static_cast<useconds_t>(SETTLE.to_us()));
        return {};
    }

    // Their files go in the background: until none is left, nothing else is measured.
    Result<void> remove_idle_partitions() {
        progress_.show("deleting the idle partitions");
        MORTAR_TRY(drop_topic(cluster_, IDLE_TOPIC));
        const std::int64_t give_up_ns = now_ns() + DELETE_PATIENCE.ns;
        for (const auto& broker : brokers_) {
            const std::string folder =
                fmt::format("{}/topics/{}", broker->data_dir(), idle_topic_id_.value);
            std::error_code ignored;
            while (std::filesystem::exists(folder, ignored)) {
                if (now_ns() > give_up_ns)
                    return make_error(ErrorCode::TIMED_OUT, folder + " is not deleted");
                ::usleep(LOOK_UP_US);
            }
        }
        ::usleep(static_cast<useconds_t>(SETTLE.to_us()));
        return {};
    }

    Report report() {
        Report report;
        const auto figures = plain_.figures();
        report.facts.emplace_back("nodes", std::to_string(options_.node_count));
        report.facts.emplace_back("load_average", load_average_);
        report.facts.emplace_back(
            "ack_class",
            loads_[0]->last_result().durability == wire::Durability::LOCAL ? "LOCAL" : "QUORUM");
        report.bars.push_back({"p50 of 1x1 over the probe's",
                               figures[0] <= SINGLE_OVER_PROBE_PERCENT_MAX,
                               fmt::format("{} (at most {})", ratio_text(figures[0]),
                                           ratio_text(SINGLE_OVER_PROBE_PERCENT_MAX))});
        for (std::size_t i = 1; i < SHAPES.size(); ++i) {
            report.bars.push_back(
                {fmt::format("messages of {} for each sync of the probe", SHAPES[i].name),
                 figures[i] >= CLUSTER_BATCH_OVER_PROBE_MIN * 100,
                 fmt::format("{} (at least {})", ratio_text(figures[i]),
                             CLUSTER_BATCH_OVER_PROBE_MIN)});
        }
        if (options_.idle_partitions > 0) add_idle_bars(report);
        for (std::size_t i = 0; i < SHAPES.size(); ++i)
            report.figures.push_back(
                {fmt::format("{}_over_probe_percent", SHAPES[i].name), figures[i], {}});
        add_measured(report, plain_);
        if (options_.idle_partitions > 0) add_measured(report, crowded_);
        for (const auto& load : loads_) {
            for (const auto& [code, count] : load->totals().errors)
                report.errors[code] += count;
        }
        return report;
    }

    void add_idle_bars(Report& report) const {
        const auto plain = plain_.figures();
        const auto crowded = crowded_.figures();
        for (std::size_t i = 0; i < SHAPES.size(); ++i) {
            // A latency gets worse upwards, a rate downwards.
            const std::uint64_t effect =
                i == 0 ? percent_of(crowded[i], plain[i]) : percent_of(plain[i], crowded[i]);
            report.bars.push_back(
                {fmt::format("{} with {} idle partitions", SHAPES[i].name,
                             options_.idle_partitions),
                 effect <= 100 + IDLE_EFFECT_PERCENT_MAX,
                 fmt::format("{} instead of {}: {} times as bad (at most {})",
                             ratio_text(crowded[i]), ratio_text(plain[i]), ratio_text(effect),
                             ratio_text(100 + IDLE_EFFECT_PERCENT_MAX))});
            report.figures.push_back(
                {fmt::format("{}_idle_effect_percent", SHAPES[i].name), effect, {}});
        }
    }

    void add_measured(Report& report, Phase& phase) const {
        for (Measured& shape : phase.shapes)
            report.measured.push_back(std::move(shape));
        report.measured.push_back(std::move(phase.single_probe));
        report.measured.push_back(std::move(phase.node_probe));
    }

    Workspace& workspace_;
    const ClusterSpeedOptions& options_;
    Progress progress_;
    std::unique_ptr<DiskProbes> single_probe_;
    std::unique_ptr<DiskProbes> node_probe_;
    std::vector<std::unique_ptr<BrokerProcess>> brokers_;
    Cluster cluster_;
    TopicId idle_topic_id_;
    std::string load_average_;
    std::array<std::unique_ptr<Load>, SHAPES.size()> loads_;
    Phase plain_{""};
    Phase crowded_{", crowd"};
};

}  // namespace

Result<Report> cluster_speed(Workspace& workspace, const ClusterSpeedOptions& options) {
    return ClusterSpeed(workspace, options).run();
}

}  // namespace mortar::bench
