#!/bin/sh
# Runs a machine whose guest reports (report.sh), and then a command in that guest, whose output is here:
#
#   visit.sh RINGSIDE VSOCK RUN_ARGUMENT...
#
# VSOCK is the Unix socket of the machine's vsock device.
ringside=$1 vsock=$2
shift 2
# Its console alone would wait for what is typed.
"$ringside" run --vsock "cid=3,path=$vsock" "$@" </dev/null &
machine=$!
trap 'kill $machine 2>/dev/null; wait $machine; exit 1' INT TERM HUP
tries=0
until "$ringside" exec --vsock "$vsock" -- test -e /run/reported 2>/dev/null; do
    tries=$((tries + 1))
    if [ $tries = 600 ] || ! kill -0 $machine 2>/dev/null; then
        echo "the agent of the guest does not answer"
        kill $machine 2>/dev/null
        wait $machine
        exit 1
    fi
    sleep 0.2
done
echo "\$ ringside exec --vsock $vsock -- uname -a"
"$ringside" exec --vsock "$vsock" -- uname -a || echo "ringside exec has failed"
"$ringside" exec --vsock "$vsock" -- touch /run/visited
wait $machine
