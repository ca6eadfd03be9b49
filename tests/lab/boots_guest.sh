#!/bin/sh
# /autorun of the guests of boots.sh: a little of everything that a boot needs, and a word at the end. A whole Debian has
# fio, too, whose failure is one of the boot.
echo "cpus=$(nproc)"
[ ! -b /dev/vda ] || dd if=/dev/vda of=/dev/null bs=64k count=256 iflag=direct 2>/dev/null || echo disk=failed
if command -v fio >/dev/null; then
    echo "systemd=$(systemctl is-system-running)"
    fio --name=verify --filename=/var/tmp/verify --size=32M --rw=randwrite --bs=4k --verify=crc32c --direct=1 \
        --ioengine=libaio --iodepth=8 || exit 1
fi
echo guest=done
