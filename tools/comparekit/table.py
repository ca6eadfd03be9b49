"""The tables: Markdown that reads as well on a terminal."""

from . import summary

_HEADLINE_DEPTHS = (1, 32)


def markdown(results):
    """The whole of table.md."""
    blocks = [_title(results), _problems(results)]
    for target in results["targets"]:
        all_rows = summary.rows(results, target["name"])
        if not all_rows:
            continue
        blocks += [f"## {target['name']}: {target['text']}",
                   _headline(all_rows, results["settings"]["depths"]),
                   "Thousand I/Os a second at each depth, lowest to highest of the rounds in brackets:",
                   _all_depths(all_rows, results["settings"]["depths"])]
        blocks += _open_loop(results, target["name"])
    blocks.append(_footnotes(results))
    return "\n\n".join(filter(None, blocks)) + "\n"


def terminal(results):
    """The headline of each target, and what went wrong."""
    blocks = []
    for target in results["targets"]:
        all_rows = summary.rows(results, target["name"])
        if all_rows:
            blocks += [f"{target['name']}: {target['text']}",
                       _headline(all_rows, results["settings"]["depths"])]
    return "\n\n".join(filter(None, [*blocks, _legend(), _problems(results)]))


def headline_depths(depths):
    """Depth 1 and 32 where they were measured, else the ends of what was."""
    chosen = [depth for depth in _HEADLINE_DEPTHS if depth in depths]
    return chosen if len(chosen) == 2 else sorted({min(depths), max(depths)})


def _title(results):
    machine, settings = results["machine"], results["settings"]
    lines = [
        "# Ringside beside its peers", "",
        f"{settings['rw']}, {settings['bs']}, 1 queue, completions by {settings['wait']}; medians of "
        f"{settings['rounds']} interleaved rounds of {settings['runtime_ms']} ms a job.", "",
        f"- date: {results['date']}",
        f"- machine: {machine['cpu']}, {machine['processors']} processors ({machine['hypervisor']}), "
        f"{machine['memory_gib']} GiB; {machine['distribution']}, Linux {machine['kernel']}, "
        f"{machine['kvm']}",
        f"- command: `{results['command']}`"]
    versions = {}
    for contestant in results["contestants"]:
        versions.setdefault(contestant["version"], contestant["family"])
    for version, family in versions.items():
        lines.append(f"- {family}: {version or 'this checkout'}"
                     + (f", commit {machine['commit']}" if family == summary.REFERENCE else ""))
    return "\n".join(lines)


def _problems(results):
    lines = [f"- **FAILED** {text}" for text in results["failures"]]
    lines += [f"- **NOISY** {text}" for text in results["noise"]]
    lines += [f"- missing: {name}: {remedy}" for name, remedy in results["missing"].items()]
    return "\n".join(lines)


def _headline(all_rows, depths):
    chosen = headline_depths(depths)
    header = ["", *(f"{name} qd {depth}" if number == 0 else name
                    for depth in chosen
                    for number, name in enumerate(("kIOPS", "ratio", "p50", "p99", "CPU", "host CPU")))]
    reference = summary.reference(all_rows)
    lines = []
    for row in all_rows:
        cells = [_name(row)]
        for depth in chosen:
            cells += _headline_cells(row, reference, depth)
        lines.append(cells)
    return _table(header, lines)


def _headline_cells(row, reference, depth):
    point = row.points.get(depth)
    if point is None:
        return ["-"] * 6
    ratio = summary.ratio(row, reference, depth)
    return [_thousands(point["iops"].median), "-" if ratio is None else f"{ratio:.2f}",
            _microseconds(point["p50"]), _microseconds(point["p99"]),
            _microseconds(point["cpu_ns_per_io"]), _microseconds(point["host_cpu_ns_per_io"])]


def _all_depths(all_rows, depths):
    lines = []
    for row in all_rows:
        cells = [row.points.get(depth) for depth in depths]
        lines.append([_name(row), *("-" if point is None else _spread(point["iops"])
                                    for point in cells)])
    return _table(["", *(f"qd {depth}" for depth in depths)], lines)


def _open_loop(results, target):
    all_rows = summary.rows(results, target, "open")
    if not all_rows:
        return []
    rates = sorted({rate for row in all_rows for rate in row.points})
    lines = []
    for row in all_rows:
        points = [row.points.get(rate) for rate in rates]
        lines.append([_name(row), *("-" if point is None else
                                    f"{_microseconds(point['p50'])} / {_microseconds(point['p99'])}"
                                    for point in points)])
    return ["Open loop, Poisson arrivals: p50 / p99 in us from arrival to completion, by arrivals a second:",
            _table(["", *(f"{rate:,}" for rate in rates)], lines)]


def _legend():
    return ("ratio: IOPS ÷ Ringside's. p50, p99: latency, us. CPU: process CPU an I/O, us, of which the "
            "vCPU\nthread spins for completions; host CPU: the same less the vCPU thread.")


def _footnotes(results):
    best = []
    for target in results["targets"]:
        for row in summary.rows(results, target["name"]):
            if row.family in summary.BEST_OF:
                ways = ", ".join(f"{point.by.removeprefix(row.name + ' ')} at {depth}"
                                 for depth, point in row.points.items())
                best.append(f"- {row.name} on {target['name']} is the best of its engines: {ways}.")
    return "\n\n".join([_legend(), "\n".join(best)])


def _name(row):
    name = f"**{row.name}**" if row.family == summary.REFERENCE else row.name
    return name + (" (noisy)" if row.noisy else "")


def _spread(figure):
    return (f"{_thousands(figure.median)} ({_thousands(figure.low)}..{_thousands(figure.high)})")


def _thousands(value):
    return _three_digits(value / 1000)


def _microseconds(figure):
    return "-" if figure is None else _three_digits(figure.median / 1000)


def _three_digits(value):
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}"


def _table(header, lines):
    """Columns padded, so that the Markdown is a table for the eye too; figures to the right."""
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]

    def form(line):
        cells = [cell.ljust(width) if number == 0 else cell.rjust(width)
                 for number, (cell, width) in enumerate(zip(line, widths))]
        return f"| {' | '.join(cells)} |"

    rule = [("-" * width if number == 0 else "-" * (width - 1) + ":")
            for number, width in enumerate(widths)]
    return "\n".join([form(header), form(rule), *map(form, lines)])
