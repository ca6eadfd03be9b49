"""The plots, as SVG for documents and PNG for looking: one column a target, one legend for all."""

import re
from functools import partial

import matplotlib

matplotlib.use("Agg")
# pylint: disable=wrong-import-position
from matplotlib import pyplot, ticker

from . import summary, table

# The same contestant has the same colour and mark in every plot. A family's first colour is the
# reference's, if it is of that family.
_COLOURS = {
    "Ringside": ["#d62728", "#ff9f8f", "#8c1515", "#e377a2", "#f4a261", "#7a4b6b"],
    "QEMU": ["#1f4e9c", "#4f86d9", "#2a9d8f", "#76c8bd",
             "#5b3f9c", "#9c83d6", "#3b6d7a", "#8db5c0"],
    "Firecracker": ["#e08a00", "#f2bd5c"],
    "Cloud Hypervisor": ["#7b4f2c", "#b98b66", "#4a2c14"],
    "crosvm": ["#4d7c0f", "#a3c585"],
}
_MARKS = "osD^vP*X"
_GREY = {"ceiling": ("#333333", "--"), "host": ("#999999", "--")}
_PERCENTILES = {"p50": "median latency, us", "p99": "p99 latency, us"}
_CPU = {"host_cpu_ns_per_io": "CPU an I/O less vCPU, us", "cpu_ns_per_io": "CPU an I/O, us"}


def draw(results, directory):
    """Writes all plots for which there are figures."""
    style = Styles(results["contestants"], summary.reference(results))
    plots = [("iops", "I/Os a second against requests in flight", "closed", [_iops]),
             ("latency", "Latency against load, one mark a depth", "closed",
              [partial(_latency_against_iops, name=name) for name in _PERCENTILES]),
             ("cpu", "Process CPU an I/O, without and with the vCPU threads", "closed",
              [partial(_cpu, name=name) for name in _CPU]),
             ("open-loop", "Latency against arrivals (Poisson)", "open",
              [partial(_latency_against_rate, name=name) for name in _PERCENTILES])]
    for name, title, loop, panels in plots:
        columns = [(f"{target['name']}: {target['text']}",
                    summary.rows(results, target["name"], loop)) for target in results["targets"]]
        draw_figure(results, directory / name, title, columns, panels, style)


class Styles:
    """How a row is drawn."""

    def __init__(self, contestants, reference=None):
        self._reference = reference
        self._colours, self._marks = {}, {}
        counts = {}
        for contestant in sorted(contestants, key=lambda one: one["name"] != reference):
            family = contestant["family"]
            number = counts[family] = counts.get(family, -1) + 1
            palette = _COLOURS.get(family, ["#777777"])
            self._colours[contestant["name"]] = palette[number % len(palette)]
            self._marks[contestant["name"]] = _MARKS[number % len(_MARKS)]

    def of(self, row):
        """Arguments for plot()."""
        if row.family in _GREY:
            colour, dashes = _GREY[row.family]
            return {"color": colour, "linestyle": dashes, "linewidth": 1.4, "zorder": 1}
        width = 2.8 if row.name == self._reference else 2.0 if row.family == summary.OURS else 1.3
        return {"color": self._colours[row.name], "marker": self._marks[row.name],
                "markersize": 2 + 1.5 * width, "linewidth": width,
                "zorder": 5 if row.family == summary.OURS else 2}


def draw_figure(results, path, title, columns, panels, style):
    """A column for each (heading, summary's rows) of `columns` that has rows; below each other the
    `panels`, which draw such rows."""
    columns = [(heading, found) for heading, found in columns if found]
    if not columns:
        return
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ringside", "font.size": 9,
                            "font.sans-serif": ["DejaVu Sans"],
                            "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                            "axes.spines.right": False})
    size = (4.2 * len(columns) + 2.4, 3.6 * len(panels) + 0.8)
    figure, axes = pyplot.subplots(len(panels), len(columns), figsize=size, squeeze=False,
                                   layout="constrained")
    names = {}
    for column, (heading, found) in enumerate(columns):
        axes[0][column].set_title(heading, fontsize=9)
        for axis, panel in zip(axes[:, column], panels):
            panel(axis, found, style)
            for handle, label in zip(*axis.get_legend_handles_labels()):
                names.setdefault(label, handle)
    axes[0][-1].legend(names.values(), names.keys(), loc="center left", bbox_to_anchor=(1.02, 0.5),
                       frameon=False)
    figure.suptitle(f"{title}\n{_conditions(results)}", fontsize=10)
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=130, metadata=_without_date(suffix))
    pyplot.close(figure)
    drawn = path.with_suffix(".svg")
    drawn.write_text(small_svg(drawn.read_text()))


def small_svg(svg):
    """The same picture to a tenth of a point, with a line per group: such files are committed."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda tag: _small_tag(tag[0]), svg)
    return re.sub(r">\s+<", "><", svg).replace("<g id=", "\n<g id=")


def _small_tag(tag):
    tag = re.sub(r"(?<!opacity: )-?\b\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", tag)
    return re.sub(r"\s*\n\s*", " ", tag)


def _conditions(results):
    settings, machine = results["settings"], results["machine"]
    noisy = " - NOISY MACHINE" if results["noise"] else ""
    wait = f", wait={settings['wait']}" if "wait" in settings else ""
    return (f"{table.load_of(settings)}{wait}; "
            f"{machine['cpu']}, {machine['processors']} processors, Linux {machine['kernel']}; "
            f"{results['date'][:10]}{noisy}")


def _without_date(suffix):
    """A plot drawn again from the same file shall be the same file."""
    return {"Date": None} if suffix == ".svg" else {}


def _depth_axis(axis, found):
    depths = sorted({depth for row in found for depth in row.points})
    axis.set_xscale("log", base=2)
    axis.set_xticks(depths, [str(depth) for depth in depths])
    axis.set_xlabel("requests in flight")


def log_axis(axis, label):
    """Ratios as distances, figures written out."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=20))
    axis.yaxis.set_minor_locator(ticker.NullLocator())
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_ylabel(label)


def draw_band(axis, row, name, unit, style):
    """The medians of a figure, and a shade from lowest to highest."""
    look = style.of(row)
    keys, figures = _curve(row, name)
    axis.plot(keys, [figure.median / unit for figure in figures], label=row.name, **look)
    axis.fill_between(keys, [figure.low / unit for figure in figures],
                      [figure.high / unit for figure in figures], color=look["color"],
                      alpha=0.12, linewidth=0)


def _iops(axis, found, style):
    for row in found:
        draw_band(axis, row, "iops", 1000, style)
    _depth_axis(axis, found)
    log_axis(axis, "thousand I/Os a second")


def _latency_against_iops(axis, found, style, name):
    for row in found:
        loads = [point["iops"].median / 1000 for point in row.points.values()]
        axis.plot(loads, _medians_us(row, name), label=row.name, **style.of(row))
    axis.set_xlim(left=0)
    axis.set_xlabel("thousand I/Os a second reached")
    log_axis(axis, _PERCENTILES[name])


def _latency_against_rate(axis, found, style, name):
    for row in found:
        rates = [rate / 1000 for rate in row.points]
        axis.plot(rates, _medians_us(row, name), label=row.name, **style.of(row))
    axis.set_xlim(left=0)
    axis.set_xlabel("thousand arrivals a second")
    log_axis(axis, _PERCENTILES[name])


def _cpu(axis, found, style, name):
    for row in found:
        # The host has no vCPUs: all its time is what the others' without them compares with.
        depths, figures = _curve(row, name if row.family != "host" else "cpu_ns_per_io")
        axis.plot(depths, [figure.median / 1000 for figure in figures], label=row.name,
                  **style.of(row))
    _depth_axis(axis, found)
    log_axis(axis, _CPU[name])


def _medians_us(row, name):
    return [point[name].median / 1000 for point in row.points.values()]


def _curve(row, name):
    """Returns (keys, Figures) where that figure is known."""
    known = [(key, point[name]) for key, point in row.points.items() if point[name]]
    return [key for key, _ in known], [figure for _, figure in known]
