#!/bin/sh
# Runs inside the lab (busybox sh): boots each of GUESTS with two processors TURNS times, under Ringside and under QEMU
# in turns. A guest is "bare", of a kernel and an initramfs alone, "disk", which has a disk, too, or "debian", which is a
# whole one on a disk for each VMM, ROOT_DISK1 and 2. Nothing is tried twice. boots.py has the rest.
#
#   boots.sh RINGSIDE TURNS GUESTS LIMIT_S KERNEL INITRD ROOT_DISK
#
# Prints a line per boot, "boot VMM GUEST OUTCOME SECONDS", and of a failed one what its console ends with.
set -u
ringside=$1 turns=$2 guests=$3 limit=$4 kernel=$5 initrd=$6 root=$7
. "$(dirname "$0")/common.sh"

# outcome: of the guest that has ended, or that finish has ended.
outcome() {
    if grep -q '^guest=done' "$work/console" && [ $hung = no ] && [ "$code" = 0 ]; then echo done
    elif grep -q 'Kernel panic' "$work/console"; then echo panic
    elif [ $hung = yes ]; then echo hung
    elif [ "$code" = 4 ] || [ "$code" = 0 ]; then echo crashed  # QEMU ends at a triple fault with 0
    else echo "exit-$code"
    fi
}

# tell_of_hung: who of the VMM's threads does what, and whether the guest's processors still leave it.
tell_of_hung() {
    mount -t debugfs none /sys/kernel/debug 2>/dev/null
    for look in 1 2; do
        for task in /proc/$pid/task/*; do
            echo "$(cat "$task/comm"): $(sed 's/.*) \(.\).*/\1/' "$task/stat") in $(cat "$task/wchan")," \
                "$(cut -d ' ' -f 1 "$task/schedstat") ns"
        done
        (cd /sys/kernel/debug/kvm/$pid-* && grep -H . exits halt_exits halt_wakeup irq_injections irq_exits)
        sleep 2
    done
}

# boot NAME NUMBER VMM GUEST
boot() {
    name=$1 number=$2 vmm=$3 guest=$4 hung=no
    set -- --kernel "$kernel" --initrd "$initrd" --cpus 2
    case $guest in
        bare) set -- "$@" --memory 512M ;;
        disk) set -- "$@" --memory 512M --disk "path=$root" --cmdline 'console=ttyS0 panic=-1 root=/dev/vda' ;;
        debian) set -- "$@" --memory 1G --disk "path=$root$number" --cmdline 'console=ttyS0 panic=-1 root=/dev/vda rw' ;;
    esac
    begun=$(date +%s)
    start $vmm run "$@"
    wait_until "$limit" false
    hanging=
    ! kill -0 $pid 2>/dev/null || hanging=$(tell_of_hung 2>&1)
    finish 1
    seen=$(outcome)
    echo "boot $name $guest $seen $(($(date +%s) - begun))"
    [ "$seen" = done ] || { tail -n 40 "$work/console"; echo; echo "$hanging"; }
}

for turn in $(seq "$turns"); do
    for guest in $guests; do
        boot ringside 1 "$ringside" "$guest"
        boot qemu 2 "sh $(dirname "$0")/qemu.sh" "$guest"
    done
done
