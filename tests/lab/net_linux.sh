#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest on a tap of the lab's kernel, and on passt. It
# pings, moves MIB both ways while its queues are moved, sees its link pulled, and is visited by ssh; then
# a quarter of that with the machine paused, and its devices made anew, all the time. Both once more with
# the tap left to the kernel's vhost-net, a quarter of MIB each, and the tap removed at the end; then the
# bare-metal guest's hostile drivers break the kernel's rings.
#
#   net_linux.sh RINGSIDE PAUSING_RINGSIDE KERNEL INITRD MIB BARE_METAL_GUEST
set -u
ringside=$1 pausing=$2 kernel=$3 initrd=$4 mib=$5 bare_metal=$6
. "$(dirname "$0")/common.sh"
api=$work/vm.sock
mkfifo "$work/sent"
ip link set lo up
head -c 1000000 /dev/urandom >"$work/visit"
# passt gives the guest the addresses of an interface with a route.
tunctl -t up0 >/dev/null
ip addr add 192.0.2.10/24 dev up0
ip link set up0 up
ip route add default via 192.0.2.1
tunctl -t rs0 >/dev/null
dropbearkey -t ed25519 -f "$work/key" >"$work/key.text" 2>/dev/null
ssh_key=$(sed -n 's/^ssh-ed25519 \([^ ]*\).*/\1/p' "$work/key.text")

ctl() {
    "$ringside" ctl "$api" "$@" >"$work/ctl" 2>&1 && return
    fail "ctl $*: $(cat "$work/ctl")"
}

# boot PROGRAM LINK OPTION...: a guest, until the host has an address for it to talk to.
boot() {
    program=$1 link=$2
    shift 2
    killall nc sleep head 2>/dev/null  # of an attempt before
    start_until 'guest_mac=' "$program" run --kernel "$kernel" --initrd "$initrd" --memory 512M \
        --api-sock "$api" --cmdline "console=ttyS0 quiet panic=-1 net_mib=$mib net_link=$link ssh_key=$ssh_key" "$@" ||
        fail "the guest did not print its MAC address"
    # As the guest does it; before it can reach this end.
    sleep 3000 | nc -l -p 5001 | sha256sum >"$work/received.sum" &
    {
        sha256sum <"$work/sent" >"$work/sent.sum" &
        head -c $((mib << 20)) /dev/urandom | tee "$work/sent" | nc -l -p 5002 >/dev/null
    } &
    ip addr add 10.77.0.1/24 dev rs0 2>/dev/null
    ip link set rs0 up
}

check_transfer() {
    for _ in $(seq 100); do  # these are written when the guest has closed its connections
        [ -s "$work/sent.sum" ] && [ -s "$work/received.sum" ] && break
        sleep 0.1
    done
    [ "$(value ping_lost)" = 0 ] || fail "of 20 pings were lost: '$(value ping_lost)' %"
    [ "$(value received_sum)" = "$(cut -d ' ' -f 1 "$work/sent.sum")" ] ||
        fail "what the guest received is not what was sent"
    [ "$(value sent_sum)" = "$(cut -d ' ' -f 1 "$work/received.sum")" ] ||
        fail "what the guest sent is not what was received"
    warnings=$(warnings_in <"$work/console")
    [ -z "$warnings" ] || fail "the guest's kernel warns: $warnings"
    grep -q '^guest=done' "$work/console" || fail "the guest did not come to its end"
    [ "$code" = 0 ] || fail "exit code $code, expected 0"
}

# visit HOST PORT: by ssh, with bytes that the guest sends back.
visit() {
    sum=$(timeout 40 dbclient -y -y -i "$work/key" -p "$2" "root@$1" cat <"$work/visit" 2>"$work/ssh" |
        sha256sum | cut -d ' ' -f 1)
    [ "$sum" = "$(sha256sum <"$work/visit" | cut -d ' ' -f 1)" ] ||
        fail "ssh to $1, port $2: $(tail -n 1 "$work/ssh")"
}

# is_moved TAP_OPTION...
is_moved() {
    tap=$1
    shift
    boot "$ringside" yes --net "$tap,mac=02:00:00:00:77:02" "$@" --iothread id=a --iothread id=b
    [ $started = no ] || {
        moves=0
        until grep -q '^guest=transferred' "$work/console" || ! kill -0 $pid; do
            for to in b a; do
                ctl move-queue net0 0 --iothread $to
                ctl move-queue net0 1 --iothread $to
                moves=$((moves + 2))
            done
            sleep 0.2
        done
        case $tap in
        # A process of the kernel, since Linux 6.4 a thread of this one.
        *vhost=on)
            grep -qs "^vhost-$pid" /proc/[0-9]*/comm "/proc/$pid/task/"*/comm ||
                fail "the kernel serves no queue"
            ;;
        esac
        ctl set-link net0 --up off
        wait_for 'guest=sees that the link is down' 20 || fail "the guest does not see its link go"
        ctl set-link net0 --up on
        ctl network net0
        if wait_for 'guest=waits for visitors' 40; then
            visit 10.77.0.2 22
            case $tap in
            *vhost=on)
                ip link del rs0
                wait_for "net0: its network 'rs0' is gone" 10 || fail "the tap went unnoticed"
                tunctl -t rs0 >/dev/null
                ;;
            *) visit 127.0.0.1 2222 ;;  # passt's
            esac
            type_line ""
        else
            fail "the guest does not wait for visitors"
        fi
    }
    finish $((120 + mib))
}

is_hostile() {
    started=yes
    ip addr add 10.77.0.1/24 dev rs0 2>/dev/null
    start "$ringside" run --kernel "$bare_metal" --memory 64M --net "tap=rs0,vhost=on,mac=02:00:00:00:77:02" \
        --cmdline "hostile-net=all net-own=10.77.0.2 net-host=10.77.0.1"
    finish 120
}

is_paused() {
    RINGSIDE_PAUSES=30 boot "$pausing" no --net "$1" --disk type=null,size=1M
    finish $((180 + mib))
}

check_moved() {
    check_transfer
    [ "$(sed -n 's/.*guest_mac=\(.*\) mtu.*/\1/p' "$work/console")" = 02:00:00:00:77:02 ] ||
        fail "another MAC address than was given"
    [ "$(value replugged_lost)" = 0 ] || fail "behind the pulled link: '$(value replugged_lost)' % lost"
    [ "${moves:-0}" -ge 4 ] || fail "queues were moved ${moves:-0} times"
}
check_paused() {
    check_transfer
    [ "$(value pauses)" -ge 5 ] || fail "the machine was paused '$(value pauses)' times"
    [ "$(value restores)" -ge 2 ] || fail "devices were made anew '$(value restores)' times"
    pauses=$(value pauses) restores=$(value restores)
}

began=$(cut -d . -f 1 /proc/uptime)
quarter=$(((mib + 3) / 4))
to_the_end is_moved tap=rs0 --net user,tcp=2222:22
check_moved
[ "$(value dhcp_address)" = 192.0.2.10 ] || fail "DHCP by passt: '$(value dhcp_address)'"
! pidof passt >/dev/null || fail "passt is still there"
mib=$quarter
to_the_end is_paused tap=rs0
check_paused
to_the_end is_moved tap=rs0,vhost=on
check_moved
to_the_end is_paused tap=rs0,vhost=on
check_paused
to_the_end is_hostile
[ "$code" = 0 ] || fail "hostile drivers: exit code $code"
! grep FAIL "$work/console" || fail "hostile drivers did harm"
grep -q 'vhost-net) finds that the ring is broken' "$work/console" || fail "no ring was broken"
[ $failures = 0 ] || { echo "--- console:"; tail -n 60 "$work/console"; exit 1; }
echo "$moves moves, $pauses pauses, devices made anew $restores" \
    "times, in $(($(cut -d . -f 1 /proc/uptime) - began)) s"
