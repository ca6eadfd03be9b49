"""A front's tables: how far poll=cost is from it under each load, and a line each contestant."""

from . import front, sweep_table, table

_LEGEND = f"""\
CPU: what the VMM uses without its vCPU thread, what polling burns included; in percent of one
processor, and an I/O. mean, p50, p99: latency, us; in the open loop from when a request was due.
The front: Ringside polling never, and for a fixed time at most; of these, those that no other beats
in both CPU and mean latency. ÷ front: mean latency over the front's at the same CPU, between its
points by straight lines. CPU ÷ front: over the most that the front has a use for, where it is more.
on it: both at most {front.TOLERANCE:g}, or more CPU for that much less latency. extra: of the
latency that polling never adds to polling always, the share that is left. ÷ always: I/Os a second
over polling always. reached: of the arrivals asked for; where it is less than 1, latency is that of
a queue that grows. kicks: the guest's, an I/O."""
_HEADER = ("CPU, %", "CPU, us", "mean", "spread", "p50", "p99", "÷ front", "CPU ÷ front", "on it",
           "extra", "kIOPS", "÷ always", "reached", "kicks")


def markdown(results):
    """The whole of table.md."""
    blocks = [table.title(results, "Latency against processor time", ""), table.problems(results),
              _verdict(results, "## poll=cost beside the front")]
    for target in results["targets"]:
        for loop, key in front.loads(results, target["name"]):
            blocks += ["## " + sweep_table.heading(target, loop, key),
                       _table(results, target, loop, key)]
    return "\n\n".join(filter(None, [*blocks, _LEGEND])) + "\n"


def terminal(results):
    """How far from the front, and what went wrong."""
    return "\n\n".join(filter(None, [_verdict(results, "poll=cost beside the front"), _LEGEND,
                                     table.problems(results)]))


def _verdict(results, heading):
    """A line a load and price; without poll=cost nothing."""
    lines = []
    for target in results["targets"]:
        for loop, key in front.loads(results, target["name"]):
            for standing in front.standings(results, target["name"], loop, key):
                if standing.policy == front.COST:
                    load = f"{target['name']}, {sweep_table.load(loop, key)}"
                    lines.append([load, table.marked_name(standing.row),
                                  *_figures(standing, loop, key)])
    if not lines:
        return ""
    return f"{heading}\n\n" + table.layout(["load", "", *_HEADER], lines)


def _table(results, target, loop, key):
    found = front.standings(results, target["name"], loop, key)
    return table.layout(["", *_HEADER], [[table.marked_name(standing.row),
                                          *_figures(standing, loop, key)] for standing in found])


def _figures(standing, loop, key):
    """In the order of _HEADER."""
    point, distance = standing.point, standing.distance
    reached = None if loop == "closed" else point["iops"].median / key
    return [_median(point, "host_cpu_share", 0.01), _median(point, "host_cpu_ns_per_io", 1000),
            _median(point, "mean", 1000), f"±{point['mean'].spread:.0%}",
            _median(point, "p50", 1000), _median(point, "p99", 1000),
            _ratio(distance and distance.latency), _ratio(distance and distance.cpu),
            "-" if distance is None else "yes" if distance.is_on_front else "no",
            "-" if standing.extra is None else f"{standing.extra:.0%}",
            _median(point, "iops", 1000), _ratio(standing.iops_of_always), _ratio(reached),
            _median(point, "kicks_per_io", 1)]


def _median(point, name, unit):
    figure = point[name]
    return "-" if figure is None else table.three_digits(figure.median / unit)


def _ratio(value):
    return "-" if value is None else f"{value:.2f}"
