#!/usr/bin/python3
"""Runs inside the lab: how long `true` takes in a guest whose init is the agent, under Ringside and
under Firecracker, in turns, with the same kernel, initrd, agent and client.

    exec_latency.py RINGSIDE FIRECRACKER VMLINUX INITRD ROUNDS COMMANDS

Prints a line per round and, at the end, each one's median of the rounds' medians.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_machines as machines  # noqa: E402

RINGSIDE, FIRECRACKER, VMLINUX, INITRD = sys.argv[1:5]
ROUNDS, COMMANDS = map(int, sys.argv[5:7])


def ringside(place):
    return machines.ringside(RINGSIDE, VMLINUX, INITRD, place)


def firecracker(place):
    return machines.firecracker(FIRECRACKER, VMLINUX, INITRD, place, "--no-api")


def measure(command, place):
    path = f"{place}/vsock"
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=place) as machine:
        try:
            machines.run_once_it_answers(path, "true", process=machine)
            times = []
            for _ in range(COMMANDS):
                began = time.perf_counter()
                machines.run(path, "true")
                times.append(time.perf_counter() - began)
        finally:
            machine.kill()
    return statistics.median(times) * 1e3


medians = {"ringside": [], "firecracker": []}
for number in range(ROUNDS):
    for name, make in (("ringside", ringside), ("firecracker", firecracker)):
        with tempfile.TemporaryDirectory() as directory:
            medians[name].append(measure(make(directory), directory))
    print(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.2f} ms"
                                              for name, values in medians.items()), flush=True)
ours, theirs = (statistics.median(values) for values in medians.values())
print(f"p50 of a command: ringside {ours:.2f} ms, firecracker {theirs:.2f} ms, "
      f"ratio {theirs / ours:.2f}")
