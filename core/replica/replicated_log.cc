#include "core/replica/replicated_log.h"

namespace mortar {

std::string log_name(PartitionKey key) {
    if (key == METADATA_LOG) return "metadata";
    return std::to_string(key.topic_id.value) + "/" + std::to_string(key.partition.value);
}

}  // namespace mortar
