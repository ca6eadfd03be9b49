#!/bin/sh
# Runs inside the lab (busybox sh): stock guests whose power button is pressed shut down by
# themselves, and one whose kernel crashes says so. What `--events` writes is the evidence.
#
#   power_linux.sh POWERING_RINGSIDE VERSION:KERNEL:INITRD...
set -u
ringside=$1
shift
. "$(dirname "$0")/common.sh"
export RINGSIDE_PRESS=$work/press

# boot TEXT WORDS...: a guest with WORDS on its kernel's command line, until it prints TEXT.
boot() {
    text=$1
    shift
    rm -f "$RINGSIDE_PRESS" "$work/events"
    start_until "$text" "$ringside" run --kernel "$kernel" --initrd "$initrd" --memory 512M \
        --events "$work/events" --cmdline "console=ttyS0 quiet panic=-1 $*" ||
        fail "the guest did not print '$text'"
}

# has_event NAME [TEXT]: in whose line TEXT is, too.
has_event() { grep "\"event\":\"$1\"" "$work/events" | grep -qF -- "${2:-}"; }

shuts_down() {
    boot 'button=event'
    touch "$RINGSIDE_PRESS"
    finish
}

panics() {
    boot 'guest=panicking' guest_panics
    finish
}

for each in "$@"; do
    version=${each%%:*} images=${each#*:}
    kernel=${images%:*} initrd=${images#*:}
    began=$(cut -d . -f 1 /proc/uptime)

    to_the_end shuts_down
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    [ "$(value button_interrupts)" = 1 ] || fail "no edge interrupt of the Generic Event Device"
    grep -q '^guest=heard of its power button' "$work/console" || fail "the guest heard of nothing"
    has_event power-off-asked || fail "no event 'power-off-asked'"
    has_event ended '"detail":"power-off"' || fail "the guest did not power off by itself"
    ! has_event panicked || fail "an event 'panicked' of a guest that has not"

    panics
    [ "$code" = 3 ] || fail "exit code $code of a guest that panics and reboots, expected 3"
    has_event panicked || fail "no event 'panicked'"
    has_event ended '"detail":"reset"' || fail "the panic has ended the machine"

    [ $failures = 0 ] || { echo "--- console:"; cat "$work/console" "$work/events"; exit 1; }
    echo "Linux $version: shut down and panicked in $(($(cut -d . -f 1 /proc/uptime) - began)) s"
done
