#include "io-sim/stack_pool.h"

#include <cstring>
#include <new>

namespace mortar::sim {
namespace {
constexpr std::align_val_t STACK_ALIGNMENT{4096};
constexpr std::uint64_t STACK_MARK = 0x6d6f727461727374u;
}  // namespace

HeapStackPool::HeapStackPool(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {}

HeapStackPool::~HeapStackPool() {
    MORTAR_ASSERT(in_use_ == 0);
    for (std::byte* base : free_)
        ::operator delete(base, STACK_ALIGNMENT);
}

FiberStack HeapStackPool::acquire() {
    ++in_use_;
    if (!free_.empty()) {
        std::byte* base = free_.back();
        free_.pop_back();
        return {base, stack_bytes_};
    }
    auto* base = static_cast<std::byte*>(::operator new(stack_bytes_, STACK_ALIGNMENT));
    std::memcpy(base, &STACK_MARK, sizeof STACK_MARK);
    return {base, stack_bytes_};
}

void HeapStackPool::release(FiberStack stack) {
    MORTAR_ASSERT(in_use_ > 0);
    // A broken mark means that a fiber ran over the end of its stack.
    MORTAR_ASSERT(std::memcmp(stack.base, &STACK_MARK, sizeof STACK_MARK) == 0);
    --in_use_;
    free_.push_back(stack.base);
}

}  // namespace mortar::sim
