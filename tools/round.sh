# round: what quickstart, killround and tests share: one broker or a cluster on free ports, lines published while it is hit, and
# the proof that every acknowledged line came back in order, once and intact. Sourced, not run. The caller sets:
#   bin    folder of the programs       work   an empty folder for everything that a run leaves
#   nodes  1 (default) or 3
# Sets: addr, admin (of one broker), broker_pid (of one broker).

export LC_ALL=C
nodes=${nodes:-1}
round_tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

is_port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# No listener there now. Somebody may still take it before the broker does: start_broker then says so.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 20000))
        ! is_port_free $port || { echo "$port"; return; }
    done
}

# --- one broker

write_config() {
    addr=127.0.0.1:$(free_port)
    admin=127.0.0.1:$(free_port)
    cat >"$work/broker.json" <<JSON
{"listen_client": "$addr", "listen_peer": "127.0.0.1:$(free_port)", "listen_admin": "$admin",
 "data_dir": "$work/data", "log_level": "warn"}
JSON
}

start_broker() {
    "$bin/mortarmqd" --config "$work/broker.json" >>"$work/broker.out" 2>&1 &
    broker_pid=$!
    disown "$broker_pid"
    local tries
    for tries in $(seq 1 300); do
        (exec 3<>"/dev/tcp/127.0.0.1/${addr##*:}") 2>/dev/null && return
        kill -0 "$broker_pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "the broker does not listen on $addr:" >&2
    tail -n 5 "$work/broker.out" >&2
    return 3
}

kill_broker() {
    # Not a job of this shell any more, so that no notice of its end mixes with the report.
    kill -9 "$broker_pid" 2>/dev/null
    while kill -0 "$broker_pid" 2>/dev/null; do sleep 0.01; done
    return 0
}

# --- a cluster

cluster() { "$round_tools/cluster" --dir "$work/cluster" --bin "$bin" "$@"; }

up_cluster() {
    local base offset
    while :; do
        base=$(free_port)
        for offset in 0 1 2 10 11 12 20 21 22; do
            is_port_free $((base + offset)) || continue 2
        done
        break
    done
    addr=127.0.0.1:$base,127.0.0.1:$((base + 10)),127.0.0.1:$((base + 20))
    admin=127.0.0.1:$((base + 2))
    cluster --base-port "$base" up >"$work/up" || { cat "$work/up" >&2; return 3; }
}

# Sets leader and leader_epoch, once there is one.
find_leader() {
    local end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ]; do
        read -r leader leader_epoch < <(cluster status | awk '$4 == "leader" { print $1, $5 }') && return
    done
    echo "no node leads" >&2
    return 3
}

# hit_nodes SIGNAL NODE...: at once, for the load does not wait; KILL also waits until they are gone. Sets hit_ms.
hit_nodes() {
    local signal=$1 n pids=()
    shift
    for n in "$@"; do pids+=("$(<"$work/cluster/node$n/pid")"); done
    hit_ms=$(now_ms)
    kill "-$signal" "${pids[@]}" || return 3
    for n in "${pids[@]}"; do
        while [ "$signal" = KILL ] && kill -0 "$n" 2>/dev/null; do sleep 0.01; done
    done
}

# --- both

up() {
    if [ "$nodes" -eq 1 ]; then write_config && start_broker; else up_cluster; fi
}

# Whatever runs; a signal to the script ends what it started.
stop_all() {
    local pid
    for pid in ${producer_pid:-} ${broker_pid:-}; do kill -9 "$pid" 2>/dev/null; done
    [ ! -f "$work/cluster/cluster" ] || cluster kill all >/dev/null 2>&1
    return 0
}

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

mq() {
    "$bin/mortarmq" --addr "$addr" --admin "$admin" --connect-timeout 60 "$@"
}

acked_count() {
    if [ -f "$1" ]; then wc -l <"$1"; else echo 0; fi
}

# publish_through TOPIC FILE AFTER OUTSTANDING HIT...: publishes FILE and runs HIT once AFTER lines are acknowledged; publishing
# goes on meanwhile and must finish. The status is that of HIT, or the producer's.
publish_through() {
    local topic=$1 file=$2 after=$3 outstanding=$4 acks=$work/$1.acks
    shift 4
    rm -f "$acks"
    mq --json produce "$topic" "$file" --ack-log "$acks" --outstanding "$outstanding" \
        >"$work/$topic.produce.json" 2>"$work/$topic.produce.err" &
    producer_pid=$!
    while [ "$(acked_count "$acks")" -lt "$after" ] && kill -0 "$producer_pid" 2>/dev/null; do sleep 0.002; done
    "$@" || return 3
    wait "$producer_pid"
    local status=$?
    producer_pid=
    [ "$status" -eq 0 ] || cat "$work/$topic.produce.err" >&2
    return "$status"
}

# consume_all TOPIC: everything that the topic holds, as `sequence <tab> line`: what was acknowledged, then what is there
# beyond it. What the first of the two runs settled must not come again in the second. What a group has settled is known to the
# leader alone as yet: when another one took over meanwhile, a new group begins anew.
consume_all() {
    local topic=$1 count group try term= status
    count=$(acked_count "$work/$topic.acks")
    for try in 1 2 3; do
        group=$topic-check$try
        [ "$nodes" -eq 1 ] || { find_leader && term=$leader_epoch; } || return 3
        mq consume "$topic" --group "$group" --count "$count" --timeout 60 --format '%s\t%v\n' \
            >"$work/$topic.consumed" 2>"$work/$topic.consume.err" &&
            mq consume "$topic" --group "$group" --timeout 1 --format '%s\t%v\n' \
                >>"$work/$topic.consumed" 2>>"$work/$topic.consume.err"
        status=$?
        [ "$nodes" -gt 1 ] && find_leader && [ "$term" != "$leader_epoch" ] || break
    done
    [ "$status" -eq 0 ] || cat "$work/$topic.consume.err" >&2
    return "$status"
}

# silence TOPIC FROM_MS: of the acknowledgements after that moment: how long the longest silence before one of them lasted, when
# it ended, and whether a leader of a newer epoch answered (1 or 0). Nothing when none came.
silence() {
    awk -F '\t' -v from="$2" '
        BEGIN { before = from }
        epoch == "" || $5 + 0 <= from { epoch = $4 }
        $5 + 0 <= from { before = $5; next }
        {
            if ($4 + 0 > epoch + 0) newer = 1
            if ($5 - before >= longest) { longest = $5 - before; end = $5 }
            before = $5
            some = 1
        }
        END { if (some) printf "%d %.0f %d\n", longest, end, newer }' before="$2" "$work/$1.acks"
}

# verify TOPIC FILE: compares. Prints the counts, or every kind of violation with its first place; 1 when there is any.
verify() {
    local topic=$1 file=$2
    awk -v topic="$topic" '
        function violation(text) { if (++seen[text] == 1) print "VIOLATION: " text ": " place; bad = 1 }
        FNR == 1 { ++part }
        part == 1 { original[FNR] = $0 ""; lines = FNR; next }
        part == 2 { split($0, field, "\t"); acked_line[field[2]] = field[3] + 0; ++acked; next }
        {
            at = index($0, "\t")
            sequence = substr($0, 1, at - 1) + 0
            text = substr($0, at + 1) ""
            place = "sequence " sequence
            if (sequence <= last) violation(sequence in got ? "a message came twice" : "messages out of order")
            last = sequence
            got[sequence] = 1
            ++consumed
            if (!(sequence in acked_line)) next
            if (text != original[acked_line[sequence]]) violation("an acknowledged line was altered")
            if (acked_line[sequence] <= last_line) violation("lines are not in the order of their publishing")
            last_line = acked_line[sequence]
            ++matched
        }
        END {
            for (sequence in acked_line) {
                place = "sequence " sequence ", line " acked_line[sequence]
                if (!(sequence in got)) violation("an acknowledged line is missing")
                if (acked_line[sequence] in used) violation("a line was acknowledged twice")
                used[acked_line[sequence]] = 1
            }
            place = consumed " came back, " acked " were acknowledged"
            if (consumed > acked) violation("a line is stored more than once")
            if (acked == 0) { place = topic; violation("nothing was acknowledged") }
            printf "%d lines, %d acknowledged, %d came back, %d compared equal\n", lines, acked, consumed, matched
            exit bad
        }' "$file" "$work/$topic.acks" "$work/$topic.consumed"
}
