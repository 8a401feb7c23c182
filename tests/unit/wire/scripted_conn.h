// scripted_conn: a Conn whose peer sends fixed bytes at fixed times, on the manual scheduler.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "core/env/net.h"
#include "tests/unit/env/manual_scheduler.h"

namespace mortar::testing {

class ScriptedConn : public Conn {
  public:
    explicit ScriptedConn(ManualWorld& world) : world_(world) {}

    void send_at(Duration when, ByteSpan bytes) {
        steps_.push_back({MonoTime{} + when, ByteVector(bytes.begin(), bytes.end()), Step::BYTES});
    }
    void close_at(Duration when) { steps_.push_back({MonoTime{} + when, {}, Step::CLOSE}); }
    void reset_at(Duration when) { steps_.push_back({MonoTime{} + when, {}, Step::RESET}); }

    // What has arrived is handed out even when the deadline has passed; steps are not merged.
    Result<std::size_t> read(Fiber& fiber, MutableByteSpan into, MonoTime deadline) override {
        ++reads;
        while (steps_.empty() || steps_.front().when > world_.clock.time) {
            if (deadline <= world_.clock.time) return make_error(ErrorCode::TIMED_OUT);
            const MonoTime next = steps_.empty() ? NEVER : steps_.front().when;
            MORTAR_TRY(fiber.scheduler().sleep_until(fiber, std::min(next, deadline)));
        }
        Step& step = steps_.front();
        if (step.kind == Step::CLOSE) return std::size_t{0};
        if (step.kind == Step::RESET) return make_error(ErrorCode::CONNECTION_CLOSED, "reset");
        const std::size_t count =
            std::min({step.bytes.size() - taken_, into.size(), read_bytes_max});
        std::copy_n(step.bytes.begin() + static_cast<std::ptrdiff_t>(taken_), count, into.begin());
        taken_ += count;
        if (taken_ == step.bytes.size()) {
            steps_.pop_front();
            taken_ = 0;
        }
        return count;
    }
    Result<std::size_t> write_some(Fiber&, std::span<const ByteSpan>, MonoTime) override {
        return make_error(ErrorCode::CONNECTION_CLOSED);
    }
    Result<void> write(Fiber&, std::span<const ByteSpan>, MonoTime) override {
        return make_error(ErrorCode::CONNECTION_CLOSED);
    }
    void shutdown_write() override {}
    void close() override {}
    std::string peer_address() const override { return "scripted:1"; }

    int reads = 0;
    std::size_t read_bytes_max = static_cast<std::size_t>(-1);

  private:
    struct Step {
        MonoTime when;
        ByteVector bytes;
        enum Kind { BYTES, CLOSE, RESET } kind;
    };
    ManualWorld& world_;
    std::deque<Step> steps_;
    std::size_t taken_ = 0;  // of the first step
};

// Runs body as a fiber until nothing can go on; false when it is still waiting then.
inline bool run_fiber(ManualWorld& world, const std::function<void(Fiber&)>& body) {
    bool done = false;
    world.scheduler.spawn("test.body", [&](Fiber& fiber) {
        body(fiber);
        done = true;
    });
    world.scheduler.run_all();
    return done;
}

}  // namespace mortar::testing
