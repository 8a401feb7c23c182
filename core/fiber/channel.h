// channel: a bounded queue between fibers; close ends it after what it holds was taken.
// Errors:   pop: CONNECTION_CLOSED once closed and empty; push: CONNECTION_CLOSED once closed; TIMED_OUT; CANCELLED.
// Suspends: push while full, pop while empty.
#pragma once

#include <deque>
#include <utility>

#include "core/fiber/event.h"

namespace mortar {

template <class T>
class Channel {
  public:
    explicit Channel(std::size_t capacity) : capacity_(capacity) { MORTAR_ASSERT(capacity > 0); }

    Result<void> push(Fiber& fiber, T item, MonoTime deadline = NEVER) {
        while (!closed_ && items_.size() >= capacity_) MORTAR_TRY(not_full_.wait(fiber, deadline));
        if (!try_push(std::move(item))) return make_error(ErrorCode::CONNECTION_CLOSED, "channel closed");
        return {};
    }
    // False when full or closed; item is untouched then.
    bool try_push(T&& item) {
        if (closed_ || items_.size() >= capacity_) return false;
        items_.push_back(std::move(item));
        not_empty_.notify_one();
        return true;
    }
    Result<T> pop(Fiber& fiber, MonoTime deadline = NEVER) {
        while (items_.empty()) {
            if (closed_) return make_error(ErrorCode::CONNECTION_CLOSED, "channel closed");
            MORTAR_TRY(not_empty_.wait(fiber, deadline));
        }
        T item = std::move(items_.front());
        items_.pop_front();
        not_full_.notify_one();
        return item;
    }
    void close() {
        closed_ = true;
        not_empty_.notify_all();
        not_full_.notify_all();
    }
    std::size_t size() const { return items_.size(); }
    bool is_closed() const { return closed_; }

  private:
    std::size_t capacity_;
    std::deque<T> items_;
    bool closed_ = false;
    Event not_empty_;
    Event not_full_;
};

}  // namespace mortar
