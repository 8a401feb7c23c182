// PULL: which messages go now, and the long poll until some can.
#include <algorithm>

#include "core/base/assert.h"
#include "core/deliver/delivery_core.h"
#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar {
namespace {

std::uint32_t message_bytes(const Record& record) {
    return static_cast<std::uint32_t>(record.key.size() + record.value.size());
}

// What one read asks for: the lowest ready message and its neighbours, else the next untouched ones.
struct Range {
    Sequence from;
    Sequence through;
};
std::optional<Range> next_range(const DeliveryBook& book, Sequence commit_seq,
                                std::uint64_t count_max) {
    if (const std::optional<Sequence> ready = book.next_ready())
        return Range{*ready,
                     book.ready_run_end(*ready, std::min(count_max, REDELIVERY_RUN_COUNT_MAX))};
    if (!book.may_touch_more() || book.next_first() > commit_seq) return std::nullopt;
    const Sequence from = book.next_first();
    return Range{from, std::min(commit_seq, from.plus(count_max - 1))};
}

}  // namespace

PullRun::PullRun(DeliveryCore& core, std::shared_ptr<GroupConsumer> member)
    : consumer(std::move(member)), timer(core.timers(), [&core, this] { core.advance(*this); }) {}

void DeliveryCore::handle_pull(Session& session, const wire::Pull& pull, Reply reply) {
    Result<std::shared_ptr<PullRun>> accepted = accept_pull(session, pull);
    if (!accepted.ok()) {
        if (session.subscriptions != nullptr) end_pulls_before(*session.subscriptions, nullptr);
        return reply.error(accepted.error());
    }
    const std::shared_ptr<PullRun> run = std::move(accepted).value();
    run->reply = std::move(reply);
    run->consumer->pull = run.get();
    run->consumer->membership.on_pull_started(env_.clock.now());
    session.subscriptions->pulls.push_back(run.get());
    pulls_.insert(run);
    advance(*run);
}

Result<std::shared_ptr<PullRun>> DeliveryCore::accept_pull(const Session& session,
                                                           const wire::Pull& pull) {
    const std::shared_ptr<GroupConsumer> consumer =
        MORTAR_TRY(find_member(session, pull.subscription_id, pull.member_id));
    on_heard(*consumer);
    MORTAR_TRY(consumer->membership.check_epochs(pull.membership_epoch, pull.assignment_epoch));
    MORTAR_TRY(consumer->ownership.check_pull(pull.ownership_epochs));
    if (consumer->pull != nullptr)
        return make_error(ErrorCode::MAX_WAITING_PULLS,
                          "a PULL of this subscription waits already");
    if (session.subscriptions->pulls.size() >= WAITING_PULL_COUNT_MAX)
        return make_error(ErrorCode::MAX_WAITING_PULLS, "64 PULLs wait on this connection already");
    auto run = std::make_shared<PullRun>(*this, consumer);
    run->max_msgs = pull.max_msgs;
    run->max_bytes = pull.max_bytes;
    run->min_bytes = std::min(pull.min_bytes, consumer->credit.free_bytes());
    if (pull.max_bytes != 0) run->min_bytes = std::min(run->min_bytes, pull.max_bytes);
    const Duration wait = std::min(milliseconds(pull.wait_ms), options_.poll_max_wait);
    run->deadline = deadline_after(env_.clock, wait);
    return run;
}

void DeliveryCore::on_other_frame(Session& session) {
    if (session.subscriptions == nullptr) return;
    for (PullRun* run : session.subscriptions->pulls)
        request_end(*run);
}

void DeliveryCore::request_end(PullRun& run) {
    run.end_requested = true;
    advance(run);
    if (!run.consumer->session->is_closed) run.consumer->session->outbox.drained().notify_all();
}

void DeliveryCore::end_pulls_before(SessionSubscriptions& session, const PullRun* run) {
    for (PullRun* earlier : session.pulls) {
        if (earlier == run) return;
        request_end(*earlier);
    }
}

void DeliveryCore::advance(PullRun& run) {
    if (run.has_fiber) return;  // it looks again before it ends
    run.has_fiber = true;
    run.timer.cancel();
    ++run.consumer->group->dispatch_count;
    advancing_.push_back(run.shared_from_this());
    start_dispatch();
}

void DeliveryCore::start_dispatch() {
    while (!advancing_.empty() && dispatch_fiber_count_ < options_.dispatch_fibers_max &&
           (dispatch_fiber_count_ == 0 || env_.scheduler.has_room(1))) {
        std::shared_ptr<PullRun> run = std::move(advancing_.front());
        advancing_.pop_front();
        ++dispatch_fiber_count_;
        fibers_.spawn("deliver.pull", [this, run = std::move(run)](Fiber& fiber) {
            run_pull(fiber, run);
            --dispatch_fiber_count_;
            start_dispatch();
        });
    }
}

void DeliveryCore::end_dispatch(PullRun& run) {
    LiveGroup& group = *run.consumer->group;
    run.has_fiber = false;
    MORTAR_ASSERT(group.dispatch_count > 0);
    --group.dispatch_count;
    if (group.is_removed) group.changed.notify_all();
}

void DeliveryCore::run_pull(Fiber& fiber, const std::shared_ptr<PullRun>& run) {
    const GroupConsumer& consumer = *run->consumer;
    while (true) {
        const Result<void> done = dispatch(fiber, *run);
        if (!done.ok()) return finish(run, done);
        if (const std::optional<Result<void>> answer = verdict(*run)) return finish(run, *answer);
        // Something became ready while another partition was read: nobody will wake us for it.
        if (consumer.candidates.empty()) break;
    }
    end_dispatch(*run);
    run->timer.arm(run->deadline);
}

std::optional<Result<void>> DeliveryCore::verdict(const PullRun& run) const {
    const GroupConsumer& consumer = *run.consumer;
    if (consumer.ended) {
        switch (*consumer.ended) {
            case EndReason::TOPIC_DELETED:
                return make_error(ErrorCode::UNKNOWN_TOPIC, "the topic was deleted");
            case EndReason::EXPELLED:
            case EndReason::GROUP_DELETED:
                return make_error(ErrorCode::UNKNOWN_MEMBER, "the member has ended: SUB again");
            case EndReason::LEFT:
            case EndReason::CLOSED:
            case EndReason::STOPPING:
                return Result<void>();
        }
    }
    // The connection is being closed: what it asks for next it does not read.
    if (consumer.session->outbox.is_finished()) return Result<void>();
    const bool out_of_credit = !consumer.credit.has_count() || consumer.credit.free_bytes() == 0;
    if (run.sent_count > 0) {
        if (run.sent_bytes >= run.min_bytes || run.is_full || out_of_credit || run.has_no_credit ||
            run.exceeds_window)
            return Result<void>();
    } else if (run.has_no_credit) {
        return make_error(ErrorCode::NO_CREDIT, "the credit window is full: ACK, or send CREDIT");
    } else if (run.exceeds_window) {
        return make_error(ErrorCode::MESSAGE_EXCEEDS_CREDIT,
                          "the next message is larger than the byte window: raise credit_bytes");
    }
    if (run.end_requested || env_.clock.now() >= run.deadline) return Result<void>();
    return std::nullopt;
}

void DeliveryCore::finish(const std::shared_ptr<PullRun>& run, const Result<void>& answer) {
    GroupConsumer& consumer = *run->consumer;
    SessionSubscriptions& session = *consumer.session;
    // Answers leave in order of arrival, so those before this one must come to their end too (contract C1).
    end_pulls_before(session, run.get());
    std::erase(session.pulls, run.get());
    MORTAR_ASSERT(consumer.pull == run.get());
    consumer.pull = nullptr;
    consumer.membership.on_pull_ended(env_.clock.now());
    if (!consumer.ended) arm_expiry(consumer);
    end_dispatch(*run);
    pulls_.erase(run);
    if (answer.ok()) return run->reply.ok();
    // CANCELLED: the node stops, and the connection with it.
    if (!answer.is(ErrorCode::CANCELLED)) run->reply.error(answer.error());
}

bool DeliveryCore::may_send(const PullRun& run) const {
    const GroupConsumer& consumer = *run.consumer;
    return !consumer.ended && !run.is_full && !consumer.session->outbox.is_finished();
}

// One look over all partitions that may have something, beginning where the last PULL did not.
Result<void> DeliveryCore::dispatch(Fiber& fiber, PullRun& run) {
    GroupConsumer& consumer = *run.consumer;
    run.has_no_credit = false;
    run.exceeds_window = false;
    PartitionIndex at = consumer.first_partition;
    std::size_t left_count = consumer.candidates.size();
    const bool is_first_look = run.sent_count == 0;
    for (bool is_first = is_first_look; left_count > 0 && may_send(run); --left_count) {
        auto it = consumer.candidates.lower_bound(at);
        if (it == consumer.candidates.end()) it = consumer.candidates.begin();
        if (it == consumer.candidates.end()) break;
        const PartitionIndex partition = *it;
        at = partition.next();
        if (std::exchange(is_first, false)) consumer.first_partition = at;
        MORTAR_TRY(serve(fiber, run, partition));
    }
    return {};
}

Result<void> DeliveryCore::serve(Fiber& fiber, PullRun& run, PartitionIndex partition) {
    GroupConsumer& consumer = *run.consumer;
    GroupPartition& source = *consumer.group->partitions[partition.value];
    while (may_send(run)) {
        Partition* stored = partitions_.find({consumer.group->topic_id, partition});
        const bool is_served = stored != nullptr && !stored->is_quarantined() &&
                               source.is_serving() && consumer.ownership.is_active(partition);
        std::uint64_t count_max = consumer.credit.free_count();
        if (run.max_msgs != 0)
            count_max = std::min<std::uint64_t>(count_max, run.max_msgs - run.sent_count);
        const std::optional<Range> range = is_served
                                               ? next_range(*source.book(), stored->readable_seq(),
                                                            std::max<std::uint64_t>(count_max, 1))
                                               : std::nullopt;
        if (!range) {
            consumer.candidates.erase(partition);  // on_ready brings it back
            return {};
        }
        if (!consumer.credit.has_count()) {
            run.has_no_credit = true;
            return {};
        }
        Outbox& outbox = consumer.session->outbox;
        if (!outbox.has_room(DISPATCH_OUTBOX_BYTES_MAX)) {
            MORTAR_SOMETIMES(true, "dispatch waits for a full outbox");
            if (run.end_requested) return {};
            MORTAR_TRY(outbox.drained().wait(fiber));
            continue;
        }
        std::uint64_t read_bytes =
            std::min<std::uint64_t>(DISPATCH_READ_BYTES, consumer.credit.free_bytes());
        if (run.max_bytes != 0)
            read_bytes = std::min(
                read_bytes, run.max_bytes - std::min<std::uint64_t>(run.sent_bytes, run.max_bytes));
        const std::uint64_t life = source.life();
        Result<RecordBatch> batch = stored->read(fiber, range->from, range->through,
                                                 std::max<std::uint64_t>(read_bytes, 1));
        if (batch.is(ErrorCode::CANCELLED)) return batch.error();
        if (consumer.ended || source.life() != life) continue;
        if (!batch.ok()) {
            env_.log.error("dispatch_read_failed",
                           {{"topic_id", std::to_string(consumer.group->topic_id.value)},
                            {"partition", std::to_string(partition.value)},
                            {"reason", batch.error().to_string()}});
            consumer.candidates.erase(partition);
            // Of a log that closed or is damaged on_ready tells; of a disk that reads again nobody.
            consumer.unread.insert(partition);
            consumer.reread.arm(deadline_after(env_.clock, READ_RETRY_DELAY));
            return {};
        }
        send_batch(run, source, partition, std::move(batch).value());
        if (run.has_no_credit || run.exceeds_window) return {};
    }
    return {};
}

void DeliveryCore::send_batch(PullRun& run, GroupPartition& source, PartitionIndex partition,
                              RecordBatch batch) {
    GroupConsumer& consumer = *run.consumer;
    const auto owners =
        std::make_shared<const std::vector<std::shared_ptr<const void>>>(std::move(batch.owners));
    for (const Record& record : batch.records) {
        if (!may_send(run) || !consumer.session->outbox.has_room(DISPATCH_OUTBOX_BYTES_MAX)) return;
        const DeliveryBook& book = *source.book();
        const bool is_untouched = record.sequence == book.next_first() && book.may_touch_more();
        // Settled while it was read.
        if (!is_untouched && book.standing(record.sequence) != DeliveryBook::Standing::READY)
            continue;
        const std::uint32_t bytes = message_bytes(record);
        if (run.max_bytes != 0 && run.sent_count > 0 && run.sent_bytes + bytes > run.max_bytes) {
            run.is_full = true;
            return;
        }
        const CreditWindow::Fit fit = consumer.credit.fits(bytes);
        run.has_no_credit = run.has_no_credit || fit == CreditWindow::Fit::NO_CREDIT;
        run.exceeds_window = run.exceeds_window || fit == CreditWindow::Fit::EXCEEDS_WINDOW;
        if (fit != CreditWindow::Fit::YES) return;
        send_message(run, source, partition, record, owners);
    }
}

void DeliveryCore::send_message(PullRun& run, GroupPartition& source, PartitionIndex partition,
                                const Record& record, const std::shared_ptr<const void>& owner) {
    GroupConsumer& consumer = *run.consumer;
    const std::uint32_t bytes = message_bytes(record);
    ++delivery_counter_;
    MORTAR_ASSERT(delivery_counter_ >> DELIVERY_COUNTER_BITS == 0);
    const DeliveryId delivery_id(options_.leader_epoch.value << DELIVERY_COUNTER_BITS |
                                 delivery_counter_);
    const DeliveryBook::Sent sent = source.deliver(record.sequence, delivery_id, bytes);
    consumer.credit.take(bytes);
    ++run.sent_count;
    run.sent_bytes += bytes;
    if (run.max_msgs != 0 && run.sent_count == run.max_msgs) run.is_full = true;
    if (run.max_bytes != 0 && run.sent_bytes >= run.max_bytes) run.is_full = true;

    wire::Msg message;
    message.subscription_id = consumer.subscription_id;
    message.topic_id = consumer.group->topic_id;
    message.partition = partition;
    message.sequence = record.sequence;
    message.delivery_id = delivery_id;
    message.attempt = sent.attempt;
    message.ownership_epoch = consumer.ownership.ownership_epoch(partition);
    message.producer_id = record.producer_id;
    message.producer_seq = record.producer_seq;
    message.flags = sent.is_last ? wire::MSG_FLAG_LAST : std::uint16_t{0};
    message.key = record.key;
    message.value = record.value;
    Outbox& outbox = consumer.session->outbox;
    if (record.value.size() <= Outbox::COPY_BYTES_MAX) {
        scratch_.clear();
        wire::encode(scratch_, message);
        outbox.append(scratch_);
    } else {
        ByteVector head;
        wire::encode_head(head, message);
        outbox.push(std::move(head), record.value, owner);
    }
}

void DeliveryCore::watch(const std::shared_ptr<GroupConsumer>& consumer, PartitionIndex partition) {
    const PartitionKey key{consumer->group->topic_id, partition};
    const auto [it, is_new] = watches_.try_emplace(key);
    it->second.emplace(consumer->membership.member_id(), consumer);
    if (is_new)
        fibers_.spawn("deliver.watch", [this, key](Fiber& fiber) { run_watch(fiber, key); });
}

void DeliveryCore::unwatch(const GroupConsumer& consumer, PartitionIndex partition) {
    const auto it = watches_.find({consumer.group->topic_id, partition});
    // Its fiber ends it at the next commit, or serves the next listener.
    if (it != watches_.end()) it->second.erase(consumer.membership.member_id());
}

void DeliveryCore::run_watch(Fiber& fiber, PartitionKey key) {
    while (true) {
        Partition* stored = partitions_.find(key);
        if (stored == nullptr || watches_.at(key).empty()) break;
        // Before the first wait too: a commit may have come before this fiber did. Each wake counts, a new commit_seq or
        // not: a log that came back after a failure can be read again.
        for (const auto& [member_id, consumer] : watches_.at(key))
            consumer->on_ready(key.partition);
        if (!stored->committed().wait(fiber).ok()) break;
    }
    watches_.erase(key);
}

}  // namespace mortar
