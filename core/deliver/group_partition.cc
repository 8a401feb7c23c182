#include "core/deliver/group_partition.h"

#include "core/base/assert.h"
#include "core/fiber/deadline.h"

namespace mortar {
namespace {

Error unknown_delivery(const char* text) {
    return make_error(ErrorCode::UNKNOWN_DELIVERY, text);
}
Error outcome_unknown() {
    return make_error(ErrorCode::INTERNAL,
                      "outcome unknown: the delivery ledger could not be written; send it again");
}
Error overdue() {
    return make_error(ErrorCode::READ_ONLY_DEGRADED,
                      "outcome unknown: the disk did not answer in time; send it again");
}
Error read_only() {
    return make_error(ErrorCode::QUORUM_LOST,
                      "the delivery ledger takes nothing at the moment: send it again later");
}

}  // namespace

GroupPartition::GroupPartition(const Parts& parts, std::string folder, PartitionIndex partition,
                               Sequence start_after)
    : env_(parts.env),
      timers_(parts.timers),
      jitter_(parts.jitter),
      options_(parts.options),
      ledger_bytes_min_(parts.ledger_bytes_min),
      folder_(std::move(folder)),
      partition_(partition),
      start_after_(start_after),
      fibers_(parts.env.scheduler),
      timer_(parts.timers, [this] { on_timer(); }),
      overdue_timer_(parts.timers, [this] { answer_overdue(); }) {}

Result<void> GroupPartition::open(Fiber& fiber) {
    const Result<void> loaded = load(fiber);
    if (loaded.is(ErrorCode::CANCELLED)) return loaded;
    if (!loaded.ok()) start_reopening();
    return {};
}

Result<void> GroupPartition::load(Fiber& fiber) {
    const Result<void> loaded = [&]() -> Result<void> {
        CursorImage image = MORTAR_TRY(Ledger::recover(fiber, env_.disk, folder_, start_after_));
        DeliveryBook book = MORTAR_TRY(DeliveryBook::restore(
            options_, std::move(image.settled), image.unsettled, env_.clock.now(), jitter_));
        book_.emplace(std::move(book));
        ledger_ = std::make_unique<Ledger>(
            env_, timers_, folder_, "ledger." + folder_, image.cursor_epoch, ledger_bytes_min_,
            [this](ByteVector& into, std::uint64_t cursor_epoch) {
                encode_cursor(into, cursor_epoch, book_->settled(), book_->unsettled());
            });
        ledger_->set_on_flushed([this] { on_flushed(); });
        return {};
    }();
    if (!loaded.ok()) {
        if (!loaded.is(ErrorCode::CANCELLED))
            env_.log.error("ledger_unavailable",
                           {{"folder", folder_}, {"reason", loaded.error().to_string()}});
        return loaded;
    }
    if (on_loaded_) on_loaded_(Sequence(book_->next_first().value - 1));
    ++life_;
    ledger_failed_ = false;
    arm_timer();
    tell_ready();
    return {};
}

void GroupPartition::start_reopening() {
    fibers_.spawn("ledger.reopen." + folder_, [this](Fiber& fiber) {
        if (ledger_ != nullptr) ledger_->abandon(fiber);
        ledger_ = nullptr;
        while (true) {
            if (!env_.scheduler.sleep_until(fiber, deadline_after(env_.clock, LEDGER_REOPEN_DELAY))
                     .ok())
                return;
            const Result<void> loaded = load(fiber);
            if (loaded.ok()) return;
            // Damage does not go away by itself, and guessing would deliver what was acknowledged: a human looks.
            const bool may_heal =
                loaded.is(ErrorCode::IO_ERROR) || loaded.is(ErrorCode::NO_SPACE) ||
                loaded.is(ErrorCode::LIMIT_REACHED) || loaded.is(ErrorCode::PERMISSION_DENIED);
            if (!may_heal) return;
        }
    });
}

Result<void> GroupPartition::close(Fiber& fiber) {
    closing_ = true;
    fibers_.cancel_and_join(fiber);
    timer_.cancel();
    Result<void> closed;
    if (is_serving()) {
        closed = ledger_->close(fiber);
    } else if (ledger_ != nullptr) {
        ledger_->abandon(fiber);
    }
    ledger_ = nullptr;
    return closed;
}

Result<void> GroupPartition::remove(Fiber& fiber) {
    closing_ = true;
    owner_ = nullptr;
    answer_all(make_error(ErrorCode::UNKNOWN_MEMBER, "the group was deleted"));
    fibers_.cancel_and_join(fiber);
    timer_.cancel();
    if (ledger_ != nullptr) {
        ledger_->set_on_flushed(nullptr);
        ledger_->abandon(fiber);
        ledger_ = nullptr;
    }
    return Ledger::remove_files(fiber, env_, folder_);
}

void GroupPartition::set_owner(PartitionOwner* owner) {
    MORTAR_ASSERT(owner_ == nullptr && owner != nullptr);
    owner_ = owner;
    ++life_;
}

void GroupPartition::release_owner(bool is_clean) {
    MORTAR_ASSERT(owner_ != nullptr);
    if (is_serving()) {
        const MonoTime now = env_.clock.now();
        apply(book_->release_owner(is_clean, now, jitter_));
    }
    owner_ = nullptr;
    ++life_;
}

DeliveryBook::Sent GroupPartition::deliver(Sequence sequence, DeliveryId delivery_id,
                                           std::uint32_t message_bytes) {
    MORTAR_ASSERT(is_serving());
    const DeliveryBook::Sent sent =
        book_->deliver(sequence, delivery_id, message_bytes, env_.clock.now());
    LedgerEvent event;
    event.type = LedgerEventType::DELIVER;
    event.sequence = sequence;
    event.count = sent.attempt;
    event.delivery_id = delivery_id;
    ledger_->append_lazy(event);
    arm_timer();
    return sent;
}

void GroupPartition::ack(Sequence sequence, Reply reply) {
    if (!is_serving()) return reply.error(read_only());
    const DeliveryBook::Standing standing = book_->standing(sequence);
    if (standing == DeliveryBook::Standing::UNTOUCHED)
        return reply.error(unknown_delivery("the message was never delivered to this group"));
    if (standing == DeliveryBook::Standing::SETTLED)
        return reply.error(unknown_delivery("already settled"));
    if (is_read_only()) return reply.error(read_only());
    // Its sender may take "already settled" for durable.
    if (standing == DeliveryBook::Standing::SETTLING)
        return wait_for_flush(ledger_->appended_mark(), Pending::ALREADY_SETTLED, sequence,
                              std::move(reply));
    const DeliveryBook::Freed freed = book_->settle(sequence);
    LedgerEvent event;
    event.type = LedgerEventType::ACK;
    event.sequence = sequence;
    const Result<std::uint64_t> mark = ledger_->append(event);
    MORTAR_ASSERT(mark.ok());
    wait_for_flush(*mark, Pending::SETTLE, sequence, std::move(reply));
    if (freed) free_credit(*freed);
}

void GroupPartition::nack(Sequence sequence, DeliveryId delivery_id, wire::NackReason reason,
                          Reply reply) {
    if (!is_serving()) return reply.error(read_only());
    if (!book_->is_current_delivery(sequence, delivery_id))
        return reply.error(unknown_delivery("this delivery has ended"));
    if (reason == wire::NackReason::REJECT)
        return reply.error(make_error(ErrorCode::DLQ_UNAVAILABLE,
                                      "this version writes no dead letters: the message is kept"));
    if (is_read_only()) return reply.error(read_only());
    const MonoTime now = env_.clock.now();
    const DeliveryBook::Failed failed =
        book_->fail(sequence, reason == wire::NackReason::RETRY, now, jitter_);
    write_failure(failed, std::move(reply));
}

void GroupPartition::progress(Sequence sequence, DeliveryId delivery_id, Reply reply) {
    if (!is_serving()) return reply.error(read_only());
    if (!book_->is_current_delivery(sequence, delivery_id))
        return reply.error(unknown_delivery("this delivery has ended"));
    book_->progress(sequence, env_.clock.now());
    arm_timer();
    reply.ok();
}

void GroupPartition::write_failure(const DeliveryBook::Failed& failed, Reply reply) {
    LedgerEvent event;
    event.type = LedgerEventType::FAIL;
    event.sequence = failed.sequence;
    event.count = failed.failures;
    event.is_backing_off = failed.is_backing_off;
    const Result<std::uint64_t> mark = ledger_->append(event);
    MORTAR_ASSERT(mark.ok());
    wait_for_flush(*mark, Pending::FAIL, failed.sequence, std::move(reply));
    free_credit(failed.message_bytes);
}

void GroupPartition::wait_for_flush(std::uint64_t mark, Pending what, Sequence sequence,
                                    Reply reply) {
    const MonoTime deadline = deadline_after(env_.clock, SETTLE_TIMEOUT);
    waiting_.push_back({mark, what, sequence, deadline, std::move(reply)});
    overdue_timer_.arm(deadline);
}

// Time ran out for the answers, not for the events: these stay queued, and their flush moves the book on.
void GroupPartition::answer_overdue() {
    const MonoTime now = env_.clock.now();
    const bool was_read_only = is_read_only();
    while (overdue_count_ < waiting_.size() && waiting_[overdue_count_].deadline <= now) {
        Reply& reply = waiting_[overdue_count_].reply;
        if (reply.is_pending()) reply.error(overdue());
        ++overdue_count_;
    }
    if (is_read_only() && !was_read_only) env_.log.warn("ledger_overdue", {{"folder", folder_}});
    if (overdue_count_ < waiting_.size()) overdue_timer_.arm(waiting_[overdue_count_].deadline);
}

void GroupPartition::answer_all(const Error& error) {
    for (Waiting& waiting : waiting_) {
        if (waiting.reply.is_pending()) waiting.reply.error(error);
    }
    waiting_.clear();
    overdue_count_ = 0;
    overdue_timer_.cancel();
}

void GroupPartition::on_flushed() {
    if (ledger_->failure()) return on_ledger_failed();
    const std::uint64_t flushed_mark = ledger_->flushed_mark();
    const MonoTime now = env_.clock.now();
    const bool was_full = !book_->may_touch_more();
    while (!waiting_.empty() && waiting_.front().mark <= flushed_mark) {
        Waiting waiting = std::move(waiting_.front());
        waiting_.pop_front();
        if (overdue_count_ > 0) --overdue_count_;
        if (waiting.what == Pending::ALREADY_SETTLED) {
            if (waiting.reply.is_pending())
                waiting.reply.error(unknown_delivery("already settled"));
            continue;
        }
        if (waiting.what == Pending::SETTLE) book_->settle_flushed(waiting.sequence);
        if (waiting.what == Pending::FAIL) book_->fail_flushed(waiting.sequence, now);
        if (waiting.reply.is_pending()) waiting.reply.ok();
    }
    arm_timer();
    if (book_->has_ready() || was_full) tell_ready();
}

void GroupPartition::on_ledger_failed() {
    if (ledger_failed_) return;
    ledger_failed_ = true;
    ++life_;
    timer_.cancel();
    env_.log.error("ledger_failed",
                   {{"folder", folder_}, {"reason", ledger_->failure()->to_string()}});
    MORTAR_SOMETIMES(!waiting_.empty(), "ledger failed under waiting ACKs");
    answer_all(outcome_unknown());
    // Nothing is in flight any more; what the disk holds decides what goes again.
    const DeliveryBook::Ended ended = book_->release_owner(true, env_.clock.now(), jitter_);
    for (const std::uint32_t message_bytes : ended.returned_bytes)
        free_credit(message_bytes);
    if (!closing_) start_reopening();
}

void GroupPartition::on_timer() {
    if (!is_serving()) return;
    const MonoTime now = env_.clock.now();
    apply(book_->expire(now, jitter_));
    arm_timer();
}

void GroupPartition::apply(const DeliveryBook::Ended& ended) {
    for (const DeliveryBook::Failed& failed : ended.failed)
        write_failure(failed, Reply());
    for (const std::uint32_t message_bytes : ended.returned_bytes)
        free_credit(message_bytes);
    if (book_->has_ready()) tell_ready();
}

void GroupPartition::free_credit(std::uint32_t message_bytes) {
    if (owner_ != nullptr) owner_->on_freed(message_bytes);
}

void GroupPartition::tell_ready() {
    if (owner_ != nullptr) owner_->on_ready(partition_);
}

void GroupPartition::arm_timer() {
    timer_.arm(book_->next_deadline());
}

}  // namespace mortar
