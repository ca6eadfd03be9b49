"""The tables: Markdown that reads as well on a terminal."""

from . import summary

_HEADLINE_DEPTHS = (1, 32)

_LEGEND = """\
kIOPS: median of the rounds, spread: half of lowest to highest. ratio: IOPS ÷ the reference's. p50,
p99: latency, us. CPU: process CPU an I/O, us, what polling burns included; less vCPU: without the
vCPU thread, which spins for completions unless interrupts tell of them. kicks and interrupts: the
guest's, an I/O."""


def markdown(results):
    """The whole of table.md."""
    depths = results["settings"]["depths"]
    blocks = [title(results, "Ringside beside its peers", _reference(results)), problems(results)]
    for target in results["targets"]:
        all_rows = summary.rows(results, target["name"])
        if not all_rows:
            continue
        blocks.append(f"## {target['name']}: {target['text']}")
        blocks += _headlines(results, all_rows)
        blocks += ["Thousand I/Os a second by requests in flight, in brackets lowest to highest of "
                   "the rounds:", _all_depths(all_rows, depths)]
        blocks += _open_loop(results, target["name"])
    blocks.append(_footnotes(results))
    return "\n\n".join(filter(None, blocks)) + "\n"


def terminal(results):
    """The headlines of each target, and what went wrong."""
    blocks = [_reference(results)]
    for target in results["targets"]:
        all_rows = summary.rows(results, target["name"])
        if all_rows:
            blocks.append(f"{target['name']}: {target['text']}")
            blocks += _headlines(results, all_rows)
    return "\n\n".join(filter(None, [*blocks, _LEGEND, problems(results)]))


def headline_depths(depths):
    """Depth 1 and 32 where they were measured, else the ends of what was."""
    chosen = [depth for depth in _HEADLINE_DEPTHS if depth in depths]
    return chosen if len(chosen) == 2 else sorted({min(depths), max(depths)})


def title(results, heading, remark):
    """The conditions, for the head of table.md."""
    settings = results["settings"]
    return headed(results, heading,
                  f"{load_of(settings)}, completions by "
                  f"{settings['wait']}{''.join(f', {word}' for word in settings.get('thinking', []))}; medians "
                  f"of {settings['rounds']} interleaved rounds of {settings['runtime_ms']} ms a job. "
                  f"{remark}".rstrip())


def headed(results, heading, text):
    """A heading, a text, and the machine and the programs that were measured."""
    machine = results["machine"]
    lines = [
        f"# {heading}", "", text, "",
        f"- date: {results['date']}",
        f"- machine: {machine['cpu']}, {machine['processors']} processors "
        f"({machine['hypervisor']}), {machine['memory_gib']} GiB; {machine['distribution']}, "
        f"Linux {machine['kernel']}, {machine['kvm']}",
        f"- command: `{results['command']}`"]
    versions = {}
    for contestant in results["contestants"]:
        versions.setdefault(contestant["version"], contestant["family"])
    for version, family in versions.items():
        lines.append(f"- {family}: {version or 'this checkout'}"
                     + (f", commit {machine['commit']}" if family == summary.OURS else ""))
    return "\n".join(lines)


def _reference(results):
    name = summary.reference(results)
    if name is None:
        return ""
    equal = name.endswith(summary.EQUAL_POLLING)
    return f"Ratios are to {name}{', which polls as long as QEMU does by default' * equal}."


def load_of(settings):
    """What all jobs have in common."""
    return (settings.get("load")
            or f"{settings['rw']}, {settings['bs']}, {settings.get('queues', '1 queue')}")


def problems(results):
    """What failed, was noisy, or is missing; empty if all is well."""
    # The failed VMM's last output is below the first line, in results.json.
    lines = [f"- **FAILED** {text.splitlines()[0]}" for text in results["failures"]]
    runs = len(results["samples"])
    if results["noise"]:
        lines.append(f"- **NOISY** {len(results['noise'])} of {runs} runs, marked ! in the tables: "
                     f"first {results['noise'][0]}")
    lines += [f"- missing: {name}: {remedy}" for name, remedy in results["missing"].items()]
    return "\n".join(lines)


def _headlines(results, all_rows):
    """For each depth a table, and one of the depth-1 job if there was one beside it."""
    name = summary.reference(results)
    reference = next((row for row in all_rows if row.name == name), None)
    for depth in headline_depths(results["settings"]["depths"]):
        header = [f"{depth} in flight", "kIOPS", "spread", "ratio", "p50", "p99", "CPU", "less vCPU",
                  "kicks", "interrupts"]
        yield layout(header, [_headline_cells(row, reference, depth) for row in all_rows])
        beside = [row for row in all_rows if depth in row.points and row.points[depth]["depth1_iops"]]
        if beside:
            yield layout([f"1 beside {depth}", "kIOPS", "spread", "ratio", "p50", "p99"],
                         [_beside_cells(row, reference, depth) for row in beside])


def _headline_cells(row, reference, depth):
    point = row.points.get(depth)
    if point is None:
        return [marked_name(row)] + ["-"] * 9
    return [marked_name(row), *_rate_cells(row, reference, depth, "iops"),
            _microseconds(point["p50"]), _microseconds(point["p99"]),
            _microseconds(point["cpu_ns_per_io"]), _microseconds(point["host_cpu_ns_per_io"]),
            *("-" if point[name] is None else f"{point[name].median:.3f}"
              for name in ("kicks_per_io", "interrupts_per_io"))]


def _beside_cells(row, reference, depth):
    point = row.points[depth]
    return [marked_name(row), *_rate_cells(row, reference, depth, "depth1_iops"),
            _microseconds(point["depth1_p50"]), _microseconds(point["depth1_p99"])]


def _rate_cells(row, reference, depth, name):
    figure, ratio = row.points[depth][name], summary.ratio(row, reference, depth, name)
    return [_thousands(figure.median), f"±{figure.spread:.0%}",
            "-" if ratio is None else f"{ratio:.2f}"]


def _all_depths(all_rows, depths):
    lines = []
    for row in all_rows:
        cells = [row.points.get(depth) for depth in depths]
        lines.append([marked_name(row), *("-" if point is None else _spread(point["iops"])
                                    for point in cells)])
    return layout(["", *(f"qd {depth}" for depth in depths)], lines)


def _open_loop(results, target):
    all_rows = summary.rows(results, target, "open")
    if not all_rows:
        return []
    rates = sorted({rate for row in all_rows for rate in row.points})

    def by_rate(cell):
        lines = [[marked_name(row), *("-" if point is None else cell(point)
                                      for point in map(row.points.get, rates))]
                 for row in all_rows]
        return layout(["", *(f"{rate:,}" for rate in rates)], lines)

    return ["Open loop, Poisson arrivals: p50 / p99 in us from arrival to completion, by arrivals "
            "a second:",
            by_rate(lambda point: f"{_microseconds(point['p50'])} / {_microseconds(point['p99'])}"),
            "The same: the mean in us, and what the VMM took of a processor without its vCPU:",
            by_rate(lambda point: f"{_microseconds(point['mean'])}, {_share(point['host_cpu_share'])}")]


def _share(figure):
    return "-" if figure is None else f"{figure.median:.0%}"


def _footnotes(results):
    lines = []
    for target in results["targets"]:
        for row in summary.rows(results, target["name"]):
            if row.family in summary.BEST_OF:
                lines.append(f"- {row.name} on {target['name']}: its best engine, {_engines(row)}.")
        lines += _own_counters(results, target["name"])
    notes = {contestant["family"]: contestant.get("note") for contestant in results["contestants"]}
    lines += [f"- {family} {note}." for family, note in notes.items() if note]
    return "\n\n".join([_LEGEND, "\n".join(lines)])


def _engines(row):
    """Which one was the best at which depths."""
    depths = {}
    for depth, point in row.points.items():
        depths.setdefault(point.by.removeprefix(row.name + " "), []).append(str(depth))
    return "; ".join(f"{engine} at {', '.join(found)}" for engine, found in depths.items())


def own_counters(results):
    """A line for each contestant that says something of itself."""
    return "\n".join(line for target in results["targets"]
                     for line in _own_counters(results, target["name"]))


def _own_counters(results, target):
    """What contestants say of themselves, over all jobs of the last round."""
    last = {sample["contestant"]: sample["self"] for sample in results["samples"]
            if sample["target"] == target and sample["self"]}
    return [f"- {name} on {target} says of itself, all jobs and its start together: "
            + ", ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in counters.items()) + "."
            for name, counters in last.items()]


def of_targets(results, mark, heading, figures, ratio_column):
    """The tables of all targets, each under its heading with that mark: one for each key of its jobs.
    heading(key) is over the names, and figures(rows, key) are those of of_figures()."""
    for target in results["targets"]:
        rows = summary.rows(results, target["name"])
        if not rows:
            continue
        yield f"{mark}{target['name']}: {target['text']}"
        for key in summary.job_keys(results, target["name"], "closed"):
            yield of_figures(results, rows, key, heading(key), figures(rows, key), ratio_column)


def whose_ratios(results):
    """Whom ratios refer to; empty without Ringside."""
    name = summary.reference(results)
    return "" if name is None else f"Ratios are to {name}."


def of_figures(results, rows, key, heading, figures, ratio_column):
    """A table of the job with that key: a column for each (heading, name of a figure, unit) with its
    spread, and the ratio of I/Os a second to the reference in column `ratio_column`."""
    name = summary.reference(results)
    reference = next((row for row in rows if row.name == name), None)
    header = [heading, *(text for text, _, _ in figures)]
    header.insert(ratio_column, "ratio")
    lines = []
    for row in rows:
        point = row.points.get(key)
        cells = [marked_name(row), *(_with_spread(point and point[name], unit)
                                     for _, name, unit in figures)]
        ratio = summary.ratio(row, reference, key)
        cells.insert(ratio_column, "-" if ratio is None else f"{ratio:.2f}")
        lines.append(cells)
    return layout(header, lines)


def _with_spread(figure, unit):
    if figure is None:
        return "-"
    return f"{three_digits(figure.median / unit)} ±{figure.spread:.0%}"


def marked_name(row):
    """Ours in bold; noisy ones with a mark."""
    name = f"**{row.name}**" if row.family == summary.OURS else row.name
    return name + ("!" if row.noisy else "")


def _spread(figure):
    return (f"{_thousands(figure.median)} ({_thousands(figure.low)}..{_thousands(figure.high)})")


def _thousands(value):
    return three_digits(value / 1000)


def _microseconds(figure):
    return "-" if figure is None else three_digits(figure.median / 1000)


def three_digits(value):
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}"


def layout(header, lines):
    """A table, its columns padded for the eye too; figures to the right."""
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]

    def form(line):
        cells = [cell.ljust(width) if number == 0 else cell.rjust(width)
                 for number, (cell, width) in enumerate(zip(line, widths))]
        return f"| {' | '.join(cells)} |"

    rule = [("-" * width if number == 0 else "-" * (width - 1) + ":")
            for number, width in enumerate(widths)]
    return "\n".join([form(header), form(rule), *map(form, lines)])
