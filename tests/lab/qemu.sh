#!/bin/sh
# Runs inside the lab (tools/lab --peer-qemu): QEMU behind those options of 'ringside run' that
# the other scripts here use. Give it to them as RINGSIDE to learn whether the guest, the lab or
# Ringside is the cause of something. A disk gets the same device, queues, cache mode and engine.
#
# One option more, for comparisons: with --iothread poll-max-ns=N, or others of QEMU's object iothread,
# the disks are served by such a thread instead of the main loop.
set -u
kernel='' initrd='' cmdline='console=ttyS0 panic=-1' cpus=1 memory=512M number=0 iothread='' assigned='' net=''

# value OPTIONS NAME DEFAULT: of the comma-separated NAME=VALUE in OPTIONS.
value() {
    text=$(printf '%s\n' "$1" | tr ',' '\n' | sed -n "s/^$2=//p")
    echo "${text:-$3}"
}

# disk_arguments DISK_OPTIONS: what QEMU gets for it, one a line.
disk_arguments() {
    id=disk$number
    case $1 in
        # There is no page cache to keep out; with cache=none QEMU switches the controller's write
        # cache off, in a way that its own controller refuses.
        nvme://*) backend="file=${1%%,*},cache=writeback" ;;
        *) backend=$(file_backend "$1") ;;
    esac
    serial=$(value "$1" serial "")
    echo -drive
    echo "$backend,if=none,id=$id,format=raw,discard=unmap,readonly=$(value "$1" readonly off)"
    echo -device
    echo "virtio-blk-pci,disable-legacy=on,drive=$id,num-queues=$(value "$1" queues "$cpus")" \
        "${serial:+,serial=$serial}${iothread:+,iothread=disks}" | tr -d ' '
}

# file_backend DISK_OPTIONS: of -drive.
file_backend() {
    cache=$(value "$1" cache none)
    aio=$(value "$1" aio auto)
    [ "$aio" != auto ] || aio=io_uring
    forbidden=$(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null)
    if [ "${forbidden:-0}" != 0 ] && [ "$aio" = io_uring ]; then
        echo "warning: io_uring cannot be used: the lab forbids it" >&2
        aio=threads
        case $cache in none | directsync) aio=native ;; esac
    fi
    echo "file=$(value "$1" path ""),cache=$cache,aio=$aio"
}

# net_arguments NET_OPTIONS: for a tap that QEMU makes.
net_arguments() {
    queues=$(value "$1" queues 1)
    echo "-netdev tap,id=net0,ifname=$(value "$1" tap ""),script=no,downscript=no," \
        "queues=$queues,vhost=$(value "$1" vhost off)" | tr -d ' ' | sed 's/^-netdev/& /'
    echo "-device virtio-net-pci,disable-legacy=on,romfile=,netdev=net0,mq=on,vectors=$((2 * queues + 2))"
}

[ "$1" = run ] || { echo "qemu.sh: only 'run'" >&2; exit 2; }
shift
disks=''
while [ $# -gt 0 ]; do
    case $1 in
        --kernel) kernel=$2 ;;
        --initrd) initrd=$2 ;;
        --cmdline) cmdline=$2 ;;
        --cpus) cpus=$2 ;;
        --memory) memory=$2 ;;
        --disk) disks="$disks $2" ;;
        --vfio) assigned="$assigned -device vfio-pci,host=$2" ;;
        --iothread) iothread=$2 ;;
        --net) net=$(net_arguments "$2") ;;
        --entry) ;;
        *) echo "qemu.sh: '$1' is not known here" >&2; exit 2 ;;
    esac
    shift 2
done
set -- ${iothread:+-object "iothread,id=disks,$iothread"}
for disk in $disks; do
    set -- "$@" $(disk_arguments "$disk")
    number=$((number + 1))
done
exec qemu-system-x86_64 -nodefaults -no-reboot -display none -serial stdio \
    -name guest,debug-threads=on \
    -M q35,hpet=off -accel kvm -cpu host -smp "$cpus" -m "$memory" \
    -kernel "$kernel" -initrd "$initrd" -append "$cmdline" \
    -device virtio-rng-pci,disable-legacy=on $assigned $net "$@"
