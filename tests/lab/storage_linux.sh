#!/bin/sh
# Runs inside the lab (busybox sh), which has two NUMA nodes, both controllers and one processor
# (tests/CMakeLists.txt): volumes of LVM as disks, where a guest's memory is, and what the doctor says
# of both.
#
#   storage_linux.sh RINGSIDE GUEST_ELF
#
# The lab needs common.sh, lvm and lsblk too. L1 has /dev/nvme0n1, whose controller is on node 1.
set -u
ringside=$1 guest=$2
. "$(dirname "$0")/common.sh"
disk=/dev/nvme0n1

# volumes COMMAND...: LVM without udev, dmeventd and files of its own.
volumes() {
    lvm "$@" --config "devices { obtain_device_list_from_udev=0 use_devicesfile=0 }
        activation { udev_sync=0 udev_rules=0 monitoring=0 }
        global { thin_check_executable=\"\" event_activation=0 use_lvmpolld=0 }
        backup { backup=0 archive=0 }" >"$work/lvm" 2>&1 && return
    fail "lvm $*"
    cat "$work/lvm"
}

# doctor EXIT_CODE ARGUMENT...: what it says, in $work/doctor.
doctor() {
    expected=$1
    shift
    "$ringside" doctor "$@" >"$work/doctor" 2>&1
    [ $? = "$expected" ] || { fail "doctor $*: expected exit code $expected of"; cat "$work/doctor"; }
}

# says TEXT...: each of them.
says() {
    for text in "$@"; do
        grep -qF -- "$text" "$work/doctor" || { fail "the doctor does not say '$text':"; cat "$work/doctor"; }
    done
}

# is_free DEVICE...: nobody has one of them for himself. Linux 6.1 ends the rings of a process some time
# after the process, and what was registered with them.
is_free() {
    for device in "$@"; do
        ! "$ringside" doctor --disk "$device" | grep -qF 'has it for itself alone' || return 1
    done
}

await_free() {
    tries=100
    until is_free "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { fail "somebody keeps one of $*"; return; }
        sleep 0.2
    done
}

# run_guest WORDS OPTION...: the bare-metal guest, to its end.
run_guest() {
    words=$1
    shift
    await_free /dev/vg/plain /dev/vg/thin
    start "$ringside" run --kernel "$guest" --memory 64M --cmdline "$words end=poweroff" "$@"
    started=yes
    finish 60
}

# A guest writes its pattern to each disk and reads it back, then another finds it there.
check_disks() {
    to_the_end run_guest "disk=1" "$@"
    [ "$code" = 0 ] || { fail "exit code $code of a guest that writes"; cat "$work/console"; }
    to_the_end run_guest "verify-disk=1" "$@"
    [ "$code" = 0 ] || { fail "exit code $code of a guest that verifies"; cat "$work/console"; }
}

size_of() { lsblk --bytes --noheadings --nodeps --output SIZE "$1" | tr -d ' '; }

# ---- The namespace itself, and volumes on it ----

doctor 0 --disk $disk
says 'the scheduler mq-deadline sorts requests' 'echo none > /sys/block/nvme0n1/queue/scheduler'
sh -c "$(grep -oF 'echo none > /sys/block/nvme0n1/queue/scheduler' "$work/doctor")"
doctor 0 --disk $disk
says 'no scheduler sorts its requests' 'ringside doctor --disk /dev/ng0n1' 'has a volatile write cache'
doctor 0 --disk /dev/ng0n1
says "commands go past the host's block layer"

volumes pvcreate $disk
volumes vgcreate vg $disk
volumes lvcreate --yes --size 64M --name plain vg
volumes lvcreate --yes --type thin-pool --size 64M --poolmetadatasize 4M --name pool vg
volumes lvcreate --yes --virtualsize 256M --thinpool pool --name thin vg

doctor 2 --disk $disk
says 'has it for itself alone'
doctor 0 --disk /dev/vg/plain
says 'vg-plain maps its blocks to those of other devices' 'nvme0n1: no scheduler'
doctor 2 --disk /dev/vg/thin
says 'vg-thin is a thin volume' 'vg-thin may still ask its pool for 256M, and that has 64M left'
doctor 2 --disk /dev/vg/thin --json
says '"check": "thin-pool"' '"verdict": "unsafe"'

check_disks --disk path=/dev/vg/plain --disk path=/dev/vg/thin
await_free /dev/vg/thin
doctor 2 --disk /dev/vg/thin
! grep -qF 'ask its pool for 256M' "$work/doctor" || fail "the guest's writes took nothing of the pool"

# A guest that runs while its volume grows belongs to the tests of live changes.
volumes lvextend --size +32M vg/plain
[ "$(size_of /dev/vg/plain)" = $((96 << 20)) ] || fail "lsblk: $(size_of /dev/vg/plain) bytes"
to_the_end run_guest "verify-disk=1" --disk path=/dev/vg/plain
[ "$code" = 0 ] || fail "exit code $code of a guest with the volume that has grown"

# ---- Nodes ----

# look_at_memory: keeps in $maps what there is while the VMM runs, and is never content.
look_at_memory() {
    seen=$(grep 'memfd:guest-memory.* N[01]=' "/proc/$pid/numa_maps" 2>/dev/null) && maps=$seen
    false
}

# memory_of OPTION...: the line of /proc/PID/numa_maps for a running guest's memory.
memory_of() {
    await_free /dev/vg/plain
    start "$ringside" run --kernel "$guest" --memory 64M \
        --cmdline "rw=randread bs=64k qd=8 runtime=1s warmup=0ms end=poweroff" \
        --disk path=/dev/vg/plain,aio=native --explain "$@"
    maps=''
    wait_until 60 look_at_memory
    [ -n "$maps" ] || fail "the guest touched no memory"
    finish 60
    [ "$code" = 0 ] || { fail "exit code $code"; cat "$work/console"; }
}

# is_on NODES: whether those pages, in $maps, are on these nodes and on no other.
is_on() {
    for each in 0 1; do
        expected=no found=no
        case $1 in *$each*) expected=yes ;; esac
        case $maps in *" N$each="*) found=yes ;; esac
        [ $found = $expected ] || fail "pages on node $each: $found, expected $expected: $maps"
    done
}

for node in 0 1; do
    memory_of --memory-node $node
    is_on $node
    echo "$maps" | grep -qF " bind:$node " || fail "policy: $maps"
done
grep -qF "I/O thread may run on any node" "$work/console" || fail "nothing about the I/O thread's node"
! grep -qF "and the guest's memory is on" "$work/console" || fail "node 1 is called far from itself"
memory_of --memory-node 0,1
is_on 01
echo "$maps" | grep -qF " interleave:0-1 " || fail "policy: $maps"
grep -qF "the disk's device is on node 1, and the guest's memory is on nodes 0 and 1" \
    "$work/console" || { fail "nothing about the memory's nodes"; cat "$work/console"; }

await_free /dev/vg/plain
doctor 0 --disk /dev/vg/plain --iothread-cpu 0 --memory-node 0
says "the disk's device is on node 1, and its I/O thread may run on node 0" '--memory-node 1'
"$ringside" run --kernel "$guest" --memory-node 7 >"$work/doctor" 2>&1
[ $? = 2 ] || fail "node 7 was not refused"
says 'memory-node 7 does not exist: this host has 0, 1'

[ $failures = 0 ] && echo "LVM and nodes: passed"
exit $failures
