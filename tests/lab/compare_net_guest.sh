#!/bin/sh
# /autorun of compare_net.sh's guests: an iperf3 that serves, on the address next to the host's. Prints how
# many interrupts its network has had until now, as "interrupts-WORD=N", for each WORD that is typed; ends
# with "end".
set -u
interrupts() {
    awk '$NF ~ /^virtio[0-9]*-(in|out)put/ { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i }
        END { print sum + 0 }' /proc/interrupts
}

interface=$(ls /sys/class/net | grep -v -e lo -e sit)
ip link set lo up
ip addr add 10.77.0.2/24 dev "$interface"
ip link set "$interface" up
iperf3 -s -J >/dev/null 2>&1 &
echo "kernel=$(uname -r)"
echo "pairs=$(ls -d /sys/class/net/$interface/queues/rx-* | wc -l)"
echo "guest=started"
while read -r word && [ "$word" != end ]; do
    echo "interrupts-$word=$(interrupts)"
done </dev/ttyS0
echo "guest=done"
