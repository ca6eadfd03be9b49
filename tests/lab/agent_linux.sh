#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest whose init is the agent. agent_checks.py has commands
# run there and files copied; then its power button is pressed, and it ends cleanly.
#
#   agent_linux.sh RINGSIDE KERNEL INITRD MEMORY COMMANDS AT_ONCE MIB CONNECTIONS [CHECK...]
set -u
ringside=$1 kernel=$2 initrd=$3 memory=$4
shift 4
. "$(dirname "$0")/common.sh"
api=$work/vm.sock
ulimit -n 4096

is_checked() {
    rm -f "$work/events"
    start_until 'guest=up' "$ringside" run --kernel "$kernel" --initrd "$initrd" --memory "$memory" \
        --api-sock "$api" --events "$work/events" --iothread id=a --iothread id=b \
        --vsock "cid=3,path=$work/vm.vsock,iothread=a,max-connections=1100,watch-agent=on" \
        --cmdline "console=ttyS0 quiet panic=-1 rdinit=/sbin/agent-init" || fail "the guest is not up"
    [ $started = no ] || {
        /usr/bin/python3 -IS "$(dirname "$0")/agent_checks.py" "$ringside" "$api" "$work" "$@" ||
            fail "a check of the agent"
        # As a user does it: the button.
        "$ringside" ctl "$api" shut-down --limit 1m >"$work/ctl" 2>&1 || fail "shut-down: $(cat "$work/ctl")"
    }
    finish
}

to_the_end is_checked "$@" || begin_anew
[ "$code" = 0 ] || fail "exit code $code, expected 0"
grep -q 'ringside-agent: shutting down' "$work/console" || fail "the agent heard of no power button"
grep -q 'guest=has ended its service' "$work/console" || fail "the guest's service was not asked to end"
grep '"event":"ended"' "$work/events" | grep -q '"detail":"power-off"' || fail "the guest did not power off"
warnings=$(warnings_in <"$work/console")
[ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
[ ! -e "$work/vm.vsock" ] || fail "the vsock's file is still there"
[ $failures = 0 ] || { echo "--- console:"; tail -n 60 "$work/console"; exit 1; }
