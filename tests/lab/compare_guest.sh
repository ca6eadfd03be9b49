#!/bin/sh
# /autorun on the root disk of compare.sh's guests: runs fio on a job file. The kernel's command line has
# jobs=FILE, measured=DEVICE, which the job file calls MEASURED, and scheduler=NAME for that device. What
# fio says is left in /result.json. Each thread of a job that fio starts runs this script before and after
# it, as "/autorun begin JOB THREADS" and "/autorun end JOB THREADS": the last one of them tells compare.sh,
# and waits for an answer; until then none of them goes on to its work.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

# word NAME: its value on the kernel's command line.
word() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }

# interrupts: of the measured device until now, by all its vectors on all processors.
interrupts() {
    name=${MEASURED#/dev/}
    case $name in
        nvme*) device=${name%n*} ;;
        *) device=$(basename "$(readlink -f /sys/block/$name/device)")- ;;
    esac
    awk -v device="$device" '
        index($NF, device) == 1 { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i }
        END { print sum + 0 }' /proc/interrupts
}

if [ $# = 3 ]; then
    number=1
    until mkdir "/run/$2.$1.$number" 2>/dev/null; do number=$((number + 1)); done
    if [ $number = "$3" ]; then
        echo "interrupts-$1-$2=$(interrupts)" >/dev/ttyS0
        echo "$1=$2;" >/dev/ttyS0
        read -r _ </dev/ttyS0
        : >"/run/$2.$1.go"
    elif [ "$1" = begin ]; then
        until [ -e "/run/$2.begin.go" ]; do usleep 10000; done
    fi
    exit
fi

export MEASURED=$(word measured)
# The guest's driver would choose: another for a disk of its own than for virtio's.
word scheduler >/sys/block/${MEASURED#/dev/}/queue/scheduler
rm -f /result.json
echo "guest=started"
echo "clocksource=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
echo "scheduler=$(sed 's/.*\[\(.*\)\].*/\1/' /sys/block/${MEASURED#/dev/}/queue/scheduler)"
echo "kernel=$(uname -r)"
# Loads fio; what is measured is in the job file.
fio --name=warm-up --filename=$MEASURED --rw=randread --bs=4k --direct=1 --ioengine=io_uring \
    --iodepth=4 --thread --time_based --runtime=300ms >/dev/null
cd /run
fio --output-format=json --output=/result.json "$(word jobs)" >/run/output 2>&1 ||
    echo "guest_error=fio ended with status $?: $(tail -n 1 /run/output)"
sync
echo "guest=done"
