#!/bin/bash
# find_package: installs the library to an empty prefix, builds a ten-line program against it, and runs that program
# without a broker (it says so) and with one (it publishes).
set -uo pipefail

usage() { echo "usage: find_package.sh BUILD_FOLDER"; }
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
bin=$build/bin
work=$(mktemp -d)
. "$(dirname "$0")/../../tools/round.sh"
trap 'stop_all; rm -rf "$work"' EXIT

fail() { echo "$1" >&2; exit 1; }

cmake --install "$build" --prefix "$work/prefix" --component library >"$work/install.log" 2>&1 ||
    { cat "$work/install.log"; fail "the library cannot be installed"; }

mkdir "$work/app"
cat >"$work/app/CMakeLists.txt" <<'TXT'
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(mortarmq REQUIRED)
add_executable(app main.cc)
target_link_libraries(app PRIVATE mortarmq::mortarmq)
target_compile_options(app PRIVATE -Wall -Wextra -Werror)
TXT
cat >"$work/app/main.cc" <<'TXT'
#include <cstdio>
#include <mortarmq/client.h>
int main(int, char** argv) {
    auto client = mortarmq::Client::connect({.addresses = {argv[1]}});
    std::printf("mortarmq %s: %s\n", mortarmq::version().c_str(), client.ok() ? "connected" : client.error().text.c_str());
    if (!client.ok() || !client->create_topic("orders", 1).ok()) return 3;
    auto receipt = client->publish("orders", "key", "value");
    std::printf("sequence %d\n", receipt.ok() ? static_cast<int>(receipt->sequence) : -1);
    auto consumer = client->subscribe({.topic = "orders", .group = "app"});
    auto message = consumer.poll(std::chrono::seconds(10));
    if (message.ok()) consumer.ack(*message);
    return receipt.ok() && message.ok() ? 0 : 4;
}
TXT
{ cmake -S "$work/app" -B "$work/app/build" -DCMAKE_PREFIX_PATH="$work/prefix" && cmake --build "$work/app/build"; } >"$work/app.log" 2>&1 ||
    { cat "$work/app.log"; fail "an application cannot be built against the installed package"; }

# Nothing of the sources may be needed, or have leaked.
grep -rqF "$(cd "$(dirname "$0")/../.." && pwd)" "$work/prefix/lib/cmake" "$work/prefix/lib/"*/cmake 2>/dev/null &&
    fail "the installed package points into the source tree"
grep -qE '^#include "|boost' "$work/prefix/include/mortarmq/client.h" && fail "the installed header needs more than the standard library"

app=$work/app/build/app
output=$("$app" 127.0.0.1:1)
status=$?
[ "$status" -eq 3 ] || fail "without a broker the application ended with $status: $output"
[[ $output == mortarmq\ [0-9]*"127.0.0.1:1"* ]] || fail "without a broker the application said: $output"

write_config
start_broker || fail "no broker"
output=$("$app" "$addr") || fail "with a broker the application said: $output"
[[ $output == *"sequence 1" ]] || fail "with a broker the application said: $output"
echo "ok: $output"
