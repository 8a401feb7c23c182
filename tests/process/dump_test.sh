#!/bin/bash
# dump: mortarmq-dump over every file of a real data_dir: sound after a stop, at most a torn end after kill -9, damage and
# newer versions named, and never a crash.
set -uo pipefail

usage() {
    echo "usage: dump_test.sh BIN_FOLDER"
    echo "example: dump_test.sh build/bin"
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
    head -n 5 "$work/out"
    status=1
}
dump() {
    timeout 60 "$bin/mortarmq-dump" "$@" >"$work/out" 2>&1
    code=$?
}
data_files() {
    find "$work/data/topics" "$work/data/groups" "$work/data/metadata" "$work/data/replica" -type f | LC_ALL=C sort
}
# The byte of file $1 at offset $2 becomes another one.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\x$(printf %x $((byte ^ 255)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

write_config
start_broker || exit 3
mq topics create orders --partitions 2 >/dev/null
seq 1 3000 | sed 's/.*/key&:value of an apple &/' | mq produce orders --key-sep : 2>/dev/null || fail "produce"
mq consume orders --group billing --count 500 >/dev/null 2>&1 || fail "consume"
mq consume orders --group audit --count 100 --no-ack >/dev/null 2>&1 || fail "consume --no-ack"
mq topics create gone >/dev/null
mq topics delete gone --yes >/dev/null 2>&1 || fail "topics delete"
kill -TERM "$broker_pid"
while kill -0 "$broker_pid" 2>/dev/null; do sleep 0.05; done

[ "$(data_files | wc -l)" -ge 10 ] || fail "only $(data_files | wc -l) files of data"
for file in $(data_files); do
    dump "$file"
    [ $code -eq 0 ] || fail "${file#"$work"/} of a stopped broker: exit $code"
    grep -q DAMAGE "$work/out" && fail "${file#"$work"/} of a stopped broker shows damage"
done
segment=$(data_files | grep '\.seg$' | xargs ls -S | head -n 1)
dump "$segment"
grep -q 'value=' "$work/out" && fail "values are printed unasked"
dump --values "$segment"
grep -q 'value_bytes=.* value=value of an apple [0-9]*$' "$work/out" || fail "--values prints no values"

# Damage in a copy, at several places of each file.
cp -r "$work/data" "$work/sound"
for file in $(data_files); do
    size=$(stat -c %s "$file")
    [ "$size" -gt 0 ] || continue
    case "$file" in
        # Ledgers and metadata logs are padded to sectors, and padding says nothing: a byte of the first record.
        *.mql | *.mml) offsets="0 540" ;;
        # The last 8 bytes of an entry are not used.
        *.idx) offsets="0 9 $((size - 9))" ;;
        *) offsets="0 9 $((size / 2)) $((size - 1))" ;;
    esac
    for offset in $offsets; do
        [ "$offset" -lt "$size" ] || continue
        flip "$file" "$offset"
        dump "$file"
        [ $code -eq 1 ] || [ $code -eq 3 ] || fail "${file#"$work"/} with byte $offset of $size changed: exit $code"
        flip "$file" "$offset"
    done
    cmp -s "$file" "${file/"$work/data"/"$work/sound"}" || fail "the test did not restore ${file#"$work"/}"
done

# A version of tomorrow: the byte behind the magic of 4.
for file in "$segment" $(data_files | grep -v '\.seg$\|\.idx$'); do
    printf '\x63' | dd of="$file" bs=1 seek=4 conv=notrunc status=none
    dump "$file"
    [ $code -eq 3 ] || fail "${file#"$work"/} of version 99: exit $code"
    cp "${file/"$work/data"/"$work/sound"}" "$file"
done

# What is no file of ours.
dump "$work"
[ $code -eq 3 ] || fail "a directory: exit $code"
grep -q "directory" "$work/out" || fail "a directory is not called one"
dump "$work/no-such-file"
[ $code -eq 3 ] || fail "a missing file: exit $code"
timeout 60 "$bin/mortarmq-dump" "$segment" >/dev/full 2>"$work/out"
code=$?
[ $code -eq 3 ] || fail "dump > /dev/full: exit $code"

start_broker || exit 3
seq 1 20000 >"$work/lines"
mq produce orders "$work/lines" >/dev/null 2>&1 &
producer_pid=$!
disown "$producer_pid"
sleep 0.3
kill_broker
kill -9 "$producer_pid" 2>/dev/null
for file in $(data_files); do
    dump "$file"
    [ $code -eq 0 ] || [ $code -eq 1 ] || fail "${file#"$work"/} after kill -9: exit $code"
done
exit $status
