#include "sim/params.h"

#include "core/base/assert.h"
#include "core/env/rng.h"
#include "io-sim/world.h"

namespace mortar::sim {
namespace {

struct Row {
    const char* name;
    const char* meaning;
    std::uint64_t low;  // what a pin may be
    std::uint64_t high;
    std::uint64_t (*draw)(Rng&);
};

std::uint64_t one_of(Rng& rng, std::initializer_list<std::uint64_t> choices) {
    return *(choices.begin() + rng.below(choices.size()));
}
std::uint64_t from_to(Rng& rng, std::uint64_t low, std::uint64_t high) {
    return low + rng.below(high - low + 1);
}

const Row ROWS[] = {
    {"nodes", "broker nodes: 1 or 3; of three nobody consumes", 1, 3,
     [](Rng&) { return std::uint64_t{1}; }},
    {"duration_s", "simulated seconds with faults on", 1, 3600,
     [](Rng&) { return std::uint64_t{30}; }},
    {"topics", "topics", 1, 16, [](Rng& r) { return from_to(r, 1, 2); }},
    {"partitions", "partitions a topic", 1, 64,
     [](Rng& r) {
         return one_of(r, {1, 1, 2, 3, 4});
     }},
    {"producers", "producer clients", 1, 64, [](Rng& r) { return from_to(r, 1, 3); }},
    {"groups", "consumer groups, spread over the topics", 1, 64,
     [](Rng& r) { return from_to(r, 1, 2); }},
    {"hostile", "clients that break the rules", 0, 16,
     [](Rng& r) {
         return one_of(r, {0, 0, 0, 1});
     }},
    {"pubs_per_s", "PUBs a second, all producers together", 1, 10000,
     [](Rng& r) { return from_to(r, 25, 60); }},
    {"burst", "messages a producer publishes at once", 1, 1024,
     [](Rng& r) {
         return one_of(r, {1, 4, 16, 64});
     }},
    {"value_bytes_max", "largest value", 0, 1048576,
     [](Rng& r) {
         return one_of(r, {60, 200, 1000, 6000});
     }},
    {"plain_per_mille", "producers without producer_id", 0, 1000,
     [](Rng& r) {
         return one_of(r, {0, 0, 150});
     }},
    {"window", "credit of a consumer in messages", 1, 65535,
     [](Rng& r) {
         return one_of(r, {1, 4, 32, 256});
     }},
    {"nack_per_mille", "messages that the consumer NACKs", 0, 1000,
     [](Rng& r) {
         return one_of(r, {0, 20, 100});
     }},
    {"die_per_mille", "consumer process is killed after a message and started again", 0, 1000,
     [](Rng& r) {
         return one_of(r, {0, 0, 5});
     }},
    {"handler_ms_max", "longest handler", 0, 60000,
     [](Rng& r) {
         return one_of(r, {0, 2, 20});
     }},
    {"leave_per_mille", "consumer leaves after a message and comes back", 0, 1000,
     [](Rng& r) {
         return one_of(r, {0, 5});
     }},
    {"latest_groups", "groups that begin at the end of the log", 0, 64,
     [](Rng& r) {
         return one_of(r, {0, 0, 1});
     }},
    {"churn", "clients that create topics, use them and delete them", 0, 16,
     [](Rng& r) {
         return one_of(r, {0, 0, 1});
     }},
    {"wall_jumps", "jumps of the broker's wall clock, up to a day", 0, 1000,
     [](Rng& r) {
         return one_of(r, {0, 0, 3});
     }},
    {"segment_max_bytes", "segment size", 4096, 1073741824,
     [](Rng& r) {
         return one_of(r, {16384, 65536, 262144});
     }},
    {"checkpoint_every_bytes", "flushed bytes between checkpoints", 1024, 1073741824,
     [](Rng& r) {
         return one_of(r, {8192, 32768, 131072});
     }},
    {"metadata_snapshot_records", "mutations between snapshots", 1, 1000000,
     [](Rng& r) {
         return one_of(r, {8, 64});
     }},
    {"graceful_restarts", "orderly restarts of the broker", 0, 100,
     [](Rng& r) {
         return one_of(r, {0, 0, 1, 3});
     }},
    {"ledger_max_bytes", "ledger size at which it is rotated behind a new cursor", 1024, 1073741824,
     [](Rng& r) {
         return one_of(r, {4096, 32768, 262144});
     }},
    {"lease_ms", "delivery lease", 100, 3600000,
     [](Rng& r) {
         return one_of(r, {500, 2000, 30000});
     }},
    {"max_attempts", "delivery_max_attempts", 1, 1000,
     [](Rng& r) {
         return one_of(r, {2, 5, 1000});
     }},
    {"scrub_pause_ms", "between two walks that look for damage", 1, 3600000,
     [](Rng& r) {
         return one_of(r, {500, 3000, 10000});
     }},
};

}  // namespace

Params::Params(std::uint64_t seed, const std::map<std::string, std::uint64_t>& pins) {
    for (const Row& row : ROWS) {
        Rng rng(stream_seed(seed, "params", row.name));
        const std::uint64_t drawn = row.draw(rng);
        const auto pin = pins.find(row.name);
        values_[row.name] = pin == pins.end() ? drawn : pin->second;
    }
}

std::uint64_t Params::operator[](const std::string& name) const {
    const auto found = values_.find(name);
    MORTAR_ASSERT(found != values_.end());
    return found->second;
}

Result<void> Params::check_pin(const std::string& name, std::uint64_t value) {
    for (const Row& row : ROWS) {
        if (row.name != name) continue;
        // A cluster has one node or three (contract, peers).
        const bool is_possible = name != "nodes" || value != 2;
        if (value >= row.low && value <= row.high && is_possible) return {};
        return make_error(ErrorCode::INVALID_ARGUMENT,
                          "parameter " + name + " may be " + std::to_string(row.low) + ".." +
                              std::to_string(row.high) + ", not " + std::to_string(value));
    }
    return make_error(ErrorCode::INVALID_ARGUMENT,
                      "no parameter is called '" + name + "'; see sim list");
}

std::vector<std::pair<std::string, std::string>> Params::help() {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Row& row : ROWS) {
        rows.emplace_back(row.name, std::string(row.meaning) + ", " + std::to_string(row.low) +
                                        ".." + std::to_string(row.high));
    }
    return rows;
}

}  // namespace mortar::sim
