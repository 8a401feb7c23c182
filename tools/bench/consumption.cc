#include "tools/bench/consumption.h"

#include <algorithm>

#include "core/fiber/deadline.h"
#include "core/fiber/group.h"
#include "io-real/threads.h"
#include "tools/bench/stamp.h"

namespace mortar::bench {
namespace {

constexpr Duration LOOK_UP_EVERY = milliseconds(10);
// Of the messages that one consumer may hold.
constexpr std::uint32_t WINDOW_BYTES = 64u << 20;

}  // namespace

Result<std::unique_ptr<Consumption>> Consumption::start(ConsumptionPlan plan) {
    MORTAR_ASSERT(plan.consumers > 0 && plan.consumers <= CONSUMERS_MAX);
    RealEnvOptions options;
    options.log_level = LogLevel::ERROR;
    std::unique_ptr<Consumption> consumption(new Consumption(std::move(plan)));
    Consumption& self = *consumption;
    self.real_ = MORTAR_TRY(RealEnv::create(options));
    self.real_->scheduler().spawn("bench.consume", [&self](Fiber& fiber) {
        Group members(self.real_->scheduler());
        for (std::size_t i = 0; i < self.plan_.consumers; ++i)
            members.spawn("bench.member", [&self](Fiber& own) { self.run_member(own); });
        (void)members.join(fiber);
        self.real_->scheduler().stop();
    });
    self.thread_ = start_thread("consume", [&self] { self.real_->run(); });
    return consumption;
}

Consumption::~Consumption() {
    if (thread_.joinable()) (void)stop();
}

Result<Consumed> Consumption::stop() {
    stopping_ = true;
    thread_.join();
    real_->shutdown();
    if (failed_.has_value()) return *failed_;
    consumed_.total.count = consumed_.ack.count();
    consumed_.total.elapsed = Duration{std::max<std::int64_t>(last_ack_ns_ - count_from_ns_, 0)};
    return std::move(consumed_);
}

void Consumption::run_member(Fiber& fiber) {
    client::LinkOptions link;
    link.addresses = plan_.cluster.addresses;
    link.token = plan_.cluster.token;
    client::ConsumerOptions options;
    options.topic = plan_.topic;
    options.group = plan_.group;
    options.start_policy = plan_.start_policy;
    options.credit_count = static_cast<std::uint16_t>(plan_.outstanding);
    options.credit_bytes = WINDOW_BYTES;
    const client::ClientEnv env = client::client_env(real_->env());
    client::Consumer consumer(env, std::move(link), options);
    consumer.start();
    Group workers(real_->scheduler());
    for (std::size_t i = 0; i < plan_.outstanding; ++i)
        workers.spawn("bench.worker", [this, &consumer](Fiber& own) { work(own, consumer); });
    bool was_subscribed = false;
    while (!stopping_ && !has_failed_) {
        if (!was_subscribed && consumer.stats().subscriptions > 0) {
            was_subscribed = true;
            ++subscribed_count_;
        }
        if (!real_->scheduler().sleep_until(fiber, deadline_after(env.clock, LOOK_UP_EVERY)).ok())
            break;
    }
    workers.cancel_and_join(fiber);
    consumer.close(fiber);
}

void Consumption::work(Fiber& fiber, client::Consumer& consumer) {
    while (true) {
        const Result<client::Message> message = consumer.next(fiber);
        if (message.is(ErrorCode::CANCELLED)) return;
        if (!message.ok()) {
            if (!failed_.has_value()) failed_ = message.error();
            has_failed_ = true;
            return;
        }
        const std::int64_t in_hand_ns = now_ns();
        const Stamp stamp = read_stamp(as_byte_span(message->value));
        const bool is_ours = plan_.run_id != 0 && stamp.run_id == plan_.run_id;
        const std::int64_t from_ns = count_from_ns_;
        const bool counts = (is_ours ? stamp.intended_ns : in_hand_ns) >= from_ns;
        if (message->attempt > 1) ++consumed_.redelivered;
        if (counts && is_ours) {
            consumed_.end_to_end.add(static_cast<std::uint64_t>(
                std::max<std::int64_t>(in_hand_ns - stamp.intended_ns, 0)));
        }
        const Result<void> acked = consumer.ack_and_wait(fiber, *message);
        if (acked.is(ErrorCode::CANCELLED)) return;
        if (!acked.ok()) {
            ++consumed_.errors[static_cast<std::uint16_t>(acked.error().code)];
            continue;
        }
        ++acked_count_;
        if (!counts) continue;
        ++counted_count_;
        last_ack_ns_ = now_ns();
        consumed_.ack.add(static_cast<std::uint64_t>(last_ack_ns_ - in_hand_ns));
    }
}

}  // namespace mortar::bench
