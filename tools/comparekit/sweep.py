"""tools/compare sweep: for how long to poll. The same jobs while the limit of the I/O thread's
polling goes from nothing to longer than a request takes: Ringside by each policy that has a limit,
QEMU beside it.

The contestants are points: those of one curve differ in their limit alone.
"""

from .contestants import Qemu, Ringside, need, qemu_commands, startable
from .iothread import Polling


def find_points(options):
    """Returns (contestants that can be started, {name of a missing one: remedy}).

    They are in the order of their limits, so that what drifts meanwhile bends no curve.
    """
    missing = {}
    program = need(options.ringside, "--ringside")
    qemus = qemu_commands(options, missing)
    found = []
    for limit_us in options.limits:
        for engine in options.ringside_aio:
            for policy in options.ringside_poll:
                point = Ringside(program, engine, Polling(policy, limit_us))
                found.append(_put_on_curve(point, f"{point.base_name} {policy}", limit_us, options))
        for words in qemus:
            for aio in options.qemu_aio:
                point = Qemu(words, aio, limit_us * 1000)
                found.append(_put_on_curve(point, point.base_name, limit_us, options))
    return startable(found, missing), missing


def _put_on_curve(point, curve, limit_us, options):
    point.curve, point.limit_us = curve, limit_us
    # The limit plays no part in which bytes arrive: one check a curve is enough.
    point.checked = limit_us == options.limits[-1]
    return point


def complete(results, points):
    """Adds to results of these points what makes them a sweep, for summary.sweep_rows()."""
    by_name = {point.name: point for point in points}
    for entry in results["contestants"]:
        point = by_name[entry["name"]]
        entry.update(curve=point.curve, limit_us=point.limit_us)
    results["settings"]["limits_us"] = sorted({point.limit_us for point in points})
    return results


def is_sweep(results):
    return "limits_us" in results["settings"]
