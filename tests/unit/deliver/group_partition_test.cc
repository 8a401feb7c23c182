// GroupPartition and its ledger on a simulated disk: promises against crashes, failures and damage.
#include "core/deliver/group_partition.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "io-sim/node.h"
#include "io-sim/stack_pool.h"
#include "tests/unit/deliver/answer.h"

namespace mortar {
namespace {
using sim::DiskOp;
using sim::DiskOperation;
using sim::HeapStackPool;
using sim::OperationPoint;
using sim::PowerImage;
using sim::SimDisk;
using sim::SimNode;
using sim::SimWorld;
using testing::Answer;
using Standing = DeliveryBook::Standing;

constexpr const char* FOLDER = "groups/1/0";
constexpr const char* LEDGER = "groups/1/0/delivery.mql";
constexpr const char* CURSOR = "groups/1/0/cursor.mqc";

struct FakeOwner : PartitionOwner {
    std::uint64_t freed_count = 0;
    std::uint64_t ready_count = 0;
    void on_freed(std::uint32_t) override { ++freed_count; }
    void on_ready(PartitionIndex) override { ++ready_count; }
};

// One (group, partition) over many lives of a node.
class Bench {
  public:
    explicit Bench(std::uint64_t seed = 1, std::uint64_t ledger_bytes_min = LEDGER_BYTES_MIN)
        : world_(seed, stacks_),
          node_(world_.add_node("n")),
          env_(node_.env()),
          ledger_bytes_min_(ledger_bytes_min) {
        start();
    }
    ~Bench() { kill(); }

    void start() {
        make();
        run([this](Fiber& fiber) { ASSERT_TRUE(partition_->open(fiber).ok()); });
        owner_ = FakeOwner();
        if (partition_ != nullptr) partition_->set_owner(&owner_);
    }
    // It may never get to the end.
    void start_recovery() {
        make();
        env_.scheduler.spawn("test", [this](Fiber& fiber) { (void)partition_->open(fiber).ok(); });
    }
    void make() {
        jitter_.emplace(env_.rng.stream("jitter"));
        timers_ = std::make_unique<TimerQueue>();
        env_.scheduler.spawn("timers", [this](Fiber& fiber) { timers_->run(fiber, env_.clock); });
        const GroupPartition::Parts parts{
            env_, *timers_, *jitter_, {5, seconds(30)}, ledger_bytes_min_};
        partition_ =
            std::make_unique<GroupPartition>(parts, FOLDER, PartitionIndex(0), Sequence(0));
    }
    void kill() {
        if (node_.alive()) node_.kill();
        partition_ = nullptr;
        timers_ = nullptr;
    }
    void power_loss(std::uint64_t seed) { lose_power(PowerImage::random(seed, true)); }
    void power_loss_of_all_unsynced() { lose_power(PowerImage{}); }
    void lose_power(const PowerImage& image) {
        node_.power_loss(image);
        partition_ = nullptr;
        timers_ = nullptr;
    }
    void restart() {
        node_.restart();
        start();
    }
    void close() {
        run([this](Fiber& fiber) { EXPECT_TRUE(partition_->close(fiber).ok()); });
        kill();
    }
    void run(FiberBody body) {
        bool ended = false;
        env_.scheduler.spawn("test", [&ended, inner = std::move(body)](Fiber& fiber) {
            inner(fiber);
            ended = true;
        });
        for (int steps = 0; !ended; ++steps) {
            ASSERT_LT(steps, 1'000'000);
            ASSERT_TRUE(world_.step(world_.now() + seconds(1000)));
        }
    }
    void run_for(Duration duration) { world_.run_for(duration); }
    MonoTime now() const { return world_.now(); }

    DeliveryId deliver(std::uint64_t sequence) {
        const DeliveryId id(++last_delivery_);
        partition_->deliver(Sequence(sequence), id, 100);
        return id;
    }
    Standing at(std::uint64_t sequence) const {
        return partition_->book()->standing(Sequence(sequence));
    }
    const DeliveryBook& book() const { return *partition_->book(); }
    GroupPartition& partition() { return *partition_; }
    FakeOwner& owner() { return owner_; }
    SimNode& node() { return node_; }

  private:
    HeapStackPool stacks_;
    SimWorld world_;
    SimNode& node_;
    Env env_;
    std::uint64_t ledger_bytes_min_;
    std::optional<Rng> jitter_;
    std::unique_ptr<TimerQueue> timers_;
    std::unique_ptr<GroupPartition> partition_;
    FakeOwner owner_;
    std::uint64_t last_delivery_ = 0;
};

TEST(Contract, D1_ack_is_answered_once_it_is_durable) {
    Bench bench;
    for (std::uint64_t s = 1; s <= 3; ++s)
        bench.deliver(s);
    Answer ack;
    bench.partition().ack(Sequence(2), ack.open(wire::Op::ACK));
    EXPECT_TRUE(ack.is_pending());
    EXPECT_EQ(bench.owner().freed_count, 1u) << "credit comes back when the ACK is accepted";
    Answer again;
    bench.partition().ack(Sequence(2), again.open(wire::Op::ACK));
    EXPECT_TRUE(again.is_pending()) << "'already settled' must not be said before it is durable";
    while (ack.is_pending()) {
        EXPECT_FALSE(bench.node().disk().durable_read(LEDGER).has_value() && again.is_ok());
        bench.run_for(microseconds(20));
    }
    EXPECT_TRUE(ack.is_ok());
    EXPECT_TRUE(again.is(ErrorCode::UNKNOWN_DELIVERY));
    const auto parsed = parse_ledger(*bench.node().disk().durable_read(LEDGER));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->events.back().type, LedgerEventType::ACK);
    EXPECT_EQ(parsed->events.back().sequence, Sequence(2));
    EXPECT_EQ(parsed->events.size(), 4u) << "the DELIVERs before it went along";
    Answer third;
    bench.partition().ack(Sequence(2), third.open(wire::Op::ACK));
    EXPECT_TRUE(third.is(ErrorCode::UNKNOWN_DELIVERY));
    Answer never;
    bench.partition().ack(Sequence(4), never.open(wire::Op::ACK));
    EXPECT_TRUE(never.is(ErrorCode::UNKNOWN_DELIVERY));
}

TEST(Ledger, writes_deliveries_alone_within_twenty_milliseconds) {
    Bench bench;
    bench.deliver(1);
    bench.run_for(milliseconds(15));
    EXPECT_FALSE(bench.node().disk().cached_read(LEDGER).has_value())
        << "files appear at the first append";
    bench.run_for(milliseconds(20));
    const auto parsed = parse_ledger(*bench.node().disk().durable_read(LEDGER));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->events.size(), 1u);
    for (std::uint64_t s = 2; s <= 33; ++s)
        bench.deliver(s);
    bench.run_for(milliseconds(10));
    EXPECT_EQ(parse_ledger(*bench.node().disk().durable_read(LEDGER))->events.size(), 33u)
        << "32 do not wait";
}

// covers TIM-01, DUP-01, DUR-05
TEST(Contract, D4_failures_and_acks_survive_kill) {
    Bench bench;
    const DeliveryId first = bench.deliver(1);
    bench.deliver(2);
    bench.deliver(3);
    Answer nack;
    bench.partition().nack(Sequence(1), first, wire::NackReason::RETRY, nack.open(wire::Op::NACK));
    Answer ack;
    bench.partition().ack(Sequence(2), ack.open(wire::Op::ACK));
    bench.run_for(milliseconds(20));
    EXPECT_TRUE(nack.is_ok());
    EXPECT_TRUE(ack.is_ok());
    bench.kill();
    bench.restart();
    EXPECT_EQ(bench.at(1), Standing::WAITING);
    EXPECT_EQ(bench.at(2), Standing::SETTLED);
    EXPECT_EQ(bench.at(3), Standing::READY);
    EXPECT_EQ(bench.book().next_first(), Sequence(4));
    EXPECT_EQ(bench.book().unsettled().front().failures, 1);
    bench.run_for(seconds(2));
    EXPECT_EQ(bench.at(1), Standing::READY);
    bench.deliver(1);
    bench.book().check();
}

TEST(GroupPartition, a_nack_of_an_ended_delivery_changes_nothing) {
    Bench bench;
    const DeliveryId id = bench.deliver(1);
    Answer wrong;
    bench.partition().nack(Sequence(1), DeliveryId(77), wire::NackReason::RETRY,
                           wrong.open(wire::Op::NACK));
    EXPECT_TRUE(wrong.is(ErrorCode::UNKNOWN_DELIVERY));
    Answer reject;
    bench.partition().nack(Sequence(1), id, wire::NackReason::REJECT, reject.open(wire::Op::NACK));
    EXPECT_TRUE(reject.is(ErrorCode::DLQ_UNAVAILABLE));
    EXPECT_EQ(bench.at(1), Standing::LEASED) << "not executed: the delivery goes on";
    Answer progress;
    bench.partition().progress(Sequence(1), id, progress.open(wire::Op::ACK));
    EXPECT_TRUE(progress.is_ok());
    Answer requeue;
    bench.partition().nack(Sequence(1), id, wire::NackReason::REQUEUE,
                           requeue.open(wire::Op::NACK));
    bench.run_for(milliseconds(20));
    EXPECT_TRUE(requeue.is_ok());
    EXPECT_EQ(bench.at(1), Standing::READY);
    Answer twice;
    bench.partition().nack(Sequence(1), id, wire::NackReason::REQUEUE, twice.open(wire::Op::NACK));
    EXPECT_TRUE(twice.is(ErrorCode::UNKNOWN_DELIVERY));
}

TEST(GroupPartition, leases_run_out_by_themselves) {
    Bench bench;
    bench.deliver(1);
    bench.deliver(2);
    bench.run_for(seconds(31));
    EXPECT_EQ(bench.at(2), Standing::READY);
    EXPECT_EQ(bench.owner().freed_count, 2u);
    EXPECT_EQ(bench.book().in_flight_count(), 0u);
    bench.run_for(seconds(2));
    EXPECT_EQ(bench.at(1), Standing::READY);
    EXPECT_GE(bench.owner().ready_count, 2u);
}

TEST(GroupPartition, rotates_the_ledger_behind_a_new_cursor) {
    Bench bench(3, 8 * 1024);
    for (std::uint64_t s = 1; s <= 200; ++s) {
        bench.deliver(s);
        if (s % 10 == 0) continue;
        Answer ack;
        bench.partition().ack(Sequence(s), ack.open(wire::Op::ACK));
        bench.run_for(milliseconds(5));
        ASSERT_TRUE(ack.is_ok()) << s;
    }
    bench.run_for(milliseconds(50));
    const auto cursor = decode_cursor(*bench.node().disk().durable_read(CURSOR));
    ASSERT_TRUE(cursor.ok());
    EXPECT_GE(cursor->cursor_epoch, 5u);
    EXPECT_LT(bench.node().disk().durable_read(LEDGER)->size(), 200u * 1024);
    bench.kill();
    bench.restart();
    EXPECT_EQ(bench.book().unsettled_count(), 20u);
    EXPECT_EQ(bench.book().next_first(), Sequence(201));
    bench.close();
    const auto closed = decode_cursor(*bench.node().disk().durable_read(CURSOR));
    ASSERT_TRUE(closed.ok());
    EXPECT_EQ(closed->unsettled.size(), 20u);
}

TEST(GroupPartition, a_failing_disk_leaves_the_outcome_open_and_heals) {
    Bench bench;
    bench.deliver(1);
    Answer before;
    bench.partition().ack(Sequence(1), before.open(wire::Op::ACK));
    bench.run_for(milliseconds(20));
    ASSERT_TRUE(before.is_ok());
    bench.deliver(2);
    const DeliveryId third = bench.deliver(3);
    bool is_broken = true;
    bench.node().disk().faults().fails = [&is_broken](const sim::DiskOperation& operation) {
        return is_broken && operation.op == sim::DiskOp::SYNC_DATA;
    };
    Answer during;
    bench.partition().ack(Sequence(2), during.open(wire::Op::ACK));
    bench.run_for(milliseconds(20));
    EXPECT_TRUE(during.is(ErrorCode::INTERNAL));
    EXPECT_FALSE(bench.partition().is_serving());
    EXPECT_EQ(bench.owner().freed_count, 3u) << "nothing is in flight any more";
    Answer refused;
    bench.partition().ack(Sequence(3), refused.open(wire::Op::ACK));
    EXPECT_TRUE(refused.is(ErrorCode::QUORUM_LOST)) << "not executed";
    Answer refused_nack;
    bench.partition().nack(Sequence(3), third, wire::NackReason::RETRY,
                           refused_nack.open(wire::Op::NACK));
    EXPECT_TRUE(refused_nack.is(ErrorCode::QUORUM_LOST));
    Answer refused_progress;
    bench.partition().progress(Sequence(3), third, refused_progress.open(wire::Op::ACK));
    EXPECT_TRUE(refused_progress.is(ErrorCode::QUORUM_LOST));
    bench.run_for(seconds(5));
    EXPECT_FALSE(bench.partition().is_serving());
    is_broken = false;
    bench.run_for(seconds(3));
    ASSERT_TRUE(bench.partition().is_serving());
    EXPECT_EQ(bench.at(1), Standing::SETTLED);
    EXPECT_NE(bench.at(2), Standing::LEASED);
    Answer after;
    if (bench.at(2) == Standing::READY) bench.deliver(2);
    if (bench.at(2) == Standing::UNTOUCHED) bench.deliver(2);
    if (bench.at(2) != Standing::SETTLED) {
        bench.partition().ack(Sequence(2), after.open(wire::Op::ACK));
        bench.run_for(milliseconds(20));
        EXPECT_TRUE(after.is_ok());
    }
    EXPECT_EQ(bench.at(2), Standing::SETTLED);
}

TEST(Contract, R2_ack_and_nack_are_answered_within_two_seconds_of_a_disk_that_stalls) {
    Bench bench;
    for (std::uint64_t s = 1; s <= 3; ++s)
        bench.deliver(s);
    const DeliveryId fourth = bench.deliver(4);
    const DeliveryId fifth = bench.deliver(5);
    Answer before;
    bench.partition().ack(Sequence(1), before.open(wire::Op::ACK));
    bench.run_for(milliseconds(20));
    ASSERT_TRUE(before.is_ok());
    bench.node().disk().faults().stalled_until = bench.now() + seconds(20);
    Answer ack;
    Answer again;
    Answer nack;
    bench.partition().ack(Sequence(2), ack.open(wire::Op::ACK));
    bench.partition().ack(Sequence(2), again.open(wire::Op::ACK));
    bench.run_for(milliseconds(900));
    bench.partition().nack(Sequence(4), fourth, wire::NackReason::REQUEUE,
                           nack.open(wire::Op::NACK));
    bench.run_for(milliseconds(1'080));
    EXPECT_TRUE(ack.is_pending());
    bench.run_for(milliseconds(30));
    EXPECT_TRUE(ack.is(ErrorCode::READ_ONLY_DEGRADED));
    EXPECT_TRUE(again.is(ErrorCode::READ_ONLY_DEGRADED));
    EXPECT_TRUE(nack.is_pending()) << "each has its own two seconds";
    bench.run_for(milliseconds(900));
    EXPECT_TRUE(nack.is(ErrorCode::READ_ONLY_DEGRADED));
    EXPECT_EQ(bench.at(2), Standing::SETTLING) << "the event stays queued";
    EXPECT_EQ(bench.at(4), Standing::FAILING);

    // Contract 8, level 0: read-only until it flushes again.
    Answer refused;
    Answer refused_nack;
    Answer settled;
    bench.partition().ack(Sequence(3), refused.open(wire::Op::ACK));
    bench.partition().nack(Sequence(5), fifth, wire::NackReason::RETRY,
                           refused_nack.open(wire::Op::NACK));
    bench.partition().ack(Sequence(1), settled.open(wire::Op::ACK));
    EXPECT_TRUE(refused.is(ErrorCode::QUORUM_LOST));
    EXPECT_TRUE(refused_nack.is(ErrorCode::QUORUM_LOST));
    EXPECT_TRUE(settled.is(ErrorCode::UNKNOWN_DELIVERY));
    EXPECT_EQ(bench.at(3), Standing::LEASED) << "not executed";
    EXPECT_EQ(bench.at(5), Standing::LEASED);

    bench.run_for(seconds(19));
    EXPECT_EQ(bench.at(2), Standing::SETTLED);
    EXPECT_EQ(bench.at(4), Standing::READY);
    bench.book().check();
    Answer after;
    bench.partition().ack(Sequence(3), after.open(wire::Op::ACK));
    bench.run_for(milliseconds(100));
    EXPECT_TRUE(after.is_ok());
}

TEST(Contract, E2_jumps_of_the_wall_clock_move_no_lease_and_no_backoff) {
    constexpr Duration YEAR = seconds(365 * 24 * 3600);
    Bench bench;
    bench.deliver(1);
    const DeliveryId second = bench.deliver(2);
    Answer nack;
    bench.partition().nack(Sequence(2), second, wire::NackReason::RETRY, nack.open(wire::Op::NACK));
    bench.run_for(milliseconds(100));
    ASSERT_TRUE(nack.is_ok());
    bench.node().clock().set_wall_offset(YEAR);
    bench.run_for(milliseconds(700));
    EXPECT_EQ(bench.at(1), Standing::LEASED);
    EXPECT_EQ(bench.at(2), Standing::WAITING);
    bench.node().clock().set_wall_offset(nanoseconds(-YEAR.ns));
    bench.run_for(milliseconds(600));
    EXPECT_EQ(bench.at(2), Standing::READY) << "1 s and up to a quarter more";
    bench.run_for(seconds(28));
    EXPECT_EQ(bench.at(1), Standing::LEASED);
    bench.node().clock().set_wall_offset(YEAR);
    bench.run_for(seconds(1));
    EXPECT_NE(bench.at(1), Standing::LEASED);
}

TEST(GroupPartition, damage_below_a_synced_event_is_not_guessed_away) {
    Bench bench;
    for (std::uint64_t s = 1; s <= 3; ++s) {
        bench.deliver(s);
        Answer ack;
        bench.partition().ack(Sequence(s), ack.open(wire::Op::ACK));
        bench.run_for(milliseconds(20));
        ASSERT_TRUE(ack.is_ok());
    }
    bench.kill();
    const auto parsed = parse_ledger(*bench.node().disk().durable_read(LEDGER));
    ASSERT_TRUE(parsed.ok());
    ASSERT_TRUE(bench.node().disk().flip_bit(LEDGER, parsed->offsets.front() + 10, 3));
    const ByteVector damaged = *bench.node().disk().durable_read(LEDGER);
    EXPECT_TRUE(parse_ledger(damaged).is(ErrorCode::DAMAGED));
    bench.restart();
    EXPECT_FALSE(bench.partition().is_serving());
    bench.run_for(seconds(10));
    EXPECT_FALSE(bench.partition().is_serving());
    EXPECT_EQ(*bench.node().disk().durable_read(LEDGER), damaged) << "left for a human";
}

TEST(GroupPartition, a_lost_cursor_is_noticed) {
    Bench bench;
    bench.deliver(1);
    Answer ack;
    bench.partition().ack(Sequence(1), ack.open(wire::Op::ACK));
    bench.run_for(milliseconds(20));
    bench.close();
    bench.restart();
    bench.deliver(2);
    bench.run_for(milliseconds(50));
    bench.run([&](Fiber& fiber) { EXPECT_TRUE(bench.node().disk().remove(fiber, CURSOR).ok()); });
    bench.kill();
    bench.restart();
    EXPECT_FALSE(bench.partition().is_serving());
}

// Killed between the rename of a new cursor and the sync of its folder, the next life sees the name. What it serves from it
// must not go with the power.
TEST(GroupPartition, what_a_cursor_says_that_a_killed_recovery_left_survives_a_power_loss) {
    Bench bench;
    SimDisk& disk = bench.node().disk();
    const auto kill_after = [&](DiskOp op, std::string_view path) {
        disk.set_operation_hook([&bench, op, path, has_struck = false](
                                    OperationPoint point, const DiskOperation& done) mutable {
            const std::string_view touched = op == DiskOp::RENAME ? done.to_path : done.path;
            const bool is_it = point == OperationPoint::AFTER && done.op == op;
            if (!is_it || !touched.starts_with(path) || std::exchange(has_struck, true)) return;
            bench.node().stop_after_step([&bench] { bench.kill(); });
        });
    };
    for (std::uint64_t s = 1; s <= 2; ++s) {
        bench.deliver(s);
        Answer ack;
        bench.partition().ack(Sequence(s), ack.open(wire::Op::ACK));
        if (s == 2) kill_after(DiskOp::WRITE, LEDGER);
        bench.run_for(milliseconds(50));
        EXPECT_EQ(ack.is_ok(), s == 1);
    }
    ASSERT_FALSE(bench.node().alive());
    bench.node().restart();
    kill_after(DiskOp::RENAME, CURSOR);
    bench.start_recovery();
    bench.run_for(milliseconds(50));
    ASSERT_FALSE(bench.node().alive());
    ASSERT_TRUE(disk.cached_read(CURSOR).has_value());

    bench.restart();
    ASSERT_EQ(bench.at(2), Standing::SETTLED);
    bench.power_loss_of_all_unsynced();
    bench.restart();
    EXPECT_EQ(bench.at(2), Standing::SETTLED);
}

TEST(GroupPartition, a_lost_ledger_is_noticed) {
    Bench bench(1, 512);
    for (std::uint64_t s = 1; s <= 40; ++s) {
        bench.deliver(s);
        Answer ack;
        bench.partition().ack(Sequence(s), ack.open(wire::Op::ACK));
        while (ack.is_pending())
            bench.run_for(milliseconds(1));
    }
    bench.kill();
    ASSERT_TRUE(bench.node().disk().cached_read(CURSOR).has_value());
    bench.node().restart();
    bench.run([&](Fiber& fiber) { ASSERT_TRUE(bench.node().disk().remove(fiber, LEDGER).ok()); });
    bench.start();
    EXPECT_FALSE(bench.partition().is_serving());
}

TEST(GroupPartition, remove_takes_its_files_and_answers_who_waits) {
    Bench bench;
    bench.deliver(1);
    bench.run_for(milliseconds(50));
    Answer ack;
    bench.partition().ack(Sequence(1), ack.open(wire::Op::ACK));
    bench.partition().release_owner(true);
    bench.run([&](Fiber& fiber) { EXPECT_TRUE(bench.partition().remove(fiber).ok()); });
    EXPECT_FALSE(ack.is_pending());
    EXPECT_FALSE(bench.node().disk().cached_read(LEDGER).has_value());
    EXPECT_TRUE(bench.node().disk().cached_names("groups/1").empty());
}

// contract E3
TEST(GroupPartition, remove_leaves_files_that_are_not_its_own) {
    Bench bench;
    bench.deliver(1);
    bench.run_for(milliseconds(50));
    bench.run([&](Fiber& fiber) {
        SimDisk& disk = bench.node().disk();
        ASSERT_TRUE(disk.open(fiber, "groups/1/0/notes.txt", OpenMode::CREATE).ok());
        bench.partition().release_owner(true);
        EXPECT_TRUE(bench.partition().remove(fiber).ok());
    });
    EXPECT_EQ(bench.node().disk().cached_names(FOLDER), (std::vector<std::string>{"notes.txt"}));
}

// What was answered holds through kills and power losses at any moment, rotations included.
TEST(GroupPartition, promises_hold_through_crashes_at_any_moment) {
    std::uint64_t acked_total = 0;
    std::uint64_t rotations = 0;
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        Rng rng(seed * 77);
        Bench bench(seed, 4 * 1024);
        std::set<std::uint64_t> acked;
        std::map<std::uint64_t, std::uint16_t> failures;  // promised
        for (int life = 0; life < 8; ++life) {
            struct Open {
                std::uint64_t sequence;
                bool is_ack;
                std::uint16_t failures;
                std::unique_ptr<Answer> answer = std::make_unique<Answer>();
            };
            std::vector<Open> open;
            std::map<std::uint64_t, DeliveryId> leased;
            std::map<std::uint64_t, std::uint16_t> counted = failures;
            for (const UnsettledImage& image : bench.book().unsettled())
                counted[image.sequence.value] = image.failures;
            const std::uint64_t steps = 20 + rng.below(120);
            for (std::uint64_t step = 0; step < steps; ++step) {
                for (int i = 0; i < 3; ++i) {
                    const auto ready = bench.book().next_ready();
                    const std::uint64_t next =
                        ready && rng.one_in(2) ? ready->value : bench.book().next_first().value;
                    leased[next] = bench.deliver(next);
                }
                if (!leased.empty() && rng.below(10) < 8) {
                    auto it = leased.begin();
                    std::advance(it, static_cast<std::ptrdiff_t>(rng.below(leased.size())));
                    Open one{it->first, rng.below(4) != 0, 0};
                    if (one.is_ack) {
                        bench.partition().ack(Sequence(one.sequence),
                                              one.answer->open(wire::Op::ACK));
                    } else {
                        one.failures = ++counted[one.sequence];
                        bench.partition().nack(Sequence(one.sequence), it->second,
                                               wire::NackReason::REQUEUE,
                                               one.answer->open(wire::Op::NACK));
                    }
                    leased.erase(it);
                    open.push_back(std::move(one));
                }
                bench.run_for(microseconds(rng.between(0, 600)));
                for (Open& one : open) {
                    if (!one.answer->is_ok()) continue;
                    if (one.is_ack) acked.insert(one.sequence);
                    if (!one.is_ack)
                        failures[one.sequence] = std::max(failures[one.sequence], one.failures);
                }
            }
            const auto cursor = bench.node().disk().cached_read(CURSOR);
            if (cursor) rotations = std::max(rotations, decode_cursor(*cursor)->cursor_epoch);
            switch (rng.below(4)) {
                case 0:
                    bench.kill();
                    break;
                case 1:
                    bench.close();
                    break;
                default:
                    bench.power_loss(rng.next());
                    break;
            }
            bench.restart();
            ASSERT_TRUE(bench.partition().is_serving()) << "seed " << seed << " life " << life;
            bench.book().check();
            for (const std::uint64_t sequence : acked)
                ASSERT_EQ(bench.at(sequence), Standing::SETTLED) << seed;
            std::map<std::uint64_t, std::uint16_t> recovered;
            for (const UnsettledImage& image : bench.book().unsettled())
                recovered[image.sequence.value] = image.failures;
            for (const auto& [sequence, count] : failures) {
                if (bench.at(sequence) == Standing::SETTLED) continue;
                ASSERT_GE(recovered[sequence], count)
                    << "seed " << seed << " sequence " << sequence;
            }
        }
        acked_total += acked.size();
    }
    EXPECT_GT(acked_total, 2000u);
    EXPECT_GT(rotations, 10u);
}

}  // namespace
}  // namespace mortar
