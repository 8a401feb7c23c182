// outbox: what waits to be sent on one connection, and the answers in the order of their requests.
// Shape:    Outbox is a queue of bytes for the connection's writer fiber: owned frames, and
//           borrowed values that an owner keeps alive (a large MSG value is never copied).
//           ReplyQueue keeps one slot a request; a slot answered out of turn waits until those
//           before it are answered. Reply is the right to answer one slot, once.
// Owns:     Reply shares the queue: answering after the connection is gone does nothing.
// Suspends: nothing here; the writer waits on ready(), whoever must not overfill waits on
//           drained() until has_room().
// Source:   contract R1 (answers leave in arrival order; pushes may stand between answers, never
//           inside a frame), R2 (a request that takes too long is answered by the clock).
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/fiber/event.h"
#include "core/wire/messages.h"

namespace mortar {

// What the outboxes of a node hold, over all its connections.
class OutboxBudget {
  public:
    static constexpr std::size_t BYTES_MAX = 512u << 20;
    // While the node holds too much, an outbox above this has no room; below it answers still flow.
    static constexpr std::size_t SHARE_BYTES = 64 * 1024;

    explicit OutboxBudget(std::size_t bytes_max = BYTES_MAX) : bytes_max_(bytes_max) {}
    OutboxBudget(const OutboxBudget&) = delete;
    OutboxBudget& operator=(const OutboxBudget&) = delete;

    void charge(std::size_t bytes) { used_bytes_ += bytes; }
    void release(std::size_t bytes) {
        MORTAR_ASSERT(bytes <= used_bytes_);
        used_bytes_ -= bytes;
    }
    bool is_full() const { return used_bytes_ >= bytes_max_; }
    std::size_t used_bytes() const { return used_bytes_; }

  private:
    std::size_t bytes_max_;
    std::size_t used_bytes_ = 0;
};

class Outbox {
  public:
    explicit Outbox(OutboxBudget* budget = nullptr) : budget_(budget) {}
    ~Outbox();
    Outbox(const Outbox&) = delete;
    Outbox& operator=(const Outbox&) = delete;

    // What is smaller is copied behind the part before it: one more part in a gather write costs
    // more than the copy.
    static constexpr std::size_t COPY_BYTES_MAX = 1024;
    // A part that small frames are gathered in is closed at this size.
    static constexpr std::size_t GATHER_BYTES_MAX = 64 * 1024;

    // One or more whole frames.
    void push(ByteVector frames);
    // The same, copied.
    void append(ByteSpan frames);
    // A frame in two parts: head (owned) and value (borrowed from owner).
    void push(ByteVector head, ByteSpan value, std::shared_ptr<const void> owner);
    // No more pushes are taken; the writer sends what is queued, then closes the connection.
    void finish();
    bool is_finished() const { return finished_; }
    bool is_empty() const { return parts_.empty(); }
    // Queued and not yet written to the socket (parts handed to the writer count until
    // done_writing).
    std::size_t size_bytes() const { return size_bytes_; }
    // Whoever may wait pushes only while there is: at most bytes_max here, less while the node holds
    // too much in all.
    bool has_room(std::size_t bytes_max) const {
        if (budget_ != nullptr && budget_->is_full())
            bytes_max = std::min(bytes_max, OutboxBudget::SHARE_BYTES);
        return size_bytes_ < bytes_max;
    }

    struct Part {
        ByteVector owned;
        ByteSpan borrowed;
        std::shared_ptr<const void> owner;
        bool ends_frame = true;  // false: the rest of its last frame is in the next part
        ByteSpan view() const { return owner != nullptr ? borrowed : ByteSpan(owned); }
    };
    // Hands all queued parts to the writer; they count in size_bytes until done_writing.
    std::vector<Part> take();
    void done_writing(std::size_t bytes);

    Event& ready() { return ready_; }
    Event& drained() { return drained_; }

  private:
    bool gather(ByteSpan bytes, bool ends_frame);
    void count(std::size_t bytes);

    OutboxBudget* budget_;
    std::vector<Part> parts_;
    std::size_t size_bytes_ = 0;
    bool finished_ = false;
    Event ready_;
    Event drained_;
};

class ReplyQueue;

// Move-only. Exactly one of ok and error is called; dropping it unanswered is allowed only when the
// node stops, or when nobody awaits it.
class Reply {
  public:
    Reply() = default;
    Reply(std::shared_ptr<ReplyQueue> queue, std::uint64_t slot, wire::Op op);
    Reply(Reply&& other) noexcept = default;
    Reply& operator=(Reply&& other) noexcept = default;

    wire::Op op() const { return op_; }
    bool is_pending() const { return queue_ != nullptr; }
    // False once the connection is gone or the clock has answered: then ok and error do nothing,
    // and what was made for this client alone is to be taken back.
    bool is_awaited() const;
    std::uint64_t slot() const { return slot_; }
    // result: the encoded result bytes of the OK. pushes: whole frames that must not overtake this
    // OK; they leave right behind it (the NOTICEs of a SUB name a member that the client first
    // learns from the OK).
    void ok(ByteSpan result = {}, ByteSpan pushes = {});
    // The result of the request's own kind.
    void ok(const wire::DeclareResult& result);
    void ok(const wire::PubResult& result);
    void ok(const wire::SubResult& result, ByteSpan pushes = {});
    void ok(const wire::CreditResult& result);
    // The detail of a registered code is the text for the client: it names the fix (contract S6).
    // Local codes never leave the node: they are sent as INTERNAL and their detail goes to
    // on_internal_error.
    void error(const Error& error);

  private:
    template <class T>
    void ok_result(const T& result, ByteSpan pushes = {});

    std::shared_ptr<ReplyQueue> queue_;
    std::uint64_t slot_ = 0;
    wire::Op op_{};
};

class ReplyQueue : public std::enable_shared_from_this<ReplyQueue> {
  public:
    using OnInternalError = std::function<void(wire::Op, const Error&)>;
    explicit ReplyQueue(Outbox& outbox, OnInternalError on_internal_error = {})
        : outbox_(&outbox), on_internal_error_(std::move(on_internal_error)) {}

    // The next slot in arrival order. request_bytes count against the connection's bound until
    // answered.
    Reply open(wire::Op op, std::size_t request_bytes);
    std::size_t unanswered_count() const { return slots_.size(); }
    std::size_t unanswered_bytes() const { return unanswered_bytes_; }
    bool is_awaited(std::uint64_t slot) const;
    // The clock answers for a handler that takes too long; nothing when that has answered.
    void expire(std::uint64_t slot, wire::Op op, const Error& error);
    // Notified when a slot was answered and left the queue.
    Event& answered() { return answered_; }
    // An answer that closes the connection was given: nothing that arrives afterwards is executed.
    // The outbox is finished once the turn of that answer has come.
    bool is_closing() const { return closing_; }
    // The connection is gone: later answers are dropped.
    void detach();

  private:
    friend class Reply;
    struct Slot {
        ByteVector frame;  // empty = not answered yet
        bool closes = false;
        std::size_t request_bytes = 0;
    };
    // frame: what scratch_ holds.
    void answer(std::uint64_t slot, bool closes);
    void leave(bool closes);

    Outbox* outbox_;
    OnInternalError on_internal_error_;
    std::deque<Slot> slots_;
    std::uint64_t first_slot_ = 0;
    std::size_t unanswered_bytes_ = 0;
    bool closing_ = false;
    ByteVector
        scratch_;  // each answer is encoded here, so that one in its turn costs no allocation
    Event answered_;
};

}  // namespace mortar
