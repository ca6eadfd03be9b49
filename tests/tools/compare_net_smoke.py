#!/usr/bin/python3
"""A small tools/compare net from end to end, and one that is interrupted: compare_net_smoke.py. Of the
release build: that is what it measures."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from comparekit import net, summary

SKIPPED = 77
PATIENCE_S = 100
COMMAND = [sys.executable, "-m", "comparekit", "net", "--accept-noise", "--rounds", "1",
           "--frames", "64"]
SERIES = {"echo 64": [1, 16], "out 64": [1], "in 64": [0, 20000]}
NAMES = {"Ringside default", "ceiling"}
COSTS = ("cpu_ns_per_io", "host_cpu_ns_per_io")


def problems(results):
    """What is wrong with the results, a line each."""
    yield from results["failures"]
    for target, keys in SERIES.items():
        rows = {row.name: row for row in summary.rows(results, target, best_of=())}
        if not NAMES <= set(rows):
            yield f"{target}: rows for {list(rows)}, expected {NAMES}"
        for row in rows.values():
            if list(row.points) != keys:
                yield f"{target}: {row.name} has {list(row.points)}, expected {keys}"
            for key, point in row.points.items():
                if point["iops"].median <= 0:
                    yield f"{target}: {row.name} at {key}: nothing went through"
                # On a busy machine a job may be over before its reader looks: 0 is possible.
                for name in COSTS:
                    if point[name] is None:
                        yield f"{target}: {row.name} at {key}: no {name}"
    for sample in results["samples"]:
        for job in sample["jobs"]:
            # Whatever the machine does, and however full the tap is.
            if job["reordered"] or job["duplicates"] or job["lost"] > job["full"]:
                yield f"{sample['contestant']}: {job}"


def compare(directory):
    """A run of everything; returns its problems."""
    command = [*COMMAND, "--runtime", "100ms", "--depths", "1,16", "--in-rates", "0,20000",
               "--ringside-poll", "default", "--skip", "QEMU", "--skip", "ceiling,", "--out",
               directory]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if result.returncode != 0:
        return [f"status {result.returncode}: {result.stdout}{result.stderr}"]
    print(result.stdout)
    missing = [name for name in ("table.md", "net.svg") if not (Path(directory) / name).exists()]
    results = json.loads((Path(directory) / "results.json").read_text())
    return [*problems(results), *(f"no {name} was written" for name in missing)]


def namespace_of(process):
    return os.stat(f"/proc/{process}/ns/net").st_ino


def members(namespace):
    """The processes in a network namespace."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if namespace_of(process) == namespace:
                found.append(int(process))
        except OSError:
            continue  # It has ended.
    return found


def command_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return "which has ended by now"


def left_in(namespace):
    """Its processes in the end: one that is killed with its parent takes a moment to go."""
    deadline = time.monotonic() + 10
    while (left := members(namespace)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def interrupt(directory):
    """A run that is interrupted while a guest runs leaves no process in its namespace, and so no
    namespace and no tap."""
    process = subprocess.Popen([*COMMAND, "--runtime", "60s", "--depths", "1", "--kinds", "in,echo",
                                "--only", "ceiling", "--out", directory],
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        # Itself, the sender and the measured one.
        while (namespace_of(process.pid) == namespace_of("self")
               or len(members(namespace_of(process.pid))) < 3):
            if process.poll() is not None or time.monotonic() > deadline:
                return [f"it never ran: status {process.poll()}"]
            time.sleep(0.02)
        namespace = namespace_of(process.pid)
        process.send_signal(signal.SIGINT)
        status = process.wait(PATIENCE_S)
        left = left_in(namespace)
        return ([] if status == 128 + signal.SIGINT else [f"status {status} after SIGINT"]) + [
            f"process {one} is left: {command_of(one)}" for one in left]
    finally:
        process.kill()
        process.wait()


def main():
    for device in ("/dev/kvm", "/dev/net/tun"):
        if not os.access(device, os.R_OK | os.W_OK):
            print(f"SKIP '{device}' cannot be opened on this host")
            return SKIPPED
    if os.geteuid() != 0:
        print("SKIP a network namespace needs root")
        return SKIPPED
    assert set(SERIES) == {f"{kind} 64" for kind in net.KINDS}
    with tempfile.TemporaryDirectory() as directory:
        found = compare(directory) + interrupt(directory)
    print("".join(f"FAIL: {problem}\n" for problem in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
