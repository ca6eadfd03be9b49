#!/bin/sh
# Runs inside the lab (busybox sh): boots a stock kernel under Ringside, types into its shell, checks
# what it says, and ends it: with 1 vCPU by power-off, with 2 by reboot.
#
#   boot_linux.sh RINGSIDE KERNEL INITRD ENTRY MEMORY_MIB CPUS
#
# CPUS is 1, 2 or 1,2.
set -u
ringside=$1 kernel=$2 initrd=$3 entry=$4 memory=$5 boots=$6
. "$(dirname "$0")/common.sh"

run_guest() {
    if start_until 'ringside# ' $ringside run --kernel "$kernel" --initrd "$initrd" \
        --entry "$entry" --cpus "$cpus" --memory "${memory}M"; then
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
        fail "no prompt"
    fi
}

# boot CPUS END EXIT_CODE
boot() {
    cpus=$1 end=$2 expected=$3
    to_the_end run_guest
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
    warnings=$(warnings_in <"$work/console")
    [ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
    echo "$cpus CPUs: memory=$seen MiB clock=$(value clock)" \
        "serial interrupts=$(value serial_interrupts) '$end' -> exit code $code"
    [ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }
}

case $boots in *1*) boot 1 'poweroff -f' 0 ;; esac
case $boots in *2*) boot 2 'reboot -f' 3 ;; esac
