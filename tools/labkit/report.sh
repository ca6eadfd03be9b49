# Runs in the quick start's guest when there is no terminal: one line about itself.
echo "Hello from Linux $(uname -r) under Ringside: $(nproc) CPUs," \
    "$(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo) MiB, clock" \
    "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)," \
    "shell reached $(cut -d ' ' -f 1 /proc/uptime) s after the kernel's start"
