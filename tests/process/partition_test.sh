#!/bin/bash
# partition: three brokers in network namespaces of their own, joined by a bridge; the leader is cut off from its peers while
# clients still reach it. It must acknowledge nothing, another must take over, and after healing all that was acknowledged is
# there. Routes into nowhere cut: both ways, then only what the leader sends.
# covers contract 8, R3, R4, design 4 (lease)
set -uo pipefail
readonly SKIPPED=77

usage() {
    cat <<'TXT'
usage: partition_test.sh BIN_FOLDER

  Exit 77, saying so, where network namespaces are not allowed.

example: partition_test.sh build/bin
TXT
}
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -eq 1 ] || { usage >&2; exit 2; }

# In namespaces of its own everything is gone when it ends, however it ends.
if [ -z "${PARTITION_INSIDE:-}" ]; then
    probe='mount -t tmpfs tmpfs /run && ip netns add probe && ip link add type veth && ip link add br0 type bridge &&
        ip netns exec probe true'
    if ! unshare -rnm bash -c "$probe" 2>/dev/null >&2; then
        echo "SKIPPED: network namespaces are not allowed here"
        exit $SKIPPED
    fi
    PARTITION_INSIDE=1 exec unshare -rnmp --fork --kill-child --mount-proc "$0" "$@"
fi

bin=$(realpath "$1") nodes=1 work=$(mktemp -d)
. "$(dirname "$0")/../../tools/round.sh"
brokers=()
trap 'kill -9 "${brokers[@]}" ${producer_pid:-} 2>/dev/null; rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $1" >&2
    tail -n 8 "$work"/n?/log >&2
    exit 1
}

mount -t tmpfs tmpfs /run
ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.254/24 dev br0
ip link set br0 up
key=$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n')
printf 'for tests only' >"$work/token"
peers=
for n in 1 2 3; do peers+="${peers:+, }{\"node_id\": $n, \"addr\": \"10.77.0.$n:7189\"}"; done
for n in 1 2 3; do
    ip netns add n$n
    ip link add v$n type veth peer name eth0 netns n$n
    ip link set v$n master br0 up
    ip -n n$n addr add 10.77.0.$n/24 dev eth0
    ip -n n$n link set lo up
    ip -n n$n link set eth0 up
    (umask 077 && mkdir -p "$work/n$n/data/auth" && echo "$key" >"$work/n$n/data/auth/peer.key")
    # Clients come over the network, so there is a token.
    sha256sum "$work/token" | cut -c -64 >"$work/n$n/data/auth/client.sha256"
    cat >"$work/n$n/broker.json" <<JSON
{"node_id": $n, "peers": [$peers], "listen_client": "10.77.0.$n:7188", "listen_peer": "10.77.0.$n:7189",
 "listen_admin": "10.77.0.$n:7190", "data_dir": "$work/n$n/data"}
JSON
    ip netns exec n$n "$bin/mortarmqd" --config "$work/n$n/broker.json" >"$work/n$n/log" 2>&1 &
    brokers+=($!)
    disown
done
addr=10.77.0.1:7188,10.77.0.2:7188,10.77.0.3:7188
admin=10.77.0.1:7190

mq() { "$bin/mortarmq" --addr "$addr" --admin "$admin" --token-file "$work/token" --connect-timeout 60 "$@"; }

# ask NODE KEY: what the node says of itself.
ask() {
    timeout 2 bash -c '
        exec 3<>"/dev/tcp/10.77.0.$0/7190" || exit 1
        printf "GET /stats?node=self HTTP/1.1\r\nHost: 10.77.0.$0\r\nConnection: close\r\n\r\n" >&3
        cat <&3' "$1" 2>/dev/null | grep -oE "\"$2\":\"?[^\",}]*" | head -n 1 | sed 's/.*:"\{0,1\}//'
}
# until_leader NODE BESIDES: the node names a leader that is not BESIDES. Sets leader.
until_leader() {
    local end=$((SECONDS + 40))
    while [ $SECONDS -lt $end ]; do
        leader=$(ask "$1" leader_id)
        [[ "$leader" =~ ^[123]$ ]] && [ "$leader" != "$2" ] && return
        sleep 0.05
    done
    fail "node $1 names no leader"
}

# cut LEADER both|out, heal LEADER
cut() {
    local n
    for n in 1 2 3; do
        [ $n -ne "$1" ] || continue
        ip -n "n$1" route add blackhole 10.77.0.$n
        [ "$2" = out ] || ip -n n$n route add blackhole "10.77.0.$1"
    done
}
heal() {
    local n
    for n in 1 2 3; do
        [ $n -ne "$1" ] || continue
        ip -n "n$1" route del blackhole 10.77.0.$n
        ip -n n$n route del blackhole "10.77.0.$1" 2>/dev/null
    done
}

isolate_leader() {
    local old=$leader other=$((leader % 3 + 1)) epoch
    hit_ms=$(now_ms)
    cut "$old" "$way"
    # Only to the one that is cut off: it may not say OK, whatever it believes.
    echo "nobody but one node has this" | addr=10.77.0.$old:7188 mq produce alone --timeout 3 --ack-log "$work/alone.acks" >"$work/alone.out" 2>&1 && fail "node $old acknowledges while it is cut off ($way)"
    [ ! -s "$work/alone.acks" ] || fail "node $old acknowledged while it was cut off ($way)"
    until_leader "$other" "$old"
    epoch=$(ask "$leader" leader_epoch)
    echo "$way: node $old is cut off, node $leader leads in epoch $epoch"
    heal "$old"
    local end=$((SECONDS + 40))
    until [ "$(ask "$old" leader_id)" = "$leader" ] && [ "$(ask "$old" role)" = follower ] && [ "$(ask "$old" status)" = healthy ]; do
        [ $SECONDS -lt $end ] || fail "node $old does not follow after healing ($way)"
        sleep 0.05
    done
}

until_leader 1 none
mq topics create alone --partitions 1 >/dev/null || fail "no topic"
for way in both out; do
    until_leader 1 none
    seq -f "$way line %.0f" 20000 >"$work/$way.lines"
    mq topics create $way --partitions 1 >/dev/null || fail "no topic"
    publish_through $way "$work/$way.lines" $((RANDOM % 10000)) 256 isolate_leader || fail "publishing ends with $? ($way)"
    read -r longest _ newer < <(silence $way "$hit_ms")
    [ "${newer:-0}" -eq 1 ] || fail "no PUB OK came from a new leader ($way)"
    consume_all $way || fail "cannot consume ($way)"
    result=$(verify $way "$work/$way.lines") || fail "$result ($way)"
    echo "$way: $result; no PUB OK for $longest ms"
done
