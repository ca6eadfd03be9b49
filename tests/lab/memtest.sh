#!/bin/sh
# Runs inside the lab (busybox sh): Debian's memtest86+, a bzImage that is no Linux, draws its screen
# on the serial port and tests memory, until it is ended.
#
#   memtest.sh RINGSIDE KERNEL
set -u
ringside=$1 kernel=$2
. "$(dirname "$0")/common.sh"

if [ ! -e "$kernel" ]; then
    echo "skipped: there is no $kernel; install the Debian package memtest86+"
    exit 77
fi
# It finds out by the interval timer how fast the processor is.
if start_until 'Memtest86+ v' $ringside run --kernel "$kernel" --memory 64M --pit on \
    --cmdline "console=ttyS0,115200"; then
    wait_for 'Using: Core #0' 20 || fail "it tests nothing"
    kill $pid
    finish
    [ "$code" = 143 ] || fail "exit code $code after SIGTERM"
    grep -q 'Memory  :   64MB' "$work/console" || fail "it sees other memory than 64 MiB"
else
    fail "it draws nothing on ttyS0"
fi
[ $failures = 0 ] || { echo "--- console:"; tr '\033' '^' <"$work/console"; exit 1; }
