"""From the samples of all rounds to medians with their spread.

results.json holds, under "samples", a dictionary a run: target, contestant, round, noisy (why, or
null), loop ("closed"; "open", whose arrivals are Poisson's; "periodic", open too), jobs, self. A
job's key is its depth in the closed loop, its rate in the open ones.
"""

import statistics
from dataclasses import dataclass, field

from .iothread import POLLING

# Contestants of these families are ways to the same end: shown is the best of them at each depth.
BEST_OF = ("host", "ceiling")
OURS = "Ringside"
EQUAL_POLLING = POLLING["grow-shrink"].name

_FIGURES = ("iops", "cpu_ns_per_io", "host_cpu_ns_per_io", "host_cpu_share", "kicks_per_io",
            "interrupts_per_io", "exits_per_io", "lost_share", "reordered")
_LATENCIES = ("mean", "p50", "p99", "p999")


@dataclass
class Figure:
    """Of one quantity over all rounds."""

    median: float
    low: float
    high: float

    @property
    def spread(self):
        """Half of the range, as a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


@dataclass
class Point:
    """One job of one contestant on one target."""

    figures: dict                 # name -> Figure
    by: str                       # The contestant, where it is the best of several.

    def __getitem__(self, name):
        return self.figures.get(name)


@dataclass
class Row:
    """One line of a table, one curve of a plot."""

    name: str
    family: str
    noisy: bool = False
    points: dict = field(default_factory=dict)  # a job's key -> Point


def rows(results, target, loop="closed", best_of=BEST_OF):
    """Returns the Rows of a target in the contestants' order; the best-of families come last."""
    found = [_row(results, target, contestant, loop) for contestant in results["contestants"]]
    found = [row for row in found if row.points]
    single = [row for row in found if row.family not in best_of]
    return single + [_best_of(family, found) for family in reversed(best_of)
                     if any(row.family == family for row in found)]


def job_keys(results, target, loop):
    """Of all jobs that were measured on a target."""
    return sorted({_key(job, loop) for sample in results["samples"]
                   if (sample["target"], sample["loop"]) == (target, loop)
                   for job in sample["jobs"]})


def sweep_rows(results, target, loop, key):
    """Returns a Row a curve of a sweep, of the job with that key; its points' keys are limits in
    microseconds."""
    found = {}
    for contestant in results["contestants"]:
        of_limit = _row(results, target, contestant, loop)
        if key not in of_limit.points:
            continue
        row = found.setdefault(contestant["curve"], Row(contestant["curve"], contestant["family"]))
        row.noisy = row.noisy or of_limit.noisy
        row.points[contestant["limit_us"]] = of_limit.points[key]
    return list(found.values())


def _key(job, loop):
    if job.get("net") == "in":
        return job["rate"]
    return job["qd"] if loop == "closed" else job["rate"]


def _row(results, target, contestant, loop):
    row = Row(contestant["name"], contestant["family"])
    jobs = {}
    for sample in results["samples"]:
        if (sample["target"], sample["contestant"], sample["loop"]) != (target, row.name, loop):
            continue
        row.noisy = row.noisy or sample["noisy"] is not None
        for job in sample["jobs"]:
            jobs.setdefault(_key(job, loop), []).append(job)
    row.points = {key: Point(figures(of_key), row.name) for key, of_key in sorted(jobs.items())}
    return row


def figures(jobs):
    """Returns {name: Figure} of the same job in all rounds; those that begin with depth1_ are of the
    depth-1 job beside it."""
    values = {name: [job[name] for job in jobs if name in job] for name in _FIGURES}
    for name in _LATENCIES:
        # Frames that go one way have none.
        values[name] = [job["latency_ns"][name] for job in jobs if "latency_ns" in job]
    beside = [job["depth1"] for job in jobs if "depth1" in job]
    values["depth1_iops"] = [job["iops"] for job in beside]
    for name in ("p50", "p99"):
        values[f"depth1_{name}"] = [job["latency_ns"][name] for job in beside]
    return {name: Figure(statistics.median(found), min(found), max(found))
            for name, found in values.items() if found}


def _best_of(family, found):
    candidates = [row for row in found if row.family == family]
    best = Row(family, family, any(row.noisy for row in candidates))
    for key in sorted({key for row in candidates for key in row.points}):
        best.points[key] = max((row.points[key] for row in candidates if key in row.points),
                               key=lambda point: point["iops"].median)
    return best


def ratio(row, reference, key, name="iops"):
    """A figure of `row` over the reference's; None if either was not measured."""
    pair = [of.points[key][name] if of and key in of.points else None for of in (row, reference)]
    if None in pair or not pair[1].median:
        return None
    return pair[0].median / pair[1].median


def reference(results):
    """The name of the row that ratios refer to, on all targets: Ringside that polls as long as QEMU
    does by default, else its first; None without Ringside."""
    ours = [contestant["name"] for contestant in results["contestants"]
            if contestant["family"] == OURS]
    equal = [name for name in ours if name.endswith(EQUAL_POLLING)]
    return next(iter(equal + ours), None)


def best_iops(all_rows):
    """Of all guests, ceiling left out: what the open loop's percents are of."""
    return max((point["iops"].median for row in all_rows if row.family not in BEST_OF
                for point in row.points.values()), default=0)
