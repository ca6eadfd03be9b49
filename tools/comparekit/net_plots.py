"""The plots of tools/compare net: for each kind of job and load how much goes through above, what it
costs below, a bar a contestant."""

from functools import partial

from . import net_table, plots, summary

_PANELS = (("iops", 1000, "thousand a second"),
           ("host_cpu_ns_per_io", 1000, "CPU a frame less vCPU, us"))


def draw(results, directory):
    columns = []
    for target in results["targets"]:
        rows, kind = net_table.rows_of(results, target), net_table.kind_of(target)
        for key in summary.job_keys(results, target["name"], "closed"):
            columns.append((f"{target['name']}, {net_table.load(kind, key)}",
                            [(row, row.points[key]) for row in rows if key in row.points]))
    draw_bars(results, directory / "net", "Networks beside each other", columns, _PANELS)


def columns_of(results, load):
    """A column for each target and job; load(key) is what a job's key says."""
    for target in results["targets"]:
        rows = summary.rows(results, target["name"])
        for key in summary.job_keys(results, target["name"], "closed"):
            yield (f"{target['name']}, {load(key)}",
                   [(row, row.points[key]) for row in rows if key in row.points])


def draw_bars(results, path, title, columns, panels):
    """One column for each of (heading, [(row, point)]), one row for each of (figure, unit, label)."""
    style = plots.Styles(results["contestants"], summary.reference(results))
    drawn = [partial(_bars, name=name, unit=unit, label=label) for name, unit, label in panels]
    plots.draw_figure(results, path, title, columns, drawn, style)


def _bars(axis, found, style, name, unit, label):
    for place, (row, point) in enumerate(found):
        figure = point[name]
        if figure is None:
            continue
        errors = [[(figure.median - figure.low) / unit], [(figure.high - figure.median) / unit]]
        axis.bar(place, figure.median / unit, yerr=errors, label=row.name, capsize=3,
                 color=style.of(row)["color"])
    axis.set_xticks([])
    axis.set_ylim(bottom=0)
    axis.set_ylabel(label)
