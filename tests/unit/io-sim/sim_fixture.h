// sim_fixture: a world with small conveniences for tests of the simulator's own parts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "io-sim/node.h"
#include "io-sim/stack_pool.h"

namespace mortar::sim {

inline std::string text_of(const ByteVector& bytes) {
    return std::string(as_string_view(bytes));
}

class SimFixture : public ::testing::Test {
  protected:
    HeapStackPool stacks;
    SimWorld world{1, stacks};

    // Runs body as a fiber of the node and the world until the body has ended.
    void run_on(SimNode& node, FiberBody body) {
        bool ended = false;
        node.scheduler().spawn("test.body", [&ended, inner = std::move(body)](Fiber& fiber) {
            inner(fiber);
            ended = true;
        });
        while (!ended && world.step(world.now() + seconds(1000))) {
        }
        ASSERT_TRUE(ended);
    }
    static Result<void> write_text(Fiber& fiber, File& file, std::uint64_t file_offset,
                                   std::string_view text) {
        const ByteSpan part = as_byte_span(text);
        return file.write_at(fiber, file_offset, {&part, 1});
    }
    static Result<void> send_text(Fiber& fiber, Conn& conn, std::string_view text,
                                  MonoTime deadline = NEVER) {
        const ByteSpan part = as_byte_span(text);
        return conn.write(fiber, {&part, 1}, deadline);
    }
    static Result<std::string> read_some(Fiber& fiber, Conn& conn, std::size_t max,
                                         MonoTime deadline = NEVER) {
        ByteVector into(max);
        const std::size_t count = MORTAR_TRY(conn.read(fiber, into, deadline));
        into.resize(count);
        return text_of(into);
    }
    // Until the end of the stream or an error.
    static std::pair<std::string, Result<std::size_t>> read_all(Fiber& fiber, Conn& conn) {
        std::string all;
        ByteVector into(1000);
        while (true) {
            Result<std::size_t> count = conn.read(fiber, into, NEVER);
            if (!count.ok() || *count == 0) return {std::move(all), std::move(count)};
            all += as_string_view(ByteSpan(into).first(*count));
        }
    }
};

}  // namespace mortar::sim
