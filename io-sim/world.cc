#include "io-sim/world.h"

#include <algorithm>
#include <utility>

#include "io-sim/node.h"
#include "io-sim/sim_net.h"

namespace mortar::sim {
namespace {

// More steps than this without time passing is a loop that never waits.
constexpr std::uint64_t STEPS_PER_INSTANT_MAX = 20'000'000;

std::uint64_t mix_text(std::uint64_t hash, std::string_view text) {
    for (const char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3u;
    }
    // The end counts, so that ("ab", "c") and ("a", "bc") differ.
    return (hash ^ 0xff) * 0x100000001b3u;
}

}  // namespace

std::uint64_t stream_seed(std::uint64_t seed, std::string_view owner, std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    hash = mix_text(hash, owner);
    hash = mix_text(hash, name);
    hash ^= seed * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    return hash ^ (hash >> 31);
}

// The functions given to at(), in reused slots.
class SimWorld::Actions final : public EventTarget {
  public:
    std::uint64_t add(std::function<void()> action) {
        if (free_.empty()) {
            slots_.push_back(std::move(action));
            return slots_.size() - 1;
        }
        const std::size_t slot = free_.back();
        free_.pop_back();
        slots_[slot] = std::move(action);
        return slot;
    }
    void on_event(std::uint64_t argument) override {
        const std::function<void()> action = std::exchange(slots_[argument], nullptr);
        free_.push_back(argument);
        action();
    }

  private:
    std::vector<std::function<void()>> slots_;
    std::vector<std::size_t> free_;
};

SimWorld::SimWorld(std::uint64_t seed, StackPool& stacks)
    : seed_(seed),
      stacks_(stacks),
      scheduler_rng_(stream_seed(seed, "world", "scheduler")),
      actions_(std::make_unique<Actions>()),
      network_(std::make_unique<SimNetwork>(*this)) {
    trace(seed);
}

SimWorld::~SimWorld() {
    for (const auto& node : nodes_) {
        if (node->alive()) node->kill();
    }
}

SimNode& SimWorld::add_node(std::string name) {
    MORTAR_ASSERT(find_node(name) == nullptr);
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back(std::make_unique<SimNode>(*this, stacks_, std::move(name), index));
    return *nodes_.back();
}

SimNode* SimWorld::find_node(std::string_view name) const {
    for (const auto& node : nodes_) {
        if (node->name() == name) return node.get();
    }
    return nullptr;
}

Rng SimWorld::stream(std::string_view owner, std::string_view name) const {
    return Rng(stream_seed(seed_, owner, name));
}

bool SimWorld::step(MonoTime limit) {
    if (!runnable_.empty()) {
        run_fiber();
        return true;
    }
    const MonoTime event = events_.empty() ? NEVER : events_.front().when;
    const MonoTime timer = next_timer();
    const MonoTime next = std::min(event, timer);
    if (next == NEVER || next > limit) return false;
    if (next > now_) {
        now_ = next;
        steps_this_instant_ = 0;
    }
    if (event <= timer) {
        run_event();
    } else {
        fire_timers();
    }
    return true;
}

void SimWorld::run_until(MonoTime time) {
    while (step(time)) {
    }
    if (now_ < time) {
        now_ = time;
        steps_this_instant_ = 0;
    }
}

void SimWorld::at(MonoTime when, std::function<void()> action) {
    schedule(when, *actions_, actions_->add(std::move(action)));
}

bool SimWorld::later(const Event& a, const Event& b) {
    return std::pair(a.when, a.order) > std::pair(b.when, b.order);
}

void SimWorld::schedule(MonoTime when, EventTarget& target, std::uint64_t argument) {
    events_.push_back({std::max(when, now_), next_order_++, &target, argument});
    std::push_heap(events_.begin(), events_.end(), later);
}

std::vector<FiberId> SimWorld::take_runnable(const SimNode& node) {
    std::vector<FiberId> taken;
    for (const Runnable& entry : runnable_) {
        if (entry.node == &node) taken.push_back(entry.fiber);
    }
    std::erase_if(runnable_, [&node](const Runnable& entry) { return entry.node == &node; });
    return taken;
}

void SimWorld::run_fiber() {
    const std::size_t count = runnable_.size();
    const std::size_t pick = count == 1 ? 0 : static_cast<std::size_t>(scheduler_rng_.below(count));
    const Runnable chosen = runnable_[pick];
    runnable_[pick] = runnable_.back();
    runnable_.pop_back();
    SimNode& node = *chosen.node;
    trace(static_cast<std::uint64_t>(now_.ns));
    trace(std::uint64_t{node.index()} << 48 | chosen.fiber.value);
    node.run_fiber(chosen.fiber);
    finish_step();
}

void SimWorld::run_event() {
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = events_.back();
    events_.pop_back();
    trace(static_cast<std::uint64_t>(now_.ns));
    trace(event.order);
    event.target->on_event(event.argument);
    finish_step();
}

void SimWorld::fire_timers() {
    trace(static_cast<std::uint64_t>(now_.ns));
    for (const auto& node : nodes_) {
        if (node->next_timer() > now_) continue;
        node->fire_timers();
        finish_step();
    }
}

void SimWorld::finish_step() {
    ++step_count_;
    ++steps_this_instant_;
    MORTAR_ASSERT(steps_this_instant_ < STEPS_PER_INSTANT_MAX);
}

MonoTime SimWorld::next_timer() const {
    MonoTime next = NEVER;
    for (const auto& node : nodes_)
        next = std::min(next, node->next_timer());
    return next;
}

}  // namespace mortar::sim
