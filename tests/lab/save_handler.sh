#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest at work (save_guest.sh) is saved, ended as by a cut of the power,
# and goes on with memory that HANDLER gives, Firecracker's example uffd_on_demand_handler or another that is
# called like it. Its disk, network and clock have to go on. Then it goes on once more, and its handler is killed.
#
#   save_handler.sh RINGSIDE KERNEL INITRD FIO_DISK CPUS HANDLER
set -u
ringside=$1 kernel=$2 initrd=$3 fio_disk=$4 cpus=$5 handler=$6
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/save_common.sh"
fio_limit=200  # it reads all that it has written, of which each page comes from the handler

# Sets handler_pid, and pid.
goes_on() {
    rm -f "$work/handler.sock"
    "$handler" "$work/handler.sock" "$work/snap/memory" >"$work/handler" 2>&1 &
    handler_pid=$! pid=$!
    within 30 test -S "$work/handler.sock" || fail "the handler does not listen: $(tail -n 1 "$work/handler")"
    restore --restore-handler "$work/handler.sock"
    await_agent 60 || fail "the agent does not answer: $(tail -n 1 "$work/errors")"
}

boot_worker || begin_anew
ctl save "$work/snap" --stop on
wait $pid || fail "exit code $? of the machine that is saved"
cp "$disk" "$disk.saved"

goes_on
moves 90
echo "with a handler: from $from to $counts"
told_of_copies 1
end_worker
echo "in the end: $counts; fio says $(echo "$said" | grep -o 'err= [0-9]*')"

# Once more, from before the end of its network's connection, which it does not survive.
cp "$disk.saved" "$disk"
goes_on
kill -9 $handler_pid
wait $pid
code=$?
words=$(tail -n 1 "$work/errors")
echo "without its handler: exit code $code, '$words'"
case $code,$words in 1,*'has ended under the machine'*) ;; *) fail "its end is not as it should be" ;; esac
kill $server
[ $failures = 0 ] || { cat "$work/errors" "$work/handler"; tail -n 20 "$serial"; exit 1; }
