#include "io-sim/node.h"

#include <algorithm>
#include <utility>

namespace mortar::sim {
namespace {

// Wall clocks start here: 2026-01-01T00:00:00Z.
constexpr std::uint64_t WALL_START_UNIX_MS = 1'767'225'600'000;
// A machine may have been up this long before the run.
constexpr std::int64_t UPTIME_MAX_MS = std::int64_t{30} * 24 * 3600 * 1000;
// After a reboot the monotonic clock starts again, with the time that booting took.
constexpr std::int64_t BOOT_MAX_MS = 60'000;

// Nanoseconds times a rate in millionths.
__extension__ typedef __int128 Wide;
constexpr std::int64_t MILLION = 1'000'000;

Wide floor_div(Wide dividend, Wide divisor) {
    const Wide quotient = dividend / divisor;
    return dividend % divisor < 0 ? quotient - 1 : quotient;
}

std::uint64_t hash_text(std::string_view text) {
    return stream_seed(0, text, {});
}

}  // namespace

std::uint64_t SimClock::wall_unix_ms() const {
    const MonoTime local = world_.now() + wall_offset_;
    return WALL_START_UNIX_MS + static_cast<std::uint64_t>(local.ns / 1'000'000);
}

MonoTime SimClock::from_true(MonoTime time) const {
    const Duration passed = time - base_true_;
    if (drift_ppm_ == 0) return base_local_ + passed;
    const Wide shown = floor_div(Wide{passed.ns} * (MILLION + drift_ppm_), MILLION);
    return base_local_ + Duration{static_cast<std::int64_t>(shown)};
}

MonoTime SimClock::to_true(MonoTime local) const {
    if (local == NEVER) return NEVER;
    const Duration shown = local - base_local_;
    if (drift_ppm_ == 0) return base_true_ + shown;
    // The least number whose floor is enough is the ceiling of the exact one.
    const Wide passed = -floor_div(-(Wide{shown.ns} * MILLION), MILLION + drift_ppm_);
    return base_true_ + Duration{static_cast<std::int64_t>(passed)};
}

void SimClock::start_at(MonoTime local) {
    base_true_ = world_.now();
    base_local_ = local;
    drift_ppm_ = 0;
}

void SimClock::set_drift_ppm(std::int64_t drift_ppm) {
    MORTAR_ASSERT(drift_ppm >= -DRIFT_PPM_MAX && drift_ppm <= DRIFT_PPM_MAX);
    start_at(now());
    drift_ppm_ = drift_ppm;
}

FiberId SimScheduler::spawn(std::string name, FiberBody body) {
    // kill_all() drops what dying fibers spawn; anybody else must restart the node first.
    node_.world().trace(hash_text(name));
    return FiberScheduler::spawn(std::move(name), std::move(body));
}

void SimScheduler::make_runnable(FiberId id) {
    node_.enqueue(id);
}

Rng SimRngSource::stream(std::string_view name) {
    auto found = times_asked_.find(name);
    if (found == times_asked_.end()) found = times_asked_.emplace(name, 0).first;
    const std::uint64_t times = found->second++;
    const std::uint64_t node_seed = stream_seed(node_.world().seed(), "node", node_.name());
    return Rng(stream_seed(node_seed + node_.life(), name, std::to_string(times)));
}

bool SimLog::enabled(LogLevel) const {
    return node_.world().log_sink() != nullptr;
}

void SimLog::write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
    std::string line(event);
    for (const LogField& field : fields) {
        line.append(" ").append(field.key).append("=").append(field.value);
    }
    node_.world().log_sink()(node_, level, line);
}

SimNode::SimNode(SimWorld& world, StackPool& stacks, std::string name, std::uint32_t index)
    : world_(world),
      name_(std::move(name)),
      index_(index),
      clock_rng_(world.stream("clock", name_)),
      clock_(world),
      scheduler_(*this, stacks),
      net_(world.network(), *this),
      disk_(*this, world.stream("disk", name_)),
      rng_(*this),
      log_(*this) {
    clock_.start_at(MonoTime{} + milliseconds(clock_rng_.between(1, UPTIME_MAX_MS)));
}

void SimNode::kill() {
    world_.trace(hash_text("kill"));
    end_life(Death::KILL);
    disk_.on_kill();
}

void SimNode::power_loss(const PowerImage& image) {
    world_.trace(hash_text("power"));
    // A machine whose broker is already dead can lose its power too.
    if (alive_) end_life(Death::POWER);
    powered_ = false;
    disk_.on_power_loss(image);
}

void SimNode::end_life(Death death) {
    MORTAR_ASSERT(alive_ && scheduler_.current() == nullptr);
    stop_ = nullptr;
    paused_ = false;
    held_.clear();
    world_.network().on_node_down(*this, death);
    scheduler_.kill_all();
    world_.take_runnable(*this);
    held_.clear();
    alive_ = false;
}

void SimNode::restart() {
    MORTAR_ASSERT(!alive_);
    world_.trace(hash_text("restart"));
    if (!powered_) {
        // A crystal that runs wrong does so after a reboot too.
        const std::int64_t drift_ppm = clock_.drift_ppm();
        clock_.start_at(MonoTime{} + milliseconds(clock_rng_.between(1, BOOT_MAX_MS)));
        clock_.set_drift_ppm(drift_ppm);
    }
    alive_ = true;
    powered_ = true;
    ++life_;
    rng_.times_asked_.clear();
}

void SimNode::pause(Duration duration) {
    MORTAR_ASSERT(alive_);
    world_.trace(hash_text("pause"));
    if (!paused_) {
        paused_ = true;
        paused_until_ = world_.now();
        held_ = world_.take_runnable(*this);
    }
    paused_until_ = std::max(paused_until_, world_.now() + duration);
    world_.at(paused_until_, [this] { resume_if_due(); });
}

void SimNode::resume_if_due() {
    if (!paused_ || world_.now() < paused_until_) return;
    paused_ = false;
    for (const FiberId id : std::exchange(held_, {}))
        world_.push_runnable(*this, id);
}

void SimNode::stop_after_step(std::function<void()> stop) {
    if (scheduler_.current() == nullptr) {
        stop();
    } else if (stop_ == nullptr) {
        stop_ = std::move(stop);
    }
}

void SimNode::hold_if_stopping(Fiber& fiber) const {
    while (stop_ != nullptr)
        fiber.scheduler().park(fiber, NEVER, CancelMode::DEFERRED);
}

void SimNode::enqueue(FiberId id) {
    MORTAR_ASSERT(alive_);
    if (paused_) {
        held_.push_back(id);
    } else {
        world_.push_runnable(*this, id);
    }
}

void SimNode::run_fiber(FiberId id) {
    scheduler_.run(id);
    if (stop_ != nullptr) {
        const std::function<void()> stop = std::exchange(stop_, nullptr);
        stop();
        MORTAR_ASSERT(!alive_);
    }
}

MonoTime SimNode::next_timer() const {
    if (paused_) return NEVER;
    return clock_.to_true(scheduler_.next_deadline());
}

void SimNode::fire_timers() {
    scheduler_.fire_timers(clock_.now());
}

}  // namespace mortar::sim
