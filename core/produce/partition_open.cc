#include "core/produce/partition.h"

namespace mortar {

PartitionTable::PartitionTable(Env& env, LogOptions options)
    : PartitionTable(env, [&env, options](Fiber& fiber, const std::string& folder, const std::string& name) {
          return PartitionLog::open(fiber, env, folder, name, options);
      }) {}

}  // namespace mortar
