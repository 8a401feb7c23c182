#!/bin/bash
# determinism: one seed gives one trace hash: twice in a process, in two processes, and in other builds of the same sources.
set -euo pipefail

usage() {
    cat <<'TXT'
usage: determinism.sh [--seeds A..B] [--require-all] SOURCE_TREE SIM [OTHER_SIM]...

  Runs the seeds (default 1..3) with SIM twice and compares the trace hashes; then, with each OTHER_SIM that is newer than
  the sources, compares its hashes with those. --require-all makes it an error when an OTHER_SIM is missing or older.
  Exit 1 when hashes differ.

example:
  determinism.sh . build/bin/sim build-debug/bin/sim build-asan/bin/sim
TXT
}

seeds=1..3
require=no
while [ $# -gt 0 ]; do
    case "$1" in
        --seeds) seeds=${2:?--seeds needs A..B}; shift ;;
        --require-all) require=yes ;;
        -h | --help) usage; exit 0 ;;
        -*) usage >&2; exit 2 ;;
        *) break ;;
    esac
    shift
done
[ $# -ge 2 ] || { usage >&2; exit 2; }
source_tree=$1
sim=$2
shift 2
[ -x "$sim" ] || { echo "no program $sim" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$sim" --seed "${seeds%%.*}" --twice >"$work/twice" || { cat "$work/twice"; exit 1; }

# The runs of two processes share no address: their memory is laid out anew.
"$sim" hashes --seeds "$seeds" >"$work/first"
[ -s "$work/first" ] || { echo "no hashes"; exit 1; }
bad=0
compare() {
    "$2" hashes --seeds "$seeds" >"$work/other" || bad=1
    if diff "$work/first" "$work/other" >"$work/diff"; then
        echo "$(wc -l <"$work/first") seeds agree with $1"
    else
        echo "$1 gives other trace hashes:"
        cat "$work/diff"
        bad=1
    fi
}
compare "a second process" "$sim"
for other in "$@"; do
    why=
    if [ ! -x "$other" ]; then
        why="is not built"
    elif [ -n "$(find "$source_tree"/{core,io-sim,nemesis,sim} -name '*.[ch]*' -newer "$other" -print -quit)" ]; then
        why="is older than the sources"
    fi
    if [ -z "$why" ]; then
        compare "$other" "$other"
    else
        echo "not compared: $other $why"
        [ "$require" = no ] || bad=1
    fi
done
exit "$bad"
