// What people ask a run for: names, meanings, and the line that repeats it.
#include <fmt/format.h>

#include "nemesis/nemesis.h"
#include "sim/params.h"
#include "sim/run.h"

namespace mortar::sim {

std::vector<std::pair<std::string, std::string>> parameter_help() {
    return Params::help();
}

bool known_nemeses(const std::string& nemesis) {
    return parse_families(nemesis, 1).ok();
}

std::vector<std::string> swarm_families(const RunOptions& options) {
    const std::uint64_t nodes = Params(options.seed, options.pins)["nodes"];
    std::vector<std::string> names;
    for (const Nemesis* nemesis : swarm_nemeses(static_cast<std::size_t>(nodes)))
        names.emplace_back(nemesis->name());
    return names;
}

std::vector<std::pair<std::string, std::string>> nemesis_help() {
    return {
        {"kill", "kill -9 of a process: the page cache stays, connections die"},
        {"power", "power loss: any subset of the sectors that were not synced survives"},
        {"torn", "power loss in the middle of sectors: half-written or garbage"},
        {"pause", "a process stands still for a while, then goes on"},
        {"reset", "a connection is reset, also in the middle of a frame"},
        {"partition", "no packet gets from some nodes to others: one way, both, bridge, flapping"},
        {"clock", "a clock drifts within the margin of the leases, or its wall time jumps"},
        {"slow-disk", "a broker's disk is slow, or hangs for seconds"},
        {"fsync-fail", "a broker's disk fails syncs and writes; dirty pages are gone, or not"},
        {"disk-full", "a broker's file system is full for a while; writes come short"},
        {"bitrot", "bits of a log flip at rest, on one broker of several"},
        {"slow-net", "latency, a bottleneck, or a link that only small frames pass"},
        {"rolling", "an operator restarts every broker in turn"},
        {"wild-clock", "a clock drifts beyond the margin; never part of swarm"},
        {"wipe", "one broker of several comes back with an empty disk; never part of swarm"},
        {"swarm", "a subset drawn from the seed; with one broker of the first five"},
        {"all", "all that swarm may draw"},
        {"none", "no faults"}};
}

std::vector<std::pair<std::string, std::string>> checker_help() {
    return {{"1", "a PUB is answered OK only after its record is durable on a majority"},
            {"2", "no acknowledged record is lost or altered; a refused one never appears"},
            {"3", "one sequence per (producer, seq); sequences dense"},
            {"4", "first deliveries by sequence, with the bytes that were published"},
            {"5", "after healing every record is delivered and settled for every group"},
            {"6", "after ACK got OK a message is never sent to that group again"},
            {"7", "a leader_epoch has one leader; no two leases are valid at one instant"},
            {"8", "commit_seq, ack_floor and epochs never go back"},
            {"9", "what is committed is the same on all brokers"},
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
