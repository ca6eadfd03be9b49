#!/bin/sh
# Runs inside the lab (busybox sh): boots stock kernels from an ext4 root on a virtio disk, lets
# disk_guest.sh write and verify in there, and looks at the images from outside afterwards.
#
#   disk_linux.sh GROUP[,GROUP...] RINGSIDE ROOT_DISK VERSION:KERNEL:INITRD...
#
# GROUP is one of the functions group_... at the end; those that want the same lab share its start,
# 5 s. Guests run the first kernel, except where a
# group wants each. The lab needs common.sh and the programs e2fsck, debugfs and mke2fs too.
set -u
groups=$1 ringside=$2 root=$(readlink -f "$3")  # as in /proc
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

# check_mode FILE CACHE: what the mode means, seen from outside.
check_mode() {
    seen=$(flags "$1")  # nothing of a VMM that has just ended: finish tells how
    direct=$((${seen:-0} & 040000)) expected=0
    case $2 in none | directsync) expected=$((040000)) ;; esac
    [ $direct = $expected ] || fail "cache=$2: O_DIRECT is $direct, expected $expected"
}

# check_write_cache NAME CACHE: and by the guest, which printed it as NAME.
check_write_cache() {
    guest_cache=writeback
    case $2 in writethrough | directsync) guest_cache=writethrough ;; esac
    [ "$(value "$1")" = $guest_cache ] ||
        fail "cache=$2: the guest sees '$(value "$1")', expected $guest_cache"
}

# One guest has a disk of each, next to its root with the default.
modes='writeback writethrough directsync unsafe'

# make_mode_disks: 8 MiB of ext4, and 8 MiB of nothing.
make_mode_disks() {
    for mode in $modes; do
        rm -f "$work/$mode.img"
        truncate -s 16M "$work/$mode.img"
        /usr/sbin/mke2fs -q -F -t ext4 "$work/$mode.img" 8M || fail "mke2fs"
    done
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

check_deep() {
    [ "$(value fio_deep)" = 0,8192,8192 ] ||
        fail "fio's job deep: error, KiB read, written: '$(value fio_deep)'"
    same "the deep job's data" "$(value deep_sum)" "$(tail -c $((8 * MIB)) "$raw" | checksum)"
}

check_delayed() {
    read -r error kib <<END
$(value fio_delayed | tr ',' ' ')
END
    [ "$error" = 0 ] && [ "$kib" -gt 100 ] || fail "fio's job delayed: '$(value fio_delayed)'"
}

# The guest's clock has gone on while it stood still.
check_clock() {
    late=$((ended - $(value clock)))
    [ "$late" -ge -2 ] && [ "$late" -le 20 ] || fail "the guest's clock is $late s late"
}

check_modes() {
    for mode in $modes; do
        image=$work/$mode.img
        check_write_cache "write_cache_$mode" $mode
        for job in file:2048 raw:4096; do
            [ "$(value "fio_${mode}_${job%:*}")" = "0,${job#*:},${job#*:}" ] ||
                fail "cache=$mode, fio's job ${job%:*}: '$(value "fio_${mode}_${job%:*}")'"
        done
        check_filesystem "$image"
        : >"$work/data"
        /usr/sbin/debugfs -R "dump /data $work/data" "$image" 2>/dev/null
        same "cache=$mode: /data" "$(value "file_sum_$mode")" "$(checksum <"$work/data")"
        same "cache=$mode: the raw part" "$(value "raw_sum_$mode")" \
            "$(tail -c $((8 * MIB)) "$image" | head -c $((4 * MIB)) | checksum)"
    done
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
        check_mode "$root" "$cache"
        case $checks in *modes*) for mode in $modes; do check_mode "$work/$mode.img" $mode; done ;; esac
        check_engine "$engine"
        finish 180
        ended=$(date +%s)
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
        *delayed*)
            set -- "$@" --disk type=null,size=64M,latency=200us,serial=delayed
            vectors=$((3 * cpus))
            ;;
        *modes*)
            make_mode_disks
            for mode in $modes; do
                set -- "$@" --disk "path=$work/$mode.img,serial=$mode,cache=$mode"
                vectors=$((vectors + cpus))
            done
            ;;
    esac
    to_the_end run_guest "$@" || begin_anew

    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    [ "$(value cpus)" = "$cpus" ] || fail "the guest sees $(value cpus) CPUs, expected $cpus"
    check_write_cache write_cache "$cache"
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
    cpus_next=2
    for each in $kernels; do
        use "$each"
        boot verify $cpus_next none io_uring
        cpus_next=1
    done
}

# Also, the look before each sleep ends at any moment of the guest's pauses.
group_cache() {
    iothread=poll=fixed,max=200us
    boot modes,pauses 2 none io_uring
    iothread=
}

group_engine() {
    boot verify 2 none native aio=native
    boot verify 2 none threads aio=threads
}

# Where io_uring is forbidden another engine is chosen, and offers the same features.
group_forbidden() {
    echo 2 >/proc/sys/kernel/io_uring_disabled || fail "L1's kernel cannot forbid io_uring"
    raw_size=400M
    boot scratch 1 none fallback
}

# By a program that pauses its machine a hundred times; of the last kernel, as lab_nvme_verify has the first.
group_paused() {
    raw_size=16M
    use "${kernels##* }"
    boot verify,deep,delayed,clock 2 none io_uring
    paused=$(value pauses)
    [ "${paused:-0}" -ge 20 ] || fail "the machine was paused ${paused:-0} times, expected 20 to 100"
    restored=$(value restores)
    [ "${restored:-0}" -ge 5 ] || fail "devices were made anew ${restored:-0} times, expected half of that"
    echo "paused $paused times, devices made anew $restored times"
    raw_size=
}

group_features() {
    mkdir "$work/tree"
    dd if=/dev/urandom of="$work/tree/data" bs=64k count=16 2>/dev/null
    truncate -s 16M "$readonly_image"
    /usr/sbin/mke2fs -q -F -t ext4 -d "$work/tree" "$readonly_image" || fail "mke2fs"
    readonly_before=$(sha256sum <"$readonly_image")
    raw_size=400M
    boot readonly,scratch 2 none io_uring
    raw_size=
}

dmesg -c >/dev/null
for group in $(echo "$groups" | tr ',' ' '); do
    use "${kernels%% *}"
    group_"$group"
done
