// answer: one request of a test and what it was answered.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/wire/codec.h"
#include "core/wire/outbox.h"

namespace mortar::testing::inline deliver_fakes {

class Answer {
  public:
    Reply open(wire::Op op) {
        queue_ = std::make_shared<ReplyQueue>(outbox_);
        return queue_->open(op, 10);
    }
    bool is_pending() { return !read(); }
    bool is_ok() { return read() && !code_; }
    // Not OK and not pending.
    bool is(ErrorCode code) { return read() && code_ == static_cast<std::uint16_t>(code); }

  private:
    bool read() {
        if (is_read_) return true;
        ByteVector bytes;
        for (const Outbox::Part& part : outbox_.take()) {
            const ByteSpan view = part.view();
            bytes.insert(bytes.end(), view.begin(), view.end());
        }
        if (bytes.empty()) return false;
        is_read_ = true;
        const auto op = static_cast<wire::Op>(bytes[4]);
        if (op == wire::Op::ERR) code_ = wire::decode_err(ByteSpan(bytes).subspan(5))->code;
        return true;
    }

    Outbox outbox_;
    std::shared_ptr<ReplyQueue> queue_;
    bool is_read_ = false;
    std::optional<std::uint16_t> code_;
};

}  // namespace mortar::testing::inline deliver_fakes
