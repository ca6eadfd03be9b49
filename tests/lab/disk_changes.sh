#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest writes and verifies disks that find no space, grow
# and are exchanged meanwhile.
#
#   disk_changes.sh RINGSIDE ROOT_DISK KERNEL INITRD
#
# The lab needs common.sh, e2fsck and the module loop, too.
set -u
ringside=$1 root=$2 kernel=$3 initrd=$4
. "$(dirname "$0")/common.sh"
api=$work/vm.sock events=$work/events small=$work/small
MIB=1048576

# ctl WORD...: a call that has to succeed.
ctl() {
    "$ringside" ctl "$api" "$@" >"$work/ctl" 2>&1 && return
    fail "ctl $*: $(cat "$work/ctl")"
}
has_event() { grep -q "\"event\":\"$1\"" "$events"; }
# Of the disk, its sectors times 512.
size_of() { stat -c %s "$work/$1.img"; }

make_disks() {
    umount "$small" 2>/dev/null
    losetup -d /dev/loop0 2>/dev/null
    mkdir -p "$small"
    mount -t tmpfs -o size=2M tmpfs "$small"
    rm -f "$work"/*.img
    truncate -s 16M "$small/full.img" "$work/grows.img" "$work/swapped.img" "$work/noticed.img"
    losetup /dev/loop0 "$work/noticed.img"
}

# The machine stands still until there is space.
mend_full() {
    wait_until 60 has_event disk-stopped || fail "no event 'disk-stopped'"
    wait_until 10 has_event paused || fail "the machine has not paused"
    grep -q 'disk1: a write failed: No space left on device' "$work/console" || fail "no line in the log"
    ! grep -q '^written_full=' "$work/console" || fail "the guest was not held"
    mount -o remount,size=32M "$small"
    ctl resume
    wait_for 'written_full=yes' 60 || fail "the guest did not go on"
}

# A copy is taken of what stands still.
swap() {
    ctl pause
    cp "$work/$1.img" "$work/$2.img"
    ctl swap-disk disk3 --to "path=$work/$2.img"
    ctl resume
    rm "$work/$1.img"
}

changes() {
    make_disks
    start_until 'guest=started' "$ringside" run --kernel "$kernel" --initrd "$initrd" --memory 512M \
        --api-sock "$api" --events "$events" \
        --cmdline "console=ttyS0 quiet panic=-1 root=/dev/vda disk_checks=changes" \
        --disk "path=$root" --disk "path=$small/full.img,werror=stop,serial=full" \
        --disk "path=$work/grows.img,serial=grows" --disk "path=$work/swapped.img,serial=swapped" \
        --disk path=/dev/loop0,serial=noticed || fail "the guest did not start"
    [ $started = no ] || {
        mend_full
        wait_for 'changes=now' 60 || fail "the guest did not get to its changes"
        ctl resize-disk disk2 --size 64M
        swap swapped copy
        swap copy third
        truncate -s 24M "$work/noticed.img"
        losetup -c /dev/loop0
    }
    finish 120
}

check() {
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
    for job in full grows swapped; do
        [ "$(value written_$job)" = yes ] || fail "fio's job $job did not end"
    done
    [ "$(value grown_blocks)" -gt 50000 ] || fail "the file system has $(value grown_blocks) KiB"
    [ "$(value noticed_sectors)" = $((24 * MIB / 512)) ] ||
        fail "the loop device has $(value noticed_sectors) sectors for the guest"
    [ "$(size_of grows)" = $((64 * MIB)) ] || fail "the file has $(size_of grows) bytes"
    /usr/sbin/e2fsck -fn "$work/grows.img" >"$work/e2fsck" 2>&1 || { fail e2fsck; cat "$work/e2fsck"; }
    outside=$(head -c $((4 * MIB)) "$work/third.img" | sha256sum | cut -d ' ' -f 1)
    [ "$(value swapped_sum)" = "$outside" ] || fail "the guest read something else than the copy has"
}

to_the_end changes
check
[ $failures = 0 ] || { echo "--- console:"; cat "$work/console" "$events"; exit 1; }
echo "a full disk mended, two grown, one exchanged twice"
