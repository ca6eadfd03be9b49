#!/bin/sh
# dhcp INTERFACE: brings it up with the address, the route and the name servers that DHCP gives it. Ends
# with 1 if nobody answers within five seconds. udhcpc calls this script, too, with what it has learnt.
case $1 in
bound)
	ip addr add "$ip/$mask" dev "$interface"
	[ -z "$router" ] || ip route add default via "${router%% *}" dev "$interface"
	for server in $dns; do echo "nameserver $server"; done >/etc/resolv.conf
	;;
deconfig | renew | leasefail | nak) ;;
*)
	ip link set lo up
	ip link set "$1" up
	udhcpc -i "$1" -n -q -f -t 5 -T 1 -s "$0" >/dev/null 2>&1
	;;
esac
