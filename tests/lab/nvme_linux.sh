#!/bin/sh
# Runs inside the lab (busybox sh; started by nvme_lab.py, which checks the images and QEMU's trace
# afterwards): stock Linux on namespaces that Ringside drives itself, or with the controller given to
# it whole, Ringside killed while it does, and Ringside refusing what cannot be.
#
#   nvme_linux.sh GROUP RINGSIDE KERNEL INITRD [WAY]
#
# GROUP is one of the functions group_... below. WAY is how Ringside gets at the namespaces: nvme://
# (default); passthrough, through L1's kernel; or kernel, as that kernel's block devices: what fails
# then too is not Ringside's. The lab needs common.sh and nvme.sh.
set -u
group=$1 ringside=$2 kernel=$3 initrd=$4 way=${5:-nvme://}
case $way in
    nvme://) driver=vfio-pci ;;
    *) driver=nvme ;;
esac
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/nvme.sh"

# disk NUMBER: of a namespace.
disk() {
    case $way in
        nvme://) echo "nvme://$nvme/$1" ;;
        passthrough) echo "/dev/ng0n$1" ;;
        *) echo "path=/dev/nvme0n$1" ;;
    esac
}

# Of the process that `start` makes for it: $pid is Ringside's.
ringside_run() {
    exec $ringside run --kernel "$kernel" --initrd "$initrd" "$@"
}

# Two queues on two I/O threads are two queue pairs of the controller's; of the kernel's driver, those
# of the threads' processors.
two_queues() {
    ringside_run --cpus 2 --iothread id=a,cpu=0 --iothread "id=b,cpu=$(($(nproc) - 1))" "$@"
}

end_here() { [ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }; }

guest_on_disks() {
    two_queues --memory 512M --stats json \
        --cmdline "console=ttyS0 quiet panic=-1 root=/dev/vda scratch_disk=/dev/vdc \
disk_checks=$checks" \
        --disk "$(disk 1),queues=2,iothreads=a+b" \
        --disk "$(disk 2),queues=2,iothreads=a+b,serial=raw-1" \
        --disk "$(disk 3),queues=2,iothreads=a+b"
}

guest_with_controller() {
    ringside_run --cpus 2 --memory 512M --stats json --vfio $nvme \
        --cmdline "console=ttyS0 quiet panic=-1 root=/dev/nvme0n1 raw_disk=/dev/nvme0n2 \
disk_checks=$checks"
}

run_guest() {
    code=none
    if start_until 'guest=started' $guest; then
        finish 180
    else
        fail "the guest did not start"
    fi
}

# boot GUEST CHECKS: a function guest_..., and what disk_guest.sh does on the root disk, a raw one and
# a scratch one.
boot() {
    guest=$1 checks=$2
    give "$driver" || fail "the controller does not take the driver $driver"
    to_the_end run_guest
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    grep -q '^guest=done' "$work/console" || fail "the guest did not come to its end"
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
    warnings=$(warnings_in <"$work/console")
    [ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
    # enters: calls for a ring of /dev/ng0n1 beside the I/O thread's, which is not to be there.
    for count in enters errors resent timeouts resets stray_completions lost_interrupts; do
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

group_verify() { boot guest_on_disks verify,deep,scratch; }

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
    for kill in $(seq 6); do
        # Little memory: all of it is pinned at each start, which takes the lab seconds a GiB.
        set -- --memory 128M --disk "$(disk 1),queues=2,iothreads=a+b" \
            --cmdline "console=ttyS0 quiet panic=-1 records=$flushed"
        # While it sets up the controller, too.
        start two_queues "$@"
        kill_after "$(at_random 500)"
        start_until 'records=checked' two_queues "$@" || fail "no start after kill $kill"
        wait_until 20 grep -q 'flushed=[0-9]*;' "$work/console" || fail "the guest flushes nothing"
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

# refused TEXT... -- DISK-OR-ADDRESS...: exit code 2 and one line, with each TEXT in it; the
# controller stays with its driver. $as: what Ringside is started by.
as=''
refused() {
    : >"$work/texts"
    while [ "$1" != -- ]; do
        echo "$1" >>"$work/texts"
        shift
    done
    shift
    for each in "$@"; do
        case $each in
            */*) set -- "$@" --disk "$each" ;;
            *) set -- "$@" --vfio "$each" ;;
        esac
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
    start_until 'flushed=' ringside_run --memory 128M --disk "$(disk 1)" \
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

# In use by the host, by Ringside and by nobody. Namespace 2 has metadata.
group_passthrough_misuse() {
    generic=/dev/ng0n1 block=/dev/nvme0n1
    refused "cannot open disk '/dev/ng0n9'" 'ls /dev/ng*' -- /dev/ng0n9
    refused "'/dev/nvme0' is an NVMe controller" "such as $generic" -- /dev/nvme0
    refused "'/dev/nvme0' is an NVMe controller" -- path=/dev/nvme0
    refused "'$block' is a block device" "path=$block" "or $generic for" -- $block
    refused "'/dev/null' is no NVMe namespace" "such as $generic" -- path=/dev/null
    refused "namespace 2 has blocks of 2^9 bytes with 8 of metadata" -- /dev/ng0n2
    in_use='unmount it, end what uses it, or use readonly=on'
    refused "cannot open '$block'" "$in_use" -- $generic path=$generic
    refused "'$block'" "$in_use" -- $generic path=$block
    refused 'is in use by another process, or twice' -- $generic,readonly=on path=$block

    mkdir -p /mnt
    { mke2fs -F $block >/dev/null && mount -t ext4 $block /mnt; } || fail "no mount"
    refused "cannot open '$block'" "$in_use" -- $generic
    umount /mnt

    usable
    refused "cannot open '$block'" "$in_use" -- $generic
    ! mount -t ext4 $block /mnt 2>/dev/null || fail "the host mounts what a guest writes to"
    kill_after 0
    usable
    kill_after 0
    end_here
}

# Linux 6.1 wants the capability, later ones rights on the files.
group_passthrough_rights() {
    generic=/dev/ng0n1 block=/dev/nvme0n1
    chmod 666 /dev/kvm
    as='/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups'
    refused "cannot open disk '$generic'" CAP_SYS_ADMIN -- $generic
    chown 1000 $generic
    refused "cannot open '$block'" CAP_SYS_ADMIN -- $generic
    chown 1000 $block
    case $(uname -r) in
        6.1.*) refused "cannot identify disk '$generic'" CAP_SYS_ADMIN -- $generic ;;
        *)
            as_root=$ringside
            ringside="$as $ringside"
            usable
            kill_after 0
            ringside=$as_root
            ;;
    esac
    as=''
    [ ! -e /proc/sys/kernel/io_uring_disabled ] || {
        echo 2 >/proc/sys/kernel/io_uring_disabled
        refused 'io_uring cannot be used' kernel.io_uring_disabled -- $generic
    }
    end_here
}

# The controller is the guest's: its own driver, queues and interrupts. First of a guest that is cut
# off with all of its queues at work.
group_assign() {
    give vfio-pci || fail "the controller does not take vfio-pci"
    checks=deep,deep,deep,deep
    start_until 'fio_deep=' guest_with_controller || fail "the guest does not start"
    kill_after 300
    boot guest_with_controller verify,deep
    grep '"max_vectors": [1-9]' "$work/console" || fail "Ringside counts no vectors"
    grep '"register_exits"' "$work/console"
    end_here
}

# Of the devices of L1: its host bridge, and one without MSI-X.
bridge=0000:00:00.0 no_msix=0000:00:06.0

group_assign_misuse() {
    group_file=/dev/vfio/$(basename "$(readlink /sys/bus/pci/devices/$nvme/iommu_group)")
    refused "'$nvme' has the driver 'nvme'" "tools/nvme-bind $nvme" -- $nvme
    refused "'$no_msix' has the driver 'virtio-pci'" "driverctl set-override $no_msix vfio-pci" \
        -- $no_msix
    refused "no PCI device '0000:00:14.0'" -- 0000:00:14.0
    refused "write it as '$nvme'" -- 00:04.0
    refused "'$bridge' is a bridge" -- $bridge
    give vfio-pci $pair || fail "$pair does not take vfio-pci"
    refused "'$pair' shares IOMMU group" "'$pair_other' (driver virtio-pci)" -- $pair
    give vfio-pci $no_msix || fail "$no_msix does not take vfio-pci"
    refused "'$no_msix' has no MSI-X" -- $no_msix

    give vfio-pci || fail "the controller does not take vfio-pci"
    refused "'$nvme' is passed through twice" -- $nvme $nvme
    refused "'$nvme' cannot be passed through and be disk0 too" "nvme://$nvme/2" -- nvme://$nvme/2 $nvme
    chmod 666 /dev/kvm
    as='/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups'
    refused "cannot open '$group_file'" "'chown USER $group_file'" -- $nvme
    chown 1000 "$group_file"
    refused 'limit on locked memory' 'ulimit -l' -- $nvme
    as=''
    usable
    refused "'$nvme' is in use: process $pid" -- $nvme
    kill_after 0
    give_to_kernel || fail "the kernel cannot have the controller back"
    end_here
}

# In a lab whose kernel has no IOMMU vfio-pci refuses the device.
group_no_iommu() {
    give vfio-pci 2>/dev/null && fail "vfio-pci takes a device that no IOMMU guards"
    refused "'$nvme' is behind no IOMMU" intel_iommu=on -- nvme://$nvme/1
    refused "'$nvme' is behind no IOMMU" intel_iommu=on -- $nvme
}

dmesg -c >/dev/null
group_"$group"
