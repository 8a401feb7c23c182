#include "core/wire/outbox.h"

#include <utility>

#include "core/wire/codec.h"

namespace mortar {

Outbox::~Outbox() {
    if (budget_ != nullptr) budget_->release(size_bytes_);
}

void Outbox::count(std::size_t bytes) {
    size_bytes_ += bytes;
    if (budget_ != nullptr) budget_->charge(bytes);
}

void Outbox::push(ByteVector frames) {
    if (finished_ || frames.empty()) return;
    if (!gather(frames, true)) {
        count(frames.size());
        parts_.push_back({std::move(frames), {}, nullptr, true});
    }
    ready_.notify_one();
}

void Outbox::append(ByteSpan frames) {
    if (finished_ || frames.empty()) return;
    if (!gather(frames, true)) {
        count(frames.size());
        parts_.push_back({ByteVector(frames.begin(), frames.end()), {}, nullptr, true});
    }
    ready_.notify_one();
}

void Outbox::push(ByteVector head, ByteSpan value, std::shared_ptr<const void> owner) {
    if (finished_) return;
    if (value.size() <= COPY_BYTES_MAX) {
        head.insert(head.end(), value.begin(), value.end());
        push(std::move(head));
        return;
    }
    MORTAR_ASSERT(owner != nullptr);
    if (!gather(head, false)) {
        count(head.size());
        parts_.push_back({std::move(head), {}, nullptr, false});
    }
    count(value.size());
    parts_.push_back({{}, value, std::move(owner), true});
    ready_.notify_one();
}

bool Outbox::gather(ByteSpan bytes, bool ends_frame) {
    if (bytes.size() > COPY_BYTES_MAX || parts_.empty()) return false;
    Part& last = parts_.back();
    if (last.owner != nullptr || last.owned.size() + bytes.size() > GATHER_BYTES_MAX) return false;
    MORTAR_ASSERT(last.ends_frame);
    last.owned.insert(last.owned.end(), bytes.begin(), bytes.end());
    last.ends_frame = ends_frame;
    count(bytes.size());
    return true;
}

void Outbox::finish() {
    finished_ = true;
    ready_.notify_all();
    drained_.notify_all();
}

std::vector<Outbox::Part> Outbox::take() {
    return std::exchange(parts_, {});
}

void Outbox::done_writing(std::size_t bytes) {
    MORTAR_ASSERT(bytes <= size_bytes_);
    size_bytes_ -= bytes;
    if (budget_ != nullptr) budget_->release(bytes);
    drained_.notify_all();
}

Reply::Reply(std::shared_ptr<ReplyQueue> queue, std::uint64_t slot, wire::Op op)
    : queue_(std::move(queue)), slot_(slot), op_(op) {}

bool Reply::is_awaited() const {
    return queue_ != nullptr && queue_->is_awaited(slot_);
}

void Reply::ok(ByteSpan result, ByteSpan pushes) {
    MORTAR_ASSERT(is_pending());
    queue_->scratch_.clear();
    wire::encode(queue_->scratch_, wire::Ok{op_, result});
    queue_->scratch_.insert(queue_->scratch_.end(), pushes.begin(), pushes.end());
    std::exchange(queue_, nullptr)->answer(slot_, false);
}

template <class T>
void Reply::ok_result(const T& result, ByteSpan pushes) {
    MORTAR_ASSERT(is_pending());
    queue_->scratch_.clear();
    wire::encode_ok(queue_->scratch_, result);
    queue_->scratch_.insert(queue_->scratch_.end(), pushes.begin(), pushes.end());
    std::exchange(queue_, nullptr)->answer(slot_, false);
}

void Reply::ok(const wire::DeclareResult& result) {
    ok_result(result);
}
void Reply::ok(const wire::PubResult& result) {
    ok_result(result);
}
void Reply::ok(const wire::SubResult& result, ByteSpan pushes) {
    ok_result(result, pushes);
}
void Reply::ok(const wire::CreditResult& result) {
    ok_result(result);
}

void Reply::error(const Error& error) {
    MORTAR_ASSERT(is_pending());
    const bool local = is_local(error.code);
    if (local && queue_->on_internal_error_) queue_->on_internal_error_(op_, error);
    const ErrorInfo& info = error_info(local ? ErrorCode::INTERNAL : error.code);
    const std::string_view text = local || error.detail.empty() ? info.client_does : error.detail;
    queue_->scratch_.clear();
    wire::encode_err(queue_->scratch_, info.code, static_cast<std::uint8_t>(op_), text);
    std::exchange(queue_, nullptr)->answer(slot_, info.closes);
}

Reply ReplyQueue::open(wire::Op op, std::size_t request_bytes) {
    MORTAR_ASSERT(!closing_);
    slots_.push_back({{}, false, request_bytes});
    unanswered_bytes_ += request_bytes;
    return {shared_from_this(), first_slot_ + slots_.size() - 1, op};
}

void ReplyQueue::detach() {
    outbox_ = nullptr;
    closing_ = true;
    on_internal_error_ = {};
    slots_.clear();
    unanswered_bytes_ = 0;
    answered_.notify_all();
}

bool ReplyQueue::is_awaited(std::uint64_t slot) const {
    if (outbox_ == nullptr || slot < first_slot_) return false;
    MORTAR_ASSERT(slot - first_slot_ < slots_.size());
    return slots_[slot - first_slot_].frame.empty();
}

void ReplyQueue::expire(std::uint64_t slot, wire::Op op, const Error& error) {
    if (is_awaited(slot)) Reply(shared_from_this(), slot, op).error(error);
}

void ReplyQueue::answer(std::uint64_t slot, bool closes) {
    if (!is_awaited(slot)) return;
    closing_ = closing_ || closes;
    if (slot != first_slot_) {
        Slot& waiting = slots_[slot - first_slot_];
        waiting.frame = scratch_;
        waiting.closes = closes;
        return;
    }
    outbox_->append(scratch_);
    leave(closes);
    while (outbox_ != nullptr && !slots_.empty() && !slots_.front().frame.empty()) {
        Slot& next = slots_.front();
        outbox_->push(std::move(next.frame));
        leave(next.closes);
    }
    answered_.notify_all();
}

// The first slot's frame is in the outbox.
void ReplyQueue::leave(bool closes) {
    unanswered_bytes_ -= slots_.front().request_bytes;
    slots_.pop_front();
    ++first_slot_;
    if (!closes) return;
    // Nothing may follow an ERR that closes: the answers behind it are never sent.
    outbox_->finish();
    detach();
}

}  // namespace mortar
