#!/usr/bin/python3
"""Forks of one snapshot, up to a thousand alive at once, beside bare machines of it that are only KVM's:

  fork_fleet.py RESTORE_TIMES GUEST_ELF [--machines N] [--per-process N,...] [--rounds N] [--json FILE]

For each number per process, and in turns of each round for bare machines, forks, and forks that share the I/O
threads of their process: how long the first, the 100th, ... takes to its guest's first byte while those before
it are alive; what all take of memory; how long they take to end; their threads and descriptors. Then as many
forks are told a number each, and each has to know its own; and how long a restored guest takes to write to a
thousand pages, with its working set and without, in turns. Exit status 1 if one knows another's number, or if all take more than 3 s to end."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("bare", "fork", "pool")
TIMES = 21  # that one is made while so many are alive
MEMORY_MIB = 128
TOUCHED_PAGES = 1000
MOST_END_S = 3
SKIPPED = 77


class Holder:
    """A process of restore_times."""

    def __init__(self, program, guest):
        self._process = subprocess.Popen([program, "--kernel", guest], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)

    def tell(self, *words):
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self):
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            sys.exit(f"FAIL: {answer['error']}")
        return answer

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def threads(self):
        return len(os.listdir(f"/proc/{self._process.pid}/task"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def end(self):
        self._process.stdin.close()
        self._process.wait(60)


def available_kib():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


def marks(machines):
    return [mark for mark in (1, 10, 100, 300, 1000, 3000) if mark <= machines]


def fleet(options, snapshot, way, per_process):
    """Returns what was measured of one fleet."""
    holders = [Holder(options.program, options.guest) for _ in range(-(-options.machines // per_process))]
    try:
        for holder in holders:  # Warm, and with all that a process has but once.
            holder.ask("hold", snapshot, way, 1)
            holder.ask("drop")
        before = available_kib(), sum(h.threads() for h in holders), sum(h.descriptors() for h in holders)
        found = {"ms": {}, "all_ms": []}
        for number in range(1, options.machines + 1):
            times = TIMES if number in marks(options.machines) else 1
            ns = holders[(number - 1) // per_process].ask("hold", snapshot, way, times)["ns"]
            found["all_ms"].append(ns[0] / 1e6)
            if times > 1:
                found["ms"][number] = [each / 1e6 for each in ns]
        found["kib"] = (before[0] - available_kib()) / options.machines
        found["threads"] = (sum(h.threads() for h in holders) - before[1]) / options.machines
        found["descriptors"] = (sum(h.descriptors() for h in holders) - before[2]) / options.machines
        found["end_s"] = drop_all(holders)
        return found
    finally:
        for holder in holders:
            holder.end()


def drop_all(holders):
    begin = time.monotonic()
    for holder in holders:
        holder.tell("drop")
    for holder in holders:
        holder.answer()
    return time.monotonic() - begin


def keepers(options, snapshot, per_process):
    """Returns how many know another's number."""
    holders = [Holder(options.program, options.guest) for _ in range(-(-options.machines // per_process))]
    try:
        for number in range(options.machines):
            holders[number // per_process].ask("keep", snapshot, number + 1)
        wrong = sum(holder.ask("recall")["wrong"] for holder in holders)
        drop_all(holders)
        return wrong
    finally:
        for holder in holders:
            holder.end()


def working_set(options, snapshot):
    """Returns medians in ms: of the guest's own time, and of all from before the machine is made."""
    holder = Holder(options.program, options.guest)
    holder.ask("touch", snapshot, "record")
    found = {"on": [], "off": []}
    for _ in range(TIMES):
        for how, times in found.items():
            times.append(holder.ask("touch", snapshot, how))
    holder.end()
    return {how: {key: statistics.median(each[key] for each in times) / 1e6 for key in ("ns", "all_ns")}
            for how, times in found.items()}


def say(per_process, found):
    """A line for each way, and what a fork takes beyond a bare machine."""
    median = {}
    for way in WAYS:
        rounds = found[way]
        median[way] = {mark: statistics.median(sum((each["ms"][mark] for each in rounds), []))
                       for mark in rounds[0]["ms"]}
        parts = ", ".join(f"{mark}: {ms:.2f}" for mark, ms in median[way].items())
        figures = {key: statistics.median(each[key] for each in rounds)
                   for key in ("kib", "threads", "descriptors", "end_s")}
        print(f"{per_process} per process, {way}: ms of the nth {parts}; each takes {figures['kib']:.0f} KiB, "
              f"{figures['threads']:.1f} threads, {figures['descriptors']:.1f} descriptors; "
              f"all end in {figures['end_s']:.2f} s")
    for way in WAYS[1:]:
        print(f"{per_process} per process, {way} beyond bare, ms: " +
              ", ".join(f"{mark}: {median[way][mark] - median['bare'][mark]:.2f}" for mark in median[way]))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("guest")
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--per-process", default="50")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write all figures into this file")
    return parser.parse_args()


def main():
    options = parsed()
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("there is no /dev/kvm on this host")
        return SKIPPED
    all_found, failures = {}, []
    with tempfile.TemporaryDirectory() as name:
        beats, keeper, toucher = f"{name}/beats", f"{name}/keeper", f"{name}/toucher"
        maker = Holder(options.program, options.guest)
        maker.ask("make", beats, MEMORY_MIB)
        maker.ask("make-keeper", keeper, MEMORY_MIB)
        maker.ask("make-toucher", toucher, MEMORY_MIB, TOUCHED_PAGES)
        maker.end()
        for per_process in map(int, options.per_process.split(",")):
            found = {way: [] for way in WAYS}
            for _ in range(options.rounds):
                for way in WAYS:
                    found[way].append(fleet(options, beats, way, per_process))
            say(per_process, found)
            all_found[per_process] = found
            if max(each["end_s"] for way in WAYS[1:] for each in found[way]) > MOST_END_S:
                failures.append(f"{per_process} per process: they take more than {MOST_END_S} s to end")
        wrong = keepers(options, keeper, per_process)
        print(f"{options.machines} forks, told a number each: {wrong} know another's")
        touched = working_set(options, toucher)
        print(f"{TOUCHED_PAGES} pages, first written after a restore, ms: " +
              ", ".join(f"working set {how} {times['ns']:.2f} in the guest, {times['all_ns']:.2f} with the restore"
                        for how, times in touched.items()))
        if wrong:
            failures.append("a fork has seen another's memory")
    if options.json:
        Path(options.json).write_text(json.dumps(all_found))
    for failure in failures:
        print(f"FAIL: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
