#!/bin/sh
# Runs inside the lab (busybox sh; started by powercut_lab.py, which cuts the power afterwards): stock
# Linux writes files on a recorded disk.
#
#   powercut_linux.sh RINGSIDE KERNEL INITRD OUTPUT
#
# The disk as it was, as it is, its record and the console are left in the directory OUTPUT.
set -u
ringside=$1 kernel=$2 initrd=$3 output=$4
. "$(dirname "$0")/common.sh"

run_guest() {
    mkdir -p "$output"
    rm -f "$output"/*
    truncate -s 13M "$output/before"
    /usr/sbin/mke2fs -q -F -t ext4 "$output/before" 12M || fail "mke2fs"
    cp "$output/before" "$output/after"
    code=none
    if start_until 'Run /init' "$ringside" run --kernel "$kernel" --initrd "$initrd" --memory 512M \
        --disk "path=$output/after,record=$output/record" --cmdline "console=ttyS0 panic=-1"; then
        finish 120
    else
        fail "the guest did not start"
    fi
}

to_the_end run_guest || begin_anew
[ "$code" = 0 ] || fail "exit code $code, expected 0"
grep -q '^marks=[1-9]' "$work/console" || fail "the guest did not come to its end"
! grep '^guest_error=' "$work/console" || fail "in the guest"
[ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }
