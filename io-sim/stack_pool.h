// stack_pool: fiber stacks from the heap, kept for the next fiber; one pool for all worlds of a
// thread.
// Owns:      every stack it ever made; all must be back before it is destroyed.
// Invariant: a mark at the low end of each stack is whole when the stack comes back: there is no
//            guard page.
// Source:    design 6 (speed: pooled stacks, no syscalls in a run).
#pragma once

#include <vector>

#include "core/env/fiber.h"

namespace mortar::sim {

class HeapStackPool : public StackPool {
  public:
    explicit HeapStackPool(std::size_t stack_bytes = MORTAR_FIBER_STACK_BYTES);
    ~HeapStackPool() override;
    HeapStackPool(const HeapStackPool&) = delete;
    HeapStackPool& operator=(const HeapStackPool&) = delete;

    FiberStack acquire() override;
    bool reserve(std::size_t) override { return true; }
    void release(FiberStack stack) override;
    std::size_t in_use() const { return in_use_; }

  private:
    std::size_t stack_bytes_;
    std::size_t in_use_ = 0;
    std::vector<std::byte*> free_;
};

}  // namespace mortar::sim
