#include "io-real/stack_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/assert.h"

namespace mortar {
namespace {

constexpr std::size_t GUARD_BYTES = 4096;
constexpr std::size_t SLOT_BYTES = GUARD_BYTES + GuardedStackPool::STACK_BYTES;
constexpr std::size_t SLAB_BYTES = SLOT_BYTES * GuardedStackPool::STACKS_PER_SLAB;
static_assert(GuardedStackPool::STACK_BYTES % GUARD_BYTES == 0);
// Linux 6.13; Debian's headers do not know it yet. Unlike mprotect it does not split the mapping,
// of which a process may have 65,530.
constexpr int MADV_GUARD_INSTALL_VALUE = 102;

bool install_guard(std::byte* page) {
    return madvise(page, GUARD_BYTES, MADV_GUARD_INSTALL_VALUE) == 0 ||
           mprotect(page, GUARD_BYTES, PROT_NONE) == 0;
}

}  // namespace

GuardedStackPool::~GuardedStackPool() {
    MORTAR_ASSERT(in_use() == 0);
    for (std::byte* slab : slabs_)
        munmap(slab, SLAB_BYTES);
}

FiberStack GuardedStackPool::acquire() {
    MORTAR_ASSERT(reserve(1));
    std::byte* base = free_.back();
    free_.pop_back();
    return {base, STACK_BYTES};
}

bool GuardedStackPool::reserve(std::size_t count) {
    while (free_.size() < count) {
        if (!add_slab()) return false;
    }
    return true;
}

void GuardedStackPool::release(FiberStack stack) {
    MORTAR_ASSERT(stack.size_bytes == STACK_BYTES && in_use() > 0);
    free_.push_back(stack.base);
}

bool GuardedStackPool::add_slab() {
    MORTAR_ASSERT(sysconf(_SC_PAGESIZE) == static_cast<long>(GUARD_BYTES));
    void* mapped = mmap(nullptr, SLAB_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapped == MAP_FAILED) return false;
    auto* slab = static_cast<std::byte*>(mapped);
    for (std::size_t i = 0; i < STACKS_PER_SLAB; ++i) {
        if (install_guard(slab + i * SLOT_BYTES)) continue;
        munmap(slab, SLAB_BYTES);
        return false;
    }
    slabs_.push_back(slab);
    for (std::size_t i = STACKS_PER_SLAB; i-- > 0;)
        free_.push_back(slab + i * SLOT_BYTES + GUARD_BYTES);
    return true;
}

}  // namespace mortar
