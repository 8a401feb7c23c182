// partition: one partition as this node serves it: its log, its producer windows and commit_seq; and the table of all.
// Shape:    PartitionTable finds by (topic_id, partition) and opens and removes whole topics.
// Owns:     the logs. Pointers stay valid until the topic is removed; fetch them again after every suspension.
// Suspends: open_topic, remove_topic, close.
// Durable:  everything up to commit_seq() (on one node: what the log has flushed).
// Source:   design 3 and 4, contract P1-P4.
#pragma once

#include <map>
#include <memory>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/log/partition_log.h"
#include "core/meta/catalog.h"

namespace mortar {

class ProducerWindows;  // produce/producer_window.h

class Partition {
  public:
    Partition(PartitionKey key, std::unique_ptr<PartitionLog> log);
    ~Partition();

    PartitionKey key() const { return key_; }
    PartitionLog& log() { return *log_; }
    ProducerWindows& windows() { return *windows_; }
    // Highest sequence that a majority has synced. Consumers see nothing above it.
    Sequence commit_seq() const { return log_->flushed_sequence(); }
    // Served only when its log is neither faulty nor closed after an error.
    bool is_quarantined() const { return log_->faulty_from().has_value(); }
    // Notified when commit_seq moved, and when the partition goes away.
    Event& committed() { return committed_; }

  private:
    PartitionKey key_;
    std::unique_ptr<PartitionLog> log_;
    std::unique_ptr<ProducerWindows> windows_;
    Event committed_;
};

class PartitionTable {
  public:
    PartitionTable(Env& env, LogOptions options);
    ~PartitionTable();
    // Opens all partitions of the topic: recovers logs and windows. IO_ERROR, UNSUPPORTED_FORMAT.
    Result<void> open_topic(Fiber& fiber, const Topic& topic);
    // After the deleting mutation is applied: waiting work gets UNKNOWN_TOPIC, then files go.
    Result<void> remove_topic(Fiber& fiber, TopicId topic_id);
    Partition* find(PartitionKey key);
    Result<void> close(Fiber& fiber);
    std::uint64_t unflushed_bytes() const;  // of all logs; bounded by admission

  private:
    Env& env_;
    LogOptions options_;
    std::map<PartitionKey, std::unique_ptr<Partition>> partitions_;
};

}  // namespace mortar
