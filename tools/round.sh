# round: what quickstart and killround share: a broker on free ports, lines published while it is killed, and the proof
# that every acknowledged line came back in order, once and intact. Sourced, not run. The caller sets:
#   bin    folder of the programs       work   an empty folder for everything that a run leaves
# Sets: addr, admin, broker_pid.

export LC_ALL=C

# No listener there now. Somebody may still take it before the broker does: start_broker then says so.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}

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

# The broker goes and comes; a signal to the script ends what it started.
stop_all() {
    local pid
    for pid in ${producer_pid:-} ${broker_pid:-}; do kill -9 "$pid" 2>/dev/null; done
    return 0
}

mq() {
    "$bin/mortarmq" --addr "$addr" --admin "$admin" --connect-timeout 60 "$@"
}

acked_count() {
    if [ -f "$1" ]; then wc -l <"$1"; else echo 0; fi
}

# publish_through_kill TOPIC FILE LINES KILL_AFTER: publishes FILE and kills the broker once KILL_AFTER lines are
# acknowledged; publishing goes on into the dead broker and finishes when it is back. Sets killed_at.
publish_through_kill() {
    local topic=$1 file=$2 lines=$3 kill_after=$4
    local acks=$work/$topic.acks
    rm -f "$acks"
    mq --json produce "$topic" "$file" --ack-log "$acks" --outstanding 256 >"$work/$topic.produce.json" 2>"$work/$topic.produce.err" &
    producer_pid=$!
    while [ "$(acked_count "$acks")" -lt "$kill_after" ]; do
        kill -0 "$producer_pid" 2>/dev/null || break
    done
    kill_broker
    killed_at=$(acked_count "$acks")
    start_broker || return 3
    wait "$producer_pid"
    local status=$?
    producer_pid=
    [ "$status" -eq 0 ] || { cat "$work/$topic.produce.err" >&2; return "$status"; }
    [ "$killed_at" -lt "$lines" ] || echo "note: all $lines lines were acknowledged before the kill" >&2
}

# consume_all TOPIC: everything that the topic holds, as `sequence <tab> line`: what was acknowledged, then what is there
# beyond it. What the first of the two runs settled must not come again in the second.
consume_all() {
    local topic=$1 group=$1-check count
    count=$(acked_count "$work/$topic.acks")
    mq consume "$topic" --group "$group" --count "$count" --timeout 60 --format '%s\t%v\n' \
        >"$work/$topic.consumed" 2>"$work/$topic.consume.err" &&
        mq consume "$topic" --group "$group" --timeout 1 --format '%s\t%v\n' \
            >>"$work/$topic.consumed" 2>>"$work/$topic.consume.err"
    local status=$?
    [ "$status" -eq 0 ] || cat "$work/$topic.consume.err" >&2
    return "$status"
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
