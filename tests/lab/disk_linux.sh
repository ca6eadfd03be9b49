#!/bin/sh
# Runs inside the lab (busybox sh): boots stock kernels from an ext4 root on a virtio disk, lets
# disk_guest.sh write and verify in there, and looks at the images from outside afterwards.
#
#   disk_linux.sh GROUP RINGSIDE ROOT_DISK VERSION:KERNEL:INITRD...
#
# GROUP is one of the functions group_... at the end. Guests run the first kernel, except where a
# group wants each. The lab needs common.sh and the programs e2fsck, debugfs and mke2fs too.
set -u
group=$1 ringside=$2 root=$(readlink -f "$3")  # as in /proc
shift 3
kernels=$*
. "$(dirname "$0")/common.sh"
raw=$work/raw.img readonly_image=$work/readonly.img
MIB=1048576

# flags FILE: with which the VMM has it open, in octal (fcntl.h).
flags() {
    for entry in /proc/$pid/fd/*; do
        [ "$(readlink "$entry")" != "$1" ] ||
            sed -n 's/^flags:\t*//p' "/proc/$pid/fdinfo/${entry##*/}"
    done | head -n 1
}

# check_mode CACHE: what the mode means, seen from outside and by the guest.
check_mode() {
    direct=$(($(flags "$root") & 040000)) expected=0 guest_cache=writeback
    case $1 in none | directsync) expected=$((040000)) ;; esac
    case $1 in writethrough | directsync) guest_cache=writethrough ;; esac
    [ $direct = $expected ] || fail "cache=$1: O_DIRECT is $direct, expected $expected"
    wait_for 'vectors=' 20
    [ "$(value write_cache)" = $guest_cache ] ||
        fail "cache=$1: the guest sees '$(value write_cache)', expected $guest_cache"
}

# check_engine ENGINE: by what it leaves in /proc (Linux AIO maps its ring), and by the warning
# where the first choice was not to be had.
check_engine() {
    uring=no native=no warned=no
    ls -l /proc/$pid/fd | grep -q 'anon_inode:\[io_uring\]' && uring=yes
    grep -q '/\[aio\]' /proc/$pid/maps && native=yes
    grep -q 'warning: io_uring cannot be used: ' "$work/console" && warned=yes
    case $1:$uring:$native:$warned in
        io_uring:yes:no:no | native:*:yes:no | threads:*:no:no | fallback:no:yes:yes) ;;
        *) fail "aio=$1: io_uring: $uring, Linux AIO: $native, warned: $warned" ;;
    esac
}

checksum() { sha256sum | cut -d ' ' -f 1; }

# same WHAT CHECKSUM_INSIDE CHECKSUM_OUTSIDE
same() { [ -n "$2" ] && [ "$2" = "$3" ] || fail "$1: '$2' inside, '$3' outside"; }

check_filesystem() {
    /usr/sbin/e2fsck -fn "$1" >"$work/e2fsck" 2>&1 || { fail "e2fsck -fn $1"; cat "$work/e2fsck"; }
}

check_verify() {
    for job in file:2048 raw:4096; do
        [ "$(value "fio_${job%:*}")" = "0,${job#*:},${job#*:}" ] ||
            fail "fio's job ${job%:*}: error, KiB read, written: '$(value "fio_${job%:*}")'"
    done
    : >"$work/data"
    /usr/sbin/debugfs -R "dump /data $work/data" "$root" 2>/dev/null
    same /data "$(value file_sum)" "$(checksum <"$work/data")"
    same "the raw disk" "$(value raw_sum)" "$(head -c $((4 * MIB)) "$raw" | checksum)"
}

check_pauses() {
    for job in poisson pauses; do
        read -r error kib <<END
$(value "fio_$job" | tr ',' ' ')
END
        [ "$error" = 0 ] && [ "$kib" -gt 100 ] || fail "fio's job $job: '$(value "fio_$job")'"
    done
}

check_readonly() {
    [ "$(value readonly)" = 1 ] || fail "the guest takes the read-only disk for writable"
    same "the read-only disk's file" "$(value readonly_sum)" "$(checksum <"$work/tree/data")"
    [ "$(sha256sum <"$readonly_image")" = "$readonly_before" ] || fail "the read-only image changed"
}

check_scratch() {
    [ "$(value trimmed)" -gt $((200 * MIB)) ] || fail "fstrim: '$(value trimmed)' bytes"
    check_filesystem "$raw"
    # The guest wrote 36 MiB and the log of XFS; what is left is ext4's own.
    allocated=$(du -k "$raw" | cut -f 1)
    [ "$allocated" -lt 24000 ] || fail "$allocated KiB allocated after discard and fstrim"
}

# run_guest DISK_OPTION...
run_guest() {
    code=none
    if start_until 'guest=started' $ringside run --kernel "${kernel%:*}" \
        --initrd "${kernel#*:}" --cpus "$cpus" --memory 512M ${iothread:+--iothread $iothread} \
        --cmdline "console=ttyS0 quiet panic=-1 root=/dev/vda disk_checks=$checks" "$@"; then
        check_mode "$cache"
        check_engine "$engine"
        finish 90
        grep -q '^guest=done' "$work/console" || fail "the guest did not come to its end"
    else
        fail "the guest did not start"
    fi
}

# boot CHECKS CPUS CACHE ENGINE [DISK_OPTION...]: of the root and of the raw disk; of KERNEL:INITRD
# in $kernel.
boot() {
    checks=$1 cpus=$2 cache=$3 engine=$4
    shift 4
    options=$(printf ',%s' "$@")
    [ "$options" != , ] || options=
    began=$(cut -d . -f 1 /proc/uptime)
    rm -f "$raw"
    truncate -s ${raw_size:-8M} "$raw"
    set -- --disk "path=$root$options" --disk "path=$raw,serial=raw-1$options"
    vectors=$((2 * cpus))
    case $checks in
        *readonly*)
            set -- "$@" --disk "path=$readonly_image,readonly=on"
            vectors=$((3 * cpus))
            ;;
    esac
    to_the_end run_guest "$@"

    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    [ "$(value cpus)" = "$cpus" ] || fail "the guest sees $(value cpus) CPUs, expected $cpus"
    [ "$(value serial)" = raw-1 ] || fail "the raw disk's serial number is '$(value serial)'"
    [ "$(value vectors)" = $vectors ] ||
        fail "$(value vectors) MSI-X vectors for queues, expected $vectors"
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
    warnings=$(warnings_in <"$work/console")
    [ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
    check_filesystem "$root"
    for check in $(echo "$checks" | tr ',' ' '); do check_$check; done
    warnings=$(dmesg -r | warnings_in |
        grep -v -e 'kvm .* Unhandled' -e 'kvm: SMP vm created on host with unstable TSC')
    [ -z "$warnings" ] || fail "L1's kernel warns: $warnings"
    [ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }
    echo "Linux $version, $cpus CPUs, $checks, cache=$cache, engine $engine:" \
        "passed in $(($(cut -d . -f 1 /proc/uptime) - began)) s"
}

# use VERSION:KERNEL:INITRD
use() { version=${1%%:*} kernel=${1#*:}; }

group_default() {
    for each in $kernels; do
        use "$each"
        boot verify 1 none io_uring
        boot verify 2 none io_uring
    done
}

group_cache() {
    for mode in writeback writethrough directsync unsafe; do
        boot verify 2 $mode io_uring cache=$mode
    done
}

group_engine() {
    boot verify 2 none native aio=native
    boot verify 2 none threads aio=threads
}

# The look before each sleep ends at any moment of the guest's pauses.
group_polling() {
    iothread=poll=fixed,max=200us
    boot verify,pauses 2 none io_uring
}

# Where io_uring is forbidden another engine is chosen, and offers the same features.
group_forbidden() {
    echo 2 >/proc/sys/kernel/io_uring_disabled || fail "L1's kernel cannot forbid io_uring"
    raw_size=400M
    boot scratch 1 none fallback
}

group_features() {
    mkdir "$work/tree"
    dd if=/dev/urandom of="$work/tree/data" bs=64k count=16 2>/dev/null
    truncate -s 16M "$readonly_image"
    /usr/sbin/mke2fs -q -F -t ext4 -d "$work/tree" "$readonly_image" || fail "mke2fs"
    readonly_before=$(sha256sum <"$readonly_image")
    raw_size=400M
    boot readonly,scratch 2 none io_uring
}

dmesg -c >/dev/null
use "${kernels%% *}"
group_"$group"
