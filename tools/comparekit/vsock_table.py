"""The tables of tools/compare vsock: one for each kind of job and its load."""

from . import table

_LATENCY = (("p50, us", "p50", 1000), ("p99, us", "p99", 1000))
_COSTS = (("CPU, us", "cpu_ns_per_io", 1000), ("less vCPU", "host_cpu_ns_per_io", 1000),
          ("kicks", "kicks_per_io", 0.001), ("exits", "exits_per_io", 0.001),
          ("interrupts", "interrupts_per_io", 0.001))
_RATIO_COLUMN = 2

_LEGEND = """\
Thousands a second (of round trips, messages out or connections): medians of the rounds, with half of
lowest to highest. ratio: to the reference. CPU: process CPU of the VMM for each, what polling burns
included; less vCPU: without the vCPU thread, which spins. kicks and interrupts, which the guest counts,
and exits, which are its accesses to devices by KVM's tracepoints, in a thousand. p50 and p99 are from a
message's leaving the guest to the whole next one's being there: the host's program is within that time.
That program, the vCPU and the VMM's own thread share the machine's processors."""


def markdown(results):
    """The whole of table.md."""
    head = table.title(results, "Vsocks beside each other", table.whose_ratios(results))
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "), _LEGEND,
                                     table.own_counters(results)])) + "\n"


def terminal(results):
    return "\n\n".join(filter(None, [table.whose_ratios(results), *_blocks(results, ""), _LEGEND,
                                     table.problems(results)]))


def load(count):
    """What a job's key says."""
    return f"{count} connection{'s' * (count > 1)}"


def _blocks(results, mark):
    return table.of_targets(results, mark, load, _figures, _RATIO_COLUMN)


def _figures(rows, count):
    has_latency = any(count in row.points and row.points[count]["p50"] for row in rows)
    return (("k/s", "iops", 1000), *(_LATENCY if has_latency else ()), *_COSTS)
