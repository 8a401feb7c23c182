#!/bin/bash
# round_verify: the comparison behind quickstart and killround must fire for every kind of violation, and only then.
set -uo pipefail
[ "${1:-}" = --help ] && { echo "usage: round_verify.sh"; exit 0; }
work=$(mktemp -d)
bin=/nowhere
. "$(dirname "$0")/../../tools/round.sh"
trap 'rm -rf "$work"' EXIT
bad=0

# expect STATUS NAME ACKS CONSUMED: columns are separated by blanks here and by tabs in the files.
expect() {
    local wanted=$1 name=$2 output status
    printf '%b' "$3" | tr ' ' '\t' >"$work/t.acks"
    printf '%b' "$4" | tr ' ' '\t' >"$work/t.consumed"
    output=$(verify t "$work/lines")
    status=$?
    [ "$status" -eq "$wanted" ] || { echo "$name: status $status instead of $wanted: $output"; bad=1; }
}

printf '%s\n' a b 1 1.0 >"$work/lines"
acks='0 1 1\n0 2 2\n0 3 3\n0 4 4\n'
expect 0 "all is well" "$acks" '1 a\n2 b\n3 1\n4 1.0\n'
expect 1 "missing" "$acks" '1 a\n2 b\n4 1.0\n'
expect 1 "altered" "$acks" '1 a\n2 x\n3 1\n4 1.0\n'
expect 1 "altered, but equal as a number" "$acks" '1 a\n2 b\n3 1.0\n4 1\n'
expect 1 "cut short" "$acks" '1 a\n2 \n3 1\n4 1.0\n'
expect 1 "twice" "$acks" '1 a\n2 b\n2 b\n3 1\n4 1.0\n'
expect 1 "out of order" "$acks" '2 b\n1 a\n3 1\n4 1.0\n'
expect 1 "stored twice" "$acks" '1 a\n2 b\n3 1\n4 1.0\n5 1.0\n'
expect 1 "stored in another order" '0 2 1\n0 1 2\n0 3 3\n0 4 4\n' '1 b\n2 a\n3 1\n4 1.0\n'
expect 1 "acknowledged twice" '0 1 1\n0 2 1\n' '1 a\n2 a\n'
expect 1 "nothing acknowledged" '' ''
exit $bad
