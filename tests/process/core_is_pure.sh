#!/bin/bash
# core_is_pure: what the core archive takes from outside is on the allow list, and no instruction in it asks the
# processor for time or randomness or enters the kernel. Run it on an uninstrumented build: sanitizers add symbols.
set -euo pipefail

usage() {
    echo "usage: core_is_pure.sh ARCHIVE ALLOW_FILE"
    echo "Prints each symbol or instruction of the archive that the allow list does not cover; exit 1 when there is one."
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 2 ] || { usage >&2; exit 2; }
archive=$1
allow=$2
[ -r "$archive" ] && [ -r "$allow" ] || { echo "cannot read $archive or $allow" >&2; exit 2; }

defined=$(mktemp)
trap 'rm -f "$defined"' EXIT
# With -A each line starts with archive:member:. Weak undefined symbols (w, v) count as well.
nm -A --defined-only "$archive" 2>/dev/null | awk '{print $NF}' | sort -u >"$defined"

bad=$(nm -A -u "$archive" 2>/dev/null |
    awk -v allow="$allow" -v defined="$defined" '
        BEGIN {
            while ((getline line < defined) > 0) own[line] = 1
            while ((getline line < allow) > 0) {
                if (line ~ /^[[:space:]]*(#|$)/) continue
                if (split(line, part, " ") == 3 && part[1] == "only") {
                    object[++count] = "^(" part[2] ")$"; pattern[count] = "^(" part[3] ")$"
                } else if (line ~ / /) {
                    print allow ": not a rule: " line; exit
                } else {
                    object[++count] = "."; pattern[count] = "^(" line ")$"
                }
            }
        }
        {
            symbol = $NF; member = $1
            sub(/@.*/, "", symbol)
            sub(/:$/, "", member); sub(/.*:/, "", member)
            if (symbol in own) next
            checked++
            for (i = 1; i <= count; ++i) if (member ~ object[i] && symbol ~ pattern[i]) next
            print member ": " symbol
        }
        END { if (checked == 0) print "no undefined symbol was seen at all: is this an archive?" }' | sort -u)

instructions=$(objdump -d --no-show-raw-insn "$archive" |
    awk '/file format/ { member = $1 } /\t(rdtscp?|rdrand|rdseed|rdpid|syscall|sysenter|cpuid)([[:space:]]|$)/ { print member " " $0 }')

if [ -n "$bad$instructions" ]; then
    echo "core may not reach the world but through core/env:"
    [ -z "$bad" ] || printf '%s\n' "$bad" | c++filt
    [ -z "$instructions" ] || printf '%s\n' "$instructions"
    exit 1
fi
