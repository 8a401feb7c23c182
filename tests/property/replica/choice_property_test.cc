// A small cluster under the rules of design 4, walked at random: crashes with torn tails, partial installs, elections that
// nobody finishes, and at most one damaged record or one lost disk. After every choice, what a majority of installed nodes
// has flushed must be in the copy taken. Each rule is then taken out alone: the walks must find why it is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/replica/choice.h"

namespace mortar {
namespace {

using peer::CopyState;

constexpr std::size_t NODE_COUNT = 3;
constexpr std::size_t MAJORITY = 2;
constexpr std::size_t LOG_COUNT = 2;
constexpr int STEP_COUNT = 120;
constexpr PartitionKey LOGS[LOG_COUNT] = {METADATA_LOG, {TopicId(1), PartitionIndex(0)}};

enum class Without {
    NOTHING,
    // Rules of the choice, broken by what it is told.
    INSTALLED_EPOCH,       // the longest log wins
    LENGTH,                // of those installed last, any
    OTHERS_COPIES,         // the candidate keeps its own
    WHAT_FAULTY_CLAIM,     // faulty copies are left out before anything is compared
    FAULTY_MARK,           // a damaged copy passes for a whole one
    UNCERTAIN_MARK,        // a torn one for a whole one
    BLANK,                 // a blank node counts as an empty one
    MAJORITY_OF_PROMISES,  // the candidate alone decides
    // Rules of the nodes.
    REFUSING_OLD_LEADERS,     // a node that promised still takes appends of before
    ALL_LOGS_BEFORE_INSTALL,  // installed after the first log
    CHECKPOINT_BEFORE_INSTALL,
    KEEPING_MARKS,  // the uncertain mark does not survive the next start
    PROMISE_ON_DISK,
};

// Its bytes: which leader appended it, and which of that leader's it is.
struct Record {
    std::uint64_t leader_epoch = 0;
    std::uint64_t id = 0;
    bool operator==(const Record&) const = default;
};

struct Log {
    std::vector<Record> records;
    std::size_t flushed = 0;
    std::size_t known_durable = 0;  // by a checkpoint
    bool is_uncertain = false;
    std::size_t faulty_from = 0;  // 0: whole. Counts from 1, as sequences do.
};

struct Report {
    std::uint64_t installed = 0;
    bool is_blank = false;
    std::array<Log, LOG_COUNT> logs;
};

enum class Role { FOLLOWER, CANDIDATE, INSTALLING, IN_OFFICE };

struct Node {
    bool is_up = true;
    bool is_blank = false;
    std::uint64_t promised = 1;
    std::uint64_t installed = 1;
    std::array<Log, LOG_COUNT> logs;
    // Of its life.
    Role role = Role::FOLLOWER;
    std::uint64_t term = 0;
    std::array<std::optional<Report>, NODE_COUNT> promises;
    std::array<bool, NODE_COUNT> has_installed{};
};

// Splitmix64: the same walks everywhere.
class Dice {
  public:
    explicit Dice(std::uint64_t seed) : state_(seed) {}
    std::size_t below(std::size_t bound) {
        state_ += 0x9e3779b97f4a7c15;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return static_cast<std::size_t>((z ^ (z >> 31)) % bound);
    }
    bool one_in(std::size_t count) { return below(count) == 0; }

  private:
    std::uint64_t state_;
};

struct Counts {
    std::size_t chosen = 0;
    std::size_t chosen_with_committed = 0;
    std::size_t refused = 0;
    std::size_t in_office = 0;
};

class Walk {
  public:
    Walk(std::uint64_t seed, Without without, Counts& counts)
        : dice_(seed), without_(without), counts_(counts) {
        // All were installed by the first leader, who is gone.
        next_epoch_ = 2;
    }

    // What went wrong, if anything.
    std::optional<std::string> run() {
        for (int step = 0; step < STEP_COUNT && !violation_.has_value(); ++step)
            act();
        return violation_;
    }

  private:
    // Mostly what the newest candidate or leader would go on with; else anything that may happen at any time.
    void act() {
        const std::size_t i = dice_.below(NODE_COUNT);
        const std::size_t j = dice_.below(NODE_COUNT);
        switch (dice_.below(24)) {
            case 0:
                return crash(nodes_[i]);
            case 1:
            case 2:
                return start(nodes_[i]);
            case 3:
                return maybe_damage(nodes_[i]);
            case 4:
                return stand(i);
            case 5:
                return promise(j, i);
            case 6:
                return choose(i);
            case 7:
                return install(j, i);
            case 8:
                return append(i);
            case 9:
                return replicate(i, j);
            case 10:
            case 11:
                return flush(nodes_[i]);
            default:
                return go_on(newest(), j);
        }
    }
    std::size_t newest() const {
        std::size_t at = 0;
        for (std::size_t i = 1; i < NODE_COUNT; ++i)
            if (nodes_[i].term > nodes_[at].term) at = i;
        return at;
    }
    void go_on(std::size_t i, std::size_t other) {
        switch (nodes_[i].role) {
            case Role::FOLLOWER:
                return stand(dice_.below(NODE_COUNT));
            case Role::CANDIDATE:
                return dice_.one_in(2) ? choose(i) : promise(other, i);
            case Role::INSTALLING:
                return install(other, i);
            case Role::IN_OFFICE:
                break;
        }
        switch (dice_.below(5)) {
            case 0:
                return append(i);
            case 1:
                return flush(nodes_[i]);
            case 2:
                return install(other, i);
            default:
                replicate(i, other);
                if (dice_.one_in(2)) flush(nodes_[other]);
        }
    }

    // --- what a disk and a power line do
    void crash(Node& node) {
        if (!node.is_up) return;
        node.is_up = false;
        node.role = Role::FOLLOWER;
        node.promises = {};
        if (without_ == Without::PROMISE_ON_DISK) node.promised = node.installed;
        for (Log& log : node.logs) {
            const std::size_t unflushed = log.records.size() - log.flushed;
            const std::size_t kept = log.flushed + dice_.below(unflushed + 1);
            // Cut in the middle of a record, or between two.
            const bool is_torn = kept < log.records.size() && dice_.one_in(2);
            cut(log, kept);
            log.flushed = kept;
            if (is_torn) log.is_uncertain = true;
        }
    }
    void start(Node& node) {
        if (node.is_up) return;
        node.is_up = true;
        for (Log& log : node.logs) {
            if (without_ == Without::KEEPING_MARKS) log.is_uncertain = false;
            // Above what is known to be durable a bad record cannot be told from a torn tail.
            if (log.faulty_from > log.known_durable) {
                cut(log, log.faulty_from - 1);
                log.is_uncertain = true;
            }
        }
    }
    void maybe_damage(Node& node) {
        if (had_damage_ || node.is_blank) return;
        if (dice_.one_in(4)) {
            had_damage_ = true;
            node = Node{};
            node.is_up = false;
            node.is_blank = true;
            node.promised = node.installed = 0;
            return;
        }
        Log& log = node.logs[dice_.below(LOG_COUNT)];
        if (log.flushed == 0) return;
        had_damage_ = true;
        log.faulty_from = 1 + dice_.below(log.flushed);
    }
    static void cut(Log& log, std::size_t keep) {
        log.records.resize(keep);
        log.flushed = std::min(log.flushed, keep);
        log.known_durable = std::min(log.known_durable, keep);
        if (log.faulty_from > keep) log.faulty_from = 0;
    }

    // --- elections
    void stand(std::size_t i) {
        Node& node = nodes_[i];
        if (!node.is_up || (node.is_blank && without_ != Without::BLANK)) return;
        node.promised = next_epoch_++;
        node.term = node.promised;
        node.role = Role::CANDIDATE;
        node.promises = {};
        node.has_installed = {};
        node.promises[i] = report_of(node);
    }
    void promise(std::size_t voter_index, std::size_t candidate_index) {
        Node& voter = nodes_[voter_index];
        Node& candidate = nodes_[candidate_index];
        if (!voter.is_up || candidate.role != Role::CANDIDATE || voter.promised >= candidate.term)
            return;
        voter.promised = candidate.term;
        if (voter.role != Role::FOLLOWER) voter.role = Role::FOLLOWER;
        candidate.promises[voter_index] = report_of(voter);
    }
    static Report report_of(const Node& node) {
        Report report{node.installed, node.is_blank, node.logs};
        for (Log& log : report.logs) {
            log.records.resize(log.flushed);
        }
        return report;
    }

    CopyState told_state(const Log& log) const {
        const bool is_faulty = log.faulty_from > 0;
        if (is_faulty && without_ != Without::FAULTY_MARK) return CopyState::FAULTY;
        if (log.is_uncertain && without_ != Without::UNCERTAIN_MARK) return CopyState::UNCERTAIN;
        return CopyState::INTACT;
    }
    std::vector<NodePromise> told_promises(std::size_t i) const {
        std::vector<NodePromise> told;
        for (std::size_t from = 0; from < NODE_COUNT; ++from) {
            const std::optional<Report>& report = nodes_[i].promises[from];
            if (!report.has_value()) continue;
            NodePromise each;
            each.node_id = id_of(from);
            each.given.is_blank = report->is_blank && without_ != Without::BLANK;
            each.given.installed_epoch =
                LeaderEpoch(without_ == Without::INSTALLED_EPOCH ? 1 : report->installed);
            for (std::size_t l = 0; l < LOG_COUNT; ++l) {
                const Log& log = report->logs[l];
                peer::CopyReport copy;
                copy.log = LOGS[l];
                copy.state = told_state(log);
                copy.faulty_from = Sequence(log.faulty_from);
                if (!log.records.empty() && without_ != Without::LENGTH) {
                    copy.end = {Sequence(log.records.size()),
                                LeaderEpoch(without_ == Without::INSTALLED_EPOCH
                                                ? 1
                                                : log.records.back().leader_epoch)};
                }
                if (copy.state == CopyState::FAULTY && without_ == Without::WHAT_FAULTY_CLAIM)
                    copy.end = {};
                each.given.copies.push_back(copy);
            }
            told.push_back(std::move(each));
        }
        return told;
    }

    void choose(std::size_t i) {
        Node& candidate = nodes_[i];
        if (!candidate.is_up || candidate.role != Role::CANDIDATE ||
            candidate.promised != candidate.term) {
            return;
        }
        std::vector<NodeId> configured = {id_of(0), id_of(1), id_of(2)};
        if (without_ == Without::MAJORITY_OF_PROMISES) configured = {id_of(i)};
        const Choice choice = choose_copies(told_promises(i), configured, id_of(i));
        if (choice.outcome != ChoiceOutcome::CHOSEN) {
            if (choice.outcome == ChoiceOutcome::UNCLEAN) ++counts_.refused;
            return;
        }
        ++counts_.chosen;
        std::array<std::size_t, LOG_COUNT> sources{};
        for (std::size_t l = 0; l < LOG_COUNT; ++l) {
            sources[l] = static_cast<std::size_t>(choice.logs[l].node_id.value - 1);
            if (without_ == Without::OTHERS_COPIES) sources[l] = i;
            check(l, candidate.promises[sources[l]]->logs[l], candidate.term);
        }
        // It fetches from nodes that still stand by the promise; else somebody must be heard again.
        for (std::size_t l = 0; l < LOG_COUNT; ++l) {
            const Node& source = nodes_[sources[l]];
            if (!source.is_up || source.promised != candidate.term) return;
            const Log& log = source.logs[l];
            const Log& reported = candidate.promises[sources[l]]->logs[l];
            if (log.faulty_from != reported.faulty_from || log.flushed != reported.flushed) return;
        }
        std::array<std::vector<Record>, LOG_COUNT> base;
        for (std::size_t l = 0; l < LOG_COUNT; ++l)
            base[l] = candidate.promises[sources[l]]->logs[l].records;
        if (!reconcile(candidate, base, candidate.term)) return;
        candidate.role = Role::INSTALLING;
        candidate.has_installed[i] = true;
    }
    void install(std::size_t follower_index, std::size_t leader_index) {
        Node& leader = nodes_[leader_index];
        Node& follower = nodes_[follower_index];
        if (leader_index == follower_index || leader.term == 0) return;
        if (leader.role != Role::INSTALLING && leader.role != Role::IN_OFFICE) return;
        if (!follower.is_up || follower.promised != leader.term) return;
        std::array<std::vector<Record>, LOG_COUNT> base;
        for (std::size_t l = 0; l < LOG_COUNT; ++l)
            base[l] = leader.logs[l].records;
        if (follower.installed == leader.term) {
            leader.has_installed[follower_index] = true;
        } else if (reconcile(follower, base, leader.term)) {
            leader.has_installed[follower_index] = true;
        }
        if (leader.role == Role::INSTALLING && std::ranges::count(leader.has_installed, true) >=
                                                   static_cast<std::ptrdiff_t>(MAJORITY)) {
            leader.role = Role::IN_OFFICE;
            ++counts_.in_office;
            // Whatever it holds durably is now committed.
            note_all_flushed();
        }
    }

    // As nodes find it: the last place where both have a record of one epoch stands for all before it.
    std::size_t common_end(const std::vector<Record>& mine, const std::vector<Record>& theirs) {
        std::size_t common = std::min(mine.size(), theirs.size());
        while (common > 0 && mine[common - 1].leader_epoch != theirs[common - 1].leader_epoch)
            --common;
        if (!std::equal(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(common),
                        theirs.begin())) {
            violation_ = "two logs have a record of one epoch at one place, and differ before it";
        }
        return common;
    }

    // False when the power went before the end.
    bool reconcile(Node& node, const std::array<std::vector<Record>, LOG_COUNT>& base,
                   std::uint64_t term) {
        const auto power_fails = [&] {
            if (!dice_.one_in(12)) return false;
            crash(node);
            return true;
        };
        for (std::size_t l = 0; l < LOG_COUNT; ++l) {
            Log& log = node.logs[l];
            const std::size_t common = common_end(log.records, base[l]);
            cut(log, common);
            if (power_fails()) return false;
            while (log.records.size() < base[l].size()) {
                log.records.push_back(base[l][log.records.size()]);
                if (power_fails()) return false;
            }
            log.faulty_from = 0;  // fetched again, in place
            log.flushed = log.records.size();
            if (power_fails()) return false;
            if (without_ == Without::ALL_LOGS_BEFORE_INSTALL) {
                node.installed = term;
                if (power_fails()) return false;
            }
            if (without_ != Without::CHECKPOINT_BEFORE_INSTALL) log.known_durable = log.flushed;
        }
        node.installed = term;
        node.is_blank = false;
        for (Log& log : node.logs)
            log.is_uncertain = false;
        note_all_flushed();
        return true;
    }

    // --- the normal case
    void append(std::size_t i) {
        Node& leader = nodes_[i];
        if (!leader.is_up || leader.role != Role::IN_OFFICE) return;
        if (leader.promised != leader.term && without_ != Without::REFUSING_OLD_LEADERS) return;
        Log& log = leader.logs[dice_.below(LOG_COUNT)];
        if (log.records.size() >= 6) return;
        log.records.push_back({leader.term, next_record_++});
    }
    void replicate(std::size_t leader_index, std::size_t follower_index) {
        const Node& leader = nodes_[leader_index];
        Node& follower = nodes_[follower_index];
        if (leader_index == follower_index || leader.role != Role::IN_OFFICE) return;
        if (!follower.is_up || follower.installed != leader.term) return;
        if (follower.promised != leader.term && without_ != Without::REFUSING_OLD_LEADERS) return;
        for (std::size_t l = 0; l < LOG_COUNT; ++l) {
            const Log& from = leader.logs[l];
            Log& to = follower.logs[l];
            const std::size_t size = to.records.size();
            if (size >= from.records.size() || leader.logs[l].faulty_from > 0) continue;
            if (size > 0 && to.records.back() != from.records[size - 1]) continue;
            to.records.push_back(from.records[size]);
        }
    }
    void flush(Node& node) {
        if (!node.is_up) return;
        for (Log& log : node.logs)
            log.flushed = log.records.size();
        if (dice_.one_in(3)) {
            for (Log& log : node.logs)
                if (log.faulty_from == 0) log.known_durable = log.flushed;
        }
        note_all_flushed();
    }

    // --- what is committed, seen from above
    // A node answers FLUSHED for what it holds while it stands by the epoch that it has installed; not for a log with a
    // damaged record.
    void note_all_flushed() {
        for (std::size_t i = 0; i < NODE_COUNT; ++i) {
            const Node& node = nodes_[i];
            if (node.is_blank || !node.is_up) continue;
            if (node.promised != node.installed && without_ != Without::REFUSING_OLD_LEADERS)
                continue;
            for (std::size_t l = 0; l < LOG_COUNT; ++l)
                if (node.logs[l].faulty_from == 0) note_flushed(node.installed, l, i);
        }
    }
    void note_flushed(std::uint64_t term, std::size_t l, std::size_t i) {
        const Log& log = nodes_[i].logs[l];
        if (terms_.size() <= term) terms_.resize(term + 1);
        std::array<std::vector<Record>, NODE_COUNT>& flushed = terms_[term].flushed[l];
        if (log.flushed > flushed[i].size())
            flushed[i].assign(log.records.begin(),
                              log.records.begin() + static_cast<std::ptrdiff_t>(log.flushed));
        std::array<std::size_t, NODE_COUNT> sizes{};
        for (std::size_t n = 0; n < NODE_COUNT; ++n)
            sizes[n] = flushed[n].size();
        std::ranges::sort(sizes, std::greater<>());
        // Whichever of the majority: one term has one log.
        std::vector<Record>& committed = terms_[term].committed[l];
        for (const std::vector<Record>& each : flushed) {
            if (each.size() < sizes[MAJORITY - 1] || committed.size() >= sizes[MAJORITY - 1])
                continue;
            committed.assign(each.begin(),
                             each.begin() + static_cast<std::ptrdiff_t>(sizes[MAJORITY - 1]));
        }
    }
    void check(std::size_t l, const Log& taken, std::uint64_t term) {
        std::size_t whole = taken.records.size();
        if (taken.faulty_from > 0) whole = taken.faulty_from - 1;
        bool is_any = false;
        for (std::uint64_t before = 0; before < std::min<std::uint64_t>(term, terms_.size());
             ++before) {
            const std::vector<Record>& committed = terms_[before].committed[l];
            is_any = is_any || !committed.empty();
            for (std::size_t at = 0; at < committed.size(); ++at) {
                if (at < whole && taken.records[at] == committed[at]) continue;
                violation_ = "log " + std::to_string(l) + ": record " + std::to_string(at + 1) +
                             " was committed in epoch " + std::to_string(before) +
                             " and is not in what epoch " + std::to_string(term) + " takes";
                return;
            }
        }
        if (is_any) ++counts_.chosen_with_committed;
    }

    static NodeId id_of(std::size_t index) { return NodeId(static_cast<std::uint16_t>(index + 1)); }

    struct Term {
        std::array<std::array<std::vector<Record>, NODE_COUNT>, LOG_COUNT> flushed;
        std::array<std::vector<Record>, LOG_COUNT> committed;
    };

    Dice dice_;
    Without without_;
    Counts& counts_;
    std::array<Node, NODE_COUNT> nodes_;
    std::vector<Term> terms_;  // by leader_epoch
    std::uint64_t next_epoch_ = 2;
    std::uint64_t next_record_ = 1;
    bool had_damage_ = false;
    std::optional<std::string> violation_;
};

// The first violation, with its seed.
std::optional<std::string> walk_many(Without without, std::uint64_t seed_count, Counts& counts) {
    for (std::uint64_t seed = 1; seed <= seed_count; ++seed) {
        const std::optional<std::string> violation = Walk(seed, without, counts).run();
        if (violation.has_value()) return "seed " + std::to_string(seed) + ": " + *violation;
    }
    return std::nullopt;
}

TEST(ChoiceProperty, takes_every_record_that_a_majority_of_installed_nodes_flushed) {
    Counts counts;
    const auto violation = walk_many(Without::NOTHING, 10'000, counts);
    EXPECT_FALSE(violation.has_value()) << *violation;
    // Nothing is shown by walks that elect nobody, or have nothing to lose.
    EXPECT_GT(counts.chosen, 3'000u);
    EXPECT_GT(counts.chosen_with_committed, 3'000u);
    EXPECT_GT(counts.in_office, 3'000u);
    EXPECT_GT(counts.refused, 300u);
}

class ChoiceRule : public ::testing::TestWithParam<std::pair<Without, const char*>> {};

TEST_P(ChoiceRule, is_needed) {
    Counts counts;
    const auto violation = walk_many(GetParam().first, 100'000, counts);
    EXPECT_TRUE(violation.has_value()) << "no walk lost a record without it";
}

INSTANTIATE_TEST_SUITE_P(
    Each, ChoiceRule,
    ::testing::Values(std::pair{Without::INSTALLED_EPOCH, "installed_epoch"},
                      std::pair{Without::LENGTH, "length"},
                      std::pair{Without::OTHERS_COPIES, "others_copies"},
                      std::pair{Without::WHAT_FAULTY_CLAIM, "what_faulty_claim"},
                      std::pair{Without::FAULTY_MARK, "faulty_mark"},
                      std::pair{Without::UNCERTAIN_MARK, "uncertain_mark"},
                      std::pair{Without::BLANK, "blank"},
                      std::pair{Without::MAJORITY_OF_PROMISES, "majority_of_promises"},
                      std::pair{Without::REFUSING_OLD_LEADERS, "refusing_old_leaders"},
                      std::pair{Without::ALL_LOGS_BEFORE_INSTALL, "all_logs_before_install"},
                      std::pair{Without::CHECKPOINT_BEFORE_INSTALL, "checkpoint_before_install"},
                      std::pair{Without::KEEPING_MARKS, "keeping_marks"},
                      std::pair{Without::PROMISE_ON_DISK, "promise_on_disk"}),
    [](const auto& each) { return std::string(each.param.second); });

}  // namespace
}  // namespace mortar
