#!/bin/busybox sh
# /init of an L2 guest: runs /autorun if there is one, else a shell; then powers off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=${TERM:-linux}
/bin/busybox --install -s 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm

for module in /modules/*.ko; do
	[ ! -e "$module" ] || insmod "$module" || echo "init: cannot load ${module##*/}"
done

if [ -e /autorun ]; then
	/autorun
else
	# Kernel messages that come later would run into what is being typed.
	dmesg -n 4
	PS1='ringside# ' setsid cttyhack sh
fi
poweroff -f
