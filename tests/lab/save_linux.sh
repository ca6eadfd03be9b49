#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest whose init is the agent is saved in the middle of its
# work, ended as by a cut of the power, and goes on in another machine, again and again.
#
#   save_linux.sh RINGSIDE KERNEL INITRD CPUS ROUNDS
set -u
ringside=$1 kernel=$2 initrd=$3 cpus=$4 rounds=$5
. "$(dirname "$0")/common.sh"
api=$work/vm.sock vsock=$work/vm.vsock
machine="--api-sock $api --serial file=$work/serial --vsock cid=3,path=$vsock --disk path=$work/disk"
truncate -s 64M "$work/disk"

agent() { timeout 60 "$ringside" exec --vsock "$vsock" -- "$@"; }
ctl() { "$ringside" ctl "$api" "$@" 2>>"$work/errors" || fail "ctl $*: $(tail -n 1 "$work/errors")"; }
await_agent() {
    for _ in $(seq 100); do agent true 2>/dev/null && return; sleep 0.2; done
    fail "the agent does not answer"
}

go_on() {
    "$ringside" run --restore "$work/snap" --restore-clock $1 $machine 2>>"$work/errors" &
    pid=$!
    await_agent
}

"$ringside" run --kernel "$kernel" --initrd "$initrd" --cpus "$cpus" --memory 512M $machine \
    --cmdline "console=ttyS0 quiet panic=-1 rdinit=/sbin/agent-init" 2>>"$work/errors" &
pid=$!
await_agent
# A clock that is watched, and a disk at work: what is read is what was written, wherever it is saved.
cat >"$work/load" <<'END'
while :; do
    head -c 65536 /dev/urandom >/tmp/data
    cat /tmp/data >/dev/vda
    sync
    echo 3 >/proc/sys/vm/drop_caches
    head -c 65536 /dev/vda | cmp - /tmp/data && echo x >>/tmp/written || echo x >>/tmp/wrong
done
END
timeout 60 "$ringside" cp --vsock "$vsock" "$work/load" guest:/tmp/load || fail "cannot copy the load in"
agent sh -c 'setsid sh -c "while :; do i=\$((\${i:-0} + 1)); echo \$i >/tmp/ticks; sleep 0.05; done" >/dev/null 2>&1 &'
agent test -b /dev/vda || fail "the guest has no disk"
agent sh -c 'setsid sh /tmp/load >/dev/null 2>&1 &'
for round in $(seq "$rounds"); do
    rm -rf "$work/snap"
    ctl save "$work/snap" --stop on
    wait $pid || fail "round $round: exit code $?"
    "$ringside" snapshot verify "$work/snap" >/dev/null || fail "round $round: it is not whole"
    [ $((round % 2)) = 0 ] && clock=ran || clock=stood
    [ "$round" != "$rounds" ] || cp "$work/disk" "$work/disk.saved"
    go_on $clock
    before=$(agent cat /tmp/ticks)
    sleep 1
    after=$(agent cat /tmp/ticks)
    [ "${after:-0}" -gt "${before:-0}" ] || fail "round $round: its clock stands at '$before'"
    [ $failures = 0 ] || break
done
# Two that go on from one moment have other random numbers: their kernel sees to that, or the agent.
one=$(agent cat /proc/sys/kernel/random/uuid)
kill -9 $pid
wait $pid
mv "$work/disk.saved" "$work/disk"
go_on $clock
other=$(agent cat /proc/sys/kernel/random/uuid)
[ -n "$other" ] && [ "$one" != "$other" ] || fail "two copies have the random numbers '$one' and '$other'"
# As it becomes a copy Linux renews its random numbers, where it has the driver: Debian's cloud kernel
# 6.1 has none.
case $(agent uname -r) in
    6.1.*) expected=0 ;;
    *) expected=$rounds ;;
esac
copies=$(agent sh -c 'dmesg | grep -c "virtual machine fork"')
[ "$copies" = "$expected" ] || fail "the guest was told '$copies' times that it is a copy"
written=$(agent sh -c 'wc -l </tmp/written')
[ "${written:-0}" -gt "$rounds" ] || fail "the disk was written and read '$written' times"
agent test ! -e /tmp/wrong || fail "what was read is not what was written"
echo "$rounds rounds, $after ticks, the disk written $written times, told $copies times that it is a copy"
ctl shut-down --limit 1m
wait $pid || fail "exit code $? at the end"
warnings=$(warnings_in <"$work/serial")
[ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
[ $failures = 0 ] || { cat "$work/errors"; tail -n 40 "$work/serial"; exit 1; }
