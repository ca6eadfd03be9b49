#!/usr/bin/python3
"""Runs inside the lab: FORKS machines at once that go on from one guest, which was saved after its boot, each with a
disk and a vsock of its own: how long it is from asking for them to the output of a command in each. In turns: forks
of one command of Ringside, a command of Ringside for each, and Firecracker, with the same kernel, initrd and agent.

    fork_latency.py RINGSIDE FIRECRACKER VMLINUX INITRD ROUNDS FORKS [OPTION...]   of the one command

Prints a line per round: the median and the last of the forks. At the end each one's median of the rounds.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_machines as machines  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../command"))
from unix_connection import UnixConnection  # noqa: E402

RINGSIDE, FIRECRACKER, VMLINUX, INITRD = (os.path.abspath(path) for path in sys.argv[1:5])
ROUNDS, FORKS = map(int, sys.argv[5:7])
OPTIONS = sys.argv[7:]
SCRIPT = "read -r uuid </proc/sys/kernel/random/uuid; echo $uuid"
MEMORY_MIB = 256
STEP = 0.002  # seconds, between two looks for a socket


def ask(path, method, what, **body):
    """Asks a machine over its own HTTP, as soon as somebody listens at `path`."""
    end = time.monotonic() + machines.LIMIT
    with contextlib.closing(UnixConnection(path, machines.LIMIT)) as connection:
        while True:
            try:
                connection.connect()
                break
            except OSError:
                assert time.monotonic() < end, f"nobody listens at {path}"
                time.sleep(STEP)
        connection.request(method, what, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status < 300, (what, answer.status, answer.read())


@contextlib.contextmanager
def started(command, place):
    with open(f"{place}/errors", "wb") as errors, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=place) as process:
        try:
            yield process
        finally:
            process.kill()


def make_disk(place):
    with open(f"{place}/disk", "wb") as file:
        file.truncate(16 << 20)


def save_ringside(place):
    command = machines.ringside(RINGSIDE, VMLINUX, INITRD, place, "--disk", f"path={place}/disk", "--api-sock",
                                f"{place}/api", memory=f"{MEMORY_MIB}M")
    with started(command, place) as process:
        machines.run_once_it_answers(f"{place}/vsock", "true", process=process)
        subprocess.run([RINGSIDE, "ctl", f"{place}/api", "save", f"{place}/snap", "--stop", "on"], check=True)


def save_firecracker(place):
    drive = {"drive_id": "disk", "path_on_host": "disk", "is_root_device": False, "is_read_only": False}
    command = machines.firecracker(FIRECRACKER, VMLINUX, INITRD, place, "--api-sock", "api", drives=[drive],
                                   memory_mib=MEMORY_MIB)
    with started(command, place) as process:
        machines.run_once_it_answers(f"{place}/vsock", "true", process=process)
        ask(f"{place}/api", "PATCH", "/vm", state="Paused")
        ask(f"{place}/api", "PUT", "/snapshot/create", snapshot_type="Full", snapshot_path=f"{place}/state",
            mem_file_path=f"{place}/memory")


def ringside_devices(place):
    return ["--serial", f"file={place}/console", "--disk", f"path={place}/disk", "--vsock",
            f"cid=3,path={place}/vsock"]


def fork(saved, places):
    """Seconds until each has said its uuid."""
    place = os.path.dirname(places[0])
    command = [RINGSIDE, "run", "--template", f"{saved}/snap", "--forks", str(len(places)),
               *ringside_devices(f"{place}/{{n}}"), *OPTIONS, "--exec", SCRIPT]
    said = {}
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            said[line] = time.perf_counter() - began
    assert process.returncode == 0 and len(said) == len(places), (process.returncode, said)
    return list(said.values())


def all_at_once(saved, places, go_on):
    """Likewise, of a process each; `go_on(saved, place)` has one go on, as a context."""
    times, said = [], set()

    def one(place):
        began = time.perf_counter()
        with go_on(saved, place) as process:
            said.add(machines.run_once_it_answers(f"{place}/vsock", "/bin/sh", "-c", SCRIPT, process=process, step=STEP))
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=one, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == len(said) == len(places), (times, said)
    return times


def restored(saved, place):
    return started([RINGSIDE, "run", "--restore", f"{saved}/snap", *ringside_devices(place)], place)


@contextlib.contextmanager
def loaded(saved, place):
    with started([FIRECRACKER, "--api-sock", "api", "--enable-pci"], place) as process:
        ask(f"{place}/api", "PUT", "/snapshot/load", snapshot_path=f"{saved}/state", resume_vm=True,
            mem_backend={"backend_type": "File", "backend_path": f"{saved}/memory"})
        yield process


WAYS = {"ringside --template": (save_ringside, fork),
        "ringside --restore": (save_ringside, lambda *what: all_at_once(*what, restored)),
        "firecracker": (save_firecracker, lambda *what: all_at_once(*what, loaded))}
found = {name: ([], []) for name in WAYS}
with tempfile.TemporaryDirectory() as top:
    made = {}
    for save, _ in WAYS.values():
        if save not in made:
            made[save] = f"{top}/{save.__name__}"
            os.mkdir(made[save])
            make_disk(made[save])
            save(made[save])
    for number in range(ROUNDS):
        for name, (save, measure) in WAYS.items():
            forks = f"{top}/forks"
            places = [f"{forks}/{n}" for n in range(1, FORKS + 1)]
            for each in places:
                os.makedirs(each)
                make_disk(each)
            times = measure(made[save], places)
            shutil.rmtree(forks)
            found[name][0].append(statistics.median(times) * 1e3)
            found[name][1].append(max(times) * 1e3)
            print(f"round {number + 1}, {name}: median {found[name][0][-1]:.0f} ms, last {found[name][1][-1]:.0f} ms",
                  flush=True)
theirs = statistics.median(found["firecracker"][0])
for name, (medians, last) in found.items():
    print(f"{FORKS} at once, {name}: median {statistics.median(medians):.0f} ms, last {statistics.median(last):.0f} ms, "
          f"{theirs / statistics.median(medians):.2f} times as quick as firecracker")
