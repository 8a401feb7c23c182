#include "sim/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <set>

#include "core/base/assert.h"
#include "core/base/hash.h"
#include "core/broker.h"
#include "core/log/whole_file.h"
#include "nemesis/nemesis.h"
#include "sim/params.h"
#include "sim/tap.h"
#include "sim/workload.h"

namespace mortar::sim {
namespace {

constexpr Duration SETUP = seconds(1);  // the operator's work before the first start
constexpr Duration VIEW_EVERY = milliseconds(250);
constexpr Duration HEALED_SERVICE_WITHIN = seconds(30);  // PUB works again
constexpr Duration DRAIN_WITHIN =
    seconds(150);  // groups settle everything; backoff alone may take 30 s
constexpr Duration LEAVE_WITHIN = seconds(30);
constexpr Duration STOP_WITHIN = seconds(30);
constexpr Duration FIRST_FAULT_AFTER = milliseconds(300);
constexpr Duration WALL_JUMP_MAX = seconds(24 * 3600);
constexpr std::size_t STORY_LINES_MAX = 60;
constexpr std::uint64_t WHOLE_FILE_BYTES_MAX = 1u << 24;
constexpr std::uint64_t STEPS_MAX = 20'000'000;  // a run that never ends is a harness fault

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
          broker_node_(world_.add_node("broker")),
          faults_end_(MonoTime{} + SETUP +
                      seconds(static_cast<std::int64_t>(params_["duration_s"]))),
          violations_([this] { return world_.now(); }),
          view_{durable_image()},
          checkers_(make_checkers(view_, violations_)),
          tap_(checkers_),
          workload_(world_, params_, faults_end_),
          faults_(world_, {[this](SimNode& node) { on_down(node); },
                           [this](SimNode& node) { on_up(node); }}) {
        g_current = {&report_.rare, &world_, options.seed};
        set_sometimes_hook(count_rare);
        set_assert_context(assert_context);
    }
    ~Run() {
        if (broker_node_.alive()) broker_node_.kill();
        broker_.reset();
        set_sometimes_hook(nullptr);
        set_assert_context(nullptr);
        g_current = {};
    }

    RunReport go() {
        prepare();
        start_broker();
        workload_.start();
        const Result<std::vector<const Nemesis*>> families =
            parse_families(options_.nemesis, options_.seed);
        MORTAR_ASSERT(families.ok());
        FaultParameters parameters;
        parameters.begin = MonoTime{} + SETUP + FIRST_FAULT_AFTER;
        parameters.end = faults_end_;
        parameters.brokers = {broker_node_.name()};
        for (const SimNode* node : workload_.nodes())
            parameters.clients.push_back(node->name());
        faults_.schedule(plan_faults(*families, options_.seed, parameters));

        run_while([this] { return world_.now() < faults_end_; }, faults_end_);
        tell("faults end");
        heal_and_drain();
        if (!violations_.any()) stop_gracefully();
        if (!violations_.any()) look_for_the_last_time();
        return verdict();
    }

  private:
    // --- the world
    void prepare() {
        Rng rng = world_.stream("run", "personality");
        broker_node_.disk().set_speed(DiskSpeed::draw(rng));
        if (options_.log) {
            world_.set_log_sink([this](const SimNode& node, LogLevel, std::string_view line) {
                fmt::print(stderr, "{:>10} {} {}\n", world_.now().ns / 1000, node.name(), line);
            });
        }
        world_.network().set_send_hook([this](const SendInfo& send, ByteSpan bytes) {
            if (send.node == &broker_node_) {
                tap_.on_broker_bytes(send.conn_id, bytes);
            } else {
                tap_.on_client_bytes(send.conn_id, bytes);
            }
            open_connections_.insert(send.conn_id);
        });
        broker_node_.scheduler().spawn("operator", [this](Fiber& fiber) {
            const Result<void> installed = install_token(fiber);
            MORTAR_ASSERT(installed.ok());
        });
        world_.run_for(SETUP);
        setup_operations_ = broker_node_.disk().operation_count();
        broker_node_.disk().set_operation_hook(
            [this](OperationPoint point, const DiskOperation& operation) {
                on_disk_operation(point, operation);
            });
        if (!options_.drop_sync.empty()) {
            broker_node_.disk().faults().drop_sync = [this](const SyncCall& call) {
                return sync_site(call.op, call.path, call.fiber) == options_.drop_sync;
            };
        }
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
            world_.at(MonoTime{} + milliseconds(at_ms), [this, offset] {
                tell("the broker's wall clock jumps");
                broker_node_.clock().set_wall_offset(offset);
            });
        }
        Rng restarts = world_.stream("run", "restarts");
        for (std::uint64_t i = 0; i < params_["graceful_restarts"]; ++i) {
            const std::int64_t at_ms =
                restarts.between((SETUP + FIRST_FAULT_AFTER).to_ms(), faults_end_.ns / 1'000'000);
            world_.at(MonoTime{} + milliseconds(at_ms), [this] { restart_gracefully(); });
        }
    }

    // Numbers become #, so that a site stands for one place in the code.
    static std::string sync_site(DiskOp op, std::string_view path, std::string_view fiber) {
        std::string site = std::string(disk_op_name(op)) + " ";
        const auto add = [&site](std::string_view text) {
            for (const char c : text) {
                const bool digit = c >= '0' && c <= '9';
                if (!digit) {
                    site += c;
                } else if (site.back() != '#') {
                    site += '#';
                }
            }
        };
        add(path.empty() ? "." : path);
        site += " by ";
        add(fiber);
        return site;
    }

    void on_disk_operation(OperationPoint point, const DiskOperation& operation) {
        if (options_.record_syncs && point == OperationPoint::AFTER &&
            (operation.op == DiskOp::SYNC_DATA || operation.op == DiskOp::SYNC_FOLDER)) {
            report_.sync_sites[sync_site(operation.op, operation.path, operation.fiber)].push_back(
                operation.number - setup_operations_);
        }
        if (point == OperationPoint::AFTER) judge_replacement(operation);
        const CrashPlan& plan = options_.crash;
        if (plan.at_operation == 0 || broker_node_.stopping()) return;
        const bool first = crashes_ == 0 &&
                           operation.number == setup_operations_ + plan.at_operation &&
                           (point == OperationPoint::AFTER) == plan.after;
        const bool again = crashes_ == 1 && plan.again_after != 0 &&
                           point == OperationPoint::BEFORE &&
                           operation.number == crashed_at_operation_ + plan.again_after;
        if (!first && !again) return;
        ++crashes_;
        crashed_at_operation_ = operation.number;
        if (first) report_.first_life_operations = operation.number;
        tell(fmt::format("crash {} operation {} {} {}", plan.after && first ? "after" : "before",
                         operation.number, disk_op_name(operation.op), operation.path));
        broker_node_.stop_after_step([this] {
            if (options_.crash.power) {
                broker_node_.power_loss(power_image());
            } else {
                broker_node_.kill();
            }
            on_down(broker_node_);
            faults_.bring_back(broker_node_, milliseconds(20));
        });
    }
    // 17: a fiber that renamed a whole file into place and then synced the folder is done with it.
    void judge_replacement(const DiskOperation& operation) {
        if (operation.op == DiskOp::RENAME)
            replaced_[std::string(operation.fiber)] = operation.to_path;
        if (operation.op != DiskOp::SYNC_FOLDER) return;
        const auto replaced = replaced_.extract(std::string(operation.fiber));
        if (!replaced) return;
        const std::string& path = replaced.mapped();
        const std::size_t slash = path.rfind('/');
        const std::string folder =
            slash == std::string::npos ? std::string() : path.substr(0, slash);
        if (folder != operation.path || !is_whole_file(path)) return;
        const SimDisk& disk = broker_node_.disk();
        ++report_.checks[17];
        const auto seen = disk.cached_read_part(path, 0, WHOLE_FILE_BYTES_MAX);
        if (disk.durable_read_part(path, 0, WHOLE_FILE_BYTES_MAX) == seen) return;
        report(17, "a file that was replaced is durable once its folder is synced",
               path + " is not what " + std::string(operation.fiber) + " wrote");
    }
    // Logs are named the same way, and go on to grow.
    static bool is_whole_file(const std::string& path) {
        static constexpr std::string_view ENDINGS[] = {".mqc", ".mqp", ".bin", "identity",
                                                       "replica/state"};
        return std::any_of(std::begin(ENDINGS), std::end(ENDINGS),
                           [&](std::string_view ending) { return path.ends_with(ending); });
    }

    // Fixed images first, then drawn ones; see CrashPlan::image.
    PowerImage power_image() const {
        using Kind = PowerImage::Kind;
        static constexpr Kind FIXED[] = {Kind::NONE, Kind::ALL, Kind::METADATA_ONLY,
                                         Kind::DATA_ONLY};
        if (options_.crash.image < std::size(FIXED)) return {.kind = FIXED[options_.crash.image]};
        return PowerImage::random(
            stream_seed(options_.crash.image, "crash", std::to_string(crashes_)), true);
    }

    Image durable_image() {
        return {
            [this](const std::string& folder) { return broker_node_.disk().durable_names(folder); },
            [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                return broker_node_.disk().durable_read_part(path, offset, count);
            }};
    }
    Image cached_image() {
        return {
            [this](const std::string& folder) { return broker_node_.disk().cached_names(folder); },
            [this](const std::string& path, std::uint64_t offset, std::uint64_t count) {
                return broker_node_.disk().cached_read_part(path, offset, count);
            }};
    }

    template <class While>
    void run_while(While goes_on, MonoTime limit) {
        while (!violations_.any() && goes_on() && world_.now() < limit) {
            if (!world_.step(limit)) {
                world_.run_until(limit);
                break;
            }
            if (world_.step_count() > STEPS_MAX) {
                harness_fault_ = "the run does not end";
                return;
            }
        }
    }

    // --- the broker's lives
    BrokerOptions broker_options() const {
        BrokerOptions options;
        options.config = dev_config();
        options.config.listen_client = "0.0.0.0:7188";
        options.config.segment_max_bytes = params_["segment_max_bytes"];
        options.config.metadata_snapshot_records =
            static_cast<std::uint32_t>(params_["metadata_snapshot_records"]);
        options.config.delivery_lease_ms = static_cast<std::uint32_t>(params_["lease_ms"]);
        options.config.delivery_max_attempts = static_cast<std::uint32_t>(params_["max_attempts"]);
        options.checkpoint_every_bytes = params_["checkpoint_every_bytes"];
        options.ledger_bytes_min = params_["ledger_max_bytes"];
        return options;
    }

    void start_broker() {
        tell("broker starts");
        serving_ = false;
        stopping_ = false;
        restart_asked_ = false;
        stopped_.reset();
        broker_ = std::make_unique<Broker>(broker_node_.env(), broker_options());
        broker_node_.scheduler().spawn("broker.main", [this](Fiber& fiber) {
            Result<void> ended = broker_->run(fiber);
            if (ended.ok() && stopping_ && restart_asked_) return start_broker_again();
            if (!ended.ok() || !stopping_) {
                report(13, "the broker serves after every honest crash",
                       "it stopped: " + (ended.ok() ? std::string("without an error")
                                                    : ended.error().to_string()));
            }
            stopped_ = std::move(ended);
        });
    }

    // What an operator does before the first start.
    Result<void> install_token(Fiber& fiber) {
        Disk& disk = broker_node_.disk();
        MORTAR_TRY(make_folders_durably(fiber, disk, "auth"));
        const std::string line = to_hex(sha256(as_byte_span(CLIENT_TOKEN))) + "\n";
        MORTAR_TRY(write_new_file(fiber, disk, "auth/client.sha256.tmp", as_byte_span(line)));
        return publish_file(fiber, disk, "auth", "client.sha256.tmp", "client.sha256");
    }

    // SIGTERM and a new process; nothing when it is down or not up yet.
    void restart_gracefully() {
        if (!serving_ || stopping_ || broker_ == nullptr) return;
        tell("broker is asked to restart");
        MORTAR_SOMETIMES(true, "graceful restart");
        stopping_ = true;
        restart_asked_ = true;
        broker_->stop();
    }
    void start_broker_again() {
        world_.after(milliseconds(5), [this] {
            // A crash may have been faster.
            if (!restart_asked_) return;
            broker_node_.kill();
            on_down(broker_node_);
            faults_.bring_back(broker_node_, milliseconds(5));
        });
    }

    void on_down(SimNode& node) {
        tell(node.name() + " down");
        if (&node != &broker_node_) return workload_.on_node_down(node);
        broker_.reset();
        serving_ = false;
        restart_asked_ = false;
        replaced_.clear();
        for (auto& checker : checkers_)
            checker->on_broker_down();
        end_dead_connections();
    }
    void on_up(SimNode& node) {
        tell(node.name() + " up");
        if (&node != &broker_node_) return workload_.on_node_up(node);
        start_broker();
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

    // --- views
    void schedule_view() {
        world_.after(VIEW_EVERY, [this] {
            look();
            schedule_view();
        });
    }

    void look() {
        end_dead_connections();
        if (broker_ == nullptr || !broker_->is_ready()) return;
        if (!serving_) {
            serving_ = true;
            tell("broker serves");
            for (auto& checker : checkers_)
                checker->on_broker_up();
            view_logs(cached_image());
        }
        for (const auto& [group_id, group] : broker_->catalog().groups()) {
            GroupView view;
            view.group = group.name;
            view.topic_id = group.topic_id;
            view.start_after = group.start_after;
            view.partitions = broker_->delivery().group_state(group_id);
            if (view.partitions.size() != view.start_after.size())
                continue;  // its SUB is still at work
            for (auto& checker : checkers_)
                checker->on_group_view(view);
        }
    }

    void view_logs(const Image& image) {
        last_sequences_.clear();
        for (const auto& [topic_id, topic] : broker_->catalog().topics()) {
            for (std::uint16_t p = 0; p < topic.partition_count; ++p) {
                const PartitionKey key{topic_id, PartitionIndex(p)};
                LogFollower log(partition_folder(topic_id.value, p));
                const std::vector<SeenRecord> found = log.advance(image);
                for (auto& checker : checkers_)
                    checker->on_log_view(key, log.records(), found);
                const std::uint64_t last =
                    log.records().empty() ? 0 : log.records().rbegin()->first;
                last_sequences_[key] = Sequence(last);
            }
        }
    }

    // --- the end
    // A broker that ends in good order, to start anew, serves no more: what it shows is not its last word.
    bool is_up() const { return serving_ && !restart_asked_; }

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
                       "producers still wait: " + names(broker_node_));
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
        if (!serving_ || broker_ == nullptr) return false;
        for (const auto& [group_id, group] : broker_->catalog().groups()) {
            for (const Delivery::PartitionState& state :
                 broker_->delivery().group_state(group_id)) {
                if (state.ack_floor != state.last_seq) return false;
            }
        }
        return true;
    }
    std::string drain_state() {
        std::string text;
        for (const auto& [group_id, group] : broker_->catalog().groups()) {
            for (const Delivery::PartitionState& state :
                 broker_->delivery().group_state(group_id)) {
                text += fmt::format("{}/{}: ack_floor {} of {}, in flight {}, waiting {}; ",
                                    group.name, state.partition.value, state.ack_floor.value,
                                    state.last_seq.value, state.in_flight, state.waiting_retry);
            }
        }
        return text;
    }

    // A planned crash may come this late too; then it is asked again in its next life.
    void stop_gracefully() {
        while (!stopped_.has_value() && !violations_.any()) {
            judge_service();
            if (violations_.any()) return;
            look();
            view_logs(cached_image());
            for (auto& checker : checkers_)
                checker->on_end(last_sequences_, workload_.groups());
            tell("broker is asked to stop");
            stopping_ = true;
            broker_->stop();
            run_while([this] { return serving_ && !stopped_.has_value(); },
                      world_.now() + STOP_WITHIN);
            if (violations_.any() || !serving_) continue;
            judge_liveness(stopped_.has_value(), "a broker that is asked to stop ends",
                           names(broker_node_));
        }
    }

    // Everything is synced now, and nothing is left behind.
    void look_for_the_last_time() {
        view_logs(durable_image());
        serving_ = false;
        world_.run_for(seconds(1));
        judge_bound(broker_node_.scheduler().fiber_count() == 0, "fibers " + names(broker_node_));
        judge_bound(world_.network().open_handles(broker_node_) == 0,
                    fmt::format("{} sockets", world_.network().open_handles(broker_node_)));
        judge_bound(broker_node_.disk().open_files() == 0 || !broker_files_closed(),
                    fmt::format("{} files", broker_node_.disk().open_files()));
    }
    // Files close with the objects that hold them.
    bool broker_files_closed() {
        broker_.reset();
        return broker_node_.disk().open_files() != 0;
    }

    static std::string names(SimNode& node) {
        std::string text;
        for (const std::string& name : node.scheduler().fiber_names())
            text += name + " ";
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
        report_.disk_operations = broker_node_.disk().operation_count() - setup_operations_;
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
        } else if (report_.acked_pubs == 0 || report_.acked_messages == 0) {
            report_.exit_code = EXIT_VACUOUS;
        }
        return report_;
    }

    const RunOptions& options_;
    Params params_;
    RunReport report_;
    SimWorld world_;
    SimNode& broker_node_;
    MonoTime faults_end_;
    Violations violations_;
    WorldView view_;
    std::vector<std::unique_ptr<Checker>> checkers_;
    Tap tap_;
    Workload workload_;
    FaultRunner faults_;
    std::unique_ptr<Broker> broker_;
    bool serving_ = false;
    bool stopping_ = false;
    std::optional<Result<void>> stopped_;
    std::set<ConnId> open_connections_;
    std::map<PartitionKey, Sequence> last_sequences_;
    std::deque<std::string> story_;
    std::string harness_fault_;
    std::uint64_t setup_operations_ = 0;
    std::map<std::string, std::string>
        replaced_;  // by fiber: what it renamed last, its folder not synced yet
    bool restart_asked_ = false;
    int crashes_ = 0;
    std::uint64_t crashed_at_operation_ = 0;
};

}  // namespace

RunReport run_seed(const RunOptions& options, StackPool& stacks) {
    return Run(options, stacks).go();
}

std::vector<std::pair<std::string, std::string>> parameter_help() {
    return Params::help();
}

bool known_nemeses(const std::string& nemesis) {
    return parse_families(nemesis, 1).ok();
}

std::vector<std::string> nemesis_families() {
    std::vector<std::string> names;
    for (const Nemesis* nemesis : all_nemeses())
        names.emplace_back(nemesis->name());
    return names;
}

std::vector<std::pair<std::string, std::string>> nemesis_help() {
    return {{"kill", "kill -9 of a process: the page cache stays, connections die"},
            {"power", "power loss: any subset of the sectors that were not synced survives"},
            {"torn", "power loss in the middle of sectors: half-written or garbage"},
            {"reset", "a connection is reset, also in the middle of a frame"},
            {"pause", "a process stands still for a while, then goes on"},
            {"swarm", "a subset drawn from the seed"},
            {"none", "no faults"}};
}

std::vector<std::pair<std::string, std::string>> checker_help() {
    return {{"1", "a PUB is answered OK only after its record is durable"},
            {"2", "no acknowledged record is lost or altered; a refused one never appears"},
            {"3", "one sequence per (producer, seq); sequences dense"},
            {"4", "first deliveries by sequence, with the bytes that were published"},
            {"5", "after healing every record is delivered and settled for every group"},
            {"6", "after ACK got OK a message is never sent to that group again"},
            {"8", "commit_seq, ack_floor and epochs never go back"},
            {"11", "committed = settled + in flight + waiting + ready"},
            {"12", "in flight stays within the credit; nothing leaks"},
            {"13", "after the last fault PUB works and groups drain"},
            {"14", "every byte sent to a client decodes strictly"},
            {"15", "bad input never changes durable state"},
            {"16", "one seed gives one trace hash"},
            {"17", "a file that was replaced is durable once its folder is synced"},
            {"18", "after a topic's deletion got OK nothing is stored in it"}};
}

std::string reproduce_line(const std::string& program, const RunOptions& options) {
    std::string line =
        fmt::format("{} --seed {} --nemesis {}", program, options.seed, options.nemesis);
    for (const auto& [name, value] : options.pins)
        line += fmt::format(" --set {}={}", name, value);
    return line;
}

}  // namespace mortar::sim
