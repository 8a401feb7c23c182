#!/bin/bash
# layers: what the style guide forbids and a text search can see. Each finding is printed as file:line: text (rule).
set -uo pipefail

usage() {
    echo "usage: layers.sh SOURCE_ROOT"
    echo "Checks includes, bans and statics of core/ and the directions between the folders; exit 1 on a finding."
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
cd "$1" || exit 2
[ -d core ] || { echo "no core/ in $1" >&2; exit 2; }

status=0
# Reads findings (file:line:text) and prints them with the rule.
report() {
    local rule=$1 line
    while IFS= read -r line; do
        printf '%s  (%s)\n' "$line" "$rule"
        status=1
    done
}
files_in() {
    local found=()
    for folder in "$@"; do [ -d "$folder" ] && found+=("$folder"); done
    [ ${#found[@]} -eq 0 ] || find "${found[@]}" -name '*.h' -o -name '*.cc' -o -name '*.def' | LC_ALL=C sort
}
# file:line:text of all code lines, comments and string contents left out, so that words in them do not count.
code_of() {
    awk '
        FNR == 1 { block = 0 }
        {
            text = $0
            if (text !~ /^[[:space:]]*#[[:space:]]*include/) gsub(/"([^"\\]|\\.)*"/, "\"\"", text)
            sub(/\/\/.*/, "", text)
            while (1) {
                if (block) {
                    end = index(text, "*/")
                    if (end == 0) { text = ""; break }
                    text = substr(text, end + 2); block = 0
                }
                start = index(text, "/*")
                if (start == 0) break
                rest = substr(text, start + 2)
                text = substr(text, 1, start - 1)
                end = index(rest, "*/")
                if (end == 0) { block = 1; break }
                text = text " " substr(rest, end + 2)
            }
            if (text !~ /^[[:space:]]*$/) print FILENAME ":" FNR ":" text
        }' /dev/null "$@"
}

core=$(files_in core)
# shellcheck disable=SC2086
core_code=$(code_of $core)

# 1. Order in core: a part includes only itself and parts left of it.
report "core parts include only leftward" < <(printf '%s\n' "$core_code" | awk '
    BEGIN {
        count = split("base env fiber wire log replica meta produce group deliver session admin broker", name, " ")
        for (i = 1; i <= count; ++i) rank[name[i]] = i
        rank["client"] = rank["wire"] + 0.5
    }
    /#[[:space:]]*include[[:space:]]*"core\// {
        split($0, half, ":"); from = half[1]
        sub(/^core\//, "", from); file = from; sub(/[\/.].*/, "", from)
        to = $0; sub(/.*"core\//, "", to); target = to; sub(/[\/.].*/, "", to)
        if (from == to) next
        if (from == "mqtt") {
            # The portable packet and client layers see nothing of ours.
            if (file ~ /^mqtt\/(packet|client)[._]/) print
            next
        }
        if (to == "mqtt" || !(from in rank) || !(to in rank)) { print; next }
        if (rank[to] > rank[from]) print
        # What is to the right of wire does not use the client library, nor the library the broker.
        if (to == "client") print
    }')

# 2. core meets the world in core/env only.
report "core includes nothing of the other folders" < <(printf '%s\n' "$core_code" |
    grep -E '#[[:space:]]*include[[:space:]]*["<](io-real|io-sim|nemesis|sim|tools|tests)/')
report "core includes no header of OS, clock, thread, lock, random, streams, files, or spdlog" < <(
    printf '%s\n' "$core_code" | grep -E '#[[:space:]]*include[[:space:]]*[<"](sys/|linux/|arpa/|net/|netinet/|netdb|unistd|fcntl|poll|dirent|dlfcn|signal|csignal|pthread|semaphore|sched|spawn|ifaddrs|syslog|termios|time\.h|ctime|chrono|thread|mutex|shared_mutex|condition_variable|future|latch|barrier|stop_token|atomic|random|iostream|istream|ostream|sstream|fstream|iomanip|syncstream|filesystem|stdio\.h|locale|clocale|regex|spdlog|CLI|boost/asio|fmt/(os|ostream|chrono)\.h)')
report "only base/assert.cc prints" < <(printf '%s\n' "$core_code" | grep -v '^core/base/assert\.cc:' |
    grep -E '#[[:space:]]*include[[:space:]]*<cstdio>')

# 4. One file a package.
report "Boost.Context is for env/fiber.cc" < <(printf '%s\n' "$core_code" | grep -v '^core/env/fiber\.cc:' |
    grep -E '#[[:space:]]*include[[:space:]]*<boost/context')
report "CRoaring is for deliver/cursor.cc" < <(printf '%s\n' "$core_code" | grep -v '^core/deliver/cursor\.cc:' |
    grep -E '#[[:space:]]*include[[:space:]]*[<"](roaring|croaring)')
report "libsodium and ISA-L are for base/hash.cc" < <(printf '%s\n' "$core_code" | grep -v '^core/base/hash\.cc:' |
    grep -E '#[[:space:]]*include[[:space:]]*[<"](sodium|isa-l|crc)')

# 5. No state outside objects: namespace and function statics that can change, thread_local.
report "no mutable static, no thread_local" < <(printf '%s\n' "$core_code" |
    grep -vE '^core/(base/assert|env/fiber)\.(h|cc):' |
    grep -E '\bthread_local\b|^[^:]+:[0-9]+:[[:space:]]*(inline[[:space:]]+)?static[[:space:]]+[A-Za-z_:][A-Za-z0-9_:<>,*& ]*[[:space:]*&][A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?[[:space:]]*(=|\{|;)' |
    grep -vE '\bstatic[[:space:]]+(inline[[:space:]]+)?(const|constexpr|consteval|constinit const)\b')
report "a name at namespace level that can change (g_ prefix)" < <(printf '%s\n' "$core_code" |
    grep -vE '^core/(base/assert|env/fiber)\.(h|cc):' | grep -E '\bg_[a-z]')
report "no pointer as a key or in an order" < <(printf '%s\n' "$core_code" |
    grep -E '\b(unordered_)?(multi)?(map|set)<[[:space:]]*(const[[:space:]]+)?[A-Za-z_:]+[[:space:]]*\*')
report "no library distribution or shuffle: Rng draws are ours" < <(printf '%s\n' "$core_code" |
    grep -E '\b(std::)?(shuffle|sample|[a-z]+_distribution|mt19937(_64)?|random_device)\b')

# Errors are values.
report "no throw, try, catch outside env/fiber.cc" < <(printf '%s\n' "$core_code" | grep -v '^core/env/fiber\.cc:' |
    grep -E '(^|[^A-Za-z0-9_])(throw|try|catch)[[:space:]]*(\(|\{|;|[A-Z])')
report "noexcept and Fiber& do not go together: a kill unwinds through" < <(printf '%s\n' "$core_code" |
    grep -E 'Fiber[[:space:]]*&.*\bnoexcept\b')

# Six epochs, six types: the bare name says nothing. Member access and named arguments count too.
report "the bare name epoch is banned" < <(printf '%s\n' "$core_code" | grep -E '\bepoch_?\b')

# 6. The two worlds see core/env and what it stands on; they do not see each other. io-real/client.cc is the
# applications' wrapper over the client library (design 2).
report "io-real and io-sim include core/base and core/env only" < <(
    # shellcheck disable=SC2046
    code_of $(files_in io-real io-sim) | grep -v '^io-real/client\.cc:' | grep -E '#[[:space:]]*include[[:space:]]*"core/' |
        grep -vE '"core/(base|env)/')
report "io-real does not see the simulator" < <(
    # shellcheck disable=SC2046
    code_of $(files_in io-real) | grep -E '#[[:space:]]*include[[:space:]]*"(io-sim|nemesis|sim|tools|tests)/')
report "io-sim stands alone" < <(
    # shellcheck disable=SC2046
    code_of $(files_in io-sim) | grep -E '#[[:space:]]*include[[:space:]]*"(io-real|nemesis|sim|tools|tests)/')
report "nemesis drives io-sim only" < <(
    # shellcheck disable=SC2046
    code_of $(files_in nemesis) | grep -E '#[[:space:]]*include[[:space:]]*"(io-real|sim|tools|tests)/')
report "sim does not see the real world" < <(
    # shellcheck disable=SC2046
    code_of $(files_in sim) | grep -E '#[[:space:]]*include[[:space:]]*"(io-real|tools|tests)/')
report "tools do not see the simulator" < <(
    # shellcheck disable=SC2046
    code_of $(files_in tools) | grep -E '#[[:space:]]*include[[:space:]]*"(io-sim|nemesis|sim|tests)/')
report "includes are written from the root" < <(
    # shellcheck disable=SC2046
    code_of $(files_in core io-real io-sim nemesis sim tools) |
        grep -E '#[[:space:]]*include[[:space:]]*"' | grep -vE '"(core|io-real|io-sim|nemesis|sim|tools|tests)/')

exit "$status"
