#!/bin/busybox sh
# Process 1 of an L2 guest: /init of its initramfs and /sbin/init of its disk. With root=DEVICE on
# the kernel's command line the former only loads the modules and goes on to the latter. Runs
# /autorun if there is one, else a shell; then powers off. Before that /sbin/ringside-agent is started if it
# is there, and with dhcp=INTERFACE on the command line that is set up by /sbin/dhcp.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=${TERM:-linux}
[ -e /bin/mount ] || /bin/busybox --install -s 2>/dev/null
if [ ! -e /proc/1 ]; then
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount -t devtmpfs devtmpfs /dev
fi

for module in /modules/*.ko; do
	[ ! -e "$module" ] || insmod "$module" || echo "init: cannot load ${module##*/}"
done

root=$(sed -n 's/.*\broot=\([^ ]*\).*/\1/p' /proc/cmdline)
if [ "$0" = /init ] && [ -n "$root" ]; then
	tries=0
	# A driver may look for its devices after insmod has ended.
	until [ -b "$root" ] || [ $tries = 100 ]; do
		tries=$((tries + 1))
		usleep 20000
	done
	if mount -t ext4 -o noatime "$root" /mnt; then
		for directory in proc sys dev; do mount --move /$directory /mnt/$directory; done
		exec switch_root /mnt /sbin/init
	fi
	echo "init: cannot mount $root; this is still the initramfs"
fi

mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
interface=$(sed -n 's/.*\bdhcp=\([^ ]*\).*/\1/p' /proc/cmdline)
[ -z "$interface" ] || dhcp "$interface" || echo "init: $interface gets no address by DHCP"
[ ! -e /sbin/ringside-agent ] || ringside-agent &

if [ -e /autorun ]; then
	/autorun
else
	# Kernel messages that come later would run into what is being typed.
	dmesg -n 4
	PS1='ringside# ' setsid cttyhack sh
fi
sync
[ -z "$root" ] || mount -o remount,ro / || echo "init: something still writes to $root"
poweroff -f
