#include "core/deliver/redelivery.h"

#include <gtest/gtest.h>

#include <map>

namespace mortar {
namespace {
using Standing = DeliveryBook::Standing;

struct Book {
    Rng rng{4};
    DeliveryBook book;
    MonoTime now;
    std::uint64_t last_delivery = 0;

    explicit Book(std::vector<UnsettledImage> unsettled = {}, SettledSet settled = SettledSet())
        : book(*DeliveryBook::restore({5, seconds(30)}, std::move(settled), unsettled, MonoTime{},
                                      rng)) {}

    DeliveryBook::Sent deliver(std::uint64_t sequence) {
        return book.deliver(Sequence(sequence), DeliveryId(++last_delivery), 10, now);
    }
    Standing at(std::uint64_t sequence) const { return book.standing(Sequence(sequence)); }
    void fail(std::uint64_t sequence, bool with_backoff) {
        book.fail(Sequence(sequence), with_backoff, now, rng);
        book.fail_flushed(Sequence(sequence), now);
    }
    DeliveryBook::Ended wait(Duration duration) {
        now = now + duration;
        return book.expire(now, rng);
    }
    std::vector<std::uint64_t> failed(const DeliveryBook::Ended& ended) {
        std::vector<std::uint64_t> sequences;
        for (const auto& one : ended.failed) {
            sequences.push_back(one.sequence.value);
            book.fail_flushed(one.sequence, now);
        }
        return sequences;
    }
};

TEST(Contract, D5_backoff_doubles_to_thirty_seconds) {
    Rng rng(1);
    for (std::uint32_t failures = 1; failures < 10; ++failures) {
        for (int i = 0; i < 50; ++i) {
            const Duration backoff = backoff_after(failures, 100, rng);
            const Duration base =
                seconds(std::min<std::int64_t>(30, std::int64_t{1} << (failures - 1)));
            EXPECT_GE(backoff, base);
            EXPECT_LE(backoff, std::min(seconds(30), base + base / 4));
        }
    }
    EXPECT_EQ(backoff_after(5, 5, rng), seconds(30)) << "used up: L2";
}

TEST(Contract, D3_expiry_fails_the_lowest_and_those_in_a_handler) {
    Book b;
    for (std::uint64_t s = 1; s <= 5; ++s)
        b.deliver(s);
    b.book.progress(Sequence(4), b.now);
    const auto ended = b.wait(seconds(30));
    EXPECT_EQ(b.failed(ended), (std::vector<std::uint64_t>{1, 4}));
    EXPECT_EQ(ended.returned_bytes.size(), 3u);
    EXPECT_EQ(b.at(1), Standing::WAITING);
    EXPECT_EQ(b.at(2), Standing::READY);
    EXPECT_EQ(b.at(4), Standing::WAITING);
    b.book.check();
}

// covers TIM-10
TEST(Contract, D3_a_poison_message_does_not_drag_its_neighbours) {
    Book b;
    for (std::uint64_t s = 1; s <= 4; ++s) {
        b.deliver(s);
        b.now = b.now + milliseconds(1);
    }
    // Each lease ends on its own; 1 stays the lowest unsettled one all the while.
    std::vector<std::uint64_t> failed;
    b.now = MonoTime{} + seconds(30) - milliseconds(1);
    for (int i = 0; i < 5; ++i) {
        const auto some = b.failed(b.wait(milliseconds(1)));
        failed.insert(failed.end(), some.begin(), some.end());
    }
    EXPECT_EQ(failed, std::vector<std::uint64_t>{1});
}

TEST(Contract, D3_a_clean_leave_fails_nothing) {
    Book b;
    for (std::uint64_t s = 1; s <= 3; ++s)
        b.deliver(s);
    b.book.progress(Sequence(2), b.now);
    const auto ended = b.book.release_owner(true, b.now, b.rng);
    EXPECT_TRUE(ended.failed.empty());
    EXPECT_EQ(ended.returned_bytes.size(), 3u);
    EXPECT_EQ(*b.book.next_ready(), Sequence(1));
    EXPECT_EQ(b.deliver(1).attempt, 2);
}

// covers TIM-08
TEST(Contract, D3_a_lost_member_fails_only_what_it_had) {
    Book b({{Sequence(1), 1, 1, true}, {Sequence(2), 0, 1, false}});
    b.deliver(2);
    b.deliver(3);
    // 1 waits for its backoff since an earlier owner: the lowest of *this* owner is 2.
    EXPECT_EQ(b.failed(b.book.release_owner(false, b.now, b.rng)), std::vector<std::uint64_t>{2});
    // The next owner has delivered nothing yet.
    EXPECT_TRUE(b.book.release_owner(false, b.now, b.rng).failed.empty());
    b.book.check();
}

TEST(Contract, D4_a_failure_goes_again_only_after_its_flush) {
    Book b;
    b.deliver(1);
    b.book.fail(Sequence(1), false, b.now, b.rng);
    EXPECT_EQ(b.at(1), Standing::FAILING);
    EXPECT_FALSE(b.book.next_ready());
    EXPECT_EQ(b.book.next_deadline(), NEVER);
    b.book.fail_flushed(Sequence(1), b.now);
    EXPECT_EQ(b.at(1), Standing::READY);
}

TEST(Contract, D1_acked_wins_over_a_failure_on_its_way) {
    Book b;
    b.deliver(1);
    b.book.fail(Sequence(1), true, b.now, b.rng);
    EXPECT_FALSE(b.book.settle(Sequence(1)).has_value());
    b.book.fail_flushed(Sequence(1), b.now);
    EXPECT_EQ(b.at(1), Standing::SETTLING);
    b.book.settle_flushed(Sequence(1));
    EXPECT_EQ(b.at(1), Standing::SETTLED);
    EXPECT_EQ(b.book.settled().ack_floor(), Sequence(1));
}

TEST(Contract, D1_an_ack_after_the_lease_settles) {
    Book b;
    b.deliver(1);
    b.failed(b.wait(seconds(31)));
    EXPECT_EQ(b.at(1), Standing::WAITING);
    EXPECT_FALSE(b.book.settle(Sequence(1)).has_value())
        << "its credit was given back by the expiry";
    b.book.settle_flushed(Sequence(1));
    b.book.check();
}

TEST(Contract, D3_attempts_count_deliveries_and_the_last_failure_is_announced) {
    Book b;
    for (std::uint16_t attempt = 1; attempt <= 5; ++attempt) {
        const auto sent = b.deliver(1);
        EXPECT_EQ(sent.attempt, attempt);
        EXPECT_EQ(sent.is_last, attempt == 5);
        b.fail(1, false);
    }
    EXPECT_EQ(b.at(1), Standing::WAITING) << "used-up attempts wait even after REQUEUE";
    b.wait(seconds(30) - milliseconds(1));
    EXPECT_EQ(b.at(1), Standing::WAITING);
    b.wait(milliseconds(1));
    EXPECT_EQ(b.at(1), Standing::READY);
}

TEST(Contract, D5_after_a_restart_flight_is_ready_and_backoff_begins_again) {
    Book b({{Sequence(1), 3, 4, true}, {Sequence(2), 1, 2, false}, {Sequence(3), 0, 1, false}});
    EXPECT_EQ(b.at(2), Standing::READY);
    EXPECT_EQ(b.at(3), Standing::READY);
    EXPECT_EQ(b.at(1), Standing::WAITING);
    EXPECT_GE(b.book.next_deadline(), MonoTime{} + seconds(4));
    EXPECT_EQ(b.deliver(3).attempt, 2);
}

TEST(DeliveryBook, refuses_a_cursor_that_leaves_a_message_out) {
    Rng rng(1);
    SettledSet settled;
    settled.add(Sequence(3));
    const auto book = DeliveryBook::restore({5, seconds(30)}, std::move(settled),
                                            {{Sequence(1), 0, 1, false}}, MonoTime{}, rng);
    EXPECT_TRUE(book.is(ErrorCode::DAMAGED));
}

TEST(DeliveryBook, progress_renews_the_lease_of_the_current_delivery) {
    Book b;
    b.deliver(1);
    EXPECT_TRUE(b.book.is_current_delivery(Sequence(1), DeliveryId(1)));
    EXPECT_FALSE(b.book.is_current_delivery(Sequence(1), DeliveryId(2)));
    b.wait(seconds(29));
    b.book.progress(Sequence(1), b.now);
    EXPECT_TRUE(b.wait(seconds(29)).failed.empty());
    EXPECT_EQ(b.failed(b.wait(seconds(1))), std::vector<std::uint64_t>{1});
}

// Conservation: whatever happens, each touched message is in exactly one place, and counts never go down.
TEST(DeliveryBook, conserves_messages_through_any_history) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        Rng rng(seed);
        Book b;
        std::vector<std::uint64_t> settling;
        std::vector<std::uint64_t> failing;
        std::map<std::uint64_t, std::pair<int, int>> counts;
        std::uint64_t settled_count = 0;
        for (int step = 0; step < 1500; ++step) {
            const std::uint64_t touched = b.book.next_first().value - 1;
            const std::uint64_t some = touched == 0 ? 1 : 1 + rng.below(touched);
            const Standing standing = b.at(some);
            switch (rng.below(9)) {
                case 0:
                case 1:
                    b.deliver(b.book.next_first().value);
                    break;
                case 2:
                    if (const auto ready = b.book.next_ready()) b.deliver(ready->value);
                    break;
                case 3:
                    if (standing == Standing::UNTOUCHED || standing == Standing::SETTLED ||
                        standing == Standing::SETTLING)
                        break;
                    EXPECT_EQ(b.book.settle(Sequence(some)).has_value(),
                              standing == Standing::LEASED);
                    settling.push_back(some);
                    break;
                case 4:
                    for (const std::uint64_t s : settling)
                        b.book.settle_flushed(Sequence(s));
                    settled_count += settling.size();
                    settling.clear();
                    for (const std::uint64_t s : failing)
                        b.book.fail_flushed(Sequence(s), b.now);
                    failing.clear();
                    break;
                case 5:
                    if (standing != Standing::LEASED) break;
                    b.book.fail(Sequence(some), rng.one_in(2), b.now, b.rng);
                    failing.push_back(some);
                    break;
                case 6:
                    for (const auto& one : b.wait(milliseconds(rng.between(0, 20000))).failed)
                        failing.push_back(one.sequence.value);
                    break;
                case 7:
                    if (standing == Standing::LEASED) b.book.progress(Sequence(some), b.now);
                    break;
                case 8:
                    if (!rng.one_in(10)) break;
                    for (const auto& one : b.book.release_owner(rng.one_in(2), b.now, b.rng).failed)
                        failing.push_back(one.sequence.value);
                    break;
            }
            b.book.check();
            ASSERT_EQ(b.book.unsettled_count() + settled_count, b.book.next_first().value - 1);
            for (const UnsettledImage& image : b.book.unsettled()) {
                auto& [failures, deliveries] = counts[image.sequence.value];
                ASSERT_GE(image.failures, failures);
                ASSERT_GE(image.deliveries, deliveries);
                failures = image.failures;
                deliveries = image.deliveries;
            }
        }
    }
}

}  // namespace
}  // namespace mortar
