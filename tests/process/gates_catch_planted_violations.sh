#!/bin/bash
# gates_catch_planted_violations: a gate that has never failed is not trusted. Plants one violation at a time in a small
# tree or archive and expects the gate to name it; the clean tree and archive must pass.
set -uo pipefail

usage() {
    echo "usage: gates_catch_planted_violations.sh"
    echo "Needs a compiler (\$CXX, else c++). Exit 1 when a gate lets a planted violation through."
}
[ "${1:-}" = --help ] && { usage; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
planted=0
fail() {
    echo "$1"
    failures=$((failures + 1))
}

clean_tree() {
    mkdir -p "$work/tree"/{core/{base,env,wire,log,deliver,client,mqtt},io-real,io-sim,nemesis,sim,tools}
    cat >"$work/tree/core/log/a.cc" <<'TXT'
// throw, try and catch, thread_local and epoch may stand in comments; so may <chrono>.
/* try { epoch } catch (x) */
#include "core/env/fiber.h"
static constexpr int LIMIT = 3;
static const char* const NAME = "epoch throw try { catch (";
static int helper(Fiber& fiber);
int f(LeaderEpoch leader_epoch) { return try_push(leader_epoch, retry(catch_up)); }
TXT
}
# plant PATH LINE RULE-TEXT: the line goes to a file of its own beside PATH, so that one run judges them all.
plants=()
plant() {
    planted=$((planted + 1))
    local file=${1%.*}_$planted.${1##*.}
    printf '%s\n' "$2" >"$work/tree/$file"
    plants+=("$file" "$2" "$3")
}

clean_tree
output=$("$here/layers.sh" "$work/tree") || fail "layers.sh finds fault with a clean tree: $output"
plant core/wire/a.cc '#include "core/log/segment.h"' leftward
plant core/base/a.h '#include "core/env/clock.h"' leftward
plant core/deliver/a.cc '#include "core/client/link.h"' leftward
plant core/client/a.cc '#include "core/log/segment.h"' leftward
plant core/mqtt/packet.h '#include "core/base/bytes.h"' leftward
plant core/log/a.cc '#include "core/extra/new_part.h"' leftward
plant core/log/a.cc '#include "io-real/loop.h"' 'other folders'
plant core/log/a.cc '#include "tests/unit/helper.h"' 'other folders'
plant core/log/a.cc '#include <chrono>' 'no header of OS'
plant core/log/a.cc '#  include <sys/stat.h>' 'no header of OS'
plant core/log/a.cc '#include <spdlog/spdlog.h>' 'no header of OS'
plant core/log/a.cc '#include <cstdio>' prints
plant core/log/a.cc '#include <boost/context/fiber.hpp>' Boost.Context
plant core/log/a.cc '#include <roaring/roaring.h>' CRoaring
plant core/log/a.cc '#include <sodium.h>' libsodium
plant core/log/a.cc 'static int count = 0;' 'mutable static'
plant core/log/a.cc '    static std::vector<int> cache;' 'mutable static'
plant core/log/a.cc 'thread_local int depth;' 'mutable static'
plant core/log/a.cc 'int g_count = 0;' 'g_ prefix'
plant core/log/a.cc 'std::map<const Fiber*, int> by_fiber;' 'pointer as a key'
plant core/log/a.cc 'std::shuffle(a, b, c);' shuffle
plant core/log/a.cc 'throw Broken();' 'no throw'
plant core/log/a.cc 'try {' 'no throw'
plant core/log/a.cc '} catch (const std::exception&) {' 'no throw'
plant core/log/a.cc 'void close(Fiber& fiber) noexcept;' noexcept
plant core/log/a.cc 'std::uint64_t epoch = 0;' 'bare name'
plant core/log/a.cc 'std::uint64_t epoch_ = 0;' 'bare name'
plant io-sim/a.cc '#include "core/log/segment.h"' 'core/base and core/env only'
plant io-real/a.cc '#include "io-sim/world.h"' simulator
plant io-sim/a.cc '#include "nemesis/kill.h"' 'stands alone'
plant nemesis/a.cc '#include "sim/world.h"' 'io-sim only'
plant sim/a.cc '#include "io-real/loop.h"' 'real world'
plant tools/a.cc '#include "io-sim/world.h"' simulator
plant io-real/a.cc '#include "loop.h"' 'from the root'

output=$("$here/layers.sh" "$work/tree") && fail "layers.sh passes a tree full of violations"
for ((i = 0; i < ${#plants[@]}; i += 3)); do
    grep -F "${plants[i]}:1:" <<<"$output" | grep -qF -- "${plants[i + 2]}" ||
        fail "layers.sh does not report (${plants[i + 2]}) for ${plants[i + 1]}"
done

compile() {
    printf '%s\n' "$2" >"$work/$1.cc"
    "${CXX:-c++}" -std=c++20 -O1 -c "$work/$1.cc" -o "$work/$1.cc.o" || fail "does not compile: $2"
}
# impure SOURCE WORD: an archive member of its own each.
words=()
impure() {
    planted=$((planted + 1))
    compile "impure_${#words[@]}" "$1"
    words+=("$2")
}

compile pure '#include <map>
#include <string>
#include <vector>
std::string f(std::map<std::string, std::vector<int>>& m) { m["a"].push_back(1); return m.begin()->first + "b"; }'
ar rcs "$work/pure.a" "$work/pure.cc.o"
output=$("$here/core_is_pure.sh" "$work/pure.a" "$here/core_symbols.allow") || fail "core_is_pure.sh refuses containers: $output"
impure '#include <ctime>
long f() { return time(nullptr); }' time
impure '#include <chrono>
long f() { return std::chrono::steady_clock::now().time_since_epoch().count(); }' chrono
impure '#include <random>
unsigned f() { std::random_device d; return d(); }' random_device
impure '#include <cstdlib>
const char* f() { return getenv("HOME"); }' getenv
impure '#include <fstream>
bool f() { return std::ifstream("x").good(); }' basic_ifstream
impure '#include <unistd.h>
int f() { return close(3); }' close
impure '#include <mutex>
#include <pthread.h>
void f(std::mutex& m) { m.lock(); }' pthread_mutex_lock
impure 'extern "C" int roaring_new_kind_of_call(); int f() { return roaring_new_kind_of_call(); }' roaring
impure 'unsigned long long f() { return __builtin_ia32_rdtsc(); }' rdtsc
impure 'long f() { long r; asm volatile("syscall" : "=a"(r) : "a"(39) : "rcx", "r11", "memory"); return r; }' syscall

ar rcs "$work/impure.a" "$work"/impure_*.cc.o
output=$("$here/core_is_pure.sh" "$work/impure.a" "$here/core_symbols.allow") && fail "core_is_pure.sh passes an impure archive"
for i in "${!words[@]}"; do
    grep -q "impure_$i\.cc\.o.*${words[i]}" <<<"$output" || fail "core_is_pure.sh does not report ${words[i]}: $output"
done

if output=$("$here/core_links_alone.sh" /bin/sh 2>&1 </dev/null); then :; else fail "core_links_alone.sh refuses a program on libc alone: $output"; fi
printf '%s\n' 'int other() { return 0; }' >"$work/other.cc"
printf '%s\n' 'int other(); int main() { return other(); }' >"$work/uses.cc"
planted=$((planted + 1))
if "${CXX:-c++}" -shared -fPIC "$work/other.cc" -o "$work/libother.so" &&
    "${CXX:-c++}" "$work/uses.cc" -o "$work/uses" -L"$work" -lother -Wl,-rpath,"$work"; then
    output=$("$here/core_links_alone.sh" "$work/uses") && fail "core_links_alone.sh lets another library through"
    grep -q libother.so <<<"$output" || fail "core_links_alone.sh does not name libother.so: $output"
else
    fail "the program that uses another library does not build"
fi

echo "$planted violations planted, $failures not caught as they should"
[ "$failures" -eq 0 ]
