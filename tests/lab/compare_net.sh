#!/bin/sh
# Runs inside the lab (busybox sh; tools/lab --peer-qemu): the same guests on the same kind of tap under
# Ringside and under QEMU, in turns, each with iperf3 to the lab's kernel. tools/comparekit/lab_net.py
# starts it and reads what it leaves.
#
#   compare_net.sh GUESTS JOBS KERNEL INITRD ROUND JOB_SECONDS RESULTS
#
# A line of GUESTS is a NAME, the guest's number of vCPUs, the value of --net, and the command. One of JOBS
# is a NAME and the options of iperf3's client, which is here; the guest serves. RESULTS is a tar archive
# with a directory ROUND/NAME for each guest: what it said (facts), JOB.json of iperf3, JOB.begin and
# JOB.end (sample). A guest that failed leaves the file "failed" there and nothing else.
set -u
guests=$1 jobs=$2 kernel=$3 initrd=$4 round=$5 job_seconds=$6 results=$7
. "$(dirname "$0")/common.sh"
tap=rs0 host=10.77.0.1 guest_address=10.77.0.2

# sample MOMENT JOB: what the VMM has used until now, on one line: nanoseconds of all its threads and of
# the vCPUs', exits of its guest, interrupts of the network.
sample() {
    type_line "$1-$2"
    wait_for_value "interrupts-$1-$2" 30 || return
    read_times
    echo "$all_ns $vcpu_ns $(cat /sys/kernel/debug/kvm/$pid-*/exits) $(value "interrupts-$1-$2")" \
        >"$out/$2.$1"
}

# measure JOB IPERF_OPTION...
measure() {
    job=$1
    shift
    sample begin "$job" || fail "$job: the guest does not answer"
    timeout $((job_seconds + 40)) iperf3 -c $guest_address -t "$job_seconds" --connect-timeout 10000 -J "$@" \
        >"$out/$job.json" || fail "$job: $(sed -n 's/.*"error": *//p' "$out/$job.json")"
    sample end "$job" || fail "$job: the guest does not answer behind it"
}

can_be_reached() { ping -c 1 -W 1 $guest_address >/dev/null; }

# run_guest COMMAND...
run_guest() {
    code=none
    rm -rf "$out"
    mkdir -p "$out"
    if start_until 'guest=started' "$@" --kernel "$kernel" --initrd "$initrd" --cpus "$cpus" \
        --memory 512M --cmdline "console=ttyS0 quiet panic=-1" --net "$net"; then
        ip addr add $host/24 dev $tap
        ip link set $tap up
        wait_until 20 can_be_reached || fail "the guest does not answer"
        while read -r job options <&5; do
            [ $failures != 0 ] || measure "$job" $options
        done 5<"$jobs"
        type_line end
        finish_any 60
    else
        fail "the guest did not start"
    fi
}

# compare NAME COMMAND...: a line on the console, and its directory in the results.
compare() {
    out=$work/results/$round/$1 guest=$1
    shift
    to_the_end run_guest "$@"
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
    if [ $failures != 0 ]; then
        leave_failed
        return
    fi
    for fact in kernel pairs; do echo "$fact=$(value $fact)"; done >"$out/facts"
    echo "round $round: $guest"
}

mount -t debugfs debugfs /sys/kernel/debug
ip link set lo up
mkdir -p "$work/results"
while read -r name cpus net command <&4; do
    case $command in
        *qemu.sh*) spoiled_codes='0 143' ;;  # It ends with 0 after a triple fault, too.
        *) spoiled_codes='3 4 143' ;;
    esac
    compare "$name" $command
done 4<"$guests"
tar -cf "$results" -C "$work/results" .
