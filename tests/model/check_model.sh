#!/usr/bin/env bash
# Searches every state of a model with spin. Without a guard the search must find a state that breaks the property named;
# with all guards it must find none, and must have used every step of the model.
set -euo pipefail

usage="usage: check_model.sh MODEL.pml [NO_GUARD leader_of|held_ticks|committed]"
[ $# -eq 1 ] || [ $# -eq 3 ] || { echo "$usage" >&2; exit 2; }
command -v spin >/dev/null || { echo "SKIPPED: spin is not installed; tools/deps installs it"; exit 77; }
model=$(realpath "$1")
guard=${2:-}
property=${3:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
spin ${guard:+-D"$guard"} -a "$model"
# Only assertions matter: NOREDUCE because one process has no order to reduce.
"${CC:-cc}" -O2 -w -DSAFETY -DNOREDUCE -DMEMLIM=4000 -o pan pan.c
./pan -m100000 -w24 >report

fail() {
    echo "FAILED: $1"
    cat report
    exit 1
}

if [ -z "$guard" ]; then
    grep -q 'errors: 0' report || fail "the model breaks a property"
    ! grep -qE 'Search not completed|max search depth too small|out of memory' report || fail "the search did not end"
    # All but the end, which it never comes to.
    grep -q '(1 of [0-9]* states)' report || fail "a step of the model was never taken"
    grep -E 'states, stored|elapsed time' report
    exit 0
fi
grep -q 'errors: 1' report || fail "nothing breaks without the guard: it proves nothing"
grep -qE "assertion violated .*$property" report || fail "it broke another property than $property"
grep 'assertion violated' report
