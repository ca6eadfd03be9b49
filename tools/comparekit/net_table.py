"""The tables of tools/compare net: one for each kind of job and its load."""

from . import summary, table

# What is shown: heading, name of a figure, unit. Latency is that of round trips.
_LATENCY = (("p50, us", "p50", 1000), ("p99, us", "p99", 1000))
_COSTS = (("CPU, us", "cpu_ns_per_io", 1000), ("less vCPU", "host_cpu_ns_per_io", 1000),
          ("kicks", "kicks_per_io", 0.001), ("exits", "exits_per_io", 0.001),
          ("interrupts", "interrupts_per_io", 0.001))
_RATIO_COLUMN = 2
_RATE = {"echo": "k round trips/s", "out": "k frames/s", "in": "k frames/s"}

_LEGEND = """\
Thousands a second: medians of the rounds, with half of lowest to highest. ratio: to the reference.
CPU: process CPU a frame or round trip, what polling burns included; less vCPU: without the vCPU thread,
which spins. kicks and interrupts, which the guest counts, and exits, which are its accesses to devices
by KVM's tracepoints, in a thousand frames or round trips. The ceiling is a bare loop that writes and
reads frames. Where frames come in, the sender takes a processor too, and a guest that polls a third:
the busy thread stands for that."""


def markdown(results):
    """The whole of table.md."""
    head = table.title(results, "Networks beside each other", table.whose_ratios(results))
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "), _LEGEND,
                                     table.own_counters(results)])) + "\n"


def terminal(results):
    return "\n\n".join(filter(None, [table.whose_ratios(results), *_blocks(results, ""), _LEGEND,
                                     table.problems(results)]))


def rows_of(results, target):
    """Both ceilings are rows of their own."""
    return summary.rows(results, target["name"], best_of=())


def kind_of(target):
    return target["name"].partition(" ")[0]


def load(kind, key):
    """What a job's key says."""
    if kind == "echo":
        return f"{key} under way"
    if kind == "in":
        return f"{key:,} a second" if key else "as many as go"
    return "as many as go"


def _blocks(results, mark):
    for target in results["targets"]:
        rows, kind = rows_of(results, target), kind_of(target)
        if rows:
            yield f"{mark}{target['name']}: {target['text']}"
        for key in summary.job_keys(results, target["name"], "closed") if rows else ():
            figures = ((_RATE[kind], "iops", 1000), *(_LATENCY if kind == "echo" else ()), *_COSTS)
            yield table.of_figures(results, rows, key, load(kind, key), figures, _RATIO_COLUMN)
