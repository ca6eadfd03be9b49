#!/bin/sh
# Runs inside the lab (busybox sh; started by nvme_lab.py, which checks the images and QEMU's trace
# afterwards): stock Linux on namespaces that Ringside drives itself, Ringside killed while it does,
# and Ringside refusing what cannot be.
#
#   nvme_linux.sh GROUP RINGSIDE KERNEL INITRD [DRIVER]
#
# GROUP is one of the functions group_... at the end. With DRIVER nvme the disks are those of L1's
# kernel instead: what fails then too is not Ringside's driver. The lab needs common.sh and nvme.sh.
set -u
group=$1 ringside=$2 kernel=$3 initrd=$4 driver=${5:-vfio-pci}
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/nvme.sh"

# disk NUMBER: of a namespace.
disk() {
    case $driver in
        vfio-pci) echo "nvme://$nvme/$1" ;;
        *) echo "path=/dev/nvme0n$1" ;;
    esac
}

# Of the process that `start` makes for it: $pid is Ringside's.
ringside_run() {
    exec $ringside run --kernel "$kernel" --initrd "$initrd" "$@"
}

# Two queues on two I/O threads are two queue pairs of the controller's.
two_queues() {
    ringside_run --cpus 2 --iothread id=a --iothread id=b "$@"
}

end_here() { [ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }; }

run_guest() {
    code=none
    if start_until 'guest=started' two_queues --memory 512M --stats json \
        --cmdline "console=ttyS0 quiet panic=-1 root=/dev/vda disk_checks=$checks" \
        --disk "$(disk 1),queues=2,iothreads=a+b" \
        --disk "$(disk 2),queues=2,iothreads=a+b,serial=raw-1"; then
        finish 90
    else
        fail "the guest did not start"
    fi
}

# boot CHECKS: of disk_guest.sh, on the root disk and a raw one.
boot() {
    checks=$1
    give "$driver" || fail "the controller does not take the driver $driver"
    to_the_end run_guest
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    grep -q '^guest=done' "$work/console" || fail "the guest did not come to its end"
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
    warnings=$(warnings_in <"$work/console")
    [ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
    for count in errors resent timeouts resets stray_completions lost_interrupts; do
        ! grep "\"$count\": [1-9]" "$work/console" || fail "Ringside counts $count"
    done
    give_to_kernel || fail "the kernel cannot have the controller back"
    warnings=$(dmesg -r | warnings_in |
        grep -v -e 'kvm .* Unhandled' -e 'kvm: SMP vm created on host with unstable TSC')
    [ -z "$warnings" ] || fail "L1's kernel warns: $warnings"
    end_here
    # For nvme_lab.py.
    sed -n 's/\r$//; /^[a-z_]*=/p' "$work/console"
}

group_verify() { boot verify,deep; }
group_features() { boot scratch; }

# kill_after MILLISECONDS: a power cut, as far as the VMM is concerned.
kill_after() {
    usleep $(($1 * 1000))
    kill -9 $pid 2>/dev/null
    finish
}

# at_random LIMIT: a number below it.
at_random() { echo $((RANDOM * $1 / 32768)); }

group_kill() {
    give "$driver" || fail "the controller does not take the driver $driver"
    flushed=0
    for kill in $(seq 10); do
        # Little memory: all of it is pinned at each start, which takes the lab seconds a GiB.
        set -- --memory 128M --disk "$(disk 1),queues=2,iothreads=a+b" \
            --cmdline "console=ttyS0 quiet panic=-1 records=$flushed"
        # While it sets up the controller, too.
        start two_queues "$@"
        kill_after "$(at_random 500)"
        start_until 'records=checked' two_queues "$@" || fail "no start after kill $kill"
        wait_for 'flushed=' 20 || fail "the guest flushes nothing"
        kill_after "$(at_random 1500)"
        ! grep '^guest_error=' "$work/console" || fail "after kill $kill"
        end_here
        before=$flushed
        flushed=$(sed -n 's/^flushed=\([0-9]*\);.*/\1/p' "$work/console" | tail -n 1)
        echo "kill $kill: $before records were there, then $flushed"
        # A guest that wrote on at another record than the last would leave a gap.
        [ "$flushed" -gt "$before" ] || fail "no more records"
    done
    give_to_kernel || fail "the kernel cannot have the controller back"
    end_here
    echo "flushed=$flushed"
}

# refused TEXT... -- DISK...: exit code 2 and one line, with each TEXT in it; the controller stays
# with its driver. $as: what Ringside is started by.
as=''
refused() {
    : >"$work/texts"
    while [ "$1" != -- ]; do
        echo "$1" >>"$work/texts"
        shift
    done
    shift
    for disk in "$@"; do
        set -- "$@" --disk "$disk"
        shift
    done
    before=$(driver_of $nvme)
    $as timeout 60 "$ringside" run --kernel "$kernel" "$@" </dev/null >"$work/refusal" 2>&1
    code=$?
    [ $code = 2 ] || fail "exit code $code, expected 2"
    [ "$(grep -c '' "$work/refusal")" = 1 ] || fail "not one line"
    grep -q '^ringside: error: ' "$work/refusal" || fail "no error"
    while read -r text; do
        grep -qF -- "$text" "$work/refusal" || fail "nothing of '$text'"
    done <"$work/texts"
    [ "$(driver_of $nvme)" = "$before" ] || fail "the driver is now '$(driver_of $nvme)'"
    cat "$work/refusal"
    end_here
}

# usable: by the next one at once. A guest that reads and flushes shows it.
usable() {
    start_until 'flushed=' ringside_run --memory 128M --disk "nvme://$nvme/1" \
        --cmdline "console=ttyS0 quiet panic=-1 records=0" || fail "the controller cannot be used"
    end_here
}

# Two functions of one device are in one IOMMU group; the other's driver is L1's.
pair=0000:00:05.0 pair_other=0000:00:05.1

group_misuse() {
    url=nvme://$nvme
    group_file=/dev/vfio/$(basename "$(readlink /sys/bus/pci/devices/$nvme/iommu_group)")
    refused "'$nvme' has the driver 'nvme'" "tools/nvme-bind $nvme" -- $url/1
    dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null ||
        fail "the kernel has lost its controller"
    refused "no PCI device '0000:00:14.0'" -- nvme://0000:00:14.0/1
    refused "write it as '$nvme'" -- nvme://00:04.0/1
    give vfio-pci $pair || fail "$pair does not take vfio-pci"
    refused "'$pair' shares IOMMU group" "'$pair_other' (driver virtio-pci)" -- nvme://$pair/1

    give vfio-pci || fail "the controller does not take vfio-pci"
    refused "disk0 and disk1 are both $url/1" -- $url/1 $url/1
    refused $nvme 'namespace 9' -- $url/9
    chmod 666 /dev/kvm
    as='/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups'
    refused "cannot open '$group_file'" "'chown USER $group_file'" -- $url/1
    chown 1000 "$group_file"
    refused 'limit on locked memory' 'ulimit -l' -- $url/1
    as=''

    usable
    refused "'$nvme' is in use: process $pid" -- $url/1
    kill_after 0
    usable
    kill_after 0
    give_to_kernel || fail "the kernel cannot have the controller back"
    end_here
}

# In a lab whose kernel has no IOMMU vfio-pci refuses the device.
group_no_iommu() {
    give vfio-pci 2>/dev/null && fail "vfio-pci takes a device that no IOMMU guards"
    refused "'$nvme' is behind no IOMMU" intel_iommu=on -- nvme://$nvme/1
}

dmesg -c >/dev/null
group_"$group"
