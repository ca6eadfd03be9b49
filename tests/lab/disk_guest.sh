#!/bin/sh
# /autorun on the root disk of disk_linux.sh's guests. The kernel's command line chooses what to do:
# disk_checks=NAME,NAME. Prints lines "name=value"; one with the name guest_error is a failure.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
output=/run/output
root=$(awk '$2 == "/" {print $1}' /proc/mounts)
# Where the kernel's command line does not name others.
raw=${raw_disk:-/dev/vdb}
scratch=${scratch_disk:-/dev/vdb}

error() { echo "guest_error=$*"; }

# must COMMAND...: which has to succeed.
must() {
    "$@" >$output 2>&1 && return
    error "'$*' ended with status $?"
    tail -n 5 $output
}

# must_fail COMMAND...
must_fail() { if "$@" >$output 2>&1; then error "'$*' succeeded"; fi; }

checksum() { sha256sum | cut -d ' ' -f 1; }
# The page cache has no part in it.
read_disk() { dd if="$1" bs=1M skip="$2" count="$3" iflag=direct 2>/dev/null; }
zeros() { [ "$(read_disk "$@" | tr -d '\0' | wc -c)" = 0 ] || error "not zero: $*"; }

facts() {
    echo "cpus=$(nproc)"
    [ ! -e "/sys/block/${raw#/dev/}/serial" ] ||
        echo "serial=$(cat "/sys/block/${raw#/dev/}/serial")"
    echo "write_cache=$(tr -d ' ' <"/sys/block/${root#/dev/}/queue/write_cache")"
    echo "vectors=$(grep -c 'PCI-MSI.*virtio[0-9]*-req' /proc/interrupts)"
}

# Of the queues of an NVMe controller that is the guest's own, those whose interrupts came.
nvme_queues() {
    awk '/nvme[0-9]+q[1-9]/ && $2 + $3 > 0 {queues++} END {print "nvme_queues=" queues + 0}' \
        /proc/interrupts
}

# Both disks at once, 32 requests in flight on each of two processors; bytes 8M to 16M of the raw one.
check_deep() {
    must fio --ioengine=io_uring --direct=1 --iodepth=32 --rw=randwrite --bsrange=4k-64k --thread \
        --numjobs=2 --cpus_allowed=0-1 --cpus_allowed_policy=split --verify=crc32c --verify_fatal=1 \
        --randrepeat=0 --size=4M --output-format=terse --terse-version=3 --group_reporting \
        --name=deep --filename="$raw" --offset=8M --offset_increment=4M
    awk -F ';' '/;fio-/ {print "fio_" $3 "=" $5 "," $6 "," $47}' $output
    echo "deep_sum=$(read_disk "$raw" 8 8 | checksum)"
}

# Sizes that take one segment and sizes that take many.
check_verify() {
    must fio --ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-128k --thread \
        --verify=crc32c --verify_fatal=1 --randrepeat=0 --output-format=terse --terse-version=3 \
        --name=file --filename=/fio-data --size=2M --name=raw --filename="$raw" --size=4M
    # Fields 3, 5, 6 and 47: the job, its error, KiB read, KiB written.
    awk -F ';' '/;fio-/ {print "fio_" $3 "=" $5 "," $6 "," $47}' $output
    must dd if=/dev/urandom of=/data bs=64k count=32 conv=fsync
    must sync
    echo "file_sum=$(checksum </data)"
    echo "raw_sum=$(read_disk "$raw" 0 4 | checksum)"
}

# The disks that have a cache mode as their serial number: ext4, and raw from 8 MiB on.
check_modes() {
    for disk in /dev/vd[c-z]; do
        mode=$(cat "/sys/block/${disk#/dev/}/serial")
        echo "write_cache_$mode=$(tr -d ' ' <"/sys/block/${disk#/dev/}/queue/write_cache")"
        must mount -t ext4 "$disk" /mnt
        must fio --ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-128k \
            --thread --verify=crc32c --verify_fatal=1 --randrepeat=0 --output-format=terse \
            --terse-version=3 --name="${mode}_file" --filename=/mnt/fio-data --size=2M \
            --name="${mode}_raw" --filename="$disk" --offset=8M --size=4M
        awk -F ';' '/;fio-/ {print "fio_" $3 "=" $5 "," $6 "," $47}' $output
        must dd if=/dev/urandom of=/mnt/data bs=64k count=32 conv=fsync
        echo "file_sum_$mode=$(checksum </mnt/data)"
        echo "raw_sum_$mode=$(read_disk "$disk" 8 4 | checksum)"
        must umount /mnt
    done
}

# A disk that moves no bytes, each request taking its time.
check_delayed() {
    delayed=$(grep -lx delayed /sys/block/vd?/serial | cut -d / -f 4)
    must fio --ioengine=io_uring --direct=1 --iodepth=32 --rw=randrw --bs=4k --thread --numjobs=2 \
        --time_based --runtime=3 --output-format=terse --terse-version=3 --group_reporting \
        --name=delayed --filename="/dev/$delayed"
    awk -F ';' '/;fio-/ {print "fio_" $3 "=" $5 "," $6}' $output
}

# Written and verified while the VMM does to the disk what disk_changes.sh says, by serial number:
# full (no space for all of it), grows (into which this file system grows, too), swapped, and noticed.
disk_of() { grep -lx "$1" /sys/block/vd?/serial | cut -d / -f 4; }
sectors() { cat "/sys/block/$(disk_of "$1")/size"; }

# larger_than NAME SECTORS: once it is.
larger_than() {
    for _ in $(seq 300); do
        [ "$(sectors "$1")" -le "$2" ] || return 0
        sleep 0.1
    done
    error "$1 has $(sectors "$1") sectors"
}

# written NAME FILE OPTION...: 4 MiB, and read again.
written() {
    name=$1 file=$2
    shift 2
    fio --ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-64k --thread \
        --verify=crc32c --verify_fatal=1 --randrepeat=0 --size=4M --name="$name" --filename="$file" \
        "$@" >"/run/$name" 2>&1 || { error "fio's job $name"; tail -n 5 "/run/$name"; }
    echo "written_$name=yes"
}

check_changes() {
    written full "/dev/$(disk_of full)"
    grown=/dev/$(disk_of grows) before=$(sectors grows) noticed=$(sectors noticed)
    must mkfs.ext4 -F -q "$grown"
    must mount -t ext4 "$grown" /mnt
    written grows /mnt/data --loops=3 &
    written swapped "/dev/$(disk_of swapped)" --loops=6 --rate=2m &
    echo "changes=now"
    larger_than grows "$before"
    must resize2fs "$grown"
    echo "grown_blocks=$(df -k /mnt | awk 'END {print $2}')"
    larger_than noticed "$noticed"
    echo "noticed_sectors=$(sectors noticed)"
    wait
    must umount /mnt
    echo "swapped_sum=$(read_disk "/dev/$(disk_of swapped)" 0 4 | checksum)"
}

# The root is an overlay: what is removed gives its space back there.
check_overlaid() {
    must fio --ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-128k --thread \
        --verify=crc32c --verify_fatal=1 --randrepeat=0 --output-format=terse --terse-version=3 \
        --name=file --filename=/fio-data --size=4M
    awk -F ';' '/;fio-/ {print "fio_" $3 "=" $5 "," $6 "," $47}' $output
    must dd if=/dev/urandom of=/data bs=64k count=32 conv=fsync
    must dd if=/dev/urandom of=/removed bs=1M count=24 conv=fsync
    must rm /removed
    must sync
    must /usr/sbin/fstrim /
    check_committed
}

check_committed() { echo "file_sum=$(checksum </data)"; }

check_clock() { echo "clock=$(date +%s)"; }

# Until the power button is pressed: written and verified again and again, while a disk and the
# entropy device are reset by their driver.
check_driven() {
    button=$(grep -l '^Power Button$' /sys/class/input/event*/device/name | cut -d / -f 5)
    (dd if="/dev/input/$button" bs=24 count=1 of=/dev/null 2>/dev/null; : >/run/pressed) &
    resets=/run/resets
    while [ ! -e /run/pressed ]; do
        for device in /sys/block/vdc/device /sys/bus/virtio/drivers/virtio_rng/virtio*; do
            [ -e "$device" ] || continue
            driver=$(readlink -f "$device/driver") name=$(basename "$(readlink -f "$device")")
            echo "$name" >"$driver/unbind" && echo "$name" >"$driver/bind" && echo "$name" >>$resets
        done
        sleep 0.2
    done &
    jobs=0
    while [ ! -e /run/pressed ]; do
        must fio --ioengine=io_uring --direct=1 --iodepth=16 --rw=randwrite --bsrange=4k-64k --thread \
            --numjobs=2 --cpus_allowed=0-1 --cpus_allowed_policy=split --verify=crc32c \
            --verify_fatal=1 --randrepeat=0 --size=4M --name=driven --filename="$raw" \
            --offset_increment=4M
        jobs=$((jobs + 1))
    done
    wait
    echo "driven_jobs=$jobs"
    echo "driven_resets=$(wc -l <$resets)"
}

# Requests at random moments, one at a time: one that is never noticed would hold up its job for ever.
check_pauses() {
    must fio --ioengine=io_uring --direct=1 --iodepth=1 --rw=randread --bs=4k --thread \
        --time_based --runtime=4 --randrepeat=0 --filename=/dev/vdb --output-format=terse \
        --terse-version=3 --name=poisson --rate_iops=1000 --rate_process=poisson \
        --name=pauses --thinktime=100us --thinktime_blocks=3
    awk -F ';' '/;fio-/ {print "fio_" $3 "=" $5 "," $6}' $output
}

# /dev/vdc is read-only, with a file on its ext4.
check_readonly() {
    echo "readonly=$(cat /sys/block/vdc/ro)"
    must_fail dd if=/dev/zero of=/dev/vdc bs=4k count=1 oflag=direct
    must_fail /usr/sbin/blkdiscard /dev/vdc
    must mount -t ext4 -o ro /dev/vdc /mnt
    echo "readonly_sum=$(checksum </mnt/data)"
    must_fail mount -o remount,rw /mnt
    must_fail touch /mnt/new
    must umount /mnt
}

# $scratch: what it ends as is checked from outside: ext4, and nearly nothing allocated.
# Full paths, because busybox's shell prefers its own programs.
check_scratch() {
    must dd if=/dev/urandom of="$scratch" bs=1M count=12 oflag=direct
    kept=$(read_disk "$scratch" 8 4 | checksum)
    must /usr/sbin/blkdiscard --offset 0 --length 4M "$scratch"
    must /usr/sbin/blkdiscard --zeroout --offset 4M --length 4M "$scratch"
    zeros "$scratch" 0 8
    [ "$(read_disk "$scratch" 8 4 | checksum)" = "$kept" ] || error "the neighbour's data changed"
    must /usr/sbin/blkdiscard "$scratch"
    zeros "$scratch" 8 4
    must mkfs.xfs -f -q "$scratch"
    must xfs_repair -n "$scratch"
    must mkfs.ext4 -F -q "$scratch"
    must mount -t ext4 "$scratch" /mnt
    must dd if=/dev/urandom of=/mnt/data bs=1M count=24 conv=fsync
    must rm /mnt/data
    must sync
    must /usr/sbin/fstrim -v /mnt
    echo "trimmed=$(sed 's/.*(\([0-9]*\) bytes.*/\1/' $output)"
    must umount /mnt
}

echo "guest=started"
facts
for check in $(echo "$disk_checks" | tr ',' ' '); do check_$check; done
nvme_queues
dmesg -r | grep '^<[0-4]>'
echo "guest=done"
