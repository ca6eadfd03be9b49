#!/bin/sh
# /autorun of net_linux.sh's guests: brings up its interfaces as the kernel's command line says, and
# moves bytes over them. Prints lines "name=value". The first network is a tap with the host at
# 10.77.0.1, the second is passt's, whose DHCP gives it its address.
word() { sed -n "s/.*\<$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
interfaces=$(ls /sys/class/net | grep -v -e lo -e sit)
set -- $interfaces
echo "guest_interfaces=$*"
echo "guest_mac=$(cat /sys/class/net/$1/address) mtu=$(cat /sys/class/net/$1/mtu)"
mib=$(word net_mib)
mkdir -p /tmp

# Who has the key may come in, on both.
mkdir -p /etc/dropbear /root/.ssh
echo 'root:x:0:0::/root:/bin/sh' >/etc/passwd
echo "ssh-ed25519 $(word ssh_key)" >/root/.ssh/authorized_keys
dropbear -R -s

ip link set lo up
ip addr add 10.77.0.2/24 dev "$1"
ip link set "$1" up
# One after the other, as the host's answers are not there before its end of the link is.
for try in 1 2 3 4 5 6 7 8 9 10; do
    ping -c 1 -W 1 10.77.0.1 >/dev/null && break
done
ping -c 20 -i 0.05 -q 10.77.0.1 | sed -n 's/.*, \([0-9]*\)% packet loss.*/ping_lost=\1/p'
# As many bytes out as in, each with its checksum, and none of them kept. busybox's nc ends with what it
# reads from the network, so whoever receives has an input that does not end.
mkfifo /tmp/sent
sha256sum </tmp/sent >/tmp/sent.sum &
head -c $((mib << 20)) /dev/urandom | tee /tmp/sent | nc 10.77.0.1 5001
wait $!
echo "sent_sum=$(cut -d ' ' -f 1 /tmp/sent.sum)"
echo "received_sum=$(nc 10.77.0.1 5002 </dev/console | sha256sum | cut -d ' ' -f 1)"
echo "guest=transferred"

# The host pulls the cable and plugs it in again.
if [ "$(word net_link)" = yes ]; then
    carrier=/sys/class/net/$1/carrier
    until [ "$(cat $carrier)" = 0 ]; do sleep 0.05; done
    echo "guest=sees that the link is down"
    until [ "$(cat $carrier)" = 1 ]; do sleep 0.05; done
    ping -c 5 -i 0.1 -W 10 -q 10.77.0.1 | sed -n 's/.*, \([0-9]*\)% packet loss.*/replugged_lost=\1/p'
fi

if [ -n "${2:-}" ]; then
    /sbin/dhcp "$2"
    echo "dhcp_address=$(ip -4 -o addr show "$2" | awk '{sub("/.*", "", $4); print $4}')"
fi
if [ "$(word net_link)" = yes ]; then
    echo "guest=waits for visitors"
    read -r -t 150 _ </dev/ttyS0
fi
echo "guest=done"
