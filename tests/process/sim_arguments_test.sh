#!/bin/bash
# sim_arguments: what the simulator cannot run is refused at once with exit 2; ranges end; an interrupted sweep tells what it did.
set -uo pipefail

usage() {
    echo "usage: sim_arguments_test.sh SIM"
    echo "example: sim_arguments_test.sh build/bin/sim"
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
sim=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
fail() {
    echo "FAILED: $1"
    tail -n 5 "$work/out"
    status=1
}
# ends CODE WORD ARGUMENT...
ends() {
    local wanted=$1 word=$2
    shift 2
    timeout 120 "$sim" "$@" >"$work/out" 2>&1 </dev/null
    local code=$?
    [ $code -eq "$wanted" ] || fail "sim $* ends with $code, not $wanted"
    grep -qF -- "$word" "$work/out" || fail "sim $* does not say '$word'"
}

ends 2 "1..64" --set partitions=99999999999
ends 2 "partitions=-1" --set partitions=-1
ends 2 "partition'" --set partition=1
ends 2 "-1" --seed=-1
ends 2 "18446744073709551616" --seed 18446744073709551616
ends 2 "A..B" sweep --seeds=-2..-1
ends 2 "A..B" sweep --seeds 1..18446744073709551615
ends 2 "A..B" hashes --seeds 2..1
ends 2 directory replay "$work"
ends 2 "cannot read" replay "$work/none.seed"
ends 2 "too long" replay /dev/zero
printf 'seed 1\nnemesis foo\n' >"$work/a.seed"
ends 2 "a.seed:2" replay "$work/a.seed"
printf 'seed 1\nseed 2\n' >"$work/a.seed"
ends 2 "a.seed:2" replay "$work/a.seed"

short="--set duration_s=1"
# shellcheck disable=SC2086
ends 0 "seeds 2 in" sweep --seeds 18446744073709551614..18446744073709551615 --jobs 1 $short
# shellcheck disable=SC2086
ends 0 18446744073709551615 hashes --seeds 18446744073709551615..18446744073709551615 $short
# shellcheck disable=SC2086
ends 0 "repeat: $sim --seed 1 --nemesis none --set duration_s=1" --seed 1 --nemesis none $short
timeout 60 "$sim" list >/dev/full 2>"$work/out"
code=$?
[ $code -eq 5 ] || fail "sim list > /dev/full ends with $code"

"$sim" sweep --seeds 1..100000 --jobs 1 --state "$work/state" >"$work/out" 2>&1 &
pid=$!
until [ -s "$work/state" ]; do
    kill -0 "$pid" 2>/dev/null || { fail "the sweep ended by itself"; break; }
    sleep 0.1
done
kill -TERM "$pid"
wait "$pid"
code=$?
[ $code -eq 143 ] || fail "an interrupted sweep ends with $code"
grep -q "^interrupted: [0-9]* of 100000 seeds were not run" "$work/out" || fail "an interrupted sweep does not say so"
grep -q "^seeds [1-9]" "$work/out" || fail "an interrupted sweep has no summary"
exit $status
