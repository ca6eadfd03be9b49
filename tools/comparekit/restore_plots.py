"""The plot of tools/compare restore: a column a target, a bar a contestant, with its quarters."""

from . import plots, restore


def draw(results, directory):
    style = plots.Styles(results["contestants"], restore.COMMAND)
    columns = [(target["name"], restore.rows(results, target["name"])) for target in results["targets"]]
    plots.draw_figure(results, directory / "restore", "From the start to the guest's first byte", columns,
                      [_bars], style)


def _bars(axis, rows, style):
    for place, row in enumerate(rows):
        axis.bar(place, row.p50, yerr=[[row.p50 - row.low], [row.high - row.p50]], label=row.name, capsize=3,
                 color=style.of(row)["color"])
    axis.set_xticks([])
    axis.set_ylim(bottom=0)
    axis.set_ylabel("ms, median")
