// stack_pool: fiber stacks cut from big mappings, each above a page that faults on touch.
// Shape:     slabs of STACKS_PER_SLAB stacks; the one given back last is handed out first (its
//            pages are warm).
// Owns:      the mappings, until destroyed: all stacks are back by then.
// Errors:    reserve says when the system gives no more; acquire behind it asserts.
// Invariant: an overflow that touches each page on its way (-fstack-clash-protection) hits the
// guard page. Source:    ecosystem notes 1 (stack pool).
#pragma once

#include <vector>

#include "core/env/fiber.h"

namespace mortar {

class GuardedStackPool final : public StackPool {
  public:
    static constexpr std::size_t STACK_BYTES = MORTAR_FIBER_STACK_BYTES;
    static constexpr std::size_t STACKS_PER_SLAB = 64;

    GuardedStackPool() = default;
    ~GuardedStackPool() override;
    GuardedStackPool(const GuardedStackPool&) = delete;
    GuardedStackPool& operator=(const GuardedStackPool&) = delete;

    FiberStack acquire() override;
    bool reserve(std::size_t count) override;
    void release(FiberStack stack) override;
    std::size_t in_use() const { return slabs_.size() * STACKS_PER_SLAB - free_.size(); }

  private:
    // False when the system gives no more mappings or memory.
    bool add_slab();

    std::vector<std::byte*> slabs_;
    std::vector<std::byte*> free_;  // lowest usable address of each
};

}  // namespace mortar
