# Sourced, behind common.sh, by the scripts that save guests (save_guest.sh) and go on with them. Sets up the
# tap rs0, and the iperf3 that the guests talk to. Of the caller: ringside, kernel, initrd, fio_disk, cpus.
tunctl -t rs0 >/dev/null
ip addr add 10.77.0.1/24 dev rs0
ip link set rs0 up
iperf3 -s >"$work/iperf3" 2>&1 &
server=$!

# as NUMBER: the machine that all of the below is about, with devices of its own; a restore is given them anew.
as() {
    api=$work/$1.sock vsock=$work/$1.vsock disk=$work/disk$1 serial=$work/serial$1
    devices="--api-sock $api --serial file=$serial --vsock cid=$(($1 + 3)),path=$vsock --net tap=rs$1${net_options:-} \
        --disk path=$fio_disk,readonly=on --disk path=$disk"
    eval "pid=\${pid_$1:-0}"
}
as 0

# The first signal of timeout goes to the guest's command, so a second ends what is stuck.
agent() { timeout -k 5 ${patience:-30} "$ringside" exec --vsock "$vsock" -- "$@" 2>>"$work/errors"; }

ctl() {
    "$ringside" ctl "$api" "$@" >>"$work/ctl" 2>>"$work/errors" && return
    fail "ctl $*: $(tail -n 1 "$work/errors")"
    return 1
}

# within SECONDS CONDITION...: no longer than the VMM runs; of conditions that may take their time themselves.
within() {
    end=$(($(cut -d . -f 1 /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(cut -d . -f 1 /proc/uptime)" -lt $end ] && kill -0 $pid 2>/dev/null || return 1
        sleep 0.2
    done
}

# A connection that is made while the guest's driver is not there waits for long.
await_agent() { patience=5 within "${1:-30}" agent true; }

end_guest() {
    kill -9 $pid 2>/dev/null
    wait $pid
}

restore() { "$ringside" run --restore "$work/snap" "$@" $devices 2>>"$work/errors" & pid=$!; }

# boot_worker: a guest that has begun with its work. A boot that hangs is the emulator's: see start_until.
boot_worker() {
    for try in $(seq $start_tries); do
        failures=0
        rm -f "$disk" "$serial"
        truncate -s 32M "$disk"
        "$ringside" run --kernel "$kernel" --initrd "$initrd" --cpus "$cpus" --memory 256M $devices \
            --cmdline "console=ttyS0 quiet panic=-1 rdinit=/sbin/agent-init" 2>>"$work/errors" &
        pid=$!
        await_agent 90 && moves 120 && [ $failures = 0 ] && return
        end_guest
        echo "try $try: the guest does not get to its work; the console ends with"
        tail -n 3 "$serial"
    done
    return 1
}

now() { /usr/bin/date +%s%N; }
in_ms() { echo $(($1 / 1000000)); }

# look: what the guest says of itself, in $counts and $wrong, and by how many nanoseconds this kernel's clock is
# ahead of the guest's: at least $least, at most $most.
look() {
    asked=$(now)
    said=$(agent sh /sbin/agent-init look) || return 1
    answered=$(now)
    set -- $(echo "$said" | head -n 1)
    [ $# = 6 ] || return 1
    least=$((asked - $1)) most=$((answered - $1))
    shift
    counts=$*
    warnings=$(echo "$said" | warnings_in)
    wrong=$(echo "$said" | sed '1d; /^<[0-4]>/d')
    [ -z "$warnings$wrong" ] || fail "the guest: $wrong$warnings"
}

# has_moved COUNTS...: whether all has since those.
has_moved() {
    look && set -- "$@" $counts && [ "$6" -gt $(($1 + 10)) ] && [ "$7" -gt "$2" ] && [ "$8" -gt "$3" ] &&
        [ "$9" -gt $(($4 + 20000)) ] && [ "${10}" -gt $(($5 + 20000)) ]
}

# moves SECONDS: all of it does, from now on.
moves() {
    look || return
    from=$counts
    within "$1" has_moved $from && return
    fail "not all goes on: from $from to $counts"
}

# random: in $random, the first that is asked of a machine that goes on.
random() { random=$(agent cat /proc/sys/kernel/random/uuid) && [ -n "$random" ]; }

# told_of_copies TIMES: by its driver, where it has one: Debian's cloud kernel 6.1 has none.
told_of_copies() {
    told=$(agent sh -c 'dmesg | grep -c "virtual machine fork"')
    case $(agent uname -r) in 6.1.*) set -- 0 ;; esac
    [ "$told" = "$1" ] || fail "the guest was told '$told' times that it is a copy, expected $1"
}

# end_worker: has the guest's fio end, which says whether it has seen an error, and the guest power off.
end_worker() {
    agent killall -INT fio
    within ${fio_limit:-300} agent test -e /tmp/wrong_disk || fail "fio does not come to its end"
    said=$(agent cat /tmp/fio)
    case $said in *'err= 0:'*) ;; *) fail "fio: $said" ;; esac
    ctl shut-down --limit 1m
    wait $pid || fail "exit code $? at the end"
}
