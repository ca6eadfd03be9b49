#!/bin/sh
# From the checkout's top, by hand after 'ctest --test-dir build/release -R lab_disk_root':
#
#   save_lab.sh loop VERSION ROUNDS VARIANT...   VARIANT, save or pause, in turns: save_work.sh
#   save_lab.sh clones VERSION                   twice at once: save_clones.sh
#   save_lab.sh forks VERSION FORKS              many at once, by --template: save_forks.sh
#   save_lab.sh chain VERSION LINKS [NET_OPTIONS] as differences: save_chain.sh
#   save_lab.sh handler VERSION HANDLER          with memory from a handler: save_handler.sh
#   save_lab.sh elsewhere VERSION OTHER          saved on an L1 of its version, and gone on with on another
#
# The guest and its L1 have Linux VERSION, 6.1 or 6.12. LIMIT is how many seconds a lab may take, LAB_OPTIONS
# are more options for tools/lab; RINGSIDE and AGENT are the programs, if not those of build/release.
set -eu
task=$1 version=$2
shift 2
guest="build/lab/kernels/$version/bzImage build/lab/test-save-$version.cpio build/lab/test-disk.img 2"
ringside=${RINGSIDE:-build/release/ringside}

lab() {
    tools/lab --tries 3 --timeout "${LIMIT:-300}" --memory 2G --module tun --file tests/lab/common.sh \
        --file tests/lab/save_common.sh --file /usr/bin/iperf3 --file /usr/bin/date ${LAB_OPTIONS:-} "$@"
}

make_guest() {
    tools/lab --guest-initrd "build/lab/test-save-$version.cpio" --kernel-version "$version" \
        --module virtio_pci --module virtio_blk --module virtio_net \
        --module vmw_vsock_virtio_transport --module button --module evdev \
        --file "${AGENT:-build/release/ringside-agent}":/usr/sbin/ringside-agent \
        --file tests/lab/save_guest.sh:/sbin/agent-init --file /usr/bin/iperf3 --file /usr/bin/date
}

make_guest
case $task in
    loop) lab --kernel-version "$version" -- sh tests/lab/save_work.sh $ringside $guest "$@" ;;
    clones) lab --kernel-version "$version" -- sh tests/lab/save_clones.sh $ringside $guest ;;
    forks) lab --kernel-version "$version" -- sh tests/lab/save_forks.sh $ringside $guest "$@" ;;
    chain) lab --kernel-version "$version" -- sh tests/lab/save_chain.sh $ringside $guest "$@" ;;
    handler)
        lab --kernel-version "$version" --file "$1" -- \
            sh tests/lab/save_handler.sh $ringside $guest "$1"
        ;;
    elsewhere)
        directory=$(mktemp -d build/lab/elsewhere-XXXXXX)
        trap 'rm -rf "$directory"' EXIT
        results=
        for file in state memory disk0; do results="$results --get $directory/$file"; done
        lab --kernel-version "$version" $results -- \
            sh tests/lab/save_elsewhere.sh save $ringside $guest "$directory"
        lab --kernel-version "$1" --file "$directory" -- \
            sh tests/lab/save_elsewhere.sh restore $ringside build/lab/test-disk.img "$directory"
        ;;
esac
