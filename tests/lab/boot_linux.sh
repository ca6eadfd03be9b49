#!/bin/sh
# Runs inside the lab (busybox sh): boots a stock kernel under Ringside with 1 and with 2 vCPUs,
# types into its shell, checks what it says, and ends it by power-off and by reboot.
#
#   boot_linux.sh RINGSIDE KERNEL INITRD ENTRY MEMORY_MIB
set -u
ringside=$1 kernel=$2 initrd=$3 entry=$4 memory=$5
work=$(mktemp -d)
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# wait_for TEXT SECONDS: until the console holds TEXT; no longer than Ringside runs.
wait_for() {
    tenths=$(($2 * 10))
    until grep -qF -- "$1" "$work/console"; do
        tenths=$((tenths - 1))
        [ $tenths -gt 0 ] && kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
}

# value NAME: what the guest printed as "NAME=...".
value() { sed -n "s/^$1=\([^ ]*\).*/\1/p" "$work/console" | tr -d '\r'; }

# Warnings of the guest's kernel, less those that the lab's emulated CPU causes under any VMM (QEMU
# in the same place shows the same): no IBPB microcode, an XSAVE area whose size does not follow
# XCR0 (with its stack trace), a TSC that is neither constant nor synchronous, and a slow clock.
warnings() {
    sed -n 's/\r$//; /^<[0-4]>/p' "$work/console" |
        sed '/XSAVE consistency problem/,/end trace/d; /CPUID\[0d/d' |
        grep -v -e '------------\[ cut here' \
            -e 'Speculative Return Stack Overflow' \
            -e 'clocksource: timekeeping watchdog' -e "clocksource:  .*'\(tsc\|kvm-clock\)'" \
            -e 'hrtimer: interrupt took' -e 'Unstable clock detected' -e 'keep using the local clock' -e 'trace_clock=local' \
            -e '\] on the kernel command line'
}

# start CPUS: a guest whose keyboard is descriptor 3.
start() {
    rm -f "$work/keyboard"
    mkfifo "$work/keyboard"
    : >"$work/console"
    $ringside run --kernel "$kernel" --initrd "$initrd" --entry "$entry" --cpus "$1" \
        --memory "${memory}M" <"$work/keyboard" >"$work/console" 2>&1 &
    pid=$!
    exec 3>"$work/keyboard"
}

# finish: the exit code, in $code.
finish() {
    wait $pid
    code=$?
    exec 3>&-
}

# start_to_prompt CPUS: QEMU's emulation of SVM now and then (once in some 90 boots) enters a guest with the
# host's own registers, seen in the guest's rip, rsp and cr3 after a hang; the guest then hangs or
# triple-faults before its prompt. So a boot is tried three times, and each try is reported.
start_to_prompt() {
    for try in 1 2 3; do
        start "$1"
        wait_for 'ringside# ' 45 && return 0
        kill $pid 2>/dev/null
        finish
        echo "try $try with $1 CPUs: no prompt, exit code $code, the console ends with"
        tail -n 3 "$work/console"
    done
    return 1
}

# boot CPUS END EXIT_CODE
boot() {
    cpus=$1 end=$2 expected=$3
    if start_to_prompt "$cpus"; then
        cat >&3 <<'EOF'
echo "cpus=$(nproc)"; echo "memory=$(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo)"
echo "clock=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
echo "serial_interrupts=$(awk '/ttyS0/ {n = $2 + $3; print n}' /proc/interrupts)"
dmesg -r | grep '^<[0-4]>'
echo "said=all"
EOF
        wait_for 'said=all' 20 || fail "the shell did not answer"
        printf '%s\n' "$end" >&3
        finish
    else
        fail "no prompt in three tries"
    fi

    [ "$code" = "$expected" ] || fail "exit code $code after '$end', expected $expected"
    [ "$(value cpus)" = "$cpus" ] || fail "the guest sees $(value cpus) CPUs, expected $cpus"
    seen=$(value memory)
    [ "${seen:-0}" -le "$memory" ] && [ "${seen:-0}" -ge $((memory * 85 / 100)) ] ||
        fail "the guest sees $seen MiB of memory, expected nearly $memory"
    case $(value clock) in
        kvm-clock | tsc) ;;
        *) fail "the guest's clock is $(value clock), expected kvm-clock or tsc" ;;
    esac
    [ "$(value serial_interrupts)" -gt 0 ] || fail "the console took no interrupt"
    [ -z "$(warnings)" ] || fail "the guest's kernel warns: $(warnings)"
    echo "$cpus CPUs: memory=$seen MiB clock=$(value clock)" \
        "serial interrupts=$(value serial_interrupts) '$end' -> exit code $code"
    [ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }
}

boot 1 'poweroff -f' 0
boot 2 'reboot -f' 3
