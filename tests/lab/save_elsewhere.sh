#!/bin/sh
# Runs inside the lab (busybox sh): saves a stock guest at work (save_guest.sh) into DIRECTORY, or goes on with the
# one that another L1 has left there, whose kernel may be another. save_lab.sh runs both.
#
#   save_elsewhere.sh save RINGSIDE KERNEL INITRD FIO_DISK CPUS DIRECTORY
#   save_elsewhere.sh restore RINGSIDE FIO_DISK DIRECTORY
set -u
. "$(dirname "$0")/common.sh"
case $1 in
    save) ringside=$2 kernel=$3 initrd=$4 fio_disk=$5 cpus=$6 directory=$7 ;;
    *) ringside=$2 fio_disk=$3 directory=$4 ;;
esac
. "$(dirname "$0")/save_common.sh"
mkdir -p "$directory"

if [ "$1" = save ]; then
    boot_worker || begin_anew
    # The other end of its connection does not come along.
    agent killall -KILL iperf3
    agent sh -c 'sleep 1; rm -f /tmp/wrong_network'
    look || fail "the agent does not answer"
    ctl save "$work/snap" --stop on
    wait $pid || fail "exit code $?"
    mv "$work/snap/state" "$work/snap/memory" "$disk" "$directory"
    echo "saved on $(uname -r): $counts"
    kill $server
    [ $failures = 0 ]
    exit
fi

mv "$directory/disk0" "$disk"
began=$(now)
"$ringside" run --restore "$directory" --restore-clock ran $devices 2>>"$work/errors" &
pid=$!
within 60 look || fail "the agent does not answer: $(tail -n 1 "$work/errors")"
[ $most -ge -2000000000 ] && [ $least -le 2000000000 ] || fail "its clock is behind by $(in_ms $least) to $(in_ms $most) ms"
echo "on $(uname -r) its clock is behind by $(in_ms $least) to $(in_ms $most) ms: $counts"
# In a session of its own, as the agent ends what is in the command's group.
agent sh -c 'setsid iperf3 -c 10.77.0.1 --bidir -b 1M -t 86400 -i 0 >/tmp/iperf3 2>&1 &'
moves 90
told_of_copies 1
end_worker
echo "in the end: $counts"
kill $server
[ $failures = 0 ] || { cat "$work/errors" "$serial"; exit 1; }
