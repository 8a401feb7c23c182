#include "sim/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>

#include "core/base/assert.h"
#include "nemesis/nemesis.h"
#include "sim/broker_node.h"
#include "sim/disk_watch.h"
#include "sim/log_views.h"
#include "sim/params.h"
#include "sim/tap.h"
#include "sim/workload.h"

namespace mortar::sim {
namespace {

constexpr Duration SETUP = seconds(1);  // the operator's work before the first start
constexpr Duration VIEW_EVERY = milliseconds(250);
constexpr Duration REPLICA_VIEW_EVERY = milliseconds(5);  // leases overlap for longer, or hardly
constexpr Duration HEALED_SERVICE_WITHIN = seconds(30);   // PUB works again
constexpr Duration DRAIN_WITHIN =
    seconds(150);  // groups settle everything; backoff alone may take 30 s
constexpr Duration LEAVE_WITHIN = seconds(30);
constexpr Duration STOP_WITHIN = seconds(30);
constexpr Duration CATCH_UP_WITHIN = seconds(60);
constexpr Duration SUPERVISOR_WAITS = seconds(1);
constexpr Duration FIRST_FAULT_AFTER = milliseconds(300);
constexpr Duration WALL_JUMP_MAX = seconds(24 * 3600);
constexpr std::size_t STORY_LINES_MAX = 60;
constexpr std::uint64_t STEPS_MAX =
    20'000'000;  // a broker; a run that never ends is a harness fault

// MORTAR_SOMETIMES and MORTAR_ASSERT reach the run through these; one run at a time in a process.
struct Current {
    std::map<std::string, std::uint64_t>* rare = nullptr;
    const SimWorld* world = nullptr;
    std::uint64_t seed = 0;
};
Current g_current;

void count_rare(const char* name) {
    if (g_current.rare != nullptr) ++(*g_current.rare)[name];
}
void assert_context(char* text, unsigned long size) {
    std::snprintf(
        text, size, "seed %llu at %lld us", static_cast<unsigned long long>(g_current.seed),
        g_current.world == nullptr ? 0LL
                                   : static_cast<long long>(g_current.world->now().ns / 1000));
}

class Run {
  public:
    Run(const RunOptions& options, StackPool& stacks)
        : options_(options),
          params_(options.seed, options.pins),
          world_(options.seed, stacks),
          faults_end_(MonoTime{} + SETUP +
                      seconds(static_cast<std::int64_t>(params_["duration_s"]))),
          violations_([this] { return world_.now(); }),
          brokers_(make_brokers()),
          checkers_(make_checkers(view_, violations_)),
          logs_(view_, brokers_, checkers_),
          tap_(checkers_),
          workload_(world_, params_, faults_end_),
          faults_(world_, fault_control()) {
        g_current = {&report_.rare, &world_, options.seed};
        set_sometimes_hook(count_rare);
        set_assert_context(assert_context);
        if (!is_cluster()) return;
        for (auto& checker : make_replica_checkers(view_, violations_))
            checkers_.push_back(std::move(checker));
    }
    ~Run() {
        for (const auto& broker : brokers_) {
            if (broker->node().alive()) broker->node().kill();
            broker->drop_broker();
        }
        set_sometimes_hook(nullptr);
        set_assert_context(nullptr);
        g_current = {};
    }

    RunReport go() {
        prepare();
        for (const auto& broker : brokers_)
            start(*broker);
        workload_.start();
        plan_the_faults();
        run_while([this] { return world_.now() < faults_end_; }, faults_end_);
        tell("faults end");
        heal_and_drain();
        if (is_cluster() && !violations_.any()) judge_replicas();
        if (!violations_.any()) stop_gracefully();
        if (!violations_.any()) look_for_the_last_time();
        return verdict();
    }

  private:
    bool is_cluster() const { return brokers_.size() > 1; }

    // --- the world
    std::vector<std::unique_ptr<BrokerNode>> make_brokers() {
        const auto count = static_cast<std::size_t>(params_["nodes"]);
        std::vector<std::unique_ptr<BrokerNode>> brokers;
        for (std::size_t i = 0; i < count; ++i) {
            SimNode& node = world_.add_node(broker_name(i, count));
            brokers.push_back(std::make_unique<BrokerNode>(
                node, i, params_,
                [this](BrokerNode& broker, const Result<void>& ended) { on_end(broker, ended); }));
            view_.durable.push_back(brokers.back()->durable_image());
            DiskWatchEvents events;
            events.tell = [this](const std::string& event) { tell(event); };
            events.on_crashed = [this](SimNode& crashed) {
                on_down(crashed);
                faults_.bring_back(crashed, milliseconds(20));
            };
            events.on_rewritten = [this, i](const std::string& path) { on_rewritten(i, path); };
            watches_.push_back(std::make_unique<DiskWatch>(node, options_, report_, violations_,
                                                           std::move(events)));
        }
        return brokers;
    }

    FaultControl fault_control() {
        FaultControl control;
        control.on_down = [this](SimNode& node) { on_down(node); };
        control.on_up = [this](SimNode& node) { on_up(node); };
        control.leader = [this] {
            BrokerNode* leading = leader();
            return leading == nullptr ? nullptr : &leading->node();
        };
        control.restart = [this](SimNode& node) { restart_gracefully(*broker_of(node)); };
        control.on_rot = [this](SimNode& node, const std::string& path) {
            tell(node.name() + " rots: " + path);
            if (const auto key = log_of_path(path))
                view_.rotten.insert({broker_of(node)->index(), *key});
        };
        control.on_wiped = [this](SimNode& node) { broker_of(node)->on_wiped(); };
        for (const auto& broker : brokers_)
            control.brokers.push_back(&broker->node());
        return control;
    }

    BrokerNode* broker_of(const SimNode& node) const {
        for (const auto& broker : brokers_) {
            if (&broker->node() == &node) return broker.get();
        }
        return nullptr;
    }

    void prepare() {
        Rng rng = world_.stream("run", "personality");
        for (const auto& broker : brokers_)
            broker->node().disk().set_speed(DiskSpeed::draw(rng));
        if (options_.log) {
            world_.set_log_sink([this](const SimNode& node, LogLevel, std::string_view line) {
                fmt::print(stderr, "{:>10} {} {}\n", world_.now().ns / 1000, node.name(), line);
            });
        }
        world_.network().set_send_hook(
            [this](const SendInfo& send, ByteSpan bytes) { on_send(send, bytes); });
        for (const auto& broker : brokers_)
            broker->install();
        world_.run_for(SETUP);
        for (std::size_t i = 0; i < watches_.size(); ++i)
            watches_[i]->start(i == options_.crash.broker);
        workload_.set_on_death([this](SimNode& node, Duration back_after) {
            on_down(node);
            faults_.bring_back(node, back_after);
        });
        schedule_view();
        Rng jumps = world_.stream("run", "wall_jumps");
        for (std::uint64_t i = 0; i < params_["wall_jumps"]; ++i) {
            const std::int64_t at_ms = jumps.between(SETUP.to_ms(), faults_end_.ns / 1'000'000);
            const Duration offset =
                milliseconds(jumps.between(-WALL_JUMP_MAX.to_ms(), WALL_JUMP_MAX.to_ms()));
            SimNode& node = brokers_[i % brokers_.size()]->node();
            world_.at(MonoTime{} + milliseconds(at_ms), [this, offset, &node] {
                tell("the wall clock of " + node.name() + " jumps");
                node.clock().set_wall_offset(offset);
            });
        }
        Rng restarts = world_.stream("run", "restarts");
        for (std::uint64_t i = 0; i < params_["graceful_restarts"]; ++i) {
            const std::int64_t at_ms =
                restarts.between((SETUP + FIRST_FAULT_AFTER).to_ms(), faults_end_.ns / 1'000'000);
            BrokerNode& broker = *brokers_[i % brokers_.size()];
            world_.at(MonoTime{} + milliseconds(at_ms),
                      [this, &broker] { restart_gracefully(broker); });
        }
    }

    void plan_the_faults() {
        const Result<std::vector<const Nemesis*>> families =
            parse_families(options_.nemesis, options_.seed, brokers_.size());
        MORTAR_ASSERT(families.ok());
        FaultParameters parameters;
        parameters.begin = MonoTime{} + SETUP + FIRST_FAULT_AFTER;
        parameters.end = faults_end_;
        for (const auto& broker : brokers_)
            parameters.brokers.push_back(broker->name());
        for (const SimNode* node : workload_.nodes())
            parameters.clients.push_back(node->name());
        if (is_cluster()) {
            Rng rng = world_.stream("run", "victim");
            parameters.victim =
                brokers_[static_cast<std::size_t>(rng.below(brokers_.size()))]->name();
            schedule_replica_views();
            world_.at(faults_end_, [this] {
                for (const auto& broker : brokers_)
                    broker->node().clock().set_drift_ppm(0);
            });
        }
        for (const Nemesis* family : *families) {
            const std::string_view name = family->name();
            if (name == "wild-clock") view_.clocks_keep_margin = false;
            disks_fail_ = disks_fail_ || name == "fsync-fail" || name == "disk-full" ||
                          name == "bitrot" || name == "wipe";
        }
        faults_.schedule(plan_faults(*families, options_.seed, parameters));
        faults_.schedule(options_.script);
    }

    void on_send(const SendInfo& send, ByteSpan bytes) {
        const bool is_of_broker = broker_of(*send.node) != nullptr;
        if (is_cluster() && is_peer_address(is_of_broker, send)) return;
        if (is_of_broker) {
            if (is_cluster()) view_replicas();
            tap_.on_broker_bytes(send.conn_id, bytes);
        } else {
            tap_.on_client_bytes(send.conn_id, bytes);
        }
        open_connections_.insert(send.conn_id);
    }
    static bool is_peer_address(bool is_of_broker, const SendInfo& send) {
        static const std::string PORT = ":" + std::to_string(PEER_PORT);
        return is_of_broker &&
               (send.local_address.ends_with(PORT) || send.peer_address.ends_with(PORT));
    }

    void on_rewritten(std::size_t broker, const std::string& path) {
        const auto key = log_of_path(path);
        const auto base = base_of_segment(path);
        if (!is_cluster() || !key || !base) return;
        for (auto& checker : checkers_)
            checker->on_log_rewritten(broker, *key, *base);
    }
    template <class While>
    void run_while(While goes_on, MonoTime limit) {
        while (!violations_.any() && goes_on() && world_.now() < limit) {
            if (!world_.step(limit)) {
                world_.run_until(limit);
                break;
            }
            if (world_.step_count() > STEPS_MAX * brokers_.size()) {
                harness_fault_ = "the run does not end";
                return;
            }
        }
    }

    // --- the brokers' lives
    void start(BrokerNode& broker) {
        tell(broker.name() + " starts");
        broker.start();
    }

    void on_end(BrokerNode& broker, const Result<void>& ended) {
        if (ended.ok() && broker.stopping && broker.restart_asked)
            return start_again(broker, milliseconds(5));
        const std::string how =
            ended.ok() ? std::string("without an error") : ended.error().to_string();
        if (disks_fail_ && !(ended.ok() && broker.stopping)) {
            // A supervisor starts again what gave up.
            tell(broker.name() + " stopped: " + how);
            broker.restart_asked = true;
            return start_again(broker, SUPERVISOR_WAITS);
        }
        if (!ended.ok() || !broker.stopping)
            report(13, "the broker serves after every honest crash", "it stopped: " + how);
        broker.stopped = ended;
    }

    // SIGTERM and a new process; nothing when it is down or not up yet.
    void restart_gracefully(BrokerNode& broker) {
        if (!broker.serving || broker.stopping || broker.broker() == nullptr) return;
        tell(broker.name() + " is asked to restart");
        MORTAR_SOMETIMES(true, "graceful restart");
        broker.restart_asked = true;
        broker.stop();
    }
    void start_again(BrokerNode& broker, Duration delay) {
        world_.after(delay, [this, &broker] {
            // A crash may have been faster.
            if (!broker.restart_asked) return;
            broker.node().kill();
            on_down(broker.node());
            faults_.bring_back(broker.node(), milliseconds(5));
        });
    }

    void on_down(SimNode& node) {
        tell(node.name() + " down");
        BrokerNode* broker = broker_of(node);
        if (broker == nullptr) return workload_.on_node_down(node);
        if (office_ && office_->broker == broker) office_.reset();
        went_down_ = true;
        broker->on_down();
        watches_[broker->index()]->on_down();
        for (auto& checker : checkers_)
            checker->on_broker_down();
        end_dead_connections();
    }
    void on_up(SimNode& node) {
        tell(node.name() + " up");
        BrokerNode* broker = broker_of(node);
        if (broker == nullptr) return workload_.on_node_up(node);
        start(*broker);
    }

    // A connection is over once no end can say anything on it.
    void end_dead_connections() {
        const std::vector<std::uint64_t> live = world_.network().connections();
        for (auto at = open_connections_.begin(); at != open_connections_.end();) {
            if (std::binary_search(live.begin(), live.end(), *at)) {
                ++at;
            } else {
                tap_.on_end(*at);
                at = open_connections_.erase(at);
            }
        }
    }

    // --- who leads
    struct Office {
        BrokerNode* broker = nullptr;
        LeaderEpoch leader_epoch;
    };
    bool serving() const { return office_.has_value(); }

    // Of several that think so the newest; a broker that is alone does once the run has seen it serve.
    BrokerNode* leader() const {
        if (!is_cluster()) return brokers_.front()->serving ? brokers_.front().get() : nullptr;
        BrokerNode* newest = nullptr;
        // Who was deposed may not know it yet.
        LeaderEpoch leader_epoch = newest_epoch_;
        for (const auto& broker : brokers_) {
            if (!broker->serving) continue;
            const ReplicaView view = broker->replica_view();
            if (!view.is_leader || view.leader_epoch < leader_epoch) continue;
            newest = broker.get();
            leader_epoch = view.leader_epoch;
        }
        return newest;
    }

    void view_replicas() {
        std::vector<ReplicaView> views;
        for (const auto& broker : brokers_) {
            if (broker->is_ready()) views.push_back(broker->replica_view());
        }
        for (auto& checker : checkers_)
            checker->on_replica_views(views);
    }
    void schedule_replica_views() {
        view_replicas();
        world_.after(REPLICA_VIEW_EVERY, [this] { schedule_replica_views(); });
    }

    // --- views
    void schedule_view() {
        world_.after(VIEW_EVERY, [this] {
            look();
            schedule_view();
        });
    }

    void look() {
        end_dead_connections();
        for (const auto& broker : brokers_) {
            if (!broker->is_ready() || broker->serving) continue;
            broker->serving = true;
            tell(broker->name() + " serves");
        }
        BrokerNode* leading = leader();
        if (leading == nullptr) {
            office_.reset();
            return;
        }
        if (!leading->is_ready()) return;  // it is about to stop
        const LeaderEpoch leader_epoch = leading->replica_view().leader_epoch;
        newest_epoch_ = std::max(newest_epoch_, leader_epoch);
        const bool is_new =
            !office_ || office_->broker != leading || office_->leader_epoch != leader_epoch;
        if (is_new) take_office(*leading, leader_epoch);
        Broker& broker = *leading->broker();
        for (const auto& [group_id, group] : broker.catalog().groups()) {
            GroupView view;
            view.group = group.name;
            view.topic_id = group.topic_id;
            view.start_after = group.start_after;
            view.partitions = broker.delivery()->group_state(group_id);
            if (view.partitions.size() != view.start_after.size())
                continue;  // its SUB is still at work
            for (auto& checker : checkers_)
                checker->on_group_view(view);
        }
    }

    void take_office(BrokerNode& broker, LeaderEpoch leader_epoch) {
        office_ = Office{&broker, leader_epoch};
        if (is_cluster()) {
            MORTAR_SOMETIMES(is_followed_, ELECTED_AGAIN);
            is_followed_ = true;
            tell(fmt::format("{} leads in leader_epoch {}", broker.name(), leader_epoch.value));
            // What the one before had under way may be forgotten, as if it had died.
            for (auto& checker : checkers_)
                checker->on_broker_down();
        }
        for (auto& checker : checkers_)
            checker->on_broker_up();
        logs_.note(*broker.broker());
        logs_.show(broker, broker.cached_image(), leader_epoch);
    }

    // --- the end
    // A broker that ends in good order, to start anew, serves no more: what it shows is not its last word.
    bool is_up() const { return serving() && all_serve() && !office_->broker->restart_asked; }

    void judge_service() {
        run_while([this] { return !is_up(); }, world_.now() + HEALED_SERVICE_WITHIN);
        if (violations_.any()) return;
        judge_liveness(is_up(), "the broker serves within 30 s of the last fault", "it does not");
    }

    void heal_and_drain() {
        judge_service();
        if (violations_.any()) return;
        const MonoTime limit = world_.now() + DRAIN_WITHIN;
        run_while([this] { return !workload_.producers_done(); }, limit);
        if (violations_.any()) return;
        judge_liveness(workload_.producers_done(), "after the last fault every PUB is decided",
                       "producers still wait: " + all_fiber_names());
        run_while([this] { return !drained(); }, limit);
        if (violations_.any()) return;
        judge_liveness(drained(), "after the last fault groups settle everything", drain_state());
        for (const std::string& failure : workload_.failures()) {
            report(13, "clients get through after every honest crash", failure);
        }
        workload_.finish_consumers();
        run_while([this] { return !workload_.consumers_done(); }, world_.now() + LEAVE_WITHIN);
        if (violations_.any()) return;
        judge_liveness(workload_.consumers_done(), "consumers leave within 30 s", "they do not");
    }

    bool drained() {
        BrokerNode* leading = serving() ? leader() : nullptr;
        if (leading == nullptr) return false;
        Broker& broker = *leading->broker();
        for (const auto& [group_id, group] : broker.catalog().groups()) {
            for (const Delivery::PartitionState& state : broker.delivery()->group_state(group_id)) {
                if (state.ack_floor != state.last_seq) return false;
            }
        }
        return true;
    }
    std::string drain_state() {
        BrokerNode* leading = leader();
        if (leading == nullptr) return "nobody leads";
        Broker& broker = *leading->broker();
        std::string text;
        for (const auto& [group_id, group] : broker.catalog().groups()) {
            for (const Delivery::PartitionState& state : broker.delivery()->group_state(group_id)) {
                text += fmt::format("{}/{}: ack_floor {} of {}, in flight {}, waiting {}; ",
                                    group.name, state.partition.value, state.ack_floor.value,
                                    state.last_seq.value, state.in_flight, state.waiting_retry);
            }
        }
        return text;
    }

    // Each broker has its time to catch up; then all copies are compared.
    void judge_replicas() {
        const MonoTime limit = world_.now() + CATCH_UP_WITHIN;
        while (!violations_.any() && world_.now() < limit && !replicas_are_level())
            run_while([] { return true; }, std::min(limit, world_.now() + VIEW_EVERY * 2));
        if (violations_.any()) return;
        judge_liveness(replicas_are_level(), "after the last fault every broker catches up",
                       "it does not: " + logs_.describe());
        if (violations_.any() || !serving()) return;
        view_.rotten.clear();  // all copies are whole again
        logs_.compare();
    }
    // Leaves the leader's last sequences behind.
    bool replicas_are_level() {
        BrokerNode* leading = leader();
        if (leading == nullptr) return false;
        logs_.note(*leading->broker());
        logs_.show(*leading, leading->cached_image(), leading->replica_view().leader_epoch);
        return logs_.are_level();
    }

    // A planned crash may come this late too; then it is asked again in its next life.
    void stop_gracefully() {
        while (!all_stopped() && !violations_.any()) {
            judge_service();
            if (violations_.any()) return;
            look();
            if (!serving()) continue;
            logs_.note(*office_->broker->broker());
            logs_.show(*office_->broker, office_->broker->cached_image(), office_->leader_epoch);
            for (auto& checker : checkers_)
                checker->on_end(logs_.last_sequences(), workload_.groups());
            went_down_ = false;
            for (const auto& broker : brokers_) {
                tell(broker->name() + " is asked to stop");
                broker->stop();
            }
            run_while([this] { return !went_down_ && !all_stopped(); }, world_.now() + STOP_WITHIN);
            if (violations_.any()) continue;
            if (went_down_) {
                // The others come back as well: those that have stopped, and those that are about to.
                for (const auto& broker : brokers_) {
                    if (!broker->node().alive()) continue;
                    broker->restart_asked = true;
                    if (broker->stopped.has_value()) start_again(*broker, milliseconds(5));
                }
                continue;
            }
            judge_liveness(all_stopped(), "a broker that is asked to stop ends", all_fiber_names());
        }
    }
    bool all_stopped() const {
        return std::all_of(brokers_.begin(), brokers_.end(),
                           [](const auto& broker) { return broker->stopped.has_value(); });
    }
    bool all_serve() const {
        return std::all_of(brokers_.begin(), brokers_.end(),
                           [](const auto& broker) { return broker->serving; });
    }

    // Everything is synced now, and nothing is left behind.
    void look_for_the_last_time() {
        for (const auto& broker : brokers_) {
            logs_.show(*broker, broker->durable_image());
            broker->serving = false;
        }
        world_.run_for(seconds(1));
        for (const auto& broker : brokers_) {
            SimNode& node = broker->node();
            const std::size_t sockets = world_.network().open_handles(node);
            judge_bound(node.scheduler().fiber_count() == 0, "fibers " + broker->fiber_names());
            judge_bound(sockets == 0, fmt::format("{} sockets", sockets));
            broker->drop_broker();
            judge_bound(node.disk().open_files() == 0,
                        fmt::format("{} files", node.disk().open_files()));
        }
    }

    std::string all_fiber_names() const {
        std::string text;
        for (const auto& broker : brokers_)
            text += broker->fiber_names();
        return text;
    }

    void judge_liveness(bool kept, const char* promise, const std::string& seen) {
        ++report_.checks[13];
        if (!kept) report(13, promise, seen);
    }
    void judge_bound(bool kept, const std::string& seen) {
        ++report_.checks[12];
        if (!kept) report(12, "a stopped broker leaves nothing behind", seen);
    }
    void report(int checker, const std::string& promise, const std::string& seen) {
        violations_.report(checker, promise, seen);
    }

    void tell(const std::string& event) {
        story_.push_back(fmt::format("{:>12} us  {}\n", world_.now().ns / 1000, event));
        if (story_.size() > STORY_LINES_MAX) story_.pop_front();
    }

    RunReport verdict() {
        report_.seed = options_.seed;
        report_.trace_hash = world_.trace_hash();
        report_.steps = world_.step_count();
        report_.simulated_ms = world_.now().ns / 1'000'000;
        report_.acked_pubs = tap_.acked_pubs();
        report_.acked_messages = tap_.acked_messages();
        report_.disk_operations = watches_[options_.crash.broker]->operation_count();
        report_.faults = faults_.fired();
        report_.parameters = params_.all();
        for (const auto& checker : checkers_)
            report_.checks[checker->number()] += checker->checks();
        report_.violations = violations_.all();
        for (const Fault& fault : faults_.history())
            report_.story += "  fault " + format_fault(fault) + "\n";
        for (const std::string& line : story_)
            report_.story += line;
        if (!harness_fault_.empty()) {
            report_.exit_code = EXIT_HARNESS;
            report_.violations.push_back({0, "a run ends", harness_fault_, world_.now()});
        } else if (violations_.any()) {
            report_.exit_code = EXIT_VIOLATION;
        } else if (report_.acked_pubs == 0 || (!is_cluster() && report_.acked_messages == 0)) {
            report_.exit_code = EXIT_VACUOUS;
        }
        return report_;
    }

    const RunOptions& options_;
    Params params_;
    RunReport report_;
    SimWorld world_;
    MonoTime faults_end_;
    Violations violations_;
    WorldView view_;
    std::vector<std::unique_ptr<DiskWatch>> watches_;  // by broker
    std::vector<std::unique_ptr<BrokerNode>> brokers_;
    std::vector<std::unique_ptr<Checker>> checkers_;
    LogViews logs_;
    Tap tap_;
    Workload workload_;
    FaultRunner faults_;
    std::optional<Office> office_;  // as look() saw it last
    LeaderEpoch newest_epoch_;
    bool disks_fail_ = false;   // a broker may give up, and is started again
    bool is_followed_ = false;  // some broker led already
    bool went_down_ = false;    // a broker, since this was cleared
    std::set<ConnId> open_connections_;
    std::deque<std::string> story_;
    std::string harness_fault_;
};

}  // namespace

RunReport run_seed(const RunOptions& options, StackPool& stacks) {
    return Run(options, stacks).go();
}

}  // namespace mortar::sim
