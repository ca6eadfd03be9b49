#!/usr/bin/python3
"""The bare-metal guest's network driver, on taps in a network namespace of its own: net_guest.py GUEST
RINGSIDE. Under Ringside its checks and its hostile drivers; under QEMU its checks, on the bus that
Ringside does not have and on another VMM's idea of PCI."""

import os
import subprocess
import sys

from comparekit import network
from comparekit.common import BadInput

SKIPPED = 77
PATIENCE_S = 45  # five times less than its time-out
QEMU = "/usr/bin/qemu-system-x86_64"
QEMU_WORDS = ["-accel", "kvm", "-cpu", "host,-arch-capabilities", "-m", "256M", "-nodefaults",
              "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
              "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
              "-global", "virtio-mmio.force-legacy=false"]
ONE = network.Tap()
OTHER = network.Tap("ringside1", "10.77.1.1", "10.77.1.2", "52:54:00:4d:01:02")
TWO_PAIRS = network.Tap("ringside2", "10.77.2.1", "10.77.2.2", "52:54:00:4d:02:02")

failures = []


def run(title, command, expected, status):
    """Runs a VMM; each of the `expected` must be in what its guest prints, and no failure."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False,
                                timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        failures.append(f"{title}: hangs; it has printed {error.stdout}")
        return
    missing = [text for text in expected if text not in result.stdout]
    if missing or "FAIL" in result.stdout or result.returncode != status:
        failures.append(f"{title}: status {result.returncode}, missing {missing}\n{result.stdout}\n"
                        f"{result.stderr}")
    else:
        print(f"{title}: ok")


def addresses(tap):
    return f"net-own={tap.guest_address} net-host={tap.host_address}"


def run_qemu(guest, bus, machine, device, tap, pairs):
    backend = f"tap,id=n,ifname={tap.name},script=no,downscript=no,vhost=off"
    model = f"{device},netdev=n,mac={tap.guest_mac}"
    if pairs > 1:
        backend, model = f"{backend},queues={pairs}", f"{model},mq=on,vectors={2 * pairs + 2}"
    address = tap.guest_mac.replace(":", "")
    run(f"QEMU {bus}, {pairs} pairs",
        [QEMU, "-M", machine, *QEMU_WORDS, "-netdev", backend, "-device", model, "-kernel", guest,
         "-append", f"net-check={pairs} end=qemu {addresses(tap)}"],
        [f"guest: net 0 transport={bus} mac=0x{address} mtu=1500 link=up pairs={pairs} ok"], 33)


def ringside(program, guest, words, *networks):
    return [program, "run", "--kernel", guest, "--memory", "64M", "--cmdline", words,
            *(word for one in networks for word in ("--net", one))]


def net_of(tap, pairs=1):
    return f"tap={tap.name},mac={tap.guest_mac},queues={pairs}"


def main():
    guest, program = sys.argv[1:]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("SKIP there is no /dev/kvm on this host")
        return SKIPPED
    try:
        network.enter()
        network.add(ONE)
        network.add(OTHER)
        network.add(TWO_PAIRS, multi_queue=True)
    except BadInput as error:
        print(f"SKIP {error}")
        return SKIPPED
    run("Ringside", ringside(program, guest, f"net-check=1 {addresses(ONE)}", net_of(ONE)),
        ["guest: net 0 transport=pci mac=0x5254004d0002 mtu=1500 link=up pairs=1 ok"], 0)
    run("Ringside, 2 pairs",
        ringside(program, guest, f"net-check=2 {addresses(TWO_PAIRS)}", net_of(TWO_PAIRS, 2)),
        ["link=up pairs=2 ok"], 0)
    run("Ringside, hostile",
        ringside(program, guest, f"hostile-net=all {addresses(ONE)}", net_of(ONE), net_of(OTHER)),
        ["guest: hostile out-empty ok", "guest: hostile headers-lie ok",
         "guest: hostile impossible-pairs ok"], 0)
    if os.path.exists(QEMU):
        run_qemu(guest, "mmio", "microvm,acpi=off,pit=off,rtc=off", "virtio-net-device", ONE, 1)
        run_qemu(guest, "pci", "microvm,pcie=on,pit=off,rtc=off", "virtio-net-pci", TWO_PAIRS, 2)
    print("".join(f"FAIL: {failure}\n" for failure in failures), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
