#!/bin/bash
# cli: mortarmq against a real broker: nothing that was not printed is acknowledged, and every mistake is named.
set -uo pipefail

usage() {
    echo "usage: cli_test.sh BIN_FOLDER"
    echo "example: cli_test.sh build/bin"
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
bin=$(realpath "$1")
work=$(mktemp -d)
. "$(dirname "$0")/../../tools/round.sh"
trap 'stop_all; rm -rf "$work"' EXIT
status=0
fail() {
    echo "FAILED: $1"
    [ -f "$work/out" ] && sed 's/^/    out: /' "$work/out" | head -n 5
    [ -f "$work/err" ] && sed 's/^/    err: /' "$work/err" | head -n 5
    status=1
}
# attempt ARGUMENT...: mortarmq with them; out, err and code are kept.
attempt() {
    timeout 60 "$bin/mortarmq" --addr "$addr" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
}
# refused WORD ARGUMENT...: exit 2 at once, and WORD in the message.
refused() {
    local word=$1
    shift
    attempt "$@"
    [ $code -eq 2 ] || fail "mortarmq $* ends with $code, not 2"
    grep -qF -- "$word" "$work/err" || fail "mortarmq $* does not say '$word'"
    grep -q '^mortarmq: ' "$work/err" || fail "mortarmq $* does not begin with its name"
}
topic() {
    attempt topics create "$1" --partitions 1
    [ $code -eq 0 ] || fail "topics create $1 ends with $code"
    "$bin/mortarmq" --addr "$addr" produce "$1" "$2" 2>"$work/err" || fail "produce $1"
}

write_config
start_broker || exit 3
seq 1 3 >"$work/three"
seq 1 500 >"$work/many"

# What the output did not take stays with the group.
topic full "$work/three"
timeout 60 "$bin/mortarmq" --addr "$addr" consume full --group g --count 3 >/dev/full 2>"$work/err"
code=$?
[ $code -eq 2 ] || fail "consume > /dev/full ends with $code"
grep -q "not acknowledged" "$work/err" || fail "consume > /dev/full does not say what is not acknowledged"
timeout 60 "$bin/mortarmq" --addr "$addr" consume full --group g --count 3 2>"$work/err" >&-
code=$?
[ $code -eq 2 ] || fail "consume >&- ends with $code"
attempt consume full --group g --count 3
[ $code -eq 0 ] || fail "consume after a lost output ends with $code"
cmp -s "$work/out" "$work/three" || fail "messages that were not printed are gone"

# Whoever is killed has acknowledged only what it printed. Messages trickle in, so that no buffer fills.
attempt topics create trickle --partitions 1
while read -r line; do echo "$line"; sleep 0.005; done <"$work/many" |
    "$bin/mortarmq" --addr "$addr" produce trickle 2>/dev/null &
trickle_pid=$!
: >"$work/before"
for round in 1 2 3; do
    "$bin/mortarmq" --addr "$addr" consume trickle --group trickle >>"$work/before" 2>/dev/null &
    consumer_pid=$!
    disown "$consumer_pid"
    wanted=$((round * 100))
    until [ "$(wc -l <"$work/before")" -ge "$wanted" ]; do
        kill -0 "$consumer_pid" 2>/dev/null || { fail "the consumer ended by itself"; break; }
        sleep 0.02
    done
    kill -9 "$consumer_pid" 2>/dev/null
done
wait "$trickle_pid"
attempt consume trickle --group trickle --timeout 3
sort -n -u "$work/before" "$work/out" | cmp -s - "$work/many" ||
    fail "a killed consumer lost messages: $(sort -n -u "$work/before" "$work/out" | wc -l) of 500 were printed"

# Hopeless before the first connection.
refused zzz --addr zzz topics create t
refused 99999 --addr 127.0.0.1:99999 consume full --group g
refused nowhere --addr 127.0.0.1:1,nowhere topics create t
timeout 60 "$bin/mortarmq" --addr , topics create t >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q -- "--addr names no address" "$work/err" || fail "an empty list of addresses is accepted"
refused nowhere --admin nowhere topics list
refused nowhere --admin nowhere leader get
refused "mortarmq leader knows: get" leader set
refused "mortarmq broker knows: status" broker stop
refused "takes no 'now'" leader get now
refused "takes no 'now'" broker status now
refused directory --token-file "$work" topics create t
refused "not a terminal" topics delete full
refused "cannot read" produce full "$work/no-such-file"
grep -q "published 0" "$work/err" && fail "a missing file gets a summary"
refused "unknown command 'topic'" topic
grep -q "topics, produce, consume" "$work/err" || fail "an unknown command does not list the known ones"
refused "unknown command 'lsit'" topics lsit
grep -q "create, delete, list" "$work/err" || fail "an unknown topics command does not list the known ones"
refused "--groop" consume full --groop g
refused "unknown command 'nonsense'" nonsense --help
refused -1 consume full --group g --count -1
for format in %z % 'x%' '\q' '\'; do refused "%v value" consume full --group g --format "$format"; done
attempt consume --help
[ $code -eq 0 ] || fail "consume --help ends with $code"
grep -q "^ *mortarmq consume" "$work/out" || fail "consume --help has no example of its own"
grep -q "mortarmq topics" "$work/out" && fail "consume --help shows the examples of another command"

# A bad line ends the reading, not what is under way.
{ printf 'a:1\nb:2\n'; printf '%0300d:3\n' 0; printf 'c:4\n'; } >"$work/keys"
attempt topics create keys --partitions 1
refused "line 3" produce keys --key-sep : "$work/keys"
grep -q "published 2 of 3 lines" "$work/err" || fail "no summary after a bad line"
grep -q CANCELLED "$work/err" && fail "lines before a bad one are cancelled"
printf 'a:1\nplain\n' >"$work/keys"
attempt produce keys --key-sep : "$work/keys"
[ $code -eq 0 ] || fail "produce of a line without a separator ends with $code"
grep -q "1 lines have no separator.*line 2" "$work/err" || fail "a line without a separator is not told"
refused "acknowledged lines are missing" produce keys "$work/three" --ack-log /dev/full

# Listing.
attempt --admin "$admin" topics list
grep -q "^full	" "$work/out" || fail "topics list lacks a topic"
grep -q "\.dlq" "$work/out" && fail "topics list shows topics of dead letters unasked"
attempt --admin "$admin" topics list --all
grep -q "^full.dlq	" "$work/out" || fail "topics list --all hides topics of dead letters"
timeout 60 "$bin/mortarmq" --addr "$addr" --admin "$admin" topics list >/dev/full 2>"$work/err"
code=$?
[ $code -eq 2 ] || fail "topics list > /dev/full ends with $code"
script -qec "$bin/mortarmq --addr $addr --admin $admin topics list" /dev/null </dev/null >"$work/out" 2>&1
grep -q "^name	partitions	state	created_epoch" "$work/out" || fail "topics list has no headings on a terminal"

# One node: it leads, and is its own quorum.
attempt --admin "$admin" leader get
[ $code -eq 0 ] && grep -qE '^0	[0-9]+	0$' "$work/out" || fail "leader get"
attempt --admin "$admin" leader get --json
grep -qE '^\{"leader_id":0,"leader_epoch":[0-9]+,"quorum_state":0\}$' "$work/out" || fail "leader get --json"
attempt --admin "$admin" broker status
[ $code -eq 0 ] && grep -qE '^0	[0-9]+	[0-9]+	[0-9.]+$' "$work/out" || fail "broker status"
attempt --admin "$admin" broker status --json
grep -qE '^\{"node_id":0,"uptime_s":[0-9]+,"connections":[0-9]+,"version":"[0-9.]+"\}$' "$work/out" || fail "broker status --json"
attempt --admin 127.0.0.1:1 leader get
[ $code -eq 3 ] && grep -q "127.0.0.1:1" "$work/err" || fail "leader get from nobody ends with $code"
timeout 60 "$bin/mortarmq" --admin "$admin" broker status >/dev/full 2>"$work/err"
[ $? -eq 2 ] || fail "broker status > /dev/full does not end with 2"

# Of a list of addresses any that works is enough, however it is given.
for list in "127.0.0.1:1,$addr" "$addr, 127.0.0.1:1"; do
    echo one | timeout 60 "$bin/mortarmq" --addr "$list" produce full 2>"$work/err" || fail "produce --addr '$list'"
done
echo one | timeout 60 "$bin/mortarmq" --addr 127.0.0.1:1 --addr "$addr" produce full 2>"$work/err" || fail "produce with --addr twice"
echo one | MORTARMQ_ADDR="127.0.0.1:1,$addr" timeout 60 "$bin/mortarmq" produce full 2>"$work/err" || fail "produce with MORTARMQ_ADDR"

# The broker goes and comes, and the consumer tells it.
"$bin/mortarmq" --addr "$addr" consume full --group other --count 8 >"$work/out" 2>"$work/err" &
consumer_pid=$!
until [ "$(wc -l <"$work/out")" -ge 7 ]; do sleep 0.02; done
kill_broker
until grep -q "was lost" "$work/err"; do
    kill -0 "$consumer_pid" 2>/dev/null || { fail "a lost connection is not told"; break; }
    sleep 0.02
done
start_broker || exit 3
echo 4 | "$bin/mortarmq" --addr "$addr" --connect-timeout 60 produce full 2>/dev/null || fail "produce after the restart"
wait "$consumer_pid" || fail "the consumer did not survive the restart"
grep -q "connected to $addr" "$work/err" || fail "a connection that is back is not told"

kill_broker
attempt --connect-timeout 3 topics create t
[ $code -eq 3 ] || fail "a broker that is not there ends with $code"
grep -q "waiting for $addr (Connection refused)" "$work/err" || fail "waiting is not told"
timeout 60 "$bin/mortarmq" --addr "127.0.0.1:1,$addr" --connect-timeout 2 topics create t >"$work/out" 2>"$work/err"
[ $? -eq 3 ] || fail "a list of brokers that are not there does not end with 3"
for tried in 127.0.0.1:1 "$addr"; do
    grep -q "tried.*$tried (CONNECTION_REFUSED" "$work/err" || fail "the error does not say that $tried was tried"
done

# One of three, alone: nobody was elected, and the CLI says why, by its code.
write_config
mkdir -p "$work/lone/auth"
printf '%064d\n' 7 >"$work/lone/auth/peer.key"
chmod 600 "$work/lone/auth/peer.key"
cat >"$work/broker.json" <<JSON
{"node_id": 1, "listen_client": "$addr", "listen_peer": "127.0.0.1:$(free_port)", "listen_admin": "$admin",
 "data_dir": "$work/lone", "log_level": "error",
 "peers": [{"node_id": 1, "addr": "127.0.0.1:1"}, {"node_id": 2, "addr": "127.0.0.1:2"}, {"node_id": 3, "addr": "127.0.0.1:3"}]}
JSON
start_broker || exit 3
for tries in $(seq 1 100); do
    attempt --admin "$admin" broker status --json
    grep -q '"trouble"' "$work/out" && break
    sleep 0.1
done
grep -qF '"trouble_code":24588' "$work/out" || fail "broker status --json does not say why there is no leader"
grep -qF "no leader was elected: 0x600c ELECTION_TIMEOUT" "$work/err" || fail "broker status does not say why there is no leader"
attempt --admin "$admin" leader get
[ $code -eq 0 ] && grep -qE '^-	[0-9]+	2$' "$work/out" || fail "leader get without a leader"
grep -qF "0x600c ELECTION_TIMEOUT" "$work/err" || fail "leader get does not say why there is none"
exit $status
