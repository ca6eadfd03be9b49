"""A sweep's tables: a line a curve, a column a limit."""

from . import summary, table

_LEGEND = """\
Limits: the longest that the I/O thread polls before it sleeps. CPU: what the VMM uses without its
vCPU thread, what polling burns included; in percent of one processor, and an I/O. kicks: the
guest's."""

# By the loop: what is shown, the figure's name, what it is divided by, whether on the terminal too.
_QUANTITIES = {
    "closed": (("kIOPS", "iops", 1000, True), ("CPU, %", "host_cpu_share", 0.01, True),
               ("CPU an I/O, us", "host_cpu_ns_per_io", 1000, False),
               ("p99 latency, us", "p99", 1000, False),
               ("kicks an I/O", "kicks_per_io", 1, False)),
    "open": (("p50 latency, us", "p50", 1000, True), ("p99 latency, us", "p99", 1000, True),
             ("CPU, %", "host_cpu_share", 0.01, True),
             ("kicks an I/O", "kicks_per_io", 1, False)),
}
_LOAD = {"closed": "{} in flight", "open": "{:,} arrivals a second, Poisson",
         "periodic": "{:,} arrivals a second, periodic"}


def markdown(results):
    """The whole of table.md."""
    head = table.title(results, "How long to poll", "")
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "),
                                     _LEGEND])) + "\n"


def terminal(results):
    """I/Os a second, or latency, and processor time; and what went wrong."""
    blocks = _blocks(results, "", lambda quantity: quantity[-1])
    return "\n\n".join(filter(None, [*blocks, _LEGEND, table.problems(results)]))


def heading(target, loop, key):
    return f"{target['name']}, {load(loop, key)}: {target['text']}"


def load(loop, key):
    return _LOAD[loop].format(key)


def _blocks(results, mark, chosen=lambda _: True):
    blocks = []
    for target in results["targets"]:
        for loop, quantities in _QUANTITIES.items():
            for key in summary.job_keys(results, target["name"], loop):
                rows = summary.sweep_rows(results, target["name"], loop, key)
                blocks.append(mark + heading(target, loop, key))
                blocks += [_by_limit(results, rows, *quantity[:-1])
                           for quantity in quantities if chosen(quantity)]
    return blocks


def _by_limit(results, rows, text, name, unit):
    limits = results["settings"]["limits_us"]
    lines = [[table.marked_name(row), *(_cell(row.points.get(limit), name, unit)
                                        for limit in limits)] for row in rows]
    return table.layout([f"{text}, by limit", *(f"{limit} us" for limit in limits)], lines)


def _cell(point, name, unit):
    figure = point and point[name]
    return table.three_digits(figure.median / unit) if figure else "-"
