#!/bin/bash
# cluster: tools/cluster's arguments, the files it writes, and what it does with processes, with a broker that only sleeps.
set -uo pipefail

usage() {
    echo "usage: cluster_test.sh SOURCE_FOLDER"
    echo "example: cluster_test.sh ."
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }
cluster=$(realpath "$1")/tools/cluster
work=$(mktemp -d)
dir=$work/c
trap '"$cluster" --dir "$dir" down >/dev/null 2>&1; rm -rf "$work"' EXIT
status=0
fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out" "$work/err" | head -n 10
    status=1
}
# Not even as a zombie, which nobody may bury here.
alive() { [ -d "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status"; }
# expect CODE ARGUMENT...: its exit code.
expect() {
    local code=$1 got
    shift
    timeout 60 "$cluster" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ $got -eq "$code" ] || fail "cluster $* ends with $got, not $code"
}
says() { grep -qF -- "$1" "$work/err" || fail "it does not say '$1'"; }

mkdir "$work/bin"
cat >"$work/bin/mortarmqd" <<'STUB'
#!/bin/bash
echo "started with $*"
trap 'kill $!; exit 0' TERM
while :; do sleep 1 &
wait; done
STUB
chmod +x "$work/bin/mortarmqd"
export MORTAR_BIN=$work/bin

expect 0 --help
grep -q "tools/cluster kill leader" "$work/out" || fail "--help has no examples"
expect 2; says "say what to do"
expect 2 frobnicate; says "frobnicate"
expect 2 up 1; says "takes no '1'"
expect 2 kill; says "takes nodes"
expect 2 kill 4; says "no node '4'"
expect 2 kill 1 all; says "'all' stands alone"
expect 2 --frob up; says "--frob"
expect 2 up --dir; says "--dir needs a value"
for port in 0 x 65514 -1 123456; do expect 2 --base-port $port up; says "--base-port $port"; done
expect 2 --wait soon up; says "--wait soon"
expect 2 --purge up; says "--purge"
for command in down status; do expect 3 --dir "$work/none" $command; says "no cluster in $work/none"; done
mkdir "$work/other" && touch "$work/other/precious"
expect 2 --dir "$work/other" up; says "not a cluster's folder"
expect 3 --dir "$dir" --bin "$work/nothing" up; says "no mortarmqd in $work/nothing"
[ ! -e "$dir" ] || fail "a folder is made without a broker"

# The files.
expect 0 --dir "$dir" --base-port 23188 files
for n in 1 2 3; do
    key=$dir/node$n/data/auth/peer.key
    [ "$(stat -c %a "$key")" = 600 ] || fail "peer.key of node $n is readable by others"
    grep -qxE '[0-9a-f]{64}' "$key" || fail "peer.key of node $n is not 32 bytes in hex"
    cmp -s "$key" "$dir/node1/data/auth/peer.key" || fail "nodes have different keys"
    p=$((23188 + 10 * (n - 1)))
    cat >"$work/expected" <<JSON
{"node_id": $n,
 "peers": [
    {"node_id": 1, "addr": "127.0.0.1:23189", "client_addr": "127.0.0.1:23188"},
    {"node_id": 2, "addr": "127.0.0.1:23199", "client_addr": "127.0.0.1:23198"},
    {"node_id": 3, "addr": "127.0.0.1:23209", "client_addr": "127.0.0.1:23208"}],
 "listen_client": "127.0.0.1:$p",
 "listen_peer": "127.0.0.1:$((p + 1))",
 "listen_admin": "127.0.0.1:$((p + 2))",
 "data_dir": "$dir/node$n/data"}
JSON
    cmp -s "$work/expected" "$dir/node$n/broker.json" || fail "broker.json of node $n"
done
echo "edited" >"$dir/node2/broker.json"
rm "$dir/node3/data/auth/peer.key"
expect 0 --dir "$dir" files
[ "$(cat "$dir/node2/broker.json")" = edited ] || fail "an edited broker.json is overwritten"
cmp -s "$dir/node3/data/auth/peer.key" "$dir/node1/data/auth/peer.key" || fail "a lost key is not made anew from the others"
expect 2 --dir "$dir" --base-port 7188 up; says "made with --base-port 23188"
expect 1 --dir "$dir" status
[ "$(grep -c ' down ' "$work/out")" -eq 3 ] || fail "status of a cluster that does not run"
expect 3 --dir "$dir" kill 1; says "node 1 does not run"
expect 1 --dir "$dir" kill leader; says "no node leads"

# Processes. The stand-in never becomes healthy.
expect 1 --dir "$dir" --wait 0 up; says "not healthy within 0 s"
[ "$(grep -c ' up .* no_answer ' "$work/out")" -eq 3 ] || fail "up does not show what runs"
grep -q "started with --config $dir/node2/broker.json" "$dir/node2/log" || fail "the log is not kept"
first=$(cat "$dir/node1/pid")
expect 1 --dir "$dir" --wait 0 up
[ "$(cat "$dir/node1/pid")" = "$first" ] || fail "up starts a node that runs"
expect 0 --dir "$dir" pause 2
expect 1 --dir "$dir" status
grep -qE '^2 .* paused ' "$work/out" || fail "status does not show a paused node"
expect 0 --dir "$dir" resume 2
expect 1 --dir "$dir" status
grep -qE '^2 .* up ' "$work/out" || fail "resume does not resume"
expect 0 --dir "$dir" kill 1
alive "$first" && fail "kill does not kill"
expect 1 --dir "$dir" status
grep -qE '^1 .* down ' "$work/out" || fail "status does not show a killed node"
# The number of a dead node may be another process's by now.
sleep 1000 &
stranger=$!
echo $stranger >"$dir/node1/pid"
expect 3 --dir "$dir" kill 1; says "node 1 does not run"
alive $stranger || fail "a stranger was killed"
expect 3 --dir "$dir" --wait 0 start 2; says "runs already"
expect 1 --dir "$dir" --wait 0 start 1
third=$(cat "$dir/node3/pid")
expect 0 --dir "$dir" kill 3 1 3
[ "$(grep -cE '^node [13] killed at 20[0-9-]+T[0-9:]+\.[0-9]{3}Z$' "$work/out")" -eq 2 ] || fail "kill does not tell what it did"
alive "$third" && fail "kill of two kills one"
expect 3 --dir "$dir" kill 2 3; says "node 3 does not run"
alive "$(cat "$dir/node2/pid")" || fail "kill of a node that runs and one that does not kills one"
expect 1 --dir "$dir" --wait 0 start all
[ "$(grep -cE '^node [13] started at ' "$work/out")" -eq 2 ] || fail "start all does not start those that do not run"
expect 3 --dir "$dir" --wait 0 start all; says "no node for 'start all'"
third=$(cat "$dir/node3/pid")
expect 0 --dir "$dir" stop 3
grep -q '^node 3 told to stop at ' "$work/out" || fail "stop does not tell what it did"
alive "$third" && fail "stop does not stop"
expect 3 --dir "$dir" stop 3; says "node 3 does not run"
expect 1 --dir "$dir" --wait 0 start 3
expect 0 --dir "$dir" pause 3
second=$(cat "$dir/node2/pid")
expect 0 --dir "$dir" down
alive "$second" && fail "down leaves a node"
[ -d "$dir" ] || fail "down deletes the folder unasked"
alive $stranger || fail "down killed a stranger"
kill $stranger

# A node that ends at once is told with its last words.
printf '#!/bin/bash\necho "the port is taken"\nexit 3\n' >"$work/bin/mortarmqd"
expect 3 --dir "$dir" --wait 20 up; says "the port is taken"
expect 0 --dir "$dir" down --purge
[ ! -e "$dir" ] || fail "down --purge leaves the folder"
exit $status
