#!/bin/busybox sh
# Process 1 of the guests that are saved: becomes the agent, and as its service works without an end on a
# disk, a network and a clock. /dev/vda has fio, of /dev/vdb the first 16 MiB are fio's.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ $# = 0 ]; then
    /bin/busybox --install -s
    mount -t proc proc /proc
    for module in /modules/*.ko; do insmod "$module" || echo "cannot load ${module##*/}"; done
    exec ringside-agent --init sh "$0" service
fi

# "look": the time, what clock, disk and network have done (ticks, sectors read and written, bytes received and
# sent), and below, what is wrong. In one command, because each takes long in the emulator.
if [ "$1" = look ]; then
    time=$(/usr/bin/date +%s%N)
    read -r ticks </tmp/ticks
    read -r received </sys/class/net/eth0/statistics/rx_bytes
    read -r sent </sys/class/net/eth0/statistics/tx_bytes
    read -r _ _ read _ _ _ written _ </sys/block/vdb/stat
    # The clock may just be writing its file.
    echo "$time ${ticks:-0} $read $written $received $sent"
    cat /tmp/wrong_* 2>/dev/null
    dmesg -r | grep '^<[0-4]>'
    exit 0
fi

ip link set lo up
ip addr add 10.77.0.2/24 dev eth0
ip link set eth0 up
until [ -b /dev/vdb ]; do sleep 0.1; done
mount -t ext4 -o ro,noload /dev/vda /mnt
mount --bind /dev /mnt/dev
mount --bind /proc /mnt/proc
mount --bind /sys /mnt/sys

while :; do i=$((${i:-0} + 1)); echo $i >/tmp/ticks; sleep 0.05; done &
{
    # Written and read back again and again, until SIGINT; only a fault ends it before.
    chroot /mnt fio --ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-64k --thread \
        --verify=crc32c --verify_fatal=1 --verify_backlog=64 --verify_state_save=0 --randrepeat=0 \
        --loops=1000000 --size=16M --name=saved --filename=/dev/vdb >/tmp/fio 2>&1
    echo "fio ended with status $?" >>/tmp/fio
    cp /tmp/fio /tmp/wrong_disk
} &
# Its many libraries take long to load, and longer beside this.
until grep -q 'Starting' /tmp/fio; do sleep 0.2; done
# One connection each way, for as long as the guest lives; at a rate that leaves time for the rest.
{
    iperf3 -c 10.77.0.1 --bidir -b 1M -t 86400 -i 0 >/tmp/iperf3 2>&1
    echo "iperf3 ended with status $?" >>/tmp/iperf3
    mv /tmp/iperf3 /tmp/wrong_network
} &
trap exit TERM
while :; do sleep 0.1; done
