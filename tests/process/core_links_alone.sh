#!/bin/bash
# core_links_alone: the program that holds the whole core runs and needs no library but those that core may use.
set -euo pipefail

usage() {
    echo "usage: core_links_alone.sh PROGRAM"
    echo "Runs the program; exit 1 when it fails or needs a shared library that is not named here."
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }

"$1"
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "cannot see which libraries $1 needs"; exit 1; }
bad=$(grep -vE '^(lib(fmt|roaring|boost_context|isal|sodium|stdc\+\+|gcc_s|m|c|asan|ubsan)|ld-linux-[a-z0-9-]+)\.so' <<<"$needed" || true)
if [ -n "$bad" ]; then
    echo "core needs libraries that it may not use:"
    printf '%s\n' "$bad"
    exit 1
fi
