# Sourced by the scripts that run inside the lab with an NVMe controller (tools/lab --nvme).
nvme=0000:00:04.0

# driver_of ADDRESS
driver_of() { basename "$(readlink "/sys/bus/pci/devices/$1/driver")"; }

# give DRIVER [ADDRESS]: binds the controller to it, for good. Not anew: a block device that someone
# has still open keeps its name, and the next one would get another.
give() {
    [ "$(driver_of "${2:-$nvme}")" != "$1" ] || return 0
    at=/sys/bus/pci/devices/${2:-$nvme}
    [ ! -e "$at/driver" ] || echo "${2:-$nvme}" >"$at/driver/unbind"
    echo "$1" >"$at/driver_override"
    echo "${2:-$nvme}" >/sys/bus/pci/drivers_probe
    [ "$(driver_of "${2:-$nvme}")" = "$1" ]
}

# give_to_kernel: until its first namespace can be read there.
give_to_kernel() {
    give nvme || return 1
    tenths=100
    until [ -b /dev/nvme0n1 ]; do
        tenths=$((tenths - 1))
        [ $tenths -gt 0 ] || return 1
        sleep 0.1
    done
    dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
}
