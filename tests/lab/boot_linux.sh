#!/bin/sh
# Runs inside the lab (busybox sh): boots stock kernels under Ringside, types into the shell of each,
# checks what it says, and ends it: with 1 vCPU by power-off, with 2 by reboot.
#
#   boot_linux.sh RINGSIDE INITRD KERNEL ENTRY MEMORY_MIB CPUS [KERNEL ENTRY MEMORY_MIB CPUS]...
#
# CPUS is 1, 2 or 1,2.
set -u
ringside=$1 initrd=$2
shift 2
. "$(dirname "$0")/common.sh"

# ask NAME COMMAND: the guest's shell is to print "NAME=" and what COMMAND prints. A question at a
# time: the echo of one that is typed ahead would stand in the middle of an answer. A guest that has not
# answered one is asked no other.
ask() {
    [ $hung = no ] || return
    type_line "echo \"$1=\$($2)\""
    wait_for_value "$1" 20 || { fail "the shell does not answer: $1"; hung=yes; }
}

run_guest() {
    if start_until 'ringside# ' $ringside run --kernel "$kernel" --initrd "$initrd" \
        --entry "$entry" --cpus "$cpus" --memory "${memory}M"; then
        ask cpus nproc
        ask memory "awk '/MemTotal/ {print int(\$2 / 1024)}' /proc/meminfo"
        ask clock 'cat /sys/devices/system/clocksource/clocksource0/current_clocksource'
        ask serial_interrupts "awk '/ttyS0/ {print \$2 + \$3}' /proc/interrupts"
        ask warnings "dmesg -r | grep '^<[0-4]>' >&2; echo all"
        [ $hung = yes ] || type_line "$end"
        [ $hung = yes ] && kill -9 $pid
        finish
    else
        fail "no prompt"
    fi
}

# boot CPUS END EXIT_CODE
boot() {
    cpus=$1 end=$2 expected=$3
    to_the_end run_guest || begin_anew
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
    echo "$kernel by $entry, $cpus CPUs: memory=$seen MiB clock=$(value clock)" \
        "serial interrupts=$(value serial_interrupts) '$end' -> exit code $code"
    [ $failures = 0 ] || { echo "--- console:"; cat "$work/console"; exit 1; }
}

while [ $# -gt 0 ]; do
    kernel=$1 entry=$2 memory=$3
    case $4 in *1*) boot 1 'poweroff -f' 0 ;; esac
    case $4 in *2*) boot 2 'reboot -f' 3 ;; esac
    shift 4
done
