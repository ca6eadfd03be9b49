#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest at work (save_guest.sh) is saved, and goes on twice at once, on
# disks, networks, addresses and vsock CIDs that differ. The two have other random numbers, each has its own disk
# and network, and the first has its connections still.
#
#   save_clones.sh RINGSIDE KERNEL INITRD FIO_DISK CPUS
set -u
began=$(cut -d . -f 1 /proc/uptime)
at() { echo "$(($(cut -d . -f 1 /proc/uptime) - began)) s: $*"; }
ringside=$1 kernel=$2 initrd=$3 fio_disk=$4 cpus=$5
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/save_common.sh"
tunctl -t rs1 >/dev/null
ip addr add 10.78.0.1/24 dev rs1

boot_worker || begin_anew
look
before=$counts
at "at work"
ctl save "$work/snap" --stop on
wait $pid || fail "exit code $? of the machine that is saved"
at "saved"
cp "$work/disk0" "$work/disk1"
restore
pid_0=$pid
as 1
restore
pid_1=$pid

# The first that is asked of each. Debian's cloud kernel 6.1 has no driver that would renew them: there the
# agent has done so.
for number in 0 1; do
    as $number
    patience=5 within 60 random || fail "machine $number: the agent does not answer"
    eval "random_$number=$random"
done
at "both answer"
[ "$random_0" != "$random_1" ] || fail "both have the random number $random_0"
[ $failures = 0 ] || { cat "$work/errors" "$work"/serial*; exit 1; }

at "random numbers differ"
# The second gets addresses of its own before it is on a network where the first is.
as 1
agent killall -KILL iperf3
agent sh -c 'ip addr flush dev eth0
    ip link set eth0 address 02:00:00:00:77:99
    ip addr add 10.78.0.2/24 dev eth0
    rm -f /tmp/wrong_network'
ip link set rs1 up
for number in 0 1; do
    as $number
    agent ping -c 3 -W 5 -q 10.7$((7 + number)).0.1 >/dev/null || fail "machine $number does not reach its host"
    ping -c 3 -W 5 -q 10.7$((7 + number)).0.2 >/dev/null || fail "machine $number is not reached"
    # Behind what fio works on, each at a place of its own.
    yes "pattern of $number" | head -c 65536 >"$work/pattern$number"
    agent sh -c "yes 'pattern of $number' | head -c 65536 >/tmp/pattern
        dd if=/tmp/pattern of=/dev/vdb bs=64k seek=$((320 + number)) oflag=direct 2>/dev/null
        dd if=/dev/vdb bs=64k skip=$((320 + number)) count=1 iflag=direct 2>/dev/null | cmp - /tmp/pattern" ||
        fail "machine $number does not read what it has written"
done
# block_of DISK NUMBER: what a disk has where that machine wrote.
block_of() { dd if="$work/disk$1" bs=64k skip=$((320 + $2)) count=1 2>/dev/null; }
for number in 0 1; do
    block_of $number $number | cmp -s - "$work/pattern$number" || fail "what machine $number wrote is not on its disk"
    [ "$(block_of $((1 - number)) $number | tr -d '\0' | wc -c)" = 0 ] || fail "machine $number wrote on both disks"
done
[ "$(ip neigh show dev rs0 | awk '{print $3}')" != "$(ip neigh show dev rs1 | awk '{print $3}')" ] ||
    fail "both have one MAC address"
at "disks and networks are apart"
as 0
moves 60
at "the first moves"
for number in 0 1; do
    as $number
    look || fail "machine $number: the agent does not answer"
    told_of_copies 1
    end_worker
done
kill $server
echo "before: $before, in the end: $counts"
[ $failures = 0 ] || { cat "$work/errors" "$work"/serial*; exit 1; }
