#!/bin/bash
# readme: every command that README.md shows is run here, or named here with the test that runs it.
set -uo pipefail

usage() { echo "usage: readme.sh BUILD_FOLDER"; }
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$build/bin

# Its ports are those that everybody's --dev broker has: a network of our own, where the system lets us have one.
if [ -z "${README_ALONE:-}" ] && unshare -rn ip link set lo up 2>/dev/null; then
    README_ALONE=1 exec unshare -rn bash -c 'ip link set lo up && exec "$0" "$@"' "$0" "$@"
fi

work=$(mktemp -d)
broker=
trap 'tools/cluster down >/dev/null 2>&1; [ -z "$broker" ] || kill -9 "$broker" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 3
ln -s "$root/tools" tools
ln -s "$root/tests" tests
mkdir build && ln -s "$bin" build/bin
fail() { echo "$1" >&2; [ ! -s "$work/output" ] || tail -n 5 "$work/output" >&2; exit 1; }

commands=$(awk '/^```/ { open = !open; shell = open && $0 == "```"; next } shell' "$root/README.md")
count=0
while IFS= read -r line; do
    [ -n "$line" ] || continue
    count=$((count + 1))
    case "$line" in
        tools/test) ;;                       # runs this
        tools/deps | "cmake --preset release") ;;  # tools/test begins with them
        "cmake --build --preset release --target programs")
            cmake --build "$build" --target programs -- -n >"$work/output" 2>&1 || fail "there is no target programs" ;;
        "cmake --install build "*) ;;        # process.find_package
        tools/quickstart)
            MORTAR_BIN=$bin tools/quickstart >"$work/output" 2>&1 || fail "$line" ;;
        "build/bin/mortarmqd --dev")
            build/bin/mortarmqd --dev >"$work/broker.out" 2>&1 &
            broker=$!
            for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/7188) 2>/dev/null && break; sleep 0.1; done ;;
        "tools/cluster "*)
            MORTAR_BIN=$bin timeout 300 bash -c "$line" >"$work/output" 2>&1 || fail "$line" ;;
        build/bin/* | printf\ * | "tools/mutants --list")
            timeout 300 bash -c "$line" >"$work/output" 2>&1 || fail "$line" ;;
        *) fail "no test runs this command of README.md: $line" ;;
    esac
    case "$line" in
        *"consume orders"*) [ "$(sort "$work/output" | grep -cE 'one|two|three')" -eq 3 ] || fail "$line: not the three lines" ;;
        *"consume events"*) [ "$(sort "$work/output" | grep -cE 'one|two|three')" -eq 3 ] || fail "$line: not the three lines" ;;
        *"tools/cluster status"*) grep -q ' leader ' "$work/output" || fail "$line: nobody leads" ;;
        *"topics list"*) grep -q orders "$work/output" || fail "$line: no orders" ;;
    esac
done <<<"$commands"
[ "$count" -ge 15 ] || fail "README.md shows $count commands only"
kill "$broker" && while kill -0 "$broker" 2>/dev/null; do sleep 0.05; done
broker=
echo "ok: $count commands"
