#!/bin/sh
# Runs inside the lab (busybox sh): boots a stock kernel with two processors TURNS times without and TURNS times with a
# disk, under Ringside and under QEMU in turns. Nothing is tried twice. boots.py has the rest.
#
#   boots.sh RINGSIDE TURNS KERNEL INITRD ROOT_DISK
#
# Prints a line per boot, "boot VMM DISK OUTCOME SECONDS", and of a failed one what its console ends with.
set -u
ringside=$1 turns=$2 kernel=$3 initrd=$4 root=$5
. "$(dirname "$0")/common.sh"
limit=150  # seconds; a boot that comes to its end takes 20 to 80, by the load of the host

# outcome: of the guest that has ended, or that finish has ended.
outcome() {
    if grep -q '^guest=done' "$work/console" && [ $hung = no ] && [ "$code" = 0 ]; then echo done
    elif grep -q 'Kernel panic' "$work/console"; then echo panic
    elif [ $hung = yes ]; then echo hung
    elif [ "$code" = 4 ] || [ "$code" = 0 ]; then echo crashed  # QEMU ends at a triple fault with 0
    else echo "exit-$code"
    fi
}

# boot NAME VMM DISK
boot() {
    name=$1 vmm=$2 with_disk=$3 hung=no
    set -- --kernel "$kernel" --initrd "$initrd" --cpus 2 --memory 512M
    [ "$with_disk" = no ] ||
        set -- "$@" --disk "path=$root" --cmdline 'console=ttyS0 panic=-1 root=/dev/vda'
    begun=$(date +%s)
    start $vmm run "$@"
    finish $limit
    seen=$(outcome)
    echo "boot $name $with_disk $seen $(($(date +%s) - begun))"
    [ "$seen" = done ] || tail -n 12 "$work/console"
}

for turn in $(seq "$turns"); do
    for with_disk in no yes; do
        boot ringside "$ringside" $with_disk
        boot qemu "sh $(dirname "$0")/qemu.sh" $with_disk
    done
done
