#!/bin/bash
# broker_arguments: mortarmqd refuses what it cannot use with a word about it, checks what a start would check, leaves no
# trace of a refused start, and tells where its data is.
set -uo pipefail

usage() {
    echo "usage: broker_arguments_test.sh BIN_FOLDER"
    echo "example: broker_arguments_test.sh build/bin"
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
bin=$(realpath "$1")
tools=$(realpath "$(dirname "$0")/../../tools")
work=$(mktemp -d)
. "$tools/round.sh"
trap 'stop_all; rm -rf "$work"' EXIT
cd "$work" || exit 3
status=0
fail() {
    echo "FAILED: $1"
    tail -n 5 "$work/out"
    status=1
}
# refused CODE WORD ARGUMENT...
refused() {
    local wanted=$1 word=$2
    shift 2
    timeout 60 "$bin/mortarmqd" "$@" >"$work/out" 2>&1 </dev/null
    code=$?
    [ $code -eq "$wanted" ] || fail "mortarmqd $* ends with $code, not $wanted"
    grep -qF -- "$word" "$work/out" || fail "mortarmqd $* does not say '$word'"
}
tree() {
    (cd "$work/data" && find . -type f -exec sha256sum {} + | LC_ALL=C sort)
}

refused 2 directory --config "$work"
refused 2 "longer than" --config /dev/zero
refused 2 "cannot read" --config "$work/no-such-file"
touch file
refused 3 "it is a file" --dev --data-dir file
refused 3 "it is a file" --dev --data-dir file --check-config
timeout 60 "$bin/mortarmqd" --print-default-config >/dev/full 2>"$work/out"
code=$?
[ $code -eq 3 ] || fail "--print-default-config > /dev/full ends with $code"

# The same is refused whether it is only checked or started.
"$bin/mortarmqd" --print-default-config >open.json
refused 2 "clients need no token" --config open.json --check-config
refused 2 "clients need no token" --config open.json
[ ! -e data ] || fail "a refused start made its data_dir"

write_config
sed -i "s#\"data_dir\": \"[^\"]*\"#\"data_dir\": \"data\"#; s/\"warn\"/\"info\"/" broker.json
refused 0 '"data_dir"' --config broker.json --check-config
[ ! -e data ] || fail "a check made the data_dir"
start_broker || exit 3
until grep -q ' ready ' broker.out; do sleep 0.05; done
grep ' ready ' broker.out | grep -q "data=$work/data.* version=" || fail "ready does not tell the data_dir and the version"
[ "$(cat data/LOCK)" = "$broker_pid" ] || fail "LOCK does not tell who holds it"
exec 4<>"/dev/tcp/127.0.0.1/${addr##*:}"
kill -TERM "$broker_pid"
while kill -0 "$broker_pid" 2>/dev/null; do sleep 0.05; done
exec 4>&-
grep -q 'stopping.* clients=1' broker.out || fail "a stop does not tell how many clients there were: $(cat broker.out)"

before=$(tree)
sed 's/{/{"node_id": 3, /' broker.json >other.json
refused 2 "belongs to node 0" --config other.json --check-config
refused 2 "belongs to node 0" --config other.json
[ "$before" = "$(tree)" ] || fail "a start that was refused changed the folder"

cp -r data kept
printf '\x63' | dd of=data/replica/state bs=1 seek=20 conv=notrunc status=none
before=$(tree)
refused 4 "backup" --config broker.json
[ "$before" = "$(tree)" ] || fail "a start on a damaged file changed the folder"
rm -rf data && cp -r kept data
echo nonsense >data/identity
before=$(tree)
refused 4 "backup" --config broker.json
[ "$before" = "$(tree)" ] || fail "a start with a damaged identity changed the folder"
rm -rf data && mv kept data

# Closed standard files do not become files of data.
"$bin/mortarmqd" --config broker.json <&- >&- 2>&- &
broker_pid=$!
disown "$broker_pid"
until (exec 3<>"/dev/tcp/127.0.0.1/${addr##*:}") 2>/dev/null; do
    kill -0 "$broker_pid" 2>/dev/null || { fail "the broker does not run without standard files"; break; }
    sleep 0.05
done
for fd in 0 1 2; do
    [ "$(readlink "/proc/$broker_pid/fd/$fd")" = /dev/null ] || fail "descriptor $fd is $(readlink "/proc/$broker_pid/fd/$fd")"
done
exit $status
