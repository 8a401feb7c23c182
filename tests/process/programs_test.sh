#!/bin/bash
# Every program: --help with examples, --version with its name, exit 2 on what it does not know; nothing is left behind.
set -uo pipefail

usage() {
    echo "usage: programs_test.sh PROGRAM ..."
    echo "example: programs_test.sh build/bin/mortarmqd build/bin/sim"
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -gt 0 ] || { usage >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
fail() {
    echo "$name: $1"
    sed 's/^/    /' "$folder/output"
    status=1
}
# Runs the program with arguments in an empty folder; output and exit code are kept.
attempt() {
    mkdir -p "$folder/work"
    (cd "$folder/work" && exec timeout 20 "$program" "$@") >"$folder/output" 2>&1 </dev/null
    code=$?
    [ -z "$(ls -A "$folder/work")" ] || fail "$* leaves files behind"
    rm -rf "$folder/work"
}

for program in "$@"; do
    program=$(realpath "$program")
    name=$(basename "$program")

    attempt --help
    [ $code -eq 0 ] || fail "--help ends with $code"
    grep -qi "^ *examples\?:" "$folder/output" || fail "--help shows no examples"
    grep -q -- "--version" "$folder/output" || fail "--help does not name --version"
    grep -q "$name" "$folder/output" || fail "--help does not name the program"

    attempt --version
    [ $code -eq 0 ] || fail "--version ends with $code"
    grep -Eq "^$name [0-9]+\.[0-9]+\.[0-9]+" "$folder/output" || fail "--version is not 'name x.y.z'"
    [ "$(wc -l <"$folder/output")" -eq 1 ] || fail "--version prints more than a line"

    attempt --no-such-option
    [ $code -eq 2 ] || fail "an unknown option ends with $code, not 2"
    [ -s "$folder/output" ] || fail "an unknown option is refused without a word"
done
exit $status
