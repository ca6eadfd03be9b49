"""tools/compare restore: how long until the guest of a saved machine says its first byte again, and how
long a machine stands still to be saved.

A target is a size of memory whose snapshot is in the page cache, or is not. All go on from the same
moment: a guest that says a byte every 20 us, and has nothing else to do.
"""

import datetime
import os
import random
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import cpu, machine_info
from .common import MeasureError, Progress
from .contestants import entry, need
from .quiet import NOISY_TRIES, Quiet
from .restore_contestants import Program, find_contestants
from .schedule import chosen

CACHES = {"warm": "the snapshot is in the page cache",
          "cold": "of the snapshot nothing is in the page cache when a run begins"}
BARE = "bare"
LIBRARY = "Ringside library"
FORK = "Ringside fork"
COMMAND = "Ringside command"

SAVED_MIB, WRITTEN_MIB = 128, 64  # of the machine that is saved


@dataclass(frozen=True)
class Target:
    memory_mib: int
    cache: str

    @property
    def name(self):
        return f"{size_text(self.memory_mib)} {self.cache}"

    @property
    def text(self):
        return CACHES[self.cache]


@dataclass
class Row:
    """One contestant on one target; times in ms."""

    name: str
    family: str
    noisy: bool
    p50: float
    p99: float
    low: float   # A quarter of the runs is below, and one is above `high`.
    high: float
    beyond: float  # The median of what a round's run took longer than the bare one; None without that.

    @property
    def spread(self):
        return (self.high - self.low) / 2 / self.p50


def size_text(mib):
    return f"{mib >> 10}G" if mib % 1024 == 0 else f"{mib}M"


def is_restore(results):
    return "restore" in results["settings"]


def rows(results, target):
    """Returns the Rows of a target's name, in the contestants' order."""
    found = []
    bare = _by_round(results, target, BARE)
    for contestant in results["contestants"]:
        name = contestant["name"]
        of_rounds = _by_round(results, target, name)
        if not of_rounds:
            continue
        times = sorted(of_rounds.values())
        pairs = [time - bare[number] for number, time in of_rounds.items() if number in bare]
        noisy = any(sample["noisy"] for sample in results["samples"]
                    if (sample["target"], sample["contestant"]) == (target, name))
        found.append(Row(name, contestant["family"], noisy, percentile(times, 50), percentile(times, 99),
                         percentile(times, 25), percentile(times, 75),
                         statistics.median(pairs) if pairs and name != BARE else None))
    return found


def percentile(times, percent):
    """Of what is sorted."""
    return times[min(len(times) * percent // 100, len(times) - 1)]


def _by_round(results, target, contestant):
    return {sample["round"]: sample["ns"] / 1e6 for sample in results["samples"]
            if (sample["target"], sample["contestant"]) == (target, contestant)}


def measure(options, results_format):
    """Returns what results.json holds."""
    found, missing = find_contestants(options)
    contestants = chosen(found, options, (1,))
    targets = [Target(memory_mib, cache) for cache in options.caches for memory_mib in options.memory]
    progress = Progress(len(options.caches) * options.rounds + len(options.memory) + options.saves)
    scratch = Path(tempfile.mkdtemp(prefix="ringside-compare-", dir=options.disk_dir))
    try:
        with Program(need(options.program, "--program"), scratch) as program:
            rounds = _Rounds(contestants, program, scratch, options, progress)
            rounds.make_snapshots()
            for cache in options.caches:
                rounds.run([target for target in targets if target.cache == cache])
            saves = rounds.save()
    finally:
        progress.clear()
        shutil.rmtree(scratch)
    now = datetime.datetime.now().astimezone()
    return {"format": results_format, "date": now.isoformat("T", "seconds"), "command": options.command,
            "machine": machine_info.describe(options.ringside),
            "settings": {"restore": True, "load": "a restore", "rounds": options.rounds,
                         "saved_mib": SAVED_MIB, "written_mib": WRITTEN_MIB},
            "missing": missing, "failures": rounds.failures, "noise": rounds.noise,
            "contestants": list(map(entry, contestants)),
            "targets": [{"name": target.name, "text": target.text} for target in targets],
            "samples": rounds.samples, "saves": saves}


class _Rounds:
    """Collects samples, failures and noise for results.json."""

    def __init__(self, contestants, program, scratch, options, progress):
        self._contestants, self._program, self._scratch = contestants, program, scratch
        self._options, self._progress = options, progress
        self._quiet = Quiet(options)
        self._failed = set()  # (memory_mib, contestant's name)
        self.samples, self.failures, self.noise = [], [], []

    def make_snapshots(self):
        for memory_mib in self._options.memory:
            self._progress.show(f"saving machines with {size_text(memory_mib)}")
            for contestant in self._contestants:
                place = self._place(contestant, memory_mib)
                try:
                    if not place.exists():
                        contestant.make(place, memory_mib, self._program)
                        _write_back(place)
                except MeasureError as error:
                    self._fail(contestant, memory_mib, "its snapshot", error)
            self._progress.advance(1)

    def run(self, targets):
        """One round that does not count, then all others, on targets that are measured in turns."""
        for number in range(-1, self._options.rounds):
            for _ in range(NOISY_TRIES):
                text = f"round {number + 1}/{self._options.rounds}, {targets[0].cache}"
                self._progress.show(text)
                noisy = None if self._options.accept_noise else self._quiet.wait()
                use, start = cpu.MachineUse(self._program.pid), time.monotonic()
                found = list(self._round(number, targets))
                noisy = self._quiet.during(use) or noisy
                if not self._quiet.repeats(noisy, time.monotonic() - start):
                    break
            if number >= 0:
                self.samples += [{**sample, "noisy": noisy} for sample in found]
                self.noise += [f"{text}: {noisy}"] * len(found) if noisy else []
                self._progress.advance(1)

    def save(self):
        """Of each save what its parts took."""
        place, saves = self._scratch / "saved", []
        for number in range(self._options.saves):
            self._progress.show(f"save {number + 1}/{self._options.saves}")
            saves.append(self._program.ask("save", place, SAVED_MIB, WRITTEN_MIB))
            shutil.rmtree(place)
            self._progress.advance(1)
        return saves

    def _round(self, number, targets):
        for target in targets:
            for contestant in _shuffled(self._contestants, f"{number} {target.name}"):
                if (target.memory_mib, contestant.name) in self._failed:
                    continue
                place = self._place(contestant, target.memory_mib)
                if target.cache == "cold":
                    _drop(place)
                try:
                    ns = contestant.restore(place, self._program)
                    yield {"target": target.name, "contestant": contestant.name, "round": number, "ns": ns}
                except MeasureError as error:
                    self._fail(contestant, target.memory_mib, f"round {number + 1}", error)

    def _place(self, contestant, memory_mib):
        return self._scratch / f"{contestant.snapshot}-{memory_mib}"

    def _fail(self, contestant, memory_mib, what, error):
        """It is left out from here on, with that memory."""
        self._failed.add((memory_mib, contestant.name))
        self.failures.append(f"{contestant.name} with {size_text(memory_mib)}, {what}: {error}")
        self._progress.note(f"FAILED {self.failures[-1]}")


def _shuffled(contestants, number):
    """In another order in each round: what a machine leaves behind when it ends, its successor pays for."""
    return random.Random(number).sample(contestants, len(contestants))


def _write_back(place):
    """What is not on the disk yet cannot be dropped."""
    for path in place.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def _drop(place):
    for path in place.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
