// assert: broken promises of our own stop the process; rare but legal paths are counted.
// MORTAR_ASSERT is on in every build. It prints expression, place, and what assert_context says (node, time,
// seed), then aborts: a broker that is unsure stops rather than guesses. Never use it on bytes from outside.
// MORTAR_SOMETIMES(condition, "name") names a rare legal path; a sweep lists the names never seen.
// Source: style (assertions), design 2 and 6.
#pragma once

#include <cstdint>

namespace mortar {

// Called by a failed assertion before the abort; fills text with node, time and seed. May be null.
using AssertContext = void (*)(char* text, unsigned long size);
void set_assert_context(AssertContext context);
[[noreturn]] void assert_failed(const char* expression, const char* file, int line);

// Called at each MORTAR_SOMETIMES whose condition holds. May be null (production).
using SometimesHook = void (*)(const char* name);
void set_sometimes_hook(SometimesHook hook);
void sometimes_seen(const char* name);

}  // namespace mortar

#define MORTAR_ASSERT(expression)                                     \
    do {                                                              \
        if (!(expression)) [[unlikely]]                               \
            ::mortar::assert_failed(#expression, __FILE__, __LINE__); \
    } while (0)
#define MORTAR_UNREACHABLE() ::mortar::assert_failed("unreachable", __FILE__, __LINE__)
#define MORTAR_SOMETIMES(condition, name)              \
    do {                                               \
        if (condition) ::mortar::sometimes_seen(name); \
    } while (0)
