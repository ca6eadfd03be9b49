#!/bin/sh
# Runs inside the lab (busybox sh): stock guests that are driven over their control socket. Their
# power button is pressed and they shut down by themselves; one whose kernel crashes says so; one
# whose disk is written and verified is paused, its queues are moved, and so on, all the time.
#
#   control_linux.sh RINGSIDE ROOT_DISK SECONDS VERSION:KERNEL:POWER_INITRD:DISK_INITRD...
set -u
ringside=$1 root=$2 seconds=$3
shift 3
. "$(dirname "$0")/common.sh"
api=$work/vm.sock

# boot TEXT INITRD WORDS OPTION...: a guest with WORDS on its kernel's command line, until it prints TEXT.
boot() {
    text=$1 initrd=$2 words=$3
    shift 3
    rm -f "$work/events"
    start_until "$text" "$ringside" run --kernel "$kernel" --initrd "$initrd" --memory 512M \
        --api-sock "$api" --events "$work/events" --cmdline "console=ttyS0 quiet panic=-1 $words" "$@" ||
        fail "the guest did not print '$text'"
}

# ctl WORD...: a call that has to succeed.
ctl() {
    "$ringside" ctl "$api" "$@" >"$work/ctl" 2>&1 && return
    fail "ctl $*: $(cat "$work/ctl")"
}

# has_event NAME [TEXT]: in whose line TEXT is, too.
has_event() { grep "\"event\":\"$1\"" "$work/events" | grep -qF -- "${2:-}"; }

shuts_down() {
    boot 'button=event' "$power_initrd" ''
    ctl shut-down --limit 5m
    finish
}

check_shut_down() {
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    has_event power-off-asked || fail "no event 'power-off-asked'"
    has_event ended '"detail":"power-off"' || fail "the guest did not power off by itself"
    ! has_event panicked || fail "an event 'panicked' of a guest that has not"
}

panics() {
    boot 'guest=panicking' "$power_initrd" guest_panics
    finish
}

check_panic() {
    [ "$code" = 3 ] || fail "exit code $code of a guest that panics and reboots, expected 3"
    has_event panicked || fail "no event 'panicked'"
    has_event ended '"detail":"reset"' || fail "the panic has ended the machine"
}

# drive: one call after the other, for so many seconds.
drive() {
    rounds=0 until=$(($(cut -d . -f 1 /proc/uptime) + seconds))
    ctl add-iothread --id other
    while [ "$(cut -d . -f 1 /proc/uptime)" -lt $until ] && [ $failures = 0 ]; do
        ctl pause
        ctl resume
        ctl move-queue disk1 0 --iothread other
        ctl change-iothread other --poll fixed --max 100us
        ctl move-queue disk1 1 --iothread other
        ctl set-trace disk1 --on on
        ctl pause --no-wait
        ctl change-iothread io0 --poll never
        ctl resume
        ctl latencies disk1 --newest 10
        ctl move-queue disk1 0 --iothread io0
        ctl explain-iothread io0
        ctl set-trace disk1 --on off
        ctl change-iothread io0 --poll cost
        ctl move-queue disk1 1 --iothread io0
        ctl change-iothread other --poll always
        ctl metrics
        rounds=$((rounds + 1))
    done
    ctl shut-down --limit 2m
}

is_driven() {
    rm -f "$work/raw.img"
    truncate -s 8M "$work/raw.img"
    boot 'guest=started' "$disk_initrd" 'root=/dev/vda disk_checks=driven' --cpus 2 \
        --disk "path=$root" --disk "path=$work/raw.img" --disk type=null,size=8M
    [ $started = no ] || drive
    finish 180
}

check_driven() {
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
    for count in driven_jobs driven_resets; do
        [ "$(value $count)" -gt 0 ] || fail "$count: '$(value $count)'"
    done
    warnings=$(warnings_in <"$work/console")
    [ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
    grep -q '^guest=done' "$work/console" || fail "the guest did not come to its end"
    echo "driven $rounds times $seconds s: fio verified $(value driven_jobs) times," \
        "$(value driven_resets) resets"
}

for each in "$@"; do
    version=${each%%:*} images=${each#*:}
    kernel=${images%%:*} initrds=${images#*:}
    power_initrd=${initrds%:*} disk_initrd=${initrds#*:}
    began=$(cut -d . -f 1 /proc/uptime)
    to_the_end shuts_down || begin_anew
    [ "$(value button_interrupts)" = 1 ] || fail "no edge interrupt of the Generic Event Device"
    grep -q '^guest=heard of its power button' "$work/console" || fail "the guest heard of nothing"
    check_shut_down
    panics
    check_panic
    to_the_end is_driven || begin_anew
    check_driven
    check_shut_down
    [ $failures = 0 ] || { echo "--- console:"; cat "$work/console" "$work/events"; exit 1; }
    echo "Linux $version: shut down, panicked and driven in $(($(cut -d . -f 1 /proc/uptime) - began)) s"
done
