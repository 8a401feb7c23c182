#include "core/client/consumer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/fiber/deadline.h"
#include "core/wire/codec.h"

namespace mortar::client {

namespace {

constexpr Duration RETRY_PAUSE = milliseconds(100);
constexpr Duration RETRY_PAUSE_MAX = seconds(2);
// A lease counts as over a little early: the broker's began before the message arrived here.
constexpr std::int64_t LEASE_PARTS = 10;
constexpr std::int64_t PROGRESSES_PER_LEASE = 3;

bool ends_membership(ErrorCode code) {
    return code == ErrorCode::STALE_GENERATION || code == ErrorCode::NOT_OWNER ||
           code == ErrorCode::STALE_OWNER || code == ErrorCode::UNKNOWN_MEMBER ||
           code == ErrorCode::MAX_WAITING_PULLS;
}

// failure_count from 1.
Duration retry_pause(int failure_count) {
    constexpr int DOUBLINGS_MAX = 5;  // 100 ms x 2^5 is above RETRY_PAUSE_MAX already
    return std::min(RETRY_PAUSE * (std::int64_t{1} << std::min(failure_count - 1, DOUBLINGS_MAX)),
                    RETRY_PAUSE_MAX);
}

template <class Message>
ByteVector encoded(const Message& message) {
    ByteVector frame;
    wire::encode(frame, message);
    return frame;
}

}  // namespace

Consumer::Consumer(const ClientEnv& env, LinkOptions link, ConsumerOptions options)
    : env_(env),
      options_(std::move(options)),
      link_(env, std::move(link), this),
      group_(env.scheduler) {
    MORTAR_ASSERT(options_.credit_count > 0);
    MORTAR_ASSERT(options_.credit_bytes > 0);
}

Consumer::~Consumer() = default;

void Consumer::start() {
    MORTAR_ASSERT(!started_);
    started_ = true;
    link_.start();
    group_.spawn("client.consumer", [this](Fiber& fiber) { run(fiber); });
}

Result<Message> Consumer::next(Fiber& fiber, MonoTime deadline) {
    while (true) {
        while (!queue_.empty()) {
            Message message = std::move(queue_.front());
            queue_.pop_front();
            const auto found = sub_.unsettled.find(message.delivery_id);
            MORTAR_ASSERT(found != sub_.unsettled.end());
            Delivery& delivery = found->second;
            const MonoTime now = env_.clock.now();
            // contract D7; covers TIM-09
            if (now - delivery.received_at >= options_.lease - options_.lease / LEASE_PARTS) {
                ++stats_.dropped_expired;
                erase_delivery(message.delivery_id);
                work_.notify_one();
                continue;
            }
            delivery.state = Delivery::State::IN_HAND;
            delivery.progress_at = now + options_.lease / PROGRESSES_PER_LEASE;
            if (delivery.progress_at < sub_.next_progress) {
                sub_.next_progress = delivery.progress_at;
                work_.notify_one();
            }
            ++stats_.handed_out;
            return message;
        }
        if (fatal_) return *fatal_;
        if (closing_) return make_error(ErrorCode::CONNECTION_CLOSED, "the consumer was closed");
        ++waiting_count_;
        if (!sub_.batch.empty()) work_.notify_one();
        Result<void> waited = messages_.wait(fiber, deadline);
        --waiting_count_;
        MORTAR_TRY(std::move(waited));
    }
}

void Consumer::ack(const Message& message) {
    remember_ack(message.partition, message.sequence);
    settle(message, {.delivery_id = message.delivery_id, .waiter = nullptr});
}

Result<void> Consumer::ack_and_wait(Fiber& fiber, const Message& message) {
    remember_ack(message.partition, message.sequence);
    auto waiter = std::make_shared<AckWaiter>();
    settle(message, {.delivery_id = message.delivery_id, .waiter = waiter});
    if (!waiter->result) flush_batch();
    while (!waiter->result)
        MORTAR_TRY(waiter->answered.wait(fiber));
    return std::move(*waiter->result);
}

void Consumer::nack(const Message& message, wire::NackReason reason) {
    settle(
        message,
        {.delivery_id = message.delivery_id, .is_nack = true, .reason = reason, .waiter = nullptr});
    if (sub_.is_active) flush_batch();
}

void Consumer::settle(const Message& message, Settlement settlement) {
    const auto found = sub_.unsettled.find(message.delivery_id);
    // Delivered in an earlier session: it comes again, or came already. An ack of it counts for that copy.
    if (message.session != link_.session() || !sub_.is_active || found == sub_.unsettled.end()) {
        answer_waiter(
            settlement,
            make_error(ErrorCode::CONNECTION_CLOSED,
                       "the delivery ended before it was settled; the message comes again"));
        if (!settlement.is_nack) settle_queued_copy(message);
        return;
    }
    if (found->second.state == Delivery::State::SETTLING) {
        answer_waiter(settlement,
                      make_error(ErrorCode::INVALID_ARGUMENT, "the message was settled before"));
        return;
    }
    found->second.state = Delivery::State::SETTLING;
    add_to_batch(std::move(settlement), found->second.bytes);
}

void Consumer::add_to_batch(Settlement settlement, std::size_t bytes) {
    const bool was_empty = sub_.batch.empty();
    sub_.batch.push_back(std::move(settlement));
    sub_.batch_bytes += bytes;
    if (was_empty) sub_.batch_due = env_.clock.now() + ACK_BATCH_WAIT;
    if (batch_is_full()) {
        flush_batch();
    } else if (was_empty) {
        work_.notify_one();
    }
}

void Consumer::settle_queued_copy(const Message& message) {
    const auto copy = std::find_if(queue_.begin(), queue_.end(), [&](const Message& queued) {
        return queued.partition == message.partition && queued.sequence == message.sequence;
    });
    if (copy == queue_.end()) return;
    const DeliveryId delivery_id = copy->delivery_id;
    queue_.erase(copy);
    settle_again(delivery_id, sub_.unsettled.find(delivery_id)->second);
}

void Consumer::settle_again(DeliveryId delivery_id, Delivery& delivery) {
    ++stats_.settled_again;
    delivery.state = Delivery::State::SETTLING;
    add_to_batch({.delivery_id = delivery_id, .waiter = nullptr}, delivery.bytes);
}

// contract C6
bool Consumer::batch_is_full() const {
    return sub_.batch.size() >= ACK_BATCH_COUNT || sub_.batch_bytes >= ACK_BATCH_BYTES ||
           sub_.batch.size() * 2 >= options_.credit_count ||
           sub_.batch_bytes * 2 >= options_.credit_bytes;
}

void Consumer::flush_batch() {
    const std::vector<Settlement> batch = std::exchange(sub_.batch, {});
    sub_.batch_bytes = 0;
    sub_.batch_due = NEVER;
    for (const Settlement& settlement : batch) {
        const auto found = sub_.unsettled.find(settlement.delivery_id);
        MORTAR_ASSERT(found != sub_.unsettled.end());
        send_settlement(settlement, found->second);
    }
}

void Consumer::send_refused(MonoTime due) {
    while (!sub_.refused.empty() && sub_.refused.begin()->first <= due) {
        const Settlement settlement = std::move(sub_.refused.begin()->second);
        sub_.refused.erase(sub_.refused.begin());
        const auto found = sub_.unsettled.find(settlement.delivery_id);
        MORTAR_ASSERT(found != sub_.unsettled.end());
        send_settlement(settlement, found->second);
    }
}

void Consumer::send_settlement(const Settlement& settlement, const Delivery& delivery) {
    // A session that just ended is cleaned up by on_down, which answers who waits.
    if (!link_.is_up()) {
        sub_.batch.push_back(settlement);
        return;
    }
    ++sub_.settling_count;
    Link::Answer answer = in_session(
        [this, settlement](Result<ByteSpan> result) { on_settled(settlement, std::move(result)); });
    if (settlement.is_nack) {
        wire::Nack nack;
        nack.subscription_id = sub_.subscription_id;
        nack.topic_id = topic_->topic_id;
        nack.partition = delivery.partition;
        nack.seq = delivery.sequence;
        nack.delivery_id = settlement.delivery_id;
        nack.ownership_epoch = delivery.ownership_epoch;
        nack.reason = settlement.reason;
        link_.send(wire::Op::NACK, encoded(nack), std::move(answer));
        return;
    }
    wire::Ack ack;
    ack.subscription_id = sub_.subscription_id;
    ack.topic_id = topic_->topic_id;
    ack.partition = delivery.partition;
    ack.seq = delivery.sequence;
    ack.delivery_id = settlement.delivery_id;
    ack.ownership_epoch = delivery.ownership_epoch;
    link_.send(wire::Op::ACK, encoded(ack), std::move(answer));
}

void Consumer::on_settled(const Settlement& settlement, Result<ByteSpan> answer) {
    if (answer.is(ErrorCode::CONNECTION_CLOSED)) {
        answer_waiter(settlement, std::move(answer).error());
        return;
    }
    MORTAR_ASSERT(sub_.settling_count > 0);
    --sub_.settling_count;
    const auto found = sub_.unsettled.find(settlement.delivery_id);
    if (found == sub_.unsettled.end()) {
        answer_waiter(settlement,
                      answer.ok() ? Result<void>() : Result<void>(std::move(answer).error()));
    } else if (answer.ok() || answer.is(ErrorCode::UNKNOWN_DELIVERY)) {
        confirm(settlement, found->second);
    } else if (answer.is(ErrorCode::UNKNOWN_MEMBER)) {
        // The subscription ended, not the delivery's chance: the message comes again to the next one.
        answer_waiter(settlement,
                      make_error(ErrorCode::CONNECTION_CLOSED, answer.error().to_string()));
        link_.restart(std::move(answer).error());
    } else if (error_info(answer.error().code).retryable) {
        ++found->second.refusal_count;
        const Duration pause = retry_pause(found->second.refusal_count);
        sub_.refused.emplace(env_.clock.now() + pause, settlement);
    } else {
        env_.log.debug("client_settle_refused", {{"reason", answer.error().to_string()}});
        if (options_.on_settle_refused) {
            options_.on_settle_refused(found->second.partition, found->second.sequence,
                                       answer.error());
        }
        erase_delivery(settlement.delivery_id);
        answer_waiter(settlement, std::move(answer).error());
    }
    work_.notify_one();
    settled_.notify_all();
}

void Consumer::confirm(const Settlement& settlement, const Delivery& delivery) {
    if (settlement.is_nack) {
        ++stats_.nacked;
    } else {
        ++stats_.acked;
        unconfirmed_acks_.erase({delivery.partition, delivery.sequence});
    }
    erase_delivery(settlement.delivery_id);
    answer_waiter(settlement, {});
}

void Consumer::remember_ack(PartitionIndex partition, Sequence sequence) {
    unconfirmed_acks_.insert({partition, sequence});
    if (unconfirmed_acks_.size() > UNCONFIRMED_ACKS_MAX)
        unconfirmed_acks_.erase(unconfirmed_acks_.begin());
}

void Consumer::erase_delivery(DeliveryId delivery_id) {
    const auto found = sub_.unsettled.find(delivery_id);
    MORTAR_ASSERT(found != sub_.unsettled.end());
    sub_.unsettled_bytes -= found->second.bytes;
    sub_.unsettled.erase(found);
}

void Consumer::answer_waiter(const Settlement& settlement, Result<void> result) {
    if (settlement.waiter == nullptr || settlement.waiter->result) return;
    settlement.waiter->result = std::move(result);
    settlement.waiter->answered.notify_all();
}

Link::Answer Consumer::in_session(std::function<void(Result<ByteSpan>)> then) {
    // fail_pending of the link runs before on_down, so an answer always meets the session that it was asked in.
    return [this, session = link_.session(), then = std::move(then)](Result<ByteSpan> answer) {
        MORTAR_ASSERT(session == link_.session());
        then(std::move(answer));
    };
}

void Consumer::on_up() {
    sub_ = {};
}

void Consumer::on_down(const Error& why) {
    const Subscription ended = std::exchange(sub_, {});
    queue_.clear();
    const Error unknown = make_error(ErrorCode::CONNECTION_CLOSED, why.to_string());
    for (const Settlement& settlement : ended.batch)
        answer_waiter(settlement, unknown);
    for (const auto& [due, settlement] : ended.refused)
        answer_waiter(settlement, unknown);
    work_.notify_one();
    settled_.notify_all();
}

void Consumer::run(Fiber& fiber) {
    while (!fatal_) {
        Result<void> up = link_.wait_up(fiber, NEVER);
        if (up.is(ErrorCode::CANCELLED)) return;
        if (!up.ok()) {
            fail(std::move(up).error());
            return;
        }
        const std::uint64_t session = link_.session();
        Result<void> subscribed = subscribe(fiber);
        if (subscribed.ok()) {
            if (sub_.is_active) serve(fiber);
        } else if (subscribed.is(ErrorCode::CANCELLED)) {
            return;
        } else if (subscribed.is(ErrorCode::CONNECTION_CLOSED)) {
            // The link connects again by itself, after its backoff.
        } else if (may_subscribe_later(subscribed.error().code)) {
            // A broker that does not lead ended the session: the link looks for the one that does. covers NET-04
            if (!link_.is_up() || session != link_.session()) continue;
            ++subscribe_failure_count_;
            const Duration pause = retry_pause(subscribe_failure_count_);
            if (!env_.scheduler.sleep_until(fiber, env_.clock.now() + pause).ok()) return;
        } else {
            fail(std::move(subscribed).error());
            return;
        }
        if (fiber.is_cancelled()) return;
    }
}

bool Consumer::may_subscribe_later(ErrorCode code) const {
    // The broker may keep this consumer's own member a while, after a connection that died unnoticed.
    if (code == ErrorCode::GROUP_MEMBER_LIMIT) return stats_.subscriptions > 0;
    return error_info(code).retryable;
}

void Consumer::fail(Error why) {
    fatal_ = std::move(why);
    work_.notify_one();
    messages_.notify_all();
    settled_.notify_all();
}

Result<void> Consumer::subscribe(Fiber& fiber) {
    MORTAR_TRY(check_name("group", options_.group));
    if (!topic_) topic_ = MORTAR_TRY(lookup_topic(fiber, env_, link_, options_.topic, NEVER));
    if (!link_.is_up()) return make_error(ErrorCode::CONNECTION_CLOSED, "not connected");
    wire::Sub sub;
    sub.group = options_.group;
    sub.topic_id = topic_->topic_id;
    sub.start_policy = options_.start_policy;
    sub.credit_count = options_.credit_count;
    sub.credit_bytes = options_.credit_bytes;
    auto waiter = std::make_shared<AckWaiter>();
    // The answer is taken in the link's fiber: NOTICEs may stand right behind it.
    link_.send(wire::Op::SUB, encoded(sub), [this, waiter](Result<ByteSpan> answer) {
        Result<void> outcome;
        if (!answer.ok()) {
            outcome = std::move(answer).error();
        } else if (Result<wire::SubResult> result = wire::decode_sub_result(*answer); result.ok()) {
            on_subscribed(*result);
        } else {
            outcome = std::move(result).error();
        }
        waiter->result = std::move(outcome);
        waiter->answered.notify_all();
    });
    while (!waiter->result)
        MORTAR_TRY(waiter->answered.wait(fiber));
    return std::move(*waiter->result);
}

void Consumer::on_subscribed(const wire::SubResult& result) {
    sub_ = {};
    sub_.is_active = true;
    sub_.subscription_id = result.subscription_id;
    sub_.member_id = result.member_id;
    sub_.membership_epoch = result.membership_epoch;
    sub_.assignment_epoch = result.assignment_epoch;
    ++stats_.subscriptions;
    subscribe_failure_count_ = 0;
    env_.log.debug("client_subscribed", {{"group", options_.group}});
}

void Consumer::serve(Fiber& fiber) {
    while (sub_.is_active && link_.is_up() && !fatal_) {
        const MonoTime next = do_due_work(env_.clock.now());
        // Nothing that is due now may be slept over; sending can only have made more of it, never less.
        Result<void> waited = work_.wait(fiber, next);
        if (!waited.ok() && !waited.is(ErrorCode::TIMED_OUT)) return;
    }
}

// Sends what is due, in the order in which the broker should see it; returns when something is due next.
MonoTime Consumer::do_due_work(MonoTime now) {
    const bool app_waits = waiting_count_ > 0 || closing_;
    if (!sub_.batch.empty() && (sub_.batch_due <= now || app_waits)) flush_batch();
    send_refused(now);
    finish_revokes(now);
    if (sub_.next_progress <= now) send_progress(now);
    if (!sub_.pull_pending && !closing_ && has_free_credit() && sub_.pull_not_before <= now) pull();
    const bool heartbeat_allowed = !sub_.pull_pending && !sub_.heartbeat_pending;
    if (heartbeat_allowed && now - link_.last_sent() >= HEARTBEAT_AFTER) heartbeat();

    MonoTime next = sub_.next_progress;
    if (!sub_.batch.empty()) next = std::min(next, sub_.batch_due);
    if (!sub_.refused.empty()) next = std::min(next, sub_.refused.begin()->first);
    for (const auto& [partition, revoke] : sub_.revoking)
        next = std::min(next, revoke.deadline);
    if (!sub_.pull_pending && sub_.pull_not_before > now)
        next = std::min(next, sub_.pull_not_before);
    if (!sub_.pull_pending && !sub_.heartbeat_pending)
        next = std::min(next, link_.last_sent() + HEARTBEAT_AFTER);
    return next;
}

bool Consumer::has_free_credit() const {
    return sub_.unsettled.size() < options_.credit_count &&
           sub_.unsettled_bytes < options_.credit_bytes;
}

// contract C1, C2, C3: the window bounds what comes.
void Consumer::pull() {
    std::vector<OwnershipEpoch> owned;
    owned.reserve(sub_.owned.size());
    for (const auto& [partition, ownership_epoch] : sub_.owned)
        owned.push_back(ownership_epoch);
    const ByteVector packed = wire::OwnershipEpochs::pack(owned);
    wire::Pull pull;
    pull.subscription_id = sub_.subscription_id;
    pull.member_id = sub_.member_id;
    pull.membership_epoch = sub_.membership_epoch;
    pull.assignment_epoch = sub_.assignment_epoch;
    pull.ownership_epochs = wire::OwnershipEpochs(packed);
    pull.wait_ms = options_.poll_wait_ms;
    pull.min_bytes = 1;
    sub_.pull_pending = true;
    link_.send(wire::Op::PULL, encoded(pull),
               in_session([this](Result<ByteSpan> answer) { on_pulled(answer); }), {},
               milliseconds(options_.poll_wait_ms));
}

void Consumer::on_pulled(const Result<ByteSpan>& answer) {
    sub_.pull_pending = false;
    work_.notify_one();
    if (answer.ok() || !link_.is_up()) return;
    const Error& error = answer.error();
    if (error.code == ErrorCode::MESSAGE_EXCEEDS_CREDIT) {
        grow_window();
        return;
    }
    if (error.code == ErrorCode::NO_CREDIT || error_info(error.code).retryable) {
        sub_.pull_not_before = env_.clock.now() + RETRY_PAUSE;
        return;
    }
    if (ends_membership(error.code)) {
        link_.restart(error);
        return;
    }
    fail(error);
}

// What may be published can be consumed: a message larger than the window widens it. covers SIZ-03
void Consumer::grow_window() {
    constexpr std::uint32_t LARGEST_MESSAGE = wire::MAX_KEY_LEN + wire::MAX_MSG_VALUE_LEN;
    options_.credit_bytes =
        std::min(std::max(options_.credit_bytes, LARGEST_MESSAGE), WINDOW_BYTES_MAX);
    wire::Credit credit;
    credit.subscription_id = sub_.subscription_id;
    credit.membership_epoch = sub_.membership_epoch;
    credit.credit_count = options_.credit_count;
    credit.credit_bytes = options_.credit_bytes;
    sub_.pull_not_before = env_.clock.now() + RETRY_PAUSE;
    link_.send(wire::Op::CREDIT, encoded(credit),
               in_session([this](const Result<ByteSpan>& answer) {
                   if (answer.ok()) sub_.pull_not_before = env_.clock.now();
                   work_.notify_one();
               }));
}

void Consumer::heartbeat() {
    wire::Heartbeat heartbeat;
    heartbeat.subscription_id = sub_.subscription_id;
    heartbeat.member_id = sub_.member_id;
    heartbeat.membership_epoch = sub_.membership_epoch;
    heartbeat.assignment_epoch = sub_.assignment_epoch;
    sub_.heartbeat_pending = true;
    link_.send(wire::Op::HEARTBEAT, encoded(heartbeat), in_session([this](Result<ByteSpan> answer) {
                   sub_.heartbeat_pending = false;
                   work_.notify_one();
                   if (!answer.ok() && ends_membership(answer.error().code))
                       link_.restart(answer.error());
               }));
}

// contract D1, D7
void Consumer::send_progress(MonoTime now) {
    sub_.next_progress = NEVER;
    for (auto& [delivery_id, delivery] : sub_.unsettled) {
        if (delivery.state != Delivery::State::IN_HAND) continue;
        if (delivery.progress_at <= now) {
            delivery.progress_at = now + options_.lease / PROGRESSES_PER_LEASE;
            wire::Ack ack;
            ack.subscription_id = sub_.subscription_id;
            ack.topic_id = topic_->topic_id;
            ack.partition = delivery.partition;
            ack.seq = delivery.sequence;
            ack.delivery_id = delivery_id;
            ack.ownership_epoch = delivery.ownership_epoch;
            ack.flags = wire::ACK_FLAG_PROGRESS;
            link_.send(wire::Op::ACK, encoded(ack), nullptr);
        }
        sub_.next_progress = std::min(sub_.next_progress, delivery.progress_at);
    }
}

void Consumer::on_msg(const wire::Msg& msg) {
    if (!sub_.is_active || msg.subscription_id != sub_.subscription_id) return;
    // Of a partition that is being given back: its next owner gets it.
    if (!sub_.owned.contains(msg.partition) || sub_.revoking.contains(msg.partition)) return;
    ++stats_.received;
    Delivery delivery;
    delivery.partition = msg.partition;
    delivery.sequence = msg.sequence;
    delivery.ownership_epoch = msg.ownership_epoch;
    delivery.bytes = msg.key.size() + msg.value.size();
    delivery.received_at = env_.clock.now();
    const auto [added, is_new] = sub_.unsettled.emplace(msg.delivery_id, delivery);
    if (!is_new) {
        link_.restart(
            make_error(ErrorCode::MALFORMED_PAYLOAD, "the broker used a delivery_id twice"));
        return;
    }
    sub_.unsettled_bytes += delivery.bytes;
    if (unconfirmed_acks_.contains({msg.partition, msg.sequence})) {
        settle_again(msg.delivery_id, added->second);
        return;
    }
    Message message;
    message.topic_id = msg.topic_id;
    message.partition = msg.partition;
    message.sequence = msg.sequence;
    message.delivery_id = msg.delivery_id;
    message.ownership_epoch = msg.ownership_epoch;
    message.attempt = msg.attempt;
    message.is_last_attempt = (msg.flags & wire::MSG_FLAG_LAST) != 0;
    message.is_replayed = (msg.flags & wire::MSG_FLAG_REPLAYED) != 0;
    message.producer_id = msg.producer_id;
    message.producer_seq = msg.producer_seq;
    message.session = link_.session();
    message.key = as_string_view(msg.key);
    message.value = as_string_view(msg.value);
    queue_.push_back(std::move(message));
    messages_.notify_one();
}

// contract G4, G5
void Consumer::on_notice(const wire::Notice& notice) {
    if (!sub_.is_active || notice.member_id != sub_.member_id) {
        send_control_ack(notice, wire::ControlResult::STALE);
        return;
    }
    sub_.membership_epoch = std::max(sub_.membership_epoch, notice.membership_epoch);
    sub_.assignment_epoch = std::max(sub_.assignment_epoch, notice.assignment_epoch);
    if (notice.kind == wire::NoticeKind::ASSIGN) {
        sub_.owned[notice.partition] = notice.ownership_epoch;
        send_control_ack(notice, wire::ControlResult::OK);
        work_.notify_one();
        return;
    }
    if (!sub_.owned.contains(notice.partition)) {
        send_control_ack(notice, wire::ControlResult::STALE);
        return;
    }
    sub_.revoking[notice.partition] = {notice, env_.clock.now() + REVOKE_GRACE};
    drop_queued(notice.partition);
    work_.notify_one();
}

void Consumer::drop_queued(PartitionIndex partition) {
    std::erase_if(queue_, [&](const Message& message) {
        if (message.partition != partition) return false;
        erase_delivery(message.delivery_id);
        return true;
    });
}

// A partition is given back when the application holds nothing of it any more, or has had its time. covers REB-13
void Consumer::finish_revokes(MonoTime now) {
    for (auto it = sub_.revoking.begin(); it != sub_.revoking.end();) {
        const PartitionIndex partition = it->first;
        if (is_held(partition) && now < it->second.deadline) {
            ++it;
            continue;
        }
        // Settled before the CONTROL_ACK counts, after it no more.
        flush_batch();
        send_refused(NEVER);
        send_control_ack(it->second.notice, wire::ControlResult::OK);
        sub_.owned.erase(partition);
        it = sub_.revoking.erase(it);
        for (auto held = sub_.unsettled.begin(); held != sub_.unsettled.end();) {
            const bool ends = held->second.partition == partition &&
                              held->second.state == Delivery::State::IN_HAND;
            if (ends) sub_.unsettled_bytes -= held->second.bytes;
            held = ends ? sub_.unsettled.erase(held) : std::next(held);
        }
    }
}

bool Consumer::is_held(PartitionIndex partition) const {
    return std::any_of(sub_.unsettled.begin(), sub_.unsettled.end(), [&](const auto& item) {
        return item.second.partition == partition && item.second.state == Delivery::State::IN_HAND;
    });
}

void Consumer::send_control_ack(const wire::Notice& notice, wire::ControlResult result) {
    wire::ControlAck control_ack;
    control_ack.notice_id = notice.notice_id;
    control_ack.notice_kind = notice.kind;
    control_ack.group_id = notice.group_id;
    control_ack.membership_epoch = notice.membership_epoch;
    control_ack.assignment_epoch = notice.assignment_epoch;
    control_ack.ownership_epoch = notice.ownership_epoch;
    control_ack.result = result;
    link_.send(wire::Op::CONTROL_ACK, encoded(control_ack),
               in_session([this](Result<ByteSpan> answer) {
                   if (!answer.ok() && ends_membership(answer.error().code))
                       link_.restart(answer.error());
               }));
}

void Consumer::close(Fiber& fiber) {
    if (closed_) return;
    closing_ = true;
    messages_.notify_all();
    const MonoTime deadline = env_.clock.now() + CLOSE_PATIENCE;
    work_.notify_one();
    send_refused(NEVER);
    while (sub_.is_active && !fatal_ &&
           (!sub_.batch.empty() || !sub_.refused.empty() || sub_.settling_count > 0)) {
        if (!settled_.wait(fiber, deadline).ok()) break;
    }
    if (sub_.is_active && link_.is_up() && !fiber.is_cancelled()) {
        wire::Heartbeat leave;
        leave.subscription_id = sub_.subscription_id;
        leave.member_id = sub_.member_id;
        leave.membership_epoch = sub_.membership_epoch;
        leave.assignment_epoch = sub_.assignment_epoch;
        leave.state = wire::HeartbeatState::LEAVE;
        // Refused or lost: the end of the connection ends the membership all the same.
        (void)link_.request(fiber, wire::Op::HEARTBEAT, encoded(leave));
    }
    closed_ = true;
    group_.cancel_and_join(fiber);
    link_.close(fiber);
    messages_.notify_all();
}

}  // namespace mortar::client
