# Sourced by the scripts that run inside the lab (busybox sh) and boot guests there.
work=$(mktemp -d)
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# wait_until SECONDS CONDITION...: no longer than the VMM runs.
wait_until() {
    tenths=$(($1 * 10))
    shift
    until "$@"; do
        tenths=$((tenths - 1))
        [ $tenths -gt 0 ] && kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
}

# value NAME: what the guest printed as "NAME=...".
value() { sed -n "s/^$1=\([^ ]*\).*/\1/p" "$work/console" | tr -d '\r'; }

# wait_for TEXT SECONDS: until the console holds TEXT.
wait_for() { wait_until "$2" grep -qF -- "$1" "$work/console"; }

# wait_for_value NAME SECONDS: until the guest has printed it to the end of its line.
wait_for_value() { wait_until "$2" grep -q "^$1=.*$(printf '\r')" "$work/console"; }

# Of the lines of 'dmesg -r', the warnings, less those that the lab's emulated CPU causes under any
# VMM (QEMU in the same place shows the same): no IBPB microcode, an XSAVE area whose size does not
# follow XCR0 (with its stack trace), a TSC that is neither constant nor synchronous, and a slow
# clock.
warnings_in() {
    sed -n 's/\r$//; /^<[0-4]>/p' |
        sed '/XSAVE consistency problem/,/end trace/d; /CPUID\[0d/d' |
        grep -v -e '------------\[ cut here' \
            -e 'Speculative Return Stack Overflow' \
            -e 'clocksource: timekeeping watchdog' -e "clocksource:  .*'\(tsc\|kvm-clock\)'" \
            -e 'clocksource: Long readout interval' -e 'hrtimer: interrupt took' \
            -e 'Unstable clock detected' -e 'keep using the local clock' -e 'trace_clock=local' \
            -e '\] on the kernel command line'
}

# start COMMAND...: a guest whose keyboard is descriptor 3.
start() {
    rm -f "$work/keyboard"
    mkfifo "$work/keyboard"
    : >"$work/console"
    "$@" <"$work/keyboard" >"$work/console" 2>&1 &
    pid=$!
    exec 3>"$work/keyboard"
}

# type_line LINE: in a subshell, since SIGPIPE ends it when the VMM is gone.
type_line() { (printf '%s\n' "$1" >&3); }

# finish [SECONDS]: the exit code, in $code; a guest that is still there after that time is ended.
finish() {
    tenths=$((${1:-60} * 10))
    while [ $tenths -gt 0 ] && kill -0 $pid 2>/dev/null; do
        tenths=$((tenths - 1))
        sleep 0.1
    done
    [ $tenths -gt 0 ] || { fail "still running after ${1:-60} s: killed"; hung=yes; kill -9 $pid; }
    wait $pid
    code=$?
    exec 3>&-
}

# start_until TEXT COMMAND...: the emulator now and then gives a guest an interrupt twice (see
# labkit/machine.py), mostly where L1 has several processors; the guest then hangs or triple-faults
# while its kernel starts. So a boot that hangs, crashes or reboots before it prints TEXT is tried three
# times, and each try is reported. Any other early end is the VMM's own.
start_tries=3 start_seconds=45 spoiled_codes='3 4 143'  # 143: the kill below
start_until() {
    text=$1 started=no
    shift
    for try in $(seq $start_tries); do
        start "$@"
        wait_for "$text" $start_seconds && started=yes && return 0
        kill $pid 2>/dev/null
        finish
        echo "try $try: no '$text', exit code $code, the console ends with"
        tail -n 3 "$work/console"
        case " $spoiled_codes " in *" $code "*) ;; *) return 1 ;; esac
    done
    return 1
}

# read_times: the nanoseconds that the VMM's threads have run, and the kernel's that serve its networks
# (those of Linux 6.1 are no threads of the VMM), in $all_ns; of them the vCPUs' in $vcpu_ns, its I/O
# thread's in $io_ns.
read_times() {
    all_ns=0 vcpu_ns=0 io_ns=0
    for comm in /proc/$pid/task/*/comm $(grep -lsx "vhost-$pid" /proc/[0-9]*/comm); do
        # One that has just ended is none of those that run.
        { read -r name <"$comm" && read -r ns _ <"${comm%comm}schedstat"; } 2>/dev/null || continue
        all_ns=$((all_ns + ns))
        case $name in
            vcpu-* | "CPU "*/KVM) vcpu_ns=$((vcpu_ns + ns)) ;;
            io0 | "IO disks") io_ns=$((io_ns + ns)) ;;
        esac
    done
}

# to_the_end FUNCTION...: one that starts a guest and ends with finish. The emulator's fault strikes
# after TEXT too: a guest that triple-faults, panics or hangs is tried three times, and each try is
# reported; false if the last one did so as well. A try that comes to its end is checked in full.
to_the_end() {
    failures_before=$failures
    for attempt in $(seq $start_tries); do
        failures=$failures_before hung=no
        "$@"
        [ $started = yes ] && is_emulators_fault || return 0
        echo "attempt $attempt: exit code $code, hung: $hung, the console ends with"
        tail -n 25 "$work/console"  # so long is a panic
    done
    return 1
}

# begin_anew: what ails an L1 in which every try hung may last, so 'tools/lab --tries' begins again with
# another. In the last one this is the failure: a VMM that loses interrupts or writes where it must
# not does not get through.
begin_anew() {
    echo "--- console:"
    cat "$work/console"
    exit 97  # STATUS_GIVEN_UP of tools/lab
}

# leave_failed: of a $guest that failed in this $round, its console here, and nothing but the file "failed"
# in $out, so that the others count.
leave_failed() {
    echo "--- $guest, round $round, console:"
    cat "$work/console"
    rm -rf "$out" && mkdir -p "$out" && tail -n 3 "$work/console" >"$out/failed"
    failures=0
    echo "round $round: $guest (failed)"
}

# finish_any SECONDS: as finish. QEMU's exit code does not tell a triple fault from a guest that was
# done, so to_the_end needs help.
finish_any() {
    finish "$1"
    [ "$code" != 0 ] || grep -q '^guest=done' "$work/console" || hung=yes
}

is_emulators_fault() {
    [ $hung = yes ] || grep -q 'Kernel panic' "$work/console" ||
        { [ "$code" = 4 ] && grep -q 'triple fault' "$work/console"; }
}
