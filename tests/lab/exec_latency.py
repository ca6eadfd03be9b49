#!/usr/bin/python3
"""Runs inside the lab: how long `true` takes in a guest whose init is the agent, under Ringside and
under Firecracker, in turns, with the same kernel, initrd, agent and client.

    exec_latency.py RINGSIDE FIRECRACKER VMLINUX INITRD ROUNDS COMMANDS

Prints a line per round and, at the end, each one's median of the rounds' medians.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../agent"))
import agent_wire as wire  # noqa: E402

RINGSIDE, FIRECRACKER, VMLINUX, INITRD = sys.argv[1:5]
ROUNDS, COMMANDS = map(int, sys.argv[5:7])
COMMAND_LINE = "console=ttyS0 quiet panic=-1 reboot=k rdinit=/sbin/agent-init"
LIMIT = 120  # seconds, until a guest answers


def ringside(place):
    return [RINGSIDE, "run", "--kernel", VMLINUX, "--initrd", INITRD, "--memory", "512M", "--cmdline",
            COMMAND_LINE, "--serial", f"file={place}/console", "--vsock", f"cid=3,path={place}/vsock"]


def firecracker(place):
    config = {"boot-source": {"kernel_image_path": VMLINUX, "initrd_path": INITRD,
                              "boot_args": COMMAND_LINE},
              "machine-config": {"vcpu_count": 1, "mem_size_mib": 512}, "drives": [],
              "vsock": {"guest_cid": 3, "uds_path": f"{place}/vsock"}}
    with open(f"{place}/config", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return [FIRECRACKER, "--no-api", "--config-file", f"{place}/config", "--enable-pci"]


def run_true(path):
    with wire.Wire(path, limit=10) as client:
        client.send(wire.command("true") + wire.frame(wire.STDIN_END))
        assert wire.EXIT in client.until(wire.EXIT)


def measure(command, path):
    end = time.monotonic() + LIMIT
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as machine:
        try:
            while True:
                try:
                    run_true(path)
                    break
                except (OSError, AssertionError):
                    assert time.monotonic() < end and machine.poll() is None, "no agent"
                    time.sleep(0.2)
            times = []
            for _ in range(COMMANDS):
                began = time.perf_counter()
                run_true(path)
                times.append(time.perf_counter() - began)
        finally:
            machine.kill()
    return statistics.median(times) * 1e3


medians = {"ringside": [], "firecracker": []}
for number in range(ROUNDS):
    for name, make in (("ringside", ringside), ("firecracker", firecracker)):
        with tempfile.TemporaryDirectory() as directory:
            medians[name].append(measure(make(directory), f"{directory}/vsock"))
    print(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.2f} ms"
                                              for name, values in medians.items()), flush=True)
ours, theirs = (statistics.median(values) for values in medians.values())
print(f"p50 of a command: ringside {ours:.2f} ms, firecracker {theirs:.2f} ms, "
      f"ratio {theirs / ours:.2f}")
