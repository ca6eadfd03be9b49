"""tools/compare front: what latency a way to wait buys for what processor time. Drawn by
poll=never and by poll=fixed while its limit goes up, the front is what any rule that looks for a
constant time can reach; every other policy, and QEMU, is placed beside it.

A spot is (processor time, latency): less is better of both.
"""

from dataclasses import dataclass

from . import summary
from .contestants import Qemu, Ringside, need, qemu_commands, startable
from .iothread import EQUAL_LIMIT_US, QEMU_POLL_MAX_NS, Polling
from .schedule import ARRIVALS

FIXED, NEVER, ALWAYS, COST = "fixed", "never", "always", "cost"
TOLERANCE = 1.05
LOOPS = ("closed", *ARRIVALS)


def find_points(options):
    """Returns (contestants that can be started, {name of a missing one: remedy})."""
    missing = {}
    program = need(options.ringside, "--ringside")
    ways = [Polling(NEVER), *(Polling(FIXED, limit_us) for limit_us in options.limits),
            Polling("grow-shrink", EQUAL_LIMIT_US), Polling("weighted", EQUAL_LIMIT_US),
            *(Polling(COST, price=price) for price in options.price), Polling(ALWAYS)]
    found = []
    for way in ways:
        point = Ringside(program, options.ringside_aio[0], way)
        point.policy, point.limit_us = way.policy, 0 if way.policy == NEVER else way.limit_us
        # The limit plays no part in which bytes arrive.
        point.checked = way.policy != FIXED or way.limit_us == options.limits[-1]
        found.append(point)
    for words in qemu_commands(options, missing):
        for aio in options.qemu_aio:
            for poll_max_ns in (0, QEMU_POLL_MAX_NS):
                point = Qemu(words, aio, poll_max_ns)
                point.policy, point.limit_us = "", None
                found.append(point)
    return startable(found, missing), missing


def complete(results, points, options):
    """Adds to results of these points what makes them a front."""
    by_name = {point.name: point for point in points}
    for entry in results["contestants"]:
        point = by_name[entry["name"]]
        entry.update(policy=point.policy, limit_us=point.limit_us)
    results["settings"]["front"] = {"limits_us": list(options.limits),
                                    "prices": list(options.price)}
    return results


def is_front(results):
    return "front" in results["settings"]


def pareto(spots):
    """Returns those that no other beats, by rising processor time: their latency falls."""
    line = []
    for cpu, latency in sorted(spots):
        if not line or latency < line[-1][1]:
            line.append((cpu, latency))
    return line


def latency_at(line, cpu):
    """What the front has for that processor time: straight lines between its spots, and nothing
    better than the last of them beyond it."""
    if cpu <= line[0][0]:
        return line[0][1]
    for (left, high), (right, low) in zip(line, line[1:]):
        if cpu <= right:
            return high + (low - high) * (cpu - left) / (right - left)
    return line[-1][1]


@dataclass
class Distance:
    """From the front; 1 is on it, less is better than it."""

    latency: float   # Over the front's for the same processor time.
    cpu: float       # Over the most that the front has a use for; 1 if it is less.

    @property
    def is_on_front(self):
        """Beyond its end, more processor time has to be worth something."""
        if self.cpu > TOLERANCE:
            return self.latency < 1 / TOLERANCE
        return self.latency <= TOLERANCE


def distance(line, spot):
    cpu, latency = spot
    most = line[-1][0]
    beyond = cpu / most if most and cpu > most else 1.0
    return Distance(latency / latency_at(line, cpu), beyond)


def share_of_extra(latency, never, always):
    """How much of the latency that never polling adds to always polling is left; None if there is
    no such latency."""
    return (latency - always) / (never - always) if never > always else None


@dataclass
class Standing:
    """One contestant under one load. What could not be told is None."""

    row: summary.Row
    policy: str
    limit_us: int
    point: summary.Point
    distance: Distance = None
    extra: float = None         # The share of never's.
    iops_of_always: float = None

    @property
    def is_of_front(self):
        """Whether it is one of those that the front is drawn by."""
        return self.policy in (NEVER, FIXED)

    @property
    def spot(self):
        """Percent of a processor, us."""
        return self.point["host_cpu_share"].median * 100, self.latency

    @property
    def latency(self):
        return self.point["mean"].median / 1000


def standings(results, target, loop, key):
    """Returns the Standings of all that were measured under a load, in the contestants' order."""
    entries = {entry["name"]: entry for entry in results["contestants"]}
    found = [Standing(row, entries[row.name]["policy"], entries[row.name]["limit_us"],
                      row.points[key])
             for row in summary.rows(results, target, loop) if key in row.points]
    found = [standing for standing in found if standing.point["host_cpu_share"]]
    line = front_of(found)
    never, always = (next((standing for standing in found if standing.policy == policy), None)
                     for policy in (NEVER, ALWAYS))
    for standing in found:
        if line:
            standing.distance = distance(line, standing.spot)
        if never and always:
            standing.extra = share_of_extra(standing.latency, never.latency, always.latency)
        if always:
            standing.iops_of_always = (standing.point["iops"].median
                                       / always.point["iops"].median)
    return found


def front_of(found):
    return pareto(standing.spot for standing in found if standing.is_of_front)


def loads(results, target):
    """Returns (loop, key) of all that was measured on a target."""
    return [(loop, key) for loop in LOOPS
            for key in summary.job_keys(results, target, loop)]
