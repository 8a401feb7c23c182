#include "core/wire/outbox.h"

#include <gtest/gtest.h>

#include <string>

#include "core/wire/codec.h"

namespace mortar {
namespace {

using wire::Op;

// Everything taken from the outbox as one string of bytes.
std::string drain(Outbox& outbox) {
    std::string bytes;
    for (const Outbox::Part& part : outbox.take())
        bytes.append(as_string_view(part.view()));
    outbox.done_writing(bytes.size());
    return bytes;
}

std::string text_of(const ByteVector& bytes) {
    return std::string(as_string_view(bytes));
}
std::string ok_frame(Op op) {
    ByteVector frame;
    wire::encode_ok(frame, op);
    return text_of(frame);
}
std::string err_frame(ErrorCode code, Op op, std::string_view text) {
    ByteVector frame;
    wire::encode_err(frame, code, static_cast<std::uint8_t>(op), text);
    return text_of(frame);
}
ByteVector bytes_of(std::string_view text) {
    const ByteSpan span = as_byte_span(text);
    return {span.begin(), span.end()};
}

TEST(Outbox, gathers_small_frames_in_one_part_in_order) {
    Outbox outbox;
    outbox.push(bytes_of("one"));
    outbox.append(as_byte_span("two"));
    outbox.push(bytes_of("three"));
    EXPECT_EQ(outbox.size_bytes(), 11u);
    std::vector<Outbox::Part> parts = outbox.take();
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(as_string_view(parts[0].view()), "onetwothree");
    EXPECT_TRUE(outbox.is_empty());
    EXPECT_EQ(outbox.size_bytes(), 11u);  // still being written
    outbox.done_writing(11);
    EXPECT_EQ(outbox.size_bytes(), 0u);
}

TEST(Outbox, borrows_a_large_value_and_keeps_its_owner_alive) {
    Outbox outbox;
    auto value = std::make_shared<std::string>(Outbox::COPY_BYTES_MAX + 1, 'v');
    const std::weak_ptr<std::string> watch = value;
    const ByteSpan view = as_byte_span(*value);
    outbox.push(bytes_of("a"));
    outbox.push(bytes_of("head"), view, std::move(value));
    outbox.push(bytes_of("z"));
    {
        const std::vector<Outbox::Part> parts = outbox.take();
        ASSERT_EQ(parts.size(), 3u);
        EXPECT_EQ(as_string_view(parts[0].view()), "ahead");
        EXPECT_FALSE(parts[0].ends_frame);
        EXPECT_EQ(parts[1].view().data(), view.data());
        EXPECT_TRUE(parts[1].ends_frame);
        EXPECT_EQ(as_string_view(parts[2].view()), "z");
        EXPECT_FALSE(watch.expired());
    }
    EXPECT_TRUE(watch.expired());
}

TEST(Outbox, copies_a_small_value_and_lets_its_owner_go) {
    Outbox outbox;
    auto value = std::make_shared<std::string>("value");
    const std::weak_ptr<std::string> watch = value;
    const ByteSpan view = as_byte_span(*value);
    outbox.push(bytes_of("head-"), view, std::move(value));
    EXPECT_TRUE(watch.expired());
    EXPECT_EQ(drain(outbox), "head-value");
}

TEST(Outbox, takes_nothing_after_finish) {
    Outbox outbox;
    outbox.push(bytes_of("last"));
    outbox.finish();
    outbox.push(bytes_of("late"));
    outbox.append(as_byte_span("late"));
    EXPECT_EQ(drain(outbox), "last");
}

TEST(Contract, R1_answers_leave_in_arrival_order) {
    Outbox outbox;
    auto queue = std::make_shared<ReplyQueue>(outbox);
    Reply first = queue->open(Op::PUB, 10);
    Reply second = queue->open(Op::PING, 5);
    Reply third = queue->open(Op::ACK, 7);
    EXPECT_EQ(queue->unanswered_bytes(), 22u);
    third.error(make_error(ErrorCode::UNKNOWN_DELIVERY, "already settled"));
    second.ok();
    EXPECT_TRUE(outbox.is_empty());
    EXPECT_EQ(queue->unanswered_count(), 3u);
    outbox.push(bytes_of("PUSH"));  // a push may stand between answers
    first.ok();
    EXPECT_EQ(queue->unanswered_count(), 0u);
    EXPECT_EQ(queue->unanswered_bytes(), 0u);
    EXPECT_EQ(drain(outbox),
              "PUSH" + ok_frame(Op::PUB) + ok_frame(Op::PING) +
                  err_frame(ErrorCode::UNKNOWN_DELIVERY, Op::ACK, "already settled"));
}

TEST(ReplyQueue, R2_the_clock_answers_once_and_the_late_answer_goes_nowhere) {
    Outbox outbox;
    auto queue = std::make_shared<ReplyQueue>(outbox);
    Reply first = queue->open(Op::SUB, 1);
    Reply second = queue->open(Op::DECLARE, 1);
    EXPECT_TRUE(second.is_awaited());
    const Error late = make_error(ErrorCode::READ_ONLY_DEGRADED, "late");
    queue->expire(second.slot(), Op::DECLARE, late);
    EXPECT_FALSE(second.is_awaited());  // answered, though its turn has not come
    first.ok();
    const std::string sent = drain(outbox);
    EXPECT_EQ(sent,
              ok_frame(Op::SUB) + err_frame(ErrorCode::READ_ONLY_DEGRADED, Op::DECLARE, "late"));
    second.error(make_error(ErrorCode::MALFORMED_PAYLOAD, "DECLARE: wrong"));
    EXPECT_FALSE(queue->is_closing());
    queue->expire(0, Op::SUB, late);
    EXPECT_EQ(drain(outbox), "");
    Reply third = queue->open(Op::PING, 1);
    queue->detach();
    EXPECT_FALSE(third.is_awaited());
}

TEST(Outbox, has_less_room_while_the_node_holds_too_much) {
    OutboxBudget budget(3 * OutboxBudget::SHARE_BYTES);
    Outbox full(&budget);
    {
        Outbox other(&budget);
        full.push(ByteVector(2 * OutboxBudget::SHARE_BYTES, std::byte{1}));
        EXPECT_TRUE(full.has_room(1u << 20));
        EXPECT_FALSE(full.has_room(OutboxBudget::SHARE_BYTES));
        other.push(ByteVector(OutboxBudget::SHARE_BYTES - 10, std::byte{2}));
        EXPECT_TRUE(full.has_room(1u << 20));
        other.append(ByteVector(5, std::byte{3}));
        const auto owner = std::make_shared<const ByteVector>(2000, std::byte{4});
        other.push(ByteVector(4, std::byte{5}), *owner, owner);
        EXPECT_TRUE(budget.is_full());
        EXPECT_FALSE(full.has_room(1u << 20));  // the fullest wait
        EXPECT_FALSE(other.has_room(1u << 20));
        other.take();
        other.done_writing(4000);
        EXPECT_TRUE(other.has_room(1u << 20));
        EXPECT_FALSE(full.has_room(3 * OutboxBudget::SHARE_BYTES / 2));
    }
    EXPECT_EQ(budget.used_bytes(), full.size_bytes());  // what was never written counts no more
    EXPECT_TRUE(full.has_room(1u << 20));
}

TEST(ReplyQueue, sends_results_of_their_own_kind) {
    Outbox outbox;
    auto queue = std::make_shared<ReplyQueue>(outbox);
    const wire::PubResult result{Sequence(7), wire::Durability::LOCAL, LeaderEpoch(3), Sequence(9),
                                 1};
    queue->open(Op::PUB, 1).ok(result);
    ByteVector frame;
    wire::encode_ok(frame, result);
    EXPECT_EQ(drain(outbox), text_of(frame));
}

TEST(ReplyQueue, sends_pushes_right_behind_the_answer_that_they_belong_to) {
    Outbox outbox;
    auto queue = std::make_shared<ReplyQueue>(outbox);
    Reply first = queue->open(Op::PING, 1);
    queue->open(Op::SUB, 1).ok(wire::SubResult{}, as_byte_span("NOTICE"));
    queue->open(Op::ACK, 1).ok();
    first.ok();
    ByteVector sub;
    wire::encode_ok(sub, wire::SubResult{});
    EXPECT_EQ(drain(outbox), ok_frame(Op::PING) + text_of(sub) + "NOTICE" + ok_frame(Op::ACK));
}

TEST(ReplyQueue, sends_a_local_code_as_internal_and_keeps_its_detail_at_home) {
    Outbox outbox;
    std::string seen;
    auto queue = std::make_shared<ReplyQueue>(outbox, [&seen](wire::Op op, const Error& error) {
        seen = std::string(op_name(op)) + " " + error.detail;
    });
    queue->open(Op::SUB, 1).error(make_error(ErrorCode::IO_ERROR, "secret/path"));
    EXPECT_EQ(drain(outbox), err_frame(ErrorCode::INTERNAL, Op::SUB, "report it"));
    EXPECT_EQ(seen, "SUB secret/path");
}

TEST(ReplyQueue, finishes_the_outbox_when_the_turn_of_a_closing_error_comes) {
    Outbox outbox;
    auto queue = std::make_shared<ReplyQueue>(outbox);
    Reply first = queue->open(Op::PUB, 1);
    Reply second = queue->open(Op::PUB, 1);
    Reply third = queue->open(Op::PUB, 1);
    second.error(make_error(ErrorCode::MALFORMED_PAYLOAD, "PUB: wrong"));
    EXPECT_TRUE(queue->is_closing());
    EXPECT_FALSE(outbox.is_finished());
    first.ok();
    EXPECT_TRUE(outbox.is_finished());
    third.ok();  // its turn never comes
    EXPECT_EQ(drain(outbox),
              ok_frame(Op::PUB) + err_frame(ErrorCode::MALFORMED_PAYLOAD, Op::PUB, "PUB: wrong"));
}

TEST(ReplyQueue, drops_answers_after_the_connection_is_gone) {
    Reply late;
    {
        Outbox outbox;
        auto queue = std::make_shared<ReplyQueue>(outbox);
        late = queue->open(Op::PUB, 1);
        queue->detach();
    }
    late.ok();
    EXPECT_FALSE(late.is_pending());
}

}  // namespace
}  // namespace mortar
