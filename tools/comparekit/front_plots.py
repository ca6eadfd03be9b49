"""A front's plots: mean latency against processor time, a column a target, a row a load."""

from dataclasses import replace
from functools import partial

from . import front, plots, summary, sweep_table

_CURVE = "Ringside poll fixed (limit in us)"
_TITLES = {"closed": "closed", "open": "poisson", "periodic": "periodic"}


def draw(results, directory):
    """Writes a figure for each loop that was run."""
    names = [(entry["family"], _CURVE if entry["policy"] in (front.NEVER, front.FIXED)
              else entry["name"]) for entry in results["contestants"]]
    style = plots.Styles([{"family": family, "name": name}
                          for family, name in dict.fromkeys(names)])
    for loop, name in _TITLES.items():
        keys = sorted({key for target in results["targets"]
                       for key in summary.job_keys(results, target["name"], loop)})
        columns = [(f"{target['name']}: {target['text']}",
                    {key: front.standings(results, target["name"], loop, key) for key in keys
                     if key in summary.job_keys(results, target["name"], loop)})
                   for target in results["targets"]]
        panels = [partial(_latency_against_cpu, key=key, load=sweep_table.load(loop, key))
                  for key in keys]
        plots.draw_figure(results, directory / f"front-{name}", "Latency against processor time",
                          columns, panels, style)


def _drawn_out(line):
    """What is straight between two spots is none on an axis of logarithms."""
    low, high = line[0][0], line[-1][0]
    return [(cpu, front.latency_at(line, cpu))
            for cpu in (low + (high - low) * step / 200 for step in range(201))]


def _latency_against_cpu(axis, by_key, style, key, load):
    found = by_key.get(key, [])
    curve = sorted((standing for standing in found if standing.is_of_front),
                   key=lambda standing: standing.limit_us)
    if curve:
        look = style.of(replace(curve[0].row, name=_CURVE))
        axis.plot(*zip(*_drawn_out(front.front_of(curve))), color="#dddddd", linewidth=7, zorder=0)
        axis.plot(*zip(*(standing.spot for standing in curve)), label=_CURVE, **look)
        for standing in curve:
            axis.annotate(str(standing.limit_us or "never"), standing.spot, fontsize=7,
                          textcoords="offset points", xytext=(4, 4))
    for standing in found:
        if not standing.is_of_front:
            axis.plot(*zip(standing.spot), label=standing.row.name,
                      **{**style.of(standing.row), "linestyle": "none", "markersize": 9,
                         "zorder": 6})
    axis.set_xlim(left=0)
    axis.set_xlabel("CPU less vCPU, % of a processor")
    plots.log_axis(axis, f"mean latency, us\n{load}")
