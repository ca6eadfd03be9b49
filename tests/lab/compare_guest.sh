#!/bin/sh
# /autorun on the root disk of compare.sh's guests: runs fio's job file /compare.fio on the device that
# the kernel's command line has as measured=, which the job file calls MEASURED, and leaves what fio
# says in /result.json. The job file has this script run before and after each job, as "/autorun begin
# JOB" and "/autorun end JOB": it tells compare.sh, and waits for an answer.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

if [ $# = 2 ]; then
    echo "$1=$2;" >/dev/ttyS0
    read -r _ </dev/ttyS0
    exit
fi

export MEASURED=$(sed 's/.*measured=\([^ ]*\).*/\1/' /proc/cmdline)
# The guest's driver would choose: another for a disk of its own than for virtio's.
echo none >/sys/block/${MEASURED#/dev/}/queue/scheduler
rm -f /result.json
echo "guest=started"
echo "clocksource=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
echo "scheduler=$(sed 's/.*\[\(.*\)\].*/\1/' /sys/block/${MEASURED#/dev/}/queue/scheduler)"
echo "kernel=$(uname -r)"
# Loads fio; what is measured is in the job file.
fio --name=warm-up --filename=$MEASURED --rw=randread --bs=4k --direct=1 --ioengine=io_uring \
    --iodepth=4 --thread --time_based --runtime=300ms >/dev/null
cd /run
fio --output-format=json --output=/result.json /compare.fio >/run/output 2>&1 ||
    echo "guest_error=fio ended with status $?: $(tail -n 1 /run/output)"
sync
echo "guest=done"
