#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest (save_guest.sh) is saved, and FORKS go on from it at once, in
# several processes, with a disk, a network, an address and a vsock each. Each runs a command by the agent, and is
# to have another random number, reach its own host and write on its own disk alone.
#
#   save_forks.sh RINGSIDE KERNEL INITRD FIO_DISK CPUS FORKS
set -u
ringside=$1 kernel=$2 initrd=$3 fio_disk=$4 cpus=$5 forks=$6
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/save_common.sh"

boot_worker || begin_anew
# What is forked has no work of its own: twenty of it would leave nothing of one emulated processor.
agent killall -KILL fio iperf3
ctl save "$work/snap" --stop on
wait $pid || fail "exit code $? of the machine that is saved"
for number in $(seq "$forks"); do
    cp "$disk" "$disk.$number"
    tunctl -t "fork$number" >/dev/null
    ip addr add "10.$((100 + number)).0.1/24" dev "fork$number"
    ip link set "fork$number" up
    addresses="${addresses:-} $number:$((100 + number))"
done
# The command knows its fork's number as the options do.
command='read -r uuid </proc/sys/kernel/random/uuid
    for pair in '$addresses'; do case $pair in {n}:*) net=${pair#*:} ;; esac; done
    ip addr flush dev eth0
    ip addr add 10.$net.0.2/24 dev eth0
    ping -c 3 -W 5 -q 10.$net.0.1 >/dev/null || exit 3
    yes "pattern of {n}" | head -c 65536 >/tmp/pattern
    dd if=/tmp/pattern of=/dev/vdb bs=64k seek=320 oflag=direct 2>/dev/null || exit 4
    echo "uuid $uuid"'
"$ringside" run --template "$work/snap" --forks "$forks" --forks-per-process 7 --serial "file=$serial.{n}" \
    --vsock "cid=3,path=$work/{n}.vsock" --net "tap=fork{n}" --disk "path=$fio_disk,readonly=on" \
    --disk "path=$disk.{n}" --exec "$command" --stats >"$work/said" 2>"$work/forks"
code=$?
cat "$work/forks"
[ $code = 0 ] || fail "exit code $code"
uuids=$(sed -n 's/^\[[0-9]*\] uuid //p' "$work/said" | sort -u | wc -l)
[ "$uuids" = "$forks" ] || fail "of $forks forks there are $uuids uuids: $(cat "$work/said")"
for number in $(seq "$forks"); do
    yes "pattern of $number" | head -c 65536 >"$work/pattern"
    dd if="$disk.$number" bs=64k skip=320 count=1 2>/dev/null | cmp -s - "$work/pattern" ||
        fail "what fork $number wrote is not on its disk"
done
kill $server
[ $failures = 0 ] || { cat "$work/errors"; exit 1; }
