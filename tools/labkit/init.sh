#!/bin/busybox sh
# L1's /init: loads the modules, finds the lab's disk and goes on there, in run.sh.
# Any failure ends process 1, and with it L1: the lab then shows the end of L1's kernel log.
set -e
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev

for module in /modules/*.ko; do
	busybox insmod "$module" || {
		echo "lab: cannot load module ${module##*/}"
		exit 1
	}
done

# By its serial number, because drives given with --qemu-arg may come first.
find_disk() {
	for block in /sys/block/vd*; do
		[ -e "$block/serial" ] && read -r serial <"$block/serial" || true
		[ "$serial" = ringside-lab ] && disk=/dev/${block##*/} && return 0
	done
	return 1
}
tries=0
until find_disk; do
	tries=$((tries + 1))
	[ "$tries" -lt 300 ] || { echo "lab: no disk with serial number ringside-lab"; exit 1; }
	busybox usleep 10000
done

busybox mkdir /root/disk
# noinit_itable: what nobody will ever read need not be zeroed in the background.
busybox mount -t ext4 -o noatime,noinit_itable "$disk" /root/disk
for directory in proc sys dev; do
	busybox mkdir -p /root/disk/$directory
	busybox mount --move /$directory /root/disk/$directory
done
exec busybox switch_root /root/disk /.lab/run.sh
