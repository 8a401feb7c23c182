#include "core/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace mortar {
namespace {
AssertContext g_context = nullptr;
SometimesHook g_sometimes = nullptr;
}  // namespace

void set_assert_context(AssertContext context) {
    g_context = context;
}

void assert_failed(const char* expression, const char* file, int line) {
    char text[256] = "";
    if (g_context != nullptr) g_context(text, sizeof text);
    std::fprintf(stderr, "MORTAR_ASSERT failed: %s at %s:%d %s\n", expression, file, line, text);
    std::abort();
}

void set_sometimes_hook(SometimesHook hook) {
    g_sometimes = hook;
}

void sometimes_seen(const char* name) {
    if (g_sometimes != nullptr) g_sometimes(name);
}

}  // namespace mortar
