#include "tools/bench/drive.h"

#include <fmt/format.h>
#include <unistd.h>

#include "io-real/real_rng.h"
#include "tools/bench/broker_process.h"
#include "tools/bench/consumption.h"
#include "tools/bench/stamp.h"

namespace mortar::bench {
namespace {

constexpr Duration START_PATIENCE = seconds(30);
constexpr Duration PROBE_ROUND = milliseconds(300);
// Consumers that got nothing for so long have read all that there is.
constexpr Duration IDLE_PATIENCE = seconds(3);
constexpr Duration LAST_PATIENCE = seconds(30);
constexpr useconds_t LOOK_UP_US = 10'000;
// Messages that are made for `consume` when the topic is new and nobody said how many.
constexpr std::uint64_t FILL_COUNT = 200'000;
constexpr std::size_t FILL_OUTSTANDING = 256;
constexpr Duration FILL_PATIENCE = seconds(3600);
constexpr std::uint64_t HALF = 500;
constexpr std::uint64_t NS_PER_S = 1'000'000'000;

std::uint64_t per_second(std::uint64_t count, Duration elapsed) {
    return Round{count, elapsed}.per_second();
}

class Drive {
  public:
    Drive(Workspace& workspace, const DriveOptions& options)
        : workspace_(workspace),
          options_(options),
          interrupted_(workspace.flag_interrupt()),
          cluster_(options.cluster) {}

    Result<Report> run() {
        if (cluster_.addresses.empty()) MORTAR_TRY(start_brokers());
        topic_ = MORTAR_TRY(find_or_declare());
        Rng rng = RealRng().stream("bench.drive");
        run_id_ = rng.next() | 1;
        group_ = fmt::format("{}.{:016x}", "bench", run_id_);
        Result<void> measured = measure();
        progress_.show("tidying up");
        Result<void> tidied = tidy_up();
        MORTAR_TRY(std::move(measured));
        MORTAR_TRY(std::move(tidied));
        return std::move(report_);
    }

  private:
    Result<void> start_brokers() {
        progress_.show("starting the broker");
        brokers_ = MORTAR_TRY(
            BrokerProcess::start_cluster(workspace_, options_.broker_program, options_.node_count));
        for (const auto& broker : brokers_) {
            MORTAR_TRY(broker->wait_healthy(START_PATIENCE));
            cluster_.addresses.push_back(broker->client_address());
            cluster_.admin_addresses.push_back(broker->admin_address());
        }
        return {};
    }

    // The count of an existing topic must be the wanted one, or the result would bear a wrong name.
    Result<client::TopicInfo> find_or_declare() {
        Result<client::TopicInfo> found = find_topic(cluster_, options_.topic);
        if (found.is(ErrorCode::UNKNOWN_TOPIC)) {
            is_ours_ = true;
            return declare_topic(cluster_, options_.topic, options_.partitions);
        }
        if (found.ok() && found->partition_count != options_.partitions) {
            return make_error(
                ErrorCode::TOPIC_EXISTS_MISMATCH,
                fmt::format("{} has {} partitions, not {}: give --partitions, or "
                            "another --topic",
                            options_.topic, found->partition_count, options_.partitions));
        }
        return found;
    }

    // Brokers of our own vanish with all they have.
    Result<void> tidy_up() {
        if (!brokers_.empty()) return {};
        if (is_ours_ && !options_.keep) return drop_topic(cluster_, options_.topic);
        if (options_.mode == DriveMode::PRODUCE) return {};
        const Result<void> dropped = drop_group(cluster_, group_);
        // It never came to be when the run ended early.
        return dropped.is(ErrorCode::UNKNOWN_TOPIC) ? Result<void>() : dropped;
    }

    Result<void> measure() {
        switch (options_.mode) {
            case DriveMode::PRODUCE:
                return produce();
            case DriveMode::CONSUME:
                return consume();
            case DriveMode::END_TO_END:
                return end_to_end();
        }
        MORTAR_UNREACHABLE();
    }

    LoadPlan load_plan() const {
        LoadPlan plan;
        plan.addresses = cluster_.addresses;
        plan.token = cluster_.token;
        plan.topic_id = topic_.topic_id;
        plan.partition_count = topic_.partition_count;
        plan.connections = options_.connections;
        plan.outstanding = options_.outstanding;
        plan.value_bytes = options_.value_bytes;
        plan.per_second = options_.per_second;
        plan.interrupted = &interrupted_;
        return plan;
    }

    std::uint64_t count_max() const { return options_.count == 0 ? UINT64_MAX : options_.count; }

    Load::OnTick show_progress(const char* what) {
        if (!progress_.is_shown()) return nullptr;
        return [this, what](std::uint64_t count, Duration elapsed) {
            progress_.show(fmt::format("{}: {:.1f} s, {} messages, {} a second", what,
                                       static_cast<double>(elapsed.ns) / NS_PER_S, count,
                                       per_second(count, elapsed)));
        };
    }

    Result<void> warm_up(Load& load) {
        progress_.show("warming up");
        Histogram ignored;
        if (options_.warm_up.ns > 0) MORTAR_TRY(load.run(options_.warm_up, ignored));
        return {};
    }

    // --- produce

    Result<void> produce() {
        const auto load = MORTAR_TRY(Load::open(load_plan()));
        std::unique_ptr<DiskProbes> probe;
        if (options_.probe_writers > 0) {
            probe = MORTAR_TRY(DiskProbes::create(workspace_.path() + "/probe",
                                                  options_.probe_writers, options_.value_bytes));
        }
        MORTAR_TRY(warm_up(*load));
        const LoadTotals before = load->totals();
        const std::optional<LogCounts> log_before = count_log_if_told();
        Measured produced{fmt::format("produce {}", shape_name()), {}, {}};
        Measured probed{fmt::format("probe {} writer{}", options_.probe_writers,
                                    options_.probe_writers == 1 ? "" : "s"),
                        {},
                        {}};
        if (probe == nullptr) {
            produced.add(MORTAR_TRY(load->run(options_.duration, produced.latency, count_max(),
                                              show_progress("produce"))));
        } else {
            MORTAR_TRY(alternate(*load, *probe, produced, probed));
        }
        describe(options_.per_second > 0 ? "open loop" : "closed loop");
        add_load_figures(produced, before, load->totals());
        add_sync_figures(log_before, produced);
        if (probe != nullptr) add_probe_figures(produced, probed);
        report_.measured.push_back(std::move(produced));
        if (probe != nullptr) report_.measured.push_back(std::move(probed));
        return {};
    }

    Result<void> alternate(Load& load, DiskProbes& probe, Measured& produced, Measured& probed) {
        Duration left = options_.duration;
        std::uint64_t count_left = count_max();
        while (left.ns > 0 && count_left > 0) {
            const Duration round = std::min(left, PROBE_ROUND);
            progress_.show(fmt::format("produce and probe by turns: {:.1f} s left",
                                       static_cast<double>(left.ns) / NS_PER_S));
            const Round done = MORTAR_TRY(load.run(round, produced.latency, count_left));
            produced.add(done);
            probed.add(MORTAR_TRY(probe.run(round, probed.latency)));
            left = left - round;
            if (options_.count > 0) count_left = options_.count - produced.latency.count();
        }
        return {};
    }

    void add_load_figures(const Measured& produced, const LoadTotals& before,
                          const LoadTotals& after) {
        constexpr std::array<const char*, 3> NAMES{"LOCAL", "QUORUM", "MIN_ISR"};
        std::string classes;
        for (std::size_t i = 0; i < NAMES.size(); ++i) {
            const std::uint64_t count = after.oks_by_durability[i] - before.oks_by_durability[i];
            if (count == 0) continue;
            classes += (classes.empty() ? "" : "+") + std::string(NAMES[i]);
        }
        report_.facts.emplace_back("ack_class", classes.empty() ? "none" : classes);
        const auto add = [this](const char* name, std::uint64_t value, const std::string& text) {
            report_.figures.push_back({name, value, value == 0 ? "" : text});
        };
        if (options_.per_second > 0) {
            report_.figures.push_back(
                {"intended_per_second", options_.per_second,
                 fmt::format("intended rate: {} a second, reached: {}", options_.per_second,
                             produced.total.per_second())});
        }
        add("resent", after.resent, fmt::format("sent again: {}", after.resent));
        add("reconnects", after.reconnects, fmt::format("reconnects: {}", after.reconnects));
        add("abandoned", after.abandoned,
            fmt::format("never sent, since the rate was not reached: {}", after.abandoned));
        report_.errors = after.errors;
    }

    // Without an admin server nobody can tell.
    std::optional<LogCounts> count_log_if_told() const {
        const Result<LogCounts> counts = count_log(cluster_, options_.topic);
        if (!counts.ok()) return std::nullopt;
        return *counts;
    }

    void add_sync_figures(const std::optional<LogCounts>& before, const Measured& produced) {
        const std::optional<LogCounts> after =
            before.has_value() ? count_log_if_told() : std::nullopt;
        if (!after.has_value() || after->syncs < before->syncs) {
            report_.figures.push_back(
                {"syncs_known", 0,
                 cluster_.admin_addresses.empty()
                     ? "syncs: unknown; give the admin servers with --admin"
                     : "syncs: unknown; the leader changed, or its admin server does not answer"});
            return;
        }
        const std::uint64_t syncs = after->syncs - before->syncs;
        const std::uint64_t rate = per_second(syncs, produced.total.elapsed);
        const std::uint64_t batch = percent_of(produced.latency.count(), syncs);
        report_.figures.push_back({"syncs_known", 1, {}});
        report_.figures.push_back(
            {"syncs_per_second", rate,
             fmt::format("syncs of the leader's log: {} a second, {} messages a sync", rate,
                         ratio_text(batch))});
        report_.figures.push_back({"messages_per_sync_percent", batch, {}});
    }

    void add_probe_figures(const Measured& produced, const Measured& probed) {
        const std::uint64_t latency =
            percent_of(produced.latency.percentile_ns(HALF), probed.latency.percentile_ns(HALF));
        const std::uint64_t rate =
            percent_of(produced.total.per_second(), probed.total.per_second());
        report_.figures.push_back({"p50_over_probe_percent", latency,
                                   fmt::format("p50 over the probe's: {}", ratio_text(latency))});
        report_.figures.push_back(
            {"messages_per_probe_sync_percent", rate,
             fmt::format("messages for each sync of the probe: {}", ratio_text(rate))});
    }

    // --- consume

    ConsumptionPlan consumption_plan() const {
        ConsumptionPlan plan;
        plan.cluster = cluster_;
        plan.topic = options_.topic;
        plan.group = group_;
        plan.consumers = options_.consumers;
        plan.outstanding = options_.outstanding;
        return plan;
    }

    Result<void> consume() {
        if (is_ours_) MORTAR_TRY(fill());
        const auto consumption = MORTAR_TRY(Consumption::start(consumption_plan()));
        // Who wants an exact number wants the first ones too.
        if (options_.count > 0) consumption->count_from(now_ns());
        MORTAR_TRY(wait_subscribed(*consumption));
        MORTAR_TRY(
            watch(*consumption, options_.count == 0 ? options_.warm_up : Duration{}, UINT64_MAX));
        if (options_.count == 0) consumption->count_from(now_ns());
        MORTAR_TRY(watch(*consumption, options_.duration, count_max()));
        Consumed consumed = MORTAR_TRY(consumption->stop());
        describe("closed loop");
        add_consumed(std::move(consumed));
        return {};
    }

    Result<void> fill() {
        LoadPlan plan = load_plan();
        plan.per_second = 0;
        plan.connections = topic_.partition_count;
        plan.outstanding = FILL_OUTSTANDING;
        const auto load = MORTAR_TRY(Load::open(plan));
        Histogram ignored;
        MORTAR_TRY(load->run(FILL_PATIENCE, ignored,
                             options_.count == 0 ? FILL_COUNT : options_.count,
                             show_progress("filling the topic")));
        return {};
    }

    Result<void> wait_subscribed(const Consumption& consumption) {
        const std::int64_t give_up_ns = now_ns() + LAST_PATIENCE.ns;
        while (!consumption.is_subscribed() && !consumption.has_failed()) {
            MORTAR_TRY(check_interrupt());
            if (now_ns() > give_up_ns)
                return make_error(ErrorCode::TIMED_OUT, "the consumers do not get into the group");
            ::usleep(LOOK_UP_US);
        }
        return {};
    }

    // Until the time is over, so many that count are acknowledged, or nothing more comes.
    Result<void> watch(const Consumption& consumption, Duration how_long, std::uint64_t count) {
        const Load::OnTick show = show_progress("consume");
        const std::int64_t began = now_ns();
        const std::uint64_t before = consumption.acked_count();
        std::uint64_t seen = before;
        std::int64_t seen_ns = began;
        for (std::int64_t now = began; now - began < how_long.ns; now = now_ns()) {
            MORTAR_TRY(check_interrupt());
            const std::uint64_t acked = consumption.acked_count();
            if (acked != seen) seen_ns = now;
            seen = acked;
            if (consumption.counted_count() >= count || consumption.has_failed() ||
                now - seen_ns > IDLE_PATIENCE.ns)
                break;
            if (show) show(acked - before, Duration{now - began});
            ::usleep(LOOK_UP_US);
        }
        return {};
    }

    void add_consumed(Consumed consumed) {
        for (const auto& [code, count] : consumed.errors)
            report_.errors[code] += count;
        report_.figures.push_back(
            {"redelivered", consumed.redelivered,
             consumed.redelivered == 0
                 ? std::string()
                 : fmt::format("delivered more than once: {}", consumed.redelivered)});
        report_.measured.push_back(
            {fmt::format("consume {}x{}: ack", options_.consumers, options_.outstanding),
             std::move(consumed.ack), consumed.total});
    }

    // --- both at once

    Result<void> end_to_end() {
        LoadPlan plan = load_plan();
        plan.run_id = run_id_;
        ConsumptionPlan consumption = consumption_plan();
        consumption.run_id = run_id_;
        consumption.start_policy = wire::StartPolicy::LATEST;
        const auto consuming = MORTAR_TRY(Consumption::start(consumption));
        MORTAR_TRY(wait_subscribed(*consuming));
        const auto load = MORTAR_TRY(Load::open(plan));
        MORTAR_TRY(warm_up(*load));
        const LoadTotals before = load->totals();
        const std::optional<LogCounts> log_before = count_log_if_told();
        consuming->count_from(now_ns());
        Measured produced{fmt::format("produce {}", shape_name()), {}, {}};
        produced.add(MORTAR_TRY(load->run(options_.duration, produced.latency, count_max(),
                                          show_progress("produce and consume"))));
        add_load_figures(produced, before, load->totals());
        add_sync_figures(log_before, produced);
        const std::uint64_t sent = produced.latency.count() - load->totals().abandoned;
        MORTAR_TRY(watch(*consuming, LAST_PATIENCE, sent));
        Consumed consumed = MORTAR_TRY(consuming->stop());
        if (consumed.ack.count() < sent) {
            return make_error(ErrorCode::TIMED_OUT,
                              fmt::format("only {} of {} messages came to the consumers",
                                          consumed.ack.count(), sent));
        }
        describe(options_.per_second > 0 ? "open loop" : "closed loop");
        report_.measured.push_back(std::move(produced));
        report_.measured.push_back({"end to end", std::move(consumed.end_to_end), consumed.total});
        add_consumed(std::move(consumed));
        return {};
    }

    // --- what all share

    Result<void> check_interrupt() const {
        if (interrupted_) return make_error(ErrorCode::CANCELLED, "interrupted");
        return {};
    }

    std::string shape_name() const {
        return fmt::format("{}x{}", options_.connections, options_.outstanding);
    }

    void describe(const char* loop) {
        const std::string nodes = brokers_.empty()
                                      ? fmt::format("{}", fmt::join(cluster_.addresses, " "))
                                      : fmt::format("{} of our own", brokers_.size());
        report_.facts.emplace_back(
            "shape", options_.mode == DriveMode::CONSUME
                         ? fmt::format("{}x{}", options_.consumers, options_.outstanding)
                         : shape_name());
        report_.facts.emplace_back("loop", loop);
        report_.facts.emplace_back("brokers", nodes);
        report_.figures.push_back({"partitions", topic_.partition_count, {}});
        report_.figures.push_back({"value_bytes", options_.value_bytes, {}});
    }

    Workspace& workspace_;
    const DriveOptions& options_;
    const std::atomic<bool>& interrupted_;
    Progress progress_;
    Cluster cluster_;
    std::vector<std::unique_ptr<BrokerProcess>> brokers_;
    client::TopicInfo topic_;
    bool is_ours_ = false;
    std::uint64_t run_id_ = 0;
    std::string group_;
    Report report_;
};

}  // namespace

Result<Report> drive(Workspace& workspace, const DriveOptions& options) {
    return Drive(workspace, options).run();
}

}  // namespace mortar::bench
