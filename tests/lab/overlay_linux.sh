#!/bin/sh
# Runs inside the lab (busybox sh): stock Linux has its root on an overlay, which is then committed; and
# it boots from the base.
#
#   overlay_linux.sh RINGSIDE ROOT_DISK KERNEL INITRD
#
# The lab needs common.sh too.
set -u
ringside=$1 base=$2 kernel=$3 initrd=$4
. "$(dirname "$0")/common.sh"
overlay=$work/root.cow
MIB=1048576

# image WORD...: which has to succeed.
image() { "$ringside" image "$@" >"$work/image" 2>&1 || { fail "image $*"; cat "$work/image"; }; }

# boot CHECK DISK: to the guest's end.
boot() {
    code=none
    start_until 'guest=started' "$ringside" run --kernel "$kernel" --initrd "$initrd" --memory 512M \
        --disk "$2" --cmdline "console=ttyS0 quiet panic=-1 root=/dev/vda disk_checks=$1" ||
        fail "the guest did not start"
    finish 120
}

# A try that the emulator spoils begins with the base alone.
boot_overlay() {
    rm -f "$overlay"
    boot overlaid "base=$base,overlay=$overlay"
}

ended_well() {
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
}

before=$(stat -c %y "$base")
to_the_end boot_overlay
ended_well
[ "$(value fio_file)" = "0,4096,4096" ] || fail "fio: error, KiB read, written: '$(value fio_file)'"
sum=$(value file_sum)
[ "$(stat -c %y "$base")" = "$before" ] || fail "the base has changed"
image check --base "$base" "$overlay"
image info --json "$overlay"
data=$(sed -n 's/^ *"data_bytes": \([0-9]*\),$/\1/p' "$work/image")
zeroes=$(sed -n 's/^ *"zero_bytes": \([0-9]*\),$/\1/p' "$work/image")
taken=$(($(stat -c %b "$overlay") * 512))
echo "overlay: $((data / MIB)) MiB of data, $((zeroes / MIB)) MiB of zeroes, $((taken / MIB)) MiB taken"
# Of 24 MiB that were written and removed.
[ $zeroes -gt $((20 * MIB)) ] || fail "fstrim has not come to the overlay"
[ $taken -lt $((data + 2 * MIB)) ] || fail "the overlay has not given its space back"

image commit --base "$base" "$overlay"
to_the_end boot committed "path=$base"
ended_well
[ -n "$sum" ] && [ "$(value file_sum)" = "$sum" ] || fail "the file is not in the base"
[ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }
