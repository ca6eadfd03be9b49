#!/bin/sh
# /autorun of power_linux.sh's guests: waits for its power button and ends, whereupon init powers off;
# with guest_panics on the kernel's command line it has its kernel crash. Prints lines "name=value".
echo "button_interrupts=$(grep -c 'IO-APIC *16-edge .*ACPI:Ged' /proc/interrupts)"
if grep -q guest_panics /proc/cmdline; then
    echo "guest=panicking"
    echo c >/proc/sysrq-trigger
fi
name=$(grep -l '^Power Button$' /sys/class/input/event*/device/name)
device=$(echo "$name" | cut -d / -f 5)
exec 3<"/dev/input/$device"  # first: who opens it hears nothing of what was before
echo "button=${device:-none}"
# An input_event has 24 bytes (linux/input.h); without the event this waits for ever.
dd bs=24 count=1 of=/dev/null <&3 2>/dev/null
echo "guest=heard of its power button"
