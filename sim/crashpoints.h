// crashpoints: a scripted scenario (PUB, roll, checkpoint, consume, ack, snapshot), crashed at every disk operation.
//          With three brokers a follower is away and catches up, and the leader dies and another one is elected; each broker in
//          turn is the one that crashes: first leader and then behind, next leader, and the one that catches up.
// Shape:   a first run counts the operations; then each is crashed before and after it, by kill and by power loss with
//          distinct images, and the recovery that follows is crashed again. After each the broker must come up and keep
//          every promise made before the crash.
// Prove:   taking out any single sync site must make some crash point fail, or that sync is not needed.
// Source:  design 6 (sim crashpoints).
#pragma once

#include <cstdint>
#include <string>

namespace mortar::sim {

struct CrashpointOptions {
    std::uint64_t nodes = 1;  // or 3
    std::uint64_t images_per_point = 6;
    std::uint64_t every = 1;
    unsigned jobs = 1;  // processes; the result does not depend on it
    std::string drop_sync;
    bool list_syncs = false;
    bool prove = false;
};

// 0 clean, 1 a promise was broken (prove: or a sync is not needed), 2 no such sync site, or syncs of three brokers asked for
// (what one loses the others have), 3 too much of it vacuous, or no election or catch-up in it, 5 harness fault.
int crashpoints(const CrashpointOptions& options);

}  // namespace mortar::sim
