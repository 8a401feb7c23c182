// open_alone: the metadata log of a cluster of one: it leads, and what it has synced is committed.
#pragma once

#include <memory>
#include <string>

#include "core/meta/metadata_log.h"
#include "tests/unit/replica/sole_node.h"

namespace mortar::testing {

inline Result<std::unique_ptr<MetadataLog>> open_alone(Fiber& fiber, Env& env, std::string folder,
                                                       std::uint32_t snapshot_records,
                                                       LeaderEpoch leader_epoch) {
    static SoleNode commit;  // has no state
    auto log = MORTAR_TRY(MetadataLog::open(fiber, env, std::move(folder), snapshot_records));
    MORTAR_TRY(log->begin_term(leader_epoch));
    log->set_observer(&commit);
    commit.on_opened(*log);
    return std::unique_ptr<MetadataLog>(std::move(log));
}

}  // namespace mortar::testing
