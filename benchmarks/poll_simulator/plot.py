#!/usr/bin/python3
"""Draws what `poll_simulator --sweep --json FILE` wrote, as SVG for documents and PNG for looking.

relative.svg      the cost of each policy relative to the clairvoyant's, by family
front-HOST.svg    latency added against CPU time burnt: the policies, and the curve of `fixed`
"""

import argparse
import json
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
# pylint: disable=wrong-import-position
from matplotlib import pyplot, ticker

_FORMAT = "ringside poll simulation"
_VERSION = 1
# The same policy has the same colour and mark in every plot.
_LOOKS = {
    "never": ("#777777", "s"),
    "always": ("#b9b9b9", "X"),
    "fixed": ("#5b3f9c", "^"),
    "grow-shrink": ("#1f4e9c", "o"),
    "weighted": ("#2a9d8f", "D"),
    "cost": ("#d62728", "*"),
}
_HIGHEST = 6  # times the optimum; bars beyond are cut and say how high they were
_COLUMNS = 5


class BadInput(Exception):
    """The user's to mend, in one line."""


def read(path):
    """Returns the simulation in a file."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"'{path}' is no JSON; give what poll_simulator --json wrote") from error
    if not isinstance(result, dict) or result.get("format") != _FORMAT:
        raise BadInput(f"'{path}' is no simulation; give what poll_simulator --json wrote")
    if result.get("version") != _VERSION:
        raise BadInput(f"'{path}' is of version {result.get('version')}; this script draws "
                       f"version {_VERSION}")
    return result


def draw(result, directory):
    """Writes all plots; returns their paths without suffix."""
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ringside", "font.size": 9,
                            "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
                            "axes.spines.top": False, "axes.spines.right": False})
    paths = [_save(_relative(result), directory / "relative")]
    for host in result["hosts"]:
        paths.append(_save(_front(result, host), directory / f"front-{host['name']}"))
    return paths


def _save(figure, path):
    for suffix in (".svg", ".png"):
        # A plot drawn again from the same file shall be the same file.
        metadata = {"Date": None} if suffix == ".svg" else {}
        figure.savefig(path.with_suffix(suffix), dpi=110, metadata=metadata)
    pyplot.close(figure)
    return path


def _conditions(result, host):
    return (f"{host['name']}: waking takes {host['wake_ns'] / 1000:g} us, "
            f"a sleep burns {host['sleep_cpu_ns'] / 1000:g} us; price {result['price']:g}")


# ---- Bars ----

def _relative(result):
    count = max(len(host["families"]) for host in result["hosts"])
    figure, axes = pyplot.subplots(len(result["hosts"]), 1, squeeze=False, layout="constrained",
                                   figsize=(1.05 * count + 2.5, 3.4 * len(result["hosts"]) + 0.6))
    for axis, host in zip(axes[:, 0], result["hosts"]):
        _draw_bars(axis, host)
        axis.set_title(_conditions(result, host), fontsize=9, pad=14)
    axes[0][0].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.suptitle("Cost relative to that of the clairvoyant who looks or sleeps", fontsize=10)
    return figure


def _draw_bars(axis, host):
    policies = list(host["relative_sums"])
    width = 0.84 / len(policies)
    for place, policy in enumerate(policies):
        heights = [_number(family["policies"][policy]["relative_cost"])
                   for family in host["families"]]
        centres = [group + (place - (len(policies) - 1) / 2) * width
                   for group in range(len(heights))]
        colour = _LOOKS[policy][0]
        axis.bar(centres, [min(height, _HIGHEST) for height in heights], width * 0.92,
                 color=colour, label=policy)
        for centre, height in zip(centres, heights):
            if height > _HIGHEST:
                axis.annotate(f"{height:.0f}", (centre, _HIGHEST), ha="center", va="bottom",
                              fontsize=6.5, color="#555555")
    axis.axhline(1, color="#333333", linewidth=1)
    axis.set_ylim(0, _HIGHEST)
    axis.grid(False, axis="x")
    axis.set_ylabel("x optimum")
    labels = [family["name"].replace("adversary-", "adversary:\n") for family in host["families"]]
    axis.set_xticks(range(len(labels)), labels, fontsize=8)
    axis.set_xlim(-0.55, len(labels) - 0.45)


def _number(value):
    """JSON knows no infinity."""
    return math.inf if value is None else value


# ---- Latency against CPU ----

def _front(result, host):
    families = host["families"]
    columns = min(_COLUMNS, len(families))
    rows = math.ceil(len(families) / columns)
    figure, axes = pyplot.subplots(rows, columns, squeeze=False, layout="constrained",
                                   figsize=(2.7 * columns + 2, 2.6 * rows + 0.9))
    named = {}
    for axis, family in zip(axes.flat, families):
        _draw_front(axis, family)
        axis.set_title(family["name"], fontsize=9)
        for handle, name in zip(*axis.get_legend_handles_labels()):
            named.setdefault(name, handle)
    for axis in list(axes.flat)[len(families):]:
        axis.set_visible(False)
    figure.supxlabel("CPU time burnt by waiting, us a wait", fontsize=9)
    figure.supylabel("latency added, us a wait", fontsize=9)
    axes[0][-1].legend(named.values(), named.keys(), loc="center left",
                       bbox_to_anchor=(1.05, 0.5), frameon=False)
    figure.suptitle(f"What each policy burns and adds; {_conditions(result, host)}", fontsize=10)
    return figure


def _draw_front(axis, family):
    sweep = family.get("sweep", [])
    if sweep:
        axis.plot(*_points(sweep), color="#5b3f9c", linewidth=1.2, marker=".", markersize=3.5,
                  alpha=0.6, label="fixed, 0 to 128 us")
    for policy, figures in family["policies"].items():
        colour, mark = _LOOKS[policy]
        size = 13 if policy == "cost" else 7
        axis.plot(*_points([figures]), color=colour, marker=mark, markersize=size, linestyle="",
                  markeredgecolor="white", markeredgewidth=0.6, label=policy, clip_on=False,
                  zorder=6 if policy == "cost" else 4)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=6))
    axis.xaxis.set_minor_locator(ticker.NullLocator())
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_ylim(bottom=0)


def _points(figures):
    return ([figure["cpu_ns_per_wait"] / 1000 for figure in figures],
            [figure["latency_ns_per_wait"] / 1000 for figure in figures])


def main():
    """Exit codes: 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(description="Draws the policies' costs as SVG and PNG.")
    parser.add_argument("file", type=Path, help="what poll_simulator --sweep --json FILE wrote")
    parser.add_argument("--directory", type=Path, help="for the plots; by default the file's")
    options = parser.parse_args()
    directory = options.directory or options.file.parent
    try:
        result = read(options.file)
        if not directory.is_dir():
            raise BadInput(f"--directory '{directory}' is none; make it first")
        for path in draw(result, directory):
            print(f"{path}.svg, {path}.png")
    except BadInput as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
