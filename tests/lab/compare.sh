#!/bin/sh
# Runs inside the lab (busybox sh; tools/lab --peer-qemu): the same guests, disks and fio jobs under
# Ringside and under QEMU, in turns. tools/comparekit/lab.py starts it, lab_results.py reads what it leaves.
#
#   compare.sh GUESTS KERNEL INITRD ROOT_DISK ROUND JOB_SECONDS RESULTS
#
# A line of GUESTS is a NAME, the guest's number of vCPUs, the scheduler of the disk that is measured, the
# job file on the root disk, its jobs (with commas), the driver that the NVMe controller has meanwhile
# (-: as it is), the option that gives the guest what is measured (--disk or --vfio) with its value, and
# the command. The root disk runs compare_guest.sh. RESULTS is a tar archive with a directory ROUND/NAME
# for each guest: fio's result.json, what the guest said (facts), JOB.begin and JOB.end (sample), and
# Ringside's statistics.json. The lab needs common.sh, nvme.sh, debugfs, and what the commands name, too.
set -u
guests=$1 kernel=$2 initrd=$3 root=$4 round=$5 job_seconds=$6 results=$7
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/nvme.sh"

# sample MOMENT JOB: what the VMM has used until now, on one line: its processor time in ticks (proc(5):
# utime, stime), the nanoseconds that the vCPUs' threads and the disks' thread have run, the exits of its
# guest, which KVM counts for any VMM, and the interrupts of the disk, which the guest has counted.
sample() {
    file=$out/$2.$1
    interrupts=$(value "interrupts-$1-$2")
    set -- $(sed 's/.*) //' /proc/$pid/stat 2>/dev/null)
    [ $# -ge 13 ] || return  # it has just ended: finish tells how
    read_times
    echo "$((${12} + ${13})) $vcpu_ns $io_ns" \
        "$(cat /sys/kernel/debug/kvm/$pid-*/exits) $interrupts" >"$file"
}

# measure JOB: the guest waits for an answer on both sides of it.
measure() {
    for moment in begin end; do
        wait_for "$moment=$1;" 60 || return
        sample $moment "$1"
        type_line ""
        # Looking at the console takes CPU time from the guest.
        [ $moment = end ] || sleep "$job_seconds"
    done
}

# run_guest COMMAND...
run_guest() {
    code=none
    rm -rf "$out"
    mkdir -p "$out"
    case $option in
        --vfio) root_device=/dev/vda measured=/dev/nvme0n1 ;;
        *) root_device=/dev/vdb measured=/dev/vda ;;
    esac
    words="root=$root_device measured=$measured scheduler=$scheduler jobs=$job_file"
    if start_until 'guest=started' "$@" --kernel "$kernel" --initrd "$initrd" --cpus "$cpus" \
        --memory 512M --cmdline "console=ttyS0 quiet panic=-1 $words" \
        "$option" "$disk" --disk "path=$root,cache=none,aio=io_uring"; then
        for job in $(echo "$jobs" | tr ',' ' '); do measure "$job" || break; done
        finish_any 60
    else
        fail "the guest did not start"
    fi
}

# compare NAME COMMAND...: a line on the console, and its directory in the results. A guest that failed
# leaves nothing there but the file "failed", so that the others count.
compare() {
    out=$work/results/$round/$1 guest=$1
    shift
    to_the_end run_guest "$@"
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    grep -q '^guest=done' "$work/console" || fail "the guest did not come to its end"
    ! grep '^guest_error=' "$work/console" || fail "in the guest"
    /usr/sbin/debugfs -R "dump /result.json $out/result.json" "$root" 2>/dev/null
    [ -s "$out/result.json" ] || fail "fio left no results"
    if [ $failures != 0 ]; then
        leave_failed
        return
    fi
    for fact in clocksource scheduler kernel; do echo "$fact=$(value $fact)"; done >"$out/facts"
    sed -n '/^{\r*$/,$p' "$work/console" >"$out/statistics.json"
    echo "round $round: $guest"
}

mount -t debugfs debugfs /sys/kernel/debug
mkdir -p "$work/results"
while read -r name cpus scheduler job_file jobs driver option disk command <&4; do
    case $command in
        # Every second start of QEMU's nvme:// waits for ever, before it has a vCPU: it switches MSI-X
        # on after the admin queue is there, and QEMU's controller then has no vector for that.
        # It ends with 0 after a triple fault, too.
        *qemu.sh*)
            spoiled_codes='0 143'
            [ "$driver" = - ] || start_tries=12 start_seconds=20
            ;;
        *) start_tries=3 start_seconds=45 spoiled_codes='3 4 143' ;;
    esac
    case $driver in
        -) ;;
        # The kernel lets go of an ended process's io_uring, and of the disk, some time after it.
        nvme) sleep 1 && give_to_kernel || fail "the kernel does not take the controller" ;;
        *) give "$driver" || fail "$driver does not take the controller" ;;
    esac
    compare "$name" $command
done 4<"$guests"
tar -cf "$results" -C "$work/results" .
