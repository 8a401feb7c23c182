#include "core/replica/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/assert.h"

namespace mortar {
namespace {

using peer::CopyReport;
using peer::CopyState;
using peer::is_faulty;
using peer::is_uncertain;

struct Copy {
    NodeId node_id;
    LeaderEpoch installed_epoch;
    CopyReport report;
};

// What a copy has, or claims to have, against another one.
auto standing(const Copy& copy) {
    return std::tuple(copy.installed_epoch, copy.report.end.last);
}

std::string name_of(PartitionKey log) {
    if (log == METADATA_LOG) return "metadata log";
    return fmt::format("log {}/{}", log.topic_id.value, log.partition.value);
}

std::string names_of(const std::vector<NodeId>& nodes) {
    std::string text;
    for (const NodeId node_id : nodes)
        text.append(text.empty() ? "node " : ", node ").append(std::to_string(node_id.value));
    return text;
}

std::string described(const Copy& copy) {
    return fmt::format("{} records, installed in leader epoch {}", copy.report.end.last.value,
                       copy.installed_epoch.value);
}

// Highest standing; of equals an intact one, then the candidate's own, then the lowest node id.
const Copy* best_of(const std::vector<Copy>& copies, NodeId self) {
    const auto rank = [self](const Copy& copy) {
        return std::tuple(standing(copy), copy.report.state == CopyState::INTACT,
                          copy.node_id == self);
    };
    const Copy* best = nullptr;
    for (const Copy& copy : copies) {
        if (is_faulty(copy.report.state)) continue;
        if (best == nullptr || rank(copy) > rank(*best)) best = &copy;
    }
    return best;
}

// Two nodes that installed one epoch hold its leader's log: at one place there is one record. Otherwise somebody was put
// back to an older state, and neither copy can be believed.
const Copy* contradicts(const Copy& best, const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
        if (!is_faulty(copy.report.state) && standing(copy) == standing(best) &&
            copy.report.end != best.report.end) {
            return &copy;
        }
    }
    return nullptr;
}

// A copy of which best may lack something that a majority flushed.
const Copy* may_hold_more(const Copy* best, const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
        const bool claims_more = best == nullptr || standing(copy) > standing(*best);
        if (is_faulty(copy.report.state) && claims_more) return &copy;
        const bool is_older = best != nullptr && copy.installed_epoch < best->installed_epoch;
        if (is_uncertain(copy.report.state) && !is_older) return &copy;
    }
    return nullptr;
}

LogObstacle obstacle(PartitionKey log, const Copy& in_the_way, const Copy* best) {
    const std::string where = fmt::format("{}: node {} ", name_of(log), in_the_way.node_id.value);
    const std::string against = best == nullptr
                                    ? std::string("no whole copy was heard")
                                    : fmt::format("the best whole copy, on node {}, has {}",
                                                  best->node_id.value, described(*best));
    if (is_faulty(in_the_way.report.state)) {
        return {log, in_the_way.node_id,
                fmt::format("{}has had {}, but is damaged from record {} on{}; {}", where,
                            described(in_the_way), in_the_way.report.faulty_from.value,
                            is_uncertain(in_the_way.report.state) ? " and lost the end of it" : "",
                            against)};
    }
    return {log, in_the_way.node_id,
            fmt::format("{}has {}, but lost the end of it and may have had more; {}", where,
                        described(in_the_way), against)};
}

class Chooser {
  public:
    Chooser(std::span<const NodePromise> promises, std::span<const NodeId> configured, NodeId self)
        : configured_(configured), self_(self) {
        MORTAR_ASSERT(!configured.empty());
        for (const NodeId node_id : configured) {
            const auto promise = std::ranges::find(promises, node_id, &NodePromise::node_id);
            if (promise == promises.end()) {
                choice_.missing.push_back(node_id);
            } else if (promise->given.is_blank) {
                choice_.blank.push_back(node_id);
                blank_.push_back(&*promise);
            } else {
                heard_.push_back(&*promise);
            }
        }
    }

    Choice run() {
        if (blank_.size() == configured_.size()) return first_start();
        if (heard_.size() < majority_of(configured_.size())) return too_few();
        if (!have_one_cluster_id()) return std::move(choice_);
        for (const auto& [log, copies] : all_logs())
            choose(log, copies);
        choice_.outcome =
            choice_.obstacles.empty() ? ChoiceOutcome::CHOSEN : ChoiceOutcome::UNCLEAN;
        if (!choice_.obstacles.empty()) tell_obstacles();
        return std::move(choice_);
    }

  private:
    Choice first_start() {
        choice_.outcome = ChoiceOutcome::FIRST_START;
        for (const NodePromise* promise : blank_) {
            for (const CopyReport& copy : promise->given.copies) {
                if (copy.end.last == Sequence(0)) continue;
                choice_.outcome = ChoiceOutcome::UNCLEAN;
                choice_.reason = fmt::format(
                    "every node lacks replica/state, but node {} holds {} with {} records: not a "
                    "first start; restore replica/state",
                    promise->node_id.value, name_of(copy.log), copy.end.last.value);
                return std::move(choice_);
            }
        }
        return std::move(choice_);
    }

    Choice too_few() {
        // What the blank nodes had flushed may be nowhere else: no wait brings it back.
        choice_.outcome = choice_.missing.empty() ? ChoiceOutcome::UNCLEAN : ChoiceOutcome::WAIT;
        choice_.reason = fmt::format("{} of {} nodes hold a state, {} are needed", heard_.size(),
                                     configured_.size(), majority_of(configured_.size()));
        append_absent();
        return std::move(choice_);
    }

    void tell_obstacles() {
        choice_.reason = choice_.obstacles.front().reason;
        const std::size_t more = choice_.obstacles.size() - 1;
        if (more > 0) choice_.reason += fmt::format("; and {} more logs", more);
        append_absent();
    }

    void append_absent() {
        if (!choice_.blank.empty()) choice_.reason += "; blank: " + names_of(choice_.blank);
        if (!choice_.missing.empty()) choice_.reason += "; not heard: " + names_of(choice_.missing);
    }

    bool have_one_cluster_id() {
        choice_.cluster_id = heard_.front()->given.cluster_id;
        for (const NodePromise* promise : heard_) {
            if (promise->given.cluster_id == choice_.cluster_id) continue;
            choice_.outcome = ChoiceOutcome::UNCLEAN;
            choice_.reason = fmt::format("node {} and node {} belong to different clusters",
                                         heard_.front()->node_id.value, promise->node_id.value);
            return false;
        }
        return true;
    }

    // Of each log that occurs, one copy of every node heard.
    std::map<PartitionKey, std::vector<Copy>> all_logs() const {
        std::map<PartitionKey, std::vector<Copy>> logs;
        logs[METADATA_LOG];
        for (const NodePromise* promise : heard_)
            for (const CopyReport& report : promise->given.copies)
                logs[report.log];
        for (auto& [log, copies] : logs) {
            for (const NodePromise* promise : heard_) {
                CopyReport empty_and_intact;
                empty_and_intact.log = log;
                copies.push_back(
                    {promise->node_id, promise->given.installed_epoch, empty_and_intact});
            }
        }
        for (std::size_t index = 0; index < heard_.size(); ++index)
            for (const CopyReport& report : heard_[index]->given.copies)
                logs[report.log][index].report = report;
        return logs;
    }

    void choose(PartitionKey log, const std::vector<Copy>& copies) {
        const Copy* best = best_of(copies, self_);
        if (configured_.size() == 1) best = &copies.front();
        if (best != nullptr) {
            if (const Copy* other = contradicts(*best, copies); other != nullptr) {
                choice_.obstacles.push_back(
                    {log, other->node_id,
                     fmt::format("{}: node {} and node {} hold different records at {}, both "
                                 "installed in leader epoch {}",
                                 name_of(log), best->node_id.value, other->node_id.value,
                                 best->report.end.last.value, best->installed_epoch.value)});
                return;
            }
        }
        const Copy* in_the_way = may_hold_more(best, copies);
        if (in_the_way != nullptr && !is_settled_by_count(copies)) {
            choice_.obstacles.push_back(obstacle(log, *in_the_way, best));
            return;
        }
        MORTAR_ASSERT(best != nullptr);
        choice_.logs.push_back({log, best->node_id, best->report.end});
    }

    // Whatever a majority flushed is on one of a majority of intact copies; and one damaged copy among all leaves another
    // of those that flushed it whole.
    bool is_settled_by_count(const std::vector<Copy>& copies) const {
        std::size_t intact_count = 0;
        std::size_t faulty_count = 0;
        for (const Copy& copy : copies) {
            if (copy.report.state == CopyState::INTACT) ++intact_count;
            if (is_faulty(copy.report.state)) ++faulty_count;
        }
        return intact_count >= majority_of(configured_.size()) ||
               (copies.size() == configured_.size() && faulty_count <= 1);
    }

    std::span<const NodeId> configured_;
    NodeId self_;
    std::vector<const NodePromise*> heard_;  // not blank
    std::vector<const NodePromise*> blank_;
    Choice choice_;
};

}  // namespace

Choice choose_copies(std::span<const NodePromise> promises, std::span<const NodeId> configured,
                     NodeId self) {
    return Chooser(promises, configured, self).run();
}

}  // namespace mortar
