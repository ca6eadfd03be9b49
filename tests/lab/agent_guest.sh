#!/bin/busybox sh
# Process 1 of agent_linux.sh's guests: loads the modules and becomes the agent, which mounts what is
# missing and runs the rest of this, as the service of such a guest.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ "${1:-}" != service ]; then
    /bin/busybox --install -s
    mount -t proc proc /proc
    for module in /modules/*.ko; do insmod "$module" || echo "cannot load ${module##*/}"; done
    exec ringside-agent --init sh "$0" service
fi

# Streams that the agent has no part in: what comes is sent back, or its checksum once all has come.
ulimit -n 4096
socat -b 65536 VSOCK-LISTEN:1024,fork,backlog=1024 PIPE &
socat -b 65536 VSOCK-LISTEN:1025,fork,backlog=128 SYSTEM:sha256sum &
# With what its kernel has warned of, for the script that ends it.
trap 'dmesg -r | grep "^<[0-4]>"; echo "guest=has ended its service"; exit' TERM
echo "guest=up, Linux $(uname -r)"
while :; do sleep 0.1; done
