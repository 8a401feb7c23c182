#include "core/produce/publish.h"

#include <algorithm>
#include <utility>

#include "core/fiber/deadline.h"

namespace mortar {
namespace {

Error outcome_unknown(std::string_view why) {
    return make_error(ErrorCode::READ_ONLY_DEGRADED,
                      std::string(why).append(": the outcome is unknown, send the same PUB again"));
}

Error window_error(const WindowVerdict& verdict) {
    if (verdict.kind == WindowVerdict::Kind::GAP) {
        return make_error(ErrorCode::SEQ_GAP, "the next producer_seq here is " +
                                                  std::to_string(verdict.expected.value) +
                                                  ": send what is missing first");
    }
    return make_error(
        ErrorCode::SEQ_EXPIRED,
        "this producer_seq is no longer remembered: start with a new producer_id at 1");
}

}  // namespace

Publisher::Publisher(Env& env, const MetadataLog& metadata, PartitionTable& partitions, Term term)
    : env_(env),
      partitions_(partitions),
      term_(std::move(term)),
      admission_(env, metadata, partitions, term_.durability == wire::Durability::QUORUM) {
    partitions_.set_observer(this);
}

Publisher::~Publisher() {
    partitions_.set_observer(nullptr);
}

void Publisher::start(Group& group) {
    group.spawn("produce.space", [this](Fiber& fiber) { admission_.sample_space(fiber); });
    group.spawn("produce.overdue", [this](Fiber& fiber) { answer_overdue(fiber); });
}

void Publisher::handle_pub(const wire::Pub& pub, Reply reply) {
    // Stage 2: where it goes, whether it is new, whether there is room.
    const Result<Partition*> routed = admission_.route(pub);
    if (!routed.ok()) return reply.error(routed.error());
    Partition& partition = **routed;
    const WindowVerdict verdict = partition.windows().check(pub.producer_id, pub.producer_seq);
    if (verdict.kind == WindowVerdict::Kind::DUPLICATE) {
        return answer_duplicate(partition, verdict.sequence, std::move(reply));
    }
    const Result<void> room =
        admission_.check_room(partition, record_bytes(pub.key.size(), pub.value.size()));
    if (!room.ok()) return reply.error(room.error());
    if (term_.check_append) {
        const Result<void> allowed = term_.check_append(partition);
        if (!allowed.ok()) return reply.error(allowed.error());
    }
    if (verdict.kind != WindowVerdict::Kind::NEXT) return reply.error(window_error(verdict));

    // Still stage 2: into the log's buffer and the window, in one step that nothing can come
    // between.
    Record record;
    record.producer_id = pub.producer_id;
    record.producer_seq = pub.producer_seq;
    record.timestamp_unix_ms = env_.clock.wall_unix_ms();
    record.leader_epoch = term_.leader_epoch;
    record.key = pub.key;
    record.value = pub.value;
    const Result<Sequence> sequence = partition.append(record);
    if (!sequence.ok())
        return reply.error(make_error(ErrorCode::QUORUM_LOST, "the partition's log failed: retry"));
    if (term_.pace != nullptr)
        term_.pace->on_appended(record_bytes(pub.key.size(), pub.value.size()));

    // Stage 3 is the log writer's; stage 4 begins in on_committed.
    wait_for_commit(partition, {std::move(reply), *sequence,
                                deadline_after(env_.clock, QUORUM_TIMEOUT), false});
}

void Publisher::end_term() {
    for (const PartitionKey key : std::exchange(waiting_, {})) {
        Partition* partition = partitions_.find(key);
        if (partition == nullptr) continue;
        for (PendingPub& pub : std::exchange(partition->pending(), {})) {
            pub.reply.error(make_error(ErrorCode::PRODUCER_EPOCH_STALE,
                                       "this node leads no more: the outcome is unknown, find the "
                                       "leader and send the same PUB again"));
        }
    }
}

bool Publisher::has_pending() const {
    return std::any_of(waiting_.begin(), waiting_.end(), [this](PartitionKey key) {
        Partition* partition = partitions_.find(key);
        return partition != nullptr && !partition->pending().empty();
    });
}

void Publisher::answer_duplicate(Partition& partition, Sequence sequence, Reply reply) {
    if (sequence <= partition.commit_seq())
        return answer_ok(partition, sequence, true, std::move(reply));
    // The original may or may not be found when the log is opened again.
    if (partition.is_closed()) return reply.error(outcome_unknown("the partition's log failed"));
    MORTAR_SOMETIMES(true, "publish: retry before the original is committed");
    wait_for_commit(partition,
                    {std::move(reply), sequence, deadline_after(env_.clock, QUORUM_TIMEOUT), true});
}

void Publisher::wait_for_commit(Partition& partition, PendingPub pub) {
    if (partition.pending().empty()) {
        if (waiting_.empty()) first_waits_.notify_all();
        waiting_.insert(
            partition
                .key());  // stays until answer_overdue looks: a busy partition costs no allocation
    }
    // By sequence: a retry must not wait for what is newer than its original, else an answer behind it on the same
    // connection would tell an older commit_seq. Deadlines stay ascending, so that the front is due first.
    std::deque<PendingPub>& pending = partition.pending();
    auto at = pending.end();
    while (at != pending.begin() && std::prev(at)->sequence > pub.sequence)
        --at;
    if (at != pending.end()) pub.deadline = std::min(pub.deadline, at->deadline);
    pending.insert(at, std::move(pub));
}

void Publisher::on_committed(Partition& partition) {
    std::deque<PendingPub>& pending = partition.pending();
    const Sequence commit_seq = partition.commit_seq();
    while (!pending.empty() && pending.front().sequence <= commit_seq) {
        PendingPub pub = std::move(pending.front());
        pending.pop_front();
        answer_ok(partition, pub.sequence, pub.deduplicated, std::move(pub.reply));
    }
}

void Publisher::answer_ok(const Partition& partition, Sequence sequence, bool deduplicated,
                          Reply reply) {
    MORTAR_ASSERT(sequence <= partition.commit_seq());
    const std::uint8_t result_flags =
        deduplicated ? wire::RESULT_FLAG_DEDUPLICATED : std::uint8_t{0};
    reply.ok(wire::PubResult{sequence, term_.durability, term_.leader_epoch, partition.commit_seq(),
                             result_flags});
}

void Publisher::on_log_failed(Partition& partition) {
    fail_pending(partition, outcome_unknown("the partition's log failed"));
}

void Publisher::on_removed(Partition& partition) {
    fail_pending(partition, make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted"));
}

void Publisher::fail_pending(Partition& partition, const Error& error) {
    std::deque<PendingPub> pending = std::exchange(partition.pending(), {});
    waiting_.erase(partition.key());
    for (PendingPub& pub : pending)
        pub.reply.error(error);
}

void Publisher::answer_overdue(Fiber& fiber) {
    while (true) {
        const MonoTime deadline = next_deadline();
        // What comes meanwhile has a later deadline than all that waits now.
        const Result<void> woken = waiting_.empty() ? first_waits_.wait(fiber)
                                                    : env_.scheduler.sleep_until(fiber, deadline);
        if (!woken.ok()) return;
        const MonoTime now = env_.clock.now();
        for (const PartitionKey key : waiting_) {
            Partition& partition = *partitions_.find(key);
            if (answer_overdue_of(partition, now) && term_.on_overdue) term_.on_overdue(partition);
        }
    }
}

bool Publisher::answer_overdue_of(Partition& partition, MonoTime now) {
    std::deque<PendingPub>& pending = partition.pending();
    bool any_overdue = false;
    while (!pending.empty() && pending.front().deadline <= now) {
        PendingPub pub = std::move(pending.front());
        pending.pop_front();
        pub.reply.error(outcome_unknown("it was not confirmed in time"));
        any_overdue = true;
    }
    return any_overdue;
}

// Of what waits; forgets partitions where nothing does.
MonoTime Publisher::next_deadline() {
    MonoTime earliest = NEVER;
    for (auto key = waiting_.begin(); key != waiting_.end();) {
        const std::deque<PendingPub>& pending = partitions_.find(*key)->pending();
        if (pending.empty()) {
            key = waiting_.erase(key);
        } else {
            earliest = std::min(earliest, pending.front().deadline);
            ++key;
        }
    }
    return earliest;
}

}  // namespace mortar
