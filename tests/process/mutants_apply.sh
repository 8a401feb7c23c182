#!/bin/bash
# mutants_apply: every patch of tests/mutants still fits the tree, changes one source file, and says what it plants.
set -euo pipefail

usage() {
    echo "usage: mutants_apply.sh SOURCE_TREE"
    echo "Prints each patch of tests/mutants that is no mutant any more; exit 1 when there is one."
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] && [ -d "$1/tests/mutants" ] || { usage >&2; exit 2; }
cd "$1"
bad=0
count=0
for patch in tests/mutants/*.patch; do
    count=$((count + 1))
    why=
    grep -q '^Plants: .' "$patch" || why="no line 'Plants: '"
    grep -qE '^Caught by: (sweep [0-9]|crashpoints|unit .)' "$patch" || why="no line 'Caught by: ' with a catcher"
    [ "$(grep -c '^+++ ' "$patch")" = 1 ] || why="it changes more than one file"
    patch -p1 --fuzz=0 --dry-run -s -f -i "$patch" >/dev/null 2>&1 || why="it does not apply"
    [ -z "$why" ] || { echo "$patch: $why"; bad=1; }
done
[ "$count" -gt 0 ] || { echo "no mutants"; exit 1; }
exit "$bad"
