#include "nemesis/nemesis.h"

#include <algorithm>

namespace mortar::sim {
namespace {

// A client is struck this often when there are any.
constexpr std::uint64_t CLIENT_ONE_IN = 5;
// Of several brokers the leader is struck on purpose this often.
constexpr std::uint64_t LEADER_ONE_IN = 3;

std::string known_names() {
    std::string names;
    for (const Nemesis* nemesis : all_nemeses())
        names.append(nemesis->name()).append(", ");
    return names + "all, swarm, none";
}

}  // namespace

Nemesis::Rhythm Nemesis::draw_rhythm(Rng& rng) {
    const bool is_rare = rng.one_in(2);
    if (is_rare) {
        const Duration gap = milliseconds(rng.between(2'000, 6'000));
        return {gap, milliseconds(rng.between(200, 3'000))};
    }
    const Duration gap = milliseconds(rng.between(300, 1'500));
    return {gap, milliseconds(rng.between(2, 150))};
}

std::string Nemesis::draw_node(const FaultParameters& parameters, Rng& rng) {
    const bool strikes_client = rng.one_in(CLIENT_ONE_IN) && !parameters.clients.empty();
    if (!strikes_client) return draw_broker(parameters, rng);
    return parameters.clients[static_cast<std::size_t>(rng.below(parameters.clients.size()))];
}

std::string Nemesis::draw_broker(const FaultParameters& parameters, Rng& rng) {
    MORTAR_ASSERT(!parameters.brokers.empty());
    const std::size_t count = parameters.brokers.size();
    const std::string& drawn = parameters.brokers[static_cast<std::size_t>(rng.below(count))];
    return count > 1 && rng.one_in(LEADER_ONE_IN) ? std::string(LEADER_TARGET) : drawn;
}

void Nemesis::beat(const FaultParameters& parameters, Rng& rng,
                   const std::function<void(MonoTime at, Duration duration)>& strike) {
    const Rhythm rhythm = draw_rhythm(rng);
    MonoTime at = parameters.begin;
    while (true) {
        at = at + microseconds(rng.between(0, 2 * rhythm.gap_mean.to_us()));
        if (at >= parameters.end) return;
        const Duration duration = microseconds(rng.between(100, rhythm.duration_max.to_us()));
        strike(at, duration);
        at = at + duration;
    }
}

const std::vector<const Nemesis*>& swarm_nemeses(std::size_t broker_count) {
    // The place of a family decides which seeds draw it.
    static const std::vector<const Nemesis*> ONE = {
        &kill_nemesis(), &power_nemesis(), &torn_nemesis(), &pause_nemesis(), &reset_nemesis()};
    static const std::vector<const Nemesis*> SEVERAL = {
        &kill_nemesis(),       &power_nemesis(),     &torn_nemesis(),   &pause_nemesis(),
        &reset_nemesis(),      &partition_nemesis(), &clock_nemesis(),  &slow_disk_nemesis(),
        &fsync_fail_nemesis(), &disk_full_nemesis(), &bitrot_nemesis(), &slow_net_nemesis(),
        &rolling_nemesis()};
    return broker_count == 1 ? ONE : SEVERAL;
}

const std::vector<const Nemesis*>& all_nemeses() {
    static const std::vector<const Nemesis*> ALL = [] {
        std::vector<const Nemesis*> all = swarm_nemeses(2);
        all.push_back(&wild_clock_nemesis());
        all.push_back(&wipe_nemesis());
        return all;
    }();
    return ALL;
}

const Nemesis* find_nemesis(std::string_view name) {
    for (const Nemesis* nemesis : all_nemeses()) {
        if (nemesis->name() == name) return nemesis;
    }
    return nullptr;
}

Result<std::vector<const Nemesis*>> parse_families(std::string_view text, std::uint64_t seed,
                                                   std::size_t broker_count) {
    std::vector<const Nemesis*> families;
    const std::vector<const Nemesis*>& known = swarm_nemeses(broker_count);
    if (text == "none") return families;
    if (text == "all") return known;
    if (text == "swarm") {
        Rng rng(stream_seed(seed, "nemesis", "swarm"));
        // Never empty, each set equally often.
        const std::uint64_t chosen = 1 + rng.below((std::uint64_t{1} << known.size()) - 1);
        for (std::size_t i = 0; i < known.size(); ++i) {
            if ((chosen >> i & 1) != 0) families.push_back(known[i]);
        }
        return families;
    }
    while (true) {
        const std::size_t comma = std::min(text.find(','), text.size());
        const Nemesis* nemesis = find_nemesis(text.substr(0, comma));
        if (nemesis == nullptr) {
            return make_error(ErrorCode::INVALID_ARGUMENT, "no nemesis \"" +
                                                               std::string(text.substr(0, comma)) +
                                                               "\"; there are: " + known_names());
        }
        if (std::find(families.begin(), families.end(), nemesis) == families.end())
            families.push_back(nemesis);
        if (comma == text.size()) return families;
        text.remove_prefix(comma + 1);
    }
}

std::string format_families(const std::vector<const Nemesis*>& families) {
    std::string text;
    for (const Nemesis* nemesis : families) {
        if (!text.empty()) text += ',';
        text += nemesis->name();
    }
    return text.empty() ? "none" : text;
}

std::vector<Fault> plan_faults(const std::vector<const Nemesis*>& families, std::uint64_t seed,
                               const FaultParameters& parameters) {
    std::vector<Fault> schedule;
    for (const Nemesis* nemesis : families) {
        Rng rng(stream_seed(seed, "nemesis", nemesis->name()));
        nemesis->plan(parameters, rng, schedule);
    }
    std::sort(schedule.begin(), schedule.end());
    return schedule;
}

void FaultRunner::schedule(const std::vector<Fault>& faults) {
    for (const Fault& fault : faults) {
        world_.at(fault.at, [this, fault] { apply(fault); });
    }
}

void FaultRunner::apply(const Fault& fault) {
    const Nemesis* nemesis = find_nemesis(fault.family);
    SimNode* node = world_.find_node(fault.node);
    if (fault.node == LEADER_TARGET && control_.leader) node = control_.leader();
    if (nemesis == nullptr || node == nullptr) return;
    const bool was_alive = node->alive();
    if (!nemesis->apply({world_, control_}, *node, fault)) return;
    ++fired_[fault.family];
    history_.push_back(fault);
    history_.back().node = node->name();
    if (node->alive()) return;
    if (was_alive && control_.on_down) control_.on_down(*node);
    bring_back(*node, fault.duration);
}

void FaultRunner::bring_back(SimNode& node, Duration delay) {
    MonoTime& back_at = back_at_[node.name()];
    back_at = std::max(back_at, world_.now() + delay);
    world_.at(back_at, [this, &node] { restart_if_due(node); });
}

void FaultRunner::restart_if_due(SimNode& node) {
    const auto found = back_at_.find(node.name());
    if (node.alive() || found == back_at_.end() || world_.now() < found->second) return;
    back_at_.erase(found);
    node.restart();
    if (control_.on_up) control_.on_up(node);
}

std::uint64_t FaultRunner::fired_count() const {
    std::uint64_t count = 0;
    for (const auto& [family, fired] : fired_)
        count += fired;
    return count;
}

}  // namespace mortar::sim
