// partition: one partition as this node serves it: its log, its producer windows and commit_seq;
// and the table of all.
// Shape:    PartitionTable finds by (topic_id, partition), opens and removes whole topics, and
//           opens a log again, with backoff, after a failed write or sync closed it, or a failing
//           disk did not let it open when the node started, or after a damaged part was replaced.
//           A partition is one of the logs that replication keeps equal on all nodes: it tells the
//           ReplicatedLogObserver what happened, and who counts nodes moves commit_seq. Windows are
//           fed by both kinds of append, and go back with a cut.
// Owns:     the logs. Pointers stay valid until remove_topic; fetch them again after every
//           suspension.
// Errors:   open_topic: IO_ERROR, NO_SPACE, UNSUPPORTED_FORMAT; recover_topic: the same, IO_ERROR
//           aside. A damaged log is no error: its partition is quarantined, and so it is from the
//           moment when a read meets damage.
// Suspends: what takes Fiber&.
// Durable:  everything up to commit_seq(), on a majority of nodes (on one node: what the log has
//           flushed), unless the partition is quarantined: then commit_seq() says what once was.
// Invariant: what was both committed and synced here is here: a log that is opened again and has
//            less of it means quarantine, until a leader brought it back. commit_seq() is ahead of
//            what is synced here while other nodes are faster: consumers read up to readable_seq().
// Source:   design 3 and 4, contract P1-P4.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/env/env.h"
#include "core/fiber/event.h"
#include "core/fiber/group.h"
#include "core/fiber/mutex.h"
#include "core/log/partition_log.h"
#include "core/log/segment_rewrite.h"
#include "core/meta/catalog.h"
#include "core/produce/producer_window.h"
#include "core/replica/replicated_log.h"
#include "core/wire/outbox.h"

namespace mortar {

inline constexpr Duration REOPEN_BACKOFF_MIN = milliseconds(100);
inline constexpr Duration REOPEN_BACKOFF_MAX = seconds(5);

// A PUB whose record is in the log and not yet committed.
struct PendingPub {
    Reply reply;
    Sequence sequence;
    MonoTime deadline;
    bool deduplicated = false;
};

class PartitionTable;

class Partition final : public ReplicatedLog {
  public:
    Partition(PartitionTable& table, PartitionKey key, std::shared_ptr<PartitionLog> log,
              ProducerWindows windows);
    Partition(const Partition&) = delete;
    Partition& operator=(const Partition&) = delete;

    PartitionKey key() const override { return key_; }
    // Another object after each suspension: see read.
    PartitionLog& log() { return *log_; }
    const PartitionLog& log() const { return *log_; }
    const ProducerWindows& windows() const { return windows_; }
    LogEnd end() const override { return log_->end(); }
    Sequence flushed() const override { return log_->flushed_sequence(); }
    // Highest sequence that a majority has synced, as far as this log reaches.
    Sequence commit_seq() const override;
    // Consumers see nothing above it.
    Sequence readable_seq() const { return std::min(commit_seq(), flushed()); }
    std::optional<Sequence> faulty_from() const override { return log_->faulty_from(); }
    // A torn tail is written down as it is found (set_before_repair): once a leader has made this copy whole, that it was
    // torn when it was opened says nothing any more.
    bool is_uncertain() const override { return lost_committed_; }
    // Served only when its log is neither faulty nor closed after an error.
    bool is_quarantined() const { return lost_committed_ || log_->faulty_from().has_value(); }
    // A write or sync failed, or the disk did not let it open; it is about to be opened again.
    bool is_closed() const override { return log_->failure().has_value(); }
    // False until the log was opened for the first time: nobody knows then what is committed.
    bool is_end_known() const { return is_end_known_; }
    // Notified when readable_seq or commit_seq moved, when the log failed, came back or turned out to be damaged,
    // and when the partition goes away.
    Event& committed() { return committed_; }

    // Into log and windows. LOG_CLOSED.
    Result<Sequence> append(const Record& record);
    // log().read, safe against the log being opened again meanwhile.
    Result<RecordBatch> read(Fiber& fiber, Sequence from, Sequence through,
                             std::uint64_t max_bytes);
    Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                   std::uint64_t max_bytes) override;
    Result<LeaderEpoch> epoch_at(Fiber& fiber, Sequence sequence) override;
    Result<void> append_bytes(ByteSpan records) override;
    Result<void> cut(Fiber& fiber, Sequence keep_through) override;
    Result<void> make_durable(Fiber& fiber) override;
    std::optional<DamagedPart> damaged_part() const override { return log_->damaged_part(); }
    Result<std::vector<EpochRun>> runs_behind_damage(Fiber& fiber) override;
    Result<void> repair(Fiber& fiber, Sequence through, const FetchRecords& fetch) override;
    Result<Scrubbed> scrub(Fiber& fiber, Sequence from, std::uint64_t max_bytes) override;
    void advance_commit(Sequence committed) override;
    // PUBs that wait for commit_seq, in order of arrival; publish owns their meaning.
    std::deque<PendingPub>& pending() { return pending_; }

  private:
    friend class PartitionTable;
    // While somebody needs the log's checkpoint now: nobody waits for a commit to save windows.
    class Hurry {
      public:
        explicit Hurry(Partition& partition);
        ~Hurry();
        Hurry(const Hurry&) = delete;
        Hurry& operator=(const Hurry&) = delete;

      private:
        Partition& partition_;
    };
    void raise_commit_floor(Sequence known);
    void note_readable();
    // The log is closed for good; the next one is opened with what this process knows of it.
    void end_log();
    Result<void> wait_flushed(Fiber& fiber, PartitionLog& log, Sequence through);

    PartitionTable& table_;
    PartitionKey key_;
    std::shared_ptr<PartitionLog> log_;
    ProducerWindows windows_;
    std::deque<PendingPub> pending_;
    Sequence commit_seq_;     // as told; the log may end before it since it was opened again
    Sequence readable_seen_;  // the highest readable_seq there ever was
    bool lost_committed_ = false;
    std::size_t hurry_count_ = 0;
    Event hurry_ended_;
    bool is_end_known_ = true;
    bool quarantine_reported_ = false;
    bool reopening_ = false;                     // a fiber of the table is at it
    bool log_ended_ = false;                     // the failed log's fibers are gone
    KnownSynced known_synced_;                   // of the log that ended
    std::uint64_t counted_unflushed_bytes_ = 0;  // what the table's sum holds of this log
    Event committed_;
};

// What publish wants to know; called from the log's fibers, never suspends.
class PartitionObserver {
  public:
    virtual ~PartitionObserver() = default;
    virtual void on_committed(Partition& partition) = 0;
    // The log closed after an error: what is above commit_seq has an unknown outcome.
    virtual void on_log_failed(Partition& partition) = 0;
    // The topic was deleted: waiting work gets UNKNOWN_TOPIC.
    virtual void on_removed(Partition& partition) = 0;
};

class PartitionTable {
  public:
    using OpenLog = std::function<Result<std::unique_ptr<PartitionLog>>(
        Fiber& fiber, const std::string& folder, const std::string& name)>;
    PartitionTable(Env& env, LogOptions options);
    // With another way to open a log, for tests.
    PartitionTable(Env& env, OpenLog open_log);
    ~PartitionTable();
    void set_observer(PartitionObserver* observer) { observer_ = observer; }
    // Before the first topic is opened. Without one commit_seq does not move.
    void set_replication(ReplicatedLogObserver* replication) { replication_ = replication; }
    // Called when a log's tail is torn, before anything on disk changes; its error is that of opening.
    void set_before_repair(std::function<Result<void>(Fiber&, PartitionKey)> before_repair) {
        before_repair_ = std::move(before_repair);
    }

    // Opens all partitions of the topic: recovers logs and windows. OK when it is open already.
    Result<void> open_topic(Fiber& fiber, const Topic& topic);
    // The same when the node starts: a partition that the disk does not let open stays closed for
    // the time being, so that it does not take the others along.
    Result<void> recover_topic(Fiber& fiber, const Topic& topic);
    // The moment the deleting mutation is applied: find knows the topic no more, waiting work gets
    // UNKNOWN_TOPIC. Its logs live on until remove_topic, for who still reads them.
    void retire_topic(TopicId topic_id);
    // After retire_topic, once nobody reads: ends the logs, and files go.
    Result<void> remove_topic(Fiber& fiber, TopicId topic_id);
    Partition* find(PartitionKey key);
    // Ascending.
    std::vector<PartitionKey> keys() const;
    // 0 when the topic is not open here.
    std::uint16_t partition_count(TopicId topic_id) const;
    // As of ReplicatedLog. While records are fetched the partition stays as it is: damaged, and served by nobody.
    Result<void> repair(Fiber& fiber, PartitionKey key, Sequence through,
                        const FetchRecords& fetch);
    // For keyless PUBs: 0, 1, .. n-1, 0, ..
    PartitionIndex next_round_robin(TopicId topic_id);
    // Flushes and closes every log; the first error, after all were closed.
    Result<void> close(Fiber& fiber);

    // Of all logs; bounded by admission.
    std::uint64_t unflushed_bytes() const { return unflushed_bytes_; }
    // A durable memory of somebody else (a group's ledger) says that everything up to known was committed. A log that ends
    // before lost acknowledged records: the partition is quarantined rather than give their sequences to others.
    void note_committed(PartitionKey key, Sequence known);
    // Partitions that take no PUB: quarantined, or closed for the time being.
    std::size_t unserved_count() const;
    std::size_t opened_count() const { return opened_count_; }

  private:
    friend class Partition;
    struct TopicPartitions {
        std::vector<std::unique_ptr<Partition>> partitions;
        std::uint16_t round_robin = 0;
    };
    struct Opened {
        std::shared_ptr<PartitionLog> log;
        ProducerWindows windows;
        Sequence known_committed;
    };
    enum class OnDiskError : std::uint8_t { FAIL, LEAVE_CLOSED };
    Result<void> open(Fiber& fiber, const Topic& topic, OnDiskError on_disk_error);
    Result<Opened> open_log_and_windows(Fiber& fiber, PartitionKey key, const KnownSynced& known);
    Result<TopicPartitions> open_partitions(Fiber& fiber, const Topic& topic,
                                            OnDiskError on_disk_error);
    std::unique_ptr<Partition> make_closed(PartitionKey key, const Error& error);
    void report_unopened(PartitionKey key, const Error& error);
    void leave_closed(Partition& partition, const Error& error);
    Result<std::unique_ptr<PartitionLog>> open_log(Fiber& fiber, PartitionKey key,
                                                   const KnownSynced& known);
    void attach(Partition& partition);
    // Takes what the partition's log says now into the sum.
    void count_unflushed(Partition& partition);
    Result<void> close_log(Fiber& fiber, Partition& partition);
    Result<void> save_windows_of(Fiber& fiber, Partition& partition);
    void on_flushed(Partition& partition);
    void on_committed(Partition& partition);
    void on_state_changed(Partition& partition);
    void report_quarantine(Partition& partition);
    void start_reopening(Partition& partition);
    Result<void> reopen(Fiber& fiber, PartitionKey key);
    Result<void> try_reopen(Fiber& fiber, PartitionKey key);
    void take_opened(Partition& partition, Opened opened);
    Result<void> repair_part(Fiber& fiber, PartitionKey key, Sequence through,
                             const FetchRecords& fetch);
    Result<void> put_in_place(Fiber& fiber, Partition& partition, SegmentRewrite rewritten);

    Env& env_;
    LogOptions log_options_;
    std::shared_ptr<TailBudget> tails_;
    OpenLog open_log_;  // for tests
    std::function<Result<void>(Fiber&, PartitionKey)> before_repair_;
    PartitionObserver* observer_ = nullptr;
    ReplicatedLogObserver* replication_ = nullptr;
    std::map<TopicId, TopicPartitions> topics_;
    std::map<TopicId, TopicPartitions> retired_;  // deleted; their files are still there
    std::optional<TopicId> opening_;              // until its partitions stand in topics_
    bool opening_is_retired_ = false;             // it was deleted meanwhile
    std::set<PartitionKey> repairing_;            // a fiber writes a segment of it anew
    std::uint64_t unflushed_bytes_ = 0;
    std::size_t opened_count_ = 0;
    Mutex topology_;  // one opens, removes or reopens at a time
    Group reopening_;
};

// "topics/<topic_id>/<partition>"
std::string partition_folder(PartitionKey key);

}  // namespace mortar
