// choice: which node's copy of each log an election takes. Pure.
// Shape:     One rule for every log, METADATA_LOG too. best = the highest (installed_epoch of the node, last) among copies
//            that are intact or uncertain; a log that a promise does not name is empty and intact there. best is taken if
//            - a majority of the configured nodes hold the log intact, or
//            - no faulty copy claims more than best, and every uncertain one is older (installed_epoch) than best; one that
//              is damaged and has lost its end besides is both, or
//            - every configured node was heard, none is blank, and at most one of them is faulty.
//            A faulty copy is never taken, but what it claims counts: left out before, it takes committed records along.
//            Blank nodes count in nothing, unless all configured nodes are blank: then it is the cluster's first start.
//            With one configured node there is nothing to choose: its copy is taken as it is, a damaged one stays damaged.
// Owns:      nothing that is borrowed: the result stands alone.
// Errors:    none as such: outcome and words for the operator.
// Invariant: with at most one damaged or lost copy, what a majority flushed under one leader is in the copy taken.
// Source:    design 4 (Election, Damage, Blank nodes).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/replica/peer_messages.h"

namespace mortar {

struct NodePromise {
    NodeId node_id;
    peer::PromiseGiven given;
};

struct LogChoice {
    PartitionKey log;
    NodeId node_id;  // who has it
    LogEnd end;      // what to take of it: all
    bool operator==(const LogChoice&) const = default;
};

// Why no copy of a log can be taken.
struct LogObstacle {
    PartitionKey log;
    NodeId node_id;      // whose copy stands in the way
    std::string reason;  // for the operator: names log and node
};

enum class ChoiceOutcome : std::uint8_t {
    CHOSEN,       // logs: all that occur, ascending, METADATA_LOG first and always there
    FIRST_START,  // every configured node is blank and empty: draw a cluster id
    WAIT,         // too few promises that count; missing and blank say whose
    UNCLEAN,      // UNCLEAN_ELECTION_REJECTED
};

struct Choice {
    ChoiceOutcome outcome = ChoiceOutcome::WAIT;
    std::vector<LogChoice> logs;  // with UNCLEAN: those that could be taken
    // With UNCLEAN: which logs, and whose copies. Empty: the obstacle is not a log but a node (reason).
    std::vector<LogObstacle> obstacles;
    peer::ClusterId cluster_id{};  // of the nodes that are not blank; zero when all are
    std::vector<NodeId> missing;   // configured, not heard
    std::vector<NodeId> blank;     // heard, hold nothing
    std::string reason;            // WAIT, UNCLEAN: for the operator
};

// configured: all nodes of the cluster, ascending. promises: at most one of each, all for one leader_epoch. self: the
// candidate; of equal copies it takes its own, which it need not fetch.
Choice choose_copies(std::span<const NodePromise> promises, std::span<const NodeId> configured,
                     NodeId self);

constexpr std::size_t majority_of(std::size_t node_count) {
    return node_count / 2 + 1;
}

}  // namespace mortar
