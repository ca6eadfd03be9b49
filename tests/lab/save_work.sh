#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest at work (save_guest.sh) is saved in the middle, ended as by a
# cut of the power, and goes on in another machine, again and again; or, for comparison, it is only paused for
# as long. Its disk, network and clock have to go on each time, and its clock has to be right.
#
#   save_work.sh RINGSIDE KERNEL INITRD FIO_DISK CPUS ROUNDS VARIANT...
#
# In each round each VARIANT, "save" or "pause", has its turn. After a failure the next turn has another guest.
# In the end a second machine goes on from what was saved last, and must have other random numbers.
set -u
ringside=$1 kernel=$2 initrd=$3 fio_disk=$4 cpus=$5 rounds=$6
shift 6
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/save_common.sh"

# Half a second is what the clocks may differ by for other reasons.
tolerance=500000000

is_saved() {
    rm -rf "$work/snap"
    left_from=$(now)
    ctl save "$work/snap" --stop on || return
    wait $pid || fail "exit code $? of the machine that is saved"
    left_by=$(now)
    [ $round != "$rounds" ] || cp "$disk" "$disk.saved"
    [ $((round % 5)) != 1 ] || "$ringside" snapshot verify "$work/snap" >/dev/null || fail "it is not whole"
    [ $((round % 2)) = 0 ] && clock=ran || clock=stood
    back_from=$(now)
    restore --restore-clock $clock
    copies=$((copies + 1))
    # What this took is how long the other variant pauses.
    away=$(((back_from - left_from) / 1000000))
    [ $round != "$rounds" ] || within 120 random || fail "the agent does not answer"
}

is_paused() {
    clock=pause
    left_from=$(now)
    ctl pause || return
    left_by=$(now)
    usleep $((${away:-3000} * 1000))
    back_from=$(now)
    ctl resume
}

# turn VARIANT
turn() {
    look || { fail "the agent does not answer before it"; return; }
    least_before=$least most_before=$most
    case $1 in save) is_saved ;; *) is_paused ;; esac
    [ $failures = 0 ] || return
    within 120 look || { fail "the agent does not answer"; return; }
    # By how much its clock has fallen behind, and by how much it should have: it stood between $left_from or
    # $left_by and $back_from or $answered.
    behind_least=$((least - most_before)) behind_most=$((most - least_before))
    case $clock in
        stood) expected_least=$((back_from - left_by)) expected_most=$((answered - left_from)) ;;
        *) expected_least=0 expected_most=0 ;;
    esac
    clocks="behind by $(in_ms $behind_least) to $(in_ms $behind_most) ms, expected ($clock) \
$(in_ms $expected_least) to $(in_ms $expected_most)"
    [ $behind_most -ge $((expected_least - tolerance)) ] &&
        [ $behind_least -le $((expected_most + tolerance)) ] || fail "its clock is $clocks"
    from=$counts
    within 120 has_moved $from || fail "not all goes on: from $from to $counts"
}

pid=0 copies=0 random=
for round in $(seq "$rounds"); do
    for variant in "$@"; do
        [ $pid != 0 ] || boot_worker || begin_anew
        failures=0 began=$(now) clocks=
        turn "$variant"
        echo "round $round: $variant, in $(in_ms $(($(now) - began))) ms: $clocks; $failures failures"
        eval "turns_$variant=\$((\${turns_$variant:-0} + 1))"
        [ $failures = 0 ] && continue
        eval "failed_$variant=\$((\${failed_$variant:-0} + 1))"
        tail -n 40 "$serial"
        tail -n 5 "$work/errors"
        end_guest
        pid=0 copies=0
    done
done
failures=0
if [ $pid != 0 ]; then
    told_of_copies $copies
    end_worker
fi
if [ -n "$random" ]; then
    random_before=$random
    mv "$disk.saved" "$disk"
    restore
    within 120 random || fail "the agent of the second copy does not answer"
    [ "$random" != "$random_before" ] || fail "two copies have the random number $random"
    end_guest
fi
[ $failures = 0 ] || cat "$serial"
echo "after $copies copies the last guest ends with $failures failures, having done: $counts"
for variant in "$@"; do
    eval "echo \"$variant: \${turns_$variant} turns, \${failed_$variant:-0} failed\""
    eval "failures=\$((failures + \${failed_$variant:-0}))"
done
kill $server
[ $failures = 0 ]
