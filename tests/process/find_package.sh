#!/bin/bash
# find_package: installs the library to an empty prefix, builds the README's program against it, and runs that program
# without a broker (it says so) and with one (it publishes).
set -uo pipefail

usage() { echo "usage: find_package.sh BUILD_FOLDER"; }
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
bin=$build/bin
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
. "$(dirname "$0")/../../tools/round.sh"
trap 'stop_all; rm -rf "$work"' EXIT

fail() { echo "$1" >&2; exit 1; }

cmake --install "$build" --prefix "$work/prefix" --component library >"$work/install.log" 2>&1 ||
    { cat "$work/install.log"; fail "the library cannot be installed"; }

# block LANGUAGE: the first block of README.md in it.
block() { awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ { if (inside) exit } inside' "$root/README.md"; }

# What the README tells an application to write, with the warnings that applications use.
mkdir "$work/app"
{
    echo 'cmake_minimum_required(VERSION 3.25)'
    echo 'project(app LANGUAGES C CXX)'
    echo 'set(CMAKE_CXX_STANDARD 20)'
    echo 'add_executable(app main.cc)'
    echo 'target_compile_options(app PRIVATE -Wall -Wextra -Werror)'
    block cmake
} >"$work/app/CMakeLists.txt"
block cpp >"$work/app/main.cc"
grep -q find_package "$work/app/CMakeLists.txt" || fail "README.md shows no find_package"
write_config
sed -i "s/127\.0\.0\.1:7188/$addr/" "$work/app/main.cc"
grep -qF "$addr" "$work/app/main.cc" || fail "README.md shows no program that connects to a broker"
{ cmake -S "$work/app" -B "$work/app/build" -DCMAKE_PREFIX_PATH="$work/prefix" && cmake --build "$work/app/build"; } >"$work/app.log" 2>&1 ||
    { cat "$work/app.log"; fail "an application cannot be built against the installed package"; }

# Nothing of the sources may be needed, or have leaked.
grep -rqF "$(cd "$(dirname "$0")/../.." && pwd)" "$work/prefix/lib/cmake" "$work/prefix/lib/"*/cmake 2>/dev/null &&
    fail "the installed package points into the source tree"
grep -qE '^#include "|boost' "$work/prefix/include/mortarmq/client.h" && fail "the installed header needs more than the standard library"

app=$work/app/build/app
output=$(timeout 60 "$app")
status=$?
[ "$status" -eq 1 ] || fail "without a broker the application ended with $status: $output"
[[ $output == *"$addr"* ]] || fail "without a broker the application said: $output"

start_broker || fail "no broker"
output=$("$app") || fail "with a broker the application said: $output"
[[ $output =~ ^partition\ [0-3],\ sequence\ 1 && $output == *"customer-7: two apples" ]] || fail "with a broker the application said: $output"
echo "ok: $output"
